//! iceoryx2, publish-subscribe between two processes, both ends polling.
//!
//! Each invocation has a root folder and a prefix in `/dev/shm` of its own, named after its maker;
//! they go with it, and those of killed invocations go at the next start.

use std::path::Path;
use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use super::harness::{self, End, Plan, Timed};
use super::leftovers::{self, Folder, MEMORY, SHARED_MEMORY, remove_all};
use super::peer::{Peer, SPINS};
use crate::trouble::{During, Result, Trouble};

/// How long the two ends may take to find each other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Times it between two processes. The nodes are made after the fork.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    std::fs::metadata(SHARED_MEMORY)
        .setting_up("stat of /dev/shm, where iceoryx2 keeps its data")?;
    set_log_level(LogLevel::Fatal);
    let folder = Folder::new("ice")?;
    let prefix = format!("{MEMORY}{}_", leftovers::maker());
    let config = configuration(&folder, &prefix)?;
    let timed = harness::between_processes(
        plan,
        |peer| {
            Port::new(&config, ("ask", "answer"), peer)
                .and_then(|mut port| harness::time(plan, &mut port))
        },
        |peer| {
            Port::new(&config, ("answer", "ask"), peer)
                .and_then(|mut port| harness::answer(plan, &mut port))
        },
    );
    remove_all(Path::new(SHARED_MEMORY), &prefix);
    timed
}

fn configuration(folder: &Folder, prefix: &str) -> Result<Config> {
    let mut config = Config::default();
    let path = folder.path().as_os_str().as_encoded_bytes();
    let path = iceoryx2::prelude::Path::new(path).map_err(failed("root folder"))?;
    config.global.set_root_path(&path);
    config.global.prefix = FileName::new(prefix.as_bytes()).map_err(failed("prefix"))?;
    Ok(config)
}

fn failed<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> Trouble {
    move |error| Trouble::fail(format!("iceoryx2, {what}: {error:?}"))
}

/// For what is created: iceoryx2 does not give the errno, and what usually stands in the way there
/// is the machine's (no descriptors, no space or no permission in `/dev/shm` or the folder).
fn refused<E: std::fmt::Debug>(what: &'static str) -> impl Fn(E) -> Trouble {
    move |error| Trouble::skip(format!("iceoryx2, {what}: {error:?}"))
}

struct Port<'a> {
    out: Publisher<ipc::Service, u64, ()>,
    back: Subscriber<ipc::Service, u64, ()>,
    _node: Node<ipc::Service>,
    peer: Peer<'a>,
}

impl<'a> Port<'a> {
    /// Opens both services and waits until the other end has opened both too.
    fn new(config: &Config, (out, back): (&str, &str), peer: Peer<'a>) -> Result<Self> {
        let node = NodeBuilder::new()
            .config(config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<ipc::Service>()
            .map_err(refused("creating a node"))?;
        let service = |name: &str| {
            let name = name.try_into().map_err(failed("service name"))?;
            node.service_builder(&name)
                .publish_subscribe::<u64>()
                .open_or_create()
                .map_err(refused("opening a service"))
        };
        let (out, back) = (service(out)?, service(back)?);
        let subscriber =
            back.subscriber_builder().create().map_err(refused("creating a subscriber"))?;
        let publisher =
            out.publisher_builder().create().map_err(refused("creating a publisher"))?;
        let began = Instant::now();
        while out.dynamic_config().number_of_subscribers() == 0
            || back.dynamic_config().number_of_publishers() == 0
        {
            peer.check()?;
            if began.elapsed() > PATIENCE {
                return Err(Trouble::fail("iceoryx2: the two ends did not find each other"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self { out: publisher, back: subscriber, _node: node, peer })
    }
}

impl End for Port<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.out.send_copy(1).map(|_| ()).map_err(failed("send"))
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        loop {
            for _ in 0..SPINS {
                if self.back.receive().map_err(failed("receive"))?.is_some() {
                    return Ok(());
                }
            }
            self.peer.check()?;
        }
    }
}

//! iceoryx2, publish-subscribe between two processes, both ends polling.

use std::time::{Duration, Instant};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use tontine_host::peer::{Peer, SPINS};
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::iceoryx::{PATIENCE, Room, failed, refused};

use super::harness::{self, End, Plan, Timed};

/// Times it between two processes. The nodes are made after the fork.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let room = Room::new()?;
    harness::between_processes(
        plan,
        |peer| {
            Port::new(&room, ("ask", "answer"), peer)
                .and_then(|mut port| harness::time(plan, &mut port))
        },
        |peer| {
            Port::new(&room, ("answer", "ask"), peer)
                .and_then(|mut port| harness::answer(plan, &mut port))
        },
    )
}

struct Port<'a> {
    out: Publisher<ipc::Service, u64, ()>,
    back: Subscriber<ipc::Service, u64, ()>,
    _node: Node<ipc::Service>,
    peer: Peer<'a>,
}

impl<'a> Port<'a> {
    /// Opens both services and waits until the other end has opened both too.
    fn new(room: &Room, (out, back): (&str, &str), peer: Peer<'a>) -> Result<Self> {
        let node = room.node()?;
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

//! The ends of `cloudtoid` and `cloudtoid-spin`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cloudtoid_interprocess::{Error, Options, Publisher, Subscriber};
use tontine_bench::error::{MeasureError, Result};
use tontine_bench::leftovers::{self, Folder, SEMAPHORES, SHARED_MEMORY, remove_all};
use tontine_bench::peer::SPINS;

use super::{NAMED_BYTES, NAMED_CAPACITY};
use crate::driver::{NamedDriver, PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Patient, Peers, Transfer, check};
use crate::location::Location;

/// Minimum capacity of a queue in bytes, as in the library's benchmark.
const CAPACITY: usize = 1 << 20;
/// Minimum capacity of a queue in messages.
const DEPTH: usize = 4;
/// Maximum wait before the peers are checked.
const LOOK: Duration = Duration::from_secs(1);

/// A private location for queues, emptied when dropped in the process that created it.
#[derive(Debug)]
pub struct QueueDir {
    folder: Folder,
    name: String,
}

impl QueueDir {
    fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tontine_{}_{number}_", leftovers::maker());
        Ok(Self { folder: Folder::new("cloudtoid")?, name })
    }

    /// Returns the options of a queue for messages of `bytes` bytes.
    fn queue(&self, which: &str, bytes: usize) -> Options {
        let depth = DEPTH * (bytes + 16).next_multiple_of(8);
        let name = format!("{}{which}", self.name);
        Options::new(name, depth.max(CAPACITY)).with_path(self.folder.path())
    }
}

impl Drop for QueueDir {
    fn drop(&mut self) {
        if self.folder.is_ours() {
            let semaphores = format!("{SEMAPHORES}{}", self.name);
            remove_all(Path::new(SHARED_MEMORY), &semaphores);
        }
    }
}

#[cold]
fn failed(call: &'static str) -> impl Fn(Error) -> MeasureError {
    move |error| match error {
        Error::Io(error) => MeasureError::setting_up(call, error),
        other => MeasureError::fail(format!("Cloudtoid, {call}: {other}")),
    }
}

fn publisher(options: &Options) -> Result<Publisher> {
    Publisher::open(options).map_err(failed("Publisher::open"))
}

fn subscriber<const POLLS: bool>(
    options: &Options,
    bytes: usize,
) -> Result<CloudtoidSubscriber<POLLS>> {
    let subscriber = Subscriber::open(options).map_err(failed("Subscriber::open"))?;
    Ok(CloudtoidSubscriber { subscriber, buffer: vec![0; bytes] })
}

impl Outlet for Publisher {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        loop {
            for _ in 0..SPINS {
                match self.try_send(message) {
                    Ok(()) => return Ok(()),
                    Err(Error::Full) => std::thread::yield_now(),
                    Err(error) => return Err(failed("try_send")(error).into()),
                }
            }
            check(peers)?;
        }
    }
}

/// A subscriber, which polls or waits. Only a call that polls can reuse a buffer.
pub struct CloudtoidSubscriber<const POLLS: bool> {
    subscriber: Subscriber,
    buffer: Vec<u8>,
}

impl<const POLLS: bool> Inlet for CloudtoidSubscriber<POLLS> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let Self { subscriber, buffer } = self;
        loop {
            if POLLS {
                for _ in 0..SPINS {
                    let taken = subscriber.try_recv_into(buffer);
                    if let Some(length) = taken.map_err(failed("try_recv_into"))? {
                        return Ok(look(&buffer[..length]));
                    }
                }
            } else {
                let taken = subscriber.recv_timeout(LOOK).map_err(failed("recv_timeout"))?;
                if let Some(message) = taken {
                    return Ok(look(&message));
                }
            }
            check(peers)?;
        }
    }
}

impl Patient for CloudtoidSubscriber<false> {
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>> {
        let taken = self.subscriber.recv_timeout(time).map_err(failed("recv_timeout"))?;
        Ok(taken.map(|message| look(&message)))
    }
}

/// The queues of both rows.
pub struct CloudtoidQueues<const POLLS: bool>;

impl<const POLLS: bool> PairDriver for CloudtoidQueues<POLLS> {
    /// The directory, the queue to which the end sends, and the queue from which it receives.
    type Half = (Arc<QueueDir>, [&'static str; 2]);
    type End<const BYTES: usize> = Duplex<Publisher, CloudtoidSubscriber<POLLS>>;

    fn pair(_: usize) -> Result<PairHalves<Self::Half>> {
        let dir = Arc::new(QueueDir::new()?);
        let first = (Arc::clone(&dir), ["ask", "answer"]);
        let second = (Arc::clone(&dir), ["answer", "ask"]);
        Ok(PairHalves { first, second, kept: Some(Box::new(dir)) })
    }

    fn open<const BYTES: usize>(
        (dir, [out, back]): Self::Half,
        _: Peers<'_>,
    ) -> Result<Self::End<BYTES>> {
        let out = publisher(&dir.queue(out, BYTES))?;
        Ok(Duplex::new(out, subscriber(&dir.queue(back, BYTES), BYTES)?))
    }
}

impl<const POLLS: bool> StreamDriver for CloudtoidQueues<POLLS> {
    type Fixture = (QueueDir, Traffic);
    type Out = Publisher;
    type In = CloudtoidSubscriber<POLLS>;

    fn set_up(traffic: Traffic) -> Result<Self::Fixture> {
        Ok((QueueDir::new()?, traffic))
    }

    fn outlet((dir, traffic): &Self::Fixture, _: usize) -> Result<Publisher> {
        publisher(&dir.queue("stream", traffic.bytes))
    }

    fn inlet((dir, traffic): &Self::Fixture, _: Peers<'_>) -> Result<Self::In> {
        subscriber(&dir.queue("stream", traffic.bytes), traffic.bytes)
    }
}

fn by_name(at: &Location) -> Options {
    Options::new(at.name(), NAMED_CAPACITY).with_path(at.folder())
}

impl NamedDriver for CloudtoidQueues<false> {
    type Out = Publisher;
    type In = CloudtoidSubscriber<false>;

    fn sender(at: &Location) -> Result<Publisher> {
        publisher(&by_name(at))
    }

    fn receiver(at: &Location) -> Result<Self::In> {
        subscriber(&by_name(at), NAMED_BYTES)
    }
}

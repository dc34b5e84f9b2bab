//! The ends of `crossbeam`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use tontine_bench::error::Result;

use super::Crossbeam;
use crate::driver::{PairDriver, PairHalves, StreamDriver, Traffic};
use crate::end::{Duplex, Inlet, Outlet, Peers, Transfer, TransferError, check, spin_until};

/// Number of bytes by which all senders together may be ahead, within the two limits below.
const WINDOW_BYTES: usize = 16 << 20;
/// Number of messages by which the senders may always be ahead.
const FEWEST_AHEAD: usize = 16;
/// Maximum number of messages by which the senders may be ahead.
const MOST_AHEAD: usize = 1 << 14;
/// Maximum wait of the receiver before it checks the senders.
const LOOK: Duration = Duration::from_millis(250);

impl Outlet for Sender<u8> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], _: Peers<'_>) -> Transfer<()> {
        Sender::send(self, message[0]).map_err(|_| TransferError::Gone)
    }
}

impl Inlet for Receiver<u8> {
    #[inline(always)]
    fn receive<R>(&mut self, _: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        self.recv().map(|byte| look(&[byte])).map_err(|_| TransferError::Gone)
    }
}

impl PairDriver for Crossbeam {
    type Half = Duplex<Sender<u8>, Receiver<u8>>;
    type End<const BYTES: usize> = Self::Half;

    fn pair(_: usize) -> Result<PairHalves<Self::Half>> {
        let ((ask, to_answer), (answer, answered)) = (bounded(1), bounded(1));
        let one = Duplex::new(ask, answered);
        Ok(PairHalves::of((one, Duplex::new(answer, to_answer))))
    }

    fn open<const BYTES: usize>(half: Self::Half, _: Peers<'_>) -> Result<Self::Half> {
        Ok(half)
    }
}

/// A channel before its ends are opened, and the number of messages by which a sender may be
/// ahead.
pub struct ChannelFixture {
    sender: Sender<Box<[u8]>>,
    receiver: Receiver<Box<[u8]>>,
    taken: Arc<TakenCount>,
    ahead: u64,
}

/// Number of messages that the receiver has taken, published at intervals; on its own cache
/// line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct TakenCount(AtomicU64);

impl StreamDriver for Crossbeam {
    type Fixture = ChannelFixture;
    type Out = Boxes;
    type In = Unboxed;

    fn set_up(Traffic { bytes, senders }: Traffic) -> Result<ChannelFixture> {
        let (sender, receiver) = unbounded();
        let ahead = (WINDOW_BYTES / bytes).clamp(FEWEST_AHEAD, MOST_AHEAD) / senders;
        Ok(ChannelFixture { sender, receiver, taken: Arc::default(), ahead: ahead as u64 })
    }

    fn outlet(fixture: &ChannelFixture, _: usize) -> Result<Boxes> {
        let (sender, taken) = (fixture.sender.clone(), Arc::clone(&fixture.taken));
        Ok(Boxes { sender, taken, sent: 0, may_send: fixture.ahead, ahead: fixture.ahead })
    }

    fn inlet(fixture: &ChannelFixture, _: Peers<'_>) -> Result<Unboxed> {
        let (receiver, taken) = (fixture.receiver.clone(), Arc::clone(&fixture.taken));
        Ok(Unboxed { receiver, taken, count: 0, report: (fixture.ahead / 4).max(1) })
    }
}

/// The sender of boxes. It creates and fills each box; the receiver reads and frees it.
pub struct Boxes {
    sender: Sender<Box<[u8]>>,
    taken: Arc<TakenCount>,
    sent: u64,
    /// Number of messages after which the sender reads `taken` again.
    may_send: u64,
    ahead: u64,
}

impl Outlet for Boxes {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        if self.sent == self.may_send {
            // Relaxed: only the count is read, to bound the messages in flight.
            let taken = &self.taken.0;
            let (sent, ahead) = (self.sent, self.ahead);
            spin_until(peers, true, || taken.load(Ordering::Relaxed) + ahead > sent)?;
            self.may_send = taken.load(Ordering::Relaxed) + ahead;
        }
        self.sent += 1;
        self.sender.send(message.into()).map_err(|_| TransferError::Gone)
    }
}

/// The receiver of boxes.
pub struct Unboxed {
    receiver: Receiver<Box<[u8]>>,
    taken: Arc<TakenCount>,
    count: u64,
    /// Number of messages after which the receiver publishes its count.
    report: u64,
}

impl Inlet for Unboxed {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        let message = loop {
            match self.receiver.recv_timeout(LOOK) {
                Ok(message) => break message,
                Err(RecvTimeoutError::Timeout) => check(peers)?,
                Err(RecvTimeoutError::Disconnected) => return Err(TransferError::Gone),
            }
        };
        self.count += 1;
        if self.count.is_multiple_of(self.report) {
            self.taken.0.store(self.count, Ordering::Relaxed);
        }
        Ok(look(&message))
    }
}

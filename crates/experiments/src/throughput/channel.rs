//! Channels between threads: crossbeam's unbounded one, which sleeps, and an rtrb ring, on which
//! both ends spin.
//!
//! The unbounded channel would take all memory where the sender is the faster end, so senders keep
//! within a window; it is far larger than what a bounded queue holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use rtrb::{Consumer, Producer, RingBuffer};
use tontine_host::peer::{Peer, SPINS, spin_until};
use tontine_host::trouble::{Result, Trouble};

use super::harness::{Batches, Inlet, Outlet, Plan, check};
use super::{label, threads};

/// Bytes that a sender may be ahead, as far as the two limits below allow.
const WINDOW_BYTES: usize = 16 << 20;
/// Messages that a sender may always be ahead.
const FEWEST_AHEAD: usize = 16;
/// Messages that a sender may never be ahead.
const MOST_AHEAD: usize = 1 << 14;
/// How long the receiver waits before it looks after the senders.
const LOOK: std::time::Duration = std::time::Duration::from_millis(250);
/// Bytes in the ring.
const RING_BYTES: usize = 256 << 10;

/// One unbounded crossbeam channel. A message is a box: made and filled by its sender, read and
/// freed by the receiver.
pub(super) fn crossbeam(plan: &Plan) -> Result<Batches> {
    let (sender, receiver) = unbounded();
    let ahead = (WINDOW_BYTES / plan.bytes).clamp(FEWEST_AHEAD, MOST_AHEAD) / plan.senders;
    let taken = Arc::new(Taken::default());
    let outlets = (0..plan.senders).map(|_| {
        let (sender, taken) = (sender.clone(), Arc::clone(&taken));
        Boxes { sender, taken, sent: 0, may_send: ahead as u64, ahead: ahead as u64 }
    });
    let report = (ahead as u64 / 4).max(1);
    let inlet = Unboxed { receiver, taken: Arc::clone(&taken), count: 0, report };
    threads::from_threads(plan, outlets.collect(), inlet)
}

/// How many messages the receiver has taken of all senders, told now and then; alone on its line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Taken(AtomicU64);

struct Boxes {
    sender: Sender<Box<[u8]>>,
    taken: Arc<Taken>,
    sent: u64,
    /// How far it may go before it looks at `taken` again.
    may_send: u64,
    ahead: u64,
}

impl Outlet for Boxes {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        if self.sent == self.may_send {
            // Relaxed: only the count is read, to bound what is under way.
            let taken = &self.taken.0;
            let (sent, ahead) = (self.sent, self.ahead);
            spin_until(receiver, true, || taken.load(Ordering::Relaxed) + ahead > sent)?;
            self.may_send = taken.load(Ordering::Relaxed) + ahead;
        }
        self.sent += 1;
        self.sender.send(message.into()).map_err(|_| gone())
    }
}

struct Unboxed {
    receiver: Receiver<Box<[u8]>>,
    taken: Arc<Taken>,
    count: u64,
    /// After how many messages it tells.
    report: u64,
}

impl Inlet for Unboxed {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let message = loop {
            match self.receiver.recv_timeout(LOOK) {
                Ok(message) => break message,
                Err(RecvTimeoutError::Timeout) => check(senders)?,
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        };
        self.count += 1;
        if self.count.is_multiple_of(self.report) {
            self.taken.0.store(self.count, Ordering::Relaxed);
        }
        Ok(look(&message))
    }
}

fn gone() -> Trouble {
    Trouble::fail("the other end of the channel was dropped")
}

/// One rtrb ring: of words where a message is one, else of bytes, through which longer messages
/// pass in pieces.
pub(super) fn ring(plan: &Plan) -> Result<Batches> {
    if plan.bytes == label::BYTES {
        let (producer, consumer) = RingBuffer::new(RING_BYTES / label::BYTES);
        threads::from_threads(plan, vec![Words(producer)], WordsOut(consumer))
    } else {
        let (producer, consumer) = RingBuffer::new(RING_BYTES);
        let inlet = BytesOut { consumer, buffer: vec![0; plan.bytes] };
        threads::from_threads(plan, vec![Bytes(producer)], inlet)
    }
}

struct Words(Producer<u64>);

impl Outlet for Words {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        let Some(word) = message.first_chunk() else { return Err(gone()) };
        let word = u64::from_ne_bytes(*word);
        spin_until(receiver, true, || self.0.push(word).is_ok())
    }
}

struct WordsOut(Consumer<u64>);

impl Inlet for WordsOut {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        loop {
            for _ in 0..SPINS {
                if let Ok(word) = self.0.pop() {
                    return Ok(look(&word.to_ne_bytes()));
                }
                std::hint::spin_loop();
            }
            check(senders)?;
        }
    }
}

struct Bytes(Producer<u8>);

impl Outlet for Bytes {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        let mut left = message;
        spin_until(receiver, true, || {
            (_, left) = self.0.push_partial_slice(left);
            left.is_empty()
        })
    }
}

struct BytesOut {
    consumer: Consumer<u8>,
    buffer: Vec<u8>,
}

impl Inlet for BytesOut {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (mut filled, mut spins) = (0, 0);
        while filled < self.buffer.len() {
            let (got, _) = self.consumer.pop_partial_slice(&mut self.buffer[filled..]);
            filled += got.len();
            spins += 1;
            if spins == SPINS {
                check(senders)?;
                spins = 0;
            }
        }
        Ok(look(&self.buffer))
    }
}

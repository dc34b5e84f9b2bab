//! Crossbeam's channels between threads: `crossbeam`. A receiver that finds no message sleeps.
//!
//! A round trip uses bounded channels. A stream uses an unbounded channel, which would fill all
//! memory if the sender were faster than the receiver, so senders stay within a window. The window
//! is far larger than the capacity of a bounded queue.

use crate::about::{Asked, Between, Death, Idle, Listing, Mechanism, PEERS};
use crate::driver::Driver;
#[cfg(feature = "peers")]
use crate::driver::{PairUser, StreamUser, Traffic};

/// `crossbeam`.
pub struct Crossbeam;

impl Driver for Crossbeam {
    const MECHANISM: Mechanism = Mechanism {
        idle: Idle::Mediated,
        between: Between::Threads,
        needs: &[PEERS],
        shared_up_to: usize::MAX,
        ..Mechanism::new(
            "crossbeam",
            Death::TakesBoth,
            &[
                Listing::new(Asked::RoundTrip, "two bounded crossbeam channels; two threads"),
                Listing::new(
                    Asked::Throughput,
                    "an unbounded crossbeam channel, each message a box; threads",
                ),
            ],
        )
    };

    #[cfg(feature = "peers")]
    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.threads::<Self, 1>())
    }

    #[cfg(feature = "peers")]
    fn streams<U: StreamUser>(_: Traffic, user: U) -> Option<U::Out> {
        Some(user.threads::<Self>())
    }
}

#[cfg(feature = "peers")]
mod channels {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
    use tontine_host::error::Result;
    use tontine_host::peer::PeerHandle;

    use super::Crossbeam;
    use crate::driver::{Couple, PairDriver, StreamDriver, Traffic};
    use crate::end::{Duplex, Inlet, Outlet, TransferError, check, spin_until};

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
        fn send(&mut self, message: &[u8], _: &[PeerHandle<'_>]) -> Result<(), TransferError> {
            Sender::send(self, message[0]).map_err(|_| TransferError::Gone)
        }
    }

    impl Inlet for Receiver<u8> {
        #[inline(always)]
        fn receive<R>(
            &mut self,
            _: &[PeerHandle<'_>],
            look: impl FnOnce(&[u8]) -> R,
        ) -> Result<R, TransferError> {
            self.recv().map(|byte| look(&[byte])).map_err(|_| TransferError::Gone)
        }
    }

    impl PairDriver for Crossbeam {
        type Half = Duplex<Sender<u8>, Receiver<u8>>;
        type End<const BYTES: usize> = Self::Half;

        fn pair(_: usize) -> Result<Couple<Self::Half>> {
            let ((ask, asked), (answer, answered)) = (bounded(1), bounded(1));
            let one = Duplex { out: ask, back: answered };
            Ok(Couple::of((one, Duplex { out: answer, back: asked })))
        }

        fn open<const BYTES: usize>(half: Self::Half, _: &[PeerHandle<'_>]) -> Result<Self::Half> {
            Ok(half)
        }
    }

    /// A channel before its ends are opened, and the number of messages by which a sender may be
    /// ahead.
    pub struct ChannelBed {
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
        type Bed = ChannelBed;
        type Out = Boxes;
        type In = Unboxed;

        fn lay(Traffic { bytes, senders }: Traffic) -> Result<ChannelBed> {
            let (sender, receiver) = unbounded();
            let ahead = (WINDOW_BYTES / bytes).clamp(FEWEST_AHEAD, MOST_AHEAD) / senders;
            Ok(ChannelBed { sender, receiver, taken: Arc::default(), ahead: ahead as u64 })
        }

        fn outlet(bed: &ChannelBed, _: usize) -> Result<Boxes> {
            let (sender, taken) = (bed.sender.clone(), Arc::clone(&bed.taken));
            Ok(Boxes { sender, taken, sent: 0, may_send: bed.ahead, ahead: bed.ahead })
        }

        fn inlet(bed: &ChannelBed, _: &[PeerHandle<'_>]) -> Result<Unboxed> {
            let (receiver, taken) = (bed.receiver.clone(), Arc::clone(&bed.taken));
            Ok(Unboxed { receiver, taken, count: 0, report: (bed.ahead / 4).max(1) })
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
        fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
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
        fn receive<R>(
            &mut self,
            peers: &[PeerHandle<'_>],
            look: impl FnOnce(&[u8]) -> R,
        ) -> Result<R, TransferError> {
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
}

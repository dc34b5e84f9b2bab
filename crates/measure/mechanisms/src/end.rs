//! The ends of a mechanism: an [`Outlet`] sends, an [`Inlet`] receives, a [`TwoWay`] end does both.
//!
//! A waiting end checks at intervals that its peers, which each call receives, are alive. Without
//! peers it waits only for events that the mechanism itself reports, as in a test of survival. All
//! calls are generic, so that a timed loop inlines them.

use std::time::Duration;

use tontine_bench::error::{MeasureError, Result};
use tontine_bench::peer::PeerHandle;
pub use tontine_bench::peer::{check, spin_until};

/// The other ends, which a waiting end checks.
pub type Peers<'p> = &'p [PeerHandle<'p>];

/// The result of a call that transfers a message.
pub type Transfer<T> = Result<T, TransferError>;

/// The reason why a call of an end transferred no message.
#[derive(Debug)]
pub enum TransferError {
    /// The mechanism reports that the other end has ended.
    Gone,
    /// An error that the death of the other end does not explain.
    Broken(MeasureError),
}

impl From<MeasureError> for TransferError {
    fn from(trouble: MeasureError) -> Self {
        Self::Broken(trouble)
    }
}

impl From<TransferError> for MeasureError {
    #[cold]
    fn from(ended: TransferError) -> Self {
        match ended {
            TransferError::Gone => Self::fail("the other end was gone before the last message"),
            TransferError::Broken(trouble) => trouble,
        }
    }
}

/// Returns the end of a timeout in the form that POSIX expects: a time on the real-time clock.
pub fn deadline_in(time: Duration) -> libc::timespec {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or(0));
    let end = now + time;
    let tv_nsec = libc::c_long::from(end.subsec_nanos());
    libc::timespec { tv_sec: end.as_secs().cast_signed(), tv_nsec }
}

pub trait Outlet {
    /// Sends a message. Blocks until there is free space.
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()>;

    /// Takes back the sent messages that will not be read because the other end has ended.
    fn take_back(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Checks whether a successor of a dead receiver exists, and hands over to it.
    fn look_for_successor(&mut self) -> Result<()> {
        Ok(())
    }
}

pub trait Inlet {
    /// Waits for a message and passes it to `look`, in place if the mechanism allows it.
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R>;
}

/// A receiving end that can give up waiting.
pub trait Patient: Inlet {
    /// Receives for at most `time`. Returns `None` if no message arrived.
    fn receive_within<R>(
        &mut self,
        time: Duration,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Transfer<Option<R>>;
}

pub trait TwoWay: Outlet + Inlet {
    /// Prepares for the next message if this message gets no reply: performs all steps of `send`
    /// except waking the other end.
    fn forget(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the number of premature deliveries, if the end counts them.
    fn early(&self) -> Option<Early> {
        None
    }
}

/// Number of premature deliveries at an end.
#[derive(Debug, Clone, Copy)]
pub struct Early {
    /// Number of times that the end acquired the lock before the other end had changed the guarded
    /// word.
    pub skipped: u64,
    /// Number of messages received in the same time.
    pub rounds: u64,
}

/// An end of two mechanisms, one in each direction, with a resource that it keeps.
#[derive(Debug)]
pub struct Duplex<O, I, K = ()> {
    pub out: O,
    pub back: I,
    pub kept: K,
}

impl<O, I> Duplex<O, I> {
    pub fn new(out: O, back: I) -> Self {
        Self { out, back, kept: () }
    }
}

impl<O: Outlet, I, K> Outlet for Duplex<O, I, K> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        self.out.send(message, peers)
    }

    fn take_back(&mut self) -> Vec<Vec<u8>> {
        self.out.take_back()
    }
}

impl<O, I: Inlet, K> Inlet for Duplex<O, I, K> {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        self.back.receive(peers, look)
    }
}

impl<O: Outlet, I: Inlet, K> TwoWay for Duplex<O, I, K> {}

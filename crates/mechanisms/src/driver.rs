//! Access to the ends of a mechanism. A [`Driver`] represents a mechanism as a type and offers its
//! ends in up to three shapes:
//!
//! - [`PairDriver`]: two ends that reply to each other, created before a fork or between threads;
//! - [`StreamDriver`]: one receiver with one or several senders, created in the same way;
//! - [`NamedDriver`]: a sender and a receiver in processes that share nothing but a name.
//!
//! The user of a shape is a *visitor* ([`PairUser`], [`StreamUser`], [`NamedUser`]), generic over
//! the driver. A name is dispatched once ([`crate::registry`]); all code after that, including the
//! timed loop, is compiled for that driver alone.

use std::any::Any;

use tontine_host::error::Result;
use tontine_host::peer::PeerHandle;

use crate::about::Mechanism;
use crate::end::{Inlet, Outlet, Patient, TwoWay};
use crate::location::Location;

/// Number of bytes of each message between named ends. It is small because the tracer, which steps
/// through a copy, stops at each of its stores.
pub const NAMED_BYTES: usize = 64;

/// A mechanism as a type. An implementation omits the shapes that it does not offer.
pub trait Driver {
    /// Properties of the mechanism.
    const MECHANISM: Mechanism;

    /// Lets the user open two ends that reply to each other, with the size of a round trip's
    /// message.
    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        let _ = user;
        None
    }

    /// Lets the user open the ends for this traffic.
    fn streams<U: StreamUser>(traffic: Traffic, user: U) -> Option<U::Out> {
        let _ = (traffic, user);
        None
    }

    /// Lets the user open the ends by name.
    fn named<U: NamedUser>(user: U) -> Option<U::Out> {
        let _ = user;
        None
    }
}

/// Two ends that reply to each other.
pub trait PairDriver {
    /// One end before it is opened, in the process that created both.
    type Half;
    /// One end.
    type End<const BYTES: usize>: TwoWay;

    /// Creates both ends, for messages of `bytes` bytes.
    ///
    /// # Errors
    /// Returns `Skipped` if the machine lacks what they need.
    fn pair(bytes: usize) -> Result<Couple<Self::Half>>;

    /// Opens one end, in the process or thread that uses it, and waits for the other end.
    ///
    /// # Errors
    /// Returns `Skipped` if the machine lacks what it needs, `Failed` if the other end does not
    /// appear.
    fn open<const BYTES: usize>(
        half: Self::Half,
        peers: &[PeerHandle<'_>],
    ) -> Result<Self::End<BYTES>>;
}

/// Both halves of a pair. A process must drop the half that it does not use.
pub struct Couple<H> {
    /// The end that sends first.
    pub one: H,
    /// The end that replies.
    pub two: H,
    /// Resources, such as a directory, that must outlive both ends in the process that created
    /// them.
    pub stays: Option<Box<dyn Any>>,
}

impl<H> Couple<H> {
    /// Returns two halves that need no further resources.
    pub fn of((one, two): (H, H)) -> Self {
        Self { one, two, stays: None }
    }
}

/// Size and number of senders of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// Bytes per message.
    pub bytes: usize,
    /// Number of senders.
    pub senders: usize,
}

/// One receiver with one or several senders.
pub trait StreamDriver {
    /// Resources that are created before any end.
    type Bed;
    /// A sender's end.
    type Out: Outlet;
    /// The receiver's end.
    type In: Inlet;

    /// Creates the resources that all ends share.
    ///
    /// # Errors
    /// Returns `Skipped` if the machine lacks what they need.
    fn lay(traffic: Traffic) -> Result<Self::Bed>;

    /// Opens a sender's end: in the sender's process, or before the threads start.
    ///
    /// # Errors
    /// Returns the errors of [`PairDriver::open`].
    fn outlet(bed: &Self::Bed, sender: usize) -> Result<Self::Out>;

    /// Opens the receiver's end: after the forks, or after the senders' ends if they are threads.
    ///
    /// # Errors
    /// Returns the errors of [`PairDriver::open`].
    fn inlet(bed: &Self::Bed, senders: &[PeerHandle<'_>]) -> Result<Self::In>;

    /// Returns a remark for the row, if any.
    fn note(traffic: Traffic) -> Option<String> {
        let _ = traffic;
        None
    }
}

/// A sender and a receiver that find each other by name. Messages have [`NAMED_BYTES`].
pub trait NamedDriver: 'static {
    /// The sender's end.
    type Out: Outlet;
    /// The receiver's end.
    type In: Patient;

    /// Creates the resources that both ends share, once.
    ///
    /// # Errors
    /// Returns the errors of the mechanism.
    fn create(at: &Location) -> Result<()> {
        let _ = at;
        Ok(())
    }

    /// Opens the sender's end.
    ///
    /// # Errors
    /// Returns the errors of the mechanism.
    fn sender(at: &Location) -> Result<Self::Out>;

    /// Opens the receiver's end.
    ///
    /// # Errors
    /// Returns the errors of the mechanism.
    fn receiver(at: &Location) -> Result<Self::In>;
}

/// A user of two ends that reply to each other; `BYTES` is the length of a round trip's message.
pub trait PairUser {
    /// The user's result.
    type Out;
    /// Uses the ends in two threads.
    fn threads<P: PairDriver<Half: Send>, const BYTES: usize>(self) -> Self::Out;
    /// Uses the ends in two processes.
    fn processes<P: PairDriver, const BYTES: usize>(self) -> Self::Out;
}

/// A user of a stream.
pub trait StreamUser {
    /// The user's result.
    type Out;
    /// Uses a stream whose senders are threads.
    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out;
    /// Uses a stream whose senders are processes.
    fn processes<S: StreamDriver>(self) -> Self::Out;
}

/// A user of named ends.
pub trait NamedUser {
    /// The user's result.
    type Out;
    /// Uses named ends.
    fn named<N: NamedDriver>(self, mechanism: Mechanism) -> Self::Out;
}

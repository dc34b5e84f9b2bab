//! Access to the ends of a mechanism, in up to three shapes, each implemented by a type:
//!
//! - [`PairDriver`]: two ends that reply to each other, created before a fork or between threads;
//! - [`StreamDriver`]: one receiver with one or several senders, created in the same way;
//! - [`NamedDriver`]: a sender and a receiver in processes that share nothing but a name.
//!
//! The user of a shape is a *visitor* ([`PairUser`], [`StreamUser`], [`NamedUser`]), generic over
//! that type. A name is dispatched once ([`crate::registry`]); all code after that, including the
//! timed loop, is compiled for that type alone.

use std::any::Any;

use tontine_bench::error::Result;

use crate::about::Mechanism;
use crate::end::{Inlet, Outlet, Patient, Peers, TwoWay};
use crate::location::Location;

/// Number of bytes of each message between named ends. It is small because the tracer, which steps
/// through a copy, stops at each of its stores.
pub const NAMED_BYTES: usize = 64;

/// Two ends that reply to each other.
pub trait PairDriver {
    /// An end before it is opened, in the process that created both.
    type Half;
    type End<const BYTES: usize>: TwoWay;

    /// Creates both ends, for messages of `bytes` bytes.
    fn pair(bytes: usize) -> Result<PairHalves<Self::Half>>;

    /// Opens one end, in the process or thread that uses it, and waits for the other end.
    fn open<const BYTES: usize>(half: Self::Half, peers: Peers<'_>) -> Result<Self::End<BYTES>>;
}

/// Both halves of a pair. A process must drop the half that it does not use.
pub struct PairHalves<H> {
    /// The end that sends first.
    pub first: H,
    /// The end that replies.
    pub second: H,
    /// Resources, such as a directory, that must outlive both ends in the process that created
    /// them.
    pub kept: Option<Box<dyn Any>>,
}

impl<H> PairHalves<H> {
    /// Returns two halves that need no further resources.
    pub fn of((first, second): (H, H)) -> Self {
        Self { first, second, kept: None }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    pub bytes: usize,
    pub senders: usize,
}

/// A receiver with one or several senders.
pub trait StreamDriver {
    /// Resources that are created before any end.
    type Fixture;
    type Out: Outlet;
    type In: Inlet;

    /// Creates the resources that all ends share.
    fn set_up(traffic: Traffic) -> Result<Self::Fixture>;

    /// Opens a sender's end: in the sender's process, or before the threads start.
    fn outlet(fixture: &Self::Fixture, sender: usize) -> Result<Self::Out>;

    /// Opens the receiver's end: after the forks, or after the senders' ends if they are threads.
    fn inlet(fixture: &Self::Fixture, senders: Peers<'_>) -> Result<Self::In>;

    /// Returns a remark for the row, if any.
    fn note(traffic: Traffic) -> Option<String> {
        let _ = traffic;
        None
    }
}

/// A sender and a receiver that find each other by name. Messages have [`NAMED_BYTES`].
pub trait NamedDriver: 'static {
    type Out: Outlet;
    type In: Patient;

    /// Creates the resources that both ends share, once.
    fn create(at: &Location) -> Result<()> {
        let _ = at;
        Ok(())
    }

    fn sender(at: &Location) -> Result<Self::Out>;

    fn receiver(at: &Location) -> Result<Self::In>;
}

/// A user of two ends that reply to each other; `BYTES` is the length of a round trip's message.
pub trait PairUser {
    type Out;
    /// Uses the ends in two threads.
    fn threads<P: PairDriver<Half: Send>, const BYTES: usize>(self) -> Self::Out;
    /// Uses the ends in two processes.
    fn processes<P: PairDriver, const BYTES: usize>(self) -> Self::Out;
}

pub trait StreamUser {
    type Out;
    /// Uses a stream whose senders are threads.
    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out;
    /// Uses a stream whose senders are processes.
    fn processes<S: StreamDriver>(self) -> Self::Out;
}

pub trait NamedUser {
    type Out;
    fn named<N: NamedDriver>(self, mechanism: Mechanism) -> Self::Out;
}

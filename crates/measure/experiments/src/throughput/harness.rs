//! The protocol of all streams: [`StreamPlan`], which [`Flow`] runs over a mechanism's ends, and
//! [`CheckedFlow`] with a liveness check before each message.
//!
//! A sender labels and sends messages until the receiver stops it. It marks its last message, which
//! is the only sign for the receiver that all messages have arrived. Senders stay alive until then,
//! because a library may still be sending in the background.
//!
//! The receiver warms up, chooses the number of messages between two stamps so that a batch takes
//! about [`BATCH`], and stamps until the budget is spent. Only then does it signal the senders to
//! stop, so the stream runs both before and after the timed part.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use rustix::process::{getpid, test_kill_process};
use tontine_bench::peer::PeriodicSignal;
use tontine_mechanisms::driver::{StreamDriver, StreamUser, Traffic};
use tontine_mechanisms::end::{Inlet, Outlet, TransferError};
use tontine_mechanisms::workers::{in_processes, in_threads};

use super::label::{Label, SenderTotals};
use crate::prelude::*;

const BATCH: Duration = Duration::from_micros(250);
/// Maximum number of batches; more would add no information.
const MAX_BATCHES: usize = 20_000;
/// Minimum number of messages before the first stamp.
const WARM_UP: u32 = 16;
/// Divisor of the budget that yields the minimum time of the warm-up.
const WARM_UP_PART: u32 = 10;
const LINGER: Duration = Duration::from_micros(100);
/// Byte that fills a message between its labels.
const FILLING: u8 = 0x5a;

#[derive(Debug, Clone)]
pub(super) struct StreamPlan {
    pub(super) traffic: Traffic,
    budget: Duration,
    pub(super) here: usize,
    there: Vec<usize>,
    clock: Clock,
}

impl StreamPlan {
    /// Creates a plan for the allowed processors. The receiver has the first one to itself if there
    /// are others for the senders.
    pub(super) fn new(traffic: Traffic, budget: Duration, allowed: &[usize]) -> Self {
        let (here, others) = allowed.split_first().map_or((0, &[][..]), |(&a, b)| (a, b));
        let there = if others.is_empty() { vec![here] } else { others.to_vec() };
        Self { traffic, budget, here, there, clock: Clock::calibrated() }
    }

    fn processor_of(&self, sender: usize) -> usize {
        self.there[sender % self.there.len()]
    }
}

/// Batches stamped by the receiver.
#[derive(Debug)]
pub(super) struct Batches {
    /// Nanoseconds per message, for each batch.
    pub(super) message_ns: Vec<f64>,
    pub(super) batch: usize,
}

/// Signals of the receiver to the senders.
#[derive(Debug)]
#[repr(C)]
struct StopFlags {
    /// 1 when the next message must be the last.
    stop: AtomicU32,
    /// 1 when all messages have arrived.
    done: AtomicU32,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for StopFlags {}

/// Runs each sender in a process; `outlet` opens the sender's end there, by its number.
fn from_processes<O: Outlet, I: Inlet>(
    plan: &StreamPlan,
    outlet: impl Fn(usize) -> Result<O>,
    inlet: impl FnOnce(&[PeerHandle<'_>]) -> Result<I>,
) -> Result<Batches> {
    let flags = SharedMapping::<StopFlags>::anonymous()?;
    let (flags, outlet) = (&*flags, &outlet);
    let senders = (0..plan.traffic.senders).map(|sender| {
        let body = move |receiver: PeerHandle<'_>| {
            stream(plan, sender, flags, &mut outlet(sender)?, receiver)
        };
        (plan.processor_of(sender), body)
    });
    in_processes(plan.here, senders, |peers| {
        let _signal = PeriodicSignal::this_thread()?;
        collect(plan, flags, &mut inlet(peers)?, peers)
    })
}

pub(super) fn from_threads<O: Outlet + Send, I: Inlet>(
    plan: &StreamPlan,
    outlets: Vec<O>,
    mut inlet: I,
) -> Result<Batches> {
    let flags = SharedMapping::<StopFlags>::anonymous()?;
    let flags = &*flags;
    let senders = outlets.into_iter().enumerate().map(|(sender, mut outlet)| {
        let body =
            move |receiver: PeerHandle<'_>| stream(plan, sender, flags, &mut outlet, receiver);
        (plan.processor_of(sender), body)
    });
    in_threads(plan.here, senders.collect(), |peers| collect(plan, flags, &mut inlet, peers))
}

/// Sends until stopped, then waits until all messages have arrived.
#[inline(never)]
fn stream(
    plan: &StreamPlan,
    sender: usize,
    flags: &StopFlags,
    outlet: &mut impl Outlet,
    receiver: PeerHandle<'_>,
) -> Result<()> {
    let mut message = vec![FILLING; plan.traffic.bytes];
    for number in 0.. {
        let last = flags.stop.load(Ordering::Relaxed) != 0;
        Label { sender, number, last }.write(&mut message);
        outlet.send(&message, &[receiver])?;
        if last {
            break;
        }
    }
    while flags.done.load(Ordering::Relaxed) == 0 {
        receiver.check()?;
        thread::sleep(LINGER);
    }
    Ok(())
}

/// Receives and stamps, then receives the remaining messages.
fn collect(
    plan: &StreamPlan,
    flags: &StopFlags,
    inlet: &mut impl Inlet,
    senders: &[PeerHandle<'_>],
) -> Result<Batches> {
    let mut totals = SenderTotals::new(plan.traffic.senders);
    let mut take = |totals: &mut SenderTotals| {
        let read = |message: &[u8]| Label::read(message, plan.traffic.bytes);
        totals.enter(inlet.receive(senders, read)??)
    };
    let batches = in_batches(plan, || take(&mut totals))?;
    flags.stop.store(1, Ordering::Relaxed);
    while totals.is_open() {
        take(&mut totals)?;
    }
    flags.done.store(1, Ordering::Relaxed);
    Ok(batches)
}

/// Calls `once` repeatedly, in batches, until the budget is spent.
#[inline(never)]
pub(super) fn in_batches(
    plan: &StreamPlan,
    mut once: impl FnMut() -> Result<()>,
) -> Result<Batches> {
    // The first call may wait for both ends to connect.
    once()?;
    let (began, mut made) = (Instant::now(), 0_u32);
    while made < WARM_UP || began.elapsed() < plan.budget / WARM_UP_PART {
        once()?;
        made += 1;
    }
    let batch = BATCH.as_nanos() * u128::from(made) / began.elapsed().as_nanos().max(1);
    let batch = batch.clamp(1, u32::MAX.into()) as usize;

    let mut stamps = Vec::with_capacity(MAX_BATCHES + 1);
    let began = Instant::now();
    stamps.push(plan.clock.stop());
    while stamps.len() <= MAX_BATCHES && (stamps.len() < 3 || began.elapsed() < plan.budget) {
        for _ in 0..batch {
            once()?;
        }
        stamps.push(plan.clock.stop());
    }
    let each = stamps.windows(2).map(|pair| plan.clock.ns_between(pair[0], pair[1]));
    Ok(Batches { message_ns: each.map(|ns| ns / batch as f64).collect(), batch })
}

/// A stream that follows a plan. It yields the batches and the driver's note, if any.
pub(super) struct Flow<'p>(pub(super) &'p StreamPlan);

impl StreamUser for Flow<'_> {
    type Out = Result<(Batches, Option<String>)>;

    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out {
        let fixture = S::set_up(self.0.traffic)?;
        let outlets = (0..self.0.traffic.senders).map(|sender| S::outlet(&fixture, sender));
        let outlets = outlets.collect::<Result<Vec<_>>>()?;
        let batches = from_threads(self.0, outlets, S::inlet(&fixture, &[])?)?;
        Ok((batches, S::note(self.0.traffic)))
    }

    fn processes<S: StreamDriver>(self) -> Self::Out {
        let fixture = S::set_up(self.0.traffic)?;
        let outlet = |sender| S::outlet(&fixture, sender);
        let batches = from_processes(self.0, outlet, |senders| S::inlet(&fixture, senders))?;
        Ok((batches, S::note(self.0.traffic)))
    }
}

/// A stream from a process that calls `kill(pid, 0)` before each message.
pub(super) struct CheckedFlow<'p>(pub(super) &'p StreamPlan);

impl StreamUser for CheckedFlow<'_> {
    type Out = Result<Batches>;

    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out {
        Err(MeasureError::fail("a receiving thread has no process id of its own"))
    }

    fn processes<S: StreamDriver>(self) -> Self::Out {
        let fixture = S::set_up(self.0.traffic)?;
        let receiver = getpid();
        let outlet = |sender| Ok(CheckedOutlet { outlet: S::outlet(&fixture, sender)?, receiver });
        from_processes(self.0, outlet, |senders| S::inlet(&fixture, senders))
    }
}

/// A sender's end that does not send to a dead receiver.
struct CheckedOutlet<O> {
    outlet: O,
    receiver: Pid,
}

impl<O: Outlet> Outlet for CheckedOutlet<O> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        if test_kill_process(self.receiver).is_err() {
            return Err(TransferError::Gone);
        }
        self.outlet.send(message, peers)
    }
}

//! The protocol of all variants: [`StreamPlan`], and the connection of senders and receiver,
//! [`from_processes`] or `from_threads` in [`super::threads`].
//!
//! A sender labels and sends messages until it is told to stop. It marks its last message, which is
//! the only sign for the receiver that all messages have arrived. Senders stay alive until then,
//! because a library may still be sending in the background.
//!
//! The receiver warms up, chooses the number of messages between two stamps so that a batch takes
//! about [`BATCH`], and stamps until the budget is spent. Only then does it signal the senders to
//! stop, so the stream runs both before and after the timed part.
//!
//! This module does not depend on any mechanism.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tontine_host::clock::Clock;
use tontine_host::error::Result;
use tontine_host::os::child::Child;
use tontine_host::os::pin::{self, Pinned};
use tontine_host::os::shared::{Shareable, SharedMapping};
use tontine_host::peer::{ChildError, PeerHandle, PeriodicSignal};
use tontine_mechanisms::driver::Traffic;
use tontine_mechanisms::end::{Inlet, Outlet};

use super::label::{Label, SenderTotals};

/// Approximate duration of a batch.
const BATCH: Duration = Duration::from_micros(250);
/// Maximum number of batches; more would add no information.
const MOST_BATCHES: usize = 20_000;
/// Minimum number of messages before the first stamp.
const WARM_UP: u32 = 16;
/// Divisor of the budget that yields the minimum time of the warm-up.
const WARM_UP_PART: u32 = 10;
/// Polling interval of a sender that has sent its last message.
const LINGER: Duration = Duration::from_micros(100);
/// Byte that fills a message between its labels.
const FILLING: u8 = 0x5a;

/// The plan of a measurement.
#[derive(Debug, Clone)]
pub(super) struct StreamPlan {
    /// Bytes per message.
    pub(super) bytes: usize,
    /// Number of senders.
    pub(super) senders: usize,
    /// Time for which the receiver stamps.
    budget: Duration,
    /// Processor of the receiver.
    pub(super) here: usize,
    /// Processors of the senders, in turn.
    there: Vec<usize>,
    clock: Clock,
}

impl StreamPlan {
    /// Creates a plan for the allowed processors. The receiver has the first one to itself if there
    /// are others for the senders.
    pub(super) fn new(
        bytes: usize,
        senders: usize,
        budget: Duration,
        allowed: &[usize],
        clock: Clock,
    ) -> Self {
        let (here, others) = allowed.split_first().map_or((0, &[][..]), |(&a, b)| (a, b));
        let there = if others.is_empty() { vec![here] } else { others.to_vec() };
        Self { bytes, senders, budget, here, there, clock }
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic { bytes: self.bytes, senders: self.senders }
    }

    pub(super) fn processor_of(&self, sender: usize) -> usize {
        self.there[sender % self.there.len()]
    }
}

/// Batches stamped by the receiver.
#[derive(Debug)]
pub(super) struct Batches {
    /// Nanoseconds per message, for each batch.
    pub(super) message_ns: Vec<f64>,
    /// Messages in a batch.
    pub(super) batch: usize,
}

/// Signals of the receiver to the senders.
#[derive(Debug)]
#[repr(C)]
pub(super) struct StopFlags {
    /// 1 when the next message must be the last.
    stop: AtomicU32,
    /// 1 when all messages have arrived.
    done: AtomicU32,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for StopFlags {}

/// Runs each sender in a child process and the receiver in this process, all pinned. Both ends are
/// created after the forks; `outlet` is called in each child, with the child's number.
///
/// # Errors
/// Returns the error of the end that failed first. If a child died, the error names its status.
pub(super) fn from_processes<O: Outlet, I: Inlet>(
    plan: &StreamPlan,
    outlet: impl Fn(usize) -> Result<O>,
    inlet: impl FnOnce(&[PeerHandle<'_>]) -> Result<I>,
) -> Result<Batches> {
    let board = SharedMapping::<StopFlags>::anonymous()?;
    let words = (0..plan.senders).map(|_| ChildError::new()).collect::<Result<Vec<_>>>()?;
    let mut children = Vec::with_capacity(plan.senders);
    for (sender, words) in words.iter().enumerate() {
        children.push(Child::fork(|| {
            let sent =
                pin::pin_to(plan.processor_of(sender)).and_then(|()| outlet(sender)).and_then(
                    |mut outlet| stream(plan, sender, &board, &mut outlet, PeerHandle::Parent),
                );
            match sent {
                Ok(()) => 0,
                Err(trouble) => {
                    words.say(&trouble);
                    1
                }
            }
        })?);
    }
    let peers: Vec<PeerHandle<'_>> =
        children.iter().map(|child| PeerHandle::Child(child.pid())).collect();
    let _pinned = Pinned::to(plan.here)?;
    let _nudge = PeriodicSignal::this_thread()?;
    let taken = inlet(&peers).and_then(|mut inlet| collect(plan, &board, &mut inlet, &peers));
    // If a sender ended first, its own error names the cause better than the receiver's.
    match words.iter().find_map(|words| words.heard()) {
        Some(trouble) => Err(trouble),
        None => taken,
    }
}

/// Sends until told to stop, then waits until all messages have arrived.
#[inline(never)]
pub(super) fn stream(
    plan: &StreamPlan,
    sender: usize,
    board: &StopFlags,
    outlet: &mut impl Outlet,
    receiver: PeerHandle<'_>,
) -> Result<()> {
    let mut message = vec![FILLING; plan.bytes];
    for number in 0.. {
        let last = board.stop.load(Ordering::Relaxed) != 0;
        Label { sender, number, last }.write(&mut message);
        outlet.send(&message, &[receiver])?;
        if last {
            break;
        }
    }
    while board.done.load(Ordering::Relaxed) == 0 {
        receiver.check()?;
        thread::sleep(LINGER);
    }
    Ok(())
}

/// Receives and stamps, then receives the remaining messages.
pub(super) fn collect(
    plan: &StreamPlan,
    board: &StopFlags,
    inlet: &mut impl Inlet,
    senders: &[PeerHandle<'_>],
) -> Result<Batches> {
    let mut ledger = SenderTotals::new(plan.senders);
    let mut take = |ledger: &mut SenderTotals| {
        let label = inlet.receive(senders, |message| Label::read(message, plan.bytes))??;
        ledger.enter(label)
    };
    let batches = in_batches(plan, || take(&mut ledger))?;
    board.stop.store(1, Ordering::Relaxed);
    while ledger.is_open() {
        take(&mut ledger)?;
    }
    board.done.store(1, Ordering::Relaxed);
    Ok(batches)
}

/// Calls `once` repeatedly in the calling thread, pinned, without any other thread.
///
/// # Errors
/// Returns the errors of `once`.
pub(super) fn alone(plan: &StreamPlan, once: impl FnMut() -> Result<()>) -> Result<Batches> {
    let _pinned = Pinned::to(plan.here)?;
    in_batches(plan, once)
}

/// Calls `once` repeatedly, in batches, until the budget is spent.
#[inline(never)]
fn in_batches(plan: &StreamPlan, mut once: impl FnMut() -> Result<()>) -> Result<Batches> {
    // The first call may wait for both ends to connect.
    once()?;
    let (began, mut made) = (Instant::now(), 0_u32);
    while made < WARM_UP || began.elapsed() < plan.budget / WARM_UP_PART {
        once()?;
        made += 1;
    }
    let batch = BATCH.as_nanos() * u128::from(made) / began.elapsed().as_nanos().max(1);
    let batch = batch.clamp(1, u32::MAX.into()) as usize;

    let mut stamps = Vec::with_capacity(MOST_BATCHES + 1);
    let began = Instant::now();
    stamps.push(plan.clock.stop());
    while stamps.len() <= MOST_BATCHES && (stamps.len() < 3 || began.elapsed() < plan.budget) {
        for _ in 0..batch {
            once()?;
        }
        stamps.push(plan.clock.stop());
    }
    let each = stamps.windows(2).map(|pair| plan.clock.ns_between(pair[0], pair[1]));
    Ok(Batches { message_ns: each.map(|ns| ns / batch as f64).collect(), batch })
}

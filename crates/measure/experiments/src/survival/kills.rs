//! Starts the processes of two ends, kills a random one and judges the other: [`kills`].
//!
//! A survivor that has not noticed after [`ATTENDED`] is set aside, and the next pair begins. If
//! the ends spin, the survivor runs with the lowest priority, so that it disturbs no other process.
//! It is wedged if it has not noticed by the deadline. A mechanism that always wedges therefore
//! does not cost a full deadline per kill. Wedged survivors are killed; no process is left behind.

#![allow(unsafe_code, reason = "lowers the priority of a process")]

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use std::any::Any;
use std::collections::VecDeque;

use tontine_mechanisms::about::Carries;
use tontine_mechanisms::driver::PairHalves;
use tontine_mechanisms::end::TwoWay;

use super::end::{BothProgress, EndProgress, PairEnd};
use crate::prelude::*;

/// Time for which the parent waits for a survivor whose mechanism promises no notification. Others
/// are awaited until the deadline: on a busy machine, a survivor that was set aside could be kept
/// from its processor until then, and would count as wedged.
const ATTENDED: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of messages that must have passed before the kill.
const BEGUN: u64 = 8;
/// Time after the start within which the kill happens, uniformly distributed. The window is longer
/// than several rounds of any mechanism, and far longer than one round of most.
const WINDOW: Duration = Duration::from_micros(500);
const LOOK: Duration = Duration::from_micros(100);

#[derive(Debug, Clone, Copy)]
pub(super) struct KillPlan {
    pub(super) count: usize,
    pub(super) processors: [usize; 2],
    pub(super) spins: bool,
    pub(super) promises_notice: bool,
    /// The part of a message that reaches the receiver.
    pub(super) carries: Carries,
    /// Time after the kill at which a survivor that has not noticed counts as wedged.
    pub(super) deadline: Duration,
    pub(super) clock: Clock,
}

impl KillPlan {
    fn attended(&self) -> Duration {
        if self.promises_notice { self.deadline } else { ATTENDED }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KillOutcome {
    /// Time from the kill to the notice; `None` if the survivor is wedged.
    pub(super) notice_ns: Option<f64>,
    pub(super) torn: bool,
    /// `true` if a message that the killed end had sent never arrived.
    pub(super) lost_with_sender: bool,
    /// `true` if a message that the survivor had sent, before or after the kill, was never read.
    pub(super) lost_with_receiver: bool,
}

/// Starts a pair and kills one of its ends, as often as the plan requires. Each end is opened in
/// its own process.
pub(super) fn kills<H, E: TwoWay>(
    plan: &KillPlan,
    pair: impl Fn() -> Result<PairHalves<H>>,
    open: impl Fn(H) -> Result<E>,
) -> Result<Vec<KillOutcome>> {
    let mut outcomes = Vec::with_capacity(plan.count);
    let mut aside: VecDeque<Survivor> = VecDeque::new();
    for _ in 0..plan.count {
        let survivor = PairRun::begin(plan, pair()?, &open)?.kill_one(plan)?;
        if ends_within(survivor.process.pid(), plan.attended())? {
            outcomes.push(survivor.outcome(plan)?);
        } else {
            if plan.spins {
                survivor.step_back();
            }
            aside.push_back(survivor);
        }
        while aside.front().is_some_and(|first| first.time_left(plan).is_zero()) {
            outcomes.extend(aside.pop_front().map(|first| first.outcome(plan)).transpose()?);
        }
    }
    for survivor in aside {
        ends_within(survivor.process.pid(), survivor.time_left(plan))?;
        outcomes.push(survivor.outcome(plan)?);
    }
    Ok(outcomes)
}

struct PairRun {
    progress: SharedMapping<BothProgress>,
    ends: [Child; 2],
    kept: Option<Box<dyn Any>>,
}

impl PairRun {
    fn begin<H, E: TwoWay>(
        plan: &KillPlan,
        PairHalves { first, second, kept }: PairHalves<H>,
        open: &impl Fn(H) -> Result<E>,
    ) -> Result<Self> {
        let progress = SharedMapping::<BothProgress>::anonymous()?;
        // A descriptor that reports a death must have no other holder. Each end therefore drops
        // the other's end, and this process drops both ends along with the closures.
        let second = Cell::new(Some(second));
        let &KillPlan { processors, carries, clock, .. } = plan;
        let run = |half: H, side: usize| {
            let end = PairEnd { side, processor: processors[side], carries, clock };
            end.run(|| open(half), &progress[side])
        };
        let one = Child::fork(|| {
            drop(second.take());
            run(first, 0)
        })?;
        let second = second.take().ok_or_else(|| MeasureError::fail("no second end"))?;
        let two = Child::fork(|| run(second, 1))?;
        let mut pair = Self { progress, ends: [one, two], kept };
        pair.until_begun()?;
        Ok(pair)
    }

    fn until_begun(&mut self) -> Result<()> {
        let received = |one: &EndProgress| one.received.load(Ordering::Relaxed);
        let all = poll_for(TIMEOUT, LOOK, || {
            self.progress.iter().find_map(|one| one.words.heard()).map_or(Ok(()), Err)?;
            let noticed = self.progress.iter().any(|one| one.noticed.load(Ordering::Relaxed) != 0);
            ensure!(!noticed, "an end noticed a death before there was one");
            Ok(self.progress.iter().all(|one| received(one) >= BEGUN))
        })?;
        let found = self.progress.each_ref().map(received);
        ensure!(
            all,
            "expected messages to pass within {TIMEOUT:?}, found none or too few: {found:?}"
        );
        Ok(())
    }

    fn kill_one(self, plan: &KillPlan) -> Result<Survivor> {
        let Self { progress, ends: [one, two], kept } = self;
        let victim_side = usize::from(rand::random::<bool>());
        let (mut victim, survivor) = if victim_side == 0 { (one, two) } else { (two, one) };
        thread::sleep(WINDOW.mul_f64(rand::random::<f64>()));
        let killed_at = Instant::now();
        let stamp = plan.clock.start();
        victim.signal(Signal::KILL).setting_up("kill")?;
        let status = victim.wait()?;
        if status.terminating_signal() != Some(libc::SIGKILL) {
            let error = progress[victim_side].words.heard();
            return Err(error.unwrap_or_else(|| {
                MeasureError::fail(format!("an end ended before it was killed: {status:?}"))
            }));
        }
        Ok(Survivor {
            side: 1 - victim_side,
            process: survivor,
            progress,
            _kept: kept,
            stamp,
            killed_at,
        })
    }
}

struct Survivor {
    side: usize,
    process: Child,
    progress: SharedMapping<BothProgress>,
    _kept: Option<Box<dyn Any>>,
    stamp: u64,
    /// Time of the kill, by the system's clock.
    killed_at: Instant,
}

impl Survivor {
    fn time_left(&self, plan: &KillPlan) -> Duration {
        plan.deadline.saturating_sub(self.killed_at.elapsed())
    }

    /// Lets all other processes run before the survivor. A failure is ignored: the figures are then
    /// noisier.
    fn step_back(&self) {
        // The kernel's `struct sched_param`. musl's function for this call always fails.
        let priority: libc::c_int = 0;
        let pid = self.process.pid().as_raw_nonzero().get();
        // SAFETY: takes numbers and a plain structure that lives for the call; the process is our
        // child and not reaped, so no other process has the number.
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, pid, libc::SCHED_IDLE, &priority) };
    }

    /// Returns the survivor's outcome. A survivor that still runs has not noticed, and is killed.
    fn outcome(mut self, plan: &KillPlan) -> Result<KillOutcome> {
        self.process.kill()?;
        let (own, dead) = (&self.progress[self.side], &self.progress[1 - self.side]);
        if let Some(error) = own.words.heard() {
            return Err(error);
        }
        // SYNC survival-noticed: pairs with the store in `PairEnd::run`.
        let noticed = own.noticed.load(Ordering::Acquire);
        let torn = own.torn.load(Ordering::Relaxed) != 0;
        let unread = |sent: u64, received: u64| sent > received;
        // A survivor that was set aside may be checked some time after the deadline.
        let notice_ns = (noticed != 0).then(|| plan.clock.ns_between(self.stamp, noticed));
        // At most one message is in flight.
        let taken_back = own.taken_back.load(Ordering::Relaxed) != 0;
        Ok(KillOutcome {
            notice_ns: notice_ns.filter(|&ns| ns <= plan.deadline.as_nanos() as f64),
            torn,
            // A torn message counts as arrived, because a part of it was received.
            lost_with_sender: !torn
                && unread(dead.sent.load(Ordering::Relaxed), own.received.load(Ordering::Relaxed)),
            lost_with_receiver: !taken_back
                && unread(own.sent.load(Ordering::Relaxed), dead.received.load(Ordering::Relaxed)),
        })
    }
}

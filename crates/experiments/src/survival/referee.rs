//! Starts two players, kills a random one and judges the other: [`kills`].
//!
//! A survivor that has not noticed after [`ATTENDED`] is set aside, and the next pair begins. If
//! the players spin, the survivor runs with the lowest priority, so that it disturbs no other
//! process. It is wedged if it has not noticed by the deadline. A mechanism that always wedges
//! therefore does not cost a full deadline per kill. Wedged survivors are killed; no process is
//! left behind.

#![allow(unsafe_code, reason = "lowers the priority of a process")]

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::shared::SharedMapping;
use tontine_mechanisms::about::Carries;
use tontine_mechanisms::driver::Couple;
use tontine_mechanisms::end::TwoWay;

use super::player::{BothProgress, PairPlayer};

/// Time for which the referee waits for a survivor whose mechanism promises no notification. Others
/// are awaited until the deadline: on a busy machine, a survivor that was set aside could be kept
/// from its processor until then, and would count as wedged.
const ATTENDED: Duration = Duration::from_millis(1);
/// Timeout for the start of two players.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of messages that must have passed before the kill.
const BEGUN: u64 = 8;
/// Time after the start within which the kill happens, uniformly distributed. The window is longer
/// than several rounds of any mechanism, and far longer than one round of most.
const WINDOW: Duration = Duration::from_micros(500);
/// Interval between two checks that messages pass.
const LOOK: Duration = Duration::from_micros(100);

/// The plan of an invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillPlan {
    /// Number of kills.
    pub(super) count: usize,
    /// Processors of the two players.
    pub(super) processors: [usize; 2],
    /// `true` if the players spin.
    pub(super) spins: bool,
    /// `true` if the mechanism promises to notify a survivor.
    pub(super) promises_notice: bool,
    /// The part of a message that reaches the receiver.
    pub(super) carries: Carries,
    /// Time after the kill at which a survivor that has not noticed counts as wedged.
    pub(super) deadline: Duration,
    pub(super) clock: Clock,
}

impl KillPlan {
    /// Returns the time for which the referee waits for a survivor before it is set aside.
    fn attended(&self) -> Duration {
        if self.promises_notice { self.deadline } else { ATTENDED }
    }
}

/// The fate of one survivor and of the messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct KillOutcome {
    /// Time from the kill to the notice; `None` if the survivor is wedged.
    pub(super) notice_ns: Option<f64>,
    /// `true` if the survivor received a torn message.
    pub(super) torn: bool,
    /// `true` if a message that the killed player had sent never arrived.
    pub(super) lost_with_sender: bool,
    /// `true` if a message that the survivor had sent, before or after the kill, was never read.
    pub(super) lost_with_receiver: bool,
}

/// Starts a pair and kills one of its players, as often as the plan requires. Each end is opened in
/// its own process.
///
/// # Errors
/// Returns `Skipped` if the machine lacks the mechanism, and `Failed` if an end fails for a reason
/// other than a death.
pub(super) fn kills<H, E: TwoWay>(
    plan: &KillPlan,
    pair: impl Fn() -> Result<Couple<H>>,
    open: impl Fn(H) -> Result<E>,
) -> Result<Vec<KillOutcome>> {
    let mut fates = Vec::with_capacity(plan.count);
    let mut aside: VecDeque<Survivor> = VecDeque::new();
    for _ in 0..plan.count {
        let mut survivor = PairRun::begin(plan, pair()?, &open)?.kill_one(plan)?;
        if survivor.ends_within(plan.attended())? {
            fates.push(survivor.fate(plan)?);
        } else {
            if plan.spins {
                survivor.step_back();
            }
            aside.push_back(survivor);
        }
        while aside.front().is_some_and(|first| first.time_left(plan).is_zero()) {
            fates.extend(aside.pop_front().map(|first| first.fate(plan)).transpose()?);
        }
    }
    for mut survivor in aside {
        survivor.ends_within(survivor.time_left(plan))?;
        fates.push(survivor.fate(plan)?);
    }
    Ok(fates)
}

/// Two players that pass messages.
struct PairRun {
    progress: SharedMapping<BothProgress>,
    players: [Child; 2],
    stays: Option<Box<dyn Any>>,
}

impl PairRun {
    fn begin<H, E: TwoWay>(
        plan: &KillPlan,
        Couple { one: first, two: second, stays }: Couple<H>,
        open: &impl Fn(H) -> Result<E>,
    ) -> Result<Self> {
        let progress = SharedMapping::<BothProgress>::anonymous()?;
        // A descriptor that reports a death must have no other holder. Each player therefore drops
        // the other's end, and this process drops both ends along with the closures.
        let second = Cell::new(Some(second));
        let &KillPlan { processors, carries, clock, .. } = plan;
        let player = |half: H, side: usize| {
            let player = PairPlayer { side, processor: processors[side], carries, clock };
            player.play(|| open(half), &progress[side])
        };
        let one = Child::fork(|| {
            drop(second.take());
            player(first, 0)
        })?;
        let second = second.take().ok_or_else(|| MeasureError::fail("no second end"))?;
        let two = Child::fork(|| player(second, 1))?;
        let mut game = Self { progress, players: [one, two], stays };
        game.until_begun()?;
        Ok(game)
    }

    fn until_begun(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.progress.iter().any(|of_one| of_one.received.load(Ordering::Relaxed) < BEGUN) {
            if let Some(trouble) = self.progress.iter().find_map(|of_one| of_one.words.heard()) {
                return Err(trouble);
            }
            if self.progress.iter().any(|of_one| of_one.noticed.load(Ordering::Relaxed) != 0) {
                return Err(MeasureError::fail("a player noticed a death before there was one"));
            }
            if began.elapsed() > PATIENCE {
                return Err(MeasureError::fail(format!(
                    "expected messages to pass within {PATIENCE:?}, found none or too few: {:?}",
                    self.progress.each_ref().map(|of_one| of_one.received.load(Ordering::Relaxed))
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Kills a random player at a random moment.
    fn kill_one(self, plan: &KillPlan) -> Result<Survivor> {
        let Self { progress, players: [one, two], stays } = self;
        let victim_side = usize::from(rand::random::<bool>());
        let (mut victim, survivor) = if victim_side == 0 { (one, two) } else { (two, one) };
        // Opened before the kill, so that only waiting follows the kill.
        let ending = pidfd_open(survivor.pid(), PidfdFlags::empty()).setting_up("pidfd_open")?;
        thread::sleep(WINDOW.mul_f64(rand::random::<f64>()));
        let killed_at = Instant::now();
        let stamp = plan.clock.start();
        victim.signal(Signal::KILL).setting_up("kill")?;
        let status = victim.wait()?;
        if status.terminating_signal() != Some(libc::SIGKILL) {
            let said = progress[victim_side].words.heard();
            return Err(said.unwrap_or_else(|| {
                MeasureError::fail(format!("a player ended before it was killed: {status:?}"))
            }));
        }
        Ok(Survivor {
            side: 1 - victim_side,
            process: survivor,
            ending,
            progress,
            _stays: stays,
            stamp,
            killed_at,
        })
    }
}

/// The player that was not killed.
struct Survivor {
    side: usize,
    process: Child,
    /// Readable once the survivor has ended.
    ending: std::os::fd::OwnedFd,
    progress: SharedMapping<BothProgress>,
    _stays: Option<Box<dyn Any>>,
    /// Time of the kill, by the players' clock.
    stamp: u64,
    /// Time of the kill, by the system's clock.
    killed_at: Instant,
}

impl Survivor {
    /// Returns `true` if the survivor ends within `time`.
    fn ends_within(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&self.ending, PollFlags::IN)], Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).during("poll of a pidfd"),
            }
        }
    }

    /// Returns the time left for the survivor to notice.
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

    /// Returns the survivor's fate. A survivor that still runs has not noticed, and is killed.
    fn fate(mut self, plan: &KillPlan) -> Result<KillOutcome> {
        self.process.kill()?;
        let (own, dead) = (&self.progress[self.side], &self.progress[1 - self.side]);
        if let Some(trouble) = own.words.heard() {
            return Err(trouble);
        }
        // SYNC survival-noticed: pairs with the player's store.
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

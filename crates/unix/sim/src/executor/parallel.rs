//! The parallel executor: the choice of a worker's next fiber, the sleep of idle workers, and the
//! detection of the end of a run.
//!
//! Each worker takes fibers from four queues: its inbox, the fibers woken on this worker, the
//! fibers that have not started (which other workers may also take), and the fibers that yielded.
//! Woken fibers come first, but each queue comes first once in [`ROUND`] choices. An idle worker
//! polls for a few microseconds and then sleeps.
//!
//! The thread that called `run` is the monitor. It runs timers, reports fibers that compute for too
//! long, ends time slices, and, when all workers sleep, decides whether the run has ended.
//!
//! | state of the worker at a wake-up | reason why it is noticed |
//! | --- | --- |
//! | runs a fiber | the inbox is read before each choice |
//! | polls | as above |
//! | is about to sleep | `WorkerInbox::fall_asleep` fails |
//! | sleeps | the post finds the sleep mark, removes it, and wakes the worker |
#![allow(unsafe_code, reason = "runs fibers by address")]
#![allow(clippy::disallowed_types, reason = "the clock of this executor is the wall clock")]

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::here::HERE;
use super::local::Local;
use super::signals::{SignalStack, hold_others};
use super::task::{SwitchReason, Task, Worker};
use super::tick::{self, TickTimer};
use super::{FiberExecutor, Rest, RunEnd};
use crate::costs::LOOKS;

/// The wall-clock time at which an executor was created.
#[derive(Clone, Copy)]
pub(super) struct Epoch(Instant);

impl Epoch {
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Number of choices within which each of a worker's queues comes first once.
pub(super) const ROUND: u32 = 32;
/// Maximum number of fibers that an idle worker takes at a time.
pub(super) const TAKEN: usize = 16;
/// Interval between the monitor's checks: the first while a worker runs, the second while none
/// does.
pub(super) const BUSY_LOOK: Duration = Duration::from_millis(4);
const IDLE_LOOK: Duration = Duration::from_millis(250);

impl FiberExecutor {
    /// Runs the executor; see [`FiberExecutor::run`].
    pub(super) fn run_parallel(&self) -> RunEnd {
        thread::scope(|scope| {
            let _end = StopOnPanic(self);
            let mut threads = Vec::with_capacity(self.workers.len());
            for worker in &self.workers {
                let thread = thread::Builder::new()
                    .name(format!("processor {}", worker.number()))
                    .spawn_scoped(scope, || self.work(worker))
                    .expect("the operating system has a thread for each processor");
                threads.push(thread);
            }
            let outcome = self.watch();
            self.stop();
            // Running fibers yield at their next call. A fiber that is just being resumed clears
            // the first request, so the request is repeated.
            while outcome == RunEnd::Stopped && !threads.iter().all(|one| one.is_finished()) {
                self.workers
                    .iter()
                    .for_each(|worker| worker.make_way.store(true, Ordering::Relaxed));
                thread::sleep(BUSY_LOOK);
            }
            outcome
        })
    }

    /// The main loop of a worker.
    fn work(&self, worker: &'static Worker) {
        let _end = StopOnPanic(self);
        let local = Local::new();
        let _signal_stack = SignalStack::install();
        hold_others(tick::signal());
        HERE.with(|here| {
            here.worker.set(worker);
            here.local.set(&raw const local);
        });
        let timer = self.ticks.get().map(|ticks| {
            TickTimer::new(*ticks).expect("the operating system has a timer for each processor")
        });
        while !self.stopping.load(Ordering::Relaxed) {
            match self.next(worker, &local).or_else(|| self.take(worker)) {
                Some(task) => self.run_one(task, worker, &local),
                None => self.idle(worker),
            }
        }
        drop(timer);
        self.leave(worker, &local);
        HERE.with(|here| {
            here.local.set(std::ptr::null());
            here.worker.set(std::ptr::null());
        });
    }

    /// Chooses the next fiber among those of this worker.
    fn next(&self, worker: &'static Worker, local: &Local) -> Option<*const Task> {
        if worker.inbox.has_posts() {
            self.fetch(worker, local);
        }
        let turn = local.turn.get().wrapping_add(1) % ROUND;
        local.turn.set(turn);
        let first = match turn {
            0 => {
                let chosen = local.yielded.pop();
                local.overtakes.set(chosen.is_some() && !local.woken.is_empty());
                chosen
            }
            1 => worker.pop_fresh(),
            _ => None,
        };
        first
            .or_else(|| local.woken.pop())
            .or_else(|| worker.pop_fresh())
            .or_else(|| local.yielded.pop())
    }

    /// Sorts the inbox into the queues.
    fn fetch(&self, worker: &'static Worker, local: &Local) {
        worker.inbox.drain(|task| {
            // SAFETY: a queued task is alive, and this thread holds it.
            let task = unsafe { &*task };
            if task.is_fresh() && !task.pinned {
                self.share(worker.push_fresh(task));
            } else {
                local.woken.push(task);
            }
        });
    }

    /// Takes half of the fibers that have not started from another worker.
    fn take(&self, worker: &'static Worker) -> Option<*const Task> {
        let (before, after) = self.workers.split_at(worker.number());
        let victim = after[1..].iter().chain(before).find(|victim| victim.has_fresh())?;
        let count = victim.fresh_count().div_ceil(2).min(TAKEN);
        let adopt = |task: *const Task| {
            // SAFETY: a queued task is alive, and this thread holds it.
            unsafe { &*task }.take_to(worker);
            task
        };
        let first = adopt(victim.pop_fresh()?);
        for _ in 1..count {
            let Some(task) = victim.pop_fresh() else { break };
            worker.push_fresh(adopt(task));
        }
        Some(first)
    }

    /// Wakes a sleeping worker to take some of `count` fibers that have not started. The last fiber
    /// is left to the worker that started it, because that worker is usually about to wait for it.
    /// Otherwise the monitor shares it.
    pub(super) fn share(&self, count: usize) {
        if count < 2 || self.workers.len() == 1 {
            return;
        }
        if let Some(sleeper) = self.workers.iter().find(|worker| worker.is_asleep()) {
            sleeper.wake();
        }
    }

    /// Runs a fiber until it suspends or ends, and queues it accordingly.
    fn run_one(&self, task: *const Task, worker: &Worker, local: &Local) {
        // SAFETY: a queued task is alive until it is buried, below.
        let this = unsafe { &*task };
        worker.begin_run(this.name, local.overtakes.take());
        HERE.with(|here| {
            here.context.set(this.context);
            here.task.set(task);
        });
        let leave = this.resume();
        HERE.with(|here| {
            here.task.set(std::ptr::null());
            here.context.set(0);
        });
        match leave {
            SwitchReason::Park if this.sleep() => {}
            SwitchReason::Park => local.woken.push(task),
            SwitchReason::Yield | SwitchReason::Point | SwitchReason::Spin => {
                local.yielded.push(task)
            }
            SwitchReason::Abandon | SwitchReason::End | SwitchReason::Overflow => {
                // SAFETY: the task has stopped permanently, is in no queue, and is not accessed
                // again.
                unsafe { self.bury(task, leave, worker, local) };
            }
        }
        worker.running.store(0, Ordering::Relaxed);
    }

    /// Polls, then sleeps until there may be work.
    fn idle(&self, worker: &'static Worker) {
        for _ in 0..LOOKS {
            if worker.inbox.has_posts() || self.has_fresh() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut rest = self.rest();
        if rest.outcome.is_some() {
            return;
        }
        worker.announce_sleep();
        if !worker.inbox.fall_asleep() || self.has_fresh() {
            worker.inbox.wake_up();
            worker.cancel_sleep();
            return;
        }
        rest.asleep += 1;
        if self.verdict(&rest).is_some() {
            self.monitor.notify_all();
        }
        drop(rest);
        worker.sleep(None);
        let mut rest = self.rest();
        worker.inbox.wake_up();
        rest.asleep -= 1;
    }

    fn has_fresh(&self) -> bool {
        self.workers.iter().any(|worker| worker.has_fresh())
    }

    /// Returns the outcome of the run if no fiber can ever run again in the current state. A worker
    /// that is counted as asleep takes nothing from its inbox, so if all inboxes are empty, no
    /// fiber is in transit.
    fn verdict(&self, rest: &Rest) -> Option<RunEnd> {
        let still = rest.asleep == self.workers.len()
            && !self.has_fresh()
            && !self.workers.iter().any(|worker| worker.inbox.has_posts());
        if !still {
            return None;
        }
        if self.live() == 0 {
            return Some(RunEnd::Finished);
        }
        let hopeless = self.external.load(Ordering::Relaxed) == 0 && self.timers.is_empty();
        hopeless.then_some(RunEnd::Deadlocked)
    }

    /// The main loop of the monitor.
    fn watch(&self) -> RunEnd {
        let mut watchdog = Watchdog::new(self);
        let mut hook_called_at = None;
        loop {
            self.timers.run_due(self.now());
            watchdog.look(self);
            let mut rest = self.rest();
            if let Some(outcome) = rest.outcome {
                return outcome;
            }
            if let Some(verdict) = self.verdict(&rest) {
                drop(rest);
                let runs = self.workers.iter().map(|worker| worker.runs.load(Ordering::Relaxed));
                let runs = Some(runs.sum::<u64>());
                // A hook that woke no fiber is not called again until a fiber has run.
                if verdict == RunEnd::Deadlocked && hook_called_at != runs {
                    hook_called_at = runs;
                    if self.options.hooks.on_stall() {
                        continue;
                    }
                }
                return *self.rest().outcome.get_or_insert(verdict);
            }
            let idle = rest.asleep == self.workers.len();
            let look = if idle { IDLE_LOOK } else { BUSY_LOOK };
            let due = self.timers.next().map_or(look, |next| next.saturating_sub(self.now()));
            rest = self
                .monitor
                .wait_timeout(rest, look.min(due))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            drop(rest);
        }
    }

    /// Ends a worker: drops the fibers that have not started, and returns the cached stacks.
    fn leave(&self, worker: &'static Worker, local: &Local) {
        self.fetch(worker, local);
        let queued =
            || local.woken.pop().or_else(|| worker.pop_fresh()).or_else(|| local.yielded.pop());
        while let Some(task) = queued() {
            // SAFETY: a queued task is alive, and this thread holds it. A task that has never
            // started is buried once, here.
            unsafe {
                if (*task).is_fresh() {
                    self.bury(task, SwitchReason::End, worker, local);
                }
            }
        }
        self.pool.give(local.stacks.borrow_mut().drain(..));
    }
}

/// A guard that ends the run if the thread that owns it panics. Without it, the other threads would
/// wait indefinitely.
struct StopOnPanic<'a>(&'a FiberExecutor);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}

/// The monitor's records of each worker.
struct Watchdog(Vec<WorkerSample>);

struct WorkerSample {
    runs: u64,
    beat: u64,
    since: Instant,
    named: bool,
}

impl Watchdog {
    fn new(executor: &FiberExecutor) -> Self {
        let since = Instant::now();
        Self(
            executor
                .workers
                .iter()
                .map(|_| WorkerSample { runs: 0, beat: 0, since, named: false })
                .collect(),
        )
    }

    /// Ends the time slice of each fiber that has run since the last check, reports fibers that run
    /// for too long, and shares fibers that no worker has started.
    fn look(&mut self, executor: &FiberExecutor) {
        let now = Instant::now();
        for (seen, worker) in self.0.iter_mut().zip(&executor.workers) {
            let name = worker.running.load(Ordering::Relaxed);
            let (runs, beat) = (worker.runs.load(Ordering::Relaxed), worker.beat());
            if runs == seen.runs {
                worker.make_way.store(true, Ordering::Relaxed);
            }
            seen.runs = runs;
            if beat != seen.beat || name == 0 {
                // Not `now`, which may be older than the beat if this thread was preempted.
                let since = Instant::now();
                *seen = WorkerSample { runs, beat, since, named: false };
                continue;
            }
            if !seen.named && now.duration_since(seen.since) >= executor.options.busy_limit {
                seen.named = true;
                executor.options.hooks.on_busy(name);
            }
        }
        if executor.has_fresh() {
            executor.share(2);
        }
    }
}

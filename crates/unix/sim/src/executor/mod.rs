//! Execution of virtual threads: [`FiberExecutor`], [`Fiber`], [`park`], [`point`].
//!
//! A fiber is the execution of one virtual thread: a stackful coroutine that stays on its worker,
//! the OS thread that implements a processor. Locks and the kernel use fibers
//! only through the functions here, and do not depend on the kind of executor. Outside of fibers,
//! at boot and in tests of single parts, these functions act on the OS thread.
//!
//! - **Parallel** (`parallel.rs`): one thread per processor. An idle thread may take a fiber that
//!   has not started; once started, a fiber stays on its thread.
//! - **Simulated** (`simulated.rs`): one thread, a virtual clock, and a seed that decides at each
//!   [`point`] which fiber runs. The same seed gives the same run.
//! - **Modelled** (`modelled/`): one thread that models many processors, each with a clock, and a
//!   cost for each step. The same seed and costs give the same run.
//!
//! `fiber.rs` contains the operations of a fiber, `task.rs` its representation, `queue.rs` the
//! queues of runnable fibers, `worker.rs` a processor, `local.rs` the part of a processor that only
//! its own thread accesses, `stack.rs` stacks, `overflow.rs` the handling of their overflow,
//! `timer.rs` timed actions, `tick.rs` the clock, `signals.rs` the signals of threads,
//! `footprint.rs` the objects that two steps have in common, `reach.rs` their recording. The kernel
//! defines what a fiber does, which signals it receives and how it is killed.
#![allow(unsafe_code, reason = "queues and ends fibers by address")]

mod chooser;
mod fiber;
mod footprint;
mod here;
mod local;
mod modelled;
mod options;
mod overflow;
mod parallel;
mod queue;
mod reach;
mod signals;
mod simulated;
mod stack;
mod task;
#[cfg(test)]
mod tests;
mod tick;
mod timer;
mod worker;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub use chooser::{CLOCK, Chooser, SwitchEvent};
pub(crate) use chooser::{ReseedingChooser, Seeded};
pub use fiber::{Fiber, context, current, park};
pub(crate) use fiber::{
    abandon, aside, current_id, forget_context, point, preempt, processor, rest, serve_itself,
    spin, take_turns, turn, yield_now,
};
pub(crate) use footprint::LOCAL_RANKS;
pub use footprint::{At, Footprint, Object};
use here::HERE;
pub(crate) use here::TickFn;
use local::{AT_HAND, Local, MOVED};
pub(crate) use modelled::{STRETCH, compute, spend, spend_half, touch};
pub use options::Reused;
pub(crate) use options::{ExecutorOptions, Hooks, RunEnd, Start};
pub(crate) use overflow::{back_in_kernel, in_kernel, stack_left};
pub use overflow::{enter_kernel, leave_kernel};
pub(crate) use reach::{changes, looks_at};
pub use signals::SignalStack;
use stack::{FiberStack, StackPool};
pub(crate) use stack::{StackCounts, StackError};
pub use task::SwitchReason;
use task::{Affinity, Task, Worker};
use tick::TickSettings;
pub(crate) use tick::{TICKS_A_SECOND, splhigh, splx};
use timer::Timers;
pub(crate) use timer::{Timer, TimerAction};

use crate::costs::CostModel;

/// An executor of fibers. It can run only once.
pub(crate) struct FiberExecutor {
    workers: Box<[&'static Worker]>,
    pool: Arc<StackPool>,
    timers: Timers,
    options: ExecutorOptions,
    /// Number of fibers started.
    started: AtomicU64,
    /// Number of [`External`] guards.
    external: AtomicUsize,
    /// `true` once no more fibers may be resumed.
    stopping: AtomicBool,
    /// Number of fibers that a run abandoned.
    given_up: AtomicUsize,
    /// The sleeping workers, and the way in which the run ends.
    rest: Mutex<Rest>,
    /// Wakes the thread in [`FiberExecutor::run`].
    monitor: Condvar,
    epoch: parallel::Epoch,
    ticks: OnceLock<TickSettings>,
    kind: ExecutorKind,
}

/// The executor whose rules decide which fiber runs.
enum ExecutorKind {
    Parallel,
    Simulated(simulated::Simulation),
    Modelled(modelled::MachineModel),
}

/// The worker that this thread runs, if the thread belongs to the executor, and its private part.
type CurrentWorker<'a> = Option<(&'a Worker, &'a Local)>;

/// State shared by sleeping workers and the monitor.
#[derive(Default)]
struct Rest {
    asleep: usize,
    outcome: Option<RunEnd>,
}

impl FiberExecutor {
    /// Creates an executor with one thread per processor. Panics if `processors` is 0.
    pub(crate) fn parallel(processors: usize, options: ExecutorOptions) -> Arc<Self> {
        assert!(processors > 0, "an executor needs a processor");
        let workers = (0..processors).map(Worker::acquire).collect();
        Arc::new(Self::new(workers, options, ExecutorKind::Parallel))
    }

    /// Creates an executor on the thread that calls [`FiberExecutor::run`], scheduled by `seed`.
    #[cfg(test)]
    pub(crate) fn simulated(seed: u64, options: ExecutorOptions) -> Arc<Self> {
        Self::chosen(Box::new(Seeded::varied(seed)), options)
    }

    /// Creates a simulated executor scheduled by `chooser`. Panics if
    /// [`ExecutorOptions::processors`] is 0.
    pub(crate) fn chosen(chooser: Box<dyn Chooser>, options: ExecutorOptions) -> Arc<Self> {
        assert!(options.processors > 0, "an executor needs a processor");
        let simulation = simulated::Simulation::new(chooser, options.farthest.is_some());
        Arc::new(Self::on_one_thread(options, ExecutorKind::Simulated(simulation)))
    }

    /// Creates an executor that models [`ExecutorOptions::processors`] processors; each step takes
    /// the time given by `costs`. Panics if [`ExecutorOptions::processors`] is 0.
    pub(crate) fn modelled(costs: CostModel, seed: u64, options: ExecutorOptions) -> Arc<Self> {
        assert!(options.processors > 0, "an executor needs a processor");
        let model = modelled::MachineModel::new(costs, seed);
        Arc::new(Self::on_one_thread(options, ExecutorKind::Modelled(model)))
    }

    fn on_one_thread(options: ExecutorOptions, kind: ExecutorKind) -> Self {
        Self::new(Box::new([Worker::acquire(0)]), options, kind)
    }

    fn new(workers: Box<[&'static Worker]>, options: ExecutorOptions, kind: ExecutorKind) -> Self {
        overflow::install();
        Self {
            workers,
            pool: match &options.reused {
                Some(Reused(pool)) => Arc::clone(pool),
                None => Arc::new(StackPool::new(options.stack_size, options.stacks)),
            },
            timers: Timers::default(),
            options,
            started: AtomicU64::new(0),
            external: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            given_up: AtomicUsize::new(0),
            rest: Mutex::default(),
            monitor: Condvar::new(),
            epoch: parallel::Epoch::now(),
            ticks: OnceLock::new(),
            kind,
        }
    }

    /// Starts a fiber. May be called from a fiber, before the run, and from a timer. Fails if no
    /// stack is available. Panics if the processor does not exist.
    pub(crate) fn start(&self, start: Start) -> Result<Fiber, StackError> {
        let (task, mine) = self.make(start, |local| self.stack(local))?;
        self.queue_fresh(&task, mine);
        Ok(Fiber::new(task))
    }

    /// Like [`FiberExecutor::start`], but the fiber begins when it is unparked. Fails if no stack
    /// is available. Panics if the processor does not exist.
    pub(crate) fn start_asleep(&self, start: Start) -> Result<Fiber, StackError> {
        let (task, _) = self.make(start, |local| self.stack(local))?;
        task.begin_asleep();
        Ok(Fiber::new(task))
    }

    /// Like [`FiberExecutor::start`], but exceeds the limit on stacks if necessary. Fails if the
    /// kernel refuses memory for a stack. Panics if the processor does not exist.
    pub(crate) fn start_beyond(&self, start: Start) -> Result<Fiber, StackError> {
        let (task, mine) = self.make(start, |local| {
            let at_hand = local.and_then(|local| local.stacks.borrow_mut().pop());
            at_hand.map_or_else(|| self.pool.lend_beyond(), Ok)
        })?;
        self.queue_fresh(&task, mine);
        Ok(Fiber::new(task))
    }

    /// Creates a fiber that is in no queue. Also returns the worker that this thread runs, if the
    /// thread belongs to the executor.
    fn make<'a>(
        &self,
        start: Start,
        stack: impl FnOnce(Option<&Local>) -> Result<FiberStack, StackError>,
    ) -> Result<(Arc<Task>, CurrentWorker<'a>), StackError> {
        HERE.with(|here| {
            // SAFETY: worker records are never freed; the private part outlives its thread's run.
            let (worker, local) =
                unsafe { (here.worker.get().as_ref(), here.local.get().as_ref()) };
            let mine = worker.filter(|worker| self.owns(worker)).zip(local);
            let processors = self.processors();
            if let Some(processor) = start.processor {
                assert!(processor < processors, "there is no processor {processor}");
            }
            let stack = stack(mine.map(|(_, local)| local))?;
            // Numbering a fiber changes system-wide state.
            changes(Object::System);
            let number = self.started.fetch_add(1, Ordering::Relaxed) % u64::from(u32::MAX);
            let id = number as u32 + 1;
            let processor = match (start.processor, mine) {
                (Some(processor), _) => processor,
                (None, Some((worker, _))) if self.is_parallel() => worker.number(),
                (None, _) => modelled::current().unwrap_or(id as usize % processors),
            };
            let home = self.workers[if self.is_parallel() { processor } else { 0 }];
            let place = Affinity { home, processor, pinned: start.processor.is_some() };
            Ok((Task::new(id, start, place, stack), mine))
        })
    }

    /// Queues a fiber that has not started.
    fn queue_fresh(&self, task: &Arc<Task>, mine: CurrentWorker<'_>) {
        let (raw, home) = (Arc::as_ptr(task), task.home());
        match mine {
            Some(_) if modelled::post(raw, true) => {}
            Some((worker, local)) if std::ptr::eq(worker, home) => {
                let alone = self.workers.len() == 1;
                if task.pinned || alone {
                    // No other worker may take the fiber.
                    local.woken.push(raw);
                } else {
                    self.share(worker.push_fresh(raw));
                }
            }
            _ => home.post(raw),
        }
    }

    /// Runs until no fiber is left, all threads are blocked, or [`FiberExecutor::stop`] is called.
    ///
    /// Abandons the remaining fibers: leaks the contents of their stacks and counts them as
    /// abandoned. Fibers that have not started never begin. Panics if `run` was called before or is
    /// called within a fiber, or if the system provides no thread for a processor.
    pub(crate) fn run(&self) -> RunEnd {
        let inside = HERE.with(|here| !here.worker.get().is_null());
        assert!(!inside, "an executor cannot run within another");
        let outcome = match &self.kind {
            ExecutorKind::Parallel => self.run_parallel(),
            ExecutorKind::Simulated(simulation) => simulation.run(self),
            ExecutorKind::Modelled(model) => model.run(self),
        };
        let left = self.live();
        self.given_up.store(left, Ordering::Relaxed);
        self.pool.abandon(left);
        outcome
    }

    /// Makes the fiber that runs on `processor` yield at its next return to user mode.
    pub(crate) fn hurry(&self, processor: usize) {
        match &self.kind {
            ExecutorKind::Parallel => {
                self.workers[processor].make_way.store(true, Ordering::Relaxed)
            }
            ExecutorKind::Simulated(_) => {}
            ExecutorKind::Modelled(_) => modelled::hurry(processor),
        }
    }

    /// Makes [`FiberExecutor::run`] return. No more fibers are resumed.
    pub(crate) fn stop(&self) {
        self.rest().outcome.get_or_insert(RunEnd::Stopped);
        self.stopping.store(true, Ordering::Relaxed);
        self.monitor.notify_all();
        for worker in &self.workers {
            worker.wake();
        }
    }

    /// Returns the names of the named fibers that are on a processor. A fiber may have left its
    /// processor since.
    pub(crate) fn running(&self) -> Vec<usize> {
        let names = self.workers.iter().map(|worker| worker.running.load(Ordering::Relaxed));
        names.filter(|name| *name != 0).collect()
    }

    /// Returns the time since the start, by the monotonic clock (parallel), the virtual clock
    /// (simulated), or the clock of the modelled processor that runs the caller (modelled).
    pub(crate) fn now(&self) -> Duration {
        match &self.kind {
            ExecutorKind::Parallel => self.epoch.elapsed(),
            ExecutorKind::Simulated(simulation) => simulation.now(),
            ExecutorKind::Modelled(model) => model.now(),
        }
    }

    /// Like [`Self::now`], in nanoseconds. Async-signal-safe.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Runs `action` at `when` or soon after, outside of fibers. The action may unpark and start
    /// fibers; it must neither wait nor take a lock that a fiber may hold.
    pub(crate) fn at(self: &Arc<Self>, when: Duration, action: TimerAction) -> Timer {
        changes(Object::Timers);
        let (key, first) = self.timers.set(when, action);
        if first && self.is_parallel() {
            drop(self.rest());
            self.monitor.notify_all();
        }
        modelled::look_at(when);
        Timer { executor: Arc::clone(self), key }
    }

    /// Makes the clock tick on every processor, `hz` times per second, from the beginning of the
    /// run. `call` must be async-signal-safe; see `tick.rs`. In the simulated executor, ticks occur
    /// at points that the chooser picks, regardless of `hz`. Panics if the clock already ticks, or
    /// if `hz` is 0 or above 1,000,000.
    pub(crate) fn ticks(&self, hz: u32, call: TickFn) {
        assert!((1..=1_000_000).contains(&hz), "expected `hz` from 1 to 1,000,000, found {hz}");
        let set = self.ticks.set(TickSettings { hz, call });
        assert!(set.is_ok(), "the clock ticks already");
    }

    /// Returns a guard. While the guard lives, an external source may wake fibers, so an idle
    /// executor is not deadlocked.
    pub(crate) fn external(self: &Arc<Self>) -> External {
        self.external.fetch_add(1, Ordering::Relaxed);
        External(Arc::clone(self))
    }

    /// Returns the number of points passed; 0 in the parallel executor.
    pub(crate) fn steps(&self) -> u64 {
        match &self.kind {
            ExecutorKind::Parallel => 0,
            ExecutorKind::Simulated(simulation) => simulation.steps(),
            ExecutorKind::Modelled(model) => model.steps(),
        }
    }

    /// Returns a hash of the order in which fibers ran. In the modelled executor, the hash also
    /// covers the processors and times. Returns 0 in the parallel executor.
    pub(crate) fn digest(&self) -> u64 {
        match &self.kind {
            ExecutorKind::Parallel => 0,
            ExecutorKind::Simulated(simulation) => simulation.digest(),
            ExecutorKind::Modelled(model) => model.digest(),
        }
    }

    /// Returns the number of stacks in each state.
    pub(crate) fn stacks(&self) -> StackCounts {
        self.pool.counts(self.live() - self.given_up.load(Ordering::Relaxed))
    }

    fn processors(&self) -> usize {
        if self.is_parallel() { self.workers.len() } else { self.options.processors }
    }

    fn is_parallel(&self) -> bool {
        matches!(self.kind, ExecutorKind::Parallel)
    }

    /// Returns the number of fibers that were started and have not ended. The number is exact only
    /// while no worker runs.
    fn live(&self) -> usize {
        let ended: usize =
            self.workers.iter().map(|worker| worker.ended.load(Ordering::Relaxed)).sum();
        (self.started.load(Ordering::Relaxed) as usize).saturating_sub(ended)
    }

    fn owns(&self, worker: &Worker) -> bool {
        self.workers.get(worker.number()).is_some_and(|mine| std::ptr::eq(*mine, worker))
    }

    /// Returns a cached stack, or one from the pool.
    fn stack(&self, local: Option<&Local>) -> Result<FiberStack, StackError> {
        let Some(local) = local else {
            let mut stacks = Vec::with_capacity(1);
            self.pool.lend(&mut stacks, 1)?;
            return Ok(stacks.remove(0));
        };
        let mut stacks = local.stacks.borrow_mut();
        if stacks.is_empty() {
            self.pool.lend(&mut stacks, MOVED)?;
        }
        Ok(stacks.pop().expect("a stack was lent"))
    }

    /// Ends a fiber that has stopped permanently.
    ///
    /// # Safety
    ///
    /// Like [`Task::bury`]. Must be called on the thread of `worker`.
    unsafe fn bury(&self, task: *const Task, leave: SwitchReason, worker: &Worker, local: &Local) {
        // SAFETY: the caller upholds the contract of this function.
        let (context, stack) = unsafe { ((*task).context, Task::bury(task, leave)) };
        match stack {
            Some(stack) => {
                let mut stacks = local.stacks.borrow_mut();
                if stacks.len() == AT_HAND {
                    self.pool.give(stacks.drain(..MOVED));
                }
                stacks.push(stack);
            }
            None => self.pool.abandon(1),
        }
        if leave == SwitchReason::Overflow {
            self.options.hooks.on_overflow(context);
        }
        worker.ended.store(worker.ended.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the monitor check again, unless the caller is a worker, because the monitor notices a
    /// worker's changes when the worker goes to sleep.
    fn notify_if_outside(&self) {
        let worker = HERE.with(|here| here.worker.get());
        if worker.is_null() {
            drop(self.rest());
            self.monitor.notify_all();
        }
    }
}

impl fmt::Debug for FiberExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("workers", &self.workers.len())
            .field("parallel", &self.is_parallel())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl Drop for FiberExecutor {
    fn drop(&mut self) {
        // A fiber that was never buried could still be woken, through its worker's record.
        if self.live() == 0 {
            self.workers.iter().for_each(|worker| worker.release());
        }
    }
}

/// A guard for an external source that may wake fibers, such as an attached terminal.
pub(crate) struct External(Arc<FiberExecutor>);

impl Drop for External {
    fn drop(&mut self) {
        self.0.external.fetch_sub(1, Ordering::Relaxed);
        self.0.notify_if_outside();
    }
}

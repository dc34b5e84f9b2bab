//! What virtual threads run on: [`Executor`], [`Fiber`], [`park`], [`point`].
//!
//! A fiber is one virtual thread's execution: a stackful coroutine that stays on its worker, the
//! operating system's thread that stands for a processor. Locks and the kernel know fibers only
//! through the functions here; which executor is behind them they are not told. Outside of any
//! fiber, at boot and in tests of single parts, they act on the operating system's thread.
//!
//! - **Parallel** (`parallel.rs`): one thread a processor; a fiber that has not begun may be taken
//!   by an idle one, after that it stays.
//! - **Simulated** (`simulated.rs`): one thread, a virtual clock, and a seed that decides at each
//!   [`point`] who goes on. Same seed, same run.
//! - **Modelled** (`modelled/`): one thread that stands for many processors, each with a clock, and
//!   a cost for each step. Same seed and costs, same run.
//!
//! `fiber.rs` is what a fiber may do, `task.rs` how it is kept, `queue.rs` where fibers wait for
//! their turn, `worker.rs` a processor, `stack.rs` what they run on, `overflow.rs` what happens at
//! its end, `timer.rs` the actions to come, `tick.rs` the clock, `signals.rs` how threads meet
//! those signals, `footprint.rs` what two steps have in common, `reach.rs` how that is noted. What
//! a fiber does, which signals it gets and how it is killed, is the kernel's.
#![allow(unsafe_code, reason = "queues and buries fibers by address")]

mod chooser;
mod fiber;
mod footprint;
mod here;
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
pub(crate) use chooser::{Rerolled, Seeded};
pub use fiber::{Fiber, context, current, park};
pub(crate) use fiber::{
    abandon, aside, current_id, forget_context, point, preempt, processor, rest, serves_nobody,
    spin, take_turns, turn, yield_now,
};
pub(crate) use footprint::LOCAL_RANKS;
pub use footprint::{At, Footprint, Object};
use here::HERE;
pub(crate) use here::TickFn;
pub(crate) use modelled::{STRETCH, compute, spend, spend_half, touch};
pub use options::Reused;
pub(crate) use options::{Hooks, Options, Outcome, Start};
pub(crate) use overflow::{back_in_kernel, in_kernel, stack_left};
pub use overflow::{enter_kernel, leave_kernel};
pub(crate) use reach::{changes, looks_at};
pub use signals::SignalStack;
use stack::{Stack, StackPool};
pub(crate) use stack::{StackCounts, StackError};
pub use task::SwitchReason;
use task::{Place, Task};
use tick::Ticks;
pub(crate) use tick::{TICKS_A_SECOND, splhigh, splx};
use timer::Timers;
pub(crate) use timer::{Action, Timer};
use worker::{AT_HAND, Local, MOVED, Worker};

use crate::costs::CostModel;

/// Runs fibers, once.
pub(crate) struct Executor {
    workers: Box<[&'static Worker]>,
    pool: Arc<StackPool>,
    timers: Timers,
    options: Options,
    /// Fibers started.
    started: AtomicU64,
    /// Guards of [`External`].
    external: AtomicUsize,
    /// Whether no fiber is to be resumed any more.
    stopping: AtomicBool,
    /// Fibers that a run left behind.
    given_up: AtomicUsize,
    /// Who sleeps, and how the run ends.
    rest: Mutex<Rest>,
    /// Wakes the thread in [`Executor::run`].
    monitor: Condvar,
    epoch: parallel::Epoch,
    ticks: OnceLock<Ticks>,
    kind: Kind,
}

/// Whose rules decide who runs.
enum Kind {
    Parallel,
    Simulated(simulated::Simulation),
    Modelled(modelled::Model),
}

/// The worker that runs here, if it is one of an executor's, and what is its alone.
type Mine<'a> = Option<(&'a Worker, &'a Local)>;

/// What sleepers and the monitor share.
#[derive(Debug, Default)]
struct Rest {
    asleep: usize,
    outcome: Option<Outcome>,
}

impl Executor {
    /// An executor of as many threads as `processors`.
    ///
    /// # Panics
    ///
    /// `processors` is 0.
    pub(crate) fn parallel(processors: usize, options: Options) -> Arc<Self> {
        assert!(processors > 0, "somebody must run");
        let workers = (0..processors).map(Worker::acquire).collect();
        Arc::new(Self::new(workers, options, Kind::Parallel))
    }

    /// An executor on the thread that calls [`Executor::run`], scheduled by `seed`.
    #[cfg(test)]
    pub(crate) fn simulated(seed: u64, options: Options) -> Arc<Self> {
        Self::chosen(Box::new(Seeded::varied(seed)), options)
    }

    /// A simulated executor scheduled by `chooser`.
    ///
    /// # Panics
    ///
    /// [`Options::processors`] is 0.
    pub(crate) fn chosen(chooser: Box<dyn Chooser>, options: Options) -> Arc<Self> {
        assert!(options.processors > 0, "somebody must run");
        let simulation = simulated::Simulation::new(chooser, options.farthest.is_some());
        Arc::new(Self::on_one_thread(options, Kind::Simulated(simulation)))
    }

    /// An executor of as many processors as `options` say, each step of which takes what `costs`
    /// say.
    ///
    /// # Panics
    ///
    /// [`Options::processors`] is 0.
    pub(crate) fn modelled(costs: CostModel, seed: u64, options: Options) -> Arc<Self> {
        assert!(options.processors > 0, "somebody must run");
        let model = modelled::Model::new(costs, seed);
        Arc::new(Self::on_one_thread(options, Kind::Modelled(model)))
    }

    fn on_one_thread(options: Options, kind: Kind) -> Self {
        Self::new(Box::new([Worker::acquire(0)]), options, kind)
    }

    fn new(workers: Box<[&'static Worker]>, options: Options, kind: Kind) -> Self {
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

    /// Starts a fiber: from within one, before the run, or from a timer.
    ///
    /// # Errors
    ///
    /// There is no stack for it.
    ///
    /// # Panics
    ///
    /// There is no such processor.
    pub(crate) fn start(&self, start: Start) -> Result<Fiber, StackError> {
        let (task, mine) = self.make(start, |local| self.stack(local))?;
        self.queue_fresh(&task, mine);
        Ok(Fiber::new(task))
    }

    /// Makes a fiber as [`Executor::start`] does, that begins when it is unparked.
    ///
    /// # Errors
    ///
    /// There is no stack for it.
    ///
    /// # Panics
    ///
    /// There is no such processor.
    pub(crate) fn start_asleep(&self, start: Start) -> Result<Fiber, StackError> {
        let (task, _) = self.make(start, |local| self.stack(local))?;
        task.begin_asleep();
        Ok(Fiber::new(task))
    }

    /// Starts a fiber as [`Executor::start`] does, beyond the limit of stacks if need be.
    ///
    /// # Errors
    ///
    /// The kernel refuses memory for a stack.
    ///
    /// # Panics
    ///
    /// There is no such processor.
    pub(crate) fn start_beyond(&self, start: Start) -> Result<Fiber, StackError> {
        let (task, mine) = self.make(start, |local| {
            let at_hand = local.and_then(|local| local.stacks.borrow_mut().pop());
            at_hand.map_or_else(|| self.pool.lend_beyond(), Ok)
        })?;
        self.queue_fresh(&task, mine);
        Ok(Fiber::new(task))
    }

    /// A fiber that is in no queue, and the worker that runs here, if it is one of these.
    fn make<'a>(
        &self,
        start: Start,
        stack: impl FnOnce(Option<&Local>) -> Result<Stack, StackError>,
    ) -> Result<(Arc<Task>, Mine<'a>), StackError> {
        HERE.with(|here| {
            // SAFETY: worker records live for ever; the local part outlives its thread's run.
            let (worker, local) =
                unsafe { (here.worker.get().as_ref(), here.local.get().as_ref()) };
            let mine = worker.filter(|worker| self.owns(worker)).zip(local);
            let processors = self.processors();
            if let Some(processor) = start.processor {
                assert!(processor < processors, "there is no processor {processor}");
            }
            let stack = stack(mine.map(|(_, local)| local))?;
            // Fibers are numbered.
            changes(Object::System);
            let number = self.started.fetch_add(1, Ordering::Relaxed) % u64::from(u32::MAX);
            let id = number as u32 + 1;
            let processor = match (start.processor, mine) {
                (Some(processor), _) => processor,
                (None, Some((worker, _))) if self.is_parallel() => worker.number(),
                (None, _) => modelled::current().unwrap_or(id as usize % processors),
            };
            let home = self.workers[if self.is_parallel() { processor } else { 0 }];
            let place = Place { home, processor, pinned: start.processor.is_some() };
            Ok((Task::new(id, start, place, stack), mine))
        })
    }

    /// Queues a fiber that is to begin.
    fn queue_fresh(&self, task: &Arc<Task>, mine: Mine<'_>) {
        let (raw, home) = (Arc::as_ptr(task), task.home());
        match mine {
            Some(_) if modelled::post(raw, true) => {}
            Some((worker, local)) if std::ptr::eq(worker, home) => {
                let alone = self.workers.len() == 1;
                if task.pinned || alone {
                    // Nobody else may take it.
                    local.woken.push(raw);
                } else {
                    self.share(worker.push_fresh(raw));
                }
            }
            _ => home.post(raw),
        }
    }

    /// Runs until no fiber is left, all threads are blocked, or [`Executor::stop`] is called.
    ///
    /// The fibers that are left are given up: what lies on their stacks is leaked and counted as
    /// abandoned, and those that have not begun never do.
    ///
    /// # Panics
    ///
    /// It was called before, or within a fiber, or no thread can be had for a processor.
    pub(crate) fn run(&self) -> Outcome {
        let inside = HERE.with(|here| !here.worker.get().is_null());
        assert!(!inside, "an executor cannot run within another");
        let outcome = match &self.kind {
            Kind::Parallel => self.run_parallel(),
            Kind::Simulated(simulation) => simulation.run(self),
            Kind::Modelled(model) => model.run(self),
        };
        let left = self.live();
        self.given_up.store(left, Ordering::Relaxed);
        self.pool.abandon(left);
        outcome
    }

    /// Lets the fiber that runs on `processor` make way at its next return to user mode.
    pub(crate) fn hurry(&self, processor: usize) {
        match &self.kind {
            Kind::Parallel => self.workers[processor].make_way.store(true, Ordering::Relaxed),
            Kind::Simulated(_) => {}
            Kind::Modelled(_) => modelled::hurry(processor),
        }
    }

    /// Asks [`Executor::run`] to return: no fiber is resumed any more.
    pub(crate) fn stop(&self) {
        self.rest().outcome.get_or_insert(Outcome::Stopped);
        self.stopping.store(true, Ordering::Relaxed);
        self.monitor.notify_all();
        for worker in &self.workers {
            worker.wake();
        }
    }

    /// The names of the fibers that have one and are on a processor; they may have left it since.
    pub(crate) fn running(&self) -> Vec<usize> {
        let names = self.workers.iter().map(|worker| worker.running.load(Ordering::Relaxed));
        names.filter(|name| *name != 0).collect()
    }

    /// Time since the start: of the monotonic clock, of the virtual one, or of the clock of the
    /// modelled processor that runs this.
    pub(crate) fn now(&self) -> Duration {
        match &self.kind {
            Kind::Parallel => self.epoch.elapsed(),
            Kind::Simulated(simulation) => simulation.now(),
            Kind::Modelled(model) => model.now(),
        }
    }

    /// The same in nanoseconds. Async-signal-safe.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Does `action` at `when` or soon after, outside of any fiber: it may unpark and start, and
    /// must neither wait nor take a lock that a fiber may hold.
    pub(crate) fn at(self: &Arc<Self>, when: Duration, action: Action) -> Timer {
        changes(Object::Timers);
        let (key, first) = self.timers.set(when, action);
        if first && self.is_parallel() {
            drop(self.rest());
            self.monitor.notify_all();
        }
        modelled::look_at(when);
        Timer { executor: Arc::clone(self), key }
    }

    /// Lets the clock tick on every processor, `hz` times a second, from the beginning of the run.
    /// `call` must be async-signal-safe; see `tick.rs`. Simulated: at points that the chooser
    /// picks, whatever `hz` is.
    ///
    /// # Panics
    ///
    /// The clock ticks already, or `hz` is 0 or above 1,000,000.
    pub(crate) fn ticks(&self, hz: u32, call: TickFn) {
        assert!((1..=1_000_000).contains(&hz), "{hz} ticks a second cannot be had");
        let set = self.ticks.set(Ticks { hz, call });
        assert!(set.is_ok(), "the clock ticks already");
    }

    /// While the guard lives, something outside may wake fibers: being idle is not a stall.
    pub(crate) fn external(self: &Arc<Self>) -> External {
        self.external.fetch_add(1, Ordering::Relaxed);
        External(Arc::clone(self))
    }

    /// How many points were passed. Parallel: 0.
    pub(crate) fn steps(&self) -> u64 {
        match &self.kind {
            Kind::Parallel => 0,
            Kind::Simulated(simulation) => simulation.steps(),
            Kind::Modelled(model) => model.steps(),
        }
    }

    /// A hash of the order in which fibers ran; modelled: also where and when. Parallel: 0.
    pub(crate) fn digest(&self) -> u64 {
        match &self.kind {
            Kind::Parallel => 0,
            Kind::Simulated(simulation) => simulation.digest(),
            Kind::Modelled(model) => model.digest(),
        }
    }

    /// How many stacks there are, and where.
    pub(crate) fn stacks(&self) -> StackCounts {
        self.pool.counts(self.live() - self.given_up.load(Ordering::Relaxed))
    }

    fn processors(&self) -> usize {
        if self.is_parallel() { self.workers.len() } else { self.options.processors }
    }

    fn is_parallel(&self) -> bool {
        matches!(self.kind, Kind::Parallel)
    }

    /// Fibers started and not ended. Exact while no worker runs.
    fn live(&self) -> usize {
        let ended: usize =
            self.workers.iter().map(|worker| worker.ended.load(Ordering::Relaxed)).sum();
        (self.started.load(Ordering::Relaxed) as usize).saturating_sub(ended)
    }

    fn owns(&self, worker: &Worker) -> bool {
        self.workers.get(worker.number()).is_some_and(|mine| std::ptr::eq(*mine, worker))
    }

    /// A stack from those at hand, or from the pool.
    fn stack(&self, local: Option<&Local>) -> Result<Stack, StackError> {
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

    /// Buries a fiber that left for good.
    ///
    /// # Safety
    ///
    /// As for [`Task::bury`]; on the thread of `worker`.
    unsafe fn bury(&self, task: *const Task, leave: SwitchReason, worker: &Worker, local: &Local) {
        // SAFETY: the caller's promise.
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

    /// Lets the monitor look again, if nobody else will: a worker's own changes are seen when it
    /// goes to sleep.
    fn notify_if_outside(&self) {
        let worker = HERE.with(|here| here.worker.get());
        if worker.is_null() {
            drop(self.rest());
            self.monitor.notify_all();
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("workers", &self.workers.len())
            .field("parallel", &self.is_parallel())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // A fiber that was never buried could still be woken, through its worker's record.
        if self.live() == 0 {
            self.workers.iter().for_each(|worker| worker.release());
        }
    }
}

/// Something outside may wake fibers as long as this lives: a terminal that is attached, say.
#[derive(Debug)]
pub(crate) struct External(Arc<Executor>);

impl Drop for External {
    fn drop(&mut self) {
        self.0.external.fetch_sub(1, Ordering::Relaxed);
        self.0.notify_if_outside();
    }
}

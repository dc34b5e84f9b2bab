//! What virtual threads run on: [`Executor`], [`Fiber`], [`park`], [`point`].
//!
//! A fiber is one virtual thread's execution: a stackful coroutine that stays on its worker, the
//! operating system's thread that stands for a processor. Locks and the kernel know fibers only through
//! the functions here; which executor is behind them they are not told. Outside of any fiber, at
//! boot and in tests of single parts, they act on the operating system's thread.
//!
//! - **Parallel** (`parallel.rs`): one thread a processor; a fiber that has not begun may be taken by an
//!   idle one, after that it stays.
//! - **Simulated** (`simulated.rs`): one thread, a virtual clock, and a seed that decides at each
//!   [`point`] who goes on. Same seed, same run.
//!
//! `task.rs` is one fiber, `queue.rs` where fibers wait for their turn, `worker.rs` a processor,
//! `stack.rs` what they run on, `timer.rs` the actions to come. What a fiber does, which signals it
//! gets and how it is killed, is the kernel's.
#![allow(unsafe_code, reason = "the running fiber is known by address")]

mod chooser;
mod here;
mod overflow;
mod parallel;
mod queue;
mod simulated;
mod stack;
mod task;
#[cfg(test)]
mod tests;
mod tick;
mod timer;
mod worker;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

pub(crate) use chooser::{Chooser, Seeded};
use here::HERE;
pub(crate) use overflow::{enter_kernel, leave_kernel};
use stack::{Stack, StackPool};
pub(crate) use stack::{StackCounts, StackError};
pub(crate) use task::Body;
use task::{Leave, Place, Task};
use tick::Ticks;
pub(crate) use tick::{TickFn, splhigh, splx};
use timer::Timers;
pub(crate) use timer::{Action, Timer};
use worker::{AT_HAND, Local, MOVED, Worker};

/// One execution that can sleep and be woken. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Fiber(Kind);

#[derive(Clone)]
enum Kind {
    Task(Arc<Task>),
    Thread(Thread),
}

impl Fiber {
    /// Wakes it, or lets its next [`park`] return at once. Async-signal-safe.
    pub(crate) fn unpark(&self) {
        match &self.0 {
            Kind::Task(task) => unpark(task),
            Kind::Thread(thread) => thread.unpark(),
        }
    }

    /// Its number within its executor, from 1; 0 for a thread outside.
    pub(crate) fn id(&self) -> u32 {
        match &self.0 {
            Kind::Task(task) => task.id,
            Kind::Thread(_) => 0,
        }
    }

    /// The processor that it runs on, or is to begin on.
    pub(crate) fn processor(&self) -> usize {
        match &self.0 {
            Kind::Task(task) => task.processor(),
            Kind::Thread(_) => 0,
        }
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Task(task) => write!(f, "Fiber({})", task.id),
            Kind::Thread(thread) => write!(f, "Fiber({:?})", thread.id()),
        }
    }
}

fn unpark(task: &Task) {
    if !task.unpark() {
        return;
    }
    let home = task.home();
    HERE.with(|here| {
        // SAFETY: set while this thread's worker runs, to what outlives its run.
        match unsafe { here.local.get().as_ref() } {
            Some(local) if std::ptr::eq(here.worker.get(), home) && !here.interrupted.get() => {
                local.woken.push(task);
                home.make_way.store(true, Ordering::Relaxed);
            }
            _ => home.post(task),
        }
    });
}

/// The one that runs here.
pub(crate) fn current() -> Fiber {
    let task = HERE.with(|here| here.task.get());
    if task.is_null() {
        return Fiber(Kind::Thread(thread::current()));
    }
    // SAFETY: the running task is alive by its executor's reference, which `Arc::into_raw` made.
    Fiber(Kind::Task(unsafe {
        Arc::increment_strong_count(task);
        Arc::from_raw(task)
    }))
}

/// The running fiber, as long as it runs.
fn running<'a>() -> Option<&'a Task> {
    // SAFETY: the running task is alive by its executor's reference until it has ended; callers are
    // the functions below, which keep it no longer than their own frame on that fiber's stack.
    unsafe { HERE.with(|here| here.task.get()).as_ref() }
}

/// The number of the one that runs here; 0 outside of any fiber.
pub(crate) fn current_id() -> u32 {
    running().map_or(0, |task| task.id)
}

/// The word that the running fiber was started with; 0 outside. Async-signal-safe.
pub(crate) fn context() -> usize {
    HERE.with(|here| here.context.get())
}

/// The processor that runs this; 0 outside.
pub(crate) fn processor() -> usize {
    running().map_or(0, Task::processor)
}

/// Sleeps until somebody calls [`Fiber::unpark`]; it may have been called before, and may return for
/// nothing.
pub(crate) fn park() {
    match running() {
        Some(task) if !task.take_token() => task.suspend(Leave::Park),
        Some(_) => point(),
        None => thread::park(),
    }
}

/// A place where the simulated executor may let another fiber run. Nothing in the parallel one.
#[inline]
pub(crate) fn point() {
    HERE.with(|here| match here.left.get() {
        0 => {}
        1 => simulated::decide(),
        left => here.left.set(left - 1),
    });
}

/// Called after each failed attempt at a simple lock: `word` is 0 when the next may succeed.
///
/// # Panics
///
/// In the simulated executor, outside of any fiber: nobody could let the lock go.
pub(crate) fn spin(word: &AtomicU32) {
    /// Attempts between two calls of the operating system's scheduler: whoever has the lock may be
    /// waiting for this processor.
    const PATIENCE: u32 = 128;
    if HERE.with(|here| here.simulated.get()) {
        return simulated::spin(word);
    }
    let spins = HERE.with(|here| here.spins.replace(here.spins.get().wrapping_add(1)));
    if spins % PATIENCE == PATIENCE - 1 {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// At a return to user mode: lets a fiber run that was woken on this processor since the running one
/// went on, or any other if its slice is over, and comes back later.
#[inline]
pub(crate) fn preempt() {
    let worker = HERE.with(|here| here.worker.get());
    // SAFETY: worker records live for ever.
    let Some(worker) = (unsafe { worker.as_ref() }) else { return };
    worker.count_beat();
    let simulated = HERE.with(|here| here.simulated.get());
    if simulated {
        point();
    } else if worker.make_way.load(Ordering::Relaxed) {
        yield_now();
    }
}

/// Lets others run first.
pub(crate) fn yield_now() {
    match running() {
        Some(task) => task.suspend(Leave::Yield),
        None => thread::yield_now(),
    }
}

/// Gives the running fiber up: it is never resumed, and what lies on its stack is leaked and counted.
///
/// # Panics
///
/// Outside of any fiber.
pub(crate) fn abandon() -> ! {
    let task = running().expect("only a fiber can be abandoned");
    task.suspend(Leave::Abandon);
    unreachable!("an abandoned fiber is never resumed")
}

/// What a new fiber is to do.
pub(crate) struct Start {
    /// The processor that it must run on; `None`: the one that starts it, or an idle one.
    pub(crate) processor: Option<usize>,
    /// What [`context`] says in it; not 0, if the watchdog is to name it.
    pub(crate) context: usize,
    /// What it does. It must not unwind.
    pub(crate) body: Body,
}

/// What the executor tells its owner. Called on any thread, outside of fibers.
pub(crate) trait Hooks: Send + Sync {
    /// A fiber with this context has computed for longer than [`Options::busy_limit`] without a
    /// switch or [`preempt`]. It may have ended since: the word must not be taken for an address of
    /// what goes with the fiber.
    fn on_busy(&self, context: usize) {
        let _ = context;
    }

    /// Everybody waits for ever. True: fibers were woken, go on; false: the run ends as
    /// [`Outcome::Stalled`].
    fn on_stall(&self) -> bool {
        false
    }

    /// The fiber with this context ran out of stack in user mode: it has ended, and what lies on its
    /// stack is leaked.
    fn on_overflow(&self, context: usize) {
        let _ = context;
    }
}

/// Hooks that do nothing.
#[derive(Debug)]
pub(crate) struct NoHooks;

impl Hooks for NoHooks {}

/// What can be set of an executor.
#[derive(Clone)]
pub(crate) struct Options {
    /// Usable bytes of a stack.
    pub(crate) stack_size: usize,
    /// Stacks at a time.
    pub(crate) stacks: usize,
    /// Parallel: computing for longer than this is told to [`Hooks::on_busy`].
    pub(crate) busy_limit: Duration,
    /// Simulated: processors that fibers are spread over in name.
    pub(crate) processors: usize,
    /// Simulated: the run ends as [`Outcome::Stopped`] at the first decision at or after this step.
    pub(crate) stop_at: Option<u64>,
    /// Whom to tell.
    pub(crate) hooks: Arc<dyn Hooks>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stack_size: if cfg!(debug_assertions) { 256 << 10 } else { 64 << 10 },
            stacks: 1 << 20,
            busy_limit: Duration::from_secs(2),
            processors: 1,
            stop_at: None,
            hooks: Arc::new(NoHooks),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No fiber is left.
    Finished,
    /// Nobody can run, no timer is set and nothing outside is attached: everybody waits for ever.
    Stalled,
    /// [`Executor::stop`] was called, or the last step was reached.
    Stopped,
}

/// Runs fibers, once.
pub(crate) struct Executor {
    workers: Box<[&'static Worker]>,
    pool: StackPool,
    timers: Timers,
    options: Options,
    /// Fibers started.
    started: AtomicU32,
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
    epoch: Instant,
    ticks: OnceLock<Ticks>,
    simulation: Option<simulated::Simulation>,
}

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
        Arc::new(Self::new(workers, options, None))
    }

    /// An executor on the thread that calls [`Executor::run`], scheduled by `seed`.
    pub(crate) fn simulated(seed: u64, options: Options) -> Arc<Self> {
        Self::chosen(Box::new(Seeded::new(seed)), options)
    }

    /// A simulated executor scheduled by `chooser`.
    ///
    /// # Panics
    ///
    /// [`Options::processors`] is 0.
    pub(crate) fn chosen(chooser: Box<dyn Chooser>, options: Options) -> Arc<Self> {
        assert!(options.processors > 0, "somebody must run");
        let simulation = simulated::Simulation::new(chooser);
        Arc::new(Self::new(Box::new([Worker::acquire(0)]), options, Some(simulation)))
    }

    fn new(
        workers: Box<[&'static Worker]>,
        options: Options,
        simulation: Option<simulated::Simulation>,
    ) -> Self {
        overflow::install();
        Self {
            workers,
            pool: StackPool::new(options.stack_size, options.stacks),
            timers: Timers::default(),
            options,
            started: AtomicU32::new(0),
            external: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            given_up: AtomicUsize::new(0),
            rest: Mutex::default(),
            monitor: Condvar::new(),
            epoch: Instant::now(),
            ticks: OnceLock::new(),
            simulation,
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
        HERE.with(|here| {
            // SAFETY: worker records live for ever; the local part outlives its thread's run.
            let (worker, local) =
                unsafe { (here.worker.get().as_ref(), here.local.get().as_ref()) };
            let mine = worker.filter(|worker| self.owns(worker)).zip(local);
            let stack = self.stack(mine.map(|(_, local)| local))?;
            let id = self.started.fetch_add(1, Ordering::Relaxed) + 1;
            let spread = id as usize % self.processors();
            let processor = match (start.processor, mine) {
                (Some(processor), _) => processor,
                (None, Some((worker, _))) if self.simulation.is_none() => worker.number(),
                (None, _) => spread,
            };
            assert!(processor < self.processors(), "there is no processor {processor}");
            let home = self.workers[if self.simulation.is_some() { 0 } else { processor }];
            let place = Place { home, processor, pinned: start.processor.is_some() };
            let task = Task::new(id, start.context, place, start.body, stack);
            let raw = Arc::as_ptr(&task);
            match mine {
                Some((worker, local)) if std::ptr::eq(worker, home) => {
                    if place.pinned || self.simulation.is_some() {
                        local.woken.push(raw);
                    } else {
                        self.share(worker.push_fresh(raw));
                    }
                }
                _ => home.post(raw),
            }
            Ok(Fiber(Kind::Task(task)))
        })
    }

    /// Runs until no fiber is left, everybody waits for ever, or [`Executor::stop`] is called.
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
        let outcome = match &self.simulation {
            Some(simulation) => simulation.run(self),
            None => self.run_parallel(),
        };
        let left = self.live();
        self.given_up.store(left, Ordering::Relaxed);
        self.pool.abandon(left);
        outcome
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

    /// Time since the start: of the monotonic clock, or of the virtual one.
    pub(crate) fn now(&self) -> Duration {
        match &self.simulation {
            Some(simulation) => simulation.now(),
            None => self.epoch.elapsed(),
        }
    }

    /// Does `action` at `when` or soon after, outside of any fiber: it may unpark and start, and must
    /// neither wait nor take a lock that a fiber may hold.
    pub(crate) fn at(self: &Arc<Self>, when: Duration, action: Action) -> Timer {
        let (key, first) = self.timers.set(when, action);
        if first && self.simulation.is_none() {
            drop(self.rest());
            self.monitor.notify_all();
        }
        Timer { executor: Arc::clone(self), key }
    }

    /// Lets the clock tick on every processor, `hz` times a second, from the beginning of the run.
    /// `call` must be async-signal-safe; see `tick.rs`. Simulated: at points that the chooser picks,
    /// whatever `hz` is.
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

    /// Simulated: how many points were passed. Parallel: 0.
    pub(crate) fn steps(&self) -> u64 {
        self.simulation.as_ref().map_or(0, simulated::Simulation::steps)
    }

    /// Simulated: a hash of the order in which fibers ran. Parallel: 0.
    pub(crate) fn digest(&self) -> u64 {
        self.simulation.as_ref().map_or(0, simulated::Simulation::digest)
    }

    /// How many stacks there are, and where.
    pub(crate) fn stacks(&self) -> StackCounts {
        self.pool.counts(self.live() - self.given_up.load(Ordering::Relaxed))
    }

    fn processors(&self) -> usize {
        match self.simulation {
            Some(_) => self.options.processors,
            None => self.workers.len(),
        }
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
    unsafe fn bury(&self, task: *const Task, leave: Leave, worker: &Worker, local: &Local) {
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
        if leave == Leave::Overflow {
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
            .field("simulated", &self.simulation.is_some())
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

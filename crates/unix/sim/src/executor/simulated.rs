//! The simulated executor: one thread, a virtual clock, and a chooser that decides which fiber
//! runs.
//!
//! A fiber passes points. The chooser picks one of the runnable fibers, and picks again once that
//! fiber has passed the number of points that it was given or has stopped by itself. A fiber that
//! spins on a lock is not runnable until the lock is free. Each point takes [`STEP_NS`] nanoseconds
//! of the virtual clock; when no fiber is runnable the clock jumps to the next timer. If
//! [`ExecutorOptions::farthest`](super::ExecutorOptions) is set, points take no time, and the
//! fibers that one timer makes runnable run before the next timer's action. Nothing here depends on
//! an address, the wall clock, or another thread, unless an external source is attached.
//!
//! The trace, whose hash is [`Simulation::digest`], has one entry per decision: the step, the next
//! fiber, the reason why the last fiber stopped, and whether a tick occurs.
#![allow(unsafe_code, reason = "runs fibers by address")]

mod choice;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::chooser::{Chooser, SwitchEvent};
use super::footprint::At;
use super::here::{Backend, HERE, Stay, running, suspend};
use super::local::Local;
use super::modelled;
use super::signals::SignalStack;
use super::task::{SwitchReason, Task, Worker};
use super::tick::tick_at_point;
use super::{FiberExecutor, RunEnd};

/// Virtual nanoseconds from one point to the next.
const STEP_NS: u64 = 100;
/// Maximum time that a simulation with an external source sleeps before it checks again.
const LOOK: Duration = Duration::from_millis(50);

/// The part of a simulated executor that other modules read.
pub(super) struct Simulation {
    chooser: Mutex<Option<Box<dyn Chooser>>>,
    /// Virtual nanoseconds from one point to the next; 0 if points take no time.
    step_ns: u64,
    /// Nanoseconds of the virtual clock at the last decision.
    clock_ns: AtomicU64,
    /// Number of points passed before the last decision.
    steps: AtomicU64,
    /// Number of points that the chooser gave the running fiber.
    stretch: AtomicU32,
    digest: AtomicU64,
}

impl Simulation {
    pub(super) fn new(chooser: Box<dyn Chooser>, frozen: bool) -> Self {
        Self {
            chooser: Mutex::new(Some(chooser)),
            step_ns: if frozen { 0 } else { STEP_NS },
            clock_ns: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            stretch: AtomicU32::new(0),
            digest: AtomicU64::new(0),
        }
    }

    /// Returns the time of the virtual clock.
    pub(super) fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock_ns.load(Ordering::Relaxed) + self.step_ns * u64::from(self.passed())
    }

    /// Returns the number of points passed.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed) + u64::from(self.passed())
    }

    /// Returns the hash of the trace.
    pub(super) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }

    /// Returns the number of points that the running fiber has passed since the last decision.
    fn passed(&self) -> u32 {
        let left = HERE.with(|here| here.left.get());
        if left == 0 { 0 } else { self.stretch.load(Ordering::Relaxed) - left }
    }

    /// Advances steps and clock by the points that a fiber used.
    fn advance(&self, points: u32) {
        let add =
            |to: &AtomicU64, more| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&self.steps, u64::from(points));
        add(&self.clock_ns, self.step_ns * u64::from(points));
    }

    fn record(&self, id: u32, left: SwitchReason, tick: bool) {
        let mut digest = self.digest.load(Ordering::Relaxed);
        let steps = self.steps.load(Ordering::Relaxed);
        for word in [steps, u64::from(id) << 8 | u64::from(tick) << 7 | left as u64] {
            // The multiplier of FNV-1a; the rotation carries the high bits down.
            digest = (digest.rotate_left(23) ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.digest.store(digest, Ordering::Relaxed);
    }

    /// Runs the executor; see [`FiberExecutor::run`].
    pub(super) fn run(&self, executor: &FiberExecutor) -> RunEnd {
        let chooser = self.chooser.lock().unwrap_or_else(PoisonError::into_inner).take();
        let worker = executor.workers[0];
        let local = Local::new();
        // A caller that runs several systems has installed one stack for all of them.
        let _signal_stack = executor.options.reused.is_none().then(SignalStack::install);
        let tick = executor.ticks.get().map(|ticks| ticks.call);
        let _stay = Stay::begin(Backend::Simulated, worker, &local, tick);
        let mut run = SimulatedRun {
            simulation: self,
            executor,
            worker,
            local: &local,
            passes_time: chooser.as_ref().is_some_and(|chooser| chooser.passes_time()),
            chooser: chooser.expect("a simulated executor runs once"),
            runnable: Vec::new(),
            numbers: Vec::new(),
            spinning: Vec::new(),
            left: SwitchReason::End,
            last: None,
            running: 0,
            stretch: 0,
            heir: None,
            decided: None,
            hook_called_at: None,
        };
        HERE.with(|here| here.notes.set(run.chooser.compares()));
        let in_place = run.chooser.decides_in_place();
        let run = &raw mut run;
        if in_place {
            HERE.with(|here| here.run.set(run.cast()));
        }
        // SAFETY: the run lives until the end of this function. Apart from this function, only
        // fibers that it resumes access the run.
        let outcome = unsafe { SimulatedRun::decide_until_end(run) };
        HERE.with(|here| {
            here.run.set(std::ptr::null_mut());
            here.notes.set(false);
        });
        // SAFETY: no fiber runs any more.
        unsafe { (*run).end() };
        outcome
    }
}

/// Lets another fiber run. Called at the last point of a stretch. While a panic unwinds no other
/// fiber runs, because panics are counted per thread, not per fiber.
#[cold]
pub(super) fn decide(at: At) {
    let run: *mut SimulatedRun<'_> = HERE.with(|here| here.run.get()).cast();
    // SAFETY: non-null while the current run, which resumed this fiber, waits for it.
    if !run.is_null() && unsafe { SimulatedRun::keeps_running(run, at) } || modelled::point() {
        return;
    }
    match running() {
        Some(task) if !thread::panicking() => {
            HERE.with(|here| here.at.set(at));
            // SAFETY: as above.
            if !run.is_null() && unsafe { SimulatedRun::continues(run) } {
                return tick_at_point();
            }
            HERE.with(|here| here.left.set(0));
            suspend(task, SwitchReason::Point);
            HERE.with(|here| here.at.set(at));
            tick_at_point();
        }
        _ => {}
    }
}

/// Lets `task`, which was woken, continue the work of the running fiber as soon as that fiber
/// sleeps. `task` takes over the fiber's number, so the chooser treats both as the same fiber.
pub(super) fn hand_over(task: &Task) {
    let run: *mut SimulatedRun<'_> = HERE.with(|here| here.run.get()).cast();
    if let Some(me) = running().filter(|_| !run.is_null()) {
        let number = me.shown();
        me.hand_number_to(task);
        // SAFETY: non-null while the current run, which resumed this fiber, waits for it.
        let this = unsafe { &mut *run };
        this.heir = Some(Heir { task, number });
        this.renumber(me);
        this.renumber(task);
    }
}

/// Blocks until `word` is 0. The fiber is not runnable until then. Panics outside of fibers.
pub(super) fn spin(word: &AtomicU32) {
    let task = running().expect("outside of fibers, no fiber could release the lock");
    // SAFETY: the fiber runs, so no other thread accesses its word.
    unsafe { *task.spin_word() = word };
    suspend(task, SwitchReason::Spin);
}

impl FiberExecutor {
    /// Waits for an event from outside, on the one thread that runs all fibers. Returns `false` if
    /// no such event will occur.
    pub(super) fn wait_outside(&self, worker: &Worker) -> bool {
        if self.external.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let rest = self.rest();
        worker.announce_sleep();
        let asleep = rest.outcome.is_none() && worker.inbox.fall_asleep();
        drop(rest);
        if asleep {
            worker.sleep(Some(LOOK));
        } else {
            worker.cancel_sleep();
        }
        worker.inbox.wake_up();
        true
    }
}

/// The fiber that takes over another fiber's work.
struct Heir {
    task: *const Task,
    /// The former number of the fiber that handed its work over.
    number: u32,
}

/// The outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChoiceOutcome {
    /// Runs the fiber at this index; `true` delivers a clock tick to it.
    Fiber(usize, bool),
    /// Lets time pass to the next timer.
    Clock,
}

/// The state of the current run.
struct SimulatedRun<'a> {
    simulation: &'a Simulation,
    executor: &'a FiberExecutor,
    worker: &'static Worker,
    local: &'a Local,
    chooser: Box<dyn Chooser>,
    /// `true` if the chooser may let time pass while fibers are runnable.
    passes_time: bool,
    /// The runnable fibers, and their numbers, in an order that depends only on the choices.
    runnable: Vec<*const Task>,
    numbers: Vec<u32>,
    /// The fibers that spin on a lock.
    spinning: Vec<*const Task>,
    /// The reason why the last fiber stopped, and the index of that fiber, if it can continue.
    left: SwitchReason,
    last: Option<usize>,
    /// The index of the running fiber, and the number of points that the chooser gave it.
    running: usize,
    stretch: u32,
    /// The fiber that runs next when the running one sleeps.
    heir: Option<Heir>,
    /// The decision that was made on the stack of the fiber that stopped.
    decided: Option<ChoiceOutcome>,
    /// The step at which the hook was last called.
    hook_called_at: Option<u64>,
}

impl SimulatedRun<'_> {
    /// Runs fibers until the run ends.
    ///
    /// # Safety
    ///
    /// The run must outlive the call, and other code may access it only through
    /// [`SimulatedRun::continues`].
    unsafe fn decide_until_end(run: *mut Self) -> RunEnd {
        loop {
            // SAFETY: no fiber runs while the borrow lasts.
            let task = match unsafe { (*run).next() } {
                ControlFlow::Continue(task) => task,
                ControlFlow::Break(outcome) => return outcome,
            };
            // SAFETY: a runnable task is alive until `after` buries it. While the task runs it may
            // decide in place, so no part of the run is borrowed here.
            let leave = unsafe { (*task).resume() };
            // SAFETY: as above.
            unsafe { (*run).after(task, leave) };
        }
    }

    /// Starts the stretch of the next fiber, or returns how the run ended.
    fn next(&mut self) -> ControlFlow<RunEnd, *const Task> {
        match self.decided.take() {
            Some(ChoiceOutcome::Fiber(chosen, tick)) => {
                return ControlFlow::Continue(self.begin_stretch(chosen, tick));
            }
            Some(ChoiceOutcome::Clock) => self.pass_time(),
            None => {}
        }
        loop {
            let steps = self.simulation.steps.load(Ordering::Relaxed);
            if self.is_to_stop(steps) {
                return ControlFlow::Break(RunEnd::Stopped);
            }
            if self.is_timer_due() {
                self.executor.timers.run_due(self.simulation.now());
            }
            self.collect();
            match self.decide() {
                Some(ChoiceOutcome::Fiber(chosen, tick)) => {
                    return ControlFlow::Continue(self.begin_stretch(chosen, tick));
                }
                Some(ChoiceOutcome::Clock) => {
                    self.pass_time();
                    continue;
                }
                None => {}
            }
            if self.executor.live() == 0 {
                return ControlFlow::Break(RunEnd::Finished);
            }
            if self.executor.options.hooks.on_rest() {
                // Timers of equal length that were set in different steps then expire in the order
                // of the steps.
                self.simulation.clock_ns.fetch_add(1, Ordering::Relaxed);
                self.last = None;
                continue;
            }
            if !self.wait() {
                // A hook that woke no fiber is not called again until a fiber has run.
                let again = self.hook_called_at == Some(steps);
                if again || !self.executor.options.hooks.on_stall() {
                    return ControlFlow::Break(RunEnd::Deadlocked);
                }
                self.hook_called_at = Some(steps);
            }
            self.last = None;
        }
    }

    fn is_to_stop(&self, steps: u64) -> bool {
        let stop_at = self.executor.options.stop_at.unwrap_or(u64::MAX);
        self.executor.stopping.load(Ordering::Relaxed) || steps >= stop_at
    }

    /// Returns `true` if the running fiber continues from a point at which the chooser makes no
    /// choice.
    ///
    /// # Safety
    ///
    /// The run must outlive the call, and the caller must be the fiber that the run resumed.
    unsafe fn keeps_running(run: *mut Self, at: At) -> bool {
        // SAFETY: the run waits for its fiber, and no part of the run is borrowed while it waits.
        let this = unsafe { &mut *run };
        // A fiber that waits lets other fibers run first.
        if at == At::Within || thread::panicking() || this.must_leave() {
            return false;
        }
        this.collect();
        let is_kept = this.chooser.keeps_running(this.numbers.len() > 1 || this.offers_clock());
        if is_kept {
            this.heir = None;
            this.simulation.advance(1);
        }
        is_kept
    }

    /// Returns `true` if the fiber must stop at this point for work outside of fibers.
    fn must_leave(&self) -> bool {
        let steps = self.simulation.steps.load(Ordering::Relaxed) + 1;
        self.stretch != 1 || self.is_timer_due() || self.is_to_stop(steps)
    }

    /// Decides at a point of the running fiber, without a switch. Returns `true` if the same fiber
    /// continues.
    ///
    /// # Safety
    ///
    /// Like [`SimulatedRun::keeps_running`].
    unsafe fn continues(run: *mut Self) -> bool {
        // SAFETY: as in `keeps_running`.
        let this = unsafe { &mut *run };
        if this.must_leave() {
            return false;
        }
        this.simulation.advance(1);
        this.report(this.runnable[this.running], SwitchReason::Point, None);
        (this.left, this.last) = (SwitchReason::Point, Some(this.running));
        this.collect();
        match this.decide() {
            Some(ChoiceOutcome::Fiber(chosen, tick)) if chosen == this.running => {
                HERE.with(|here| here.tick_due.set(tick));
                true
            }
            decided => {
                this.decided = decided;
                false
            }
        }
    }

    /// Reports the effects of a fiber that is running or has just stopped to the chooser. `number`
    /// is the fiber's former number, if its number has changed.
    fn report(&mut self, task: *const Task, leave: SwitchReason, number: Option<u32>) {
        // SAFETY: the task is alive, because it has not been buried.
        let task = unsafe { &*task };
        let (touched, at) = HERE.with(|here| (here.reaching.take(), here.at.get()));
        let fiber = number.unwrap_or_else(|| task.shown());
        let (context, name) = (task.context, task.served());
        self.chooser.left(&SwitchEvent { fiber, context, name, leave, at, touched });
    }

    /// Returns `true` if the fiber that has just gone to sleep handed its work to another fiber,
    /// which continues the work without a choice.
    fn hands_on(&mut self) -> bool {
        self.collect();
        let Some(at) = self.heir.as_ref().and_then(|heir| self.place(heir.task)) else {
            return false;
        };
        let continues = self.chooser.hands_over(self.numbers.len() > 1);
        if continues {
            (self.heir, self.decided) = (None, Some(ChoiceOutcome::Fiber(at, false)));
        }
        continues
    }

    /// Returns the index of a fiber in the list of runnable fibers.
    fn place(&self, task: *const Task) -> Option<usize> {
        self.runnable.iter().position(|one| *one == task)
    }

    /// Updates the number of a fiber.
    fn renumber(&mut self, task: &Task) {
        if let Some(at) = self.place(task) {
            self.numbers[at] = task.shown();
        }
    }

    /// Collects the runnable fibers.
    #[inline]
    fn collect(&mut self) {
        let idle = self.local.woken.is_empty() && self.spinning.is_empty();
        if !idle || self.worker.inbox.has_posts() {
            self.collect_some();
        }
    }

    fn collect_some(&mut self) {
        if self.worker.inbox.has_posts() {
            self.worker.inbox.drain(|task| self.local.woken.push(task));
        }
        while let Some(task) = self.local.woken.pop() {
            self.add(task);
        }
        let mut index = 0;
        while let Some(&task) = self.spinning.get(index) {
            // SAFETY: the task is alive and does not run; its word lives as long as the frame in
            // which the fiber spins.
            let free = unsafe { (**(*task).spin_word()).load(Ordering::Relaxed) == 0 };
            if free {
                self.spinning.remove(index);
                self.add(task);
            } else {
                index += 1;
            }
        }
    }

    fn add(&mut self, task: *const Task) {
        self.runnable.push(task);
        // SAFETY: queued tasks are alive.
        self.numbers.push(unsafe { (*task).shown() });
    }

    fn remove(&mut self, index: usize) -> *const Task {
        self.numbers.swap_remove(index);
        self.runnable.swap_remove(index)
    }

    /// Prepares a fiber to be resumed, for as many points as the chooser gives it.
    fn begin_stretch(&mut self, index: usize, tick: bool) -> *const Task {
        let task = self.runnable[index];
        // SAFETY: a runnable task is alive until `after` buries it.
        let this = unsafe { &*task };
        let stop_at = self.executor.options.stop_at.unwrap_or(u64::MAX);
        let most = stop_at - self.simulation.steps.load(Ordering::Relaxed);
        let stretch = self.chooser.stretch().max(1).min(u32::try_from(most).unwrap_or(u32::MAX));
        (self.running, self.stretch) = (index, stretch);
        self.simulation.stretch.store(stretch, Ordering::Relaxed);
        self.worker.running.store(this.name, Ordering::Relaxed);
        HERE.with(|here| {
            here.context.set(this.context);
            here.task.set(task);
            here.left.set(stretch);
            here.tick_due.set(tick);
            here.at.set(At::Start);
            here.level.set(this.level.load(Ordering::Relaxed));
            here.held.set(this.held.load(Ordering::Relaxed));
        });
        task
    }

    /// Handles a fiber that stopped.
    fn after(&mut self, task: *const Task, leave: SwitchReason) {
        // SAFETY: a resumed task is alive until it is buried, below.
        let this = unsafe { &*task };
        let decided = self.decided.is_some();
        let handing = leave == SwitchReason::Park && self.heir.is_some();
        if !decided && !handing {
            self.report(task, leave, None);
        }
        let unused = HERE.with(|here| {
            here.task.set(std::ptr::null());
            here.context.set(0);
            here.tick_due.set(false);
            this.level.store(here.level.replace(0), Ordering::Relaxed);
            this.held.store(here.held.replace(0), Ordering::Relaxed);
            here.left.replace(0)
        });
        self.worker.running.store(0, Ordering::Relaxed);
        if decided {
            // The consequences were already handled when the decision was made.
            return;
        }
        self.simulation.advance(self.stretch - unused);
        let index = self.running;
        match leave {
            SwitchReason::Point | SwitchReason::Yield => {}
            SwitchReason::Park => {
                if this.sleep() {
                    self.remove(index);
                }
                if handing {
                    if self.hands_on() {
                        return;
                    }
                    let number = self.heir.as_ref().map(|heir| heir.number);
                    self.report(task, leave, number);
                }
            }
            SwitchReason::Spin => {
                let task = self.remove(index);
                self.spinning.push(task);
            }
            SwitchReason::Abandon | SwitchReason::End | SwitchReason::Overflow => {
                self.remove(index);
                // SAFETY: the task has stopped permanently, is in no queue, and is not accessed
                // again.
                unsafe { self.executor.bury(task, leave, self.worker, self.local) };
            }
        }
        self.left = leave;
        self.last = matches!(leave, SwitchReason::Point | SwitchReason::Yield).then_some(index);
    }

    /// Drops the fibers that have not started, and returns the stacks to the pool.
    fn end(&mut self) {
        self.collect();
        while let Some(task) = self.runnable.pop() {
            // SAFETY: a runnable task is alive and no other thread holds it. A task that has never
            // started is buried once, here.
            unsafe {
                if (*task).is_fresh() {
                    self.executor.bury(task, SwitchReason::End, self.worker, self.local);
                }
            }
        }
        self.executor.pool.give(self.local.stacks.borrow_mut().drain(..));
    }
}

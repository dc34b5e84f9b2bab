//! The modelled executor: simulated processors, each with its own clock ([`ModelledRun`]).
//!
//! One thread runs all processors. The fiber on the processor whose clock is furthest behind runs
//! until that clock has passed another processor's. Effects between processors therefore occur in
//! the order of their clocks. Each [`CostKind`] advances the clock of the processor that takes the
//! step by its cost, plus or minus up to an eighth, as the seed decides. Without this variation,
//! processors in lock-step would show effects of the lock-step rather than of the machine. The same
//! seed and costs give the same run.
//!
//! The rules for placing fibers, for taking them from other processors and for sleeping are those
//! of the parallel executor; `processor.rs` implements them. docs/reference/model.md lists what is
//! modelled and what is not.
#![allow(unsafe_code, reason = "runs fibers by address")]

mod processor;
mod run;

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::here::{HERE, running, suspend};
use super::task::{SwitchReason, Task};
use super::tick::tick_at_point;
use super::{FiberExecutor, RunEnd};
use crate::costs::{CostKind, CostModel, PS_A_NS};
use crate::split_mix::SplitMix;
use processor::{Arrival, LOOK_PS, ModelledProcessor};

/// The time of an event that does not occur.
const NEVER: u64 = u64::MAX;
/// Reciprocal of the maximum variation of a cost, up or down.
const SPREAD: u64 = 8;

/// The part of a modelled executor that other modules read.
pub(super) struct MachineModel {
    costs: CostModel,
    seed: u64,
    /// The clock of the processor that ran last.
    clock_ps: AtomicU64,
    steps: AtomicU64,
    digest: AtomicU64,
}

impl MachineModel {
    pub(super) fn new(costs: CostModel, seed: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { costs, seed, clock_ps: zero(), steps: zero(), digest: zero() }
    }

    /// Returns the clock of the processor that runs now, or that ran last.
    pub(super) fn now(&self) -> Duration {
        let ps =
            machine().map_or_else(|| self.clock_ps.load(Ordering::Relaxed), ModelledRun::now_ps);
        Duration::from_nanos(ps / PS_A_NS)
    }

    /// Returns the number of points passed.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Returns a hash of the fibers that ran, with time and processor.
    pub(super) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }

    /// Runs the executor; see [`FiberExecutor::run`].
    pub(super) fn run(&self, executor: &FiberExecutor) -> RunEnd {
        run::run(self, executor)
    }
}

/// The processors of the current run, on the stack of the thread that runs it.
pub(super) struct ModelledRun {
    costs: CostModel,
    processors: Box<[ModelledProcessor]>,
    /// The processor whose fiber runs.
    current: Cell<usize>,
    /// `true` while a fiber runs; `false` while the action of a timer runs, at
    /// [`ModelledRun::outside_ps`].
    inside: Cell<bool>,
    outside_ps: Cell<u64>,
    /// The time at which another processor must run.
    horizon_ps: Cell<u64>,
    /// Number of processors that spin on a simple lock.
    spinning: Cell<usize>,
    /// The time of the next check of the monitor.
    next_look_ps: Cell<u64>,
    random: RefCell<SplitMix>,
    steps: Cell<u64>,
    /// The last holder of each lock, by class and instance: 0 for none, otherwise one more than the
    /// processor's number.
    lines: RefCell<Vec<Vec<u16>>>,
    /// The processors that have the words of each process in their caches, by the slot of the
    /// process.
    words: RefCell<Vec<LineHolders>>,
}

/// The processors that hold a cache line: the one that wrote it last, and those that have read it
/// since. Each processor is represented by one bit: its number modulo 64.
#[derive(Clone, Copy, Default)]
struct LineHolders(u64);

thread_local! {
    /// The machine that this thread runs, or null. The cell is constant-initialised and has no
    /// destructor, because a signal handler may read it.
    static MACHINE: Cell<*const ModelledRun> = const { Cell::new(ptr::null()) };
}

/// Returns the machine that this thread runs.
fn machine<'a>() -> Option<&'a ModelledRun> {
    // SAFETY: non-null only while a `MachineHere` borrows the machine. Callers do not keep the
    // result longer than a frame within that run.
    unsafe { MACHINE.get().as_ref() }
}

/// Makes this thread the machine's thread until the guard is dropped. The guard is dropped before
/// the machine.
struct MachineHere<'m>(PhantomData<&'m ModelledRun>);

impl<'m> MachineHere<'m> {
    fn begin(machine: &'m ModelledRun) -> Self {
        MACHINE.set(machine);
        Self(PhantomData)
    }
}

impl Drop for MachineHere<'_> {
    fn drop(&mut self) {
        MACHINE.set(ptr::null());
    }
}

/// Advances the clock of the current processor by the cost of a step. Does nothing in the other
/// executors.
#[inline]
pub(crate) fn spend(step: CostKind) {
    if is_stepped() {
        charge(step, 1);
    }
}

/// Like [`spend`], but charges half the cost, for a step that is taken partly before a lock is
/// acquired and partly while it is held.
#[inline]
pub(crate) fn spend_half(step: CostKind) {
    if is_stepped() {
        charge(step, 2);
    }
}

/// Returns `true` in a fiber whose points are counted: in a modelled or a simulated run.
#[inline]
fn is_stepped() -> bool {
    HERE.with(|here| here.left.get() != 0)
}

#[cold]
#[inline(never)]
fn charge(step: CostKind, parts: u64) {
    if let Some(machine) = machine() {
        machine.pass(machine.varied(machine.costs.ps(step) / parts));
        // Let processors that are behind catch up: if they need a lock that is held here, they find
        // it taken.
        machine.point();
    }
}

/// Charges for a lock of this class and instance that is about to be taken. Does nothing in the
/// other executors.
#[inline]
pub(crate) fn touch(class: u8, instance: u32) {
    if is_stepped()
        && let Some(machine) = machine()
    {
        machine.touch(class, instance);
    }
}

/// Charges for an access to the words of a process that others read without a lock, if another
/// processor's cache holds the line. Does nothing in the other executors.
#[inline]
pub(super) fn reach_words(slot: u32, writes: bool) {
    if let Some(machine) = machine().filter(|machine| machine.inside.get()) {
        machine.reach_words(slot, writes);
    }
}

/// Time for which a processor computes before it checks for other fibers. Work that is sent to it
/// may be noticed this much later.
pub(crate) const STRETCH: Duration = Duration::from_micros(25);

/// Lets the current processor compute for `duration`. Returns `false` in the other executors.
pub(crate) fn compute(duration: Duration) -> bool {
    let Some(machine) = machine() else { return false };
    let ps = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(PS_A_NS);
    machine.pass(ps);
    true
}

impl ModelledRun {
    /// Passes a point of a fiber, at which processors that are behind catch up.
    #[cold]
    fn point(&self) {
        let Some(task) = running() else { return };
        if thread::panicking() {
            return;
        }
        self.steps.set(self.steps.get() + 1);
        if self.spinning.get() > 0 {
            self.let_spinners_go(self.now_ps());
        }
        let mine = self.here();
        if mine.clock_ps.get() > self.horizon_ps.get() {
            suspend(task, SwitchReason::Point);
        }
        let mine = self.here();
        if mine.clock_ps.get() >= mine.next_tick_ps.get() {
            self.charge(CostKind::Tick);
            mine.set_next_tick();
            HERE.with(|here| here.tick_due.set(true));
            tick_at_point();
        }
    }

    /// Returns `true` if the fiber that returns to user mode here must yield.
    fn makes_way(&self) -> bool {
        let mine = self.here();
        let now_ps = mine.clock_ps.get();
        mine.make_way_ps.get() <= now_ps || mine.slice_ends_ps.get() <= now_ps
    }

    fn here(&self) -> &ModelledProcessor {
        &self.processors[self.current.get()]
    }

    fn now_ps(&self) -> u64 {
        if self.inside.get() { self.here().clock_ps.get() } else { self.outside_ps.get() }
    }

    fn charge(&self, step: CostKind) {
        let cost_ps = self.varied(self.costs.ps(step));
        self.pass(cost_ps);
    }

    fn pass(&self, ps: u64) {
        let clock_ps = &self.here().clock_ps;
        clock_ps.set(clock_ps.get().saturating_add(ps));
    }

    /// Returns a cost with a random variation.
    fn varied(&self, cost_ps: u64) -> u64 {
        let random = self.random.borrow_mut().next() >> 32;
        let width = 2 * cost_ps / SPREAD;
        cost_ps - cost_ps / SPREAD + ((width * random) >> 32)
    }

    fn touch(&self, class: u8, instance: u32) {
        let (class, instance) = (usize::from(class), instance as usize);
        let me = self.current.get() as u16 + 1;
        let before = {
            let mut lines = self.lines.borrow_mut();
            if lines.len() <= class {
                lines.resize_with(class + 1, Vec::new);
            }
            let of_class = &mut lines[class];
            if of_class.len() <= instance {
                of_class.resize(instance + 1, 0);
            }
            std::mem::replace(&mut of_class[instance], me)
        };
        self.charge(CostKind::Lock);
        if before != 0 && before != me {
            self.charge(CostKind::Transfer);
            self.charge(CostKind::Guarded);
        }
    }

    /// Charges for the transfer of a cache line. A reader needs a transfer if another processor has
    /// written the line since; a writer needs one if any other processor holds the line.
    fn reach_words(&self, slot: u32, writes: bool) {
        let slot = slot as usize;
        let me = 1 << (self.current.get() as u32 % u64::BITS);
        let comes = {
            let mut words = self.words.borrow_mut();
            if words.len() <= slot {
                words.resize(slot + 1, LineHolders::default());
            }
            let LineHolders(holders) = &mut words[slot];
            let before = std::mem::replace(holders, if writes { me } else { *holders | me });
            before != 0 && (before & me == 0 || writes && before != me)
        };
        if comes {
            self.charge(CostKind::Transfer);
        }
    }

    /// Queues a fiber that was woken or has not started.
    pub(super) fn post(&self, task: *const Task, fresh: bool) {
        // SAFETY: the caller holds a live task out of all queues.
        let home = unsafe { (*task).processor() };
        let mine = self.inside.get() && home == self.current.get();
        let target = &self.processors[home];
        let ready_ps = if mine {
            if !fresh {
                self.charge(CostKind::Unpark);
            }
            self.now_ps()
        } else {
            self.reach(target)
        };
        // SAFETY: as above.
        let pinned = unsafe { (*task).pinned };
        if fresh && !pinned {
            target.fresh.borrow_mut().push_back(Arrival { ready_ps, task });
            self.share(home);
        } else {
            target.woken.borrow_mut().push_back(Arrival { ready_ps, task });
            if !fresh || !mine {
                target.make_way_ps.set(target.make_way_ps.get().min(ready_ps));
            }
        }
        if home != self.current.get() || !self.inside.get() {
            self.horizon_ps.set(self.horizon_ps.get().min(ready_ps));
        }
    }

    /// Notifies another processor of work. Returns the time at which that processor notices it.
    fn reach(&self, target: &ModelledProcessor) -> u64 {
        let inside = self.inside.get();
        if inside {
            self.charge(CostKind::Post);
        }
        let now_ps = self.now_ps();
        if !target.sleeps_at(now_ps, self.costs.ps(CostKind::Look)) {
            return now_ps + self.varied(self.costs.ps(CostKind::Transfer));
        }
        if inside {
            self.charge(CostKind::Wake);
        }
        now_ps + self.varied(self.costs.ps(CostKind::Latency))
    }

    /// Lets an idle processor take some of the fibers that have not started on `from`, as the
    /// parallel executor does. A sleeping processor is woken only if there are two or more such
    /// fibers.
    fn share(&self, from: usize) {
        let many = self.processors[from].fresh.borrow().len() >= 2;
        self.share_with(from, many);
    }

    /// Does the work of the parallel executor's monitor at each of its checks, so that no processor
    /// keeps sleeping while another one has fibers that have not started.
    fn look_about(&self, now_ps: u64) {
        if now_ps < self.next_look_ps.get() {
            return;
        }
        self.next_look_ps.set((now_ps / LOOK_PS + 1) * LOOK_PS);
        self.outside_ps.set(now_ps);
        for processor in &self.processors {
            if !processor.fresh.borrow().is_empty() {
                self.share_with(processor.number, true);
            }
        }
    }

    /// Lets an idle processor take fibers from `from`. A sleeping processor takes some only if
    /// `sleepers` is set.
    fn share_with(&self, from: usize, sleepers: bool) {
        let now_ps = self.now_ps();
        let look_ps = self.costs.ps(CostKind::Look);
        let victim = &self.processors[from];
        let idle = |other: &&ModelledProcessor| other.number != from && other.is_idle();
        let awake = |other: &&ModelledProcessor| idle(other) && !other.sleeps_at(now_ps, look_ps);
        let asleep = |other: &&ModelledProcessor| sleepers && idle(other);
        let taker = self.processors.iter().find(awake);
        let Some(taker) = taker.or_else(|| self.processors.iter().find(asleep)) else { return };
        let ready_ps = self.reach(taker);
        taker.take_from(victim, ready_ps);
        self.horizon_ps.set(self.horizon_ps.get().min(ready_ps));
    }

    /// Lets processors that spin on a lock continue if the lock has become free.
    fn let_spinners_go(&self, now_ps: u64) {
        let free: Vec<&ModelledProcessor> =
            self.processors.iter().filter(|processor| processor.may_stop_spinning()).collect();
        for processor in &free {
            processor.spins.set(false);
            self.spinning.set(self.spinning.get() - 1);
            // The cache line reaches the spinning processors one after another.
            let turns = 1 + self.random.borrow_mut().next() % free.len() as u64;
            let ready_ps = now_ps + turns * self.costs.ps(CostKind::Transfer);
            processor.clock_ps.set(processor.clock_ps.get().max(ready_ps));
            self.horizon_ps.set(self.horizon_ps.get().min(processor.clock_ps.get()));
        }
    }
}

/// Passes a point of this executor. Returns `false` in the other executors.
pub(super) fn point() -> bool {
    machine().map(ModelledRun::point).is_some()
}

/// Returns whether the fiber that returns to user mode must yield; `None` in the other executors.
pub(super) fn makes_way() -> Option<bool> {
    machine().map(|machine| {
        machine.point();
        machine.makes_way()
    })
}

/// Records that a timer was set, because a processor may have to wait for its action.
pub(super) fn look_at(when: Duration) {
    if let Some(machine) = machine() {
        let ps = u64::try_from(when.as_nanos()).unwrap_or(NEVER).saturating_mul(PS_A_NS);
        machine.horizon_ps.set(machine.horizon_ps.get().min(ps));
    }
}

/// Makes the fiber of a processor yield; see [`FiberExecutor::hurry`].
pub(super) fn hurry(processor: usize) {
    if let Some(machine) = machine() {
        let make_way_ps = &machine.processors[processor].make_way_ps;
        let seen_ps = machine.now_ps() + machine.varied(machine.costs.ps(CostKind::Transfer));
        make_way_ps.set(make_way_ps.get().min(seen_ps));
    }
}

/// Queues a fiber. Returns `false` if no machine runs on this thread.
pub(super) fn post(task: *const Task, fresh: bool) -> bool {
    machine().map(|machine| machine.post(task, fresh)).is_some()
}

/// Returns the processor whose fiber runs on this thread.
pub(super) fn current() -> Option<usize> {
    machine().map(|machine| machine.current.get())
}

/// Returns `true` if the word that a fiber spins on is free.
///
/// # Safety
///
/// The fiber must be spinning, so that its word lives as long as the frame in which it spins.
unsafe fn is_free(task: *const Task) -> bool {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        let word: *const AtomicU32 = *(*task).spin_word();
        (*word).load(Ordering::Relaxed) == 0
    }
}

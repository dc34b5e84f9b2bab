//! The modelled executor: processors that are none, each with a clock of its own ([`Machine`]).
//!
//! One thread runs it all. The fiber on the processor whose clock is least goes on, until its clock
//! has passed somebody else's; so whatever two processors do to each other they do in the order of
//! their clocks. Each [`CostKind`] moves the clock of the processor that takes it by its cost, give
//! or take an eighth, which the seed decides: processors in lock-step would tell more of the
//! lock-step than of the machine. Same seed and same costs, same run.
//!
//! Who runs where, who takes whose fibers and when somebody sleeps are the parallel executor's
//! rules, in `processor.rs`; docs/model.md says what is modelled and what is not.
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
use super::{Executor, Outcome};
use crate::costs::{CostKind, CostModel, PS_A_NS};
use crate::split_mix::SplitMix;
use processor::{Arrival, LOOK_PS, Processor};

/// No time.
const NEVER: u64 = u64::MAX;
/// A cost varies by one part of this to either side.
const SPREAD: u64 = 8;

/// The part of a modelled executor that others read.
#[derive(Debug)]
pub(super) struct Model {
    costs: CostModel,
    seed: u64,
    /// The clock of whoever ran last.
    clock_ps: AtomicU64,
    steps: AtomicU64,
    digest: AtomicU64,
}

impl Model {
    pub(super) fn new(costs: CostModel, seed: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { costs, seed, clock_ps: zero(), steps: zero(), digest: zero() }
    }

    /// The clock of the processor that runs here, or that ran last.
    pub(super) fn now(&self) -> Duration {
        let ps = machine().map_or_else(|| self.clock_ps.load(Ordering::Relaxed), Machine::now_ps);
        Duration::from_nanos(ps / PS_A_NS)
    }

    /// Points passed.
    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// A hash of who ran when and where.
    pub(super) fn digest(&self) -> u64 {
        self.digest.load(Ordering::Relaxed)
    }

    /// See [`Executor::run`].
    pub(super) fn run(&self, executor: &Executor) -> Outcome {
        run::run(self, executor)
    }
}

/// The processors of a run under way; on the stack of the thread that runs it.
pub(super) struct Machine {
    costs: CostModel,
    processors: Box<[Processor]>,
    /// The one whose fiber runs.
    current: Cell<usize>,
    /// Whether a fiber runs; else it is a timer's action, at [`Machine::outside_ps`].
    inside: Cell<bool>,
    outside_ps: Cell<u64>,
    /// When somebody else is to go on.
    horizon_ps: Cell<u64>,
    /// Processors that spin at a simple lock.
    spinning: Cell<usize>,
    /// When the monitor looks again.
    next_look_ps: Cell<u64>,
    random: RefCell<SplitMix>,
    steps: Cell<u64>,
    /// Who had each lock last, by class and instance: 0 for nobody, else one more than its number.
    lines: RefCell<Vec<Vec<u16>>>,
    /// Who has the words of each process, by its slot.
    words: RefCell<Vec<Holders>>,
}

/// Which processors have a line: the one that wrote it last, and those that have read it since. A
/// bit each, by number modulo 64.
#[derive(Debug, Clone, Copy, Default)]
struct Holders(u64);

thread_local! {
    /// The machine whose thread this is, or null. Constant and without a destructor: a signal
    /// handler may read it.
    static MACHINE: Cell<*const Machine> = const { Cell::new(ptr::null()) };
}

/// The machine whose thread this is.
fn machine<'a>() -> Option<&'a Machine> {
    // SAFETY: not null only as long as a `MachineHere` borrows the machine; callers keep the result
    // no longer than a frame within that run.
    unsafe { MACHINE.get().as_ref() }
}

/// Makes this thread a machine's as long as it lives, which is no longer than the machine.
struct MachineHere<'m>(PhantomData<&'m Machine>);

impl<'m> MachineHere<'m> {
    fn begin(machine: &'m Machine) -> Self {
        MACHINE.set(machine);
        Self(PhantomData)
    }
}

impl Drop for MachineHere<'_> {
    fn drop(&mut self) {
        MACHINE.set(ptr::null());
    }
}

/// Moves the clock of the processor that runs this by the cost of a step. Nothing in the other
/// executors.
#[inline]
pub(crate) fn spend(step: CostKind) {
    if is_stepped() {
        charge(step, 1);
    }
}

/// The same by half the step's cost: for one that is made in part before a lock is taken, in part
/// while it is held.
#[inline]
pub(crate) fn spend_half(step: CostKind) {
    if is_stepped() {
        charge(step, 2);
    }
}

/// Whether this is a fiber whose points count: of a machine, or simulated.
#[inline]
fn is_stepped() -> bool {
    HERE.with(|here| here.left.get() != 0)
}

#[cold]
#[inline(never)]
fn charge(step: CostKind, parts: u64) {
    if let Some(machine) = machine() {
        machine.pass(machine.varied(machine.costs.ps(step) / parts));
        // Whoever is behind now finds taken what is held meanwhile.
        machine.point();
    }
}

/// A lock of this class and instance is about to be taken: moves the clock. Nothing in the other
/// executors.
#[inline]
pub(crate) fn touch(class: u8, instance: u32) {
    if is_stepped()
        && let Some(machine) = machine()
    {
        machine.touch(class, instance);
    }
}

/// What others read of a process without a lock is looked at, or written: moves the clock where the
/// line is not here. Nothing in the other executors.
#[inline]
pub(super) fn reach_words(slot: u32, writes: bool) {
    if let Some(machine) = machine().filter(|machine| machine.inside.get()) {
        machine.reach_words(slot, writes);
    }
}

/// How long a processor computes before it looks who else is there: what is sent to it meanwhile
/// reaches it as late.
pub(crate) const STRETCH: Duration = Duration::from_micros(25);

/// Lets the processor that runs this compute for so long; false where the executor is another.
pub(crate) fn compute(duration: Duration) -> bool {
    let Some(machine) = machine() else { return false };
    let ps = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(PS_A_NS);
    machine.pass(ps);
    true
}

impl Machine {
    /// A point of a fiber: who is behind catches up.
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

    /// Whether the fiber that returns to user mode here is to make way.
    fn makes_way(&self) -> bool {
        let mine = self.here();
        let now_ps = mine.clock_ps.get();
        mine.make_way_ps.get() <= now_ps || mine.slice_ends_ps.get() <= now_ps
    }

    fn here(&self) -> &Processor {
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

    /// A cost, give or take.
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

    /// A line comes to who reads it if somebody else has written it since, and to who writes it if
    /// anybody else has it.
    fn reach_words(&self, slot: u32, writes: bool) {
        let slot = slot as usize;
        let me = 1 << (self.current.get() as u32 % u64::BITS);
        let comes = {
            let mut words = self.words.borrow_mut();
            if words.len() <= slot {
                words.resize(slot + 1, Holders::default());
            }
            let Holders(holders) = &mut words[slot];
            let before = std::mem::replace(holders, if writes { me } else { *holders | me });
            before != 0 && (before & me == 0 || writes && before != me)
        };
        if comes {
            self.charge(CostKind::Transfer);
        }
    }

    /// A fiber was woken, or is to begin: queues it where it belongs.
    pub(super) fn post(&self, task: *const Task, fresh: bool) {
        // SAFETY: whoever posts a task has it out of all queues, alive.
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

    /// Tells another processor that there is something for it; when it learns of that.
    fn reach(&self, target: &Processor) -> u64 {
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

    /// Lets an idle processor take of the fibers that have not begun on `from`, as the parallel
    /// executor does. A sleeper is woken for two at least.
    fn share(&self, from: usize) {
        let many = self.processors[from].fresh.borrow().len() >= 2;
        self.share_with(from, many);
    }

    /// What the parallel executor's monitor does at each of its looks: nobody sleeps while somebody
    /// else has fibers that have not begun.
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

    /// Lets an idle processor take fibers from `from`, one that sleeps only if `sleepers` may.
    fn share_with(&self, from: usize, sleepers: bool) {
        let now_ps = self.now_ps();
        let look_ps = self.costs.ps(CostKind::Look);
        let victim = &self.processors[from];
        let idle = |other: &&Processor| other.number != from && other.is_idle();
        let awake = |other: &&Processor| idle(other) && !other.sleeps_at(now_ps, look_ps);
        let asleep = |other: &&Processor| sleepers && idle(other);
        let taker = self.processors.iter().find(awake);
        let Some(taker) = taker.or_else(|| self.processors.iter().find(asleep)) else { return };
        let ready_ps = self.reach(taker);
        taker.take_from(victim, ready_ps);
        self.horizon_ps.set(self.horizon_ps.get().min(ready_ps));
    }

    /// Lets those go on whose lock has become free.
    fn let_spinners_go(&self, now_ps: u64) {
        let free: Vec<&Processor> =
            self.processors.iter().filter(|processor| processor.may_stop_spinning()).collect();
        for processor in &free {
            processor.spins.set(false);
            self.spinning.set(self.spinning.get() - 1);
            // The line goes to one after the other.
            let turns = 1 + self.random.borrow_mut().next() % free.len() as u64;
            let ready_ps = now_ps + turns * self.costs.ps(CostKind::Transfer);
            processor.clock_ps.set(processor.clock_ps.get().max(ready_ps));
            self.horizon_ps.set(self.horizon_ps.get().min(processor.clock_ps.get()));
        }
    }
}

/// What a point is in this executor; false in the others.
pub(super) fn point() -> bool {
    machine().map(Machine::point).is_some()
}

/// Whether the fiber that returns to user mode is to make way; nothing in the other executors.
pub(super) fn makes_way() -> Option<bool> {
    machine().map(|machine| {
        machine.point();
        machine.makes_way()
    })
}

/// A timer was set: at that time somebody may have to wait for what it does.
pub(super) fn look_at(when: Duration) {
    if let Some(machine) = machine() {
        let ps = u64::try_from(when.as_nanos()).unwrap_or(NEVER).saturating_mul(PS_A_NS);
        machine.horizon_ps.set(machine.horizon_ps.get().min(ps));
    }
}

/// See [`Executor::hurry`].
pub(super) fn hurry(processor: usize) {
    if let Some(machine) = machine() {
        let make_way_ps = &machine.processors[processor].make_way_ps;
        let seen_ps = machine.now_ps() + machine.varied(machine.costs.ps(CostKind::Transfer));
        make_way_ps.set(make_way_ps.get().min(seen_ps));
    }
}

/// Queues a fiber; false where no machine runs on this thread.
pub(super) fn post(task: *const Task, fresh: bool) -> bool {
    machine().map(|machine| machine.post(task, fresh)).is_some()
}

/// The processor whose fiber runs here.
pub(super) fn current() -> Option<usize> {
    machine().map(|machine| machine.current.get())
}

/// Whether the word that a fiber spins at is free.
///
/// # Safety
///
/// The fiber spins: its word lives as long as the frame in which it does.
unsafe fn is_free(task: *const Task) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let word: *const AtomicU32 = *(*task).spin_word();
        (*word).load(Ordering::Relaxed) == 0
    }
}

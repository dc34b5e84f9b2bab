//! The running fiber and what it may do: [`Fiber`], [`park`], [`point`], [`spin`], [`preempt`].
//!
//! Everything here works outside of fibers too, on the operating system's thread, and does not ask
//! which executor runs; only the simulated one's decisions are in `simulated.rs`.
#![allow(unsafe_code, reason = "the running fiber is known by address")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::thread::{self, Thread};

use super::footprint::At;
use super::here::{Backend, HERE, running, suspend};
use super::modelled::spend;
use super::reach::reach_fiber;
use super::task::{SwitchReason, Task};
use super::{modelled, simulated};
use crate::costs::CostKind;
use crate::held::assert_may_park;

/// One execution that can sleep and be woken. Cheap to clone.
#[derive(Clone)]
pub struct Fiber(Kind);

#[derive(Clone)]
enum Kind {
    Task(Arc<Task>),
    Thread(Thread),
}

impl Fiber {
    /// The handle of a task.
    pub(super) fn new(task: Arc<Task>) -> Self {
        Self(Kind::Task(task))
    }

    /// Wakes it, or lets its next [`park`] return at once. Async-signal-safe.
    pub fn unpark(&self) {
        match &self.0 {
            Kind::Task(task) => unpark(task),
            Kind::Thread(thread) => thread.unpark(),
        }
    }

    /// Wakes it as [`Fiber::unpark`] does, by who is about to [`rest`]. Where schedules are gone
    /// through it goes on then as if it were that one.
    pub(crate) fn hand_over(&self) {
        match &self.0 {
            Kind::Task(task) => {
                wake(task);
                simulated::hand_over(task);
            }
            Kind::Thread(thread) => thread.unpark(),
        }
    }

    /// What the running fiber does from now on is said to be this one's.
    pub(crate) fn is_served(&self) {
        if let (Some(me), Kind::Task(task)) = (running(), &self.0) {
            me.serve(Some(task));
        }
    }

    /// Its number within its executor, from 1; 0 for a thread outside.
    pub(crate) fn id(&self) -> u32 {
        match &self.0 {
            Kind::Task(task) => task.id,
            Kind::Thread(_) => 0,
        }
    }

    /// The locks that it has and waits for; known in builds with debug assertions, or
    /// where locks are counted.
    ///
    /// # Safety
    ///
    /// Its run has ended.
    pub(crate) unsafe fn locks(&self) -> Vec<String> {
        match &self.0 {
            // SAFETY: the caller's promise.
            Kind::Task(task) => unsafe { task.locks() },
            Kind::Thread(_) => Vec::new(),
        }
    }

    /// The processor that it runs on, or is to begin on.
    #[cfg(test)]
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
    reach_fiber(task.shown());
    wake(task);
}

fn wake(task: &Task) {
    if !task.unpark() {
        return;
    }
    if modelled::post(task, false) {
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
pub fn current() -> Fiber {
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

/// The number of the one that runs here; 0 outside of any fiber.
pub(crate) fn current_id() -> u32 {
    running().map_or(0, |task| task.id)
}

/// The word that the running fiber was started with; 0 outside. Async-signal-safe.
pub fn context() -> usize {
    HERE.with(|here| here.context.get())
}

/// From now on no tick is told of the running fiber's context, whose owner is about to free what it
/// refers to. The fiber must end before it switches.
pub(crate) fn forget_context() {
    HERE.with(|here| here.context.set(0));
    // SYNC context: pairs with the look in `tick`, which interrupts this very thread: nothing is
    // freed before the context is gone.
    compiler_fence(Ordering::SeqCst);
}

/// The processor that runs this; 0 outside.
pub(crate) fn processor() -> usize {
    running().map_or(0, Task::processor)
}

/// Sleeps until somebody calls [`Fiber::unpark`]; it may have been called before, and may return
/// for nothing.
pub fn park() {
    assert_may_park();
    match running() {
        Some(task) => {
            reach_fiber(task.shown());
            if task.take_token() { point(At::Awake) } else { suspend(task, SwitchReason::Park) }
        }
        None => thread::park(),
    }
}

/// As [`park`], by who has handed over what it does, or has nothing to do: when it sleeps and wakes
/// matters to nobody else.
pub(crate) fn rest() {
    assert_may_park();
    match running() {
        // Nobody is let in between: who was woken for nothing looks again.
        Some(task) if task.take_token() => {}
        Some(task) => suspend(task, SwitchReason::Park),
        None => thread::park(),
    }
}

/// What the running fiber does from now on is its own.
pub(crate) fn serves_nobody() {
    if let Some(me) = running() {
        me.serve(None);
    }
}

/// A place where the simulated executor may let another fiber run. Nothing in the parallel one.
#[inline]
pub(crate) fn point(at: At) {
    HERE.with(|here| match here.left.get() {
        0 => {}
        1 => simulated::decide(at),
        left => here.left.set(left - 1),
    });
}

/// A turn of waiting at a lock: a [`point`] that takes time.
#[inline]
pub(crate) fn turn() {
    spend(CostKind::Spin);
    point(At::Within);
}

/// Does what no run is to show: simulated, it passes no point. It neither sleeps nor waits for a
/// lock.
pub(crate) fn aside<R>(body: impl FnOnce() -> R) -> R {
    let left = HERE.with(|here| here.left.replace(0));
    let result = body();
    let since = HERE.with(|here| here.left.replace(left));
    debug_assert_eq!(since, 0, "nobody else has run meanwhile");
    result
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
    if HERE.with(|here| here.is_simulated()) {
        return simulated::spin(word);
    }
    let spins = HERE.with(|here| here.spins.replace(here.spins.get().wrapping_add(1)));
    if spins % PATIENCE == PATIENCE - 1 {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// At a return to user mode: lets a fiber run that was woken on this processor since the running
/// one went on, or any other if its slice is over, and comes back later.
#[inline]
pub(crate) fn preempt() {
    let worker = HERE.with(|here| here.worker.get());
    // SAFETY: worker records live for ever.
    let Some(worker) = (unsafe { worker.as_ref() }) else { return };
    let makes_way = if HERE.with(|here| here.is_simulated()) {
        modelled::makes_way().unwrap_or_else(|| {
            point(At::Return);
            false
        })
    } else {
        worker.return_to_user()
    };
    if makes_way {
        yield_now();
    }
}

/// Where a fiber could go on for ever without a return to user mode: everybody else on its
/// processor comes first. The simulated executor needs no such place: who goes on there is chosen
/// at points.
pub(crate) fn take_turns() {
    if HERE.with(|here| here.backend.get() != Backend::Simulated) {
        yield_now();
    }
}

/// Lets others run first; not while a panic unwinds, for the thread counts its panics, not the
/// fibers'.
pub(crate) fn yield_now() {
    match running() {
        Some(_) if thread::panicking() => {}
        Some(task) => suspend(task, SwitchReason::Yield),
        None => thread::yield_now(),
    }
}

/// Gives the running fiber up: it is never resumed, and what lies on its stack is leaked and
/// counted.
///
/// # Panics
///
/// Outside of any fiber.
pub(crate) fn abandon() -> ! {
    let task = running().expect("only a fiber can be abandoned");
    suspend(task, SwitchReason::Abandon);
    unreachable!("an abandoned fiber is never resumed")
}

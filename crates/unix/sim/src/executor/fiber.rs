//! The running fiber and its operations: [`Fiber`], [`park`], [`point`], [`spin`], [`preempt`].
//!
//! All functions here also work outside of fibers, on an OS thread, and do not
//! depend on the kind of executor. Only the decisions of the simulated executor are made elsewhere,
//! in `simulated.rs`.
#![allow(unsafe_code, reason = "the running fiber is referred to by address")]

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

/// A thread of execution that can sleep and be woken. Cheap to clone.
#[derive(Clone)]
pub struct Fiber(FiberKind);

#[derive(Clone)]
enum FiberKind {
    Task(Arc<Task>),
    Thread(Thread),
}

impl Fiber {
    /// Creates the handle of a task.
    pub(super) fn new(task: Arc<Task>) -> Self {
        Self(FiberKind::Task(task))
    }

    /// Wakes the fiber, or makes its next [`park`] return immediately. Async-signal-safe.
    pub fn unpark(&self) {
        match &self.0 {
            FiberKind::Task(task) => unpark(task),
            FiberKind::Thread(thread) => thread.unpark(),
        }
    }

    /// Like [`Fiber::unpark`], but for a caller that is about to [`rest`]. In an exploration of
    /// schedules, the woken fiber then continues in place of the caller.
    pub(crate) fn hand_over(&self) {
        match &self.0 {
            FiberKind::Task(task) => {
                wake(task);
                simulated::hand_over(task);
            }
            FiberKind::Thread(thread) => thread.unpark(),
        }
    }

    /// Attributes the running fiber's further work to this fiber.
    pub(crate) fn is_served(&self) {
        if let (Some(me), FiberKind::Task(task)) = (running(), &self.0) {
            me.serve(Some(task));
        }
    }

    /// Returns the fiber's number within its executor, from 1; 0 for a thread that is not a fiber.
    pub(crate) fn id(&self) -> u32 {
        match &self.0 {
            FiberKind::Task(task) => task.id,
            FiberKind::Thread(_) => 0,
        }
    }

    /// Describes the locks that the fiber holds and waits for. Locks are recorded in builds with
    /// debug assertions, or if acquisitions are counted.
    ///
    /// # Safety
    ///
    /// The run of the fiber must have ended.
    pub(crate) unsafe fn locks(&self) -> Vec<String> {
        match &self.0 {
            // SAFETY: the caller upholds the contract of this function.
            FiberKind::Task(task) => unsafe { task.locks() },
            FiberKind::Thread(_) => Vec::new(),
        }
    }

    /// Returns the processor that the fiber runs on, or on which it will begin.
    #[cfg(test)]
    pub(crate) fn processor(&self) -> usize {
        match &self.0 {
            FiberKind::Task(task) => task.processor(),
            FiberKind::Thread(_) => 0,
        }
    }
}

impl fmt::Debug for Fiber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            FiberKind::Task(task) => write!(f, "Fiber({})", task.id),
            FiberKind::Thread(thread) => write!(f, "Fiber({:?})", thread.id()),
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
        // SAFETY: non-null only while this thread's worker runs, and the object outlives that run.
        match unsafe { here.local.get().as_ref() } {
            Some(local) if std::ptr::eq(here.worker.get(), home) && !here.interrupted.get() => {
                local.woken.push(task);
                home.make_way.store(true, Ordering::Relaxed);
            }
            _ => home.post(task),
        }
    });
}

/// Returns the current fiber or thread.
pub fn current() -> Fiber {
    let task = HERE.with(|here| here.task.get());
    if task.is_null() {
        return Fiber(FiberKind::Thread(thread::current()));
    }
    // SAFETY: the executor's reference, which `Arc::into_raw` made, keeps the running task alive.
    Fiber(FiberKind::Task(unsafe {
        Arc::increment_strong_count(task);
        Arc::from_raw(task)
    }))
}

/// Returns the number of the running fiber; 0 outside of fibers.
pub(crate) fn current_id() -> u32 {
    running().map_or(0, |task| task.id)
}

/// Returns the word that the running fiber was started with; 0 outside of fibers.
/// Async-signal-safe.
pub fn context() -> usize {
    HERE.with(|here| here.context.get())
}

/// Hides the context of the running fiber from further ticks, because the owner of the context is
/// about to free the data that it refers to. The fiber must end before it switches.
pub(crate) fn forget_context() {
    HERE.with(|here| here.context.set(0));
    // SYNC context: pairs with the read in `tick`, which interrupts this very thread: nothing is
    // freed before the context is cleared.
    compiler_fence(Ordering::SeqCst);
}

/// Returns the processor that runs the caller; 0 outside of fibers.
pub(crate) fn processor() -> usize {
    running().map_or(0, Task::processor)
}

/// Sleeps until [`Fiber::unpark`] is called. Returns immediately if it has already been called. May
/// also return spuriously.
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

/// Like [`park`], for a fiber that has handed its work over or has no work, so that the times at
/// which it sleeps and wakes affect no other fiber.
pub(crate) fn rest() {
    assert_may_park();
    match running() {
        // No other fiber runs in between: a fiber that was woken spuriously checks again.
        Some(task) if task.take_token() => {}
        Some(task) => suspend(task, SwitchReason::Park),
        None => thread::park(),
    }
}

/// Attributes the running fiber's further work to that fiber itself.
pub(crate) fn serve_itself() {
    if let Some(me) = running() {
        me.serve(None);
    }
}

/// Marks a point at which the simulated executor may let another fiber run. Does nothing in the
/// parallel executor.
#[inline]
pub(crate) fn point(at: At) {
    HERE.with(|here| match here.left.get() {
        0 => {}
        1 => simulated::decide(at),
        left => here.left.set(left - 1),
    });
}

/// Marks one attempt of a fiber that waits for a lock: a [`point`] that takes time.
#[inline]
pub(crate) fn turn() {
    spend(CostKind::Spin);
    point(At::Within);
}

/// Runs `body` without passing a point of a simulated run. `body` must neither sleep nor wait for a
/// lock.
pub(crate) fn aside<R>(body: impl FnOnce() -> R) -> R {
    let left = HERE.with(|here| here.left.replace(0));
    let result = body();
    let since = HERE.with(|here| here.left.replace(left));
    debug_assert_eq!(since, 0, "no other fiber has run meanwhile");
    result
}

/// Waits after a failed attempt to take a simple lock. `word` is 0 when the next attempt may
/// succeed. Panics in the simulated executor outside of fibers, because no fiber could release the
/// lock.
pub(crate) fn spin(word: &AtomicU32) {
    /// Number of attempts between two calls of the operating system's scheduler, which are made
    /// because the holder of the lock may be waiting for this processor.
    const SPINS_PER_YIELD: u32 = 128;
    if HERE.with(|here| here.is_simulated()) {
        return simulated::spin(word);
    }
    let spins = HERE.with(|here| here.spins.replace(here.spins.get().wrapping_add(1)));
    if spins % SPINS_PER_YIELD == SPINS_PER_YIELD - 1 {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

/// Lets another fiber run first, at a return to user mode, if a fiber was woken on this processor
/// since the running one was resumed or if the running fiber's time slice is over.
#[inline]
pub(crate) fn preempt() {
    let worker = HERE.with(|here| here.worker.get());
    // SAFETY: worker records are never freed.
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

/// Lets all other fibers of the processor run first, at a place where a fiber could otherwise
/// continue indefinitely without a return to user mode. The simulated executor needs no such place,
/// because it chooses the next fiber at points.
pub(crate) fn take_turns() {
    if HERE.with(|here| here.backend.get() != Backend::Simulated) {
        yield_now();
    }
}

/// Lets other fibers run first, except while a panic unwinds, because panics are counted per
/// thread, not per fiber.
pub(crate) fn yield_now() {
    match running() {
        Some(_) if thread::panicking() => {}
        Some(task) => suspend(task, SwitchReason::Yield),
        None => thread::yield_now(),
    }
}

/// Abandons the running fiber: it is never resumed, and the contents of its stack are leaked and
/// counted. Panics outside of fibers.
pub(crate) fn abandon() -> ! {
    let task = running().expect("only a fiber can be abandoned");
    suspend(task, SwitchReason::Abandon);
    unreachable!("an abandoned fiber is never resumed")
}

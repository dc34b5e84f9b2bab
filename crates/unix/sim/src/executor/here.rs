//! State of the current OS thread: [`HERE`], [`running`].
//!
//! The state consists of plain cells without a destructor or lazy initialisation, so that a signal
//! handler may read them and a read costs one instruction. A fiber never changes its thread, so it
//! always sees the same state.
#![allow(unsafe_code, reason = "the running fiber is referred to by address")]

use std::cell::Cell;
use std::ptr;

use super::footprint::{At, Reaching};
use super::local::Local;
use super::task::{SwitchReason, Task, Worker};

/// The function that a tick calls with the context of the interrupted fiber, or with 0 if it
/// interrupts no fiber.
pub(crate) type TickFn = fn(context: usize);

/// The executor whose rules choose the fiber that runs on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// The parallel executor, or none.
    Parallel,
    /// The simulated executor.
    Simulated,
    /// The modelled executor.
    Modelled,
}

/// The state of a thread.
pub(super) struct Here {
    /// The running fiber, or null.
    pub(super) task: Cell<*const Task>,
    /// The opaque word of the fiber, or 0.
    pub(super) context: Cell<usize>,
    /// In a fiber of the simulated executor, the number of points until the next decision, at least
    /// 1. In the modelled executor, 1. Otherwise, 0.
    pub(super) left: Cell<u32>,
    /// The executor that this thread belongs to.
    pub(super) backend: Cell<Backend>,
    /// Number of failed attempts to take simple locks.
    pub(super) spins: Cell<u32>,
    /// `true` while a signal handler interrupts the code of this thread.
    pub(super) interrupted: Cell<bool>,
    /// The interrupt level. While it is above 0, ticks are deferred.
    pub(super) level: Cell<u8>,
    /// Number of deferred ticks.
    pub(super) held: Cell<u32>,
    /// The function that a tick calls.
    pub(super) tick: Cell<Option<TickFn>>,
    /// Simulated: `true` if a tick occurs at the point from which the fiber continues.
    pub(super) tick_due: Cell<bool>,
    /// The worker whose thread this is, or null.
    pub(super) worker: Cell<*const Worker>,
    /// The worker's private part, or null.
    pub(super) local: Cell<*const Local>,
    /// The objects that the running fiber has reached since it was resumed, if they are recorded.
    pub(super) reaching: Reaching,
    pub(super) notes: Cell<bool>,
    /// Simulated: the current run, if its chooser decides in place, or null.
    pub(super) run: Cell<*mut ()>,
    /// Simulated: the point at which the fiber stopped.
    pub(super) at: Cell<At>,
}

impl Here {
    /// Returns `true` if the thread belongs to a simulated or a modelled executor.
    #[inline]
    pub(super) fn is_simulated(&self) -> bool {
        self.backend.get() != Backend::Parallel
    }
}

/// A simulated or modelled run on this thread. Dropping it removes the run from [`HERE`], even
/// after a panic, so that the next run starts as if on a new thread.
pub(super) struct Stay(());

impl Stay {
    pub(super) fn begin(
        backend: Backend,
        worker: &Worker,
        local: &Local,
        tick: Option<TickFn>,
    ) -> Self {
        HERE.with(|here| {
            here.backend.set(backend);
            here.worker.set(worker);
            here.local.set(local);
            here.tick.set(tick);
            let _ = here.reaching.take();
        });
        Self(())
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.task.set(ptr::null());
            here.context.set(0);
            here.left.set(0);
            here.backend.set(Backend::Parallel);
            here.level.set(0);
            here.held.set(0);
            here.tick.set(None);
            here.tick_due.set(false);
            here.worker.set(ptr::null());
            here.local.set(ptr::null());
            here.notes.set(false);
            here.run.set(ptr::null_mut());
        });
    }
}

thread_local! {
    /// The state of this thread.
    pub(super) static HERE: Here = const {
        Here {
            task: Cell::new(ptr::null()),
            context: Cell::new(0),
            left: Cell::new(0),
            backend: Cell::new(Backend::Parallel),
            spins: Cell::new(0),
            interrupted: Cell::new(false),
            level: Cell::new(0),
            held: Cell::new(0),
            tick: Cell::new(None),
            tick_due: Cell::new(false),
            worker: Cell::new(ptr::null()),
            local: Cell::new(ptr::null()),
            reaching: Reaching::new(),
            notes: Cell::new(false),
            run: Cell::new(ptr::null_mut()),
            at: Cell::new(At::Start),
        }
    };
}

/// Returns the running fiber.
pub(super) fn running<'a>() -> Option<&'a Task> {
    // SAFETY: the executor's reference keeps the running task alive until it has ended. Callers do
    // not keep the result longer than their own frame on that fiber's stack, or than a signal
    // handler's frame above it.
    unsafe { HERE.with(|here| here.task.get()).as_ref() }
}

/// Suspends `task`, the fiber that runs on this thread.
pub(super) fn suspend(task: &Task, leave: SwitchReason) {
    debug_assert!(ptr::eq(HERE.with(|here| here.task.get()), task), "a fiber suspends itself");
    HERE.with(|here| {
        let low = here.is_simulated() || here.level.get() == 0;
        debug_assert!(low, "a fiber leaves its processor at base level");
    });
    // SAFETY: callers pass the result of `running`, so `task` is the fiber that runs on this
    // thread. Debug builds assert this above.
    unsafe { task.suspend(leave) };
}

//! State of this thread of the operating system: [`HERE`], [`running`].
//!
//! Plain cells without a destructor or a lazy beginning, so that a signal handler may read them and
//! a look at one costs one instruction. A fiber never changes its thread, so neither does what it
//! sees here.
#![allow(unsafe_code, reason = "the running fiber is known by address")]

use std::cell::Cell;
use std::ptr;

use super::footprint::{At, Reaching};
use super::task::{SwitchReason, Task};
use super::worker::{Local, Worker};

/// What a tick calls, with the context of the interrupted fiber, or 0 if there was none.
pub(crate) type TickFn = fn(context: usize);

/// The executor whose rules choose the fiber that runs on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    /// The parallel executor's, or those of no executor.
    Parallel,
    /// The simulated one's.
    Simulated,
    /// The modelled one's.
    Modelled,
}

/// See the module.
pub(super) struct Here {
    /// The fiber that runs, or null.
    pub(super) task: Cell<*const Task>,
    /// Its opaque word, or 0.
    pub(super) context: Cell<usize>,
    /// Simulated, inside of a fiber: points until the next decision, at least 1. Modelled: 1. Else
    /// 0.
    pub(super) left: Cell<u32>,
    /// The executor that this thread belongs to.
    pub(super) backend: Cell<Backend>,
    /// Failed attempts at simple locks.
    pub(super) spins: Cell<u32>,
    /// Whether a signal handler has interrupted what runs here.
    pub(super) interrupted: Cell<bool>,
    /// Above 0 ticks are held.
    pub(super) level: Cell<u8>,
    /// Ticks held.
    pub(super) held: Cell<u32>,
    /// What a tick calls.
    pub(super) tick: Cell<Option<TickFn>>,
    /// Simulated: a tick lands at the point that the fiber goes on from.
    pub(super) tick_due: Cell<bool>,
    /// The worker whose thread this is, or null.
    pub(super) worker: Cell<*const Worker>,
    /// What is its alone, or null.
    pub(super) local: Cell<*const Local>,
    /// What the running fiber has reached since it went on, if somebody wants to know.
    pub(super) reaching: Reaching,
    pub(super) notes: Cell<bool>,
    /// Simulated: the run under way, where it is asked at each point, or null.
    pub(super) run: Cell<*mut ()>,
    /// Simulated: the point at which it left.
    pub(super) at: Cell<At>,
}

impl Here {
    /// Whether the thread is a simulated or a modelled executor's.
    #[inline]
    pub(super) fn is_simulated(&self) -> bool {
        self.backend.get() != Backend::Parallel
    }
}

/// A simulated or modelled run on this thread. Once it is dropped [`HERE`] has nothing of the run,
/// also where a panic ended it: the next one begins as on a new thread.
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
    /// This thread's.
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

/// The running fiber, as long as it runs.
pub(super) fn running<'a>() -> Option<&'a Task> {
    // SAFETY: the running task is alive by its executor's reference until it has ended; callers
    // keep it no longer than a frame on that fiber's stack, or a signal handler's above it.
    unsafe { HERE.with(|here| here.task.get()).as_ref() }
}

/// Suspends the fiber that runs here, which is `task`.
pub(super) fn suspend(task: &Task, leave: SwitchReason) {
    debug_assert!(ptr::eq(HERE.with(|here| here.task.get()), task), "suspends itself");
    HERE.with(|here| {
        let low = here.is_simulated() || here.level.get() == 0;
        debug_assert!(low, "a fiber leaves its processor at base level");
    });
    // SAFETY: asserted above in debug builds: callers pass what `running` returned, so the task is
    // the one that runs here.
    unsafe { task.suspend(leave) };
}

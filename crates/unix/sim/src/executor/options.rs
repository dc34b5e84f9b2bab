//! The interface between an executor and its owner: [`ExecutorOptions`], [`Start`], [`Hooks`],
//! [`RunEnd`].

use std::sync::Arc;
use std::time::Duration;

use super::stack::StackPool;

/// The body of a fiber, which runs to its end.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// The description of a new fiber.
pub(crate) struct Start {
    /// The processor that the fiber must run on. With `None`, it runs on its starter's processor or
    /// on an idle one.
    pub(crate) processor: Option<usize>,
    /// The value that [`context`](super::context) returns in the fiber.
    pub(crate) context: usize,
    /// The name by which the watchdog reports the fiber; the watchdog ignores a fiber with the name
    /// 0.
    pub(crate) name: usize,
    /// The body. It must not unwind.
    pub(crate) body: Body,
}

/// Callbacks from the executor to its owner. The executor calls them on any thread, outside of
/// fibers.
pub(crate) trait Hooks: Send + Sync {
    /// Called when the fiber with this name has computed for longer than
    /// [`ExecutorOptions::busy_limit`] without a switch or [`preempt`](super::preempt). The fiber
    /// may have ended since.
    fn on_busy(&self, name: usize) {
        let _ = name;
    }

    /// Called in a simulated run when no fiber can run until time passes. Returns `true` if it woke
    /// fibers, which then run immediately, and `false` to let time pass.
    fn on_rest(&self) -> bool {
        false
    }

    /// Called when all fibers are blocked indefinitely. Returns `true` if it woke fibers, so that
    /// the run continues. If it returns `false`, the run ends as [`RunEnd::Deadlocked`].
    fn on_stall(&self) -> bool {
        false
    }

    /// Called when the fiber with this context has run out of stack in user mode. The fiber has
    /// ended, and the contents of its stack are leaked.
    fn on_overflow(&self, context: usize) {
        let _ = context;
    }
}

/// Hooks that do nothing.
struct NoHooks;

impl Hooks for NoHooks {}

/// The stacks that consecutive simulated runs share. Only the last run may abandon a fiber.
#[derive(Debug, Clone)]
pub struct Reused(pub(super) Arc<StackPool>);

impl Default for Reused {
    /// Creates a pool of stacks of the default size and maximum number.
    fn default() -> Self {
        let usual = ExecutorOptions::default();
        Self(Arc::new(StackPool::new(usual.stack_size, usual.stacks)))
    }
}

/// Options of an executor.
#[derive(Clone)]
pub(crate) struct ExecutorOptions {
    /// Number of usable bytes per stack.
    pub(crate) stack_size: usize,
    /// Maximum number of stacks in use at a time.
    pub(crate) stacks: usize,
    /// Parallel: computing time after which [`Hooks::on_busy`] is called.
    pub(crate) busy_limit: Duration,
    /// Simulated: number of processors over which fibers are nominally spread. Modelled: number of
    /// processors.
    pub(crate) processors: usize,
    /// Simulated: number of points after which the run ends as [`RunEnd::Stopped`].
    pub(crate) stop_at: Option<u64>,
    /// Simulated: if set, points take no time, and the clock never advances to a timer that is
    /// farther off than this.
    pub(crate) farthest: Option<Duration>,
    /// The source of stacks; `None` creates a pool for the run.
    pub(crate) reused: Option<Reused>,
    /// The callbacks.
    pub(crate) hooks: Arc<dyn Hooks>,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            stack_size: if cfg!(debug_assertions) { 256 << 10 } else { 64 << 10 },
            stacks: 1 << 20,
            busy_limit: Duration::from_secs(2),
            processors: 1,
            stop_at: None,
            farthest: None,
            reused: None,
            hooks: Arc::new(NoHooks),
        }
    }
}

/// The way in which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// No fiber is left.
    Finished,
    /// No fiber can run, no timer is set and no external source is attached: all threads are
    /// blocked.
    Deadlocked,
    /// [`FiberExecutor::stop`](super::FiberExecutor::stop) was called, or the last step was
    /// reached.
    Stopped,
}

//! What an executor is told and what it tells: [`Options`], [`Start`], [`Hooks`], [`Outcome`].

use std::sync::Arc;
use std::time::Duration;

use super::stack::StackPool;

/// What a fiber does, to its end.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// What a new fiber is to do.
pub(crate) struct Start {
    /// The processor that it must run on; `None`: the one that starts it, or an idle one.
    pub(crate) processor: Option<usize>,
    /// What [`context`](super::context) says in it.
    pub(crate) context: usize,
    /// What the watchdog calls it; 0 if it is not to watch it.
    pub(crate) name: usize,
    /// What it does. It must not unwind.
    pub(crate) body: Body,
}

/// What the executor tells its owner. Called on any thread, outside of fibers.
pub(crate) trait Hooks: Send + Sync {
    /// The fiber of this name has computed for longer than [`Options::busy_limit`] without a switch
    /// or [`preempt`](super::preempt). It may have ended since.
    fn on_busy(&self, name: usize) {
        let _ = name;
    }

    /// Simulated: nobody can go on until time passes. True: fibers were woken, go on now; false:
    /// let it pass.
    fn on_rest(&self) -> bool {
        false
    }

    /// Everybody waits for ever. True: fibers were woken, go on; false: the run ends as
    /// [`Outcome::Deadlocked`].
    fn on_stall(&self) -> bool {
        false
    }

    /// The fiber with this context ran out of stack in user mode: it has ended, and what lies on
    /// its stack is leaked.
    fn on_overflow(&self, context: usize) {
        let _ = context;
    }
}

/// Hooks that do nothing.
struct NoHooks;

impl Hooks for NoHooks {}

/// What simulated runs have one after another: the stacks of fibers. None of them leaves a fiber
/// behind, or it is the last one.
#[derive(Debug, Clone)]
pub struct Reused(pub(super) Arc<StackPool>);

impl Default for Reused {
    /// With stacks of the usual size, as many as are wanted.
    fn default() -> Self {
        let usual = Options::default();
        Self(Arc::new(StackPool::new(usual.stack_size, usual.stacks)))
    }
}

/// What can be set of an executor.
#[derive(Clone)]
pub(crate) struct Options {
    /// Usable bytes of a stack.
    pub(crate) stack_size: usize,
    /// Stacks at a time.
    pub(crate) stacks: usize,
    /// Parallel: computing for longer than this is told to [`Hooks::on_busy`].
    pub(crate) busy_limit: Duration,
    /// Simulated: processors that fibers are spread over in name. Modelled: processors.
    pub(crate) processors: usize,
    /// Simulated: the run ends as [`Outcome::Stopped`] after exactly so many points.
    pub(crate) stop_at: Option<u64>,
    /// Simulated: time does not pass with each point, and the clock never advances to a timer that
    /// is farther off than this.
    pub(crate) farthest: Option<Duration>,
    /// Where stacks come from; of the run's own pool, if nothing is said.
    pub(crate) reused: Option<Reused>,
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
            farthest: None,
            reused: None,
            hooks: Arc::new(NoHooks),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No fiber is left.
    Finished,
    /// Nobody can run, no timer is set and nothing outside is attached: all threads are blocked.
    Deadlocked,
    /// [`Executor::stop`](super::Executor::stop) was called, or the last step was reached.
    Stopped,
}

//! The result of a run: [`RunReport`].

use std::time::Duration;

use tontine_unix::{Pid, WaitStatus};

use crate::kernel::SystemState;
use crate::lock::LockStatistics;

/// The reason why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// All processes have ended.
    Finished,
    /// All threads are blocked. [`RunReport::state`] lists what each thread waits for.
    Deadlocked,
    /// The run was stopped, by [`Builder::stop_at`](crate::Builder::stop_at) or a
    /// [`Stopper`](crate::Stopper).
    Stopped,
}

/// The result of [`Virtual::run`](crate::Virtual::run).
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The exit status of the program; `None` if the run ended before the program did.
    pub status: Option<WaitStatus>,
    /// The reason why the run ended.
    pub ending: EndReason,
    /// The processes whose program panicked. They ended as if killed by SIGABRT.
    pub panicked: Vec<Pid>,
    /// The number of leaked stacks. A stack is leaked if the program caught the unwinding or if the
    /// run ended before the thread of the stack did.
    pub abandoned: usize,
    /// The state of the system at the end; `None` if all processes had ended.
    pub state: Option<SystemState>,
    /// The number of points of a simulated run at which another thread could have run.
    pub steps: u64,
    /// A hash of the schedule of a simulated run.
    pub digest: u64,
    /// The duration of the run, on the system's clock.
    pub elapsed: Duration,
    /// The lock statistics, if [`Builder::statistics`](crate::Builder::statistics) is on.
    pub locks: Option<LockStatistics>,
}

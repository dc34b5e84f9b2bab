//! The result of a run: [`RunReport`].

use std::time::Duration;

use tontine_unix::{Pid, WaitStatus};

use crate::kernel::SystemState;
use crate::lock::LockStatistics;

/// The reason for which a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// All processes have ended.
    Finished,
    /// All threads are blocked: [`RunReport::state`] says for what each of them waits.
    Deadlocked,
    /// The run was stopped, by [`Builder::stop_at`](crate::Builder::stop_at) or a
    /// [`Stopper`](crate::Stopper).
    Stopped,
}

/// The result of [`Virtual::run`](crate::Virtual::run).
#[derive(Debug, Clone)]
pub struct RunReport {
    /// The status of the program; `None` if the run ended before it.
    pub status: Option<WaitStatus>,
    /// The reason for which the run ended.
    pub ending: EndReason,
    /// The processes whose program panicked. They ended as by SIGABRT.
    pub panicked: Vec<Pid>,
    /// The number of stacks that were leaked: the program caught the unwinding, or the run ended
    /// before it.
    pub abandoned: usize,
    /// The system at the end; `None` if all processes had ended.
    pub state: Option<SystemState>,
    /// Simulated: the number of points at which another thread could have run.
    pub steps: u64,
    /// Simulated: a hash of the schedule.
    pub digest: u64,
    /// The duration of the run, on the system's clock.
    pub elapsed: Duration,
    /// The lock statistics, with [`Builder::statistics`](crate::Builder::statistics).
    pub locks: Option<LockStatistics>,
}

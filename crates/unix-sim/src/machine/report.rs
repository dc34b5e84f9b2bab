//! What a run says when it is over: [`RunReport`].

use std::time::Duration;

use tontine_unix::{Pid, WaitStatus};

use crate::kernel::SystemState;
use crate::lock::LockStatistics;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The program ended, and everybody else.
    Finished,
    /// Everybody waits for ever: [`RunReport::state`] says for what.
    Deadlocked,
    /// At the step that was asked for, or by a [`Stopper`](crate::Stopper).
    Stopped,
}

/// What a run says.
#[derive(Debug, Clone)]
pub struct RunReport {
    /// How the program ended; `None` where the run ended before.
    pub status: Option<WaitStatus>,
    /// How the run ended.
    pub ending: EndReason,
    /// Processes whose program panicked: they ended as by SIGABRT.
    pub panicked: Vec<Pid>,
    /// Stacks that were given up: their program did not let itself be unwound, or the run ended
    /// before.
    pub abandoned: usize,
    /// The system at the end, unless everybody had ended.
    pub state: Option<SystemState>,
    /// Simulated: places where another thread could have run.
    pub steps: u64,
    /// Simulated: a hash of who ran when.
    pub digest: u64,
    /// On the system's clock.
    pub elapsed: Duration,
    /// With [`Builder::statistics`](crate::Builder::statistics).
    pub locks: Option<LockStatistics>,
}

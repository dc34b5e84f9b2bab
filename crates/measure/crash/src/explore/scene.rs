//! A run of a script: [`KillTrial`], which [`Attempt`](super::attempt::Attempt) drives without
//! knowledge of the workers' actions.
//!
//! The *victim* carries out the operation; the others survive. Each reply has a deadline.

use super::trial_config::TrialConfig;
use crate::actor::order::CommandKind;
use crate::subject::Operation;
use crate::verdict::TrialResult;
use crate::worker_launcher::WorkerProcess;
use tontine_bench::error::Result;

/// A callback that releases a blocked victim.
pub(super) type ReleaseVictim<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

/// A trial at any time between its beginning and its verdict.
pub(super) trait KillTrial {
    /// Returns the victim's action in the operation under test.
    fn act(&self) -> CommandKind;

    /// Returns `true` if another process runs while the victim does.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Returns `true` if no other process runs while the victim does, and the victim has no other
    /// thread.
    fn is_quiet(&self) -> bool {
        false
    }

    /// Returns the victim, and a callback that releases it if it blocks.
    fn victim(&mut self) -> (&mut WorkerProcess, ReleaseVictim<'_>);

    /// Kills the victim. `returned` is true if the operation had returned, so that its guarantee
    /// holds.
    fn kill(&mut self, returned: bool);

    /// Starts a fresh process that replaces the dead victim, carries out `operation` next and is
    /// killed in turn. If it does not reach the operation, returns the result of the first kill.
    fn succeed(&mut self, config: TrialConfig<'_>, next: Operation) -> Result<Option<TrialResult>>;

    /// Lets the survivors continue, and judges the result.
    fn judge(self: Box<Self>, config: TrialConfig<'_>) -> Result<TrialResult>;
}

//! Configuration of a trial, and the interpretation of the workers' replies, for all scripts.

use std::time::Duration;

use crate::actor::order::{CommandKind, WorkerReply};
use crate::fair_timeout::FairTimeout;
use crate::message::MessageCheck;
use crate::run_dir::RunDir;
use crate::subject::CrashTarget;
use crate::verdict::TrialResult;
use crate::worker_launcher::{Heard, NoReply, WorkerLauncher, WorkerProcess};
use tontine_bench::error::{MeasureError, Result};

/// Timeout of a reply in a trial in which no process has been killed.
pub(super) const UNHARMED: Duration = Duration::from_secs(5);

/// Configuration of a trial: launcher and target.
#[derive(Clone, Copy)]
pub(super) struct TrialConfig<'a> {
    pub(super) stage: &'a WorkerLauncher,
    pub(super) subject: &'static dyn CrashTarget,
}

impl TrialConfig<'_> {
    pub(super) fn actor(&self, place: &RunDir) -> Result<WorkerProcess> {
        WorkerProcess::start(self.stage, self.subject.name(), place)
    }
}

/// Lets a worker carry out `act` while no process has been killed yet.
pub(super) fn unharmed(actor: &mut WorkerProcess, act: CommandKind) -> Result<Vec<MessageCheck>> {
    done_unharmed(act, actor.ask(act.plain(), &FairTimeout::alone(UNHARMED))?)
}

/// Converts the reply to a command that must succeed.
pub(super) fn done_unharmed(act: CommandKind, reply: WorkerReply) -> Result<Vec<MessageCheck>> {
    let order = act.plain();
    match reply {
        WorkerReply::Done(seen) => Ok(seen),
        WorkerReply::Lacking(why) => Err(MeasureError::skip(format!("'{order}': {why}"))),
        WorkerReply::Refused(why) | WorkerReply::Faulty(why) => {
            Err(MeasureError::fail(format!("'{order}' failed without a kill: {why}")))
        }
    }
}

/// The received messages, or the result of the kill if a worker made no progress.
pub(super) type ReceiveResult = std::result::Result<Vec<MessageCheck>, TrialResult>;

/// Converts the reply of a worker that must make progress: any other reply is the result of the
/// kill.
pub(super) fn answer(who: &str, answer: Heard<WorkerReply>) -> ReceiveResult {
    match answer {
        Ok(WorkerReply::Done(seen)) => Ok(seen),
        Ok(WorkerReply::Refused(why) | WorkerReply::Lacking(why) | WorkerReply::Faulty(why)) => {
            Err(TrialResult::wedged(format!("{who} got an error: {why}")))
        }
        Err(silence) => Err(silent(who, &silence)),
    }
}

/// Returns the result of a kill after which a worker that must make progress did not reply.
pub(super) fn silent(who: &str, silence: &NoReply) -> TrialResult {
    match silence {
        NoReply::Stuck(how) => TrialResult::wedged(format!("{who} made no progress: {how}")),
        NoReply::Ended(how) => TrialResult::wedged(format!("{who} ended unexpectedly: {how}")),
        NoReply::Starved(how) => {
            TrialResult::Unexplored(format!("the machine is too loaded to judge {who} {how}"))
        }
    }
}

//! Configuration of a trial, and the meaning of the workers' replies, common to all scripts.

use std::time::Duration;

use crate::actor::order::{Act, WorkerReply};
use crate::message::Seen;
use crate::patience::Patience;
use crate::place::Place;
use crate::stage::{Actor, Silence, Stage};
use crate::subject::Subject;
use crate::verdict::Killed;
use tontine_host::trouble::{Result, Trouble};

/// Timeout of a reply in a trial in which no process has been killed.
pub(super) const UNHARMED: Duration = Duration::from_secs(5);

/// Configuration of a trial: launcher and target.
#[derive(Clone, Copy)]
pub(super) struct Cast<'a> {
    pub(super) stage: &'a Stage,
    pub(super) subject: &'static dyn Subject,
}

impl Cast<'_> {
    pub(super) fn actor(&self, place: &Place) -> Result<Actor> {
        Actor::start(self.stage, self.subject.name(), place)
    }
}

/// Has a worker carry out `act` while no process has been killed yet.
pub(super) fn unharmed(actor: &mut Actor, act: Act) -> Result<Vec<Seen>> {
    done_unharmed(act, actor.ask(act.plain(), &Patience::alone(UNHARMED))?)
}

/// Converts the reply to a command that had to succeed.
pub(super) fn done_unharmed(act: Act, reply: WorkerReply) -> Result<Vec<Seen>> {
    let order = act.plain();
    match reply {
        WorkerReply::Done(seen) => Ok(seen),
        WorkerReply::Lacking(why) => Err(Trouble::skip(format!("'{order}': {why}"))),
        WorkerReply::Refused(why) | WorkerReply::Faulty(why) => {
            Err(Trouble::fail(format!("'{order}' failed without a kill: {why}")))
        }
    }
}

/// The received messages, or the result of the kill if a worker made no progress.
pub(super) type Received = std::result::Result<Vec<Seen>, Killed>;

/// Converts the reply of a worker that had to make progress: anything else is the result of the
/// kill.
pub(super) fn answer(who: &str, answer: std::result::Result<WorkerReply, Silence>) -> Received {
    match answer {
        Ok(WorkerReply::Done(seen)) => Ok(seen),
        Ok(WorkerReply::Refused(why) | WorkerReply::Lacking(why) | WorkerReply::Faulty(why)) => {
            Err(Killed::wedged(format!("{who} got an error: {why}")))
        }
        Err(silence) => Err(silent(who, &silence)),
    }
}

/// Returns the result of a kill after which a worker that had to make progress did not reply.
pub(super) fn silent(who: &str, silence: &Silence) -> Killed {
    match silence {
        Silence::Stuck(how) => Killed::wedged(format!("{who} made no progress: {how}")),
        Silence::Ended(how) => Killed::wedged(format!("{who} ended unexpectedly: {how}")),
        Silence::Starved(how) => {
            Killed::Unexplored(format!("the machine is too loaded to judge {who} {how}"))
        }
    }
}

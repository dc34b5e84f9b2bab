//! One run of a script: [`Scene`], which [`Attempt`](super::attempt::Attempt) plays without knowing
//! what the actors do; and what all scripts have in common.
//!
//! The *victim* carries the operation out; the others survive. Each answer has a deadline.

use std::time::Duration;

use super::verdict::Killed;
use super::{heap, queue};
use crate::actor::order::{Act, Reply};
use crate::knife::Release;
use crate::message::Seen;
use crate::patience::Patience;
use crate::place::Place;
use crate::stage::{Actor, Silence, Stage};
use crate::subject::{Kind, Operation, Subject};
use crate::trouble::{Result, Trouble};

/// How long the same may take where nobody was killed.
pub(super) const UNHARMED: Duration = Duration::from_secs(5);

/// Who plays, and where.
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

/// A run, at any time between its beginning and its verdict.
#[derive(Debug)]
pub(super) enum Scene {
    Queue(queue::Scene),
    Heap(heap::Scene),
}

impl Scene {
    /// Leads the actors up to the operation; with `pair`, the victim's successor will die, too.
    pub(super) fn set(cast: Cast<'_>, operation: Operation, pair: bool) -> Result<Self> {
        match cast.subject.kind() {
            Kind::Queue(queue) => queue::Scene::set(cast, queue, operation, pair).map(Self::Queue),
            Kind::Heap(heap) => heap::Scene::set(cast, heap, operation).map(Self::Heap),
        }
    }

    /// What the victim does under the knife.
    pub(super) fn act(&self) -> Act {
        match self {
            Self::Queue(scene) => scene.act,
            Self::Heap(scene) => scene.act,
        }
    }

    /// Whether somebody else runs while the victim does.
    pub(super) fn is_concurrent(&self) -> bool {
        match self {
            Self::Queue(scene) => scene.is_concurrent(),
            Self::Heap(_) => false,
        }
    }

    /// Whether nobody else runs while the victim does, and the victim has no other thread.
    pub(super) fn is_quiet(&self) -> bool {
        matches!(self, Self::Heap(_))
    }

    /// Runs `body` with the victim, and with a way to release it where it blocks.
    pub(super) fn with_victim<T>(
        &mut self,
        body: impl FnOnce(&mut Actor, Release<'_>) -> Result<T>,
    ) -> Result<T> {
        match self {
            Self::Queue(scene) => scene.with_victim(body),
            Self::Heap(scene) => scene.with_victim(body),
        }
    }

    /// Kills the victim. `returned` says that the operation had.
    pub(super) fn kill(&mut self, returned: bool) {
        match self {
            Self::Queue(scene) => scene.kill(returned),
            Self::Heap(scene) => scene.kill(returned),
        }
    }

    /// Puts a fresh process in the dead victim's place, which is to do `operation` next and to be
    /// killed in turn. What came of it, where it does not even get there.
    pub(super) fn succeed(
        &mut self,
        cast: Cast<'_>,
        operation: Operation,
    ) -> Result<Option<Killed>> {
        match self {
            Self::Queue(scene) => scene.succeed(cast, operation),
            Self::Heap(scene) => scene.succeed(cast, operation),
        }
    }

    /// Asks the survivors to go on, and judges.
    pub(super) fn judge(self, cast: Cast<'_>) -> Result<Killed> {
        match self {
            Self::Queue(scene) => scene.judge(cast),
            Self::Heap(scene) => scene.judge(cast),
        }
    }
}

/// Has something done where nobody has been killed yet.
pub(super) fn unharmed(actor: &mut Actor, act: Act) -> Result<Vec<Seen>> {
    done_unharmed(act, actor.ask(act.plain(), &Patience::alone(UNHARMED))?)
}

/// What an order led to that had to be carried out.
pub(super) fn done_unharmed(act: Act, reply: Reply) -> Result<Vec<Seen>> {
    let order = act.plain();
    match reply {
        Reply::Done(seen) => Ok(seen),
        Reply::Lacking(why) => Err(Trouble::skip(format!("{order}: {why}"))),
        Reply::Refused(why) | Reply::Faulty(why) => {
            Err(Trouble::fail(format!("{order}, where nobody was killed: {why}")))
        }
    }
}

/// What was received, or what came of one that did not get on.
pub(super) type Received = std::result::Result<Vec<Seen>, Killed>;

/// What one that had to go on answers: that it did, or else what came of the kill.
pub(super) fn answer(who: &str, answer: std::result::Result<Reply, Silence>) -> Received {
    match answer {
        Ok(Reply::Done(seen)) => Ok(seen),
        Ok(Reply::Refused(why) | Reply::Lacking(why) | Reply::Faulty(why)) => {
            Err(Killed::wedged(format!("{who} got an error: {why}")))
        }
        Err(silence) => Err(silent(who, &silence)),
    }
}

/// What came of the kill, where one that had to go on did not answer.
pub(super) fn silent(who: &str, silence: &Silence) -> Killed {
    match silence {
        Silence::Stuck(how) => Killed::wedged(format!("{who} did not get on: {how}")),
        Silence::Ended(how) => Killed::wedged(format!("{who} came to an end of its own: {how}")),
        Silence::Starved(how) => {
            Killed::Unexplored(format!("the machine is too loaded to judge {who} {how}"))
        }
    }
}

//! Runs of one operation, recorded or ended by a kill at one point: [`Attempt`].

use super::cast::{Cast, UNHARMED, done_unharmed};
use super::scene::Scene;
use crate::knife::recording::{Moment, Point, Recording};
use crate::knife::{Detail, Pace, Reached, Victim};
use crate::patience::Patience;
use crate::subject::Operation;
use crate::verdict::Killed;
use tontine_host::trouble::{Result, Trouble};

/// An operation of a target, which can be run as often as needed.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) cast: Cast<'a>,
    pub(super) operation: Operation,
    /// Approach to a point.
    pub(super) pace: Pace,
    /// Approach to a point of the successor.
    pub(super) then: Pace,
}

/// Number of processes that die: the victim, or its successor too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Single,
    Pair,
}

impl<'a> Attempt<'a> {
    /// Creates an attempt that goes straight to its points.
    pub(super) fn new(cast: Cast<'a>, operation: Operation) -> Self {
        Self { cast, operation, pace: Pace::Straight, then: Pace::Straight }
    }

    /// Records the operation and checks that it succeeds without a kill. An operation that is too
    /// long to be stepped through is recorded by its system calls.
    pub(super) fn record(self, kind: Kind) -> Result<Recording> {
        for detail in [Detail::Steps, Detail::Calls] {
            let mut scene = self.scene(kind)?;
            let (act, quiet) = (scene.act(), scene.is_quiet());
            let recording = scene.with_victim(|victim, release| {
                let mut knife = Victim::seize(victim, act.marked())?;
                let recording =
                    knife.record(detail, quiet, self.cast.subject.longest(), release)?;
                if recording.is_some() {
                    knife.finish()?;
                    done_unharmed(act, victim.reply(&Patience::alone(UNHARMED))?)?;
                }
                Ok(recording)
            })?;
            if let Some(recording) = recording {
                return Ok(recording);
            }
        }
        Err(Trouble::fail("the operation makes too many system calls"))
    }

    /// Kills a fresh victim at a point and judges the outcome.
    pub(super) fn kill(self, point: &Point) -> Result<Killed> {
        let mut scene = self.scene(Kind::Single)?;
        if let Reached::Diverged(why) = self.end(&mut scene, point)? {
            return Ok(Killed::Unexplored(why));
        }
        scene.judge(self.cast)
    }

    /// Kills a fresh victim at a point and records its successor's first operation. If the
    /// successor does not start that operation, returns the verdict.
    pub(super) fn record_successor(
        self,
        first: &Point,
        operation: Operation,
    ) -> Result<std::result::Result<Recording, Killed>> {
        let mut why = Trouble::fail("the operation makes too many system calls");
        for detail in [Detail::Steps, Detail::Calls] {
            let mut scene = self.scene(Kind::Pair)?;
            if let Reached::Diverged(why) = self.end(&mut scene, first)? {
                return Ok(Err(Killed::Unexplored(why)));
            }
            if let Some(killed) = scene.succeed(self.cast, operation)? {
                return Ok(Err(killed));
            }
            let (act, quiet) = (scene.act(), scene.is_quiet());
            let recorded = scene.with_victim(|victim, release| {
                let longest = self.cast.subject.longest();
                Victim::seize(victim, act.marked())?.record(detail, quiet, longest, release)
            });
            match recorded {
                Ok(Some(recording)) => return Ok(Ok(recording)),
                Ok(None) => {}
                Err(trouble) => {
                    why = trouble;
                    break;
                }
            }
        }
        let text = format!("the successor, during {}: {why}", operation.name());
        Ok(Err(Killed::wedged(text)))
    }

    /// Kills a fresh victim at a point and its successor at another, and judges the outcome.
    pub(super) fn kill_both(
        self,
        first: &Point,
        operation: Operation,
        second: &Point,
    ) -> Result<Killed> {
        let mut scene = self.scene(Kind::Pair)?;
        if let Reached::Diverged(why) = self.end(&mut scene, first)? {
            return Ok(Killed::Unexplored(why));
        }
        if let Some(killed) = scene.succeed(self.cast, operation)? {
            return Ok(killed);
        }
        let successors = Self { pace: self.then, ..self };
        if let Reached::Diverged(why) = successors.end(&mut scene, second)? {
            return Ok(Killed::Unexplored(why));
        }
        scene.judge(self.cast)
    }

    fn scene(self, kind: Kind) -> Result<Scene> {
        Scene::set(self.cast, self.operation, kind == Kind::Pair)
    }

    /// Brings the trial's victim to a point and kills it there.
    fn end(self, scene: &mut Scene, point: &Point) -> Result<Reached> {
        let act = scene.act();
        // A process that runs meanwhile must have as much time for it as in the recording.
        let pace = if scene.is_concurrent() { Pace::Stepped } else { self.pace };
        let reached = scene.with_victim(|victim, release| {
            Victim::seize(victim, act.marked())?.reach(point, pace, release)
        })?;
        let returned = point.moment == Moment::Returned;
        scene.kill(returned);
        Ok(reached)
    }
}

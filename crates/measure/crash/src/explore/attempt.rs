//! Runs of one operation, either recorded or ended by a kill at one point: [`Attempt`].

use super::heap::HeapTrial;
use super::queue::QueueTrial;
use super::scene::KillTrial;
use super::trial_config::{TrialConfig, UNHARMED, done_unharmed};
use crate::fair_timeout::FairTimeout;
use crate::subject::{Operation, TargetKind};
use crate::tracer::recording::{RecordedPoint, Recording, StopKind};
use crate::tracer::{Approach, Granularity, ReachResult, TracedVictim};
use crate::verdict::TrialResult;
use tontine_bench::error::{MeasureError, Result};

/// An operation of a target, which can be run any number of times.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) config: TrialConfig<'a>,
    pub(super) operation: Operation,
    /// Approach to a point.
    pub(super) pace: Approach,
    /// Approach to a point of the successor.
    pub(super) then: Approach,
}

/// Number of processes that die: only the victim, or its successor too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeathCount {
    Single,
    Pair,
}

impl<'a> Attempt<'a> {
    /// Creates an attempt whose processes run straight to their points.
    pub(super) fn new(config: TrialConfig<'a>, operation: Operation) -> Self {
        Self { config, operation, pace: Approach::Straight, then: Approach::Straight }
    }

    /// Records the operation and checks that it succeeds without a kill. If the operation is too
    /// long to be stepped through, records only its system calls.
    pub(super) fn record(self, kind: DeathCount) -> Result<Recording> {
        for detail in [Granularity::Steps, Granularity::Calls] {
            let mut scene = self.scene(kind)?;
            let (act, quiet) = (scene.act(), scene.is_quiet());
            let (victim, mut release) = scene.victim();
            let mut traced = TracedVictim::seize(victim, act.marked())?;
            let longest = self.config.subject.longest();
            if let Some(recording) = traced.record(detail, quiet, longest, &mut release)? {
                traced.finish()?;
                done_unharmed(act, victim.reply(&FairTimeout::alone(UNHARMED))?)?;
                return Ok(recording);
            }
        }
        Err(MeasureError::fail("the operation makes too many system calls"))
    }

    /// Kills a fresh victim at a point and judges the outcome.
    pub(super) fn kill(self, point: &RecordedPoint) -> Result<TrialResult> {
        let mut scene = self.scene(DeathCount::Single)?;
        if let ReachResult::Diverged(why) = self.end(&mut *scene, point)? {
            return Ok(TrialResult::Unexplored(why));
        }
        scene.judge(self.config)
    }

    /// Kills a fresh victim at a point and records its successor's first operation. If the
    /// successor does not start that operation, returns the verdict.
    pub(super) fn record_successor(
        self,
        first: &RecordedPoint,
        operation: Operation,
    ) -> Result<std::result::Result<Recording, TrialResult>> {
        let mut why = MeasureError::fail("the operation makes too many system calls");
        for detail in [Granularity::Steps, Granularity::Calls] {
            let mut scene = self.scene(DeathCount::Pair)?;
            if let ReachResult::Diverged(why) = self.end(&mut *scene, first)? {
                return Ok(Err(TrialResult::Unexplored(why)));
            }
            if let Some(killed) = scene.succeed(self.config, operation)? {
                return Ok(Err(killed));
            }
            let (act, quiet) = (scene.act(), scene.is_quiet());
            let (victim, mut release) = scene.victim();
            let longest = self.config.subject.longest();
            let recorded = TracedVictim::seize(victim, act.marked())
                .and_then(|mut traced| traced.record(detail, quiet, longest, &mut release));
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
        Ok(Err(TrialResult::wedged(text)))
    }

    /// Kills a fresh victim at a point and its successor at another, and judges the outcome.
    pub(super) fn kill_both(
        self,
        first: &RecordedPoint,
        operation: Operation,
        second: &RecordedPoint,
    ) -> Result<TrialResult> {
        let mut scene = self.scene(DeathCount::Pair)?;
        if let ReachResult::Diverged(why) = self.end(&mut *scene, first)? {
            return Ok(TrialResult::Unexplored(why));
        }
        if let Some(killed) = scene.succeed(self.config, operation)? {
            return Ok(killed);
        }
        let successors = Self { pace: self.then, ..self };
        if let ReachResult::Diverged(why) = successors.end(&mut *scene, second)? {
            return Ok(TrialResult::Unexplored(why));
        }
        scene.judge(self.config)
    }

    fn scene(self, kind: DeathCount) -> Result<Box<dyn KillTrial>> {
        let Self { config, operation, .. } = self;
        let pair = kind == DeathCount::Pair;
        Ok(match config.subject.kind() {
            TargetKind::Queue(_) => Box::new(QueueTrial::set(config, operation, pair)?),
            TargetKind::Heap(heap) => Box::new(HeapTrial::set(config, heap, operation)?),
        })
    }

    /// Brings the trial's victim to a point and kills it there.
    fn end(self, scene: &mut dyn KillTrial, point: &RecordedPoint) -> Result<ReachResult> {
        let act = scene.act();
        // A concurrent process must be given as much time as in the recording.
        let pace = if scene.is_concurrent() { Approach::Stepped } else { self.pace };
        let (victim, mut release) = scene.victim();
        let reached =
            TracedVictim::seize(victim, act.marked())?.reach(point, pace, &mut release)?;
        drop(release);
        let returned = point.moment == StopKind::Returned;
        scene.kill(returned);
        Ok(reached)
    }
}

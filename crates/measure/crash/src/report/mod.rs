//! The result of a run: [`CrashReport`]. It is written as JSON by serde, as a table by [`text`], as
//! a page by [`markdown`]; [`plan`] renders the run of a sample as an estimate of the whole run.

pub mod markdown;
pub mod plan;
pub mod text;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mode::KillMode;
use crate::subject::{CrashTarget, Operation, Role};
pub use crate::tracer::recording::StopKind;
use crate::verdict::KillVerdict;

pub const SCHEMA: u32 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashReport {
    pub schema: u32,
    /// Selection of points.
    pub mode: KillMode,
    /// `false` if the run ended early.
    pub complete: bool,
    pub subjects: Vec<SubjectReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectReport {
    pub name: String,
    pub summary: String,
    /// Caveat: a promise that the target never made.
    pub caveat: String,
    /// Meaning of a failure of this target.
    pub role: Role,
    /// The reason why nothing was explored: `skipped: …` or `failed: …`.
    pub trouble: Option<String>,
    pub operations: Vec<OperationReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    pub operation: Operation,
    /// Selection of points.
    pub mode: KillMode,
    /// Number of kills that the mode requires; in pairs, of first kills.
    pub kills: usize,
    /// Number of these kills that were requested; smaller than `kills` for a sample.
    pub tried: usize,
    /// Duration of these kills, without the recording.
    pub took_ms: u64,
    /// Points at which the process can be killed; in pairs, the points of the successor over all
    /// first kills.
    pub points: usize,
    /// `true` if every instruction is a point; `false` if the operation is too long for that and
    /// only its system calls are points.
    pub stepped: bool,
    /// Number of classes of points that look the same from outside.
    pub classes: usize,
    /// Kills that occurred at their point.
    pub explored: usize,
    /// Kills after which all other processes made progress.
    pub passed: usize,
    /// Kills after which a process made no progress.
    pub wedged: usize,
    /// Kills that left half a message.
    pub torn: usize,
    /// Kills that lost or duplicated an acknowledged message.
    pub lost: usize,
    /// Points at which no run reached a verdict: each run diverged from the recording, or the
    /// machine was too loaded for a judgement.
    pub not_explored: usize,
    /// Location and reason of the first of these points.
    pub diverged: Option<String>,
    /// Every kill that did not pass.
    pub findings: Vec<Finding>,
    /// The reason why the operation was not explored, or not completely.
    pub trouble: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub verdict: KillVerdict,
    pub point: usize,
    /// Class of the point; in pairs, of the successor's point.
    pub class: u32,
    /// Number of points that this kill represents: all points of its class, or only its own.
    pub stands_for: usize,
    /// In pairs, the number of the successor's point.
    pub then: Option<usize>,
    /// Activity of the process at that point.
    pub moment: StopKind,
    /// Next instruction: object and offset.
    pub code: String,
    /// Number of system calls made before the point.
    pub calls: u32,
    /// Observation that led to the verdict.
    pub detail: String,
    /// Command line that repeats this kill.
    pub reproducer: String,
}

impl CrashReport {
    pub(crate) fn new(mode: KillMode) -> Self {
        Self { schema: SCHEMA, mode, complete: true, subjects: Vec::new() }
    }

    /// Returns `true` if one of Tontine's own targets wedged, tore or lost something, or could not
    /// be explored.
    pub fn is_bad(&self) -> bool {
        let own = self.subjects.iter().filter(|subject| subject.role == Role::Own);
        own.flat_map(|subject| &subject.operations)
            .any(|one| one.explored > one.passed || one.has_failed())
    }

    /// Returns `true` if something could not be explored although the machine allows it.
    pub fn has_failed(&self) -> bool {
        self.subjects
            .iter()
            .flat_map(|subject| &subject.operations)
            .any(OperationReport::has_failed)
    }
}

impl SubjectReport {
    pub(crate) fn of(subject: &dyn CrashTarget) -> Self {
        Self {
            name: subject.name().into(),
            summary: subject.facts().summary.into(),
            caveat: subject.facts().caveat.into(),
            role: subject.role(),
            trouble: None,
            operations: Vec::new(),
        }
    }
}

impl OperationReport {
    pub(crate) fn of(operation: Operation, mode: KillMode) -> Self {
        Self {
            operation,
            mode,
            kills: 0,
            tried: 0,
            took_ms: 0,
            points: 0,
            stepped: true,
            classes: 0,
            explored: 0,
            passed: 0,
            wedged: 0,
            torn: 0,
            lost: 0,
            not_explored: 0,
            diverged: None,
            findings: Vec::new(),
            trouble: None,
        }
    }

    fn has_failed(&self) -> bool {
        self.trouble.as_ref().is_some_and(|why| why.starts_with("failed"))
    }

    /// Estimates the time of all kills that the mode requires from the kills that were tried.
    pub fn estimate(&self) -> Duration {
        let took = Duration::from_millis(self.took_ms);
        took.mul_f64(self.kills as f64 / self.tried.max(1) as f64)
    }

    /// Returns the number of points at which a kill led to this verdict, or would have led to it
    /// because they belong to the same class.
    pub fn points_of(&self, verdict: KillVerdict) -> usize {
        let of_it = self.findings.iter().filter(|finding| finding.verdict == verdict);
        of_it.map(|finding| finding.stands_for).sum()
    }

    /// Returns the first finding of each verdict.
    pub fn examples(&self) -> impl Iterator<Item = &Finding> {
        let verdicts = [KillVerdict::Wedged, KillVerdict::Torn, KillVerdict::Lost];
        verdicts
            .into_iter()
            .filter_map(|verdict| self.findings.iter().find(|finding| finding.verdict == verdict))
    }
}

//! The result of a run: [`CrashReport`], as JSON by serde, as a table by [`text`], as a page by
//! [`markdown`].
//! [`plan`] draws a run over a sample as an announcement of what all of it takes.

pub mod markdown;
pub mod plan;
pub mod text;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::knife::recording::Moment;
use crate::mode::Mode;
use crate::subject::{Operation, Role, Subject};
use crate::verdict::KillVerdict;

/// Version of the JSON.
pub const SCHEMA: u32 = 2;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashReport {
    /// Version of this structure.
    pub schema: u32,
    /// Which points were killed at.
    pub mode: Mode,
    /// False where the run was ended early.
    pub complete: bool,
    /// One each.
    pub subjects: Vec<SubjectReport>,
}

/// What became of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectReport {
    /// Its name.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// What it never promised.
    pub caveat: String,
    /// What its failure means.
    pub role: Role,
    /// Why nothing was explored: `skipped: …` or `failed: …`.
    pub trouble: Option<String>,
    /// One each.
    pub operations: Vec<OperationReport>,
}

/// What became of one operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Which.
    pub operation: Operation,
    /// Which points were killed at.
    pub mode: Mode,
    /// Kills, or in pairs first kills, that the mode asks for.
    pub kills: usize,
    /// Of these, the ones that were to be tried: fewer where only a sample was wanted.
    pub tried: usize,
    /// How long these took, the recording left out.
    pub took_ms: u64,
    /// Places at which its process can be killed; in pairs, the successor's, over all first kills.
    pub points: usize,
    /// Whether every instruction is a point; otherwise the operation is too long for that, and only
    /// its system calls are.
    pub stepped: bool,
    /// Classes of points that look the same from outside.
    pub classes: usize,
    /// Kills that took place where they were meant to.
    pub explored: usize,
    /// Kills after which everybody went on.
    pub passed: usize,
    /// Kills after which somebody did not.
    pub wedged: usize,
    /// Kills that left half a message.
    pub torn: usize,
    /// Kills that cost an acknowledged message, or doubled one.
    pub lost: usize,
    /// Points at which no run came to a verdict: each went another way than the recording, or the
    /// machine was too loaded to judge it.
    pub not_explored: usize,
    /// Where the first of these was, and why.
    pub diverged: Option<String>,
    /// Every kill that was not passed.
    pub findings: Vec<Finding>,
    /// Why it was not explored, or not to its end.
    pub trouble: Option<String>,
}

/// A kill that was not passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it led to.
    pub verdict: KillVerdict,
    /// Its number in the recording.
    pub point: usize,
    /// Its class, or in pairs that of the successor's point.
    pub class: u32,
    /// Points that this kill stands for: those of its class, or itself alone.
    pub stands_for: usize,
    /// In pairs, the successor's.
    pub then: Option<usize>,
    /// What the process was doing.
    pub moment: Moment,
    /// Which instruction came next: object and offset.
    pub code: String,
    /// System calls that it had made.
    pub calls: u32,
    /// What was seen.
    pub detail: String,
    /// The command that repeats exactly this kill.
    pub reproducer: String,
}

impl CrashReport {
    pub(crate) fn new(mode: Mode) -> Self {
        Self { schema: SCHEMA, mode, complete: true, subjects: Vec::new() }
    }

    /// Whether Tontine's own did what it must not: wedge, tear, lose, or stay unexplored.
    pub fn is_bad(&self) -> bool {
        let own = self.subjects.iter().filter(|subject| subject.role == Role::Own);
        own.flat_map(|subject| &subject.operations)
            .any(|one| one.explored > one.passed || one.has_failed())
    }

    /// Whether something could not be explored that the machine does allow.
    pub fn has_failed(&self) -> bool {
        self.subjects
            .iter()
            .flat_map(|subject| &subject.operations)
            .any(OperationReport::has_failed)
    }
}

impl SubjectReport {
    pub(crate) fn of(subject: &dyn Subject) -> Self {
        Self {
            name: subject.name().into(),
            summary: subject.summary().into(),
            caveat: subject.caveat().into(),
            role: subject.role(),
            trouble: None,
            operations: Vec::new(),
        }
    }
}

impl OperationReport {
    pub(crate) fn of(operation: Operation, mode: Mode) -> Self {
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

    /// How long all kills take that the mode asks for, going by those that were tried.
    pub fn estimate(&self) -> Duration {
        let took = Duration::from_millis(self.took_ms);
        took.mul_f64(self.kills as f64 / self.tried.max(1) as f64)
    }

    /// Points at which a kill led to this verdict, or would have: those of the same classes.
    pub fn points_of(&self, verdict: KillVerdict) -> usize {
        let of_it = self.findings.iter().filter(|finding| finding.verdict == verdict);
        of_it.map(|finding| finding.stands_for).sum()
    }

    /// The first finding of each verdict.
    pub fn examples(&self) -> impl Iterator<Item = &Finding> {
        let verdicts = [KillVerdict::Wedged, KillVerdict::Torn, KillVerdict::Lost];
        verdicts
            .into_iter()
            .filter_map(|verdict| self.findings.iter().find(|finding| finding.verdict == verdict))
    }
}

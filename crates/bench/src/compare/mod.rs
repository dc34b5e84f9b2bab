//! Two runs, row by row: [`Comparison`].
//!
//! [`read()`](read::read) gets two files. [`screen()`](screen::screen) matches their rows and flags
//! those that may differ: permissively, because the two runs were made at different times.
//! [`again::measure`] measures the flagged rows once more with both programs, in pairs, and what
//! it finds decides. [`Comparison::judge`] draws the conclusions, [`report`] says them.
//!
//! [`direction`] knows which way is worse, [`machines`] whether the two runs were made in the same
//! place. The formulas are in [`crate::stats`], and docs/compare.md has them for users.

pub mod again;
pub mod direction;
pub mod judge;
pub mod machines;
pub mod programs;
pub mod read;
pub mod report;
pub mod screen;
pub mod tasks;

use serde::{Deserialize, Serialize};

use crate::executable::Executable;
use crate::size::Size;
use crate::task::{self, Params};
use direction::Direction;
use machines::Difference;

/// Version of the shape of a comparison's JSON.
pub const SCHEMA: u32 = 1;

/// Two runs compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub comparison: u32,
    /// The run before.
    pub base: ComparedRun,
    /// The run after.
    pub new: ComparedRun,
    /// Facts of the machine that differ; where there are any, the two runs are those of two
    /// machines.
    pub machines: Vec<Difference>,
    /// Facts of the builds that differ.
    pub builds: Vec<Difference>,
    /// What has to be said before any row.
    pub warnings: Vec<String>,
    /// By how much a figure must be worse to count as a regression, in per cent; of shares in
    /// percentage points.
    pub threshold_percent: f64,
    /// Whether flagged rows were measured again.
    pub again: SecondStage,
    /// False where that was interrupted.
    pub complete: bool,
    /// Rows that are worse by more than the threshold or that B fails to measure: the reason for
    /// exit status 1.
    pub regressions: usize,
    /// The rows that both runs have.
    pub rows: Vec<Row>,
    /// Rows that only one run has, and rows that cannot be compared.
    pub not_compared: Vec<NotCompared>,
    /// Events to which a mechanism gave another answer.
    pub answers: Vec<EventAnswer>,
}

/// One of the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// Its file.
    pub path: String,
    /// When it began.
    pub started: String,
    /// Its size.
    pub size: Size,
    /// Whether it ran to its end.
    pub complete: bool,
    /// The machine in a line.
    pub machine: String,
    /// The program that made it.
    pub executable: Option<Executable>,
}

/// The second stage, if it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum SecondStage {
    /// No row was flagged.
    NotNeeded,
    /// It was not made.
    NotMade {
        /// Why, and what to do.
        why: String,
    },
    /// It was made.
    Made {
        /// The base's program.
        base: String,
        /// The new run's.
        new: String,
        /// Seed of its random order.
        order_seed: u64,
    },
}

/// The scale on which two figures are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeScale {
    /// By the quotient new / base, in logarithms: no change is 1.
    Quotient,
    /// By new − base, in the row's unit: no change is 0. For shares, and for figures that are not
    /// all positive.
    Difference,
}

impl ChangeScale {
    /// A figure on the scale on which differences are taken.
    pub(crate) fn place(self, figure: f64) -> f64 {
        match self {
            Self::Quotient => figure.ln(),
            Self::Difference => figure,
        }
    }

    /// A difference on that scale as the change that it stands for.
    pub(crate) fn change(self, difference: f64) -> f64 {
        match self {
            Self::Quotient => difference.exp(),
            Self::Difference => difference,
        }
    }

    /// A distance on that scale as an amount: a share of the base, or in the unit.
    pub(crate) fn amount(self, distance: f64) -> f64 {
        match self {
            Self::Quotient => distance.exp() - 1.0,
            Self::Difference => distance,
        }
    }

    /// The change that is none.
    pub fn none(self) -> f64 {
        match self {
            Self::Quotient => 1.0,
            Self::Difference => 0.0,
        }
    }
}

/// A change with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// New / base, or new − base.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What the interval was asked for: 0.95, or corrected for several rows.
    pub confidence: f64,
}

impl Change {
    /// Whether the interval leaves out "no change".
    pub fn resolves(&self, scale: ChangeScale) -> bool {
        self.low > scale.none() || self.high < scale.none()
    }
}

/// What the two files show of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Screen {
    /// `mann-whitney`, or for two machines `bootstrap`.
    pub method: String,
    /// The change; `null` where there are too few invocations for an interval.
    pub change: Option<Change>,
    /// How often two equal rows are at least so far apart.
    pub p: f64,
    /// The same, corrected for the number of rows (Benjamini and Hochberg).
    pub p_corrected: f64,
    /// The smallest difference that it could have flagged: a share of the base (0.03: 3 %), or in
    /// the unit.
    pub smallest: Option<f64>,
    /// The smallest that it could have resolved alone, corrected for the number of rows; `null`
    /// where so few invocations can resolve nothing among so many rows.
    #[serde(default)]
    pub smallest_alone: Option<f64>,
    /// Whether the row is one to measure again.
    pub flagged: bool,
}

/// What the second stage showed of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The change, corrected for the number of flagged rows.
    pub change: Change,
    /// How many pairs.
    pub pairs: usize,
    /// The smallest difference that it could have resolved: a share of the base, or in the unit;
    /// `null` where it was interrupted too early to say.
    pub smallest: Option<f64>,
}

/// The conclusion of a comparison about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowVerdict {
    /// Resolved, and worse.
    Worse,
    /// Resolved, and better.
    Better,
    /// Resolved; neither is better.
    Changed,
    /// No difference resolved: not "the same".
    NoneResolved,
    /// The screen flagged it; measured again, no difference was resolved.
    NotConfirmed,
    /// The screen flagged it, it was not measured again, and for the number of rows the screen
    /// alone does not suffice.
    Unsettled,
    /// Too few invocations to say anything.
    TooFew,
    /// Measured again, B's program failed in every try and A's in none.
    Failed,
}

/// A row that both runs have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the variant.
    pub variant: String,
    /// Parameters.
    pub params: Params,
    /// What was measured.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which way is worse.
    pub worse: Direction,
    /// How the figures are compared.
    pub scale: ChangeScale,
    /// Median over the base's invocations.
    pub base: f64,
    /// Median over the new run's invocations.
    pub new: f64,
    /// Invocations of both.
    pub invocations: (usize, usize),
    /// The first stage.
    pub screen: Screen,
    /// The second stage, where the row was flagged and measured again.
    pub again: Option<Settled>,
    /// Measured again, B's program failed in every try and A's in none.
    #[serde(default)]
    pub fails: bool,
    /// The smallest difference that whatever decided could have resolved; `null` where there is
    /// none.
    #[serde(default)]
    pub smallest: Option<f64>,
    /// The conclusion.
    pub verdict: RowVerdict,
    /// Whether it is worse by more than the threshold, all of the interval, or fails.
    pub regression: bool,
    /// What has to be said beside it.
    pub notes: Vec<String>,
}

impl Row {
    /// The row's name: `round-trip/futex cross-core hot one_way`.
    pub fn name(&self) -> String {
        named(&self.experiment, &self.variant, &self.params, &self.metric)
    }

    /// The change that counts: the second stage's where there is one.
    pub fn change(&self) -> Option<Change> {
        self.again.as_ref().map(|again| again.change).or(self.screen.change)
    }
}

/// A row that is in one run only, or not comparable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// Its name.
    pub name: String,
    /// Why not.
    pub why: String,
    /// Whether A measured it and B failed to.
    #[serde(default)]
    pub regression: bool,
}

/// An event to which a mechanism gave different answers in the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventAnswer {
    /// Whose answer it is.
    pub mechanism: String,
    /// What was brought about.
    pub event: String,
    /// What an ideal mechanism would say.
    pub truth: String,
    /// What it said.
    pub base: String,
    /// What it says now.
    pub new: String,
}

pub(crate) fn named(experiment: &str, variant: &str, params: &Params, metric: &str) -> String {
    let mut name = format!("{experiment}/{variant}");
    for word in task::short(params).chain([metric.to_owned()]) {
        if !word.is_empty() {
            name = format!("{name} {word}");
        }
    }
    name
}

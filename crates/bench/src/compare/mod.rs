//! Comparison of two runs, row by row: [`Comparison`].
//!
//! [`read()`](read::read) reads two files. [`screen()`](screen::screen) matches their rows and
//! flags those that may differ. It is permissive, because the two runs were made at different
//! times. [`again::measure`] measures the flagged rows again with both programs, in pairs, and its
//! result decides. [`Comparison::judge`] draws the conclusions, and [`report`] and [`junit`]
//! print them.
//!
//! [`direction`] decides which direction is worse, and [`machines`] whether the two runs were made
//! on the same machine. The formulas are in [`crate::stats`], and docs/reference/compare.md
//! explains them to users.

pub mod again;
pub mod arm;
pub mod direction;
pub mod judge;
pub mod junit;
pub mod listener;
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

/// Version of the structure of a comparison's JSON.
pub const SCHEMA: u32 = 1;

/// A comparison of two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The version of the structure, [`SCHEMA`].
    pub comparison: u32,
    /// The earlier run.
    pub base: ComparedRun,
    /// The later run.
    pub new: ComparedRun,
    /// Facts of the machine that differ. If there are any, the runs count as made on two machines.
    pub machines: Vec<Difference>,
    /// Facts of the builds that differ.
    pub builds: Vec<Difference>,
    /// Remarks on the comparison as a whole.
    pub warnings: Vec<String>,
    /// Threshold above which a worse figure counts as a regression, in per cent; for shares, in
    /// percentage points.
    pub threshold_percent: f64,
    /// State of the second stage.
    pub again: SecondStage,
    /// `false` if the second stage was interrupted.
    pub complete: bool,
    /// Number of rows that are worse by more than the threshold or that B failed to measure. If it
    /// is not 0, the exit status is 1.
    pub regressions: usize,
    /// The rows that both runs have.
    pub rows: Vec<ComparedRow>,
    /// Rows that only one run contains, and rows that cannot be compared.
    pub not_compared: Vec<NotCompared>,
    /// Events for which a mechanism gave different answers.
    pub answers: Vec<EventAnswer>,
}

/// One of the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// File of the run.
    pub path: String,
    /// Start of the run.
    pub started: String,
    /// Size of the run.
    pub size: Size,
    /// `true` if the run was not interrupted.
    pub complete: bool,
    /// The machine in one line.
    pub machine: String,
    /// The program that made the run.
    pub executable: Option<Executable>,
}

/// The second stage, if it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum SecondStage {
    /// No row was flagged.
    NotNeeded,
    /// The second stage was not made.
    NotMade {
        /// The reason, and advice.
        why: String,
    },
    /// The second stage was made.
    Made {
        /// The base's program.
        base: String,
        /// The new run's program.
        new: String,
        /// Seed of the random order.
        order_seed: u64,
    },
}

/// The scale on which two figures are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeScale {
    /// The quotient new / base, in logarithms; no change is 1.
    Quotient,
    /// The difference new − base, in the row's unit; no change is 0. Used for shares, and for
    /// figures that are not all positive.
    Difference,
}

impl ChangeScale {
    /// Converts a figure to the scale on which differences are taken.
    pub(crate) fn place(self, figure: f64) -> f64 {
        match self {
            Self::Quotient => figure.ln(),
            Self::Difference => figure,
        }
    }

    /// Converts a difference on that scale to a change.
    pub(crate) fn change(self, difference: f64) -> f64 {
        match self {
            Self::Quotient => difference.exp(),
            Self::Difference => difference,
        }
    }

    /// Converts a distance on that scale to an amount: a share of the base, or a value in the row's
    /// unit.
    pub(crate) fn amount(self, distance: f64) -> f64 {
        match self {
            Self::Quotient => distance.exp() - 1.0,
            Self::Difference => distance,
        }
    }

    /// Returns the value that means "no change".
    pub fn none(self) -> f64 {
        match self {
            Self::Quotient => 1.0,
            Self::Difference => 0.0,
        }
    }
}

/// A change and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// New / base, or new − base.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Requested confidence of the interval: 0.95, or a value corrected for several rows.
    pub confidence: f64,
}

impl Change {
    /// Returns `true` if the interval excludes "no change".
    pub fn resolves(&self, scale: ChangeScale) -> bool {
        self.low > scale.none() || self.high < scale.none()
    }
}

/// Result of the first stage for a row, from the two files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Screen {
    /// `mann-whitney`, or `bootstrap` for two machines.
    pub method: String,
    /// The change; `null` if there are too few invocations for an interval.
    pub change: Option<Change>,
    /// Probability that two equal rows differ at least this much.
    pub p: f64,
    /// Like `p`, but corrected for the number of rows (Benjamini and Hochberg).
    pub p_corrected: f64,
    /// The smallest difference that the screen could have flagged: a share of the base (0.03 is 3
    /// %), or a value in the row's unit.
    pub smallest: Option<f64>,
    /// The smallest difference that the screen could have resolved alone, corrected for the number
    /// of rows; `null` if the invocations are too few to resolve any difference among that many
    /// rows.
    #[serde(default)]
    pub smallest_alone: Option<f64>,
    /// `true` if the row should be measured again.
    pub flagged: bool,
}

/// Result of the second stage for a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// The change, corrected for the number of flagged rows.
    pub change: Change,
    /// Number of pairs.
    pub pairs: usize,
    /// The smallest difference that the second stage could have resolved: a share of the base, or a
    /// value in the row's unit; `null` if the stage was interrupted too early to compute it.
    pub smallest: Option<f64>,
}

/// The conclusion of a comparison about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowVerdict {
    /// A difference was resolved, and the row is worse.
    Worse,
    /// A difference was resolved, and the row is better.
    Better,
    /// A difference was resolved; neither side is better.
    Changed,
    /// No difference was resolved, which does not mean "the same".
    NoneResolved,
    /// The screen flagged the row, but the second measurement resolved no difference.
    NotConfirmed,
    /// The screen flagged the row, it was not measured again, and the screen alone is insufficient
    /// for the number of rows.
    Unsettled,
    /// There are too few invocations for a conclusion.
    TooFew,
    /// In the second measurement, B's program failed in every attempt and A's in none.
    Failed,
}

/// A row that both runs contain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedRow {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the variant.
    pub variant: String,
    /// Parameters.
    pub params: Params,
    /// Name of the metric.
    pub metric: String,
    /// Unit of the figures.
    pub unit: String,
    /// Direction in which the figure gets worse.
    pub worse: Direction,
    /// Scale on which the figures are compared.
    pub scale: ChangeScale,
    /// Median over the base's invocations.
    pub base: f64,
    /// Median over the new run's invocations.
    pub new: f64,
    /// Number of invocations of both runs.
    pub invocations: (usize, usize),
    /// The first stage.
    pub screen: Screen,
    /// The second stage, if the row was flagged and measured again.
    pub again: Option<Settled>,
    /// `true` if, in the second measurement, B's program failed in every attempt and A's in none.
    #[serde(default)]
    pub fails: bool,
    /// The smallest difference that the deciding stage could have resolved; `null` if there is
    /// none.
    #[serde(default)]
    pub smallest: Option<f64>,
    /// The conclusion.
    pub verdict: RowVerdict,
    /// `true` if the whole interval is worse by more than the threshold, or if the row fails.
    pub regression: bool,
    /// Remarks on the row.
    pub notes: Vec<String>,
}

impl ComparedRow {
    /// Returns the row's name, such as `round-trip/futex cross-core hot one_way`.
    pub fn name(&self) -> String {
        named(&self.experiment, &self.variant, &self.params, &self.metric)
    }

    /// Returns the change that decides: that of the second stage, if there was one.
    pub fn change(&self) -> Option<Change> {
        self.again.as_ref().map(|again| again.change).or(self.screen.change)
    }
}

/// A row that only one run contains, or that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// Name of the row.
    pub name: String,
    /// The reason.
    pub why: String,
    /// `true` if A measured the row and B failed to.
    #[serde(default)]
    pub regression: bool,
}

/// An event to which a mechanism gave different answers in the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventAnswer {
    /// Mechanism that gave the answer.
    pub mechanism: String,
    /// The event that was caused.
    pub event: String,
    /// Answer of an ideal mechanism.
    pub truth: String,
    /// Answer in the base.
    pub base: String,
    /// Answer in the new run.
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

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
mod names;
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The version of the structure, [`SCHEMA`].
    pub comparison: u32,
    pub base: ComparedRun,
    pub new: ComparedRun,
    /// Facts of the machine that differ. If there are any, the runs count as made on two machines.
    pub machines: Vec<Difference>,
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
    pub rows: Vec<ComparedRow>,
    /// Rows that only one run contains, and rows that cannot be compared.
    pub not_compared: Vec<NotCompared>,
    /// Events for which a mechanism gave different answers.
    pub answers: Vec<EventAnswer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedRun {
    pub path: String,
    pub started: String,
    pub size: Size,
    pub complete: bool,
    pub machine: String,
    /// The program that made the run.
    pub executable: Option<Executable>,
}

/// The second stage, if it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum SecondStage {
    NotNeeded,
    NotMade {
        /// The reason, and advice.
        why: String,
    },
    Made {
        base: String,
        new: String,
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

    pub fn none(self) -> f64 {
        match self {
            Self::Quotient => 1.0,
            Self::Difference => 0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// New / base, or new − base.
    pub estimate: f64,
    pub low: f64,
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
    pub change: Change,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparedRow {
    pub experiment: String,
    pub variant: String,
    pub params: Params,
    pub metric: String,
    pub unit: String,
    pub worse: Direction,
    pub scale: ChangeScale,
    pub base: f64,
    pub new: f64,
    pub invocations: (usize, usize),
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
    pub verdict: RowVerdict,
    /// `true` if the whole interval is worse by more than the threshold, or if the row fails.
    pub regression: bool,
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
    pub name: String,
    pub why: String,
    /// `true` if A measured the row and B failed to.
    #[serde(default)]
    pub regression: bool,
}

/// An event to which a mechanism gave different answers in the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventAnswer {
    pub mechanism: String,
    pub event: String,
    pub truth: String,
    pub base: String,
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

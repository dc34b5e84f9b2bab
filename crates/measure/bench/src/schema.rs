//! The structure of `results.json`, version 1. `docs/reference/results.md` describes it for
//! readers.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use crate::about::{About, MechanismFacts};
use crate::executable::Executable;
use crate::heap_map::HeapMap;
use crate::observe::{ObservedEvent, Statistic, limits};

/// Version of the schema that this build writes.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub schema: u32,
    /// The machine's facts by topic; see [`crate::machine`].
    pub machine: serde_json::Value,
    /// Seed of the random order in which invocations ran.
    pub order_seed: u64,
    /// Start of the run, in RFC 3339 format, UTC.
    pub started: String,
    pub seconds: f64,
    /// Duration of each experiment's invocations in seconds. Empty in files of older builds.
    #[serde(default)]
    pub ledger: BTreeMap<String, f64>,
    /// `quick`, `default` or `full`.
    pub size: crate::size::Size,
    /// `false` if the run was interrupted.
    pub complete: bool,
    /// The program that made the run; `None` in files of older builds.
    #[serde(default)]
    pub executable: Option<Executable>,
    /// The experiments that took part. Empty in files of older builds.
    #[serde(default)]
    pub experiments: Vec<About>,
    /// Properties of the measured mechanisms. Empty in files of older builds.
    #[serde(default)]
    pub mechanisms: Vec<MechanismFacts>,
    pub cells: Vec<Cell>,
    pub ratios: Vec<Ratio>,
    pub tried: Vec<TriedRow>,
    /// States of heaps. Empty in files of older builds.
    #[serde(default)]
    pub maps: Vec<MapRow>,
}

impl Results {
    pub fn about(&self, experiment: &str) -> Option<&About> {
        self.experiments.iter().find(|about| about.name == experiment)
    }

    /// Returns the properties of the mechanism that a variant represents, if the run contains them.
    pub fn mechanism(&self, variant: &str) -> Option<&MechanismFacts> {
        self.mechanisms.iter().find(|mechanism| mechanism.name == variant)
    }

    /// Returns the content of `results.json`: indented, with a final line feed.
    pub fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// The machine lacks a requirement of the cell; `why` names it.
    #[default]
    Skipped,
    /// The cell should have worked; `why` is the reason why it did not.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    pub experiment: String,
    pub variant: String,
    /// Parameters, such as placement and pacing.
    pub params: BTreeMap<String, String>,
    /// Name of the metric; empty if there is none.
    pub metric: String,
    pub unit: String,
    pub status: Status,
    /// The reason for a status other than `ok`.
    pub why: Option<String>,
    /// Median of the invocations' figures; for two to five invocations, their mean.
    pub estimate: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The figure that represents an invocation.
    pub statistic: Statistic,
    /// Minimum confidence of the interval; for order statistics, `achieved` contains the exact
    /// confidence.
    pub confidence: f64,
    /// Coverage that the order statistics achieve with this number of invocations; `None` if there
    /// are fewer than six, for which the interval is Student's for the mean.
    pub achieved: Option<f64>,
    /// Mean with the interval of Kalibera and Jones.
    pub mean: Option<Estimate>,
    /// The smallest of all samples, without an interval.
    pub floor: Option<f64>,
    /// Mean without outliers more than 1.5 interquartile ranges away.
    pub trimmed_mean: Option<Estimate>,
    /// Median, over the invocations, of the 99th percentile of each.
    pub p99: Option<Estimate>,
    /// Median, over the invocations, of the 99.9th percentile of each.
    pub p999: Option<Estimate>,
    /// The summary of each invocation, in the order in which the invocations ran.
    pub invocations: Vec<Invocation>,
    /// Invocations that failed even when repeated, with their reasons; they are never averaged in.
    pub failures: Vec<String>,
    pub published: Vec<PublishedFigure>,
    /// Remarks on the figure, such as `unstable: …`.
    pub notes: Vec<String>,
}

impl Cell {
    /// Returns the figures and intervals of the row that no measurement can have in its unit, and
    /// intervals that do not contain their figure. A row of a run has none.
    pub fn impossible(&self) -> Vec<&'static str> {
        let (least, greatest) = limits(&self.unit);
        let main = self.estimate.map(|value| {
            let (low, high) = (self.low.unwrap_or(value), self.high.unwrap_or(value));
            Estimate { value, low, high }
        });
        let floor = self.floor.map(|floor| Estimate { value: floor, low: floor, high: floor });
        let figures = [
            ("estimate", main),
            ("mean", self.mean),
            ("trimmed_mean", self.trimmed_mean),
            ("p99", self.p99),
            ("p999", self.p999),
            ("floor", floor),
        ];
        let is_possible = |one: &Estimate| {
            let Estimate { value, low, high } = *one;
            [least, low, value, high, greatest].is_sorted() && value.is_finite()
        };
        let wrong = figures
            .into_iter()
            .filter(|(_, figure)| figure.is_some_and(|figure| !is_possible(&figure)));
        wrong.map(|(name, _)| name).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Invocation {
    pub block: usize,
    /// Number of attempts that were needed.
    pub attempts: usize,
    #[serde(flatten)]
    pub summary: crate::stats::summary::Summary,
    /// Length of an empty stamp pair in ns.
    pub empty_pair_ns: f64,
    /// Change of the clock's calibration during the invocation, as a share.
    pub clock_drift: f64,
    /// Time in ms stolen by the hypervisor during the invocation, summed over all processors.
    pub stolen_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedFigure {
    pub source: String,
    /// The machine on which it was measured.
    pub machine: String,
    /// Lower end of its interval, if it has one.
    pub low: Option<f64>,
    pub value: f64,
    /// Upper end of its interval, if it has one.
    pub high: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub experiment: String,
    /// Name of the ratio, `numerator / denominator`.
    pub name: String,
    /// Parameters that both sides share.
    pub params: BTreeMap<String, String>,
    /// Median of the pairs.
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
    pub pairs: usize,
}

/// The state of a heap in one invocation of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRow {
    pub experiment: String,
    pub variant: String,
    pub params: BTreeMap<String, String>,
    #[serde(flatten)]
    pub map: HeapMap,
}

/// A mechanism's answer to an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedRow {
    pub experiment: String,
    pub variant: String,
    #[serde(flatten)]
    pub tried: ObservedEvent,
}

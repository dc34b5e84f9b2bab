//! Raw samples and observations of one invocation, in order: [`Observed`].
//!
//! An experiment fills an [`Observed`]. The engine summarises it inside the same process
//! ([`crate::stats::summary`]), so that only summaries are sent to the parent and a million samples
//! remain cheap.

use serde::{Deserialize, Serialize};

use crate::heap_map::HeapMap;
use crate::task::Params;

/// All observations of one invocation of one task.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub series: Vec<Series>,
    /// Ratios measured inside this process, each of two loops that run in turn.
    pub ratios: Vec<PairedRatio>,
    /// Events that were caused rather than timed, with a mechanism's answer to each.
    pub tried: Vec<ObservedEvent>,
    pub notes: Vec<String>,
    /// States of a heap, in the order of their moments.
    pub maps: Vec<HeapMap>,
}

/// The samples of one metric, in the order in which they were taken.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name of the metric, such as `one_way`, `check` or `parent_after`.
    pub metric: String,
    /// Parameters in addition to the task's, if one invocation measures several points of a curve.
    /// Each point is a separate cell.
    pub at: Params,
    /// Unit of the samples, such as `ns`, `cycles`, `share` or `messages/s`.
    pub unit: String,
    /// The samples. A sample may be the mean of a batch; see `batch`.
    pub samples: Vec<f64>,
    pub batch: usize,
    /// The figure that represents an invocation, usually the median.
    pub statistic: Statistic,
}

/// The figure, computed from the samples, that represents an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The middle sample.
    #[default]
    Median,
    /// The mean, used for shares and rates.
    Mean,
}

/// A ratio observed inside one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// The names of two variants in the form `numerator / denominator`.
    pub name: String,
    pub value: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedEvent {
    /// The event, such as `killed`, `zombie` or `reused-pid`.
    pub event: String,
    /// Answer of an ideal mechanism.
    pub truth: String,
    /// Answer of this mechanism: `alive`, `dead`, or the reason why the event could not be tried.
    pub says: String,
}

/// Returns the least and the greatest value that a figure in `unit` can have. Every figure is a
/// time, a rate, a number or a share, and none of these is negative.
pub fn limits(unit: &str) -> (f64, f64) {
    (0.0, if unit == "share" { 1.0 } else { f64::INFINITY })
}

impl Observed {
    /// Creates observations of series, with notes on them.
    pub fn of(series: impl Into<Vec<Series>>, notes: Vec<String>) -> Self {
        Self { series: series.into(), notes, ..Self::default() }
    }
}

impl Series {
    /// Creates a series of events, represented by the share of those that happened.
    pub fn share(metric: &str, happened: impl IntoIterator<Item = bool>) -> Self {
        let samples = happened.into_iter().map(|so| f64::from(u8::from(so))).collect();
        Self::ns(metric, samples).in_unit("share").by_mean()
    }

    /// Creates a series of single operations in nanoseconds, represented by its median.
    pub fn ns(metric: &str, samples: Vec<f64>) -> Self {
        Self {
            metric: metric.into(),
            at: Params::new(),
            unit: "ns".into(),
            samples,
            batch: 1,
            statistic: Statistic::Median,
        }
    }

    /// Declares that each sample is the mean of `batch` operations.
    #[must_use]
    pub fn batched(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Makes the series one point of a curve.
    #[must_use]
    pub fn at(mut self, name: &str, value: impl ToString) -> Self {
        self.at.insert(name.into(), value.to_string());
        self
    }

    /// Returns the samples that are finite and possible in the series' unit.
    pub fn possible(&self) -> impl Iterator<Item = f64> {
        let (least, greatest) = limits(&self.unit);
        let possible =
            move |sample: &f64| sample.is_finite() && (least..=greatest).contains(sample);
        self.samples.iter().copied().filter(possible)
    }

    #[must_use]
    pub fn in_unit(mut self, unit: &str) -> Self {
        self.unit = unit.into();
        self
    }

    #[must_use]
    pub fn by_mean(mut self) -> Self {
        self.statistic = Statistic::Mean;
        self
    }
}

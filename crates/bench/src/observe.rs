//! What one invocation saw: [`Observed`], raw and in order.
//!
//! An experiment fills an [`Observed`]; the engine summarises it ([`crate::stats::summary`]) inside
//! the same process, so that only summaries cross to the parent and a million samples stay cheap.

use serde::{Deserialize, Serialize};

use crate::heap_map::HeapMap;
use crate::task::Params;

/// Everything that one invocation of one task observed.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// One series a metric.
    pub series: Vec<Series>,
    /// Ratios taken inside this one process, each of two loops run in turn.
    pub ratios: Vec<PairedRatio>,
    /// Things tried rather than timed: what a mechanism said of an event.
    pub tried: Vec<Tried>,
    /// What has to be said beside the figures.
    pub notes: Vec<String>,
    /// How a heap looked, moment after moment.
    pub maps: Vec<HeapMap>,
}

/// The samples of one metric, in the order in which they were taken.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name of the metric: `one_way`, `check`, `parent_after`, …
    pub metric: String,
    /// Parameters beyond the task's, where one invocation measures several points of a curve: each
    /// point is a cell of its own.
    pub at: Params,
    /// Unit of the samples: `ns`, `cycles`, `share`, `messages/s`.
    pub unit: String,
    /// The samples. A sample may be the mean of a batch: see `batch`.
    pub samples: Vec<f64>,
    /// How many operations each sample averages; 1 for single operations.
    pub batch: usize,
    /// Which figure of an invocation stands for it: most often the median.
    pub statistic: Statistic,
}

/// Which figure of the samples stands for an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The middle sample.
    Median,
    /// The mean: for shares and rates.
    Mean,
}

/// One ratio observed inside one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairedRatio {
    /// `numerator / denominator`, by variant name.
    pub name: String,
    /// The ratio.
    pub value: f64,
}

/// What a mechanism said of an event that was really brought about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The event: `killed`, `zombie`, `reused-pid`, …
    pub event: String,
    /// What an ideal mechanism would say.
    pub truth: String,
    /// What this one said: `alive`, `dead`, or why it could not be tried.
    pub says: String,
}

impl Series {
    /// A series of single operations in nanoseconds, represented by its median.
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

    /// Says that each sample is the mean of `batch` operations.
    #[must_use]
    pub fn batched(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// Makes it a point of a curve.
    #[must_use]
    pub fn at(mut self, name: &str, value: impl ToString) -> Self {
        self.at.insert(name.into(), value.to_string());
        self
    }

    /// Replaces the unit.
    #[must_use]
    pub fn in_unit(mut self, unit: &str) -> Self {
        self.unit = unit.into();
        self
    }

    /// Lets the mean stand for the invocation.
    #[must_use]
    pub fn by_mean(mut self) -> Self {
        self.statistic = Statistic::Mean;
        self
    }
}

//! The figures of one invocation: [`Summary`].

use serde::{Deserialize, Serialize};

/// What is kept of an invocation's samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of samples.
    pub count: usize,
    /// Operations that each sample averages.
    pub batch: usize,
    /// Middle sample.
    pub median: f64,
    /// Mean of all samples.
    pub mean: f64,
    /// Standard deviation of the samples.
    pub deviation: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Mean without what lies beyond 1.5 interquartile ranges of the quartiles.
    pub trimmed_mean: f64,
    /// Half width of the trimmed mean's naive interval, 1.96·s/√n.
    pub trimmed_half_width: f64,
    /// Samples beyond 1.5 interquartile ranges, but not beyond 3.
    pub mild_outliers: usize,
    /// Samples beyond 3 interquartile ranges.
    pub extreme_outliers: usize,
    /// Correlation of neighbouring samples.
    pub autocorrelation: f64,
    /// How many independent samples these are worth.
    pub effective_count: f64,
    /// Reasons to distrust the figure, empty where there is none.
    pub unstable: Vec<String>,
    /// HDR histogram, V2 with deflate left out, base64; its values are thousandths of the unit.
    pub histogram: String,
}

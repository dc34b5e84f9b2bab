//! The figures of one invocation: [`Summary`], computed by [`summarise`].
//!
//! The summary is computed inside the measuring process, so that a million samples are never sent
//! to the parent. Two copies of the samples exist at a time (one in order, one sorted), 16 MB for a
//! million.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

use super::interval::sorted;
use super::mean::moments;
use super::order::quantile;
use super::{diagnose, naive, outliers};
use crate::observe::{Series, Statistic};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub count: usize,
    /// Number of operations that each sample averages.
    pub batch: usize,
    /// Middle sample.
    pub median: f64,
    pub mean: f64,
    pub deviation: f64,
    pub min: f64,
    pub max: f64,
    pub p99: f64,
    pub p999: f64,
    /// Mean without the samples more than 1.5 interquartile ranges outside the quartiles.
    pub trimmed_mean: f64,
    /// Half width of the trimmed mean's naive interval, 1.96·s/√n.
    pub trimmed_half_width: f64,
    /// Number of samples more than 1.5 interquartile ranges outside, but at most 3.
    pub mild_outliers: usize,
    /// Number of samples more than 3 interquartile ranges outside.
    pub extreme_outliers: usize,
    /// Correlation of neighbouring samples.
    pub autocorrelation: f64,
    /// Number of independent samples to which the samples are equivalent.
    pub effective_count: f64,
    /// Reasons to distrust the figure. Empty if there are none.
    pub unstable: Vec<String>,
    /// HDR histogram, in base64 and format V2 without deflate. Its values are thousandths of the
    /// unit.
    pub histogram: String,
}

impl Summary {
    /// Returns the number of tries behind a share: every operation of every sample is one.
    pub fn tries(&self) -> usize {
        self.count * self.batch
    }

    /// Returns the samples, in thousandths of the unit; `None` if they cannot be decoded.
    pub fn samples(&self) -> Option<Histogram<u64>> {
        let bytes = BASE64_STANDARD.decode(&self.histogram).ok()?;
        Deserializer::new().deserialize(&mut bytes.as_slice()).ok()
    }

    /// Returns the figure that represents an invocation.
    pub fn figure(&self, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::Median => self.median,
            Statistic::Mean => self.mean,
        }
    }
}

/// Number of histogram steps per unit.
const HISTOGRAM_SCALE: f64 = 1000.0;
/// Number of significant decimal digits that the histogram keeps.
const HISTOGRAM_DIGITS: u8 = 3;

/// Summarises the samples of one invocation.
///
/// Samples that are not finite are omitted, and so are samples that are impossible in the series'
/// unit: a difference between the stamps of two processors can be negative. `unstable` records
/// their numbers. If there are no samples, all figures are 0 and `unstable` records that.
pub fn summarise(series: &Series) -> Summary {
    let samples = series.samples.iter().copied();
    let finite: Vec<f64> = samples.clone().filter(|x| x.is_finite()).collect();
    let possible: Vec<f64> = series.possible().collect();
    let mut unstable = Vec::new();
    let mut left_out = |count: usize, why: &str| {
        if count > 0 {
            unstable.push(format!("samples that {why} are left out: {count}"));
        }
    };
    left_out(samples.len() - finite.len(), "are not finite");
    left_out(finite.len() - possible.len(), "are impossible");
    let sorted = sorted(&possible).unwrap_or_default();
    if sorted.is_empty() {
        unstable.push("no samples".into());
    }
    let at = |q| quantile(&sorted, q).unwrap_or(0.0);
    let (mean, deviation) = moments(&possible).unwrap_or((0.0, 0.0));
    let outliers = outliers::classify_sorted(&sorted).unwrap_or_default();
    let kept = outliers::within(&sorted, 1.5).unwrap_or_default();
    let (trimmed_mean, trimmed_half_width) = if kept.is_empty() {
        (0.0, 0.0)
    } else {
        let trimmed = naive::interval(kept);
        (trimmed.estimate, trimmed.width() / 2.0)
    };
    let dependence = diagnose::dependence(&possible);
    // A share's samples are 0 and 1, so they always have two modes, and drift has no meaning for
    // them.
    if series.unit != "share" {
        unstable.extend(diagnose::samples(&possible, &sorted, dependence));
    }
    Summary {
        count: possible.len(),
        batch: series.batch,
        median: at(0.5),
        mean,
        deviation,
        min: at(0.0),
        max: at(1.0),
        p99: at(0.99),
        p999: at(0.999),
        trimmed_mean,
        trimmed_half_width,
        mild_outliers: outliers.mild,
        extreme_outliers: outliers.extreme,
        autocorrelation: dependence.autocorrelation,
        effective_count: dependence.effective_count,
        unstable,
        histogram: histogram(&sorted),
    }
}

/// Encodes samples as a histogram.
fn histogram(sorted: &[f64]) -> String {
    // The conversion from f64 saturates, as does the highest value that the histogram can track.
    let scaled = |sample: f64| ((sample * HISTOGRAM_SCALE).round() as u64).min(u64::MAX / 4);
    let highest = sorted.last().map_or(0, |&sample| scaled(sample)).max(2);
    let mut counts = Histogram::<u64>::new_with_bounds(1, highest, HISTOGRAM_DIGITS)
        .expect("bounds from 1 to at least 2 with 3 digits are valid");
    for &sample in sorted {
        counts.saturating_record(scaled(sample));
    }
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(&counts, &mut bytes)
        .expect("counts below 2^63 serialise into memory");
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_agrees_with_calculation_by_hand() {
        let summary = summarise(&Series::ns("one_way", vec![4.0, 1.0, 3.0, 2.0, 1000.0]));
        assert_eq!((summary.count, summary.median, summary.mean), (5, 3.0, 202.0));
        assert_eq!((summary.min, summary.max), (1.0, 1000.0));
        assert_eq!((summary.mild_outliers, summary.extreme_outliers), (0, 1));
        assert_eq!(summary.trimmed_mean, 2.5);
        assert!(summary.unstable.is_empty());
    }

    #[test]
    fn histogram_keeps_three_digits() {
        let samples: Vec<f64> = (1..=10_000).map(|i| f64::from(i) * 0.1).collect();
        let counts = summarise(&Series::ns("one_way", samples)).samples().unwrap();
        assert_eq!(counts.len(), 10_000);
        let median = counts.value_at_quantile(0.5) as f64 / HISTOGRAM_SCALE;
        assert!((median / 500.0 - 1.0).abs() < 1e-3, "{median}");
    }

    #[test]
    fn unusable_samples_are_noted() {
        let series = Series::ns("offset", vec![-1.0, f64::NAN, 3.0]);
        let summary = summarise(&series);
        assert_eq!((summary.count, summary.min, summary.mean), (1, 3.0, 3.0));
        assert_eq!(summary.samples().unwrap().len(), 1);
        assert_eq!(summary.unstable.len(), 2);
        let share = summarise(&Series { samples: vec![0.5, 1.5], ..series }.in_unit("share"));
        assert_eq!((share.count, share.max), (1, 0.5));
        let empty = summarise(&Series::ns("offset", vec![]));
        assert_eq!((empty.count, empty.median, empty.trimmed_mean), (0, 0.0, 0.0));
        assert_eq!(empty.unstable, ["no samples"]);
    }

    #[test]
    fn summary_handles_single_equal_and_huge_samples() {
        let one = summarise(&Series::ns("check", vec![5.0]));
        assert_eq!((one.deviation, one.trimmed_half_width, one.effective_count), (0.0, 0.0, 1.0));
        let equal = summarise(&Series::ns("check", vec![5.0; 500]));
        assert!(equal.unstable.is_empty() && equal.autocorrelation == 0.0);
        let huge = summarise(&Series::ns("check", vec![1.0, 1e300]));
        assert_eq!(huge.samples().unwrap().len(), 2);
    }

    #[test]
    fn summary_round_trips_through_json() {
        let summary = summarise(&Series::ns("check", vec![0.0, 1.0, 2.0]).batched(10));
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
    }
}

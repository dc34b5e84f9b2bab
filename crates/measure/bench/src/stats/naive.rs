//! The interval of consecutive samples, which is too narrow: [`interval`].
//!
//! Source 004 printed mean ± 1.96·s/√n over every sample. This assumes that neighbouring samples
//! are independent and that the next run of the program resembles this one; neither is true. The
//! interval is kept in order to be shown next to the valid intervals, and to fail in the coverage
//! table.

use super::interval::{CONFIDENCE, Interval};
use super::mean::moments;
use super::outliers::trimmed;

/// The normal distribution's two-sided 95 % factor, rounded as the source rounds it.
const FACTOR: f64 = 1.96;

/// Computes mean ± 1.96·s/√n of all samples; `achieved` is the confidence that it *claims*, 95 %.
///
/// If there are no samples, or one is not finite, all fields are NaN and nothing is claimed.
pub fn interval(samples: &[f64]) -> Interval {
    let Some((estimate, deviation)) = moments(samples) else {
        return Interval { estimate: f64::NAN, low: f64::NAN, high: f64::NAN, achieved: 0.0 };
    };
    let half_width = FACTOR * deviation / (samples.len() as f64).sqrt();
    Interval {
        estimate,
        low: estimate - half_width,
        high: estimate + half_width,
        achieved: CONFIDENCE,
    }
}

/// Processes a file of round trips like the script of source 004: halves each value, drops values
/// more than 1.5 interquartile ranges outside the quartiles, and then computes [`interval`].
pub fn as_published(round_trips: &[f64]) -> Interval {
    let one_way: Vec<f64> = round_trips.iter().map(|sample| sample / 2.0).collect();
    trimmed(&one_way).map_or_else(|| interval(&one_way), |kept| interval(&kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naive_interval_agrees_with_calculation_by_hand() {
        let found = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((found.low - (3.0 - 1.96 * 0.5_f64.sqrt())).abs() < 1e-12);
        assert_eq!(interval(&[2.0]).width(), 0.0);
        assert!(interval(&[]).estimate.is_nan());
        assert!(interval(&[1.0, f64::NAN]).low.is_nan());
    }

    #[test]
    fn published_estimate_is_halved_without_the_spike() {
        let found = as_published(&[10.0, 12.0, 14.0, 16.0, 18.0, 10_000.0]);
        assert_eq!(found.estimate, 7.0);
        assert!(as_published(&[]).estimate.is_nan());
    }
}

//! Ratios of paired runs: [`paired`].
//!
//! A pair consists of two measurements, one right after the other. A disturbance of both cancels
//! out in their ratio. With logarithms a ratio and its inverse are mirror images, so exchanging the
//! two measurements inverts the interval.

use super::interval::{CONFIDENCE, Interval};
use super::order::quantile_interval;

/// Returns the median of the ratios, computed from their logarithms, with its sign-test interval at
/// 95 %.
///
/// Returns `None` if there are fewer than 6 ratios, or if one is not positive and finite.
pub fn paired(ratios: &[f64]) -> Option<Interval> {
    paired_at(ratios, CONFIDENCE)
}

/// Like [`paired`], but at another confidence. For k rows under test, 1 − 0.05/k corrects for their
/// number (Bonferroni).
pub fn paired_at(ratios: &[f64], confidence: f64) -> Option<Interval> {
    if !ratios.iter().all(|&ratio| ratio > 0.0) {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let interval = quantile_interval(&logs, 0.5, confidence)?;
    Some(Interval {
        estimate: interval.estimate.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
        achieved: interval.achieved,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paired_interval_of_ten_ratios_is_second_and_ninth() {
        let ratios = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9];
        let interval = paired(&ratios).unwrap();
        assert!((interval.low - 1.1).abs() < 1e-12 && (interval.high - 1.8).abs() < 1e-12);
        assert!((interval.estimate - (1.4_f64 * 1.5).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn unusable_ratios_have_no_interval() {
        assert_eq!(paired(&[1.0; 5]), None);
        assert_eq!(paired(&[1.0, 1.0, 1.0, 1.0, 1.0, 0.0]), None);
        assert_eq!(paired(&[1.0, 1.0, 1.0, 1.0, 1.0, -1.0]), None);
        assert_eq!(paired(&[1.0, 1.0, 1.0, 1.0, 1.0, f64::NAN]), None);
        assert_eq!(paired_at(&[1.0; 6], 0.999), None);
    }

    proptest! {
        #[test]
        fn inverse_ratios_have_the_inverse_interval(
            ratios in prop::collection::vec(0.01_f64..100.0, 6..40)
        ) {
            let inverse: Vec<f64> = ratios.iter().map(|ratio| ratio.recip()).collect();
            let (one, other) = (paired(&ratios).unwrap(), paired(&inverse).unwrap());
            prop_assert!((one.low * other.high - 1.0).abs() < 1e-9);
            prop_assert!((one.estimate * other.estimate - 1.0).abs() < 1e-9);
        }
    }
}

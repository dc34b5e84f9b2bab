//! Medians and quantiles by exact binomial order statistics: [`median_interval`].
//!
//! Given n independent values, the number of values below the population's q-quantile is
//! binomial(n, q), whatever the distribution. P(x₍ₗ₎ ≤ quantile ≤ x₍ᵤ₎) ≥ P(l ≤ B ≤ u − 1)
//! therefore holds without any assumption except independence, and ties only raise the probability.
//! In return, the confidence is available only in steps.
//!
//! The caller chooses the values. Over invocations, the median of per-invocation p99s is *not* the
//! p99 of all samples, and a caller must name the one that it prints.

use statrs::distribution::{Binomial, DiscreteCDF};

use super::interval::{CONFIDENCE, Interval, sorted};

/// Returns the median with the narrowest symmetric pair of order statistics whose confidence is at
/// least 95 %.
///
/// n = 6 gives [x₁, x₆] (96.9 %), 10 gives [x₂, x₉] (97.9 %), 20 gives [x₆, x₁₅] (95.9 %). Returns
/// `None` if a value is not finite, or if there are fewer than 6 values, for which even the
/// confidence of [x₁, xₙ] is below 95 %.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    quantile_interval(values, 0.5, CONFIDENCE)
}

/// Returns the q-quantile with the narrowest equal-tailed pair of order statistics whose confidence
/// is at least `confidence`: the probability of missing each end is at most half of the rest.
///
/// Returns `None` if no pair reaches the confidence (too few values for this q), if `q` or
/// `confidence` is outside the open interval (0, 1), or if a value is not finite.
pub fn quantile_interval(values: &[f64], q: f64, confidence: f64) -> Option<Interval> {
    let inside = |p: f64| p > 0.0 && p < 1.0;
    if !inside(q) || !inside(confidence) {
        return None;
    }
    let sorted = sorted(values)?;
    let (low, high, achieved) = ranks(sorted.len(), q, confidence)?;
    Some(Interval {
        estimate: quantile(&sorted, q)?,
        low: sorted[low - 1],
        high: sorted[high - 1],
        achieved,
    })
}

/// Returns the ranks, counted from 1, of the two ends for `n` values, and their confidence.
pub(super) fn ranks(n: usize, q: f64, confidence: f64) -> Option<(usize, usize, f64)> {
    let below = Binomial::new(q, n as u64).ok()?;
    let tail = (1.0 - confidence) / 2.0;
    let low = (1..=n).take_while(|&rank| below.cdf(rank as u64 - 1) <= tail).last()?;
    let high = (1..=n).rev().take_while(|&rank| below.sf(rank as u64 - 1) <= tail).last()?;
    let achieved = 1.0 - below.cdf(low as u64 - 1) - below.sf(high as u64 - 1);
    (low < high).then_some((low, high, achieved))
}

/// Returns the q-quantile of sorted values, interpolated between neighbours (Hyndman and Fan's type
/// 7, the default of NumPy and R). For q = 0.5 this is the usual median. Returns `None` if there
/// are no values.
///
/// `q` is clamped to [0, 1].
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    let share = position - below as f64;
    Some(sorted[below] + share * (sorted[above] - sorted[below]))
}

/// Returns the median of unsorted values, or `None` if there are no values or one is not finite.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted(values)?, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(n: usize) -> Vec<f64> {
        (1..=n).map(|i| i as f64).collect()
    }

    /// Counts, one by one, all 2ⁿ ways in which n values can be below or above the median.
    fn counted_confidence(n: u32, low: u32, high: u32) -> f64 {
        let held = (0_u64..1 << n).filter(|ways| (low..high).contains(&ways.count_ones())).count();
        held as f64 / f64::from(1_u32 << n)
    }

    #[test]
    fn ranks_agree_with_the_published_pairs() {
        for (n, low, high, percent) in [
            (6, 1.0, 6.0, 96.9),
            (10, 2.0, 9.0, 97.9),
            (12, 3.0, 10.0, 96.1),
            (20, 6.0, 15.0, 95.9),
        ] {
            let interval = median_interval(&counted(n)).unwrap();
            assert_eq!((interval.low, interval.high), (low, high), "n = {n}");
            assert_eq!((interval.achieved * 1000.0).round() / 10.0, percent, "n = {n}");
        }
    }

    #[test]
    fn confidence_agrees_with_counting_and_is_minimal() {
        for n in 6..=16_u32 {
            let interval = median_interval(&counted(n as usize)).unwrap();
            let (low, high) = (interval.low as u32, interval.high as u32);
            assert!((interval.achieved - counted_confidence(n, low, high)).abs() < 1e-12);
            assert!(counted_confidence(n, low + 1, high - 1) < 0.95, "n = {n}");
        }
    }

    #[test]
    fn too_few_or_unusable_values_have_no_interval() {
        for n in 0..6 {
            assert_eq!(median_interval(&counted(n)), None, "n = {n}");
        }
        let mut spoilt = counted(10);
        spoilt[3] = f64::NAN;
        assert_eq!(median_interval(&spoilt), None);
        assert_eq!(quantile_interval(&counted(10), 0.0, 0.95), None);
        assert_eq!(quantile_interval(&counted(10), 0.5, 1.0), None);
        assert_eq!(quantile_interval(&counted(100), 0.99, 0.95), None);
        assert!(quantile_interval(&counted(1000), 0.99, 0.95).is_some());
    }

    #[test]
    fn interval_of_equal_values_is_a_point() {
        let interval = median_interval(&[7.0; 10]).unwrap();
        assert_eq!((interval.low, interval.estimate, interval.high), (7.0, 7.0, 7.0));
    }

    #[test]
    fn quantiles_interpolate_like_type_seven() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.25), Some(1.75));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
        assert_eq!(quantile(&[5.0], 0.99), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn interval_ignores_order_and_contains_the_estimate(
            values in prop::collection::vec(-1e9_f64..1e9, 6..60),
        ) {
            let interval = median_interval(&values).unwrap();
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(median_interval(&reversed), Some(interval));
            prop_assert!(interval.holds(interval.estimate));
            prop_assert!(interval.achieved >= 0.95);
        }

        #[test]
        fn higher_confidence_is_never_narrower(
            values in prop::collection::vec(-1e3_f64..1e3, 40..80), q in 0.3_f64..0.7,
        ) {
            let narrow = quantile_interval(&values, q, 0.9).unwrap();
            let wide = quantile_interval(&values, q, 0.99).unwrap();
            prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
        }
    }
}

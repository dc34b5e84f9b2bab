//! Outliers, which are counted and never silently dropped: [`Outliers`], [`trimmed`].
//!
//! The fences are Tukey's: a sample more than 1.5 interquartile ranges outside the quartiles is a
//! mild outlier, and one more than 3 outside is an extreme outlier. A latency's outliers are real
//! (a process waited), so the untrimmed figures remain the main ones and a trimmed mean is an
//! additional column.

use super::interval::sorted;
use super::order::quantile;

/// Number of samples outside the fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outliers {
    /// Number of samples more than 1.5 interquartile ranges outside, but at most 3.
    pub mild: usize,
    /// Number of samples more than 3 interquartile ranges outside.
    pub extreme: usize,
}

/// Returns the sorted samples, without those more than 1.5 interquartile ranges outside the
/// quartiles. Returns `None` if there are no samples, or one is not finite. The result is never
/// empty, because the quartiles themselves remain.
pub fn trimmed(samples: &[f64]) -> Option<Vec<f64>> {
    Some(within(&sorted(samples)?, 1.5)?.to_vec())
}

/// Counts the outliers of sorted samples. Returns `None` if there are none.
pub(crate) fn classify_sorted(sorted: &[f64]) -> Option<Outliers> {
    let inside = within(sorted, 1.5)?.len();
    let not_extreme = within(sorted, 3.0)?.len();
    Some(Outliers { mild: not_extreme - inside, extreme: sorted.len() - not_extreme })
}

/// Returns the part of sorted samples within `ranges` interquartile ranges of the quartiles.
pub(crate) fn within(sorted: &[f64], ranges: f64) -> Option<&[f64]> {
    let lower = quantile(sorted, 0.25)?;
    let upper = quantile(sorted, 0.75)?;
    let reach = ranges * (upper - lower);
    let from = sorted.partition_point(|&sample| sample < lower - reach);
    let to = sorted.partition_point(|&sample| sample <= upper + reach);
    Some(&sorted[from..to])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn outlier_fences_agree_with_calculation_by_hand() {
        // The quartiles are 3 and 9 (type 7) and the range is 6, so the fences are at −6 and 18,
        // and at −15 and 27.
        let samples = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0, 20.0, 30.0];
        assert_eq!(
            classify_sorted(&sorted(&samples).unwrap()),
            Some(Outliers { mild: 1, extreme: 1 })
        );
        assert_eq!(trimmed(&samples).unwrap(), &samples[..7]);
    }

    #[test]
    fn nearly_equal_samples_have_extreme_outlier() {
        assert_eq!(classify_sorted(&[]), None);
        assert_eq!(trimmed(&[1.0, f64::NAN]), None);
        assert_eq!(trimmed(&[5.0]), Some(vec![5.0]));
        // With an interquartile range of 0 every other value is extreme.
        let mut almost_equal = [5.0; 20];
        almost_equal[0] = 6.0;
        assert_eq!(
            classify_sorted(&sorted(&almost_equal).unwrap()),
            Some(Outliers { mild: 0, extreme: 1 })
        );
    }

    proptest! {
        #[test]
        fn outlier_counts_agree_with_direct_counting(
            samples in prop::collection::vec(-100_f64..100.0, 1..200)
        ) {
            let sorted = sorted(&samples).unwrap();
            let lower = quantile(&sorted, 0.25).unwrap();
            let upper = quantile(&sorted, 0.75).unwrap();
            let outside = |ranges: f64| {
                let reach = ranges * (upper - lower);
                samples.iter().filter(|&&x| x < lower - reach || x > upper + reach).count()
            };
            let found = classify_sorted(&sorted).unwrap();
            prop_assert_eq!(found.extreme, outside(3.0));
            prop_assert_eq!(found.mild + found.extreme, outside(1.5));
        }
    }
}

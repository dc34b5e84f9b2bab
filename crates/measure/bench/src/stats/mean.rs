//! The mean over invocations: [`kalibera_jones`].
//!
//! Kalibera and Jones ("Rigorous benchmarking in reasonable time", ISMM 2013) first average inside
//! each invocation, and then treat the averages as the sample. Effects inside an invocation
//! (autocorrelation, modes) then need no model; the remaining assumption is that the averages are
//! independent and close enough to normal. [`super::plan`] computes how many averages are needed.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::interval::{CONFIDENCE, Interval};

/// Computes ȳ ± t(0.975, r − 1)·√(S²/r) over the means of r invocations.
///
/// Returns `None` if there are fewer than two means, or one is not finite.
pub fn kalibera_jones(means: &[f64]) -> Option<Interval> {
    student(means, CONFIDENCE)
}

/// Computes Student's interval for the mean of independent values at any confidence in (0, 1).
///
/// Returns `None` for fewer than two values, values that are not finite, or a confidence outside
/// (0, 1).
pub fn student(values: &[f64], confidence: f64) -> Option<Interval> {
    let (estimate, deviation) = moments(values)?;
    if values.len() < 2 || !(confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let factor = student_factor(values.len(), confidence)?;
    let half_width = factor * deviation / (values.len() as f64).sqrt();
    Some(Interval {
        estimate,
        low: estimate - half_width,
        high: estimate + half_width,
        achieved: confidence,
    })
}

/// Returns the factor t(1 − (1 − confidence)/2, n − 1) by which the half width of Student's
/// interval exceeds the standard error.
pub(crate) fn student_factor(n: usize, confidence: f64) -> Option<f64> {
    let freedom = n.checked_sub(1).filter(|&freedom| freedom > 0)?;
    let t = StudentsT::new(0.0, 1.0, freedom as f64).ok()?;
    Some(t.inverse_cdf(0.5 + confidence / 2.0))
}

/// Computes the mean and the standard deviation (n − 1; 0 for a single value), in two passes so
/// that a large offset costs no digits. Returns `None` if there are no values, or one is not
/// finite.
pub(crate) fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (n - 1.0).max(1.0)).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn student_factors_agree_with_the_printed_table() {
        for (n, factor) in [(2, 12.706), (3, 4.303), (6, 2.571), (10, 2.262), (20, 2.093)] {
            let found = student_factor(n, 0.95).unwrap();
            assert!((found - factor).abs() < 6e-4, "n = {n}: {found}, table {factor}");
        }
    }

    #[test]
    fn mean_interval_agrees_with_calculation_by_hand() {
        // The mean is 3, S² = 2.5, the standard error √0.5, and t(0.975, 4) = 2.776445.
        let interval = kalibera_jones(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!(interval.estimate, 3.0);
        assert!((interval.high - 3.0 - 2.776_445 * 0.5_f64.sqrt()).abs() < 1e-5);
    }

    #[test]
    fn too_few_or_unusable_values_have_no_mean_interval() {
        assert_eq!(kalibera_jones(&[]), None);
        assert_eq!(kalibera_jones(&[1.0]), None);
        assert_eq!(kalibera_jones(&[1.0, f64::NAN, 2.0]), None);
        assert_eq!(kalibera_jones(&[4.0; 6]).unwrap().width(), 0.0);
        assert_eq!(student(&[1.0, 2.0], 1.0), None);
    }

    proptest! {
        #[test]
        fn mean_interval_scales_and_shifts_with_the_values(
            values in prop::collection::vec(-1e3_f64..1e3, 2..30), by in 0.5_f64..4.0,
        ) {
            let plain = kalibera_jones(&values).unwrap();
            let moved: Vec<f64> = values.iter().map(|value| value * by + 100.0).collect();
            let moved = kalibera_jones(&moved).unwrap();
            let scale = 1e-6 * (1.0 + plain.width() * by);
            prop_assert!((moved.width() - plain.width() * by).abs() < scale);
            prop_assert!((moved.estimate - plain.estimate * by - 100.0).abs() < scale);
        }
    }
}

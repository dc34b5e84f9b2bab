//! An estimate with its error: [`Interval`].
//!
//! Every interval in this crate has this type, so that a report can print all intervals alike. The
//! neighbouring modules compute them ([`super::order`], [`super::mean`], [`super::ratio`]).

use serde::{Deserialize, Serialize};

/// The confidence of intervals, unless a caller requests another.
pub const CONFIDENCE: f64 = 0.95;

/// An estimate and the closed interval around it, in the unit of the original values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
    /// The actual confidence, which exceeds the requested confidence for order statistics.
    pub achieved: f64,
}

impl Interval {
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// Returns the part of the interval between two limits that no figure exceeds. It contains the
    /// true value exactly as often as the whole interval does.
    #[must_use]
    pub fn within(self, (least, greatest): (f64, f64)) -> Self {
        Self { low: self.low.max(least), high: self.high.min(greatest), ..self }
    }

    /// Returns `true` if the interval contains a value. The ends are included.
    pub fn holds(&self, truth: f64) -> bool {
        self.low <= truth && truth <= self.high
    }
}

/// Returns a sorted copy, or `None` if a value is not finite, because a NaN has no rank.
pub(crate) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_contains_its_ends_but_not_nan() {
        let interval = Interval { estimate: 2.0, low: 1.0, high: 3.0, achieved: 0.95 };
        assert!(interval.holds(1.0) && interval.holds(3.0));
        assert!(!interval.holds(3.1) && !interval.holds(f64::NAN));
        assert_eq!(interval.width(), 2.0);
        let part = interval.within((1.5, f64::INFINITY));
        assert_eq!((part.low, part.estimate, part.high), (1.5, 2.0, 3.0));
        assert_eq!(sorted(&[1.0, f64::NAN]), None);
        assert_eq!(sorted(&[2.0, f64::INFINITY]), None);
        assert_eq!(sorted(&[2.0, 1.0]), Some(vec![1.0, 2.0]));
    }
}

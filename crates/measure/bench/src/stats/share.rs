//! Shares of tries, which lie between 0 and 1: [`share_interval`].
//!
//! The figure is the share of all tries of all invocations. Their share may differ from one
//! invocation to the next, so that the tries of one invocation are not independent. Korn and
//! Graubard ("Confidence intervals for proportions with small expected number of positive counts
//! estimated from survey data", Survey Methodology, 1998) compute from the variance *between*
//! invocations the number of independent tries to which all tries are equivalent, and apply Clopper
//! and Pearson's exact interval to that number. `tests/coverage` compares the method with
//! others.

use statrs::distribution::{Beta, ContinuousCDF, Normal};

use super::interval::Interval;
use super::mean::student_factor;
use super::summary::Summary;

/// The tries of one invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareCount {
    /// Number of tries that are in the share.
    pub hits: usize,
    /// Number of all tries.
    pub tries: usize,
}

impl ShareCount {
    /// Returns the tries of the invocation that `summary` describes, whose samples are shares.
    pub fn of(summary: &Summary) -> Self {
        let tries = summary.tries();
        Self { hits: (summary.mean * tries as f64).round() as usize, tries }
    }
}

/// Returns the share of all tries with its interval, whose ends lie within 0 and 1.
///
/// For a single invocation the interval is Clopper and Pearson's, which assumes that all its tries
/// are independent, and the same is true if no try or every try is in the share. Returns `None` if
/// there are no tries, or for a confidence outside (0, 1).
pub fn share_interval(counts: &[ShareCount], confidence: f64) -> Option<Interval> {
    let equivalent = equivalent_tries(counts, confidence)?;
    let share = pooled(counts)?.0;
    let (low, high) = clopper_pearson(share * equivalent, equivalent, confidence)?;
    let (low, high) = (low.min(share), high.max(share));
    Some(Interval { estimate: share, low, high, achieved: confidence })
}

/// Returns the number of independent tries to which all tries are equivalent, reduced because the
/// variance between few invocations is itself uncertain; at most the number of tries. Returns
/// `None` if [`share_interval`] does.
pub fn equivalent_tries(counts: &[ShareCount], confidence: f64) -> Option<f64> {
    let (share, tries) = pooled(counts).filter(|_| confidence > 0.0 && confidence < 1.0)?;
    let invocations = counts.iter().filter(|count| count.tries > 0).count();
    let independent = share * (1.0 - share) / tries;
    if invocations < 2 || independent == 0.0 {
        return Some(tries);
    }
    let apart = |count: &ShareCount| count.hits as f64 - count.tries as f64 * share;
    let squares: f64 = counts.iter().map(|count| apart(count).powi(2)).sum();
    let n = invocations as f64;
    let between = n / (n - 1.0) * squares / tries.powi(2);
    let normal = Normal::standard().inverse_cdf(0.5 + confidence / 2.0);
    let uncertain = (normal / student_factor(invocations, confidence)?).powi(2);
    Some((tries * independent / between * uncertain).min(tries))
}

/// Returns the share of all tries, and their number; `None` if there are none.
fn pooled(counts: &[ShareCount]) -> Option<(f64, f64)> {
    let tries: usize = counts.iter().map(|count| count.tries).sum();
    let hits: usize = counts.iter().map(|count| count.hits.min(count.tries)).sum();
    (tries > 0).then(|| (hits as f64 / tries as f64, tries as f64))
}

/// Returns the ends of Clopper and Pearson's interval. Neither number need be whole.
fn clopper_pearson(hits: f64, tries: f64, confidence: f64) -> Option<(f64, f64)> {
    let tail = (1.0 - confidence) / 2.0;
    let quantile = |a: f64, b: f64, at: f64| Some(beta_quantile(&Beta::new(a, b).ok()?, at));
    let misses = tries - hits;
    let low = if hits > 0.0 { quantile(hits, misses + 1.0, tail)? } else { 0.0 };
    let high = if misses > 0.0 { quantile(hits + 1.0, misses, 1.0 - tail)? } else { 1.0 };
    Some((low, high))
}

/// Returns the point below which the distribution has the probability `at`, by bisection:
/// Newton's iteration in statrs 0.19 does not end for some fractional parameters.
fn beta_quantile(beta: &Beta, at: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if beta.cdf(middle) < at { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn counts(all: &[(usize, usize)]) -> Vec<ShareCount> {
        all.iter().map(|&(hits, tries)| ShareCount { hits, tries }).collect()
    }

    fn percent(all: &[(usize, usize)]) -> [f64; 3] {
        let found = share_interval(&counts(all), 0.95).expect("tries");
        [found.low, found.estimate, found.high].map(|share| (share * 1e4).round() / 1e2)
    }

    /// Checks the interval against a printed table of the binomial distribution.
    #[test]
    fn interval_of_one_invocation_is_clopper_and_pearsons() {
        assert_eq!(percent(&[(3, 20)]), [3.21, 15.0, 37.89]);
        assert_eq!(percent(&[(0, 10)]), [0.0, 0.0, 30.85]);
        assert_eq!(percent(&[(10, 10)]), [69.15, 100.0, 100.0]);
        assert_eq!(percent(&[(0, 60), (0, 60)])[2], 3.03, "three of 120 and a little");
    }

    #[test]
    fn varying_invocations_widen_the_interval() {
        let width = |all| share_interval(&counts(all), 0.95).expect("tries").width();
        let steady = width(&[(50, 100), (51, 100), (49, 100), (50, 100), (52, 100), (48, 100)]);
        let pooled = width(&[(300, 600)]);
        assert!((steady / pooled - 1.0).abs() < 1e-9, "{steady} {pooled}");
        let varied = width(&[(20, 100), (80, 100), (35, 100), (65, 100), (50, 100), (50, 100)]);
        assert!(varied > 3.0 * pooled, "{varied} {pooled}");
    }

    /// Regression: the interval of few equivalent tries was computed without end.
    #[test]
    fn fractional_tries_have_an_interval() {
        for tries in (1..400).step_by(9).map(|n| f64::from(n) / 37.0) {
            for share in (1..40).map(|n| f64::from(n) / 40.0) {
                let (low, high) = clopper_pearson(share * tries, tries, 0.95).expect("an interval");
                assert!(
                    0.0 <= low && low < share && share < high && high <= 1.0,
                    "{share} {tries}"
                );
            }
        }
    }

    #[test]
    fn missing_tries_have_no_interval() {
        assert_eq!(share_interval(&[], 0.95), None);
        assert_eq!(share_interval(&counts(&[(0, 0)]), 0.95), None);
        assert_eq!(share_interval(&counts(&[(1, 2)]), 1.0), None);
    }

    proptest! {
        #[test]
        fn interval_stays_within_zero_and_one(
            all in prop::collection::vec((0_usize..1_000_000, 1_usize..1_000_000), 1..12)
        ) {
            let count =
                |&(hits, tries): &(usize, usize)| ShareCount { hits: hits % (tries + 1), tries };
            let all: Vec<ShareCount> = all.iter().map(count).collect();
            let found = share_interval(&all, 0.95).unwrap();
            prop_assert!(0.0 <= found.low && found.low <= found.estimate, "{:?}", found);
            prop_assert!(found.estimate <= found.high && found.high <= 1.0, "{:?}", found);
        }
    }
}

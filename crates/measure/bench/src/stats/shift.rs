//! The distance between two groups of values, of any shape: [`shift`].
//!
//! The estimate is Hodges and Lehmann's, the middle of all differences. Its interval inverts Mann
//! and Whitney's test: it contains the shifts that the test does not reject. It assumes that the
//! values are independent and that one group is a shifted copy of the other; the exact distribution
//! of the statistic needs no other assumption. Ties only raise the confidence.
//!
//! For pairs, [`super::ratio`] contains a better test. Here the two groups were measured at
//! different times, and any change between those times is part of the difference.

use statrs::distribution::{ContinuousCDF, Normal};

use super::interval::{Interval, sorted};
use super::order::quantile;

/// Maximum size of groups for which the distribution is exact. For larger groups it is close enough
/// to normal.
const EXACT: usize = 30;

/// The result of a comparison of two groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// Distance of the second group above the first; `None` if there are too few values for the
    /// confidence, such as three and three at 95 %.
    pub interval: Option<Interval>,
    /// The middle of all differences.
    pub estimate: f64,
    /// Probability that two equal groups differ at least this much, in either direction.
    pub p: f64,
}

/// Compares `new` with `base`. Returns `None` if either is empty or a value is not finite.
pub fn shift(base: &[f64], new: &[f64], confidence: f64) -> Option<Shift> {
    let (base, new) = (sorted(base)?, sorted(new)?);
    let all: Vec<f64> =
        base.iter().flat_map(|base| new.iter().map(move |new| new - base)).collect();
    let differences = sorted(&all)?;
    let estimate = quantile(&differences, 0.5)?;
    let tails = Tails::of(base.len(), new.len());
    let above = differences.iter().filter(|&&difference| difference > 0.0).count() as f64;
    let ties = differences.iter().filter(|&&difference| difference == 0.0).count() as f64;
    let above = above + ties / 2.0;
    // A half is rounded towards the middle, because a tie is not evidence.
    let nearer = above.min(differences.len() as f64 - above).ceil() as usize;
    let interval = tails.rank((1.0 - confidence) / 2.0).map(|rank| Interval {
        estimate,
        low: differences[rank - 1],
        high: differences[differences.len() - rank],
        achieved: 1.0 - 2.0 * tails.at_most(rank - 1),
    });
    Some(Shift { interval, estimate, p: (2.0 * tails.at_most(nearer)).min(1.0) })
}

/// Returns `true` if groups of `base` and `new` values can show any difference at `confidence`,
/// that is, if the test rejects when the groups do not overlap.
pub fn reaches(base: usize, new: usize, confidence: f64) -> bool {
    Tails::of(base, new).rank((1.0 - confidence) / 2.0).is_some()
}

/// Returns the minimum number of values that each of two equally large groups needs for
/// [`reaches`]. The upper bound always suffices.
pub fn fewest_each(confidence: f64) -> usize {
    (1..EXACT).find(|&count| reaches(count, count, confidence)).unwrap_or(EXACT)
}

/// The distribution P(U ≤ u) of the number U of pairs in which the second group's value is larger.
enum Tails {
    Exact(Vec<f64>),
    Normal { mean: f64, deviation: f64 },
}

impl Tails {
    fn of(n: usize, m: usize) -> Self {
        if n > EXACT || m > EXACT {
            let (n, m) = (n as f64, m as f64);
            let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
            return Self::Normal { mean: n * m / 2.0, deviation };
        }
        let counts = arrangements(n, m);
        let all: f64 = counts.iter().sum();
        let mut below = 0.0;
        Self::Exact(
            counts
                .into_iter()
                .map(|count| {
                    below += count / all;
                    below
                })
                .collect(),
        )
    }

    fn at_most(&self, u: usize) -> f64 {
        match self {
            Self::Exact(below) => below[u.min(below.len() - 1)],
            Self::Normal { mean, deviation } => {
                let standard = Normal::standard();
                standard.cdf((u as f64 + 0.5 - mean) / deviation)
            }
        }
    }

    /// Returns the largest rank, counted from 1, of a difference below which the probability is at
    /// most `tail`.
    fn rank(&self, tail: f64) -> Option<usize> {
        (1..).take_while(|&rank| self.at_most(rank - 1) <= tail).last()
    }
}

/// Counts the arrangements of `n` and `m` values with each U. Only additions are used, so that no
/// digits cancel.
fn arrangements(n: usize, m: usize) -> Vec<f64> {
    // The counts are for each number of values in the second group, while the first group grows.
    let mut row: Vec<Vec<f64>> = vec![vec![1.0]; m + 1];
    for i in 1..=n {
        let mut next = vec![vec![1.0]];
        for j in 1..=m {
            let mut counts = vec![0.0; i * j + 1];
            // If the largest value belongs to the first group, it is above none of the second
            // group's values.
            for (u, count) in row[j].iter().enumerate() {
                counts[u] += count;
            }
            // If the largest value belongs to the second group, it is above all of the first
            // group's values.
            for (u, count) in next[j - 1].iter().enumerate() {
                counts[u + i] += count;
            }
            next.push(counts);
        }
        row = next;
    }
    row.swap_remove(m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulate::{LEVEL, RunSimulator, SampleModel};

    /// Checks the critical values of the two-sided test at 5 % against statistical tables: 2 for 5
    /// and 5, 5 for 6 and 6, 23 for 10 and 10, 127 for 20 and 20, none for 3 and 3.
    #[test]
    fn ranks_agree_with_the_published_critical_values() {
        for (n, critical) in
            [(5, Some(2)), (6, Some(5)), (10, Some(23)), (20, Some(127)), (3, None)]
        {
            let rank = Tails::of(n, n).rank(0.025);
            assert_eq!(rank.map(|rank| rank - 1), critical, "{n} and {n}");
        }
        assert_eq!(arrangements(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        let unequal: f64 = arrangements(4, 7).iter().sum();
        assert_eq!(unequal, 330.0);
    }

    #[test]
    fn more_rows_require_more_values() {
        // The smallest p is 2/924 for six and six, 2/3432 for seven and seven.
        assert!(reaches(6, 6, 1.0 - 2.2 / 924.0) && !reaches(6, 6, 1.0 - 1.8 / 924.0));
        assert_eq!([0.95, 1.0 - 0.05 / 20.0, 1.0 - 0.05 / 80.0].map(fewest_each), [4, 6, 7]);
    }

    #[test]
    fn normal_tail_agrees_with_the_exact_one() {
        let exact = Tails::of(30, 30);
        let (mean, deviation) = (450.0, (900.0_f64 * 61.0 / 12.0).sqrt());
        let normal = Tails::Normal { mean, deviation };
        for u in [250, 317, 400, 450] {
            assert!((exact.at_most(u) - normal.at_most(u)).abs() < 0.002, "{u}");
        }
    }

    #[test]
    fn equal_groups_have_no_shift_and_separate_groups_do() {
        let equal = shift(&[0.0; 6], &[0.0; 6], 0.95).expect("values");
        assert_eq!((equal.estimate, equal.p), (0.0, 1.0));
        assert!(equal.interval.expect("enough").holds(0.0));
        let apart = shift(&[1.0, 2.0, 3.0, 4.0], &[11.0, 12.0, 13.0, 14.0], 0.95).expect("values");
        assert!((apart.p - 2.0 / 70.0).abs() < 1e-12, "{apart:?}");
        assert!(apart.interval.expect("four and four are enough").low > 0.0);
        let few = shift(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0], 0.95).expect("values");
        assert_eq!((few.interval, few.estimate), (None, 10.0));
        assert_eq!(shift(&[1.0], &[f64::NAN], 0.95), None);
        assert_eq!(shift(&[], &[1.0], 0.95), None);
    }

    #[test]
    fn shift_interval_and_p_value_hold_their_error_rates() {
        const RUNS: usize = 600;
        for (seed, model) in
            [SampleModel::Normal, SampleModel::RandomEffect, SampleModel::ModesBetween]
                .into_iter()
                .enumerate()
        {
            let mut source = RunSimulator::new(seed as u64);
            let mut group = |lift: f64| -> Vec<f64> {
                (0..6).map(|_| source.invocation(model, 0.0, 9)[4] + lift).collect()
            };
            let (mut held, mut small) = (0, 0);
            for _ in 0..RUNS {
                let found = shift(&group(0.0), &group(0.1 * LEVEL), 0.95).expect("values");
                held += usize::from(found.interval.expect("enough").holds(0.1 * LEVEL));
                let equal = shift(&group(0.0), &group(0.0), 0.95).expect("values");
                small += usize::from(equal.p <= 0.05);
            }
            // The exact confidence is 95.9 %, so 575 of 600 intervals are expected, with a
            // deviation of 5.
            assert!(held >= 557, "{model:?}: {held}");
            assert!(small <= 43, "{model:?}: {small}");
        }
    }
}

//! A hierarchical bootstrap of the quotient of two machines' figures: [`quotient`].
//!
//! Two machines cannot be measured in pairs. Both random levels of a run are resampled: the
//! invocations, and the samples of each invocation. The invocations are drawn with replacement. The
//! second level needs no samples: the median of n values drawn with replacement from a histogram is
//! its quantile at a position that varies around a half with deviation 1/(2·√n), and the mean of n
//! such values varies around the mean with deviation s/√n; n is the number of independent samples
//! to which the invocation is equivalent.
//!
//! For few invocations, percentiles of such draws are too narrow. Hesterberg ("What teachers should
//! know about the bootstrap", 2015) widens them to the percentiles that would be right for
//! Student's mean. The tests count how often the intervals contain the true value.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use statrs::distribution::{ContinuousCDF, Normal};

use super::interval::Interval;
use super::mean::student_factor;
use super::order::quantile;

/// Number of draws from both groups.
const DRAWS: usize = 4_000;
/// Minimum number of invocations in each group.
const FEWEST: usize = 4;

/// An invocation that can be resampled.
pub trait Resample {
    /// Returns the figure that would represent the invocation if other samples had been drawn, for
    /// a standard normal deviate. For 0, returns the actual figure.
    fn figure(&self, deviate: f64) -> f64;
}

impl Resample for f64 {
    /// Returns the figure of an invocation that has no internal error.
    fn figure(&self, _: f64) -> f64 {
        *self
    }
}

/// Returns the quotient of the medians, `new` by `base`, with its interval.
///
/// Returns `None` if either group has fewer than four invocations, or if a figure is not positive.
pub fn quotient<A: Resample, B: Resample>(
    base: &[A],
    new: &[B],
    confidence: f64,
    seed: u64,
) -> Option<Interval> {
    let fewest = base.len().min(new.len());
    if fewest < FEWEST {
        return None;
    }
    let n = fewest as f64;
    let factor = student_factor(fewest, confidence)? * (n / (n - 1.0)).sqrt();
    let tail = Normal::standard().cdf(-factor);
    let mut draws = Draws { random: ChaCha8Rng::seed_from_u64(seed), spare: None };
    let mut quotients = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let (base, new) = (draws.median(base)?, draws.median(new)?);
        quotients.push(new / base);
    }
    quotients.sort_by(f64::total_cmp);
    let [base, new] = [standing(base)?, standing(new)?];
    Some(Interval {
        estimate: new / base,
        low: quantile(&quotients, tail)?,
        high: quantile(&quotients, 1.0 - tail)?,
        achieved: confidence,
    })
}

fn standing<A: Resample>(group: &[A]) -> Option<f64> {
    middle(group.iter().map(|one| one.figure(0.0)).collect())
}

fn middle(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    quantile(&figures, 0.5).filter(|&middle| middle > 0.0)
}

struct Draws {
    random: ChaCha8Rng,
    spare: Option<f64>,
}

impl Draws {
    fn median<A: Resample>(&mut self, group: &[A]) -> Option<f64> {
        let draw = |_| {
            let one = self.random.random_range(0..group.len());
            group[one].figure(self.normal())
        };
        middle((0..group.len()).map(draw).collect())
    }

    /// Draws a standard normal deviate, by Box and Muller.
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * (1.0 - self.random.random::<f64>()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.random.random::<f64>()).sin_cos();
        self.spare = Some(radius * sine);
        radius * cosine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::order::median;
    use crate::stats::simulate::{RunSimulator, SampleModel};

    /// A median that is resampled by drawing from its samples.
    struct Drawn {
        sorted: Vec<f64>,
    }

    impl Resample for Drawn {
        fn figure(&self, deviate: f64) -> f64 {
            let place = 0.5 + deviate * 0.5 / (self.sorted.len() as f64).sqrt();
            quantile(&self.sorted, place).expect("samples")
        }
    }

    fn group(
        source: &mut RunSimulator,
        model: SampleModel,
        count: usize,
        factor: f64,
    ) -> Vec<Drawn> {
        let run = source.run(model, count, 50);
        let scaled = |samples: Vec<f64>| {
            let mut sorted: Vec<f64> = samples.iter().map(|sample| sample * factor).collect();
            sorted.sort_by(f64::total_cmp);
            Drawn { sorted }
        };
        run.into_iter().map(scaled).collect()
    }

    #[test]
    fn quotient_interval_contains_the_planted_quotient() {
        const RUNS: u64 = 20;
        for (model, count) in
            [(SampleModel::Normal, 10), (SampleModel::RandomEffect, 6), (SampleModel::Spikes, 10)]
        {
            let mut source = RunSimulator::new(11);
            let held = (0..RUNS).filter(|&run| {
                let base = group(&mut source, model, count, 1.0);
                let new = group(&mut source, model, count, 1.5);
                quotient(&base, &new, 0.95, run).expect("enough").holds(1.5)
            });
            // Of 20 intervals at 95 %, 19 are expected, with a deviation of 1.
            let held = held.count();
            assert!(held >= 16, "{model:?}, {count}: {held} of {RUNS}");
        }
    }

    #[test]
    fn too_few_or_zero_invocations_have_no_quotient() {
        assert_eq!(quotient(&[1.0; 3], &[1.0; 9], 0.95, 0), None);
        assert_eq!(quotient(&[0.0; 6], &[1.0; 6], 0.95, 0), None);
        let still = quotient(&[2.0; 6], &[3.0; 6], 0.95, 0).expect("enough");
        assert_eq!((still.low, still.estimate, still.high), (1.5, 1.5, 1.5));
    }

    #[test]
    fn error_inside_invocations_widens_the_interval() {
        let mut source = RunSimulator::new(3);
        let (base, new) = (
            group(&mut source, SampleModel::Normal, 8, 1.0),
            group(&mut source, SampleModel::Normal, 8, 1.0),
        );
        let bare = |group: &[Drawn]| -> Vec<f64> {
            group.iter().map(|one| median(&one.sorted).expect("samples")).collect()
        };
        let with = quotient(&base, &new, 0.95, 1).expect("enough").width();
        let without = quotient(&bare(&base), &bare(&new), 0.95, 1).expect("enough").width();
        assert!(with > without, "{with} {without}");
    }
}

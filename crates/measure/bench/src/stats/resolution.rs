//! The smallest difference that a comparison could have resolved, [`paired`] and [`unpaired`], and
//! the number of pairs needed to resolve a given difference, [`pairs_for`].
//!
//! "Could have resolved" means that, if the difference had been this large, a repetition of the
//! same comparison would have found it in at least 95 of 100 cases, with an interval that excludes
//! zero.
//!
//! **Pairs.** The sign-test interval of n differences is [x₍ₗ₎, x₍ₙ₊₁₋ₗ₎]. A shift by d raises its
//! lower end above zero if fewer than l of the n differences are more than d below the true value.
//! Thus d is a quantile of the differences, and an order statistic estimates it: the number of
//! values in a repetition that are outside this comparison's x₍ⱼ₎ is beta-binomial, whatever the
//! distribution. The largest j for which that number stays below l in [`POWER`] of all cases
//! determines d, which is the larger of the distances of x₍ⱼ₎ and x₍ₙ₊₁₋ⱼ₎ from the middle. If the
//! differences are distributed alike at both ends, no other assumption is needed. At 95 %, 20 pairs
//! are needed.
//!
//! **Two groups** of invocations that are not paired: [`ERRORS`] standard errors of the difference
//! of their means. The interval of [`super::shift`] extends about two standard errors to either
//! side, two more provide the power, and the rest accounts for the unknown deviation of such small
//! groups; the factor was found by simulation. At another confidence it grows like Student's
//! quantiles. If the test cannot reach that confidence, no difference could have been resolved.

use statrs::distribution::{ContinuousCDF, Normal};
use statrs::function::beta::ln_beta;
use statrs::function::factorial::ln_binomial;

use super::interval::{CONFIDENCE, sorted};
use super::mean::{moments, student_factor};
use super::order::{quantile, ranks};
use super::shift::reaches;

/// Probability with which a repetition must find the difference. It exceeds the promised 95 %,
/// because centre and distribution are estimated from the same pairs.
const POWER: f64 = 0.98;

/// Number of standard errors of the difference of two groups' means, at 95 %.
const ERRORS: f64 = 6.0;

/// Maximum number of pairs in any comparison.
const MOST: usize = 10_000;

/// The interquartile range of a normal distribution, in standard deviations.
const NORMAL_RANGE: f64 = 1.349;

/// Returns the smallest shift that a sign-test interval at `confidence` would have resolved for
/// paired differences (logarithms of ratios, or differences). Returns `None` if there are fewer
/// pairs than [`fewest_pairs`].
pub fn paired(differences: &[f64], confidence: f64) -> Option<f64> {
    let sorted = sorted(differences)?;
    let rank = beyond(sorted.len(), confidence)?;
    let middle = quantile(&sorted, 0.5)?;
    let below = middle - sorted[rank - 1];
    let above = sorted[sorted.len() - rank] - middle;
    Some(below.max(above))
}

/// Returns the smallest difference at `confidence` for two groups that are not paired. Returns
/// `None` if there are too few values to show any difference at that confidence.
pub fn unpaired(base: &[f64], new: &[f64], confidence: f64) -> Option<f64> {
    if base.len() < 2 || new.len() < 2 || !reaches(base.len(), new.len(), confidence) {
        return None;
    }
    let ((_, base_spread), (_, new_spread)) = (moments(base)?, moments(new)?);
    let (n, m) = (base.len() as f64, new.len() as f64);
    let pooled = ((n - 1.0) * base_spread.powi(2) + (m - 1.0) * new_spread.powi(2)) / (n + m - 2.0);
    Some(errors(base.len() + new.len(), confidence)? * (pooled * (1.0 / n + 1.0 / m)).sqrt())
}

/// Returns [`ERRORS`] at another confidence, for this number of values in both groups together.
fn errors(values: usize, confidence: f64) -> Option<f64> {
    // Two groups have two degrees of freedom fewer than they have values.
    let student = |confidence| student_factor(values - 1, confidence);
    let power = student(0.9)?;
    Some(ERRORS * (student(confidence)? + power) / (student(CONFIDENCE)? + power))
}

/// Returns the smallest share that would have occurred with a probability of 95 % in all of
/// `invocations`, with `tries` each, if it has never occurred. This is the bound if nothing varies.
pub fn share(tries: usize, invocations: usize) -> Option<f64> {
    let (tries, invocations) = (tries as f64, invocations as f64);
    let none_in_one = 1.0 - 0.95_f64.powf(1.0 / invocations);
    (tries >= 1.0 && invocations >= 1.0).then(|| 1.0 - none_in_one.powf(1.0 / tries))
}

/// Returns the minimum number of pairs for which the smallest difference is known.
pub fn fewest_pairs(confidence: f64) -> usize {
    (1..MOST).find(|&pairs| beyond(pairs, confidence).is_some()).unwrap_or(MOST)
}

/// Returns the number of pairs that resolve `target`, given the spread of a pilot's pairs. The
/// result is at least [`fewest_pairs`].
///
/// The deviation is computed from the quartiles. The error of a median is √(π/2) times that of a
/// mean.
pub fn pairs_for(target: f64, pilot: &[f64], confidence: f64) -> usize {
    let fewest = fewest_pairs(confidence);
    let Some(sorted) = sorted(pilot) else { return fewest };
    let at = |q| quantile(&sorted, q).unwrap_or(0.0);
    let deviation = (at(0.75) - at(0.25)) / NORMAL_RANGE;
    let standard = Normal::standard();
    let errors = standard.inverse_cdf(0.5 + confidence / 2.0) + standard.inverse_cdf(POWER);
    let needed = std::f64::consts::FRAC_PI_2 * (errors * deviation / target).powi(2);
    if needed.is_finite() { (needed.ceil() as usize).clamp(fewest, MOST) } else { MOST }
}

/// Returns the rank, counted from 1, of the order statistic that estimates the smallest shift.
fn beyond(pairs: usize, confidence: f64) -> Option<usize> {
    let (low, _, _) = ranks(pairs, 0.5, confidence)?;
    (1..=low).take_while(|&rank| fewer_than(low, pairs, rank) >= POWER).last()
}

/// Returns the probability that fewer than `low` of `pairs` new values are below the `rank`-th of
/// equally many old values.
fn fewer_than(low: usize, pairs: usize, rank: usize) -> f64 {
    let (n, a) = (pairs as f64, rank as f64);
    let b = n - a + 1.0;
    let term = |i: usize| {
        let x = i as f64;
        (ln_binomial(pairs as u64, i as u64) + ln_beta(x + a, n - x + b) - ln_beta(a, b)).exp()
    };
    (0..low).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::many::each;
    use crate::stats::order::{median, quantile_interval};
    use crate::stats::shift::shift;
    use crate::stats::simulate::{RunSimulator, SampleModel};

    const RUNS: usize = 100;
    /// Minimum number of intervals that hold. At 95 %, 95 are expected, with a deviation of 2.2.
    const ENOUGH: usize = 88;

    /// Draws log ratios of the medians of two fresh invocations each.
    fn pairs(source: &mut RunSimulator, model: SampleModel, count: usize, lift: f64) -> Vec<f64> {
        let mut figure = || median(&source.invocation(model, 0.5, 15)).expect("samples");
        (0..count).map(|_| (figure() / figure()).ln() + lift).collect()
    }

    #[test]
    fn fewest_pairs_grow_with_the_number_of_rows() {
        let fewest: Vec<usize> =
            [1, 5, 50, 200].map(|rows| fewest_pairs(each(0.95, rows))).to_vec();
        assert_eq!(fewest[0], 20);
        assert!(fewest.is_sorted() && fewest[3] < 40, "{fewest:?}");
        assert_eq!(paired(&[0.0; 19], 0.95), None);
        assert_eq!(paired(&[0.0; 20], 0.95), Some(0.0));
    }

    /// Checks the probability that, of two samples of 4, fewer than 2 values of the second are
    /// below the minimum of the first, by counting all orders of 8 values.
    #[test]
    fn fewer_than_agrees_with_direct_counting() {
        let (mut held, mut all) = (0, 0);
        for order in 0_u32..1 << 8 {
            if order.count_ones() != 4 {
                continue;
            }
            all += 1;
            // Bits represent values in ascending order. This counts the values of the second sample
            // before the first value of the first sample.
            let before = (0..8).take_while(|bit| order & (1 << bit) == 0).count();
            held += usize::from(before < 2);
        }
        let counted = f64::from(held as u32) / f64::from(all);
        assert!((fewer_than(2, 4, 1) - counted).abs() < 1e-9, "{counted}");
    }

    /// Simulates the whole second stage, including pilot and correction. Counts how many of its
    /// intervals contain the true value, how many find a shift of the size that it claims to
    /// resolve, and how many find a shift that does not exist.
    #[test]
    fn second_stage_holds_its_error_rates() {
        let models = [SampleModel::Normal, SampleModel::Spikes, SampleModel::ModesBetween];
        for (rows, model) in [1, 10].into_iter().flat_map(|rows| models.map(|model| (rows, model)))
        {
            let confidence = each(0.95, rows);
            let mut source = RunSimulator::new(rows as u64);
            let fewest = fewest_pairs(confidence);
            let (mut held, mut found, mut false_alarms) = (0, 0, 0);
            for _ in 0..RUNS {
                // As in `compare`, this is the number of pairs that the pilot requires, including
                // the pilot's own.
                let mut first = pairs(&mut source, model, fewest, 0.03);
                let count = pairs_for(0.05, &first, confidence).min(100);
                let more = count.saturating_sub(fewest);
                first.extend(pairs(&mut source, model, more, 0.03));
                let interval = quantile_interval(&first, 0.5, confidence).expect("enough");
                held += usize::from(interval.holds(0.03));
                let smallest = paired(&first, confidence).expect("enough");
                let planted = pairs(&mut source, model, count, smallest);
                let again = quantile_interval(&planted, 0.5, confidence).expect("enough");
                found += usize::from(!again.holds(0.0) && again.low > 0.0);
                let equal = pairs(&mut source, model, count, 0.0);
                let equal = quantile_interval(&equal, 0.5, confidence).expect("enough");
                false_alarms += usize::from(!equal.holds(0.0));
            }
            assert!(held >= ENOUGH, "{model:?}, {rows} rows: held {held} of {RUNS}");
            assert!(found >= ENOUGH, "{model:?}, {rows} rows: found {found} of {RUNS}");
            // With ten rows, one in 200 is expected, and three deviations more are allowed.
            let corrected = (0.005 * RUNS as f64 + 3.0 * (0.005 * RUNS as f64).sqrt()).ceil();
            let most = if rows == 1 { RUNS - ENOUGH } else { corrected as usize };
            assert!(false_alarms <= most, "{model:?}, {rows} rows: {false_alarms} of {RUNS}");
        }
    }

    #[test]
    fn screen_finds_its_smallest_resolvable_change() {
        for (model, count, rows) in [
            (SampleModel::Normal, 6, 1),
            (SampleModel::RandomEffect, 10, 1),
            (SampleModel::ModesBetween, 10, 1),
            (SampleModel::Normal, 6, 20),
            (SampleModel::RandomEffect, 10, 200),
            (SampleModel::ModesBetween, 20, 500),
        ] {
            let confidence = each(0.95, rows);
            let mut source = RunSimulator::new(count as u64);
            let mut group = |lift: f64| -> Vec<f64> {
                let mut figure = || median(&source.invocation(model, 0.5, 15)).expect("samples");
                (0..count).map(|_| figure().ln() + lift).collect()
            };
            let found = (0..RUNS).filter(|_| {
                let smallest = unpaired(&group(0.0), &group(0.0), confidence).expect("enough");
                let again = shift(&group(0.0), &group(smallest), confidence).expect("values");
                again.interval.expect("enough").low > 0.0
            });
            let found = found.count();
            assert!(found >= ENOUGH, "{model:?}, {count}, {rows} rows: {found} of {RUNS}");
        }
        let six = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5];
        assert!(unpaired(&six, &six, 0.95) < unpaired(&six, &six, 0.99));
        assert_eq!(unpaired(&six, &six, each(0.95, 100)), None, "whatever the difference");
    }

    #[test]
    fn smaller_target_requires_more_pairs() {
        let mut source = RunSimulator::new(1);
        let pilot = pairs(&mut source, SampleModel::RandomEffect, 20, 0.0);
        let [coarse, fine] = [0.05, 0.01].map(|target| pairs_for(target, &pilot, 0.95));
        assert!(fine > coarse, "{coarse} {fine}");
        assert_eq!(pairs_for(0.0, &pilot, 0.95), MOST);
        assert_eq!(pairs_for(0.01, &[0.0; 20], 0.95), 20, "without variation");
    }

    #[test]
    fn share_without_an_occurrence_is_bounded_by_tries() {
        let six = share(20, 6).expect("tries");
        assert!(six > 0.15 && six < 0.3, "{six}");
        assert!(share(200, 6).expect("tries") < six / 8.0);
        assert_eq!(share(0, 6), None);
    }
}

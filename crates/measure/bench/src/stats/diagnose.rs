//! Reasons to distrust a figure: [`samples`] inside an invocation, [`invocations`] between
//! invocations.
//!
//! These are warnings, not hypothesis tests. Each requires both a rank statistic that chance rarely
//! reaches and a difference that matters in practice ([`MATTERS`]), and each becomes a remark on
//! the figure. A warning changes no figure and drops no sample.

use super::interval::sorted;
use super::mean::moments;
use super::order::{median, quantile};

/// Share of the figure below which drift or a distance between modes is not reported.
pub const MATTERS: f64 = 0.02;

/// Number of invocations below which [`invocations`] often does not notice two modes: of runs with
/// two modes it notices 58 % with 6 and 84 % with 10 (docs/evidence/coverage.md).
pub const FEWEST_FOR_SHAPE: usize = 10;

/// Number of samples below which modes or drift inside an invocation are not examined.
const ENOUGH: usize = 100;
/// Number of stretches into which an invocation is divided to detect drift.
const STRETCHES: usize = 20;
/// Kendall's z above which a trend is reported: two-sided 0.1 % inside, 1 % between invocations.
const TREND_WITHIN: f64 = 3.29;
const TREND_BETWEEN: f64 = 2.576;
/// Ashman's D above which two groups are modes. The halves of a normal distribution have 2.7, those
/// of a uniform distribution 3.5.
const SEPARATION: f64 = 4.5;
/// Maximum number of products that the search for the length of the correlation may compute.
const MOST_PRODUCTS: usize = 100_000_000;

/// Correlation of neighbouring samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dependence {
    /// Correlation at lag 1; 0 if all samples are equal.
    pub autocorrelation: f64,
    /// Number of independent samples to which the samples are equivalent; at most their number.
    pub effective_count: f64,
}

/// Computes the lag-1 correlation. Computes the effective count by Geyer's initial positive
/// sequence, or by the variance of batch means if the correlation is longer than the search may
/// reach. Samples must be finite.
pub fn dependence(samples: &[f64]) -> Dependence {
    let n = samples.len();
    let free = Dependence { autocorrelation: 0.0, effective_count: n as f64 };
    let Some((mean, deviation)) = moments(samples) else {
        return free;
    };
    if n < 3 || deviation <= mean.abs() * 1e-12 {
        return free;
    }
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    let at = |lag: usize| {
        let pairs = samples[lag..].iter().zip(samples);
        pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / variance
    };
    let autocorrelation = at(1);
    let longest = (n / 2).min((MOST_PRODUCTS / n).max(50));
    let (mut time, mut lag, mut ended) = (-1.0, 0, false);
    while lag + 1 < longest {
        let pair = at(lag) + at(lag + 1);
        if pair <= 0.0 {
            ended = true;
            break;
        }
        time += 2.0 * pair;
        lag += 2;
    }
    if !ended {
        let size = n.isqrt();
        let means: Vec<f64> =
            samples.chunks_exact(size).filter_map(|b| Some(moments(b)?.0)).collect();
        let between = moments(&means).map_or(0.0, |(_, s)| s * s);
        time = f64::max(time, size as f64 * between / (deviation * deviation));
    }
    Dependence { autocorrelation, effective_count: n as f64 / time.max(1.0) }
}

/// Returns reasons to distrust the samples of one invocation, which are passed both in order and
/// sorted.
pub(crate) fn samples(in_order: &[f64], sorted: &[f64], dependence: Dependence) -> Vec<String> {
    let n = in_order.len();
    if n < ENOUGH {
        return Vec::new();
    }
    let mut reasons = Vec::new();
    if dependence.effective_count < n as f64 / 10.0 {
        reasons.push(format!(
            "strong autocorrelation: {n} samples are worth {:.0}",
            dependence.effective_count
        ));
    }
    let stretches: Vec<f64> =
        in_order.chunks_exact(n / STRETCHES).take(STRETCHES).filter_map(median).collect();
    if let Some(share) = trend(&stretches, TREND_WITHIN) {
        reasons.push(format!("drift: {:+.1} % from the first to the last quarter", share * 100.0));
    }
    if let Some((low, high, share)) = modes(sorted) {
        reasons.push(format!(
            "two modes: near {} and near {}, {:.0} % in the upper",
            three_digits(low),
            three_digits(high),
            share * 100.0
        ));
    }
    reasons
}

/// Formats a figure inside a sentence: three significant digits.
fn three_digits(value: f64) -> String {
    let behind_the_point = (2.0 - value.abs().max(1e-3).log10().floor()).clamp(0.0, 5.0);
    format!("{value:.0$}", behind_the_point as usize)
}

/// Returns reasons to distrust the figures of one cell's invocations, passed in the order in which
/// the invocations ran: drift, and two modes *between* invocations. Returns an empty list if there
/// are fewer than 6 values or one is not finite. `say` formats a figure with its unit.
pub fn invocations(values: &[f64], say: impl Fn(f64) -> String) -> Vec<String> {
    let mut reasons = Vec::new();
    let Some(sorted) = sorted(values).filter(|sorted| sorted.len() >= 6) else {
        return reasons;
    };
    if let Some(share) = trend(values, TREND_BETWEEN) {
        reasons.push(format!(
            "drift between invocations: {:+.1} % from the first to the last quarter",
            share * 100.0
        ));
    }
    if let Some((low, high, upper)) = groups(&sorted) {
        reasons.push(format!(
            "two modes between invocations: {} near {}, {upper} near {}",
            sorted.len() - upper,
            say(low),
            say(high)
        ));
    }
    reasons
}

/// Returns the change from the first quarter to the last as a share of the median, if Mann and
/// Kendall's trend statistic exceeds `limit` and the change matters.
fn trend(values: &[f64], limit: f64) -> Option<f64> {
    let n = values.len();
    let mut balance = 0_i64;
    for (i, a) in values.iter().enumerate() {
        for b in &values[i + 1..] {
            balance += i64::from(b > a) - i64::from(b < a);
        }
    }
    let spread = (n as f64 * (n as f64 - 1.0) * (2.0 * n as f64 + 5.0) / 18.0).sqrt();
    let z = (balance.abs() as f64 - 1.0) / spread;
    let quarter = n.div_ceil(4);
    let change = median(values.get(n - quarter..)?)? - median(values.get(..quarter)?)?;
    let share = change / median(values)?.abs();
    (z > limit && share.is_finite() && share.abs() > MATTERS).then_some(share)
}

/// Returns the two modes of many sorted samples: their means and the share of the upper mode. The
/// samples are split between the 1st and the 99th percentile, at the point that leaves the least
/// variance inside the groups.
fn modes(sorted: &[f64]) -> Option<(f64, f64, f64)> {
    let n = sorted.len();
    let body = &sorted[n / 100..n - n / 100];
    let middle = quantile(sorted, 0.5)?;
    let total: f64 = body.iter().map(|x| x - middle).sum();
    let (mut below, mut best, mut split) = (0.0, 0.0, 0);
    for (i, pair) in body.windows(2).enumerate() {
        below += pair[0] - middle;
        let left = (i + 1) as f64;
        let right = (body.len() - i - 1) as f64;
        let gain = below * below / left + (total - below).powi(2) / right;
        if pair[0] < pair[1] && gain > best {
            (best, split) = (gain, i + 1);
        }
    }
    let (lower, upper) = body.split_at(split);
    let ((low, s), (high, t)) = (moments(lower)?, moments(upper)?);
    let share = upper.len() as f64 / body.len() as f64;
    let apart = (high - low) * std::f64::consts::SQRT_2 > SEPARATION * (s * s + t * t).sqrt();
    // Two neighbouring ticks of a coarse clock are not modes.
    let tick = body
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .filter(|&gap| gap > middle.abs() * 1e-9)
        .fold(f64::INFINITY, f64::min);
    let matters = high - low > MATTERS * middle.abs() && high - low > 2.5 * tick;
    ((0.1..=0.9).contains(&share) && apart && matters).then_some((low, high, share))
}

/// Returns two groups among few sorted figures: their medians, and the number of figures in the
/// upper group. Each group has at least two figures, and the gap between the groups is wide
/// relative to both.
fn groups(sorted: &[f64]) -> Option<(f64, f64, usize)> {
    let n = sorted.len();
    // With fewer figures, chance separates them more easily, as
    // `normal_invocations_are_rarely_reported` checks.
    let times = match n {
        ..10 => 4.0,
        10..16 => 1.5,
        _ => 1.0,
    };
    (2..=n - 2).find_map(|split| {
        let (lower, upper) = sorted.split_at(split);
        let gap = upper[0] - lower[split - 1];
        let wider = f64::max(lower[split - 1] - lower[0], upper[n - split - 1] - upper[0]);
        let matters = gap > MATTERS * quantile(sorted, 0.5)?.abs();
        (gap > times * wider && matters)
            .then(|| Some((quantile(lower, 0.5)?, quantile(upper, 0.5)?, n - split)))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulate::{RunSimulator, SampleModel};

    fn reasons(model: SampleModel) -> String {
        let series = RunSimulator::new(7).invocation(model, 0.0, 2_000);
        let mut sorted = series.clone();
        sorted.sort_by(f64::total_cmp);
        samples(&series, &sorted, dependence(&series)).join("; ")
    }

    #[test]
    fn disturbed_samples_are_reported_and_calm_ones_are_not() {
        assert_eq!(reasons(SampleModel::Normal), "");
        assert_eq!(reasons(SampleModel::Ticks), "");
        assert!(reasons(SampleModel::Autoregressive(0.99)).contains("strong autocorrelation"));
        assert!(reasons(SampleModel::ModesWithin).contains("two modes"));
        assert!(reasons(SampleModel::PeriodTwo).contains("two modes"));
        let drifting: Vec<f64> = (0..1000).map(|i| 100.0 + f64::from(i) / 100.0).collect();
        assert!(
            samples(&drifting, &drifting, dependence(&drifting)).join(";").contains("drift: +")
        );
    }

    #[test]
    fn effective_count_follows_the_autocorrelation() {
        // The effective count is (1 − φ)/(1 + φ) of the samples, which is a third at φ = 0.5.
        let series = RunSimulator::new(8).invocation(SampleModel::Autoregressive(0.5), 0.0, 30_000);
        let found = dependence(&series);
        assert!((found.autocorrelation - 0.5).abs() < 0.03);
        assert!((found.effective_count / 30_000.0 - 1.0 / 3.0).abs() < 0.05);
        assert_eq!(dependence(&[3.0; 50]).effective_count, 50.0);
        assert_eq!(dependence(&[]).effective_count, 0.0);
    }

    #[test]
    fn drift_and_modes_between_invocations_are_reported() {
        let drift: Vec<f64> = (0..10).map(|i| 100.0 + f64::from(i)).collect();
        assert!(invocations(&drift, three_digits)[0].contains("drift between"));
        let modes = [100.0, 130.0, 101.0, 131.0, 100.5, 130.5, 100.2, 131.1, 130.2, 100.1];
        assert_eq!(
            invocations(&modes, three_digits),
            ["two modes between invocations: 5 near 100, 5 near 130"]
        );
        assert!(invocations(&[100.0; 10], three_digits).is_empty());
        assert!(invocations(&[1.0, f64::NAN, 1.0, 1.0, 1.0, 1.0], three_digits).is_empty());
        assert!(invocations(&[], three_digits).is_empty());
    }

    #[test]
    fn normal_invocations_are_rarely_reported() {
        let mut source = RunSimulator::new(9);
        for n in [6, 10, 20] {
            let flagged = (0..2_000)
                .filter(|_| {
                    let values: Vec<f64> = (0..n).map(|_| 100.0 + 10.0 * source.normal()).collect();
                    !invocations(&values, three_digits).is_empty()
                })
                .count();
            assert!(flagged < 80, "n = {n}: {flagged} of 2000");
        }
    }
}

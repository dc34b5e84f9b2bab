//! Draws runs and counts the intervals that contain the true value: [`all`].

use crate::simulate::{DRIFT, LEVEL, MODES, RunSimulator, SampleModel, TICK};
use tontine_bench::stats::mean::{kalibera_jones, student};
use tontine_bench::stats::order::{median, median_interval, quantile};
use tontine_bench::stats::{diagnose, naive, outliers, ratio};

use super::shared;

/// Number of runs per row.
pub(super) const RUNS: usize = 2_000;
/// Number of samples per invocation.
const SAMPLES: usize = 200;
/// Numbers of invocations of a `--quick` run, a default run, and a `--full` run.
pub(super) const INVOCATIONS: [usize; 3] = [6, 10, 20];
/// Number of invocations drawn to compute a true value that has no closed form.
const TRUTH_INVOCATIONS: usize = 40_000;

/// The methods under test, each of which computes an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Median,
    Mean,
    Trimmed,
    Paired,
    Naive,
}

impl Method {
    pub(super) const ALL: [Self; 5] =
        [Self::Median, Self::Mean, Self::Trimmed, Self::Paired, Self::Naive];
}

/// True values, in the population, of the statistics of an invocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct PopulationValue {
    pub median: f64,
    pub mean: f64,
    pub trimmed: f64,
}

/// The results of one row, which has a model and a number of invocations.
#[derive(Debug)]
pub(super) struct CoverageTrial {
    pub model: SampleModel,
    pub invocations: usize,
    pub truth: PopulationValue,
    /// Number of runs in which each of [`Method::ALL`] contained its true value.
    pub held: [usize; 5],
    /// Number of runs that the diagnosis between invocations marked unstable.
    pub flagged: usize,
    /// Median width of the median's interval ÷ that of Student's interval on the same medians, at
    /// 95 %.
    pub width: f64,
    /// Like `width`, but with Student's interval at the confidence of the order statistics.
    pub width_alike: f64,
}

impl CoverageTrial {
    /// Returns the share of runs in which a method contained its true value.
    pub(super) fn share(&self, method: Method) -> f64 {
        self.held[method as usize] as f64 / RUNS as f64
    }
}

/// The figures of the invocations of one run.
#[derive(Debug, Default)]
struct Figures {
    medians: Vec<f64>,
    means: Vec<f64>,
    trimmed: Vec<f64>,
}

pub(super) fn all() -> Vec<CoverageTrial> {
    let of = |at: usize| of_model(SampleModel::ALL[at], 100 * (at as u64 + 1));
    shared(SampleModel::ALL.len(), of).into_iter().flatten().collect()
}

fn of_model(model: SampleModel, seed: u64) -> Vec<CoverageTrial> {
    let truth = truth(model, seed);
    let rows = INVOCATIONS.iter().zip(seed + 1..);
    rows.map(|(&invocations, seed)| trial(model, invocations, truth, seed)).collect()
}

fn trial(
    model: SampleModel,
    invocations: usize,
    truth: PopulationValue,
    seed: u64,
) -> CoverageTrial {
    let mut source = RunSimulator::new(seed);
    let mut held = [0; 5];
    let mut flagged = 0;
    let mut widths = [vec![], vec![], vec![]];
    for _ in 0..RUNS {
        let run = source.run(model, invocations, SAMPLES);
        let one = figures(&run);
        let other = figures(&source.run(model, invocations, SAMPLES));
        let ratios: Vec<f64> = one.medians.iter().zip(&other.medians).map(|(a, b)| a / b).collect();
        let by_order = median_interval(&one.medians).expect("6 finite medians have an interval");
        let tried = [
            (Some(by_order), truth.median),
            (kalibera_jones(&one.means), truth.mean),
            (kalibera_jones(&one.trimmed), truth.trimmed),
            (ratio::paired(&ratios), 1.0),
            (Some(naive::interval(&run.concat())), truth.mean),
        ];
        for (count, (interval, truth)) in held.iter_mut().zip(tried) {
            *count += usize::from(interval.is_some_and(|interval| interval.holds(truth)));
        }
        flagged +=
            usize::from(!diagnose::invocations(&one.medians, |ns| ns.to_string()).is_empty());
        widths[0].push(by_order.width());
        widths[1].extend(student(&one.medians, 0.95).map(|student| student.width()));
        widths[2].extend(student(&one.medians, by_order.achieved).map(|student| student.width()));
    }
    let [by_order, student, alike] = widths.map(|widths| middle(&widths));
    CoverageTrial {
        model,
        invocations,
        truth,
        held,
        flagged,
        width: by_order / student,
        width_alike: by_order / alike,
    }
}

fn figures(run: &[Vec<f64>]) -> Figures {
    let mut figures = Figures::default();
    for samples in run {
        let mut sorted = samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        figures.medians.extend(quantile(&sorted, 0.5));
        figures.means.push(mean(&sorted));
        figures.trimmed.extend(outliers::trimmed(&sorted).map(|kept| mean(&kept)));
    }
    figures
}

/// Returns the true value of each statistic: by symmetry or in closed form if possible, otherwise
/// from many invocations drawn with a separate seed.
fn truth(model: SampleModel, seed: u64) -> PopulationValue {
    let same = |level| PopulationValue { median: level, mean: level, trimmed: level };
    let closed_mean = match model {
        SampleModel::Normal | SampleModel::Autoregressive(_) | SampleModel::RandomEffect => {
            return same(LEVEL);
        }
        SampleModel::PeriodTwo => return same(LEVEL + MODES / 2.0),
        // The true value is the level at the end of the run, from which the next run starts.
        SampleModel::Drift => return same(LEVEL + DRIFT),
        SampleModel::Spikes => LEVEL * 0.005_f64.exp() * (1.0 + 0.001 * 49.0),
        SampleModel::ModesWithin | SampleModel::ModesBetween => LEVEL + 0.3 * MODES,
        SampleModel::Ticks => LEVEL - TICK / 2.0,
    };
    let drawn = figures(&RunSimulator::new(seed).run(model, TRUTH_INVOCATIONS, SAMPLES));
    PopulationValue {
        median: middle(&drawn.medians),
        mean: closed_mean,
        trimmed: mean(&drawn.trimmed),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn middle(values: &[f64]) -> f64 {
    median(values).expect("simulated values are finite and there are some")
}

//! Counts the intervals of fewer than six invocations that contain the true median: [`all`].

use crate::simulate::RunSimulator;
use tontine_bench::stats::interval::Interval;
use tontine_bench::stats::mean::kalibera_jones;
use tontine_bench::stats::order::median;

use super::claims::LIMIT;
use super::trial::RUNS;

/// Numbers of invocations without an exact interval of the median.
const FEW: [usize; 4] = [2, 3, 4, 5];
/// Standard deviations of the logarithms of the invocations' figures.
const SPREADS: [f64; 3] = [0.05, 0.2, 0.5];

/// The results of one spread and number of invocations, for Student's interval within the limits
/// and for Student's interval of the logarithms.
#[derive(Debug)]
pub(super) struct FewTrial {
    pub spread: f64,
    pub invocations: usize,
    /// Share of the runs in which each interval contained the true median.
    pub held: [f64; 2],
    /// Median of the upper end of each, relative to the true median.
    pub upper: [f64; 2],
    /// Share of the runs in which Student's interval without limits reached below zero.
    pub below_zero: f64,
}

impl FewTrial {
    /// Returns the row in the table of docs/evidence/coverage.md.
    pub(super) fn row(&self) -> String {
        let Self { spread, invocations, held, upper: [upper, upper_logs], .. } = self;
        let [held, logs, below] = [held[0], held[1], self.below_zero].map(|share| 100.0 * share);
        format!(
            "| {spread} | {invocations} | {held:.1} | {logs:.1} | {below:.1} | {upper:.2} | \
             {upper_logs:.2} |"
        )
    }
}

pub(super) fn all() -> Vec<FewTrial> {
    let pairs = SPREADS.into_iter().flat_map(|spread| FEW.map(|few| (spread, few)));
    pairs.zip(20_000_u64..).map(|((spread, few), seed)| trial(spread, few, seed)).collect()
}

fn trial(spread: f64, invocations: usize, seed: u64) -> FewTrial {
    let mut source = RunSimulator::new(seed);
    let (mut held, mut upper, mut below_zero) = ([0; 2], [vec![], vec![]], 0);
    for _ in 0..RUNS {
        let logs: Vec<f64> = (0..invocations).map(|_| spread * source.normal()).collect();
        let figures: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
        let student = |values: &[f64]| kalibera_jones(values).expect("two finite values");
        let (plain, of_logs) = (student(&figures), student(&logs));
        let of_logs = Interval {
            estimate: of_logs.estimate.exp(),
            low: of_logs.low.exp(),
            high: of_logs.high.exp(),
            ..of_logs
        };
        below_zero += usize::from(plain.low < 0.0);
        for (at, interval) in [plain.within((0.0, f64::INFINITY)), of_logs].iter().enumerate() {
            held[at] += usize::from(interval.holds(1.0));
            upper[at].push(interval.high);
        }
    }
    let share = |count: usize| count as f64 / RUNS as f64;
    FewTrial {
        spread,
        invocations,
        held: held.map(share),
        upper: upper.map(|ends| median(&ends).expect("finite ends")),
        below_zero: share(below_zero),
    }
}

/// Returns the statements on few invocations that the trials contradict.
pub(super) fn broken(trials: &[FewTrial]) -> Vec<String> {
    let below = trials.iter().filter(|trial| trial.held[0] < LIMIT);
    let say = |trial: &FewTrial| {
        let FewTrial { spread, invocations, .. } = trial;
        format!("{invocations} invocations, spread {spread}: {:.1} %", 100.0 * trial.held[0])
    };
    below.map(say).collect()
}

//! Draws runs of shares and counts the intervals that contain the true share: [`all`].

use std::thread;

use tontine_bench::stats::interval::{CONFIDENCE, Interval};
use tontine_bench::stats::mean::kalibera_jones;
use tontine_bench::stats::order::{median, median_interval};
use tontine_bench::stats::share::{ShareCount, equivalent_tries, share_interval};
use tontine_bench::stats::simulate::RunSimulator;

use super::claims::LIMIT;
use super::trial::{INVOCATIONS, RUNS};

/// True shares.
pub(super) const SHARES: [f64; 7] = [0.0, 0.001, 0.02, 0.2, 0.5, 0.99, 1.0];
/// Numbers of tries per invocation.
pub(super) const TRIES: [usize; 3] = [20, 200, 10_000];
/// Standard deviations of the share between invocations, relative to the rarer outcome.
pub(super) const VARIATIONS: [(&str, f64); 3] = [("none", 0.0), ("moderate", 0.4), ("strong", 0.7)];

/// Normal quantile of a two-sided interval at 95 %.
const NORMAL: f64 = 1.959_964;

/// The methods under test; the first is the one in use.
pub(super) const METHODS: [(&str, ShareMethod); 5] = [
    ("Korn and Graubard", |counts| share_interval(counts, CONFIDENCE)),
    ("Wilson, of as many equivalent tries", wilson),
    ("Clopper and Pearson, of all tries", binomial),
    ("Student's, of the invocations' shares, within 0 and 1", student),
    ("order statistics of the invocations' shares", |counts| median_interval(&shares(counts))),
];

/// A function that computes the interval of a share.
pub(super) type ShareMethod = fn(&[ShareCount]) -> Option<Interval>;

/// The results of one combination of share, tries, variation and invocations.
#[derive(Debug)]
pub(super) struct ShareTrial {
    pub share: f64,
    pub tries: usize,
    /// Position in [`VARIATIONS`].
    pub variation: usize,
    pub invocations: usize,
    /// Share of the runs in which each of [`METHODS`] contained the true share.
    pub held: [f64; METHODS.len()],
    /// Median width of the interval of each of [`METHODS`].
    pub widths: [f64; METHODS.len()],
}

impl ShareTrial {
    /// Returns `true` if the share cannot vary.
    fn is_constant(&self) -> bool {
        self.share == 0.0 || self.share == 1.0
    }
}

/// Returns all trials; two threads share them.
pub(super) fn all() -> Vec<ShareTrial> {
    let mut asked = Vec::new();
    for share in SHARES {
        for tries in TRIES {
            for variation in 0..VARIATIONS.len() {
                let of = |invocations| (share, tries, variation, invocations);
                asked.extend(INVOCATIONS.map(of));
            }
        }
    }
    let numbered: Vec<_> = asked.into_iter().zip(10_000_u64..).collect();
    let of = |part: usize| -> Vec<ShareTrial> {
        numbered.iter().skip(part).step_by(2).map(|&(asked, seed)| trial(asked, seed)).collect()
    };
    let (even, odd) = thread::scope(|scope| {
        let odd = scope.spawn(|| of(1));
        (of(0), odd.join().expect("the simulation does not panic"))
    });
    let mut odd = odd.into_iter();
    even.into_iter().flat_map(|one| [Some(one), odd.next()]).flatten().collect()
}

fn trial(
    (share, tries, variation, invocations): (f64, usize, usize, usize),
    seed: u64,
) -> ShareTrial {
    let mut source = RunSimulator::new(seed);
    let mut held = [0; METHODS.len()];
    let mut widths = METHODS.map(|_| Vec::with_capacity(RUNS));
    for _ in 0..RUNS {
        let mut draw = || source.hits(share, VARIATIONS[variation].1, tries);
        let counts: Vec<ShareCount> =
            (0..invocations).map(|_| ShareCount { hits: draw(), tries }).collect();
        for (at, (_, method)) in METHODS.iter().enumerate() {
            let interval = method(&counts).expect("there are tries, in six invocations");
            held[at] += usize::from(interval.holds(share));
            widths[at].push(interval.width());
        }
    }
    let held = held.map(|held| held as f64 / RUNS as f64);
    let widths = widths.map(|widths| median(&widths).expect("finite widths"));
    ShareTrial { share, tries, variation, invocations, held, widths }
}

/// Returns the statements on shares that the trials contradict.
pub(super) fn broken(trials: &[ShareTrial]) -> Vec<String> {
    let below = trials.iter().filter(|trial| trial.held[0] < LIMIT);
    let say = |trial: &ShareTrial| {
        let ShareTrial { share, tries, invocations, .. } = trial;
        let (variation, percent) = (VARIATIONS[trial.variation].0, 100.0 * trial.held[0]);
        format!(
            "share {share}, {tries} tries, variation {variation}, {invocations} invocations: \
             {percent:.1} %"
        )
    };
    below.map(say).collect()
}

/// Returns, for each of [`METHODS`], the smallest coverage, the share of trials below [`LIMIT`],
/// and the median of the width relative to the method in use. Trials of a constant share are left
/// out.
pub(super) fn compared(trials: &[ShareTrial]) -> [(f64, f64, f64); METHODS.len()] {
    let varying: Vec<&ShareTrial> = trials.iter().filter(|trial| !trial.is_constant()).collect();
    std::array::from_fn(|at| {
        let least = varying.iter().map(|trial| trial.held[at]).fold(1.0, f64::min);
        let below = varying.iter().filter(|trial| trial.held[at] < LIMIT).count();
        let widths: Vec<f64> =
            varying.iter().map(|trial| trial.widths[at] / trial.widths[0]).collect();
        let width = median(&widths).expect("the method in use has no interval without width");
        (least, below as f64 / varying.len() as f64, width)
    })
}

fn shares(counts: &[ShareCount]) -> Vec<f64> {
    counts.iter().map(|count| count.hits as f64 / count.tries as f64).collect()
}

fn student(counts: &[ShareCount]) -> Option<Interval> {
    Some(kalibera_jones(&shares(counts))?.within((0.0, 1.0)))
}

fn sum(counts: &[ShareCount]) -> ShareCount {
    let add = |all: ShareCount, one: &ShareCount| ShareCount {
        hits: all.hits + one.hits,
        tries: all.tries + one.tries,
    };
    counts.iter().fold(ShareCount { hits: 0, tries: 0 }, add)
}

/// Returns the interval of a single invocation with all tries.
fn binomial(counts: &[ShareCount]) -> Option<Interval> {
    share_interval(&[sum(counts)], CONFIDENCE)
}

fn wilson(counts: &[ShareCount]) -> Option<Interval> {
    let n = equivalent_tries(counts, CONFIDENCE)?;
    let all = sum(counts);
    let share = all.hits as f64 / all.tries as f64;
    let square = NORMAL * NORMAL / n;
    let half = (share * (1.0 - share) * square + square * square / 4.0).sqrt();
    let end = |half: f64| ((share + square / 2.0 + half) / (1.0 + square)).clamp(0.0, 1.0);
    Some(Interval { estimate: share, low: end(-half), high: end(half), achieved: CONFIDENCE })
}

//! Draws runs of shares and counts the intervals that contain the true share: [`all`].

use crate::simulate::RunSimulator;
use tontine_bench::stats::interval::CONFIDENCE;
use tontine_bench::stats::share::{ShareCount, share_interval};

use super::claims::LIMIT;
use super::shared;
use super::trial::{INVOCATIONS, RUNS};

const SHARES: [f64; 7] = [0.0, 0.001, 0.02, 0.2, 0.5, 0.99, 1.0];
/// Numbers of tries per invocation.
const TRIES: [usize; 3] = [20, 200, 10_000];
/// Standard deviations of the share between invocations, relative to the rarer outcome.
const VARIATIONS: [(&str, f64); 3] = [("none", 0.0), ("moderate", 0.4), ("strong", 0.7)];

/// The results of one combination of share, tries, variation and invocations.
#[derive(Debug)]
pub(super) struct ShareTrial {
    pub share: f64,
    pub tries: usize,
    /// Position in [`VARIATIONS`].
    pub variation: usize,
    pub invocations: usize,
    /// Share of the runs in which the interval contained the true share.
    pub held: f64,
}

pub(super) fn all() -> Vec<ShareTrial> {
    let mut requested = Vec::new();
    for share in SHARES {
        for tries in TRIES {
            for variation in 0..VARIATIONS.len() {
                let of = |invocations| (share, tries, variation, invocations);
                requested.extend(INVOCATIONS.map(of));
            }
        }
    }
    shared(requested.len(), |at| trial(requested[at], 10_000 + at as u64))
}

fn trial(
    (share, tries, variation, invocations): (f64, usize, usize, usize),
    seed: u64,
) -> ShareTrial {
    let mut source = RunSimulator::new(seed);
    let held = (0..RUNS).filter(|_| {
        let mut draw = || source.hits(share, VARIATIONS[variation].1, tries);
        let counts: Vec<ShareCount> =
            (0..invocations).map(|_| ShareCount { hits: draw(), tries }).collect();
        share_interval(&counts, CONFIDENCE).expect("there are tries").holds(share)
    });
    let held = held.count() as f64 / RUNS as f64;
    ShareTrial { share, tries, variation, invocations, held }
}

/// Returns the statements on shares that the trials contradict.
pub(super) fn broken(trials: &[ShareTrial]) -> Vec<String> {
    let below = trials.iter().filter(|trial| trial.held < LIMIT);
    let say = |trial: &ShareTrial| {
        let ShareTrial { share, tries, invocations, .. } = trial;
        let (variation, percent) = (VARIATIONS[trial.variation].0, 100.0 * trial.held);
        format!(
            "share {share}, {tries} tries, variation {variation}, {invocations} invocations: \
             {percent:.1} %"
        )
    };
    below.map(say).collect()
}

/// Returns the rows of the table in docs/evidence/coverage.md.
pub(super) fn rows(trials: &[ShareTrial]) -> Vec<String> {
    let row = |row: &[ShareTrial]| {
        let variations = row.chunks(INVOCATIONS.len()).map(|variation| {
            let held = variation.iter().map(|trial| format!("{:.1}", 100.0 * trial.held));
            held.collect::<Vec<_>>().join(", ")
        });
        let variations = variations.collect::<Vec<_>>().join(" | ");
        format!("| {} | {} | {variations} |", row[0].share, row[0].tries)
    };
    trials.chunks(VARIATIONS.len() * INVOCATIONS.len()).map(row).collect()
}

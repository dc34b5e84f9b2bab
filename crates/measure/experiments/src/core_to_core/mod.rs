//! `core-to-core`: the one-way latency of a flag and of a mailbox between every two processors:
//! [`CoreToCore`].
//!
//! The mechanisms and the protocol are those of [`super::round_trip`]; only the placement differs.
//! A round trip crosses a pair of processors in both directions, so each pair is measured once.

use tontine_mechanisms::about::RowKind;

use crate::mechanisms;
use crate::prelude::*;
use crate::round_trip::{self, StampMode};

/// The parameter for the two processors, as in `0-1`.
const PAIR: &str = "pair";
/// The two floors, and the mailbox that is compared with them.
const MEASURED: [&str; 3] = ["flag-one-line", "flag-two-lines", "mailbox-spin"];
/// Maximum number of processors in a quick run, whose pairs number 28.
const FEW: usize = 8;

pub(crate) struct CoreToCore;

impl Experiment for CoreToCore {
    fn facts(&self) -> Facts {
        card!("card.md", |card| {
            let rows = mechanisms::rows_of(card, RowKind::RoundTrip).variants.iter();
            let measured = rows.filter(|row| MEASURED.contains(&row.name)).copied();
            Facts { variants: measured.collect::<Vec<_>>().leak(), ..card }
        })
    }

    fn params(&self, _: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let processors = match size {
            Size::Quick => evenly(topology.processors(), FEW),
            Size::Default | Size::Full => topology.processors().to_vec(),
        };
        let pairs = processors.iter().enumerate().flat_map(|(at, here)| {
            processors[at + 1..].iter().map(move |there| format!("{here}-{there}"))
        });
        pairs.map(|pair| params([(PAIR, &pair)])).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        // A machine of 64 processors has 2,016 pairs.
        size.spinning_rounds() / 20
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let placement = placement_of(&task.params)?;
        let rounds = self.operations(&task.variant, task.size);
        let warm_up = task.size.warm_up(rounds);
        round_trip::measure(&task.variant, rounds, warm_up, placement, StampMode::BatchesOnly)
    }
}

/// Returns at most `most` of the processors, the first and the last included, at even distances.
fn evenly(processors: &[usize], most: usize) -> Vec<usize> {
    let last = processors.len().saturating_sub(1);
    if last < most {
        return processors.to_vec();
    }
    (0..most).map(|at| processors[at * last / (most - 1)]).collect()
}

fn placement_of(params: &Params) -> Result<Placement> {
    let pair = word(params, PAIR);
    let numbers = pair.split_once('-').map(|(here, there)| (here.parse(), there.parse()));
    let Some((Ok(here), Ok(there))) = numbers else {
        bail!("expected a pair of processors such as 0-1, found `{pair}`");
    };
    let allowed = pin::allowed()?;
    match [here, there].iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(Placement { name: PAIR, here, there }),
        Some(cpu) => Err(MeasureError::skip(format!(
            "needs the two processors {here} and {there}; this process may not use {cpu}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_run_measures_at_most_28_pairs() {
        let machine = Topology::of_cores(64);
        let pairs = |size| CoreToCore.params("mailbox-spin", &machine, size).len();
        assert_eq!([Size::Quick, Size::Default].map(pairs), [28, 2016]);
        assert_eq!(evenly(&[0, 1, 2], 8), [0, 1, 2]);
        assert_eq!(evenly(&(0..15).collect::<Vec<_>>(), 8), [0, 2, 4, 6, 8, 10, 12, 14]);
    }

    #[test]
    fn each_variant_yields_one_metric_or_needs_two_processors() {
        let params = CoreToCore.params("", &Topology::of_two_cores(), Size::Quick).remove(0);
        assert_eq!(params[PAIR], "0-1");
        in_a_process_of_its_own(move || {
            for variant in MEASURED {
                let task =
                    InvocationTask::new(CoreToCore.name(), variant, params.clone(), Size::Quick);
                let Some(seen) = unless_skipped(CoreToCore.run(&task), variant) else { continue };
                assert_eq!(metrics(&seen), ["one_way"], "{variant}");
            }
        });
    }

    #[test]
    fn unknown_pair_is_an_error() {
        for pair in ["", "0", "0-", "a-b"] {
            let params = params([(PAIR, pair)]);
            let error = placement_of(&params).expect_err("not a pair").to_string();
            assert!(error.contains("expected a pair of processors such as 0-1"), "{error}");
        }
    }
}

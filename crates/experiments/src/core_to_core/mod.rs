//! `core-to-core`: the one-way latency of a flag and of a mailbox between every two processors:
//! [`CoreToCore`].
//!
//! The mechanisms and the protocol are those of [`super::round_trip`]; only the placement differs.
//! A round trip crosses a pair of processors in both directions, so each pair is measured once.

mod explained;

use std::sync::LazyLock;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;
use tontine_mechanisms::about::Asked;

use crate::mechanisms;
use crate::round_trip::{self, StampMode};

/// The parameter for the two processors, as in `0-1`.
const PAIR: &str = "pair";
/// The two floors, and the mailbox that is compared with them.
const MEASURED: [&str; 3] = ["flag-one-line", "flag-two-lines", "mailbox-spin"];
/// Maximum number of processors in a quick run, whose pairs number 28.
const FEW: usize = 8;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct CoreToCore;

impl Experiment for CoreToCore {
    fn name(&self) -> &'static str {
        "core-to-core"
    }

    fn summary(&self) -> &'static str {
        "What is the one-way latency between every two processors?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| {
            let mut all = mechanisms::variants(Asked::RoundTrip);
            all.retain(|variant| MEASURED.contains(&variant.name));
            all
        });
        &VARIANTS
    }

    fn params(&self, _: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let processors = match size {
            Size::Quick => evenly(topology.processors(), FEW),
            Size::Default | Size::Full => topology.processors().to_vec(),
        };
        let pairs = processors.iter().enumerate().flat_map(|(at, here)| {
            processors[at + 1..].iter().map(move |there| format!("{here}-{there}"))
        });
        pairs.map(|pair| Params::from([(PAIR.to_owned(), pair)])).collect()
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

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let [one_line, two_lines, mailbox] = MEASURED;
        vec![(mailbox, two_lines), (mailbox, one_line), (two_lines, one_line)]
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

/// Returns the placement on the pair of processors that the parameters name.
fn placement_of(params: &Params) -> Result<Placement> {
    let pair = params.get(PAIR).map_or("", String::as_str);
    let numbers = pair.split_once('-').map(|(here, there)| (here.parse(), there.parse()));
    let Some((Ok(here), Ok(there))) = numbers else {
        return Err(MeasureError::fail(format!(
            "expected a pair of processors such as 0-1, found `{pair}`"
        )));
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
    use tontine_host::peer::in_a_process_of_its_own;

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
                let task = InvocationTask {
                    experiment: CoreToCore.name().into(),
                    variant: variant.into(),
                    params: params.clone(),
                    size: Size::Quick,
                };
                match CoreToCore.run(&task) {
                    Ok(seen) => {
                        let names: Vec<&str> =
                            seen.series.iter().map(|series| series.metric.as_str()).collect();
                        if names != ["one_way"] {
                            return Err(format!("{variant}: {names:?}"));
                        }
                    }
                    Err(MeasureError::Skipped(why)) if why.contains("two processors") => {}
                    Err(error) => return Err(format!("{variant}: {error}")),
                }
            }
            Ok(())
        });
    }

    #[test]
    fn unknown_pair_is_an_error() {
        for pair in ["", "0", "0-", "a-b"] {
            let params = Params::from([(PAIR.to_owned(), pair.to_owned())]);
            let error = placement_of(&params).expect_err("not a pair").to_string();
            assert!(error.contains("expected a pair of processors such as 0-1"), "{error}");
        }
    }
}

//! `wake-up`: the one-way latency of a message whose receiver has slept for a while: [`WakeUp`].
//!
//! The mechanisms are the blocking ones of [`super::round_trip`], between two processes; the
//! protocol is that module's `paced`. One invocation measures all pauses, the shortest first; each
//! pause is a separate cell.
//!
//! The sender's own wake-up is not part of the figure, because the sender spins.

mod explained;

use std::sync::LazyLock;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{MeasureError, Result};
use tontine_mechanisms::about::Asked;

use super::round_trip::{self, PauseRun};
use crate::mechanisms;
use crate::placement_of;

/// Number of warm-up messages.
const WARM_UP: usize = 50;
/// The baseline variant.
const BASELINE: &str = "futex";

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct WakeUp;

impl Experiment for WakeUp {
    fn name(&self) -> &'static str {
        "wake-up"
    }

    fn summary(&self) -> &'static str {
        "What is the latency of a message to a process that has slept for a while?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        static EXPLANATION: LazyLock<Explanation> =
            LazyLock::new(|| mechanisms::explained(explained::EXPLANATION, Asked::WakeUp));
        &EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    /// Returns cells with the two ends on two processors and, in a full run, also with both on one.
    /// The pauses are not parameters here, because the samples carry them.
    fn params(&self, _: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let asked: &[&str] = match size {
            Size::Quick | Size::Default => &["cross-core"],
            Size::Full => &["cross-core", "same-core"],
        };
        let all = topology.placements().iter().map(|placement| placement.name);
        let mut names: Vec<&str> = all.filter(|name| asked.contains(name)).collect();
        if !names.contains(&"cross-core") {
            names.insert(0, "cross-core");
        }
        let cell = |name: &str| Params::from([("placement".to_owned(), name.to_owned())]);
        names.into_iter().map(cell).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        // An invocation's time consists mostly of its pauses, so the pauses are counted.
        steps(size).iter().map(|step| step.pause_us as usize * step.messages).sum()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let placement = placement_of(&task.params)?;
        measure(&task.variant, &steps(task.size), WARM_UP, placement)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let others = VARIANTS.iter().map(|variant| variant.name).filter(|name| *name != BASELINE);
        others.map(|name| (name, BASELINE)).collect()
    }
}

/// Returns the pauses, each with as many messages as the time allows.
fn steps(size: Size) -> Vec<PauseRun> {
    let steps: &[(u64, usize)] = match size {
        Size::Quick => &[(1, 150), (100, 50), (10_000, 3)],
        Size::Default => &[(1, 300), (10, 300), (100, 100), (1_000, 20), (10_000, 7)],
        Size::Full => &[(1, 3_000), (10, 3_000), (100, 1_000), (1_000, 300), (10_000, 50)],
    };
    steps.iter().map(|&(pause_us, messages)| PauseRun { pause_us, messages }).collect()
}

/// Measures one series per step.
fn measure(
    variant: &str,
    steps: &[PauseRun],
    warm_up: usize,
    placement: Placement,
) -> Result<Observed> {
    if !VARIANTS.iter().any(|known| known.name == variant) {
        return Err(MeasureError::fail(format!("wake-up has no variant {variant}")));
    }
    let (one_way, notes) = round_trip::one_way_after(variant, steps, warm_up, placement)?;
    let series = steps
        .iter()
        .zip(one_way)
        .map(|(step, samples)| Series::ns("one_way", samples).at("pause_us", step.pause_us))
        .collect();
    Ok(Observed { series, notes, ..Observed::default() })
}

/// The rows to list first: the futex word, and the condition variable built on it.
const FIRST: [&str; 2] = [BASELINE, "condvar"];

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| {
    let mut all = mechanisms::variants(Asked::WakeUp);
    all.sort_by_key(|one| FIRST.iter().position(|name| *name == one.name).unwrap_or(FIRST.len()));
    all
});

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    const FEW: [PauseRun; 2] =
        [PauseRun { pause_us: 1, messages: 10 }, PauseRun { pause_us: 500, messages: 2 }];

    fn every_variant_on(placement: Placement) {
        in_a_process_of_its_own(move || {
            for variant in VARIANTS.iter() {
                let name = variant.name;
                let seen = match measure(name, &FEW, 2, placement) {
                    Ok(seen) => seen,
                    Err(MeasureError::Skipped(_)) => continue,
                    Err(trouble) => return Err(format!("{name}: {trouble}")),
                };
                let found: Vec<_> = seen
                    .series
                    .iter()
                    .map(|series| (series.at["pause_us"].as_str(), series.samples.len()))
                    .collect();
                if found != [("1", 10), ("500", 2)] {
                    return Err(format!("{name}: {found:?}"));
                }
                // The offset of the two counters is known more precisely than the duration of such
                // a message.
                let sums = seen.series.iter().map(|series| series.samples.iter().sum::<f64>());
                if sums.into_iter().any(|sum| sum <= 0.0) {
                    return Err(format!("{name}: {:?}", seen.series));
                }
            }
            Ok(())
        });
    }

    #[test]
    fn every_variant_yields_samples_for_each_pause() {
        every_variant_on(Topology::of_this_machine().placements()[0]);
    }

    #[test]
    fn paced_ends_on_one_processor_make_progress() {
        every_variant_on(Topology::of_this_machine().placement("same-core").expect("one"));
    }

    #[test]
    fn wake_up_mechanisms_are_those_of_round_trip() {
        let known = round_trip::RoundTrip.variants();
        for variant in VARIANTS.iter() {
            assert!(known.iter().any(|other| other.name == variant.name), "{}", variant.name);
        }
    }

    #[test]
    fn spinning_mechanism_is_not_a_wake_up_variant() {
        let placement = Topology::of_this_machine().placements()[0];
        for name in ["flag-one-line", "pigeon"] {
            let found = measure(name, &FEW, 5, placement).expect_err("refused");
            assert!(found.why().contains(name), "{found}");
        }
    }

    #[test]
    fn same_core_is_measured_in_full_runs_only() {
        let topology = Topology::of_this_machine();
        let named = |size| -> Vec<String> {
            let cells = WakeUp.params("pipe", &topology, size);
            cells.into_iter().map(|mut cell| cell.remove("placement").expect("one")).collect()
        };
        assert_eq!(named(Size::Quick), ["cross-core"]);
        assert_eq!(named(Size::Full), ["cross-core", "same-core"]);
    }
}

//! `wake-up`: the one-way latency of a message whose receiver has slept for a while: [`WakeUp`].
//!
//! The mechanisms are the blocking ones of [`super::round_trip`]; the protocol is its `paced`, in
//! which the sender spins. One invocation measures all pauses; each is a separate cell.

use tontine_mechanisms::about::RowKind;

use super::round_trip::{self, PauseRun};
use crate::mechanisms;
use crate::prelude::*;

const WARM_UP: usize = 50;
const BASELINE: &str = "futex";
/// The rows to list first: the futex word, and the condition variable built on it.
const FIRST: [&str; 2] = [BASELINE, "condvar"];

pub(crate) struct WakeUp;

impl Experiment for WakeUp {
    fn facts(&self) -> Facts {
        card!("card.md", |card| {
            let facts = mechanisms::rows_of(card, RowKind::WakeUp);
            let mut variants = facts.variants.to_vec();
            let place = |name| FIRST.iter().position(|first| *first == name);
            variants.sort_by_key(|one| place(one.name).unwrap_or(FIRST.len()));
            Facts { variants: variants.leak(), ..facts }
        })
    }

    /// Returns cells with the two ends on two processors and, in a full run, also with both on one.
    /// The pauses are not parameters here, because the samples carry them.
    fn params(&self, _: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let wanted: &[&str] = match size {
            Size::Quick | Size::Default => &["cross-core"],
            Size::Full => &["cross-core", "same-core"],
        };
        let all = topology.placements().iter().map(|placement| placement.name);
        let mut names: Vec<&str> = all.filter(|name| wanted.contains(name)).collect();
        if !names.contains(&"cross-core") {
            names.insert(0, "cross-core");
        }
        let cell = |name: &str| params([("placement", name)]);
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

fn measure(
    variant: &str,
    steps: &[PauseRun],
    warm_up: usize,
    placement: Placement,
) -> Result<Observed> {
    ensure!(
        WakeUp.variants().iter().any(|known| known.name == variant),
        "wake-up has no variant {variant}"
    );
    let (one_way, notes) = round_trip::one_way_after(variant, steps, warm_up, placement)?;
    let series = steps
        .iter()
        .zip(one_way)
        .map(|(step, samples)| Series::ns("one_way", samples).at("pause_us", step.pause_us))
        .collect();
    Ok(Observed { series, notes, ..Observed::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: [PauseRun; 2] =
        [PauseRun { pause_us: 1, messages: 10 }, PauseRun { pause_us: 500, messages: 2 }];

    fn every_variant_on(placement: Placement) {
        in_a_process_of_its_own(move || {
            for variant in WakeUp.variants() {
                let found = measure(variant.name, &FEW, 2, placement);
                let Some(seen) = unless_skipped(found, variant) else { continue };
                let points = seen.series.iter();
                let points = points.map(|series| (&*series.at["pause_us"], series.samples.len()));
                assert!(points.eq([("1", 10), ("500", 2)]), "{}: {:?}", variant.name, seen.series);
                // The offset of the two counters is known more precisely than the duration of such
                // a message.
                let possible = |series: &Series| series.samples.iter().sum::<f64>() > 0.0;
                assert!(seen.series.iter().all(possible), "{}: {:?}", variant.name, seen.series);
            }
        });
    }

    #[test]
    fn every_variant_yields_samples_for_each_pause() {
        every_variant_on(usual());
    }

    #[test]
    fn paced_ends_on_one_processor_make_progress() {
        every_variant_on(Topology::of_this_machine().placement("same-core").expect("one"));
    }

    #[test]
    fn mechanisms_are_sleeping_ones_of_round_trip() {
        let known = round_trip::RoundTrip.variants();
        for variant in WakeUp.variants().iter() {
            assert!(known.iter().any(|other| other.name == variant.name), "{}", variant.name);
        }
        let found = measure("flag-one-line", &FEW, 5, usual()).expect_err("it spins");
        assert!(found.why().contains("flag-one-line"), "{found}");
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

//! The experiments, one per question: [`SUITE`].
//!
//! Floors, from the bottom up: `headline`, `levels`, `mechanisms`, `modes`, `published`,
//! `told`; `across_machines`, `allocators`, `false_sharing`, `liveness_check`, `round_trip`,
//! `shared_heaps`, `signal_delivery`, `spawn`, `survival`, `thread_vs_process`, `throughput`,
//! `trees`; `builds`, `core_to_core`, `death_notice`, `fork_throughput`, `lost_signals`,
//! `many_senders`, `queue_with_check`, `reentrancy`, `sessions`, `signal_throughput`,
//! `thread_local`, `waiting_cost`, `wake_up`; `as_published`.
//!
//! Each experiment has a folder and implements [`tontine_bench::suite::Experiment`]. It lists its
//! variants and, for one machine, its tasks, and returns the samples of a task in the order in
//! which they were taken. The rows of round trip, throughput, survival and wake-up are the
//! mechanisms of `tontine-mechanisms`, in that crate's order. [`as_published`] contains the
//! sources' own programs, [`published`] the sources' figures.
//!
//! Names are a contract with scripts: experiments and variants may be added, but not renamed. An
//! experiment computes no interval, repeats nothing and prints nothing; `tontine-bench` does all of
//! this.

pub mod across_machines;
pub mod allocators;
pub mod as_published;
pub mod builds;
pub mod core_to_core;
pub mod death_notice;
pub mod false_sharing;
pub mod fork_throughput;
mod headline;
pub(crate) mod levels;
pub mod liveness_check;
pub mod lost_signals;
pub mod many_senders;
mod mechanisms;
mod modes;
pub mod published;
pub mod queue_with_check;
pub mod reentrancy;
pub mod round_trip;
pub mod sessions;
pub mod shared_heaps;
pub mod signal_delivery;
pub mod signal_throughput;
pub mod spawn;
pub mod survival;
pub mod thread_local;
pub mod thread_vs_process;
pub mod throughput;
#[cfg(test)]
mod told;
mod trees;
pub mod waiting_cost;
pub mod wake_up;

use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::suite::Suite;
use tontine_bench::task::Params;
use tontine_host::error::{MeasureError, Result};

/// All experiments, in the order in which they are listed.
pub static SUITE: Suite = Suite {
    experiments: &[
        &round_trip::RoundTrip,
        &core_to_core::CoreToCore,
        &throughput::Throughput,
        &many_senders::ManySenders,
        &across_machines::AcrossMachines,
        &survival::Survival,
        &death_notice::DeathNotice,
        &liveness_check::LivenessCheck,
        &queue_with_check::QueueWithCheck,
        &signal_delivery::SignalDelivery,
        &lost_signals::LostSignals,
        &reentrancy::Reentrancy,
        &wake_up::WakeUp,
        &waiting_cost::WaitingCost,
        &false_sharing::FalseSharing,
        &allocators::Allocators,
        &shared_heaps::SharedHeaps,
        &thread_vs_process::ThreadVsProcess,
        &thread_local::ThreadLocal,
        &builds::Builds,
        &sessions::Sessions,
        &signal_throughput::SignalThroughput,
        &fork_throughput::ForkThroughput,
        &spawn::Spawn,
    ],
    headline: headline::HEADLINE,
    mechanisms: crate::mechanisms::facts,
    published: crate::published::published,
    libraries: tontine_mechanisms::libraries,
    clean_up: tontine_mechanisms::sweep,
    end_run: tontine_host::leftovers::forget_the_run,
};

/// Returns the placement that a cell's parameters name.
///
/// # Errors
/// Returns `Skipped` if this machine has no such placement.
pub(crate) fn placement_of(params: &Params) -> Result<Placement> {
    let name = params.get("placement").map_or("cross-core", String::as_str);
    Topology::of_this_machine().placement(name).ok_or_else(|| match name {
        "cross-core" => MeasureError::skip("needs two processors; this process may use one"),
        _ => MeasureError::skip(format!("this machine has no placement `{name}`")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::engine::plan;
    use tontine_bench::size::Size;
    use tontine_host::os::pin;
    use tontine_host::peer::in_a_process_of_its_own;

    /// Returns `true` if a line of system calls applies to a variant: it contains the variant's
    /// name, `all` or `others`.
    fn covers(variants: &str, name: &str) -> bool {
        ["all", "others"].contains(&variants) || variants.split(", ").any(|one| one == name)
    }

    #[test]
    fn every_explanation_is_complete() {
        for experiment in SUITE.experiments {
            let (name, explained) = (experiment.name(), experiment.explanation());
            assert!(!explained.about.is_empty() && explained.steps.len() >= 2, "{name}");
            let texts = [explained.timing, explained.reading].into_iter();
            let texts = texts.chain(explained.about.iter().copied());
            for text in texts.chain(explained.steps.iter().copied()) {
                assert!(
                    text.len() > 20 && text.ends_with(['.', '?']),
                    "{name}: not a sentence: {text}"
                );
            }
            for variant in experiment.variants() {
                let covered = explained.calls.iter().any(|(of, _)| covers(of, variant.name));
                assert!(covered, "{name}: the system calls of {} are missing", variant.name);
            }
            assert!(explained.calls.iter().all(|(_, calls)| !calls.is_empty()), "{name}");
        }
    }

    /// Checks that the explanation states the source's result if a source's figure is shown next to
    /// ours.
    #[test]
    fn published_figure_is_explained() {
        for experiment in SUITE.experiments {
            let published = experiment.variants().iter().any(|variant| {
                let params = crate::Params::new();
                let metrics = ["one_way", "check"];
                let of = |metric: &&str| {
                    crate::published::published(experiment.name(), variant.name, metric, &params)
                };
                metrics.iter().any(|metric| !of(metric).is_empty())
            });
            assert!(!published || !experiment.explanation().found.is_empty());
        }
    }

    #[test]
    fn headline_names_existing_variants_and_parameters() {
        for cells in SUITE.headline {
            let experiment = SUITE.find(cells.experiment).expect(cells.experiment);
            for name in cells.variants {
                let found = experiment.variants().iter().any(|variant| variant.name == *name);
                // Without the feature `peers`, the peers' variants are missing.
                assert!(found || !cfg!(feature = "peers"), "{}/{name}", cells.experiment);
            }
        }
    }

    #[test]
    #[cfg(feature = "peers")]
    fn machine_facts_name_libzmq() {
        let libraries = SUITE.machine().build.peers.expect("versions of libraries");
        assert!(libraries.contains_key("libzmq"), "{libraries:?}");
    }

    /// Regression: under `taskset -c 0` the cells that need two processors were missing.
    #[test]
    fn cell_of_two_processors_is_skipped_on_one() {
        in_a_process_of_its_own(|| -> std::result::Result<(), String> {
            let allowed = pin::allowed().map_err(|trouble| trouble.to_string())?;
            pin::pin_to(allowed[0]).map_err(|trouble| trouble.to_string())?;
            let on = Topology::of_this_machine();
            let mut skipped = 0;
            for experiment in SUITE.experiments {
                let name = [experiment.name().to_owned()];
                let tasks = plan::select(&SUITE, &name, Size::Quick, &on);
                for task in tasks.map_err(|trouble| trouble.to_string())? {
                    if experiment.params(&task.variant, &on, task.size).contains(&task.params) {
                        continue;
                    }
                    match experiment.run(&task) {
                        Err(MeasureError::Skipped(why)) if why.contains("two processors") => {
                            skipped += 1;
                        }
                        other => return Err(format!("{task}: {other:?}")),
                    }
                }
            }
            if skipped > 20 { Ok(()) } else { Err(format!("{skipped} cells")) }
        });
    }

    /// Checks that each parameter is documented, because scripts read the parameters by name.
    #[test]
    fn every_parameter_is_documented() {
        let page = include_str!("../../../docs/reference/results.md");
        let row = page.lines().find(|line| line.starts_with("| `params` |"));
        let row = row.expect("the row of the parameters");
        let topology = Topology::of_this_machine();
        for experiment in SUITE.experiments {
            for variant in experiment.variants() {
                let cells = experiment.params(variant.name, &topology, Size::Full);
                for name in cells.iter().flat_map(Params::keys) {
                    let (of, tick) = (experiment.name(), format!("`{name}`"));
                    assert!(row.contains(&tick), "{of}: docs/reference/results.md lacks {name}");
                }
            }
        }
    }
}

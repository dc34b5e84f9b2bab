//! The experiments, one per question: [`SUITE`].
//!
//! Floors, from the bottom up: `card`; `prelude`; `headline`, `invocation_tests`, `levels`,
//! `mechanisms`, `modes`, `published`, `strace`; `listed_calls_tests`; `across_machines`,
//! `allocators`, `false_sharing`, `liveness_check`, `round_trip`, `signal_delivery`, `survival`,
//! `thread_vs_process`, `trees`; `shared_heaps`, `throughput`; `builds`, `core_to_core`,
//! `death_notice`, `fork_throughput`, `lost_signals`, `reentrancy`, `sessions`,
//! `signal_throughput`, `thread_local`, `waiting_cost`, `wake_up`; `as_published`.
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

#![allow(missing_docs, reason = "only the commands of this repository use this crate")]

mod across_machines;
mod allocators;
pub mod as_published;
mod builds;
mod card;
mod core_to_core;
mod death_notice;
mod false_sharing;
mod fork_throughput;
mod headline;
#[cfg(test)]
mod invocation_tests;
mod levels;
#[cfg(test)]
mod listed_calls_tests;
mod liveness_check;
mod lost_signals;
mod mechanisms;
mod modes;
mod prelude;
pub mod published;
mod reentrancy;
pub mod round_trip;
mod sessions;
mod shared_heaps;
mod signal_delivery;
mod signal_throughput;
mod strace;
mod survival;
mod thread_local;
mod thread_vs_process;
mod throughput;
mod trees;
mod waiting_cost;
mod wake_up;

use tontine_bench::suite::Suite;

pub static SUITE: Suite = Suite {
    experiments: &[
        &round_trip::RoundTrip,
        &core_to_core::CoreToCore,
        &throughput::Throughput,
        &across_machines::AcrossMachines,
        &survival::Survival,
        &death_notice::DeathNotice,
        &liveness_check::LivenessCheck,
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
    ],
    headline: headline::HEADLINE,
    mechanisms: crate::mechanisms::facts,
    published: crate::published::published,
    libraries: tontine_mechanisms::libraries,
    clean_up: tontine_mechanisms::sweep,
    end_run: tontine_bench::leftovers::forget_the_run,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use tontine_bench::engine::plan;

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
                let params = Params::new();
                let metrics = ["one_way", "check"];
                let of = |metric: &&str| {
                    crate::published::published(experiment.name(), variant.name, metric, &params)
                };
                metrics.iter().any(|metric| !of(metric).is_empty())
            });
            assert!(!published || !experiment.explanation().found.is_empty());
        }
    }

    /// Runs a cell that has the unknown variant or value `pigeon`.
    fn pigeon_is_named(subject: &dyn Experiment, variant: &str, params: Params) {
        let task = InvocationTask::new(subject.name(), variant, params, Size::Quick);
        match subject.run(&task) {
            Err(MeasureError::Failed(why)) if why.contains("pigeon") => {}
            Err(MeasureError::Skipped(why)) if why.contains("two processors") => {}
            other => panic!("{task}: {other:?}"),
        }
    }

    /// Checks this for the first cell of each experiment, except `shared-heaps`, whose parameters
    /// depend on the variant.
    #[test]
    fn unknown_variant_fails_and_is_named() {
        in_a_process_of_its_own(|| {
            let on = Topology::of_this_machine();
            for experiment in SUITE.experiments.iter().filter(|one| one.name() != "shared-heaps") {
                let cells = experiment.params(experiment.variants()[0].name, &on, Size::Quick);
                pigeon_is_named(*experiment, "pigeon", cells.first().cloned().unwrap_or_default());
            }
        });
    }

    #[test]
    fn unknown_value_of_a_parameter_fails_and_is_named() {
        in_a_process_of_its_own(|| {
            for (experiment, variant, name) in [
                ("across-machines", "tcp", "traffic"),
                ("allocators", "glibc", "threads"),
                ("builds", "linux", "builds"),
                ("death-notice", "wait4", "cause"),
                ("false-sharing", "distance", "distance"),
                ("fork-throughput", "linux", "processes"),
                ("lost-signals", "signalfd", "sending"),
                ("reentrancy", "strtok", "from"),
                ("sessions", "pty", "sessions"),
                ("shared-heaps", "glibc", "benchmark"),
                ("shared-heaps", "glibc", "threads"),
                ("signal-delivery", "pidfd", "signal"),
                ("signal-throughput", "linux", "pairs"),
                ("signal-throughput", "linux", "placement"),
                ("thread-local", "mutex", "threads"),
                ("thread-vs-process", "fork", "parent"),
                ("thread-vs-process", "fork", "placement"),
                ("throughput", "pipe", "size"),
                ("throughput", "mailbox-idle", "idle"),
                ("waiting-cost", "mailbox-spin-then-sleep", "spin_us"),
            ] {
                let subject = SUITE.find(experiment).expect(experiment);
                let on = Topology::of_this_machine();
                let mut params = subject.params(variant, &on, Size::Quick).remove(0);
                params.insert(name.into(), "pigeon".into());
                pigeon_is_named(subject, variant, params);
            }
        });
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
        in_a_process_of_its_own(|| {
            pin::pin_to(pin::first().expect("affinity")).expect("a processor");
            let on = Topology::of_this_machine();
            let mut skipped = 0;
            for experiment in SUITE.experiments {
                let name = [experiment.name().to_owned()];
                let tasks = plan::select(&SUITE, &name, Size::Quick, &on).expect("tasks");
                let listed = |task: &InvocationTask| {
                    experiment.params(&task.variant, &on, task.size).contains(&task.params)
                };
                for task in tasks.into_iter().filter(|task| !listed(task)) {
                    let why = experiment.run(&task).expect_err("one processor").to_string();
                    assert!(
                        why.starts_with("skipped: ") && why.contains("two processors"),
                        "{why}"
                    );
                    skipped += 1;
                }
            }
            assert!(skipped > 20, "{skipped} cells");
        });
    }

    /// Checks that each parameter is documented, because scripts read the parameters by name.
    #[test]
    fn every_parameter_is_documented() {
        let page = include_str!("../../../../docs/reference/results.md");
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

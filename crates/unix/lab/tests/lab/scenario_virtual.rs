//! Tests of the examples on a virtual system, under many schedules of the simulated executor, in
//! all modes.

use tontine_unix_lab::scenario::run;
use tontine_unix_sim::{Executor, LockingMode, Virtual};

use crate::examples::examples;
use crate::extent;

/// Number of schedules per example and mode.
const SEEDS: u64 = 10;

/// An example that uses seconds of processor time, which are too many ticks for many schedules.
const COMPUTES: &str = "limits/processor-limit";
/// Examples that use seconds of processor time. In real time they run only if the [`extent`] is
/// full.
const LONG: [&str; 2] = [COMPUTES, "limits/hard-processor-limit-kills"];

/// Asserts that each example that `is_run` admits holds in each mode with each executor.
fn assert_examples_hold(
    modes: &[LockingMode],
    executors: &[Executor],
    is_run: impl Fn(&str) -> bool,
) {
    let mut failed = Vec::new();
    for (name, scenario) in examples().into_iter().filter(|(name, _)| is_run(name)) {
        for &mode in modes {
            for executor in executors {
                let processors = if mode == LockingMode::Uniprocessor { 1 } else { 2 };
                let builder = Virtual::builder().mode(mode).processors(processors);
                let observed = run(&scenario, builder.executor(*executor)).expect("a system");
                if !observed.verdict.holds() {
                    let (verdict, timeline) = (&observed.verdict, &observed.timeline);
                    failed.push(format!("{name}, {mode}, {executor:?}\n{verdict}\n{timeline}"));
                    break;
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[ignore = "explores every example"]
fn every_example_holds_under_every_schedule_in_every_mode() {
    let executors: Vec<_> = (0..SEEDS).map(|seed| Executor::Simulated { seed }).collect();
    assert_examples_hold(&LockingMode::ALL, &executors, |name| name != COMPUTES);
}

#[test]
fn every_example_holds_in_every_mode() {
    let executors = [Executor::Simulated { seed: 1 }];
    assert_examples_hold(&LockingMode::ALL, &executors, |name| name != COMPUTES);
}

#[test]
fn every_example_holds_on_parallel_executor() {
    assert_examples_hold(&[LockingMode::Parallel], &[Executor::Parallel], |name| {
        extent::is_full() || !LONG.contains(&name)
    });
}

#[test]
fn equal_seeds_give_equal_timelines() {
    for (name, scenario) in examples() {
        let observed = || {
            let builder = Virtual::builder().executor(Executor::Simulated { seed: 7 });
            run(&scenario, builder).expect("a system").timeline
        };
        assert_eq!(observed(), observed(), "{name}");
    }
}

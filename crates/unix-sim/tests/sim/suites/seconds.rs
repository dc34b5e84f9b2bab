//! Functions that run rules that take seconds: [`in_seconds`], and [`in_computed_seconds`] for
//! rules that compute for seconds. In real time, each rule runs once on processors and once on
//! Linux, not in every mode.

use crate::extent;
use crate::rules::harness::*;
use crate::systems::{assert_held, of, run};

/// Runs a rule in every mode with the simulated clock, so that sleeping takes no real time, and
/// once in real time.
pub(crate) fn in_seconds(rule: fn(&dyn Sys)) {
    for &mode in extent::modes() {
        virtually(mode, Executor::Simulated { seed: 1 }, rule);
    }
    in_computed_seconds(rule);
}

/// Runs a rule in real time only, because seconds of computation take too many simulated steps.
pub(crate) fn in_computed_seconds(rule: fn(&dyn Sys)) {
    virtually(LockingMode::Parallel, Executor::Parallel, rule);
    let linux = Linux::new().expect("a kernel with pidfds");
    let sys: &dyn Sys = &linux;
    let end = end_as(sys, move |sys| {
        rule(sys);
        0
    });
    assert_eq!(end, WaitStatus::Exited(0), "on Linux");
}

fn virtually(mode: LockingMode, executor: Executor, rule: fn(&dyn Sys)) {
    let report = run(of(mode, executor), move |sys| {
        rule(sys);
        0
    });
    assert_held(&format!("mode {mode}, {executor:?}"), &report);
}

//! Where seconds are long: [`in_real_time`].

use super::harness::*;

/// Runs a rule once on processors and once on Linux: one that computes for seconds, which take the
/// simulated clock too many steps.
pub(crate) fn in_real_time(rule: fn(&dyn Sys)) {
    let unix = Virtual::builder().executor(Executor::Parallel).processors(2).build();
    let report = unix.expect("it goes together").run(move |sys| {
        rule(sys);
        0
    });
    assert_eq!(report.status, Some(Status::Exited(0)), "{report:?}");
    let linux = Linux::new().expect("a kernel with pidfds");
    let sys: &dyn Sys = &linux;
    let end = end_as(sys, move |sys| {
        rule(sys);
        0
    });
    assert_eq!(end, Status::Exited(0));
}

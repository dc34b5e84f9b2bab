//! The systems on which tests run programs ([`of`], [`everywhere`], [`is_included`]) and assertions
//! about a run ([`assert_success`], [`assert_held`]).

use tontine_unix::{Fd, Sys, WaitStatus};
use tontine_unix_sim::{Builder, EndReason, Executor, LockingMode, RunReport, Virtual};

use crate::extent;

/// A program that every backend has and that copies its input to its output until the input ends.
/// [`with_cat`] adds it to a virtual system.
pub(crate) const CAT: &str = "/bin/cat";

/// Maximum number of steps of a simulated run. A run that exceeds it counts as endless.
const MAX_STEPS: u64 = 3_000_000;

/// Returns `true` if tests run on this system. Of all modes, executors and seeds, tests run on
/// three unless the [`extent`] is full: with one processor, with a master, and on real processors.
pub(crate) fn is_included(mode: LockingMode, executor: Executor) -> bool {
    let sampled = match mode {
        LockingMode::Uniprocessor | LockingMode::Master => Executor::Simulated { seed: 1 },
        _ => Executor::Parallel,
    };
    extent::is_full() || executor == sampled
}

/// Iterates over the included systems of every mode and executor, with some seeds of the simulated
/// executor.
pub(crate) fn everywhere() -> impl Iterator<Item = (String, Builder)> {
    let simulated = (0..8).map(|seed| Executor::Simulated { seed });
    let executors: Vec<_> = simulated.chain([Executor::Parallel; 2]).collect();
    let all = LockingMode::ALL
        .into_iter()
        .flat_map(move |mode| executors.clone().into_iter().map(move |executor| (mode, executor)));
    all.filter(|(mode, executor)| is_included(*mode, *executor))
        .map(|(mode, executor)| (format!("{mode}, {executor:?}"), of(mode, executor)))
}

/// Runs a program on each system of [`everywhere`], and asserts success.
#[track_caller]
pub(crate) fn succeeds_everywhere(program: fn(&dyn Sys) -> i32) {
    succeeds_everywhere_with(|system| system, program);
}

/// Like [`succeeds_everywhere`], on systems changed by `change`.
#[track_caller]
pub(crate) fn succeeds_everywhere_with(
    change: impl Fn(Builder) -> Builder,
    program: fn(&dyn Sys) -> i32,
) {
    for (on, system) in everywhere() {
        assert_success(&on, &run(change(system), program));
    }
}

/// Returns a small system with 400 process numbers and 2 processors (1 in mode `Uniprocessor`).
pub(crate) fn of(mode: LockingMode, executor: Executor) -> Builder {
    let processors = if mode == LockingMode::Uniprocessor { 1 } else { 2 };
    let builder = Virtual::builder().mode(mode).processors(processors).executor(executor);
    let builder = builder.pids(400);
    match executor {
        Executor::Simulated { .. } => builder.stop_at(MAX_STEPS),
        Executor::Parallel | Executor::Modelled { .. } => builder,
    }
}

/// Adds [`CAT`] to a system.
pub(crate) fn with_cat(builder: Builder) -> Builder {
    builder.program(CAT, |sys, _| {
        let mut buffer = [0; 512];
        loop {
            match sys.read(Fd::STDIN, &mut buffer) {
                Ok(0) => return 0,
                Ok(n) if sys.write(Fd::STDOUT, &buffer[..n]) == Ok(n) => {}
                _ => return 1,
            }
        }
    })
}

/// Runs a program on a system.
pub(crate) fn run(
    builder: Builder,
    program: impl FnOnce(&dyn Sys) -> i32 + Send + 'static,
) -> RunReport {
    builder.build().expect("a valid configuration").run(program)
}

/// Asserts that the program and all other processes ended with status 0.
#[track_caller]
pub(crate) fn assert_success(on: &str, report: &RunReport) {
    let state = report.state.as_ref().map(ToString::to_string).unwrap_or_default();
    assert_eq!(
        (report.ending, report.status),
        (EndReason::Finished, Some(WaitStatus::Exited(0))),
        "{on}: panicked {:?}, abandoned {}\n{state}",
        report.panicked,
        report.abandoned,
    );
}

/// Asserts success, and that no program of the system panicked, so all assertions in the programs
/// held.
#[track_caller]
pub(crate) fn assert_held(on: &str, report: &RunReport) {
    assert_success(on, report);
    assert_eq!(report.panicked, [], "{on}: an assertion failed");
}

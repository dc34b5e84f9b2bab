//! Lock statistics, which are off unless requested.

use tontine_unix::{Signal, SignalTarget, Sys};
use tontine_unix_sim::{Executor, LockRow, LockStatistics, LockingMode, RunReport};

use crate::children::forked;
use crate::systems::{assert_success, everywhere, of, run};

/// The lock for which forking and waiting processes compete.
const RELATIONS: &str = "proc_relation_lock";

fn row(report: &RunReport, name: &str) -> LockRow {
    let LockStatistics { rows } = report.locks.as_ref().expect("statistics were requested");
    rows.iter().find(|row| row.name == name).expect("each class has a row").clone()
}

/// Forks and waits once.
fn one_child(sys: &dyn Sys) -> i32 {
    forked(sys, |_| 0);
    i32::from(sys.wait().is_err())
}

/// Runs processes that concurrently fork, signal their group and wait.
fn families(sys: &dyn Sys, rounds: usize) -> i32 {
    let family = move |sys: &dyn Sys| {
        for _ in 0..rounds {
            forked(sys, |_| 0);
            sys.kill(SignalTarget::OwnGroup, Some(Signal::CHLD)).expect("the caller exists");
            sys.wait().expect("a child exists");
        }
        0
    };
    for processor in [0, 1, 0, 1] {
        sys.place(Some(processor)).expect("the processor exists");
        forked(sys, family);
    }
    while sys.wait().is_ok() {}
    0
}

#[test]
fn lock_statistics_are_absent_unless_requested() {
    for (on, system) in everywhere() {
        let report = run(system, one_child);
        assert_success(&on, &report);
        assert_eq!(report.locks, None, "{on}");
    }
}

#[test]
fn lock_statistics_are_consistent() {
    for (on, system) in everywhere() {
        let report = run(system.statistics(true), one_child);
        assert_success(&on, &report);
        let locks = report.locks.expect("statistics were requested");
        // Each tick and each fork acquires this lock in every mode.
        let times =
            locks.rows.iter().find(|row| row.name == "u_time_lock").expect("the class exists");
        assert!(times.acquisitions >= 2, "{on}: {times:?}");
        for row in &locks.rows {
            assert!(row.blocked <= row.waited && row.waited <= row.acquisitions, "{on}: {row:?}");
            assert_eq!(row.timed, row.acquisitions, "{on}: {row:?}");
            assert!(row.held_max_ns <= row.held_ns, "{on}: {row:?}");
            assert!(row.held_ns <= row.held_max_ns * row.timed, "{on}: {row:?}");
            assert_eq!(row.held_mean_ns().is_some(), row.timed > 0, "{on}: {row:?}");
        }
    }
}

#[test]
fn lock_omitted_by_the_mode_counts_only_if_kept() {
    for keep in [false, true] {
        let system = of(LockingMode::Uniprocessor, Executor::Simulated { seed: 1 });
        let report = run(system.statistics(true).keep_locks(keep), one_child);
        assert_eq!(row(&report, "p_lock").acquisitions > 0, keep);
        assert!(row(&report, "pg_lock").acquisitions > 0);
    }
}

#[test]
fn simulated_lock_statistics_repeat_for_equal_seeds() {
    let counted = |seed| {
        let system = of(LockingMode::Parallel, Executor::Simulated { seed }).statistics(true);
        let report = run(system, |sys| families(sys, 10));
        assert_success(&format!("seed {seed}"), &report);
        (row(&report, RELATIONS), report.locks)
    };
    let (one, all) = counted(7);
    assert!(one.waited > 0 && one.held_mean_ns() > Some(0.0), "{one:?}");
    assert!((0..100).any(|seed| counted(seed).0.blocked > 0), "no acquisition blocks");
    assert_eq!(counted(7).1, all);
    assert_ne!(counted(8).1, all);
}

#[test]
fn two_processors_contend_for_the_relation_lock() {
    // Contention in one run depends on chance, but some of the 1000 runs must have contention.
    const RUNS: usize = 1000;
    let contended = (0..RUNS).any(|_| {
        let system = of(LockingMode::Parallel, Executor::Parallel).statistics(true);
        let report = run(system, |sys| families(sys, 500));
        assert_success("parallel", &report);
        let row = row(&report, RELATIONS);
        assert!(row.acquisitions >= 2 * 4 * 500, "{row:?}");
        row.waited_percent() > Some(0.0)
    });
    assert!(contended, "no wait for proc_relation_lock in {RUNS} runs");
}

#[test]
fn simulated_lock_holds_take_whole_steps() {
    let system = of(LockingMode::Parallel, Executor::Simulated { seed: 4 }).statistics(true);
    let report = run(system, |sys| families(sys, 10));
    // Other locks are acquired while the relation lock is held, and each acquisition takes a step.
    let relations = row(&report, "proc_relation_lock");
    assert!(relations.held_ns >= 100 * relations.timed, "{relations:?}");
    let rows = report.locks.expect("statistics were requested").rows;
    assert!(rows.iter().all(|row| row.held_ns % 100 == 0), "{rows:?}");
}

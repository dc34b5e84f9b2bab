//! Lock statistics (§9) and the locks that each mode omits.

use tontine_unix::Sys;
use tontine_unix_sim::{
    Builder, Executor, LockRow, LockStatistics, LockingMode, RunReport, Virtual,
};

/// Makes calls that acquire locks of most kinds.
fn busy(sys: &dyn Sys) -> i32 {
    for _ in 0..20 {
        let child = sys.fork(|_| 0).expect("within the limits");
        sys.waitpid(child.into(), Default::default()).expect("a child of the caller");
    }
    0
}

fn run(mode: LockingMode, executor: Executor, change: fn(Builder) -> Builder) -> RunReport {
    let builder = Virtual::builder().mode(mode).executor(executor);
    change(builder).build().expect("a valid configuration").run(busy)
}

fn counted(mode: LockingMode, executor: Executor) -> LockStatistics {
    run(mode, executor, |builder| builder.statistics(true)).locks.expect("statistics are collected")
}

fn row(statistics: &LockStatistics, name: &str) -> LockRow {
    statistics.rows.iter().find(|row| row.name == name).expect("the class exists").clone()
}

#[test]
fn lock_statistics_are_off_by_default() {
    assert_eq!(run(LockingMode::Parallel, Executor::Parallel, |builder| builder).locks, None);
}

#[test]
fn every_lock_hold_is_timed_by_the_executor_clock() {
    for mode in LockingMode::ALL {
        for executor in [Executor::Simulated { seed: 3 }, Executor::Parallel] {
            let statistics = counted(mode, executor);
            for row in &statistics.rows {
                assert_eq!(row.timed, row.acquisitions, "{mode}, {executor:?}: {row:?}");
                assert!(row.held_max_ns <= row.held_ns, "{mode}, {executor:?}: {row:?}");
            }
            assert!(statistics.rows.iter().any(|row| row.acquisitions > 0), "{mode}");
        }
    }
}

#[test]
fn simulated_holds_take_whole_steps_and_repeat() {
    let executor = Executor::Simulated { seed: 4 };
    let statistics = counted(LockingMode::Parallel, executor);
    assert_eq!(statistics, counted(LockingMode::Parallel, executor));
    // Other locks are acquired while the relation lock is held, and each acquisition takes a step.
    let relations = row(&statistics, "proc_relation_lock");
    assert!(relations.held_ns >= 100 * relations.timed, "{relations:?}");
    assert!(statistics.rows.iter().all(|row| row.held_ns % 100 == 0), "{statistics}");
}

#[test]
fn uniprocessor_omits_locks_without_keep_locks() {
    let executor = Executor::Simulated { seed: 5 };
    let without = counted(LockingMode::Uniprocessor, executor);
    let with = run(LockingMode::Uniprocessor, executor, |b| b.statistics(true).keep_locks(true));
    let with = with.locks.expect("statistics are collected");
    for name in ["p_lock", "pid_lock", "proc_relation_lock"] {
        assert_eq!(row(&without, name).acquisitions, 0, "{name}");
        assert!(row(&with, name).acquisitions > 0, "{name}");
    }
    assert!(row(&without, "pg_lock").acquisitions > 0);
}

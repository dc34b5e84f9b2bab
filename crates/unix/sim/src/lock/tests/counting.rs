//! Tests of statistics with known results.

use super::locks;
use crate::LockingMode;
use crate::lock::lock_order::{PLock, PgLock};
use crate::lock::statistics::Acquisition;
use crate::lock::turns::{Turns, Want};
use crate::lock::{
    BlockingLock, HoldClock, LockOptions, LockRow, LockStatistics, Locks, Presence, SimpleLock,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn counted(options: LockOptions) -> Locks {
    locks(LockingMode::Parallel, LockOptions { count: true, ..options })
}

fn row(locks: &Locks, name: &str) -> LockRow {
    let LockStatistics { rows } = locks.statistics().expect("statistics are on");
    rows.into_iter().find(|row| row.name == name).expect("the class exists")
}

#[test]
fn uncounted_locks_have_no_statistics() {
    let uncounted =
        locks(LockingMode::Parallel, LockOptions { explore: false, ..LockOptions::default() });
    assert_eq!(uncounted.statistics(), None);
    // Every acquisition reads this byte anyway, so not counting costs nothing extra.
    assert_eq!((size_of::<Presence>(), uncounted.presence::<PLock>()), (1, Presence::Present));
}

#[test]
fn each_acquisition_is_counted_once() {
    let locks = counted(LockOptions::default());
    let process = SimpleLock::<PLock, ()>::new(1, ());
    let group = BlockingLock::<PgLock, ()>::new(1, ());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..1_000).for_each(|_| drop(process.lock(&locks))));
        }
    });
    drop((group.read(&locks), process.lock(&locks)));
    drop(group.write(&locks));
    assert_eq!(row(&locks, "p_lock").acquisitions, 3_001);
    let group = row(&locks, "pg_lock");
    assert_eq!((group.acquisitions, group.waited, group.blocked), (2, 0, 0));
    assert_eq!(row(&locks, "s_lock").acquisitions, 0);
}

#[test]
fn sleeping_acquisition_counts_as_waited_and_blocked() {
    let locks = counted(LockOptions { busy_turns: 0, ..LockOptions::default() });
    let group = BlockingLock::<PgLock, ()>::new(1, ());
    let held = group.write(&locks);
    thread::scope(|scope| {
        scope.spawn(|| drop(group.write(&locks)));
        while group.queued() != 1 {
            thread::yield_now();
        }
        drop(held);
    });
    let group = row(&locks, "pg_lock");
    assert_eq!((group.acquisitions, group.waited, group.blocked), (2, 1, 1));
}

#[test]
fn acquisition_in_busy_wait_counts_as_waited_only() {
    let locks = counted(LockOptions::default());
    let turns = Turns::new();
    // Simulates a lock that was released just after the first attempt failed.
    let acquisition = turns.wait(Want::Read, 1);
    assert_eq!(acquisition, Acquisition::Waited);
    locks.acquired::<PgLock>(acquisition);
    let group = row(&locks, "pg_lock");
    assert_eq!((group.acquisitions, group.waited, group.blocked), (1, 1, 0));
}

#[test]
fn hold_times_use_given_clock() {
    static NOW_NS: AtomicU64 = AtomicU64::new(0);
    let clock = HoldClock::new(|| NOW_NS.load(Ordering::Relaxed));
    let locks = counted(LockOptions { hold_clock: Some(clock), ..LockOptions::default() });
    let process = SimpleLock::<PLock, ()>::new(1, ());
    let group = BlockingLock::<PgLock, ()>::new(1, ());
    for ns in [100, 300] {
        let held = (group.read(&locks), process.lock(&locks));
        NOW_NS.fetch_add(ns, Ordering::Relaxed);
        drop(held);
    }
    for name in ["p_lock", "pg_lock"] {
        let row = row(&locks, name);
        assert_eq!((row.timed, row.held_ns, row.held_max_ns), (2, 400, 300), "{name}");
        assert_eq!(row.held_mean_ns(), Some(200.0));
    }
}

#[test]
fn statistics_table_matches_paper_format() {
    let row = LockRow {
        name: "proc_relation_lock",
        acquisitions: 10_000,
        waited: 190,
        blocked: 19,
        timed: 10_000,
        held_ns: 1_234_567,
        held_max_ns: 4_000,
    };
    let unused = LockRow { name: "s_lock", acquisitions: 0, ..row.clone() };
    let untimed = LockRow { name: "p_lock", waited: 0, blocked: 0, timed: 0, ..row.clone() };
    let expected = "\
lock                  acquisitions  waited %   blocked %  mean hold ns   max hold ns
proc_relation_lock           10000      1.90       10.00           123          4000
p_lock                       10000      0.00           -             -             -
";
    assert_eq!(LockStatistics { rows: vec![row, unused, untimed] }.to_string(), expected);
}

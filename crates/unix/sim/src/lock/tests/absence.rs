//! Tests of locks that a mode omits.

use super::{locks, panic_of};
use crate::LockingMode;
use crate::held::InterruptLevel;
use crate::lock::lock_order::{ORDER, PLock};
use crate::lock::{BlockingLock, LockOptions, Presence, SimpleLock};
use std::thread;

#[test]
fn uniprocessor_keeps_only_group_locks_at_base_spl() {
    let base = ORDER.iter().filter(|row| row.spl == InterruptLevel::Base);
    let kept = base.filter(|row| row.exists_in(LockingMode::Uniprocessor));
    assert_eq!(kept.map(|row| row.name).collect::<Vec<_>>(), ["pgrphash_lock", "pg_lock"]);
}

#[test]
fn parallel_mode_omits_no_lock() {
    assert!(ORDER.iter().all(|row| row.exists_in(LockingMode::Parallel)));
}

#[test]
fn locks_taken_by_tick_exist_in_every_mode() {
    let mut high = ORDER.iter().filter(|row| row.spl == InterruptLevel::High);
    assert!(high.all(|row| row.exists == [true; 3]));
}

#[test]
fn keep_all_option_keeps_absent_locks() {
    let kept =
        locks(LockingMode::Uniprocessor, LockOptions { keep_all: true, ..LockOptions::default() });
    assert_eq!(kept.presence::<PLock>(), Presence::Counted);
    let left_out = locks(LockingMode::Uniprocessor, LockOptions::default());
    assert_eq!(left_out.presence::<PLock>(), Presence::Absent);
}

#[test]
fn absent_simple_lock_refuses_second_holder() {
    let locks = locks(LockingMode::Uniprocessor, LockOptions::default());
    let lock = SimpleLock::<PLock, u64>::new(3, 0);
    *lock.lock(&locks) += 1;
    let held = lock.lock(&locks);
    assert_eq!(*held, 1);
    // From the lock's point of view, this thread is another fiber of the same processor.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(
                panic_of(|| drop(lock.lock(&locks))),
                "p_lock 3 is already held: mode uniprocessor omits it because no two threads can \
                 reach it"
            );
        });
    });
    drop(held);
    assert_eq!(*lock.lock(&locks), 1);
}

#[test]
fn absent_blocking_lock_admits_readers_or_one_writer() {
    let locks = locks(LockingMode::Uniprocessor, LockOptions::default());
    let lock = BlockingLock::<PLock, u64>::new(4, 0);
    let text = "p_lock 4 is already held: mode uniprocessor omits it because no two threads can \
                reach it";
    let elsewhere = |body: &(dyn Fn() + Sync)| {
        thread::scope(|scope| {
            scope.spawn(body);
        });
    };
    let writer = lock.write(&locks);
    elsewhere(&|| assert_eq!(panic_of(|| drop(lock.read(&locks))), text));
    elsewhere(&|| assert_eq!(panic_of(|| drop(lock.write(&locks))), text));
    drop(writer);
    let reader = lock.read(&locks);
    elsewhere(&|| assert_eq!(*lock.read(&locks), 0));
    elsewhere(&|| assert_eq!(panic_of(|| drop(lock.write(&locks))), text));
    drop(reader);
    *lock.write(&locks) = 1;
    assert_eq!(*lock.read(&locks), 1);
}

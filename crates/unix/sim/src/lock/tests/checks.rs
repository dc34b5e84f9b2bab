//! The checks of each acquisition in builds with debug assertions.

use super::{locks, panic_of, parallel};
use crate::LockingMode;
use crate::held::{self, HeldLock, InterruptLevel, PerFiber, assert_may_park};
use crate::lock::lock_order::{PLock, PgLock, PgRefLock, TLock, UTimeLock};
use crate::lock::spl::{self, splhigh};
use crate::lock::{BlockingLock, LockClass, LockOptions, SimpleLock};
use std::panic::Location;

#[test]
fn lock_out_of_order_panics_with_both_names() {
    let locks = parallel();
    let count = SimpleLock::<PgRefLock, ()>::new(9, ());
    let process = SimpleLock::<PLock, ()>::new(7, ());
    let line = line!() + 1;
    let held = count.lock(&locks);
    let text = panic_of(|| drop(process.lock(&locks)));
    let expected = format!(
        "lock order: p_lock 7 (rank 6) must not be taken while pg_ref_lock 9 (rank 8) is held, \
         taken at {}:{line}:22",
        file!()
    );
    assert_eq!(text, expected);
    drop(held);
    drop(process.lock(&locks));
}

#[test]
fn order_check_covers_every_held_lock() {
    let locks = parallel();
    let count = SimpleLock::<PgRefLock, ()>::new(1, ());
    let terminal = SimpleLock::<TLock, ()>::new(2, ());
    let first = count.lock(&locks);
    // The last record has a lower rank, so a check of the last record alone would pass.
    let last = held::note(HeldLock {
        rank: PLock::RANK,
        name: PLock::NAME,
        spl: InterruptLevel::Base,
        blocking: false,
        instance: 7,
        at: Location::caller(),
        waits: false,
    });
    let text = panic_of(|| drop(terminal.lock(&locks)));
    assert!(text.contains("t_lock 2 (rank 7)"), "{text}");
    assert!(text.contains("while pg_ref_lock 1 (rank 8)"), "{text}");
    drop(first);
    drop(terminal.lock(&locks));
    held::forget(last);
}

#[test]
fn refused_lock_is_not_held() {
    let locks = parallel();
    let count = SimpleLock::<PgRefLock, ()>::new(1, ());
    let process = SimpleLock::<PLock, ()>::new(7, ());
    let held = count.lock(&locks);
    let _ = panic_of(|| drop(process.lock(&locks)));
    drop(held);
    assert_may_park();
}

#[test]
fn second_acquisition_of_same_lock_panics() {
    let locks = parallel();
    let group = BlockingLock::<PgLock, ()>::new(3, ());
    let held = group.read(&locks);
    let text = panic_of(|| drop(group.read(&locks)));
    let rank = PgLock::RANK;
    let refused = format!("lock order: pg_lock 3 (rank {rank}) must not be taken while pg_lock 3");
    assert!(text.starts_with(&refused), "{text}");
    assert!(text.ends_with(": it is the same lock"), "{text}");
    drop(held);
}

#[test]
fn second_lock_of_same_rank_panics() {
    let locks = parallel();
    let one = SimpleLock::<PLock, ()>::new(1, ());
    let two = SimpleLock::<PLock, ()>::new(2, ());
    let held = one.lock(&locks);
    let text = panic_of(|| drop(two.lock(&locks)));
    assert!(text.ends_with(": two of a rank are taken by lock_both"), "{text}");
    drop(held);
}

#[test]
fn sleep_with_simple_lock_panics() {
    let locks = parallel();
    let group = BlockingLock::<PgLock, ()>::new(1, ());
    let process = SimpleLock::<PLock, ()>::new(7, ());
    let sleeper = group.read(&locks);
    assert_may_park();
    let spinner = process.lock(&locks);
    let text = panic_of(assert_may_park);
    assert!(
        text.starts_with("a fiber must not sleep while it holds p_lock 7, taken at "),
        "{text}"
    );
    drop((spinner, sleeper));
    assert_may_park();
}

#[test]
fn held_locks_follow_fiber() {
    let locks = parallel();
    let count = SimpleLock::<PgRefLock, ()>::new(9, ());
    let process = SimpleLock::<PLock, ()>::new(7, ());
    let mut other = PerFiber::new();
    let held = count.lock(&locks);
    // The other fiber starts, takes a lock with a lower rank, and stops.
    other.exchange();
    let held_by_other = process.lock(&locks);
    other.exchange();
    let text = panic_of(|| drop(process.lock(&locks)));
    assert!(text.contains("while pg_ref_lock 9"), "{text}");
    drop(held);
    other.exchange();
    drop(held_by_other);
    assert_may_park();
    other.exchange();
    assert_may_park();
}

#[test]
fn tick_taking_base_spl_lock_panics() {
    let locks = parallel();
    let process = SimpleLock::<PLock, ()>::new(1, ());
    let _tick = spl::tick();
    assert_eq!(
        panic_of(|| drop(process.lock(&locks))),
        "spl: p_lock is taken at base spl elsewhere, so a tick must not take it"
    );
}

#[test]
fn tick_may_take_absent_lock_of_base_spl() {
    let locks = locks(LockingMode::Uniprocessor, LockOptions::default());
    let process = SimpleLock::<PLock, u32>::new(1, 7);
    let _tick = spl::tick();
    assert_eq!(*process.lock(&locks), 7);
}

#[test]
fn high_spl_lock_taken_at_base_spl_panics() {
    let locks = parallel();
    let time = SimpleLock::<UTimeLock, ()>::new(1, ());
    assert_eq!(
        panic_of(|| drop(time.lock(&locks))),
        "spl: u_time_lock is always taken at high spl, and this is base"
    );
    let _spl = splhigh();
    drop(time.lock(&locks));
}

#[test]
fn tick_at_high_spl_panics() {
    let _spl = splhigh();
    assert!(panic_of(|| drop(spl::tick())).contains("spl: a tick landed at high spl"));
}

#[test]
fn lowering_spl_with_high_spl_lock_held_panics() {
    let locks = parallel();
    let time = SimpleLock::<UTimeLock, ()>::new(5, ());
    let spl = splhigh();
    let held = time.lock(&locks);
    let text = panic_of(|| drop(spl));
    assert!(text.starts_with("spl: back to base while u_time_lock 5 is held, taken at "), "{text}");
    drop(held);
}

#[test]
fn sleep_at_high_spl_panics() {
    let locks = parallel();
    let group = BlockingLock::<PgLock, ()>::new(1, ());
    let _spl = splhigh();
    assert!(panic_of(assert_may_park).contains("spl: a fiber must not sleep at high spl"));
    assert!(panic_of(|| drop(group.read(&locks))).contains("spl: a fiber must not sleep"));
}

//! The interrupt priority level. What is an error is checked in builds with debug assertions.

use super::{panic_of, parallel};
use crate::lock::lock_order::{EventLock, PLock, PgLock, UTimeLock};
use crate::lock::spl::{self, Level, splhigh};
use crate::lock::{PerFiber, RwLock, SimpleLock, assert_may_park};
use std::cell::Cell;

#[test]
fn the_level_comes_back_when_the_outermost_guard_goes() {
    assert_eq!(spl::level(), Level::Base);
    let outer = splhigh();
    let inner = splhigh();
    assert_eq!(spl::level(), Level::High);
    drop(inner);
    assert_eq!(spl::level(), Level::High);
    drop(outer);
    assert_eq!(spl::level(), Level::Base);
}

#[test]
fn what_was_held_back_is_delivered_when_the_level_comes_back_to_base() {
    thread_local!(static DELIVERED: Cell<u32> = const { Cell::new(0) });
    spl::on_lowered(|| DELIVERED.set(DELIVERED.get() + 1));
    let outer = splhigh();
    drop(splhigh());
    assert_eq!(DELIVERED.get(), 0);
    drop(outer);
    assert_eq!(DELIVERED.get(), 1);
}

#[test]
fn a_tick_takes_the_locks_of_high_spl() {
    let locks = parallel();
    let time = SimpleLock::<UTimeLock, u64>::new(1, 0);
    let events = SimpleLock::<EventLock, u64>::new(0, 0);
    let process = SimpleLock::<PLock, ()>::new(1, ());
    // It lands while a lock of base spl is held.
    let held = process.lock(&locks);
    let tick = spl::tick();
    let mut used = time.lock(&locks);
    *used += 1;
    *events.lock(&locks) += 1;
    drop(used);
    drop(tick);
    drop(held);
    assert!(!spl::in_tick());
}

#[cfg(debug_assertions)]
#[test]
fn a_tick_that_takes_a_lock_of_base_spl_is_an_error() {
    let locks = parallel();
    let process = SimpleLock::<PLock, ()>::new(1, ());
    let _tick = spl::tick();
    assert_eq!(
        panic_of(|| drop(process.lock(&locks))),
        "spl: p_lock is taken at base spl elsewhere, so a tick must not take it"
    );
}

#[cfg(debug_assertions)]
#[test]
fn a_lock_of_high_spl_taken_at_base_is_an_error() {
    let locks = parallel();
    let time = SimpleLock::<UTimeLock, ()>::new(1, ());
    assert_eq!(
        panic_of(|| drop(time.lock(&locks))),
        "spl: u_time_lock is always taken at high spl, and this is base"
    );
    let _spl = splhigh();
    drop(time.lock(&locks));
}

#[cfg(debug_assertions)]
#[test]
fn a_tick_at_high_spl_is_an_error() {
    let _spl = splhigh();
    assert!(panic_of(|| drop(spl::tick())).contains("spl: a tick landed at high spl"));
}

#[cfg(debug_assertions)]
#[test]
fn the_level_does_not_come_back_while_a_lock_of_high_spl_is_held() {
    let locks = parallel();
    let time = SimpleLock::<UTimeLock, ()>::new(5, ());
    let spl = splhigh();
    let held = time.lock(&locks);
    let text = panic_of(|| drop(spl));
    assert!(text.starts_with("spl: back to base while u_time_lock 5 is held, taken at "), "{text}");
    drop(held);
}

#[cfg(debug_assertions)]
#[test]
fn nobody_sleeps_at_high_spl() {
    let locks = parallel();
    let group = RwLock::<PgLock, ()>::new(1, ());
    let _spl = splhigh();
    assert!(panic_of(assert_may_park).contains("spl: a fiber must not sleep at high spl"));
    assert!(panic_of(|| drop(group.read(&locks))).contains("spl: a fiber must not sleep"));
}

#[test]
fn a_fiber_that_is_interrupted_keeps_its_level() {
    let mut other = PerFiber::new();
    let spl = splhigh();
    other.exchange();
    assert_eq!(spl::level(), Level::Base);
    other.exchange();
    assert_eq!(spl::level(), Level::High);
    drop(spl);
    assert_eq!(spl::level(), Level::Base);
}

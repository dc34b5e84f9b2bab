//! Tests of the interrupt priority level.

use super::parallel;
use crate::held::{self, InterruptLevel, PerFiber};
use crate::lock::SimpleLock;
use crate::lock::lock_order::{EventLock, PLock, UTimeLock};
use crate::lock::spl::{self, splhigh};

#[test]
fn outermost_spl_guard_restores_base_level() {
    assert_eq!(spl::level(), InterruptLevel::Base);
    let outer = splhigh();
    let inner = splhigh();
    assert_eq!(spl::level(), InterruptLevel::High);
    drop(inner);
    assert_eq!(spl::level(), InterruptLevel::High);
    drop(outer);
    assert_eq!(spl::level(), InterruptLevel::Base);
}

#[test]
fn tick_may_take_high_spl_locks() {
    let locks = parallel();
    let time = SimpleLock::<UTimeLock, u64>::new(1, 0);
    let events = SimpleLock::<EventLock, u64>::new(0, 0);
    let process = SimpleLock::<PLock, ()>::new(1, ());
    // The tick occurs while a lock that is taken at base spl is held.
    let held = process.lock(&locks);
    let tick = spl::tick();
    let mut used = time.lock(&locks);
    *used += 1;
    *events.lock(&locks) += 1;
    drop(used);
    drop(tick);
    drop(held);
    assert!(!held::state().in_tick);
}

#[test]
fn interrupted_fiber_keeps_its_level() {
    let mut other = PerFiber::new();
    let spl = splhigh();
    other.exchange();
    assert_eq!(spl::level(), InterruptLevel::Base);
    other.exchange();
    assert_eq!(spl::level(), InterruptLevel::High);
    drop(spl);
    assert_eq!(spl::level(), InterruptLevel::Base);
}

//! A program of a pair that differs in one line: see `tests/sim/lock_order.rs`.

#![allow(warnings)]

include!("world.inc");

fn nested<'a>(
    process: &'a SimpleLock<PLock, ()>,
    time: &'a SimpleLock<UTimeLock, ()>,
    locks: &'a Locks,
) {
    drop(time.lock(locks).then_lock(process));
}

fn main() {}

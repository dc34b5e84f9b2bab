//! A program of a pair that differs in one line: see `tests/sim/lock_order.rs`.

#![allow(warnings)]

include!("world.inc");

fn taken<'a>(one: &'a SimpleLock<PLock, ()>, other: &'a SimpleLock<PLock, ()>, locks: &'a Locks) {
    drop(one.lock(locks).then_lock(other));
}

fn main() {}

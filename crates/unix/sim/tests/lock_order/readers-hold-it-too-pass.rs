//! A program of a pair that differs in one line: see `tests/sim/lock_order.rs`.

#![allow(warnings)]

include!("world.inc");

fn nested<'a>(
    group: &'a BlockingLock<PgLock, ()>,
    process: &'a SimpleLock<PLock, ()>,
    locks: &'a Locks,
) {
    drop(group.read(locks).then_lock(process));
}

fn main() {}

//! A program of a pair that differs in one line: see `tests/sim/lock_order.rs`.

#![allow(warnings)]

include!("world.inc");

type Inner = PgRefLock;

fn nested<'a>(outer: &SimpleGuard<'a, PLock, ()>, inner: &'a SimpleLock<Inner, ()>) {
    drop(outer.then_lock(inner));
}

fn main() {}

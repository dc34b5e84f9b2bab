//! A program of a pair that differs in one line: see `tests/sim/lock_order.rs`.

#![allow(warnings)]

include!("world.inc");

type Outer = PgLock;

fn nested<'a>(outer: &ReadGuard<'a, Outer, ()>, inner: &'a BlockingLock<ProcRelationLock, ()>) {
    drop(outer.then_write(inner));
}

fn main() {}

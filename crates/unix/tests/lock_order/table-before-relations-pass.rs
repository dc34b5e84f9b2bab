#![allow(warnings)]

include!("world.rs");

type Outer = PgrphashLock;

fn nested<'a>(outer: &ReadGuard<'a, Outer, ()>, inner: &'a BlockingLock<ProcRelationLock, ()>) {
    drop(outer.then_write(inner));
}

fn main() {}

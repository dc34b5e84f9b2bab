#![allow(warnings)]

include!("world.rs");

type Inner = PidLock;

fn nested<'a>(outer: &SimpleGuard<'a, PLock, ()>, inner: &'a SimpleLock<Inner, ()>) {
    drop(outer.then_lock(inner));
}

fn main() {}

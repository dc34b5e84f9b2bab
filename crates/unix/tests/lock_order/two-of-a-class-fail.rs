#![allow(warnings)]

include!("world.rs");

fn taken<'a>(one: &'a SimpleLock<PLock, ()>, other: &'a SimpleLock<PLock, ()>, locks: &'a Locks) {
    drop(one.lock(locks).then_lock(other));
}

fn main() {}

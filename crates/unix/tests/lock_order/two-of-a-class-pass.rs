#![allow(warnings)]

include!("world.rs");

fn taken<'a>(one: &'a SimpleLock<PLock, ()>, other: &'a SimpleLock<PLock, ()>, locks: &'a Locks) {
    drop(lock_both(one, other, locks));
}

fn main() {}

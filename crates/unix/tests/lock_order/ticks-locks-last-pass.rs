#![allow(warnings)]

include!("world.rs");

fn nested<'a>(
    process: &'a SimpleLock<PLock, ()>,
    time: &'a SimpleLock<UTimeLock, ()>,
    locks: &'a Locks,
) {
    drop(process.lock(locks).then_lock(time));
}

fn main() {}

#![allow(warnings)]

include!("world.rs");

fn nested<'a>(
    process: &'a SimpleLock<PLock, ()>,
    time: &'a SimpleLock<UTimeLock, ()>,
    locks: &'a Locks,
) {
    drop(time.lock(locks).then_lock(process));
}

fn main() {}

#![allow(warnings)]

include!("world.rs");

fn nested<'a>(
    group: &'a BlockingLock<PgLock, ()>,
    process: &'a SimpleLock<PLock, ()>,
    locks: &'a Locks,
) {
    drop(group.read(locks).then_lock(process));
}

fn main() {}

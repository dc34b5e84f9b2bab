#![allow(warnings)]

include!("world.rs");

fn nested<'a>(
    group: &'a BlockingLock<PgLock, ()>,
    process: &'a SimpleLock<PLock, ()>,
    locks: &'a Locks,
) {
    drop(process.lock(locks).then_read(group));
}

fn main() {}

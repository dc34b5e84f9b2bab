//! Tests of blocking locks.

use super::{locks, parallel};
use crate::LockingMode;
use crate::lock::lock_order::PgLock;
use crate::lock::{BlockingLock, LockOptions, Locks, lock_both};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

type Group<T> = BlockingLock<PgLock, T>;

/// Returns locks whose waiters sleep immediately.
fn impatient() -> Locks {
    locks(LockingMode::Parallel, LockOptions { busy_turns: 0, ..LockOptions::default() })
}

/// Waits until `count` fibers sleep in the queue of `lock`.
fn until_queued<T>(lock: &Group<T>, count: usize) {
    while lock.queued() != count {
        thread::yield_now();
    }
}

fn readers_see_whole_writes(locks: &Locks) {
    let lock = Group::new(1, (0_u64, 0_u64));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let mut value = lock.write(locks);
                    value.0 += 1;
                    value.1 += 1;
                }
            });
            scope.spawn(|| {
                for _ in 0..5_000 {
                    let value = lock.read(locks);
                    assert_eq!(value.0, value.1);
                }
            });
        }
    });
    assert_eq!(*lock.read(locks), (15_000, 15_000));
}

#[test]
fn readers_see_no_torn_write_when_waiters_busy_wait() {
    readers_see_whole_writes(&parallel());
}

#[test]
fn readers_see_no_torn_write_when_waiters_sleep() {
    readers_see_whole_writes(&impatient());
}

#[test]
fn readers_share_blocking_lock() {
    let locks = impatient();
    let lock = Group::new(1, 5);
    let held = lock.read(&locks);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*lock.read(&locks), 5)).join().expect("a second reader");
    });
    assert_eq!(*held, 5);
}

#[test]
fn waiting_writer_precedes_later_readers() {
    let locks = impatient();
    let lock = Group::new(1, ());
    let order = Mutex::new(Vec::new());
    let arrived = |who| order.lock().expect("no thread panicked").push(who);
    thread::scope(|scope| {
        let held = lock.read(&locks);
        scope.spawn(|| {
            let _held = lock.write(&locks);
            arrived("writer");
        });
        until_queued(&lock, 1);
        scope.spawn(|| {
            let _held = lock.read(&locks);
            arrived("reader");
        });
        until_queued(&lock, 2);
        drop(held);
    });
    assert_eq!(*order.lock().expect("no thread panicked"), ["writer", "reader"]);
}

#[test]
fn readers_waiting_for_writer_enter_together() {
    let locks = impatient();
    let lock = Group::new(1, ());
    let (here, there) = (channel::<()>(), channel::<()>());
    thread::scope(|scope| {
        let held = lock.write(&locks);
        for (to, from) in [(here.0, there.1), (there.0, here.1)] {
            let (lock, locks) = (&lock, &locks);
            scope.spawn(move || {
                let _held = lock.read(locks);
                to.send(()).expect("the other reader waits");
                from.recv().expect("the other reader has the lock too");
            });
        }
        until_queued(&lock, 2);
        drop(held);
    });
    assert_eq!(lock.queued(), 0);
}

#[test]
fn two_pairs_in_opposite_order_do_not_deadlock() {
    let locks = impatient();
    let one = Group::new(1, 0);
    let two = Group::new(2, 0);
    thread::scope(|scope| {
        for (first, second) in [(&one, &two), (&two, &one)] {
            let locks = &locks;
            scope.spawn(move || {
                for _ in 0..5_000 {
                    let (mut a, b) = lock_both(first, second, locks);
                    *a += 1;
                    *b.expect("two locks") += 1;
                }
            });
        }
    });
    assert_eq!(*one.read(&locks), 10_000);
    assert_eq!(*two.read(&locks), 10_000);
}

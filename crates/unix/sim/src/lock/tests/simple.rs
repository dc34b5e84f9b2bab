//! Tests of simple locks.

use super::parallel;
use crate::lock::lock_order::PLock;
use crate::lock::{SimpleLock, lock_both};
use std::thread;

#[test]
fn simple_lock_excludes_other_threads() {
    let locks = parallel();
    let lock = SimpleLock::<PLock, u64>::new(1, 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    *lock.lock(&locks) += 1;
                }
            });
        }
    });
    assert_eq!(*lock.lock(&locks), 80_000);
}

#[test]
fn two_pairs_in_opposite_order_do_not_deadlock() {
    let locks = parallel();
    let mut one = SimpleLock::<PLock, u64>::new(1, 0);
    let mut two = SimpleLock::<PLock, u64>::new(2, 0);
    thread::scope(|scope| {
        for (first, second) in [(&one, &two), (&two, &one)] {
            let locks = &locks;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let (mut a, b) = lock_both(first, second, locks);
                    *a += 1;
                    *b.expect("two locks") += 1;
                }
            });
        }
    });
    assert_eq!((*one.get_mut(), *two.get_mut()), (40_000, 40_000));
}

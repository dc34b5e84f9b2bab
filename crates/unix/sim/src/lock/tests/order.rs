//! Tests of the lock order as defined and as the compiler checks it.

use super::{panic_of, parallel};
use crate::lock::class_lock::{ClassLock, RawLock};
use crate::lock::lock_order::{
    CLASSES, LockClass, LockKind, ORDER, PLock, PgLock, PgRefLock, PgrphashLock, RanksBefore,
};
use crate::lock::{BlockingLock, Holding, SimpleLock, lock_both};
use std::marker::PhantomData;

/// Tests whether [`RanksBefore`] holds for two classes: if its bound is met, the constant of the
/// type hides that of the trait.
struct Probe<Outer, Inner>(PhantomData<(Outer, Inner)>);

trait Refused {
    const COMPILES: bool = false;
}

impl<Outer, Inner> Refused for Probe<Outer, Inner> {}

impl<Outer: RanksBefore<Inner>, Inner: LockClass> Probe<Outer, Inner> {
    const COMPILES: bool = true;
}

macro_rules! every_pair {
    ($($class:ident)+) => { every_pair!(@ [$($class)+] [$($class)+]) };
    (@ [$($outer:ident)+] $inner:tt) => { vec![$(every_pair!(# $outer $inner)),+] };
    (# $outer:ident [$($inner:ident)+]) => { vec![$(Probe::<$outer, $inner>::COMPILES),+] };
}

#[allow(clippy::wildcard_imports, reason = "the list names all classes")]
fn compiles() -> Vec<Vec<bool>> {
    use crate::lock::lock_order::*;
    with_classes!(every_pair)
}

#[test]
fn lock_pair_compiles_only_in_order() {
    for (outer, row) in compiles().iter().enumerate() {
        assert_eq!(row.len(), CLASSES);
        for (inner, compiles) in row.iter().enumerate() {
            let (outer_name, inner_name) = (ORDER[outer].name, ORDER[inner].name);
            assert_eq!(*compiles, outer < inner, "{outer_name} then {inner_name}");
        }
    }
}

#[test]
fn lock_order_matches_paper() {
    let numbers: Vec<_> = ORDER.iter().filter_map(|row| row.paper).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn blocking_locks_precede_simple_and_global_precede_local() {
    let simple = ORDER.iter().position(|row| row.kind == LockKind::Simple).expect("simple locks");
    assert!(ORDER[simple..].iter().all(|row| row.kind == LockKind::Simple));
    let base = ORDER[simple..].iter().filter(|row| row.spl == crate::held::InterruptLevel::Base);
    let global: Vec<_> = base.map(|row| row.scope == "global").collect();
    assert!(global.is_sorted_by(|a, b| a >= b), "{global:?}");
}

#[test]
fn nested_acquisition_takes_inner_lock() {
    let locks = parallel();
    let group = BlockingLock::<PgLock, ()>::new(1, ());
    let other = BlockingLock::<PgrphashLock, ()>::new(0, ());
    let process = SimpleLock::<PLock, u32>::new(2, 0);
    let count = SimpleLock::<PgRefLock, u32>::new(1, 0);
    let table = other.read(&locks);
    let members = table.then_write(&group);
    let mut contents = members.then_lock(&process);
    *contents.then_lock(&count) += 1;
    *contents += 1;
    drop((contents, members));
    drop(table.then_read(&group));
    assert_eq!(*count.lock(&locks), 1);
}

fn assert_each_is_taken_once<C: LockClass, W: RawLock>([one, two]: [ClassLock<C, W, char>; 2]) {
    let locks = parallel();
    let values = |first, second| {
        let (a, b) = lock_both(first, second, &locks);
        (*a, b.map(|b| *b))
    };
    assert_eq!(values(&one, &two), ('a', Some('b')));
    assert_eq!(values(&two, &one), ('b', Some('a')));
    assert_eq!(values(&one, &one), ('a', None));
}

#[test]
fn same_lock_passed_twice_is_taken_once() {
    assert_each_is_taken_once([(1, 'a'), (2, 'b')].map(|(n, c)| SimpleLock::<PLock, _>::new(n, c)));
    assert_each_is_taken_once(
        [(1, 'a'), (2, 'b')].map(|(n, c)| BlockingLock::<PgLock, _>::new(n, c)),
    );
}

#[test]
fn pair_of_locks_with_equal_instances_panics() {
    let locks = parallel();
    let (one, two) = (SimpleLock::<PLock, _>::new(1, ()), SimpleLock::<PLock, _>::new(1, ()));
    let text = panic_of(|| drop(lock_both(&one, &two, &locks)));
    assert!(text.contains("two locks of class p_lock have one instance"), "{text}");
}

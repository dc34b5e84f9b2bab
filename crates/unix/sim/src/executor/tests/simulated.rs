//! Tests of the simulated executor.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::{
    At, Chooser, ExecutorOptions, FiberExecutor, Hooks, RunEnd, Seeded, abandon, context, current,
    park, point, processor, spin, splhigh, splx, yield_now,
};
use super::start;
use crate::costs::CostModel;

#[test]
fn digest_of_seed_is_machine_independent() {
    let executor = FiberExecutor::simulated(1, ExecutorOptions::default());
    for _ in 0..8 {
        start(&executor, || (0..20).for_each(|_| point(At::Within)));
    }
    assert_eq!((executor.run(), executor.steps()), (RunEnd::Finished, 160));
    assert_eq!(executor.digest(), 516_125_569_385_170_840);
}

#[test]
fn spinning_fiber_is_not_runnable() {
    let executor = FiberExecutor::simulated(7, ExecutorOptions::default());
    let word = Arc::new(AtomicU32::new(0));
    let inside = Arc::new(AtomicU32::new(0));
    for _ in 0..4 {
        let (word, inside) = (Arc::clone(&word), Arc::clone(&inside));
        start(&executor, move || {
            for _ in 0..50 {
                while word.swap(1, Ordering::Relaxed) != 0 {
                    spin(&word);
                }
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                point(At::Within);
                inside.fetch_sub(1, Ordering::Relaxed);
                word.store(0, Ordering::Relaxed);
                point(At::Within);
            }
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn two_fibers_spinning_at_each_others_locks_deadlock() {
    for seed in 0..20 {
        let executor = FiberExecutor::simulated(seed, ExecutorOptions::default());
        let words: Arc<[AtomicU32; 2]> = Arc::default();
        for me in 0..2 {
            let words = Arc::clone(&words);
            start(&executor, move || {
                words[me].store(1, Ordering::Relaxed);
                while words[1 - me].load(Ordering::Relaxed) == 0 {
                    yield_now();
                }
                while words[1 - me].load(Ordering::Relaxed) != 0 {
                    spin(&words[1 - me]);
                }
            });
        }
        assert_eq!(executor.run(), RunEnd::Deadlocked);
    }
}

#[test]
fn simulated_clock_jumps_to_next_timer() {
    let executor = FiberExecutor::simulated(0, ExecutorOptions::default());
    let day = Duration::from_secs(86_400);
    let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
    for (days, name) in [(3, 4), (1, 1), (2, 2), (2, 3)] {
        let seen = Arc::clone(&seen);
        let action = move || seen.lock().expect("no panic").push(name);
        let _timer = executor.at(day * days, Box::new(action));
    }
    let never = executor.at(day * 2, Box::new(|| panic!("was cancelled")));
    assert!(never.cancel());
    let inner = Arc::clone(&executor);
    start(&executor, move || {
        let me = current();
        let _timer = inner.at(day * 3, Box::new(move || me.unpark()));
        park();
        assert!(inner.now() >= day * 3 && inner.now() < day * 3 + Duration::from_secs(1));
    });
    assert_eq!(executor.run(), RunEnd::Finished);
    assert_eq!(*seen.lock().expect("no panic"), [1, 2, 3, 4]);
}

#[test]
fn each_point_advances_clock() {
    let executor = FiberExecutor::simulated(0, ExecutorOptions::default());
    let inner = Arc::clone(&executor);
    start(&executor, move || {
        for step in 0..1000 {
            assert_eq!(inner.steps(), step);
            assert_eq!(inner.now(), Duration::from_nanos(100 * step));
            point(At::Within);
        }
    });
    assert_eq!(executor.run(), RunEnd::Finished);
    assert_eq!(executor.steps(), 1000);
}

#[test]
fn external_thread_wakes_parked_fiber() {
    let executor = FiberExecutor::simulated(0, ExecutorOptions::default());
    let waiter = start(&executor, park);
    let outside = executor.external();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| executor.run());
        std::thread::sleep(Duration::from_millis(5));
        waiter.unpark();
        assert_eq!(run.join().expect("no panic"), RunEnd::Finished);
    });
    drop(outside);
}

#[test]
fn fiber_without_preemptions_runs_until_it_blocks() {
    let chooser = Seeded::new(3).odds(1).preemptions(0);
    let executor = FiberExecutor::chosen(Box::new(chooser), ExecutorOptions::default());
    let order: Arc<Mutex<Vec<u32>>> = Arc::default();
    for number in 0..4 {
        let order = Arc::clone(&order);
        start(&executor, move || {
            for _ in 0..10 {
                order.lock().expect("no panic").push(number);
                point(At::Within);
            }
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
    let order = order.lock().expect("no panic");
    assert!(order.chunks(10).all(|chunk| chunk.iter().all(|number| *number == chunk[0])));
}

#[test]
fn ticks_arrive_only_at_points_below_high_level() {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let executor = FiberExecutor::simulated(5, ExecutorOptions::default());
    executor.ticks(100, |_| {
        COUNT.fetch_add(1, Ordering::Relaxed);
        point(At::Within);
    });
    start(&executor, || {
        for _ in 0..1000 {
            point(At::Within);
        }
        let (before, count) = (splhigh(), COUNT.load(Ordering::Relaxed));
        assert!(count > 0);
        for _ in 0..1000 {
            point(At::Within);
        }
        assert_eq!(COUNT.load(Ordering::Relaxed), count);
        splx(before);
        assert!(COUNT.load(Ordering::Relaxed) > count);
    });
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn interrupt_level_is_per_fiber() {
    let executor = FiberExecutor::simulated(5, ExecutorOptions::default());
    executor.ticks(100, |_| {});
    for _ in 0..4 {
        start(&executor, || {
            for _ in 0..200 {
                let before = splhigh();
                assert_eq!(before, 0);
                point(At::Within);
                splx(before);
                point(At::Within);
            }
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn simulated_fibers_can_be_abandoned_and_pinned() {
    let executor = FiberExecutor::simulated(
        2,
        ExecutorOptions { processors: 4, ..ExecutorOptions::default() },
    );
    for place in 0..4 {
        super::start_on(&executor, place, place + 1, move || {
            point(At::Within);
            assert_eq!((processor(), context()), (place, place + 1));
            if place == 3 {
                abandon();
            }
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
    let counts = executor.stacks();
    assert_eq!((counts.live, counts.abandoned), (0, 1));
}

/// A chooser that selects the first runnable fiber, but never switches away from a fiber that can
/// continue.
struct First;

impl Chooser for First {
    fn stretch(&mut self) -> u32 {
        1
    }

    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize {
        assert!(runnable.len() > 1, "a choice has alternatives");
        running.unwrap_or(0)
    }
}

#[test]
fn custom_chooser_decides_at_each_point() {
    let executor = FiberExecutor::chosen(Box::new(First), ExecutorOptions::default());
    let order: Arc<Mutex<Vec<u32>>> = Arc::default();
    for number in 1..=3 {
        let order = Arc::clone(&order);
        start(&executor, move || {
            point(At::Within);
            order.lock().expect("no panic").push(number);
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
    // The last runnable fiber moves to the place of the fiber that ended.
    assert_eq!(*order.lock().expect("no panic"), [1, 3, 2]);
}

struct Rude;

impl Hooks for Rude {
    fn on_stall(&self) -> bool {
        panic!("on purpose")
    }
}

/// Regression test. The thread used to keep the state of a run that no longer existed: no other run
/// could begin there, and a query of the current fiber read freed state.
#[test]
fn run_ended_by_panic_leaves_no_thread_state() {
    let options = || ExecutorOptions { hooks: Arc::new(Rude), ..ExecutorOptions::default() };
    for executor in [
        FiberExecutor::simulated(1, options()),
        FiberExecutor::modelled(CostModel::published(), 1, options()),
        FiberExecutor::parallel(2, options()),
    ] {
        start(&executor, park);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.run()));
        assert!(run.is_err());
        let other = FiberExecutor::simulated(1, ExecutorOptions::default());
        start(&other, || point(At::Within));
        assert_eq!((other.run(), other.steps()), (RunEnd::Finished, 1));
    }
}

//! Tests of the parallel executor.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::super::{
    ExecutorOptions, Fiber, FiberExecutor, Hooks, RunEnd, StackError, Start, abandon, context,
    current, current_id, park, preempt, processor, splhigh, splx, yield_now,
};
use super::interrupt::{VARIABLE, run_alone};
use super::{start, start_on};
use crate::split_mix::SplitMix;

/// Starts two fibers that take turns, `rounds` times each.
fn ping_pong(executor: &Arc<FiberExecutor>, places: [usize; 2], rounds: usize) -> Arc<AtomicUsize> {
    let turn = Arc::new(AtomicUsize::new(0));
    let fibers: Arc<[OnceLock<Fiber>; 2]> = Arc::default();
    for me in 0..2 {
        let (turn, others) = (Arc::clone(&turn), Arc::clone(&fibers));
        let fiber = start_on(executor, places[me], 0, move || {
            for round in 0..rounds {
                while turn.load(Ordering::Relaxed) != 2 * round + me {
                    park();
                }
                turn.store(2 * round + me + 1, Ordering::Relaxed);
                while others[1 - me].get().is_none() {
                    yield_now();
                }
                others[1 - me].get().expect("was set").unpark();
            }
        });
        fibers[me].set(fiber).expect("set once");
    }
    turn
}

#[test]
fn no_unpark_is_lost_between_processors() {
    for _ in 0..20 {
        let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
        let turns: Vec<_> = [[0, 1], [1, 0], [0, 0], [1, 1], [0, 1]]
            .into_iter()
            .map(|places| ping_pong(&executor, places, 500))
            .collect();
        assert_eq!(executor.run(), RunEnd::Finished);
        assert!(turns.iter().all(|turn| turn.load(Ordering::Relaxed) == 1000));
        assert_eq!(executor.stacks().live, 0);
    }
}

/// The first park returns, because an unpark precedes it; the second one waits.
#[test]
fn two_unparks_count_as_one() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    start(&executor, || {
        current().unpark();
        current().unpark();
        park();
        park();
    });
    assert_eq!(executor.run(), RunEnd::Deadlocked);
}

#[test]
fn idle_processor_takes_fibers_not_yet_started() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    let inner = Arc::clone(&executor);
    let met = Arc::new(AtomicUsize::new(0));
    start_on(&executor, 0, 0, move || {
        // The starter keeps its processor until both have run, so the other processor must run
        // them.
        for _ in 0..2 {
            let met = Arc::clone(&met);
            start(&inner, move || {
                assert_eq!(processor(), 1);
                met.fetch_add(1, Ordering::Relaxed);
            });
        }
        while met.load(Ordering::Relaxed) < 2 {
            std::thread::yield_now();
        }
    });
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn started_fiber_stays_on_its_processor() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    for _ in 0..200 {
        start(&executor, || {
            let (home, thread) = (processor(), std::thread::current().id());
            for _ in 0..50 {
                yield_now();
                assert_eq!((processor(), std::thread::current().id()), (home, thread));
            }
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn pinned_fiber_runs_on_its_processor() {
    let executor = FiberExecutor::parallel(3, ExecutorOptions::default());
    for place in 0..30 {
        let fiber = start_on(&executor, place % 3, 0, move || assert_eq!(processor(), place % 3));
        assert_eq!(fiber.processor(), place % 3);
    }
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn current_returns_running_fiber() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    assert_eq!((current_id(), context()), (0, 0));
    let fiber = start_on(&executor, 0, 77, || {
        assert_eq!((current_id(), context(), current().id()), (1, 77, 1));
        yield_now();
        assert_eq!((current_id(), context()), (1, 77));
    });
    start_on(&executor, 0, 78, || assert_eq!((current_id(), context()), (2, 78)));
    assert_eq!(executor.run(), RunEnd::Finished);
    assert_eq!((fiber.id(), current_id(), context()), (1, 0, 0));
}

#[test]
fn timers_fire_in_order_and_can_be_cancelled() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
    let at = |ms, name| {
        let seen = Arc::clone(&seen);
        let action = move || seen.lock().expect("no panic").push(name);
        executor.at(Duration::from_millis(ms), Box::new(action))
    };
    let _third = at(12, 3);
    let _first = at(4, 1);
    let never = at(8, 9);
    let _second = at(8, 2);
    let fiber = start(&executor, park);
    let _wake = executor.at(Duration::from_millis(16), Box::new(move || fiber.unpark()));
    assert!(never.cancel());
    assert_eq!(executor.run(), RunEnd::Finished);
    assert_eq!(*seen.lock().expect("no panic"), [1, 2, 3]);
    assert!(executor.now() >= Duration::from_millis(16));
}

#[test]
fn timer_action_starts_fiber() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    let waiter = start(&executor, park);
    let inner = Arc::clone(&executor);
    let begin = move || drop(start(&inner, move || waiter.unpark()));
    let _timer = executor.at(Duration::from_millis(2), Box::new(begin));
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn run_with_all_fibers_blocked_deadlocks() {
    for processors in 1..=3 {
        let executor = FiberExecutor::parallel(processors, ExecutorOptions::default());
        for _ in 0..10 {
            start(&executor, || {
                loop {
                    park();
                }
            });
        }
        assert_eq!(executor.run(), RunEnd::Deadlocked);
        let counts = executor.stacks();
        assert_eq!((counts.live, counts.abandoned), (0, 10));
    }
}

#[test]
fn cancelling_last_timer_causes_deadlock() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    start(&executor, park);
    let timer = executor.at(Duration::from_secs(3600), Box::new(|| {}));
    std::thread::scope(|scope| {
        let run = scope.spawn(|| executor.run());
        assert!(timer.cancel());
        assert_eq!(run.join().expect("no panic"), RunEnd::Deadlocked);
    });
}

#[test]
fn attached_external_source_prevents_deadlock() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    let waiter = start(&executor, park);
    let outside = executor.external();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| executor.run());
        std::thread::sleep(Duration::from_millis(20));
        waiter.unpark();
        assert_eq!(run.join().expect("no panic"), RunEnd::Finished);
    });
    drop(outside);
}

#[test]
fn detaching_external_source_causes_deadlock() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    start(&executor, park);
    let outside = executor.external();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| executor.run());
        std::thread::sleep(Duration::from_millis(5));
        drop(outside);
        assert_eq!(run.join().expect("no panic"), RunEnd::Deadlocked);
    });
}

#[test]
fn stopped_run_drops_unbegun_fibers() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    let inner = Arc::clone(&executor);
    let token = Arc::new(());
    start(&executor, move || {
        inner.stop();
        park();
    });
    for _ in 0..10 {
        let token = Arc::clone(&token);
        start(&executor, move || drop(token));
    }
    assert_eq!(executor.run(), RunEnd::Stopped);
    assert_eq!(Arc::strong_count(&token), 1);
    assert_eq!(executor.stacks().abandoned, 1);
}

#[test]
fn abandoned_fiber_is_counted_and_never_resumed() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    for _ in 0..5 {
        start(&executor, || abandon());
    }
    start(&executor, yield_now);
    assert_eq!(executor.run(), RunEnd::Finished);
    let counts = executor.stacks();
    assert_eq!((counts.live, counts.abandoned), (0, 5));
}

#[test]
fn woken_fiber_runs_at_return_to_user_mode() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    let woken = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&woken);
    let sleeper = start(&executor, move || {
        park();
        woken.store(true, Ordering::Relaxed);
    });
    start(&executor, move || {
        preempt();
        sleeper.unpark();
        assert!(!seen.load(Ordering::Relaxed));
        preempt();
        assert!(seen.load(Ordering::Relaxed));
    });
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn two_fibers_waking_each_other_starve_no_third() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    let done = Arc::new(AtomicBool::new(false));
    let fibers: Arc<[OnceLock<Fiber>; 2]> = Arc::default();
    for me in 0..2 {
        let (done, others) = (Arc::clone(&done), Arc::clone(&fibers));
        let fiber = start_on(&executor, 0, 0, move || {
            while !done.load(Ordering::Relaxed) {
                others[1 - me].get().expect("set before the run").unpark();
                park();
            }
            others[1 - me].get().expect("set before the run").unpark();
        });
        fibers[me].set(fiber).expect("set once");
    }
    start(&executor, move || {
        for _ in 0..10 {
            yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(executor.run(), RunEnd::Finished);
}

struct Rescue(OnceLock<Fiber>);

impl Hooks for Rescue {
    fn on_stall(&self) -> bool {
        self.0.get().expect("set before the run").unpark();
        true
    }
}

#[test]
fn run_continues_if_deadlock_hook_wakes_fiber() {
    let hooks = Arc::new(Rescue(OnceLock::new()));
    let options = ExecutorOptions { hooks: hooks.clone(), ..ExecutorOptions::default() };
    let executor = FiberExecutor::parallel(2, options);
    let fiber = start(&executor, park);
    hooks.0.set(fiber).expect("set once");
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn start_beyond_stack_limit_fails() {
    let executor =
        FiberExecutor::parallel(1, ExecutorOptions { stacks: 3, ..ExecutorOptions::default() });
    let fill = || Start { processor: None, context: 0, name: 0, body: Box::new(|| {}) };
    let fibers: Vec<_> = (0..4).map(|_| executor.start(fill())).collect();
    assert!(fibers[..3].iter().all(Result::is_ok));
    assert_eq!(fibers[3].as_ref().err(), Some(&StackError::Limit { limit: 3 }));
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn unpark_of_ended_fiber_has_no_effect() {
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    let fiber = start(&executor, || {});
    assert_eq!(executor.run(), RunEnd::Finished);
    drop(executor);
    fiber.unpark();
}

/// The test runs in its own process, because other tests use memory too.
#[test]
fn parked_fiber_uses_little_memory() {
    const FIBERS: usize = 10_000;
    if std::env::var_os(VARIABLE).is_none() {
        let output = run_alone("executor::tests::parallel::parked_fiber_uses_little_memory");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        return;
    }
    let resident_kib = || {
        let file = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages = file.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("the second field is a number") * 4
    };
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    let before = resident_kib();
    for _ in 0..FIBERS {
        start(&executor, park);
    }
    assert_eq!(executor.run(), RunEnd::Deadlocked);
    assert_eq!(executor.stacks().abandoned, FIBERS);
    let each = resident_kib().saturating_sub(before) / FIBERS;
    assert!(each <= 12, "{each} KiB a fiber");
}

#[test]
fn stacks_are_reused() {
    let executor =
        FiberExecutor::parallel(1, ExecutorOptions { stacks: 40, ..ExecutorOptions::default() });
    let inner = Arc::clone(&executor);
    start(&executor, move || {
        for _ in 0..10_000 {
            start(&inner, || {});
            yield_now();
        }
    });
    assert_eq!(executor.run(), RunEnd::Finished);
    let counts = executor.stacks();
    assert_eq!((counts.live, counts.abandoned), (0, 0));
    assert!(counts.pooled <= 40);
}

/// Operates on other fibers, in a random order that `seed` decides.
fn mingle(executor: &Arc<FiberExecutor>, others: &Mutex<Vec<Fiber>>, seed: u64) {
    let mut random = SplitMix::new(seed);
    for _ in 0..100 {
        let state = random.next();
        let me = current();
        match state % 5 {
            0 => {
                let when = executor.now() + Duration::from_micros(state % 300);
                let _timer = executor.at(when, Box::new(move || me.unpark()));
                park();
            }
            1 => {
                start(executor, move || me.unpark());
                park();
            }
            2 => {
                let before = splhigh();
                let others = others.lock().expect("no panic");
                let other = others.get((state >> 8) as usize % others.len().max(1)).cloned();
                drop(others);
                splx(before);
                if let Some(other) = other {
                    other.unpark();
                }
            }
            3 => preempt(),
            _ => yield_now(),
        }
    }
}

#[test]
fn random_fiber_operations_let_all_fibers_end() {
    for round in 0..8 {
        let executor = FiberExecutor::parallel(3, ExecutorOptions::default());
        executor.ticks(2000, |_| {});
        let all: Arc<Mutex<Vec<Fiber>>> = Arc::default();
        let ends = Arc::new(AtomicUsize::new(0));
        for number in 0..60 {
            let (inner, others, ends) =
                (Arc::clone(&executor), Arc::clone(&all), Arc::clone(&ends));
            let fiber = start(&executor, move || {
                mingle(&inner, &others, round * 60 + number + 1);
                ends.fetch_add(1, Ordering::Relaxed);
            });
            all.lock().expect("no panic").push(fiber);
        }
        assert_eq!(executor.run(), RunEnd::Finished);
        assert_eq!((ends.load(Ordering::Relaxed), executor.stacks().live), (60, 0));
    }
}

/// Regression test. Occasionally a fiber that yielded runs before fibers that were woken. It used
/// to run for a whole time slice in that case, and sent thousands of signals to a receiver that was
/// awake and waiting for its turn.
#[test]
fn fiber_run_before_woken_fibers_yields_at_first_return() {
    for offset in 0..64 {
        let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
        let wakes = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&wakes);
        let sleeper = Arc::new(OnceLock::new());
        let woken = Arc::clone(&sleeper);
        start_on(&executor, 0, 1, move || {
            sleeper.set(current()).expect("set once");
            while seen.load(Ordering::Relaxed) < 200 {
                park();
                seen.fetch_add(1, Ordering::Relaxed);
            }
        });
        start_on(&executor, 0, 2, move || {
            for _ in 0..offset {
                yield_now();
            }
            let fiber = loop {
                if let Some(fiber) = woken.get() {
                    break fiber;
                }
                yield_now();
            };
            let mut sent = 0;
            while wakes.load(Ordering::Relaxed) < 200 {
                fiber.unpark();
                sent += 1;
                preempt();
                let behind = sent - wakes.load(Ordering::Relaxed);
                assert!(behind < 40, "{behind} wakes were for nothing, {offset} turns later");
            }
        });
        assert_eq!(executor.run(), RunEnd::Finished);
    }
}

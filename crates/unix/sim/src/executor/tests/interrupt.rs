//! Tests of interruptions in the parallel executor: stack overflow, a panic, the clock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::super::{ExecutorOptions, Fiber, FiberExecutor, RunEnd, park, splhigh, splx, yield_now};
use super::{start, start_on};

/// Uses up the stack.
fn descend(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    if depth == u64::MAX { 0 } else { descend(depth + 1) + frame[depth as usize % 64] }
}

/// Runs one test of this program alone in a separate process, with `VARIABLE` set.
pub(super) fn run_alone(test: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().expect("a test has a file"))
        .args(["--exact", test, "--nocapture"])
        .env(VARIABLE, "1")
        .output()
        .expect("a test can be run")
}

/// Runs one test like [`run_alone`]. Returns the signal that killed the process, and its error
/// output.
fn killed_in_child(test: &str) -> Option<(i32, String)> {
    use std::os::unix::process::ExitStatusExt;
    let output = run_alone(test);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.signal().map(|signal| (signal, said))
}

pub(super) const VARIABLE: &str = "TONTINE_UNIX_CHILD";

#[test]
fn stack_overflow_in_kernel_mode_aborts_and_names_fiber() {
    if std::env::var_os(VARIABLE).is_none() {
        let name = "executor::tests::interrupt::\
                    stack_overflow_in_kernel_mode_aborts_and_names_fiber";
        let (signal, said) = killed_in_child(name).expect("a signal killed the process");
        assert_eq!(signal, libc::SIGABRT);
        assert!(said.contains("fiber 1 ran out of stack in kernel mode"), "{said}");
        return;
    }
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    start(&executor, || {
        std::hint::black_box(descend(0));
    });
    executor.run();
}

#[test]
fn panic_out_of_body_aborts_and_names_fiber() {
    if std::env::var_os(VARIABLE).is_none() {
        let name = "executor::tests::interrupt::panic_out_of_body_aborts_and_names_fiber";
        let (signal, said) = killed_in_child(name).expect("a signal killed the process");
        assert_eq!(signal, libc::SIGABRT);
        assert!(said.contains("a panic left the body of fiber 1"), "{said}");
        return;
    }
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    start(&executor, || panic!("on purpose"));
    executor.run();
}

/// Counters of ticks. They are static because a tick function carries no state.
static TICKS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

#[test]
fn tick_interrupts_fiber_and_receives_its_context() {
    let executor = FiberExecutor::parallel(2, ExecutorOptions::default());
    executor.ticks(1000, |context| {
        if let Some(ticks) = TICKS.get(context.wrapping_sub(1)) {
            ticks.fetch_add(1, Ordering::Relaxed);
        }
    });
    for context in 1..=2 {
        start_on(&executor, context - 1, context, move || {
            while TICKS[context - 1].load(Ordering::Relaxed) < 5 {
                std::hint::spin_loop();
            }
        });
    }
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn tick_at_high_level_waits_until_level_falls() {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    executor.ticks(1000, |_| {
        COUNT.fetch_add(1, Ordering::Relaxed);
    });
    start(&executor, || {
        for _ in 0..5 {
            let before = splhigh();
            let count = COUNT.load(Ordering::Relaxed);
            // Ticks are deferred and counted, but none is handled.
            while super::super::tick::held() == 0 {
                std::hint::spin_loop();
            }
            assert_eq!(COUNT.load(Ordering::Relaxed), count);
            splx(before);
            assert!(COUNT.load(Ordering::Relaxed) > count);
        }
    });
    assert_eq!(executor.run(), RunEnd::Finished);
}

#[test]
fn tick_wakes_fiber_on_same_processor() {
    static SLEEPER: OnceLock<Fiber> = OnceLock::new();
    let executor = FiberExecutor::parallel(1, ExecutorOptions::default());
    executor.ticks(1000, |_| {
        if let Some(sleeper) = SLEEPER.get() {
            sleeper.unpark();
        }
    });
    let outside = executor.external();
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let sleeper = start(&executor, move || {
        while count.fetch_add(1, Ordering::Relaxed) < 20 {
            park();
        }
    });
    SLEEPER.set(sleeper).expect("set once");
    start(&executor, move || {
        while woken.load(Ordering::Relaxed) < 10 {
            yield_now();
        }
    });
    assert_eq!(executor.run(), RunEnd::Finished);
    drop(outside);
}

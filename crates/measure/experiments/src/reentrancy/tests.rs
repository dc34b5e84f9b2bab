//! Tests of which operations must break, and which must not, when a signal arrives at the worst
//! moment. Each test runs in its own process, which forks while it is single-threaded.

#![allow(unsafe_code, reason = "raises a signal")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::interrupted::InterruptedWork;
use super::*;

/// Number of signals, each of which arrives in the middle of an operation.
const SIGNALS: usize = 10;

/// Work in which a signal interrupts the middle of each operation, the worst moment.
#[derive(Clone)]
struct Midway<V>(V);

impl<V: InterruptedWork> InterruptedWork for Midway<V> {
    const HANDLER_JUDGES: bool = V::HANDLER_JUDGES;
    const RAISES: bool = true;

    fn prepare(&mut self) -> bool {
        self.0.prepare()
    }

    fn operation(&mut self, _: &mut dyn FnMut()) -> bool {
        self.0.operation(&mut || {
            // SAFETY: the call takes a number; the handler is installed.
            unsafe { libc::raise(libc::SIGUSR1) };
        })
    }

    fn in_handler() -> bool {
        V::in_handler()
    }

    fn settle(&mut self, interrupted: bool) -> bool {
        self.0.settle(interrupted)
    }
}

/// Interrupts a victim `signals` times, and checks that no child crashed.
fn interrupted<V: InterruptedWork + Clone>(victim: &V, signals: usize) -> InterruptCounts {
    let outcome = interrupt(victim, usual(), signals).expect("an outcome");
    assert!(outcome.deadlocked.len() >= signals && outcome.crashed == 0, "{outcome:?}");
    outcome
}

fn midway<V: InterruptedWork + Clone>(victim: &V) -> InterruptCounts {
    interrupted(&Midway(victim.clone()), SIGNALS)
}

fn guarded(lock: Lock) -> InterruptCounts {
    midway(&GuardedWords::<false> { lock, only: Only::signal() })
}

/// Returns `true` if the slice is not empty and all values equal `wanted`.
fn all(of: &[bool], wanted: bool) -> bool {
    !of.is_empty() && of.iter().all(|&one| one == wanted)
}

/// The outcome of a signal in the middle of each operation.
#[test]
fn handler_at_worst_moment_breaks_what_is_not_signal_safe() {
    in_a_process_of_its_own(|| {
        for (outcome, corrupted) in [
            (midway(&Tokens::<false>), true),
            (midway(&Tokens::<true>), false),
            // Not even a line under flockfile is safe.
            (midway(&InterruptedLine::<false>::new().expect("a file")), true),
            (midway(&InterruptedLine::<true>::new().expect("a file")), true),
            (guarded(Lock::Recursive), true),
            (guarded(Lock::Masked), false),
        ] {
            let right = all(&outcome.corrupted, corrupted) && all(&outcome.deadlocked, false);
            assert!(right, "{outcome:?}");
        }
        let outcome = guarded(Lock::Plain);
        assert!(all(&outcome.deadlocked, true) && outcome.corrupted.is_empty(), "{outcome:?}");
    });
}

#[test]
fn signal_thread_waits_for_the_plain_lock() {
    in_a_process_of_its_own(|| {
        let taken = GuardedWords::<true> { lock: Lock::Plain, only: Only::signal() };
        let outcome = interrupted(&taken, 5 * SIGNALS);
        assert_eq!(outcome.deadlocked.len(), 5 * SIGNALS);
        let right = all(&outcome.deadlocked, false) && all(&outcome.corrupted, false);
        assert!(right, "{outcome:?}");
    });
}

/// Work whose operation takes less time than the check of its result.
#[derive(Clone)]
struct Fussy;

static FUSSING: AtomicBool = AtomicBool::new(false);

fn spend(time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {}
}

impl InterruptedWork for Fussy {
    const HANDLER_JUDGES: bool = true;

    fn prepare(&mut self) -> bool {
        true
    }

    fn operation(&mut self, _: &mut dyn FnMut()) -> bool {
        spend(Duration::from_micros(20));
        true
    }

    fn in_handler() -> bool {
        !FUSSING.load(Ordering::Relaxed)
    }

    fn settle(&mut self, _: bool) -> bool {
        FUSSING.store(true, Ordering::Relaxed);
        spend(Duration::from_micros(60));
        FUSSING.store(false, Ordering::Relaxed);
        true
    }
}

/// Regression: most signals arrived while the child searched the file for its line. They broke no
/// line, were counted as signals that did not deadlock, and sometimes deadlocked inside the search.
#[test]
fn signals_between_operations_are_not_counted() {
    in_a_process_of_its_own(|| {
        let outcome = interrupted(&Fussy, SIGNALS);
        assert_eq!((outcome.corrupted.len(), outcome.deadlocked.len()), (SIGNALS, SIGNALS));
        assert!(all(&outcome.corrupted, false), "{outcome:?}");
    });
}

#[test]
fn every_counted_signal_interrupted_a_line() {
    in_a_process_of_its_own(|| {
        let lines = InterruptedLine::<false>::new().expect("a file");
        let outcome = interrupted(&lines, 5 * SIGNALS);
        let stuck = outcome.deadlocked.iter().filter(|&&one| one).count();
        let counted = (outcome.deadlocked.len(), outcome.corrupted.len() + stuck);
        assert_eq!(counted, (5 * SIGNALS, 5 * SIGNALS), "{outcome:?}");
    });
}

#[test]
fn operation_is_timed_in_one_cell_per_variant() {
    for size in [Size::Quick, Size::Default, Size::Full] {
        for variant in Reentrancy.variants() {
            let cells = Reentrancy.params(variant.name, &Topology::of_this_machine(), size);
            let task = |params| InvocationTask::new(Reentrancy.name(), variant.name, params, size);
            let priced =
                cells.into_iter().filter(|params| Reentrancy.prices(&task(params.clone())));
            assert_eq!(priced.count(), 1, "{} {size:?}", variant.name);
        }
    }
}

#[test]
fn cell_without_timing_has_no_operation_series() {
    in_a_process_of_its_own(|| {
        let params = params([("placement", usual().name), ("from", THREADS)]);
        let count = Workload { batches: 2, interrupted: 1, guarded: 1, timed: 0 };
        let observed = measure("strtok-r", &params, count).expect("observations");
        assert_eq!(metrics(&observed), ["corrupted"]);
    });
}

#[test]
fn strtok_r_and_flockfile_are_safe_between_threads() {
    in_a_process_of_its_own(|| {
        assert_eq!(tokenised::<true>(usual(), 5), Ok(vec![0; 10]));
        assert_eq!(printed(true, usual(), 5), Ok(vec![0; 10]));
    });
}

#[test]
fn every_cell_of_default_run_yields_shares_and_cost() {
    let count = Workload { batches: 2, interrupted: 5, guarded: 5, timed: 2 };
    for variant in Reentrancy.variants() {
        let topology = Topology::of_this_machine();
        for params in Reentrancy.params(variant.name, &topology, Size::Default) {
            // Each cell runs in a fresh process, as in a normal run, because measuring the cost
            // leaves a thread behind.
            in_a_process_of_its_own(|| {
                let observed = measure(variant.name, &params, count).expect("observations");
                assert!(metrics(&observed).len() >= 2, "{} {observed:?}", variant.name);
                assert!(series(&observed, "operation").samples.iter().all(|&ns| ns > 0.0));
            });
        }
    }
}

//! Tests of which operations must break, and which must not, when a signal arrives at the worst
//! moment. Each test runs in its own process, which forks while it is single-threaded.

#![allow(unsafe_code, reason = "raises a signal")]

use tontine_host::peer::in_a_process_of_its_own;

use super::interrupted::InterruptedWork;
use super::*;

/// Number of signals, each of which arrives in the middle of an operation.
const SIGNALS: usize = 10;

/// Returns the placement that a run uses.
fn usual() -> Placement {
    Topology::of_this_machine().placements()[0]
}

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

fn inside<V: InterruptedWork + Clone>(victim: &V) -> std::result::Result<InterruptCounts, String> {
    let outcome = interrupt(&Midway(victim.clone()), usual(), SIGNALS);
    let outcome = outcome.map_err(|trouble| trouble.to_string())?;
    if outcome.deadlocked.len() < SIGNALS || outcome.crashed > 0 {
        return Err(format!("expected {SIGNALS} ends and no crash: {outcome:?}"));
    }
    Ok(outcome)
}

fn guarded(lock: Lock) -> std::result::Result<InterruptCounts, String> {
    inside(&GuardedWords { lock, only: Only::signal() })
}

/// Returns `true` if the slice is not empty and all values equal `wanted`.
fn all(of: &[bool], wanted: bool) -> bool {
    !of.is_empty() && of.iter().all(|&one| one == wanted)
}

fn holds(so: bool, outcome: &InterruptCounts) -> std::result::Result<(), String> {
    if so { Ok(()) } else { Err(format!("{outcome:?}")) }
}

#[test]
fn strtok_reentered_by_handler_loses_its_position() {
    in_a_process_of_its_own(|| {
        let outcome = inside(&Tokens::<false>)?;
        holds(all(&outcome.corrupted, true) && all(&outcome.deadlocked, false), &outcome)
    });
}

#[test]
fn strtok_r_reentered_by_handler_keeps_its_position() {
    in_a_process_of_its_own(|| {
        let outcome = inside(&Tokens::<true>)?;
        holds(all(&outcome.corrupted, false) && all(&outcome.deadlocked, false), &outcome)
    });
}

#[test]
fn handler_that_prints_breaks_lines_even_under_flockfile() {
    in_a_process_of_its_own(|| {
        let free =
            inside(&InterruptedLine::<false>::new().map_err(|trouble| trouble.to_string())?)?;
        holds(all(&free.corrupted, true) && all(&free.deadlocked, false), &free)?;
        let locked =
            inside(&InterruptedLine::<true>::new().map_err(|trouble| trouble.to_string())?)?;
        holds(all(&locked.corrupted, true) && all(&locked.deadlocked, false), &locked)
    });
}

#[test]
fn handler_taking_a_held_plain_lock_deadlocks() {
    in_a_process_of_its_own(|| {
        let outcome = guarded(Lock::Plain)?;
        holds(all(&outcome.deadlocked, true) && outcome.corrupted.is_empty(), &outcome)
    });
}

#[test]
fn handler_with_recursive_lock_sees_inconsistent_words() {
    in_a_process_of_its_own(|| {
        let outcome = guarded(Lock::Recursive)?;
        holds(all(&outcome.deadlocked, false) && all(&outcome.corrupted, true), &outcome)
    });
}

#[test]
fn masked_signal_handler_sees_consistent_words() {
    in_a_process_of_its_own(|| {
        let outcome = guarded(Lock::Masked)?;
        holds(all(&outcome.deadlocked, false) && all(&outcome.corrupted, false), &outcome)
    });
}

#[test]
fn signal_thread_waits_for_the_plain_lock() {
    in_a_process_of_its_own(|| {
        let taken = SigwaitedWords(GuardedWords { lock: Lock::Plain, only: Only::signal() });
        let outcome = interrupt(&taken, usual(), 5 * SIGNALS);
        let outcome = outcome.map_err(|trouble| trouble.to_string())?;
        let counted = outcome.deadlocked.len() == 5 * SIGNALS && outcome.crashed == 0;
        let right = all(&outcome.deadlocked, false) && all(&outcome.corrupted, false);
        holds(counted && right, &outcome)
    });
}

/// Work whose operation takes less time than the check of its result.
#[derive(Clone)]
struct Fussy;

static FUSSING: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn spend(time: std::time::Duration) {
    let since = std::time::Instant::now();
    while since.elapsed() < time {}
}

impl InterruptedWork for Fussy {
    const HANDLER_JUDGES: bool = true;

    fn prepare(&mut self) -> bool {
        true
    }

    fn operation(&mut self, _: &mut dyn FnMut()) -> bool {
        spend(std::time::Duration::from_micros(20));
        true
    }

    fn in_handler() -> bool {
        !FUSSING.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn settle(&mut self, _: bool) -> bool {
        FUSSING.store(true, std::sync::atomic::Ordering::Relaxed);
        spend(std::time::Duration::from_micros(60));
        FUSSING.store(false, std::sync::atomic::Ordering::Relaxed);
        true
    }
}

/// Regression: most signals arrived while the child searched the file for its line. They broke no
/// line, were counted as signals that did not deadlock, and sometimes deadlocked inside the search.
#[test]
fn signals_between_operations_are_not_counted() {
    in_a_process_of_its_own(|| {
        let outcome = interrupt(&Fussy, usual(), SIGNALS);
        let outcome = outcome.map_err(|trouble| trouble.to_string())?;
        let counted = outcome.corrupted.len() == SIGNALS && outcome.deadlocked.len() == SIGNALS;
        holds(counted && all(&outcome.corrupted, false), &outcome)
    });
}

#[test]
fn every_counted_signal_interrupted_a_line() {
    in_a_process_of_its_own(|| {
        let lines = InterruptedLine::<false>::new().map_err(|trouble| trouble.to_string())?;
        let outcome = interrupt(&lines, usual(), 5 * SIGNALS);
        let outcome = outcome.map_err(|trouble| trouble.to_string())?;
        let stuck = outcome.deadlocked.iter().filter(|&&one| one).count();
        let counted = outcome.deadlocked.len() == 5 * SIGNALS
            && outcome.corrupted.len() + stuck == 5 * SIGNALS;
        holds(counted, &outcome)
    });
}

#[test]
fn operation_is_timed_in_one_cell_per_variant() {
    let topology = Topology::of_this_machine();
    for size in [Size::Quick, Size::Default, Size::Full] {
        for variant in VARIANTS {
            let cells = Reentrancy.params(variant.name, &topology, size);
            let priced = cells.into_iter().filter(|params| {
                Reentrancy.prices(&InvocationTask {
                    experiment: Reentrancy.name().into(),
                    variant: variant.name.into(),
                    params: params.clone(),
                    size,
                })
            });
            assert_eq!(priced.count(), 1, "{} {size:?}", variant.name);
        }
    }
}

#[test]
fn cell_without_timing_has_no_operation_series() {
    in_a_process_of_its_own(|| {
        let params = Params::from([
            ("placement".to_owned(), usual().name.to_owned()),
            ("from".to_owned(), THREADS.to_owned()),
        ]);
        let count = Workload { batches: 2, interrupted: 1, guarded: 1, timed: 0 };
        let observed = measure("strtok-r", &params, count);
        let observed = observed.map_err(|trouble| trouble.to_string())?;
        let metrics: Vec<&str> =
            observed.series.iter().map(|series| series.metric.as_str()).collect();
        if metrics == ["corrupted"] { Ok(()) } else { Err(format!("{metrics:?}")) }
    });
}

#[test]
fn strtok_r_and_flockfile_are_safe_between_threads() {
    in_a_process_of_its_own(|| {
        let tokens = tokenised(Function::Reentrant, usual(), 5);
        let lines = printed(true, usual(), 5);
        for wrong in [tokens, lines] {
            let wrong = wrong.map_err(|trouble| trouble.to_string())?;
            if wrong != [0; 10] {
                return Err(format!("{wrong:?}"));
            }
        }
        Ok(())
    });
}

#[test]
fn every_cell_of_default_run_yields_shares_and_cost() {
    in_a_process_of_its_own(|| {
        let topology = Topology::of_this_machine();
        let count = Workload { batches: 2, interrupted: 5, guarded: 5, timed: 2 };
        for variant in VARIANTS {
            for params in Reentrancy.params(variant.name, &topology, Size::Default) {
                // Each variant runs in a fresh process, as in a normal run, because measuring the
                // cost leaves a thread behind.
                let one = || measure(variant.name, &params, count);
                let mut child = tontine_host::os::child::Child::fork(|| match one() {
                    Ok(observed) => {
                        let priced = observed.series.last().is_some_and(|series| {
                            series.metric == "operation"
                                && series.samples.iter().all(|&ns| ns > 0.0)
                        });
                        let share = |series: &Series| {
                            series.unit != "share"
                                || series.samples.iter().all(|share| (0.0..=1.0).contains(share))
                        };
                        let enough = observed.series.len() >= 2;
                        i32::from(!(priced && enough && observed.series.iter().all(share)))
                    }
                    Err(_) => 2,
                })
                .map_err(|trouble| trouble.to_string())?;
                let status = child.wait().map_err(|trouble| trouble.to_string())?;
                if status.exit_status() != Some(0) {
                    return Err(format!("{} {params:?}: {status:?}", variant.name));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn unknown_variant_or_parameter_fails() {
    let params = Params::from([
        ("placement".to_owned(), usual().name.to_owned()),
        ("from".to_owned(), HANDLER.to_owned()),
    ]);
    let found = measure("pigeon", &params, Workload::of(Size::Quick));
    let found = found.expect_err("there are no pigeons");
    assert!(found.why().contains("pigeon"), "{found}");
}

//! Tests of each heap under each benchmark, and of an intentionally broken heap.

#![allow(unsafe_code, reason = "implements a broken allocator")]

use std::time::Duration;

use std::ffi::c_void;

use super::*;
use crate::allocators::heap::Allocator;

/// Runs a benchmark for a short time, or longer if `done` is not satisfied: on a busy machine a
/// short time may be too short for all workers to work.
fn retried<T>(
    benchmark: Benchmark,
    workers: usize,
    mut done: impl FnMut(&WorkerPlan<'_>) -> std::result::Result<(), T>,
) -> std::result::Result<(), T> {
    let processors = &pin::allowed().expect("affinity");
    let mut plan =
        |ms| done(&WorkerPlan { benchmark, workers, time: Duration::from_millis(ms), processors });
    plan(20).or_else(|_| plan(200)).or_else(|_| plan(2_000))
}

#[test]
fn every_heap_completes_every_benchmark() {
    let all = SharedHeaps.variants().iter().map(|one| one.name);
    for variant in all.filter(|name| !is_killed(name) && *name != RECLAIM) {
        for benchmark in Benchmark::ALL {
            in_a_process_of_its_own(|| {
                for workers in [1, 3] {
                    let done = retried(benchmark, workers, |plan| {
                        let name = (variant, benchmark, workers);
                        let Some(seen) = unless_skipped(measure(variant, plan), name) else {
                            return Ok(());
                        };
                        let some = seen.rates.iter().any(|&rate| rate > 0.0);
                        let whole = seen.rates.len() >= 10 && seen.wedged.is_none();
                        if some && whole { Ok(()) } else { Err((name, seen)) }
                    });
                    assert!(done.is_ok(), "{done:?}");
                }
            });
        }
    }
}

/// Measures a variant while one of its workers is killed; `None` if it is skipped.
fn with_one_kill(variant: &str, benchmark: Benchmark, workers: usize) -> Option<BenchResult> {
    let processors = &pin::allowed().expect("affinity");
    let plan = WorkerPlan { benchmark, workers, time: Duration::from_secs(1), processors };
    let seen = unless_skipped(measure(variant, &plan), (variant, benchmark))?;
    assert_eq!(seen.kills, 1, "{seen:?}");
    Some(seen)
}

/// The row ends and reports the result, whether or not the heap wedges.
#[test]
fn kill_per_second_happens_and_the_row_ends() {
    in_a_process_of_its_own(|| {
        let Some(seen) = with_one_kill("boost-killed", Benchmark::Larson, 2) else { return };
        assert_eq!(seen.rates.len(), 10);
        let (observed, wedged) = (observed(&seen, true), seen.wedged.is_some());
        assert_eq!(series(&observed, "wedged").samples, [f64::from(u8::from(wedged))]);
        let noted = observed.notes.iter().any(|note| note.contains("wedged by kill 1"));
        assert_eq!(noted, wedged, "{observed:?}");
    });
}

/// No worker wedges, no block is returned twice, and all blocks are free at the end.
fn makes_progress_after_each_kill(benchmarks: &[Benchmark]) {
    for &benchmark in benchmarks {
        in_a_process_of_its_own(|| {
            let seen = with_one_kill("shared-killed", benchmark, 3).expect("no requirement");
            assert_eq!(seen.wedged, None, "{seen:?}");
        });
    }
}

#[test]
fn shared_heap_makes_progress_after_a_kill() {
    makes_progress_after_each_kill(&[Benchmark::ProducerConsumer]);
}

#[test]
#[ignore = "takes long: kills once per second"]
fn shared_heap_makes_progress_after_each_kill() {
    makes_progress_after_each_kill(&Benchmark::ALL);
}

/// A heap that returns the same block to two threads, or twice to one thread.
struct Broken;

#[repr(align(64))]
struct Memory(std::cell::UnsafeCell<[u8; 1 << 16]>);
// SAFETY: concurrent access to this memory is the subject of the test; only words are written.
unsafe impl Sync for Memory {}
static MEMORY: Memory = Memory(std::cell::UnsafeCell::new([0; 1 << 16]));

impl Allocator for Broken {
    fn malloc(_: usize) -> *mut c_void {
        MEMORY.0.get().cast()
    }
    unsafe fn free(_: *mut c_void) {}
}

#[test]
fn heap_handing_out_one_block_twice_fails() {
    for benchmark in Benchmark::ALL {
        in_a_process_of_its_own(|| {
            let found = retried(benchmark, 2, |plan| {
                match Malloc::<Broken>::new().and_then(|heap| plan.in_threads(&heap)) {
                    Err(MeasureError::Failed(why)) if why.contains("twice") => Ok(()),
                    other => Err(other),
                }
            });
            assert!(found.is_ok(), "{benchmark:?}: {found:?}");
        });
    }
}

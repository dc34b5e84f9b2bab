//! Tests of each heap under each benchmark, and of an intentionally broken heap.

#![allow(unsafe_code, reason = "implements a broken allocator")]

use std::ffi::c_void;

use tontine_host::peer::in_a_process_of_its_own;

use super::heap::AllocFunctions;
use super::*;

const SHORT: Duration = Duration::from_millis(20);

fn plan(
    benchmark: Benchmark,
    workers: usize,
    time: Duration,
    processors: &[usize],
) -> WorkerPlan<'_> {
    WorkerPlan { benchmark, workers, time, processors }
}

#[test]
fn every_heap_completes_every_benchmark() {
    let all = VARIANTS.iter().filter(|one| !is_killed(one.name) && one.name != RECLAIM);
    for variant in all {
        for benchmark in Benchmark::ALL {
            in_a_process_of_its_own(|| {
                let processors = pin::allowed().map_err(|trouble| trouble.to_string())?;
                for workers in [1, 3] {
                    let does = does(variant.name, benchmark, workers, &processors);
                    does.map_err(|why| format!("{} {}: {why}", variant.name, benchmark.name()))?;
                }
                Ok(())
            });
        }
    }
}

/// Checks that the heap completes the benchmark. On a busy machine a second attempt has more time.
fn does(
    variant: &str,
    benchmark: Benchmark,
    workers: usize,
    processors: &[usize],
) -> std::result::Result<(), String> {
    let mut last = String::new();
    for times in [1, 10, 100] {
        let seen = match measure(variant, &plan(benchmark, workers, SHORT * times, processors)) {
            Ok(seen) => seen,
            Err(MeasureError::Skipped(_)) => return Ok(()),
            Err(trouble) => return Err(format!("{workers} workers: {trouble}")),
        };
        let some = seen.rates.iter().any(|&rate| rate > 0.0);
        if seen.rates.len() >= 10 && some && seen.wedged.is_none() {
            return Ok(());
        }
        last = format!("{workers} workers: {seen:?}");
    }
    Err(last)
}

/// The row ends and reports the result, whether or not the heap wedges.
#[test]
fn kill_per_second_happens_and_the_row_ends() {
    in_a_process_of_its_own(|| {
        let processors = pin::allowed().map_err(|trouble| trouble.to_string())?;
        let time = Duration::from_secs(1);
        let seen = match measure("boost-killed", &plan(Benchmark::Larson, 2, time, &processors)) {
            Ok(seen) => seen,
            Err(MeasureError::Skipped(_)) => return Ok(()),
            Err(trouble) => return Err(trouble.to_string()),
        };
        let told = observed(&seen, true);
        let wedged = seen.wedged.is_some();
        let said = told.series[1].samples == [f64::from(u8::from(wedged))]
            && told.notes.iter().any(|note| note.contains("wedged by kill 1")) == wedged;
        if seen.kills == 1 && seen.rates.len() == 10 && said {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    });
}

/// No worker wedges, no block is returned twice, and all blocks are free at the end.
fn makes_progress_after_each_kill(benchmarks: &[Benchmark]) {
    for &benchmark in benchmarks {
        in_a_process_of_its_own(|| {
            let processors = pin::allowed().map_err(|trouble| trouble.to_string())?;
            let time = Duration::from_secs(1);
            let seen = measure("shared-killed", &plan(benchmark, 3, time, &processors))
                .map_err(|trouble| format!("{}: {trouble}", benchmark.name()))?;
            if seen.kills == 1 && seen.wedged.is_none() { Ok(()) } else { Err(format!("{seen:?}")) }
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

impl AllocFunctions for Broken {
    fn malloc(_: usize) -> *mut c_void {
        MEMORY.0.get().cast()
    }
    unsafe fn free(_: *mut c_void) {}
}

#[test]
fn heap_handing_out_one_block_twice_fails() {
    for benchmark in Benchmark::ALL {
        in_a_process_of_its_own(|| {
            let processors = pin::allowed().map_err(|trouble| trouble.to_string())?;
            let mut last = String::new();
            // On a busy machine a short time may be too short for two threads to work.
            for times in [1, 10, 100] {
                let plan = plan(benchmark, 2, SHORT * times, &processors);
                match plan.in_threads(&Malloc::<Broken>::new()) {
                    Err(MeasureError::Failed(why)) if why.contains("twice") => return Ok(()),
                    other => last = format!("{}: {other:?}", benchmark.name()),
                }
            }
            Err(last)
        });
    }
}

#[test]
fn unknown_variant_or_parameter_fails() {
    let found = measure("pigeon", &plan(Benchmark::Larson, 1, SHORT, &[0])).expect_err("none");
    assert!(found.why().contains("pigeon"), "{found}");
    let task = |benchmark: &str, threads: &str| InvocationTask {
        experiment: "shared-heaps".into(),
        variant: "glibc".into(),
        params: Params::from([
            ("benchmark".into(), benchmark.into()),
            ("threads".into(), threads.into()),
        ]),
        size: Size::Quick,
    };
    for (benchmark, threads, named) in [("pigeon", "1", "pigeon"), ("larson", "0", "`0`")] {
        let found = SharedHeaps.run(&task(benchmark, threads)).expect_err("unknown");
        assert!(found.why().contains(named), "{found}");
    }
}

//! `allocators`: the cost of `malloc` and `free` when several threads call them at once:
//! [`Allocators`].
//!
//! Each allocator is called through its own functions ([`heap`]); no peer replaces the process's
//! `malloc`. Each invocation runs two workloads, one after the other: in [`pairs`] each thread
//! frees what it allocated; in [`remote`] another thread frees it. Every block carries a word that
//! names its owner, and the thread reads it before it frees the block: the row fails if an
//! allocator returns one block twice.
//!
//! Not measured: the memory overhead of an allocator, and the cost of large blocks.

mod explained;
mod heap;
mod pairs;
mod remote;
mod worker_threads;

use std::time::Duration;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::{pin, room};

use heap::{Allocator, BestFit, FirstFit, Glibc, NextFit, OneArena, SharedHeapAllocator};
use worker_threads::WorkerThreads;

/// Maximum number of threads started without checking the available memory.
const FEW: usize = 16;
/// Memory per thread: the touched part of its stack, its blocks and its caches.
const THREAD_BYTES: u64 = 4 << 20;

/// Environment variables that change an allocator's behaviour.
const CHANGES: [&str; 4] =
    ["GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "_RJEM_MALLOC_CONF"];

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Allocators;

impl Experiment for Allocators {
    fn name(&self) -> &'static str {
        "allocators"
    }

    fn summary(&self) -> &'static str {
        "What do malloc and free cost when several threads call them at once?"
    }

    fn topic(&self) -> Topic {
        Topic::Memory
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    /// Returns the thread counts. The variants with one lock show its cost even without more
    /// threads than processors; `shared`, which has no lock, is measured with more threads only at
    /// full size.
    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let few = variant.starts_with("classic") || variant == "shared" && size != Size::Full;
        let size = if few { Size::Quick } else { size };
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |threads: usize| Params::from([("threads".to_owned(), threads.to_string())]);
        levels(processors, size).into_iter().map(cell).collect()
    }

    /// The duration of an invocation in ms, which determines the number of blocks.
    fn operations(&self, _: &str, size: Size) -> usize {
        size.allocating_ms()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let text = task.params.get("threads").map_or("", String::as_str);
        let threads = text.parse().ok().filter(|&threads| threads > 0).ok_or_else(|| {
            MeasureError::fail(format!("expected threads to be a number from 1, found `{text}`"))
        })?;
        let time = Duration::from_millis(task.size.allocating_ms() as u64);
        measure(&task.variant, threads, time)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let others = VARIANTS.iter().map(|variant| variant.name).filter(|name| *name != "glibc");
        others.map(|name| (name, "glibc")).collect()
    }
}

/// Returns the thread counts for a number of processors: one, the number of processors, and twice
/// that number. [`super::levels`], in contrast, ends at a paper's last point.
fn levels(processors: usize, size: Size) -> Vec<usize> {
    let mut levels = match size {
        Size::Quick => vec![1, processors],
        Size::Default => vec![1, processors, 2 * processors],
        Size::Full => {
            let powers = std::iter::successors(Some(1), |&level| Some(2 * level));
            let mut all: Vec<usize> = powers.take_while(|&level| level < processors).collect();
            all.extend([processors, 2 * processors]);
            all
        }
    };
    levels.dedup();
    levels
}

/// Measures an allocator with `threads` threads, each workload for `time`.
fn measure(variant: &str, threads: usize, time: Duration) -> Result<Observed> {
    match variant {
        "glibc" => measure_heap::<Glibc>(threads, time),
        "glibc-one-arena" => measure_heap::<OneArena>(threads, time),
        "classic-first-fit" => measure_heap::<FirstFit>(threads, time),
        "classic-next-fit" => measure_heap::<NextFit>(threads, time),
        "classic-best-fit" => measure_heap::<BestFit>(threads, time),
        "shared" => measure_heap::<SharedHeapAllocator>(threads, time),
        #[cfg(feature = "allocators")]
        "mimalloc" => measure_heap::<heap::Mimalloc>(threads, time),
        #[cfg(feature = "allocators")]
        "jemalloc" => measure_heap::<heap::Jemalloc>(threads, time),
        #[cfg(feature = "peers")]
        "snmalloc" => measure_heap::<heap::Snmalloc>(threads, time),
        #[cfg(not(feature = "peers"))]
        "snmalloc" => Err(MeasureError::skip("built without the feature `peers`")),
        #[cfg(not(feature = "allocators"))]
        "mimalloc" | "jemalloc" => Err(MeasureError::skip(format!(
            "built without the feature `allocators`, because linking it slows down every fork of \
             this program; run cargo run --release --features allocators -- measure \
             allocators/{variant}"
        ))),
        other => Err(MeasureError::fail(format!("allocators has no variant {other}"))),
    }
}

fn measure_heap<H: Allocator>(threads: usize, time: Duration) -> Result<Observed> {
    if threads > FEW {
        room::for_processes(threads as u64, THREAD_BYTES)?;
    }
    let processors = pin::allowed()?;
    // Called before the first thread starts, because it sets the number of arenas.
    H::prepare()?;
    let workers = WorkerThreads { processors: &processors, clock: Clock::calibrated(), time };
    let mut seen = Observed::default();
    let pairs = pairs::run::<H>(&workers, threads)?;
    seen.series.push(Series::ns("pair", pairs).batched(worker_threads::BATCH));
    if threads > 1 {
        let frees = remote::run::<H>(&workers, threads / 2)?;
        seen.series.push(Series::ns("remote_free", frees).batched(worker_threads::BATCH));
        if threads % 2 == 1 {
            let paired = threads - 1;
            seen.notes
                .push(format!("remote_free ran on {paired} of the {threads} threads, in pairs"));
        }
    }
    if threads > processors.len() {
        seen.notes.push(format!("{threads} threads on {} processors", processors.len()));
    }
    let set = CHANGES.into_iter().filter(|name| std::env::var_os(name).is_some());
    seen.notes.extend(set.map(|name| format!("{name} is set, which may change the allocator")));
    Ok(seen)
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("classic-first-fit", "the source's: an implicit list, first fit, one lock"),
    variant("classic-next-fit", "the source's, next fit"),
    variant("classic-best-fit", "the source's, best fit"),
    variant("shared", "tontine's heap in shared memory, in one process: slabs for each thread"),
    variant("glibc-one-arena", "the C library's, all threads on one arena with one lock"),
    variant("glibc", "the C library's, with its defaults: threads spread over several arenas"),
    variant("mimalloc", "Microsoft's mimalloc 3: pages with free lists, each owned by one thread"),
    variant(
        "jemalloc",
        "jemalloc 5: arenas, and in front of them a cache of blocks for each thread",
    ),
    variant("snmalloc", "Microsoft's snmalloc: a freed block returns to its thread by message"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    #[test]
    fn every_allocator_yields_samples_for_one_and_more_threads() {
        for variant in VARIANTS {
            // A call of `mallopt` is permanent and would affect other tests' threads, which also
            // allocate.
            in_a_process_of_its_own(|| {
                // Threads without a processor of their own spin for each other.
                let more = if variant.name == VARIANTS[0].name { 5 } else { 2 };
                for threads in [1, more] {
                    let seen = match measure(variant.name, threads, Duration::from_millis(2)) {
                        Ok(seen) => seen,
                        Err(MeasureError::Skipped(_)) => return Ok(()),
                        Err(trouble) => return Err(format!("{}: {trouble}", variant.name)),
                    };
                    let metrics: Vec<_> =
                        seen.series.iter().map(|series| series.metric.as_str()).collect();
                    let expected: &[_] =
                        if threads > 1 { &["pair", "remote_free"] } else { &["pair"] };
                    let told = seen.notes.iter().any(|note| note.contains("4 of the 5 threads"));
                    let sane = metrics == expected
                        && told == (threads == 5)
                        && seen.series.iter().all(|series| {
                            !series.samples.is_empty() && series.samples.iter().all(|&ns| ns > 0.0)
                        });
                    if !sane {
                        return Err(format!("{} {threads}: {seen:?}", variant.name));
                    }
                }
                Ok(())
            });
        }
    }

    #[test]
    fn thread_levels_end_at_twice_the_processors_without_repeats() {
        assert_eq!(levels(2, Size::Quick), [1, 2]);
        assert_eq!(levels(1, Size::Quick), [1]);
        assert_eq!(levels(2, Size::Default), [1, 2, 4]);
        assert_eq!(levels(1, Size::Default), [1, 2]);
        assert_eq!(levels(6, Size::Full), [1, 2, 4, 6, 12]);
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        let found = measure("pigeon", 1, Duration::ZERO).expect_err("there are no pigeons");
        assert!(found.why().contains("pigeon"), "{found}");
        let task = InvocationTask {
            experiment: "allocators".into(),
            variant: "glibc".into(),
            params: Params::from([("threads".into(), "0".into())]),
            size: Size::Quick,
        };
        let found = Allocators.run(&task).expect_err("no threads");
        assert!(found.why().contains("`0`"), "{found}");
    }
}

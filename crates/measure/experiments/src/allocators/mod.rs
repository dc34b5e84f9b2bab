//! `allocators`: the cost of `malloc` and `free` when several threads call them at once:
//! [`Allocators`].
//!
//! Each allocator is called through its own functions ([`heap`]). In [`pairs`] each thread frees
//! what it allocated; in [`remote`] another thread frees it.

pub(crate) mod heap;
mod pairs;
mod remote;
pub(crate) mod worker_threads;

use std::time::Duration;

use crate::prelude::*;
use heap::{Allocator, Classic, Glibc, SharedHeapAllocator};
use worker_threads::WorkerThreads;

/// Maximum number of threads started without checking the available memory.
const FEW: usize = 16;
/// Memory per thread: the touched part of its stack, its blocks and its caches.
const THREAD_BYTES: u64 = 4 << 20;

const CHANGES: [&str; 4] =
    ["GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX", "_RJEM_MALLOC_CONF"];

pub(crate) struct Allocators;

impl Experiment for Allocators {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    /// Returns the thread counts. The variants with one lock show its cost even without more
    /// threads than processors; `shared`, which has no lock, is measured with more threads only at
    /// full size.
    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let few = variant.starts_with("classic") || variant == "shared" && size != Size::Full;
        let size = if few { Size::Quick } else { size };
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |threads: usize| params([("threads", &threads.to_string())]);
        levels(processors, size).into_iter().map(cell).collect()
    }

    /// The duration of an invocation in ms, which determines the number of blocks.
    fn operations(&self, _: &str, size: Size) -> usize {
        size.allocating_ms()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let text = word(&task.params, "threads");
        let threads = text.parse().ok().filter(|&threads| threads > 0);
        let threads = threads.ok_or_else(|| unknown("allocators", "number of threads", text))?;
        let time = Duration::from_millis(task.size.allocating_ms() as u64);
        measure(&task.variant, threads, time)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let others = Allocators
            .variants()
            .iter()
            .map(|variant| variant.name)
            .filter(|name| *name != "glibc");
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

fn measure(variant: &str, threads: usize, time: Duration) -> Result<Observed> {
    match variant {
        "glibc" => measure_heap::<Glibc<false>>(threads, time),
        "glibc-one-arena" => measure_heap::<Glibc<true>>(threads, time),
        "classic-first-fit" => measure_heap::<Classic<0>>(threads, time),
        "classic-next-fit" => measure_heap::<Classic<1>>(threads, time),
        "classic-best-fit" => measure_heap::<Classic<2>>(threads, time),
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
        "mimalloc" | "jemalloc" => not_built("allocators", variant),
        other => Err(unknown("allocators", "variant", other)),
    }
}

#[cfg(not(feature = "allocators"))]
pub(crate) fn not_built<T>(experiment: &str, variant: &str) -> Result<T> {
    skip!(
        "built without the feature `allocators`, because linking it slows down every fork of this \
         program; run cargo run --release -p tontine-measure --features allocators -- \
         {experiment}/{variant}"
    )
}

fn measure_heap<H: Allocator>(threads: usize, time: Duration) -> Result<Observed> {
    if threads > FEW {
        capacity::for_processes(threads as u64, THREAD_BYTES)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_allocator_yields_samples_for_one_and_more_threads() {
        for variant in Allocators.variants() {
            // A call of `mallopt` is permanent and would affect other tests' threads, which also
            // allocate.
            in_a_process_of_its_own(|| {
                // Threads without a processor of their own spin for each other.
                let more = if variant.name == "classic-first-fit" { 5 } else { 2 };
                for threads in [1, more] {
                    let found = measure(variant.name, threads, Duration::from_millis(2));
                    let Some(seen) = unless_skipped(found, variant) else { return };
                    let expected: &[_] =
                        if threads > 1 { &["pair", "remote_free"] } else { &["pair"] };
                    assert_eq!(metrics(&seen), expected, "{} {threads}", variant.name);
                    let noted = seen.notes.iter().any(|note| note.contains("4 of the 5 threads"));
                    assert_eq!(noted, threads == 5, "{seen:?}");
                }
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
}

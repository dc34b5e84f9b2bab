//! `shared-heaps`: the cost of a heap shared by several processes, and the effect of a kill on the
//! heap: [`SharedHeaps`].
//!
//! The code of a benchmark (`benchmarks`) is the same for all heaps (`heaps`), as are the rings
//! that carry blocks which another worker frees. The memory overhead of a heap is not measured.

mod benchmarks;
mod boost;
mod heaps;
mod map;
mod reclaim;
mod run;
mod table;
mod worker;

use std::time::Duration;

use crate::allocators::heap::Glibc;
#[cfg(not(feature = "allocators"))]
use crate::allocators::not_built;
use crate::levels;
use crate::prelude::*;
use benchmarks::Benchmark;
use boost::Boost;
use heaps::{Malloc, Ours};
use reclaim::reclaim;
use run::{BenchResult, WorkerPlan};
use table::MAX_WORKERS;

/// The variant that times the recovery after a death.
const RECLAIM: &str = "shared-reclaim";
const BLOCKS: usize = 1_000_000;
/// Maximum number of blocks of the dead process that a task may request.
const MAX_BLOCKS: usize = 4_000_000;

pub(crate) struct SharedHeaps;

impl Experiment for SharedHeaps {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        if variant == RECLAIM {
            return vec![params([("blocks", &BLOCKS.to_string())])];
        }
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |benchmark: &Benchmark, workers: usize| {
            let workers = workers.to_string();
            params([("benchmark", benchmark.name()), (workers_of(variant), &workers)])
        };
        let all = benchmarks(is_killed(variant), size).iter();
        let cells =
            all.flat_map(|one| worker_counts(processors, size).into_iter().map(|n| cell(one, n)));
        cells.collect()
    }

    /// The duration of an invocation in ms, which determines the number of blocks; for
    /// `shared-reclaim`, one death.
    fn operations(&self, variant: &str, size: Size) -> usize {
        if variant == RECLAIM {
            return 1;
        }
        time(variant, size).as_millis() as usize
    }

    fn invocations(&self, variant: &str, size: Size) -> usize {
        match size {
            _ if is_killed(variant) => size.macro_invocations(),
            Size::Quick | Size::Default => Size::Quick.invocations(),
            Size::Full => size.invocations(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        if task.variant == RECLAIM {
            let times = reclaim(levels::level_of(task, "blocks", MAX_BLOCKS)?)?;
            let series = vec![
                Series::ns("reclaimed", vec![times.reclaimed]),
                Series::ns("given_back", vec![times.given_back]),
            ];
            return Ok(Observed { series, ..Observed::default() });
        }
        if !SharedHeaps.variants().iter().any(|known| known.name == task.variant) {
            return Err(unknown("shared-heaps", "variant", &task.variant));
        }
        let benchmark = Benchmark::named(word(&task.params, "benchmark"))?;
        let workers = levels::level_of(task, workers_of(&task.variant), MAX_WORKERS)?;
        let time = time(&task.variant, task.size);
        let processors = &pin::allowed()?;
        let seen = measure(&task.variant, &WorkerPlan { benchmark, workers, time, processors })?;
        let mut observed = observed(&seen, is_killed(&task.variant));
        if workers > processors.len() {
            let all = processors.len();
            observed.notes.push(format!("{workers} workers on {all} processors: they take turns"));
        }
        Ok(observed)
    }
}

fn is_killed(variant: &str) -> bool {
    variant.ends_with("-killed")
}

fn workers_of(variant: &str) -> &'static str {
    match variant {
        "shared" | "shared-killed" | "boost" | "boost-killed" => "processes",
        _ => "threads",
    }
}

fn time(variant: &str, size: Size) -> Duration {
    if !is_killed(variant) {
        return Duration::from_millis(size.streaming_ms() as u64);
    }
    Duration::from_secs(if size == Size::Full { 10 } else { 1 })
}

/// Returns the benchmarks of a run. Because one kill per second takes seconds, only a full run uses
/// all benchmarks with kills.
fn benchmarks(killed: bool, size: Size) -> &'static [Benchmark] {
    match (killed, size) {
        (false, _) | (true, Size::Full) => &Benchmark::ALL,
        (true, Size::Quick) => &[Benchmark::Larson],
        (true, Size::Default) => &[Benchmark::Larson, Benchmark::XmallocTest],
    }
}

/// Returns the numbers of workers: as many as processors, but at least two. A full run adds others.
fn worker_counts(processors: usize, size: Size) -> Vec<usize> {
    let usual = processors.clamp(2, MAX_WORKERS);
    let mut counts = match size {
        Size::Quick | Size::Default => vec![usual],
        Size::Full => vec![1, 2, usual, (2 * processors).clamp(2, MAX_WORKERS)],
    };
    counts.dedup();
    counts
}

fn measure(variant: &str, plan: &WorkerPlan<'_>) -> Result<BenchResult> {
    match variant {
        "shared" | "shared-killed" => plan.in_processes(&Ours::<true>::new()?, is_killed(variant)),
        "shared-threads" => plan.in_threads(&Ours::<false>::new()?),
        "boost" | "boost-killed" => plan.in_processes(&Boost::new()?, is_killed(variant)),
        "glibc" => plan.in_threads(&Malloc::<Glibc<false>>::new()?),
        #[cfg(feature = "allocators")]
        "mimalloc" => plan.in_threads(&Malloc::<crate::allocators::heap::Mimalloc>::new()?),
        #[cfg(feature = "allocators")]
        "jemalloc" => plan.in_threads(&Malloc::<crate::allocators::heap::Jemalloc>::new()?),
        #[cfg(not(feature = "allocators"))]
        "mimalloc" | "jemalloc" => not_built("shared-heaps", variant),
        other => Err(unknown("shared-heaps", "variant", other)),
    }
}

fn observed(seen: &BenchResult, killed: bool) -> Observed {
    let rates = Series::ns("freed", seen.rates.clone()).in_unit("blocks/s").by_mean();
    let mut series = vec![rates];
    let mut notes = Vec::new();
    if killed {
        let wedged = f64::from(u8::from(seen.wedged.is_some()));
        series.push(Series::ns("wedged", vec![wedged]).in_unit("share").by_mean());
        notes.extend(seen.wedged.map(|(after, kills)| {
            let ms = after.as_millis();
            format!("wedged by kill {kills}: after {ms} ms no worker made progress")
        }));
    }
    Observed { series, notes, maps: seen.maps.clone(), ..Observed::default() }
}

#[cfg(test)]
mod tests;

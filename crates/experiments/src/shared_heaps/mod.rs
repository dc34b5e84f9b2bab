//! `shared-heaps`: the cost of a heap shared by several processes, and the effect of a kill on the
//! heap: [`SharedHeaps`].
//!
//! Seven benchmarks of the literature ([`benchmark`]) run on a heap in shared memory, in processes,
//! and in the same processes while one of them is killed each second. On allocators of a single
//! process they run in threads. The code of a benchmark is the same for all heaps ([`heap`]), as
//! are the rings that carry blocks which another worker frees. Every block carries a word that
//! names its owner; the worker reads it before it frees the block or passes it on. The row fails if
//! a heap returns the same memory twice.
//!
//! The memory overhead of a heap is not measured.

mod alone;
mod benchmark;
mod board;
mod boost;
mod explained;
mod harness;
mod heap;
mod heap_rng;
mod map;
mod ours;
mod picture;
mod reclaim;
mod ring;
mod together;
mod worker;
mod worker_processes;

use std::time::Duration;

use harness::BenchResult;
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;
use worker_processes::WorkerPlan;

use crate::levels;
use benchmark::Benchmark;
use board::SEATS;
use boost::Boost;
use heap::{Malloc, System};
use ours::{OfProcesses, OfThreads};
use reclaim::reclaim;

/// The variant that times the recovery after a death.
const RECLAIM: &str = "shared-reclaim";
/// Default number of blocks of the dead process.
const BLOCKS: usize = 1_000_000;
/// Maximum number of blocks of the dead process that a task may request.
const MOST_BLOCKS: usize = 4_000_000;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct SharedHeaps;

impl Experiment for SharedHeaps {
    fn name(&self) -> &'static str {
        "shared-heaps"
    }

    fn summary(&self) -> &'static str {
        "What does a heap shared by processes cost, and what does a kill do to it?"
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

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        if variant == RECLAIM {
            return vec![Params::from([("blocks".to_owned(), BLOCKS.to_string())])];
        }
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |benchmark: &Benchmark, workers: usize| {
            Params::from([
                ("benchmark".to_owned(), benchmark.name().to_owned()),
                (workers_of(variant).to_owned(), workers.to_string()),
            ])
        };
        let all = benchmarks(is_killed(variant), size).iter();
        let cells = all.flat_map(|one| crowds(processors, size).into_iter().map(|n| cell(one, n)));
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
            let took = reclaim(levels::asked(task, "blocks", MOST_BLOCKS)?)?;
            let series = vec![
                Series::ns("reclaimed", vec![took.reclaimed]),
                Series::ns("given_back", vec![took.given_back]),
            ];
            return Ok(Observed { series, ..Observed::default() });
        }
        let name = task.params.get("benchmark").map_or("", String::as_str);
        let benchmark = Benchmark::named(name)?;
        let workers = levels::asked(task, workers_of(&task.variant), SEATS)?;
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

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        vec![
            ("shared", "boost"),
            ("shared-killed", "shared"),
            ("boost-killed", "boost"),
            ("shared-threads", "glibc"),
            ("shared-threads", "mimalloc"),
            ("shared-threads", "jemalloc"),
        ]
    }
}

fn is_killed(variant: &str) -> bool {
    variant.ends_with("-killed")
}

/// Returns the kind of a variant's workers.
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
fn crowds(processors: usize, size: Size) -> Vec<usize> {
    let most = processors.clamp(2, SEATS);
    let mut crowds = match size {
        Size::Quick | Size::Default => vec![most],
        Size::Full => vec![1, 2, most, (2 * processors).clamp(2, SEATS)],
    };
    crowds.dedup();
    crowds
}

fn measure(variant: &str, plan: &WorkerPlan<'_>) -> Result<BenchResult> {
    match variant {
        "shared" | "shared-killed" => plan.in_processes(&OfProcesses::new()?, is_killed(variant)),
        "shared-threads" => plan.in_threads(&OfThreads::new()?),
        "boost" | "boost-killed" => plan.in_processes(&Boost::new()?, is_killed(variant)),
        "glibc" if cfg!(target_env = "gnu") => plan.in_threads(&Malloc::<System>::new()),
        "glibc" => Err(MeasureError::skip("this program's C library is not glibc")),
        #[cfg(feature = "allocators")]
        "mimalloc" => plan.in_threads(&Malloc::<heap::Mimalloc>::new()),
        #[cfg(feature = "allocators")]
        "jemalloc" => plan.in_threads(&Malloc::<heap::Jemalloc>::new()),
        #[cfg(not(feature = "allocators"))]
        "mimalloc" | "jemalloc" => Err(MeasureError::skip(format!(
            "built without the feature `allocators`, because linking it slows down every fork of \
             this program; run cargo run --release --features allocators -- measure \
             shared-heaps/{variant}"
        ))),
        other => Err(MeasureError::fail(format!("shared-heaps has no variant {other}"))),
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

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant("shared", "processes on tontine's shared heap: arenas, and one word per block"),
    variant(
        "shared-killed",
        "as shared, but each second one of the processes is killed and replaced",
    ),
    variant(
        RECLAIM,
        "a process with 1,000,000 blocks of 64 bytes is killed: time until they are free",
    ),
    variant("shared-threads", "threads on tontine's shared heap"),
    variant("boost", "processes on Boost.Interprocess's managed_shared_memory: one lock for all"),
    variant(
        "boost-killed",
        "as boost, but each second one of the processes is killed and replaced",
    ),
    variant("glibc", "threads on the C library's malloc"),
    variant("mimalloc", "threads on Microsoft's mimalloc 3"),
    variant("jemalloc", "threads on jemalloc 5"),
];

#[cfg(test)]
mod tests;

//! The literature's seven benchmarks of allocators: [`Benchmark`].
//!
//! The benchmarks are reimplemented from their authors' descriptions. All benchmarks run for a
//! given time, and each freed block counts. If the original starts a thread later, a worker
//! replaces that thread here from beginning to end; blocks that one thread leaves to another pass
//! through a ring.
//!
//! [`alone`] contains the benchmarks in which each worker frees its own blocks, [`together`] those
//! in which blocks pass between workers.

use tontine_host::error::{MeasureError, Result};

use super::heap::MeasuredHeap;
use super::worker::HeapWorker;
use super::{alone, together};

/// A workload for a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Benchmark {
    /// Berger and others, Hoard (2000): passive false sharing. One worker allocates a small block
    /// for each worker. Each worker frees the block that it received, and continues as in
    /// [`Benchmark::CacheThrash`].
    CacheScratch,
    /// Berger and others, Hoard (2000): active false sharing. Allocate a small block, write it many
    /// times, free it.
    CacheThrash,
    /// Larson and Krishnan (1998), a server. A randomly drawn block of a set is freed and replaced
    /// by a new block; at intervals the whole set passes to another worker.
    Larson,
    /// Lever and Boreham (2000): half of the workers allocate, the others free.
    XmallocTest,
    /// Leijen and others, mimalloc (2019): sizes from a few bytes to many, most of them small, and
    /// long-lived and short-lived blocks, some of which another worker frees.
    Mstress,
    /// Berger and others, Hoard (2000): allocate many blocks of one size, then free them all.
    Threadtest,
    /// Michael (2004): one worker produces tasks, the others read and free them.
    ProducerConsumer,
}

impl Benchmark {
    pub(super) const ALL: [Self; 7] = [
        Self::CacheScratch,
        Self::CacheThrash,
        Self::Larson,
        Self::XmallocTest,
        Self::Mstress,
        Self::Threadtest,
        Self::ProducerConsumer,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CacheScratch => "cache-scratch",
            Self::CacheThrash => "cache-thrash",
            Self::Larson => "larson",
            Self::XmallocTest => "xmalloc-test",
            Self::Mstress => "mstress",
            Self::Threadtest => "threadtest",
            Self::ProducerConsumer => "producer-consumer",
        }
    }

    /// Returns the benchmark with that name.
    ///
    /// # Errors
    /// Returns `Failed` if no benchmark has that name.
    pub(super) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            MeasureError::fail(format!("expected benchmark to be one of the seven, found `{name}`"))
        })
    }

    /// Runs the benchmark until it is stopped, then frees the worker's blocks.
    ///
    /// # Errors
    /// Returns `Failed` if the heap returns no block, or returns the same block twice.
    pub(super) fn run<H: MeasuredHeap>(self, mut worker: HeapWorker<'_, H>) -> Result<()> {
        worker.wait();
        let all = &mut worker;
        match self {
            Self::CacheScratch => alone::cache_scratch(all),
            Self::CacheThrash => alone::cache_thrash(all),
            Self::Larson => together::larson(all),
            Self::XmallocTest => together::xmalloc_test(all),
            Self::Mstress => together::mstress(all),
            Self::Threadtest => alone::threadtest(all),
            Self::ProducerConsumer => together::producer_consumer(all),
        }?;
        worker.finish()
    }
}

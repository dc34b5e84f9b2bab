//! The literature's seven benchmarks of allocators: [`Benchmark`].
//!
//! Written anew after what their authors say of them. All run for a given time, and each block that
//! is freed counts. Where the original starts a thread, a worker stands here from the beginning to
//! the end; what one thread of it leaves to another goes through a ring.
//!
//! [`alone`] has those in which each worker frees what is its own, [`together`] those in which
//! blocks wander.

use tontine_host::trouble::{Result, Trouble};

use super::heap::Heap;
use super::worker::Worker;
use super::{alone, together};

/// What is done with a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Benchmark {
    /// Berger and others, Hoard (2000): passive false sharing. One worker allocates a small block
    /// for each; each frees the one that it got, and does as in [`Benchmark::CacheThrash`].
    CacheScratch,
    /// The same: active false sharing. Allocate a small block, write it many times, free it.
    CacheThrash,
    /// Larson and Krishnan (1998), a server: a set of blocks, of which one drawn at random is freed
    /// and another one allocated in its place; now and then the whole set goes to another worker.
    Larson,
    /// Lever and Boreham (2000): half of all allocate, the others free.
    XmallocTest,
    /// Leijen and others, mimalloc (2019): sizes from few bytes to many, most of them small, blocks
    /// that live long and blocks that do not, some of which somebody else frees.
    Mstress,
    /// Berger and others, Hoard (2000): allocate many blocks of one size, then free them all.
    Threadtest,
    /// Michael (2004): one makes tasks, the others read and free them.
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

    /// The one of that name.
    ///
    /// # Errors
    /// Failed, where there is none.
    pub(super) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            Trouble::fail(format!("expected benchmark to be one of the seven, found `{name}`"))
        })
    }

    /// Does it until the board says that it is enough; what the worker has is freed then.
    ///
    /// # Errors
    /// Failed, where the heap gives no block, or one twice.
    pub(super) fn run<H: Heap>(self, mut worker: Worker<'_, H>) -> Result<()> {
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

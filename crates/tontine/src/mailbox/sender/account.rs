//! The share of a sender's cap that its lane's chunks occupy: [`ChunkAccount`].
//!
//! A chunk that leaves the chain (read to its end, given back, or taken back) is *released*: the
//! sender closes and unmaps it, but its memory stays charged to the sender until the receiver
//! releases it too. So the chunk counts against the cap until [`ReleaseWatch`] reports the
//! receiver's release or, if the chunk could not be watched, until the sender ends. Neighbours:
//! [`super::growth`] checks the account before it makes a chunk.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::release::ReleaseWatch;

/// Base-2 logarithm of the maximum size (64 KiB) of a first chunk that is not watched and does not
/// count once it is released, so that a lane that never grows needs no inotify instance.
const MAX_UNWATCHED_LOG2: u32 = 16;

/// Chunks of one lane that are charged to the sender.
#[derive(Debug)]
pub(super) struct ChunkAccount {
    /// Chunks of the chain, oldest first.
    chain: VecDeque<Chunk>,
    /// Chunks that have left the chain but may still be held by the receiver.
    released: Vec<Chunk>,
}

/// A chunk.
#[derive(Debug)]
struct Chunk {
    bytes: u64,
    holders: ChunkHolders,
    /// The descriptor to pass to a successor, if the lane may wait for one.
    descriptor: Option<OwnedFd>,
}

/// Known state of the processes that may hold a released chunk.
#[derive(Debug)]
enum ChunkHolders {
    Watched(ReleaseWatch),
    /// The chunk could not be watched.
    Unknown,
    /// The chunk is not watched and does not count against the cap.
    Unwatched,
}

impl ChunkHolders {
    fn of(chunk: &OwnedFd) -> Self {
        ReleaseWatch::new(chunk.as_fd()).map_or(Self::Unknown, Self::Watched)
    }
}

impl ChunkAccount {
    /// Returns the account of a lane that begins with a chunk of two to the power `log2` bytes.
    pub(super) fn new(log2: u32, descriptor: OwnedFd) -> Self {
        let watched = log2 > MAX_UNWATCHED_LOG2;
        let holders = if watched { ChunkHolders::of(&descriptor) } else { ChunkHolders::Unwatched };
        let first = Chunk { bytes: 1 << log2, holders, descriptor: Some(descriptor) };
        Self { chain: VecDeque::from([first]), released: Vec::new() }
    }

    /// Adds the chain's newest chunk, of two to the power `log2` bytes.
    pub(super) fn push(&mut self, log2: u32, descriptor: OwnedFd) {
        let holders = ChunkHolders::of(&descriptor);
        self.chain.push_back(Chunk { bytes: 1 << log2, holders, descriptor: Some(descriptor) });
    }

    /// Returns the open descriptors of the chain, oldest first.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.chain.iter().filter_map(|chunk| Some(chunk.descriptor.as_ref()?.as_fd()))
    }

    /// Closes the descriptors, which no successor will need.
    pub(super) fn close_descriptors(&mut self) {
        self.chain.iter_mut().for_each(|chunk| chunk.descriptor = None);
    }

    /// Releases the oldest chunks until `chunks` are left in the chain.
    pub(super) fn release_until(&mut self, chunks: usize) {
        let surplus = self.chain.len().saturating_sub(chunks);
        if surplus == 0 {
            return;
        }
        for mut chunk in self.chain.drain(..surplus) {
            chunk.descriptor = None;
            if !matches!(chunk.holders, ChunkHolders::Unwatched) {
                self.released.push(chunk);
            }
        }
        self.update();
    }

    /// Forgets released chunks that no process references any more.
    pub(super) fn update(&mut self) {
        if !self.released.is_empty() {
            ReleaseWatch::update();
            self.released.retain(|chunk| match &chunk.holders {
                ChunkHolders::Watched(watch) => !watch.is_released(),
                _ => true,
            });
        }
    }

    /// Returns the number of bytes in all chunks, as of the last update.
    pub(super) fn bytes(&self) -> u64 {
        self.chain.iter().map(|chunk| chunk.bytes).sum::<u64>() + self.held()
    }

    /// Returns the number of bytes in released chunks whose release the kernel does not report.
    pub(super) fn unknown(&self) -> u64 {
        let unknown = |chunk: &&Chunk| matches!(chunk.holders, ChunkHolders::Unknown);
        self.released.iter().filter(unknown).map(|chunk| chunk.bytes).sum()
    }

    /// Returns the number of bytes in released chunks that the receiver may still hold.
    pub(super) fn held(&self) -> u64 {
        self.released.iter().map(|chunk| chunk.bytes).sum()
    }
}

//! Heaps in shared memory: [`HeapTarget`], whose users are its [`TargetMember`]s.

use std::io;

use super::CrashTarget;
use crate::run_dir::RunDir;

/// A heap from which several processes allocate.
pub trait HeapTarget: CrashTarget {
    /// Returns the size of the blocks with which each trial begins. Like all sizes here, it is a
    /// multiple of 64.
    fn small(&self) -> usize {
        4 << 10
    }

    /// Returns another block size, of which no member has a block yet.
    fn other(&self) -> usize {
        16 << 10
    }

    /// Returns the size of a block for which no single slab is large enough.
    fn large(&self) -> usize {
        160 << 10
    }

    /// Returns the size of the blocks that fill the heap.
    fn filling(&self) -> usize {
        32 << 10
    }

    /// Returns `true` if survivors free a dead member's blocks in [`TargetMember::recover`].
    fn recovers(&self) -> bool {
        false
    }

    /// Creates the heap, and joins it.
    fn create(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>>;

    /// Joins a heap that a live member has created.
    fn join(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>>;
}

/// A process's membership of a heap. Its blocks form a list and are identified by their index;
/// when a block is removed, the last block takes its index. Dropping it leaves the heap without
/// freeing the blocks.
pub trait TargetMember {
    /// Allocates a block and appends it to the list; returns `false` if the heap has no space.
    fn allocate(&mut self, bytes: usize) -> io::Result<bool>;

    /// Returns the bytes of a block.
    fn bytes(&mut self, at: usize) -> &mut [u8];

    /// Frees a block.
    fn free(&mut self, at: usize) -> io::Result<()>;

    /// Announces this member, so that others can hand blocks over to it.
    fn listen(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Learns how to reach the member with this process id.
    fn meet(&mut self, pid: u32) -> io::Result<()> {
        let _ = pid;
        Ok(())
    }

    /// Hands a block over to a member that it has met.
    fn hand_over(&mut self, at: usize, pid: u32) -> io::Result<()> {
        let _ = (at, pid);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Accepts a block that was handed over; returns `None` if no block was.
    fn accept(&mut self) -> io::Result<Option<HandedOver>> {
        Ok(None)
    }

    /// Frees the blocks in flight to or from dead members, which will not arrive.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Recovers dead members, and returns memory that the heap does not need to the system.
    fn recover(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Checks the whole heap.
    fn check(&mut self) -> io::Result<Checked>;
}

/// Result of accepting a block that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandedOver {
    /// The block was accepted and is the last of the list.
    Taken,
    /// The block had already been taken back.
    Stale,
}

/// Result of a check of the whole heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The heap is damaged; contains the reason.
    Faulty(String),
    Sound {
        /// Number of bytes in blocks that members have.
        in_use: usize,
        /// Number of bytes that the heap could return to the system but has not, if it returns
        /// memory at all.
        committed: usize,
    },
}

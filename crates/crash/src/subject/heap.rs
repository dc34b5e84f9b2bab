//! Heaps in shared memory: [`HeapTarget`], whose users are its [`TargetMember`]s.

use std::io;

use super::CrashTarget;
use crate::run_dir::RunDir;

/// A heap that several processes allocate from.
pub trait HeapTarget: CrashTarget {
    /// Returns the size of the blocks that each trial begins with: 64 times a whole number, as all
    /// sizes here.
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

    /// Returns the size of the blocks with which the heap is filled.
    fn filling(&self) -> usize {
        32 << 10
    }

    /// Returns `true` if survivors free a dead member's blocks in [`TargetMember::recover`].
    fn recovers(&self) -> bool {
        false
    }

    /// Returns `true` if a member can hand a block over to another one.
    fn hands_over(&self) -> bool {
        false
    }

    /// Creates the heap, and joins it.
    ///
    /// # Errors
    /// Those of the heap.
    fn create(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>>;

    /// Joins a heap that a live member has created.
    ///
    /// # Errors
    /// Those of the heap.
    fn join(&self, place: &RunDir) -> io::Result<Box<dyn TargetMember>>;
}

/// One process's membership of a heap. Its blocks form a list and are named by their index; when
/// one is removed, the last one takes its index. Dropping it leaves the heap without freeing the
/// blocks.
pub trait TargetMember {
    /// Allocates a block, which becomes the last of the list; returns `false` if there is no space.
    ///
    /// # Errors
    /// Those of the heap, except that it is full.
    fn allocate(&mut self, bytes: usize) -> io::Result<bool>;

    /// Returns the bytes of a block.
    fn bytes(&mut self, at: usize) -> &mut [u8];

    /// Frees a block.
    ///
    /// # Errors
    /// Those of the heap.
    fn free(&mut self, at: usize) -> io::Result<()>;

    /// Announces itself, so that others can hand blocks over to it.
    ///
    /// # Errors
    /// Those of the mechanism by which blocks are handed over.
    fn listen(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Learns how to reach the member with this process id.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn meet(&mut self, pid: u32) -> io::Result<()> {
        let _ = pid;
        Ok(())
    }

    /// Hands a block over to a member that it has met.
    ///
    /// # Errors
    /// Those of the heap, and of the channel that carries the handles.
    fn hand_over(&mut self, at: usize, pid: u32) -> io::Result<()> {
        let _ = (at, pid);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Accepts a block that was handed over; `None` if there is none.
    ///
    /// # Errors
    /// Those of the heap, and of the channel that carries the handles.
    fn accept(&mut self) -> io::Result<Option<HandedOver>> {
        Ok(None)
    }

    /// Frees blocks in flight to or from dead members, which will not arrive.
    ///
    /// # Errors
    /// Those of the heap.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Recovers dead members, and returns memory that the heap does not need.
    ///
    /// # Errors
    /// Those of the heap.
    fn recover(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Checks the whole heap.
    ///
    /// # Errors
    /// Those of the heap.
    fn check(&mut self) -> io::Result<Checked>;
}

/// Result of accepting a block that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandedOver {
    /// The block is the last of the list.
    Taken,
    /// The block was taken back before.
    Stale,
}

/// Result of a check of the whole heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The heap is damaged, in this way.
    Faulty(String),
    /// The heap is sound.
    Sound {
        /// Bytes in blocks that a member has.
        in_use: usize,
        /// Bytes that could be returned to the system, if the heap does that, and are not.
        committed: usize,
    },
}

//! Heaps in shared memory: [`HeapTarget`], whose users are its [`TargetMember`]s.

use std::io;

use super::Subject;
use crate::place::Place;

/// One heap that several processes allocate from.
pub trait HeapTarget: Subject {
    /// Bytes of the blocks that each scene begins with: 64 times a whole number, as all sizes here.
    fn small(&self) -> usize {
        4 << 10
    }

    /// Bytes of a block of another size, of which nobody has one yet.
    fn other(&self) -> usize {
        16 << 10
    }

    /// Bytes of a block for which no single slab is large enough.
    fn large(&self) -> usize {
        160 << 10
    }

    /// Bytes of the blocks with which the heap is filled.
    fn filling(&self) -> usize {
        32 << 10
    }

    /// Whether survivors free what the dead had, when asked to [`TargetMember::recover`].
    fn recovers(&self) -> bool {
        false
    }

    /// Whether a member can hand a block over to another one.
    fn hands_over(&self) -> bool {
        false
    }

    /// Makes the heap, and joins it.
    ///
    /// # Errors
    /// Those of the heap.
    fn create(&self, place: &Place) -> io::Result<Box<dyn TargetMember>>;

    /// Joins a heap that somebody who lives has made.
    ///
    /// # Errors
    /// Those of the heap.
    fn join(&self, place: &Place) -> io::Result<Box<dyn TargetMember>>;
}

/// One process's part in a heap. Its blocks are numbered as they stand in a row; one that goes
/// leaves its place to the last one. Dropped, the process leaves; the blocks are not freed before.
pub trait TargetMember {
    /// Allocates a block, the new last one of the row; false where there is no room.
    ///
    /// # Errors
    /// Those of the heap, but that it is full.
    fn allocate(&mut self, bytes: usize) -> io::Result<bool>;

    /// The bytes of a block.
    fn bytes(&mut self, at: usize) -> &mut [u8];

    /// Frees a block.
    ///
    /// # Errors
    /// Those of the heap.
    fn free(&mut self, at: usize) -> io::Result<()>;

    /// Makes itself known, so that others can hand blocks over to it.
    ///
    /// # Errors
    /// Those of the mechanism by which they are.
    fn listen(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Learns how to reach the member that is this process.
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
    /// Those of the heap, and of what carries the news.
    fn hand_over(&mut self, at: usize, pid: u32) -> io::Result<()> {
        let _ = (at, pid);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Takes a block that was handed over; `None` where none is there.
    ///
    /// # Errors
    /// Those of the heap, and of what carries the news.
    fn accept(&mut self) -> io::Result<Option<Accepted>> {
        Ok(None)
    }

    /// Frees what was on its way to or from the dead, and will not arrive.
    ///
    /// # Errors
    /// Those of the heap.
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Looks after the dead, and gives back what it does not need.
    ///
    /// # Errors
    /// Those of the heap.
    fn recover(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Looks at the whole heap.
    ///
    /// # Errors
    /// Those of the heap.
    fn check(&mut self) -> io::Result<Checked>;
}

/// What became of a block that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It is the last one of the row.
    Taken,
    /// It was taken back before.
    Stale,
}

/// What somebody found who looked at the whole heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// It is damaged: how.
    Faulty(String),
    /// It is as it should be.
    Sound {
        /// Bytes in blocks that somebody has.
        in_use: usize,
        /// Bytes that could be given back to the system, where the heap does that, and are not.
        committed: usize,
    },
}

//! A heap in shared memory, in which any process may be killed at any instruction: [`Heap`].
//!
//! The survivors go on at once, no block leaks, and none is given out twice. Who has a block is
//! said by one word outside of it; all else is a hint. Each thread allocates from slabs of its own,
//! and no cache line has blocks of two owners.
//!
//! ```
//! use tontine::heap::shared::Heap;
//!
//! # fn main() -> tontine::heap::Result<()> {
//! let heap = Heap::create(1 << 20)?;
//! let mut block = heap.alloc(100)?;
//! block.fill(7);
//! let handle = block.into_handle();          // 16 bytes that mean the same in every process
//! let block = heap.claim(handle)?;           // a block again, for whoever comes first
//! assert!(block[..100].iter().all(|byte| *byte == 7));
//! drop(block);                               // free
//! assert!(heap.claim(handle).is_err());      // and the handle is stale
//! # Ok(())
//! # }
//! ```
//!
//! Layout, protocol, and what a death leaves after each step: `docs/heap-shared.md`. The guide is
//! `docs/heap.md`.
//!
//! Neighbours: `word` is what members agree on, `layout` where it lies, `space` the memory, `core`
//! how slabs change hands, `arena` and `shelf` one thread's slabs, `local` which arena a thread
//! has, `recover` the recovery of dead members, `post` blocks by mailbox, `mail` the ways by which
//! blocks arrive and leave, `flight` the blocks without a taker, `check` the consistency check.

#![allow(unsafe_code, reason = "opening a heap is unsafe")]

mod arena;
mod array;
mod block;
mod canary;
mod check;
mod class;
mod core;
mod flight;
mod layout;
mod local;
mod mail;
#[cfg(test)]
mod odd_ends;
mod post;
#[cfg(test)]
mod properties;
mod published;
mod recover;
#[cfg(test)]
mod rubbish;
#[cfg(any(test, fuzzing))]
mod scribble;
mod shelf;
mod space;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tso;
mod word;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use array::Array;
pub use block::{Block, Handle, Parcel};
pub use check::{HeapFault, HeapReport, SlabMap, SlabStatus};
pub use post::{Inbox, Outbox};
pub use published::Published;
pub use recover::Recovery;
pub use word::Member;

use self::class::Class;
use self::core::Core;
use self::layout::{MOST_SLABS, SLAB};
use self::recover::Whole;
use self::space::Space;
use crate::heap::{HeapError, Result};

/// Settings of a new [`Heap`].
///
/// ```
/// use tontine::heap::shared::HeapOptions;
///
/// let heap = HeapOptions::new(1 << 20).canaries(true).create()?;
/// drop(heap.alloc(100)?);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[must_use = "options do nothing until `create` is called"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapOptions {
    capacity: usize,
    canaries: bool,
}

impl HeapOptions {
    /// Returns the settings of a heap with `capacity` bytes of blocks, rounded up to whole slabs of
    /// 64 KiB, without canaries.
    ///
    /// Memory is allocated when blocks need it: a large capacity costs address space.
    pub const fn new(capacity: usize) -> Self {
        Self { capacity, canaries: false }
    }

    /// Writes a canary behind each block, and checks it when the block is freed, handed over or
    /// published: for debugging. Each block takes 16 bytes more. Default: `false`.
    pub const fn canaries(mut self, canaries: bool) -> Self {
        self.canaries = canaries;
        self
    }

    /// Creates a heap in a memfd, of which this process is the first member.
    ///
    /// # Errors
    /// - [`HeapError::InvalidSize`]: the capacity is 0, or above 4 TiB.
    /// - [`HeapError::FileTooLarge`]: the process's limit on file sizes is smaller.
    /// - [`HeapError::System`]: the kernel has no memory or address space for the heap.
    pub fn create(self) -> Result<Heap> {
        let slabs = self.capacity.div_ceil(SLAB);
        if !(1..=MOST_SLABS).contains(&slabs) {
            let reason = "a shared heap has from 1 byte to 4 TiB of blocks";
            return Err(HeapError::InvalidSize { size: self.capacity, reason });
        }
        Heap::join(Space::create(slabs, self.canaries)?)
    }
}

/// A heap in shared memory, of which this process is a member.
///
/// Any thread may use it. Dropped, the process leaves: what it still has is freed, and what it has
/// sent is delivered.
#[derive(Debug)]
pub struct Heap {
    core: Arc<Core>,
}

impl Heap {
    /// Creates a heap with `capacity` bytes of blocks, of which this process is the first member;
    /// [`HeapOptions`] has further settings.
    ///
    /// ```
    /// use tontine::heap::shared::Heap;
    ///
    /// let heap = Heap::create(64 << 20)?; // memory is allocated when blocks need it
    /// let mut block = heap.alloc(100)?;
    /// block.fill(7);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`HeapOptions::create`].
    pub fn create(capacity: usize) -> Result<Self> {
        HeapOptions::new(capacity).create()
    }

    /// Joins the heap in this file, which somebody passed: over a Unix socket, or by inheritance.
    ///
    /// # Safety
    /// All members of the heap write to one memory and trust each other: whoever else can write to
    /// the file does so by this library. The process has no other descriptor of the file, and
    /// closes none while it is a member: that would say that it has ended.
    ///
    /// A file that is refused is closed, which drops all record locks of this process on it: take
    /// descriptors of heaps from members alone.
    ///
    /// # Errors
    /// [`HeapError::NotAHeap`], [`HeapError::VersionMismatch`]: what the file lacks. [`HeapError::AlreadyOpen`]: this
    /// process is a member. [`HeapError::LimitReached`]: 512 processes are.
    pub unsafe fn open(file: OwnedFd) -> Result<Self> {
        Self::join(Space::open(file)?)
    }

    /// In a forked child: joins the heap as a member of its own. The parent's blocks stay the
    /// parent's.
    ///
    /// # Safety
    /// As for [`Heap::open`].
    ///
    /// # Errors
    /// As for [`Heap::open`]; [`HeapError::AlreadyOpen`] in the process that opened it.
    pub unsafe fn rejoin(&self) -> Result<Self> {
        if !self.core.space.is_forked() {
            return Err(HeapError::AlreadyOpen);
        }
        // The inherited one stays open, for whoever drops the parent's handle here closes nothing.
        let file = rustix::io::fcntl_dupfd_cloexec(self.core.space.file(), 0)
            .map_err(space::system("fcntl(F_DUPFD_CLOEXEC)"))?;
        Self::join(Space::open(file)?)
    }

    fn join(space: Space) -> Result<Self> {
        Ok(Self { core: Arc::new(Core::join(space)?) })
    }

    /// The file, for passing on: over a Unix socket, or to a child.
    ///
    /// # Safety
    /// A duplicate of it must not be closed in this process: that would say that it has ended, and
    /// its blocks would be given to others.
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        self.core.space.file()
    }

    /// This process as a member.
    pub fn member(&self) -> Member {
        self.core.me()
    }

    /// Allocates a block of `len` bytes, aligned to 64, which hold whatever somebody left there.
    ///
    /// # Errors
    /// [`HeapError::Full`]: there is no room, here or in what the dead have left. [`HeapError::System`]:
    /// the kernel has no memory. [`HeapError::LimitReached`]: too many threads. [`HeapError::Forked`].
    #[inline(always)]
    pub fn alloc(&self, len: usize) -> Result<Block<'_>> {
        let core = &*self.core;
        if !core.canaries
            && !core.space.is_forked()
            && let Class::Small(class) = Class::of(len)
            && let Some(granule) = local::with_recent(core, |arena| arena.loan_known(core, class))
        {
            return Ok(Block::new(core, granule, len));
        }
        match self.alloc_slowly(len) {
            Ok(granule) => Ok(Block::new(core, granule, len)),
            Err(error) => Err(*error),
        }
    }

    /// The granule of a block, where something is to be fetched first, or written behind it. Its
    /// answer fits into registers: through memory, that of `alloc` would go there, too.
    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, len: usize) -> Result<usize, Box<HeapError>> {
        self.here()?;
        let core = &self.core;
        let class = Class::of(len.saturating_add(core.behind()));
        if class.slabs() > core.space.geometry().slabs() {
            return Err(core.full(len).into());
        }
        let granule = match class {
            Class::Small(class) => local::with(core, |arena| arena.loan(core, class))??,
            Class::Large(slabs) => local::with(core, |arena| arena.loan_large(core, slabs))??,
        };
        if core.canaries {
            canary::write(core, granule, class, len);
        }
        Ok(granule)
    }

    /// As [`Heap::alloc`], and all bytes are zero.
    ///
    /// # Errors
    /// As for [`Heap::alloc`].
    pub fn alloc_zeroed(&self, len: usize) -> Result<Block<'_>> {
        let mut block = self.alloc(len)?;
        block.fill(0);
        Ok(block)
    }

    /// The block of this handle, which [`Block::into_handle`] has left with this process. Of two
    /// threads that claim one handle, one gets the block. It is as long as blocks of its size are,
    /// which may be more than was asked for.
    ///
    /// # Errors
    /// [`HeapError::Stale`]: the block was freed, handed over or claimed before, or is somebody else's.
    /// [`HeapError::InvalidHandle`]: no block begins there, or none any more, for its slab has been
    /// given back.
    pub fn claim(&self, handle: Handle) -> Result<Block<'_>> {
        self.here()?;
        self.core.claim(handle)
    }

    /// Frees the block of this handle.
    ///
    /// # Errors
    /// As for [`Heap::claim`]; and as for [`Block::free`].
    pub fn free(&self, handle: Handle) -> Result<()> {
        self.claim(handle)?.free()
    }

    /// Takes a block that another member has handed over.
    ///
    /// # Errors
    /// [`HeapError::Stale`]: it was accepted before, or taken back, or freed because both ends seemed
    /// to be dead. [`HeapError::InvalidHandle`]: this is no parcel, or the
    /// slab of what was freed has been given back.
    #[inline]
    pub fn accept(&self, parcel: Parcel) -> Result<Block<'_>> {
        self.here()?;
        self.core.accept(parcel)
    }

    /// Takes a block back that this process has handed over, and that nobody has accepted.
    ///
    /// # Errors
    /// As for [`Heap::accept`].
    pub fn take_back(&self, parcel: Parcel) -> Result<Block<'_>> {
        self.here()?;
        self.core.take_back(parcel)
    }

    /// Frees what this process has handed over to a member that has ended, and that nobody has
    /// accepted. How many blocks. What outboxes have sent needs none of this.
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn reclaim_sent(&self, from: Member) -> Result<usize> {
        self.here()?;
        Ok(if self.core.is_alive(from) { 0 } else { self.core.reclaim_sent(from) })
    }

    /// Members that are known to have ended, and that something may still name: to be asked before
    /// their parcels are read to the end, and then to be given to [`Heap::reclaim_received`].
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn dead_members(&self) -> Result<Vec<Member>> {
        self.here()?;
        Ok(self.core.dead_members())
    }

    /// Frees what these dead members have handed over to this process, and that it has not
    /// accepted. How many blocks.
    ///
    /// They are those that [`Heap::dead_members`] named *before* all parcels that were there were read:
    /// whoever has died since may have sent one that was not. Others than the dead are passed over.
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn reclaim_received(&self, dead: &[Member]) -> Result<usize> {
        self.here()?;
        Ok(self.core.reclaim_received(dead, false))
    }

    /// Whether a member lives; one that has ended counts as alive until somebody has seen it.
    pub fn is_alive(&self, member: Member) -> bool {
        !self.core.space.is_forked() && self.core.is_alive(member)
    }

    /// Looks after the dead: proves their end, frees what they had, takes over their slabs. Others
    /// do so, too, when they find no room, or no slot to join in. It also gives back the memory
    /// of this thread's slabs that have no block.
    ///
    /// # Errors
    /// [`HeapError::System`], [`HeapError::Forked`].
    pub fn recover_and_trim(&self) -> Result<Recovery> {
        self.here()?;
        let core = &self.core;
        local::with(core, |arena| {
            let desk = core.desk();
            let mut recovery = core.recover_all(&desk, Some(arena), Whole::GivenBack)?;
            drop(desk);
            recovery.given_back += arena.tidy(core)?;
            Ok(recovery)
        })?
    }

    /// Looks after the dead as [`Heap::recover_and_trim`] does, and keeps their slabs that have no block for
    /// this thread's next ones: to take their memory back takes the kernel longer than all the
    /// rest. Others have no use of it before this thread gives it back, by `recover_and_trim`, or a few slabs
    /// at a time as it frees blocks.
    ///
    /// # Errors
    /// As for [`Heap::recover_and_trim`].
    pub fn recover(&self) -> Result<Recovery> {
        self.here()?;
        let core = &self.core;
        local::with(core, |arena| core.recover_all(&core.desk(), Some(arena), Whole::Kept))?
    }

    /// Looks at everything: see [`HeapReport`]. Exact where nobody works, a snapshot otherwise.
    ///
    /// # Errors
    /// [`HeapError::Forked`]. What is wrong with the heap is no error but in the report.
    pub fn check(&self) -> Result<HeapReport> {
        self.here()?;
        let known = local::with_known(&self.core, |arena| arena.known().collect());
        Ok(check::check(&self.core, known.unwrap_or_default()))
    }

    #[inline]
    fn here(&self) -> Result<()> {
        if self.core.space.is_forked() { Err(HeapError::Forked) } else { Ok(()) }
    }
}

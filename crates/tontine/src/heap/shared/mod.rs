//! A heap in shared memory, of which any process may be killed at any instruction: [`Heap`].
//!
//! The surviving processes continue at once, no block leaks, and no block is allocated twice. One
//! word outside of a block says which process holds it; everything else is a hint. Each thread
//! allocates from slabs of its own, and no cache line has blocks of two holders.
//!
//! ```
//! use tontine::heap::shared::Heap;
//!
//! # fn main() -> tontine::heap::Result<()> {
//! let heap = Heap::create(1 << 20)?;
//! let mut block = heap.alloc(100)?;
//! block.fill(7);
//! let handle = block.into_handle();          // 16 bytes that mean the same in every process
//! let block = heap.claim(handle)?;           // the block again, for the first thread that asks
//! assert!(block[..100].iter().all(|byte| *byte == 7));
//! drop(block);                               // frees it
//! assert!(heap.claim(handle).is_err());      // and the handle is stale
//! # Ok(())
//! # }
//! ```
//!
//! # Freeing a block in another process
//!
//! A block belongs to one process, and only that process can free it. To have another member free
//! a block, hand it over: the sender calls [`Block::hand_over`] and passes the 24 bytes of the
//! [`Parcel`] on, or sends the block through an [`Outbox`]; the receiver calls [`Heap::accept`], or
//! [`Inbox::recv`], and drops the block. If either process dies in between, the block is freed by
//! the others: see [`Heap::recover_and_trim`].
//!
//! ```
//! use tontine::heap::shared::{Heap, Parcel};
//!
//! # fn main() -> tontine::heap::Result<()> {
//! let heap = Heap::create(1 << 20)?;
//! // In the sender, which has learnt the receiver's number, `heap.member().to_u64()`:
//! let receiver = heap.member();
//! let block = heap.alloc(100)?;
//! let bytes = block.hand_over(receiver).map_err(|(error, _)| error)?.to_bytes();
//! // In the receiver, for which this process stands here:
//! let block = heap.accept(Parcel::from_bytes(bytes))?;
//! drop(block); // frees it
//! assert_eq!(heap.check()?.in_use(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Neighbours: `word` is what members agree on, `layout` where it lies, `space` the memory, `core`
//! how slabs change hands, `arena` and `shelf` one thread's slabs, `local` which arena a thread
//! has, `recover` the recovery of dead members, `post` blocks by mailbox, `mail` the ways by which
//! blocks arrive and leave, `flight` the blocks without a taker, `check` the consistency check.

// `docs/heap-shared.md` has the layout, the protocol, and what a death leaves after each step.

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
/// All threads of the process may use it at the same time. Dropping it leaves the heap: the blocks
/// that the process still holds are freed, and those that it has handed over can be accepted.
///
/// [`Heap::create`] makes a heap. Another process joins with [`Heap::open`] and a descriptor of the
/// heap, which it has inherited or received over a Unix socket; a forked child joins with
/// [`Heap::rejoin`]. Until then, methods that return a [`Result`] fail in the child with
/// [`HeapError::Forked`].
///
/// ```
/// use tontine::heap::shared::Heap;
///
/// let heap = Heap::create(1 << 20)?;
/// let mut block = heap.alloc(3)?;
/// block.copy_from_slice(b"abc");
/// assert_eq!(*block, *b"abc");
/// block.free()?; // like `drop`, but reports an overrun
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
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

    /// Joins the heap of a descriptor that another member has passed, over a Unix socket or by
    /// inheritance ([`Heap::descriptor`]).
    ///
    /// ```
    /// use std::os::fd::OwnedFd;
    /// use tontine::heap::shared::Heap;
    ///
    /// /// Joins the heap of which a member has sent `file`.
    /// fn join(file: OwnedFd) -> tontine::heap::Result<Heap> {
    ///     // SAFETY: all members use this library, and `file` is this process's only descriptor of
    ///     // the heap.
    ///     unsafe { Heap::open(file) }
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`HeapError::NotAHeap`], [`HeapError::VersionMismatch`]: the file is not a heap of this
    ///   version.
    /// - [`HeapError::AlreadyOpen`]: this process is a member.
    /// - [`HeapError::LimitReached`]: the heap has 512 members.
    /// - [`HeapError::System`]: a system call failed.
    ///
    /// A file that is refused is closed, which releases all record locks of this process on it:
    /// take descriptors from members only. With [`HeapError::AlreadyOpen`] the descriptor is kept
    /// open instead.
    ///
    /// # Safety
    /// All members write to one memory and trust each other. The caller must ensure:
    ///
    /// 1. Every process that can write to the file writes to it through this library only.
    /// 2. This process has no other descriptor of the file.
    /// 3. While the process is a member, it closes no descriptor of the file: the kernel would
    ///    release its record locks, and the other members would take it for dead and free its
    ///    blocks.
    pub unsafe fn open(file: OwnedFd) -> Result<Self> {
        Self::join(Space::open(file)?)
    }

    /// Joins the heap in a forked child, as a member of its own. The parent's blocks stay the
    /// parent's.
    ///
    /// ```no_run
    /// # use tontine::heap::shared::Heap;
    /// # fn in_the_child(heap: &Heap) -> tontine::heap::Result<()> {
    /// // SAFETY: all members use this library, and the child has closed no descriptor of the heap.
    /// let heap = unsafe { heap.rejoin() }?;
    /// let block = heap.alloc(100)?;
    /// # drop(block);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Heap::open`]; [`HeapError::AlreadyOpen`] in the process that opened the heap.
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. Every process that can write to the file writes to it through this library only.
    /// 2. Apart from the descriptors that the child inherited from the parent's `Heap`, it has none
    ///    of the file, and it closes none while it is a member.
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

    /// Returns the heap's file, to be passed on to a process that calls [`Heap::open`].
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. No duplicate of the descriptor is closed in this process while it is a member: the kernel
    ///    would release its record locks, and the other members would take it for dead and free its
    ///    blocks.
    /// 2. The descriptor goes only to processes that use the file through this library.
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        self.core.space.file()
    }

    /// Returns this process as a member of the heap.
    pub fn member(&self) -> Member {
        self.core.me()
    }

    /// Allocates a block of `len` bytes, aligned to 64.
    ///
    /// Its bytes are not initialised: they hold what an earlier block of any member held.
    /// [`Heap::alloc_zeroed`] sets them to zero. The block is freed when it is dropped.
    ///
    /// If no space is left, `alloc` recovers dead members first, like [`Heap::recover_and_trim`].
    ///
    /// ```
    /// use tontine::heap::HeapError;
    /// use tontine::heap::shared::Heap;
    ///
    /// let heap = Heap::create(1 << 20)?;
    /// let block = heap.alloc(1000)?;
    /// assert_eq!(block.len(), 1000);
    /// assert!(matches!(heap.alloc(2 << 20), Err(HeapError::Full { .. })));
    /// # Ok::<(), HeapError>(())
    /// ```
    ///
    /// # Errors
    /// - [`HeapError::Full`]: no space is left, and dead members have left none.
    /// - [`HeapError::System`]: the kernel has no memory.
    /// - [`HeapError::LimitReached`]: 2,048 threads of all members use the heap.
    /// - [`HeapError::Forked`].
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

    /// Allocates a block like [`Heap::alloc`], and sets all its bytes to zero.
    ///
    /// # Errors
    /// Those of [`Heap::alloc`].
    pub fn alloc_zeroed(&self, len: usize) -> Result<Block<'_>> {
        let mut block = self.alloc(len)?;
        block.fill(0);
        Ok(block)
    }

    /// Returns the block of a handle that [`Block::into_handle`] has left with this process.
    ///
    /// If several threads claim one handle, one of them gets the block. Unless the heap has
    /// canaries, the block has the full length of its size class, which may be more than was
    /// requested.
    ///
    /// ```
    /// use tontine::heap::HeapError;
    /// use tontine::heap::shared::Heap;
    ///
    /// let heap = Heap::create(1 << 20)?;
    /// let handle = heap.alloc(100)?.into_handle();
    /// let block = heap.claim(handle)?;
    /// assert!(block.len() >= 100);
    /// assert!(matches!(heap.claim(handle), Err(HeapError::Stale { .. })));
    /// # Ok::<(), HeapError>(())
    /// ```
    ///
    /// # Errors
    /// - [`HeapError::Stale`]: the block was freed, handed over or claimed before, or another
    ///   process holds it.
    /// - [`HeapError::InvalidHandle`]: no block begins there, or no longer: the memory of a freed
    ///   block's slab may have been returned.
    /// - [`HeapError::Forked`].
    pub fn claim(&self, handle: Handle) -> Result<Block<'_>> {
        self.here()?;
        self.core.claim(handle)
    }

    /// Frees the block of a handle that [`Block::into_handle`] has left with this process.
    ///
    /// The handle of another process's block is stale here: that process frees it, or hands it over
    /// ([`Block::hand_over`]).
    ///
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let handle = heap.alloc(100)?.into_handle();
    /// heap.free(handle)?;
    /// assert!(heap.free(handle).is_err());
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Heap::claim`] and of [`Block::free`].
    pub fn free(&self, handle: Handle) -> Result<()> {
        self.claim(handle)?.free()
    }

    /// Accepts a block that another member has handed over to this process ([`Block::hand_over`]).
    /// From then on this process holds the block.
    ///
    /// # Errors
    /// - [`HeapError::Stale`]: the block was accepted or taken back before, or freed because both
    ///   members were found dead.
    /// - [`HeapError::InvalidHandle`]: the parcel is invalid, or the memory of the freed block's
    ///   slab was returned.
    /// - [`HeapError::Forked`].
    #[inline]
    pub fn accept(&self, parcel: Parcel) -> Result<Block<'_>> {
        self.here()?;
        self.core.accept(parcel)
    }

    /// Takes back a block that this process has handed over and that no process has accepted.
    ///
    /// ```
    /// use tontine::heap::shared::Heap;
    ///
    /// let heap = Heap::create(1 << 20)?;
    /// let parcel = heap.alloc(100)?.hand_over(heap.member()).map_err(|(error, _)| error)?;
    /// let block = heap.take_back(parcel)?; // the parcel could not be sent
    /// assert!(heap.accept(parcel).is_err());
    /// # drop(block);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Heap::accept`].
    pub fn take_back(&self, parcel: Parcel) -> Result<Block<'_>> {
        self.here()?;
        self.core.take_back(parcel)
    }

    /// Frees the blocks that this process has handed over to a member that has ended and that no
    /// process has accepted. Returns their number; 0 if the member is alive.
    ///
    /// Blocks that an [`Outbox`] has sent are freed without this call.
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn reclaim_sent(&self, from: Member) -> Result<usize> {
        self.here()?;
        Ok(if self.core.is_alive(from) { 0 } else { self.core.reclaim_sent(from) })
    }

    /// Returns the members that are known to have ended and that a block may still name.
    ///
    /// To free what they have handed over to this process, call this function, read all parcels
    /// that have arrived, and call [`Heap::reclaim_received`] with the result.
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn dead_members(&self) -> Result<Vec<Member>> {
        self.here()?;
        Ok(self.core.dead_members())
    }

    /// Frees the blocks that dead members have handed over to this process and that it has not
    /// accepted. Returns their number. Members that are alive are ignored.
    ///
    /// `dead` must be a result of [`Heap::dead_members`] from *before* all available parcels were
    /// read: a member that has died since may have sent a parcel that was not read.
    ///
    /// An [`Inbox`] does this for the blocks that outboxes have sent, if the process has one inbox.
    ///
    /// ```
    /// # use tontine::heap::shared::{Heap, Parcel};
    /// # fn read_parcel() -> Option<Parcel> { None }
    /// let heap = Heap::create(1 << 20)?;
    /// let dead = heap.dead_members()?;
    /// while let Some(parcel) = read_parcel() {
    ///     let _ = heap.accept(parcel);
    /// }
    /// heap.reclaim_received(&dead)?;
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// # Errors
    /// [`HeapError::Forked`].
    pub fn reclaim_received(&self, dead: &[Member]) -> Result<usize> {
        self.here()?;
        Ok(self.core.reclaim_received(dead, false))
    }

    /// Returns `true` while the member is alive. A member that has ended counts as alive until
    /// another member has recovered it. Returns `false` in a forked child.
    pub fn is_alive(&self, member: Member) -> bool {
        !self.core.space.is_forked() && self.core.is_alive(member)
    }

    /// Recovers dead members: proves that each has ended, frees its blocks and adopts its slabs.
    /// Also returns the memory of this thread's empty slabs to the kernel.
    ///
    /// Members that find no space, or no free slot, recover dead members too: a program calls this
    /// function when it learns of a death, or from time to time.
    ///
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// drop(heap.alloc(100)?);
    /// let recovery = heap.recover_and_trim()?;
    /// assert_eq!((recovery.members, recovery.blocks), (0, 0)); // no member has died
    /// assert_eq!(heap.check()?.committed(), 0); // the empty slab's memory was returned
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// # Errors
    /// - [`HeapError::System`]: the kernel did not take the memory.
    /// - [`HeapError::LimitReached`]: 2,048 threads of all members use the heap.
    /// - [`HeapError::Forked`].
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

    /// Recovers dead members like [`Heap::recover_and_trim`], but keeps their empty slabs for this
    /// thread's next blocks.
    ///
    /// This returns earlier: the kernel takes longer to free memory than all other steps take.
    /// Other members cannot use the slabs until this thread returns them, by `recover_and_trim`, or
    /// a few slabs at a time when it frees blocks.
    ///
    /// # Errors
    /// Those of [`Heap::recover_and_trim`].
    pub fn recover(&self) -> Result<Recovery> {
        self.here()?;
        let core = &self.core;
        local::with(core, |arena| core.recover_all(&core.desk(), Some(arena), Whole::Kept))?
    }

    /// Checks the whole heap. The [`HeapReport`] is exact while no member works, a snapshot
    /// otherwise.
    ///
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let block = heap.alloc(100)?;
    /// let report = heap.check()?;
    /// assert!(report.faults.is_empty(), "{report}");
    /// assert_eq!(report.in_use(), 128); // the block's size class
    /// # drop(block);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    ///
    /// # Errors
    /// [`HeapError::Forked`]. Faults of the heap are in the report.
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

//! A heap in shared memory for many processes, any of which may be killed at any instruction:
//! [`Heap`].
//!
//! **The members of one heap trust each other.** All of them write to the same memory, so a member
//! that writes outside its blocks can destroy the data of every other member. Opening a heap is
//! therefore `unsafe` ([`Heap::open`]). Processes that do not trust each other send copies instead,
//! through a [`mailbox`](crate::mailbox).
//!
//! If a member is killed, the others continue immediately, because the heap has no lock that the
//! member could hold. No block leaks, and no block is allocated twice.
//!
//! # Examples
//! ```
//! use tontine::heap::shared::Heap;
//!
//! # fn main() -> tontine::heap::Result<()> {
//! let heap = Heap::create(1 << 20)?;
//! let mut block = heap.alloc(100)?;
//! block.fill(7);
//! let handle = block.into_handle();          // 16 bytes that mean the same in every process
//! let block = heap.claim(handle)?;           // the block again; a second claim fails
//! assert!(block[..100].iter().all(|byte| *byte == 7));
//! drop(block);                               // frees it
//! assert!(heap.claim(handle).is_err());      // and the handle is stale
//! # Ok(())
//! # }
//! ```
//!
//! # Terms
//! - A *member* is a process that has joined the heap, until it drops its [`Heap`] or ends
//!   ([`Member`]). A heap has at most 512 members at a time.
//! - A *block* is a piece of the heap that one member, its *holder*, uses alone ([`Block`]).
//! - A *handle* names a block in 16 bytes that mean the same in every process ([`Handle`]). It is
//!   *stale*, and using it is an error, once the block is freed or has another holder.
//! - A *parcel* names a block in flight from one member to another ([`Parcel`]).
//! - A *published* block is a block that all members may read by its handle ([`Published`]).
//! - A *role* is a number that a program gives to a task, such as writing the published blocks. At
//!   most one live member holds a role. If that member ends, the next member to take the role
//!   receives its published blocks ([`Heap::take_over_role`]).
//! - A *granule* is 64 bytes, a cache line. Each block occupies whole granules, so no cache line
//!   contains parts of two holders' blocks.
//! - A *slab* is 64 KiB of the heap, divided into blocks of one size. A block of more than 32 KiB
//!   occupies one or more whole slabs. The kernel provides memory by the slab, and takes it back by
//!   the slab.
//! - An *arena* is the set of slabs from which one thread allocates, without a lock. All members
//!   together have at most 2,048 arenas.
//!
//! # Freeing a block in another process
//! A block belongs to its holder, and only the holder can free it. To have another member free a
//! block, hand it over: the sender calls [`Block::hand_over`] and passes the 24 bytes of the
//! [`Parcel`] on, or sends the block through an [`Outbox`]; the receiver calls [`Heap::accept`], or
//! [`Inbox::recv`], and drops the block.
//!
//! ```
//! use tontine::heap::shared::{Heap, Parcel};
//!
//! # fn main() -> tontine::heap::Result<()> {
//! let heap = Heap::create(1 << 20)?;
//! // In the sender, to which the receiver has sent its number, `heap.member().to_u64()`:
//! let receiver = heap.member();
//! let block = heap.alloc(100)?;
//! let bytes = block.hand_over(receiver).map_err(|(error, _)| error)?.to_bytes();
//! // In the receiver (this example has one process for both):
//! let block = heap.accept(Parcel::from_bytes(bytes))?;
//! drop(block); // frees it, though another process allocated it
//! assert_eq!(heap.check()?.in_use(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # After the death of a member
//! | Blocks | Freed by |
//! | --- | --- |
//! | held by the dead member | any member: [`Heap::recover_and_trim`] or [`Heap::recover`] |
//! | in flight between two dead members | any member: the same two functions |
//! | sent to it by this process, not accepted | this process: [`Heap::reclaim_sent`] |
//! | sent by it to this process, not received | this process: [`Heap::reclaim_received`] |
//! | sent through an [`Outbox`] | the members, without a call by the program |
//!
//! The recovery proves that a member has ended, so it comes first. The two functions that reclaim
//! parcels ignore members that have not been recovered. A program calls `recover_and_trim` when it
//! learns of a death, or periodically. Members that find no space, or no free slot in which to
//! join, recover dead members too.

// `docs/internals/heap-shared.md` describes the layout, the protocol, and the state left by a
// death after each step.

#![allow(unsafe_code, reason = "opening a heap is unsafe")]

mod arena;
mod array;
mod block;
mod canary;
mod check;
mod class;
mod core;
mod free_map;
mod handle;
mod in_flight;
mod layout;
#[cfg(test)]
mod lifecycle_tests;
mod local;
mod options;
mod post;
#[cfg(test)]
mod properties;
mod published;
mod recover;
#[cfg(test)]
mod rubbish_tests;
#[cfg(any(test, fuzzing))]
mod scribble;
mod space;
#[cfg(test)]
mod tests;
mod transfers;
#[cfg(test)]
mod tso_tests;
mod word;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use array::Array;
pub use block::Block;
pub use check::{HeapFault, HeapReport, SlabMap, SlabStatus};
pub use handle::{Handle, Parcel};
pub use options::HeapOptions;
pub use post::{Inbox, Outbox};
pub use published::Published;
pub use recover::Recovery;
pub use word::Member;

use self::class::SizeClass;
use self::core::Core;
use self::core::EmptySlabPolicy;
use self::space::HeapSpace;
use crate::heap::{HeapError, Result};

/// A heap in shared memory, of which this process is a member.
///
/// All threads of the process may use it at the same time. Dropping it leaves the heap: the blocks
/// that the process still holds are freed, and blocks that it has handed over can be accepted.
///
/// [`Heap::create`] creates a heap. Another process joins with [`Heap::open`] and a descriptor of
/// the heap, which it has inherited or received over a Unix socket. A forked child joins with
/// [`Heap::rejoin`]. Until then, methods that return a [`Result`] fail in the child with
/// [`HeapError::Forked`].
///
/// # Examples
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
    /// Creates a heap with `capacity` bytes of blocks, and makes this process its first member.
    /// See [`HeapOptions`] for further settings.
    ///
    /// # Errors
    /// - [`HeapError::InvalidSize`] if the capacity is 0, or above 4 TiB.
    /// - [`HeapError::FileTooLarge`] if the heap would exceed the process's limit on file sizes.
    /// - [`HeapError::System`] if the kernel has no memory or address space for the heap.
    ///
    /// # Examples
    /// ```
    /// use tontine::heap::shared::Heap;
    ///
    /// let heap = Heap::create(64 << 20)?; // memory is allocated when blocks need it
    /// let mut block = heap.alloc(100)?;
    /// block.fill(7);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn create(capacity: usize) -> Result<Self> {
        HeapOptions::new(capacity).create()
    }

    /// Joins the heap of a descriptor that another member has passed to this process, over a Unix
    /// socket or by inheritance ([`Heap::descriptor`]).
    ///
    /// # Errors
    /// If the file is refused, it is closed, and the kernel releases all record locks of this
    /// process on it. Accept descriptors from members only.
    ///
    /// - [`HeapError::NotAHeap`] if the file is not a heap, or the heap is incomplete.
    /// - [`HeapError::VersionMismatch`] if another version of the library created the heap.
    /// - [`HeapError::AlreadyOpen`] if this process is already a member. `file` then stays open.
    /// - [`HeapError::LimitReached`] if the heap has 512 members.
    /// - [`HeapError::System`] if a system call fails.
    ///
    /// # Safety
    /// All members write to the same memory and trust each other. The caller must ensure:
    ///
    /// 1. Every process that can write to the file writes to it through this library only.
    /// 2. This process has no other descriptor of the file.
    /// 3. While the process is a member, it closes no descriptor of the file. Otherwise, the kernel
    ///    would release its record locks, and the other members would consider it dead and free its
    ///    blocks.
    ///
    /// # Examples
    /// ```
    /// use std::os::fd::OwnedFd;
    /// use tontine::heap::shared::Heap;
    ///
    /// /// Joins the heap whose descriptor a member has sent.
    /// fn join(file: OwnedFd) -> tontine::heap::Result<Heap> {
    ///     // SAFETY: all members use this library, and `file` is this process's only descriptor of
    ///     // the heap.
    ///     unsafe { Heap::open(file) }
    /// }
    /// ```
    pub unsafe fn open(file: OwnedFd) -> Result<Self> {
        Self::join(HeapSpace::open(file)?)
    }

    /// Joins the heap in a forked child, as a separate member. The parent keeps its blocks.
    ///
    /// # Errors
    /// - [`HeapError::AlreadyOpen`] if this process opened the heap, or has joined already.
    /// - [`HeapError::LimitReached`] if the heap has 512 members.
    /// - [`HeapError::System`] if a system call fails.
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. Every process that can write to the file writes to it through this library only.
    /// 2. The child has no descriptor of the file except those that it inherited from the parent's
    ///    `Heap`, and it closes no descriptor of the file while it is a member.
    ///
    /// # Examples
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
    pub unsafe fn rejoin(&self) -> Result<Self> {
        if !self.core.space.is_forked() {
            return Err(HeapError::AlreadyOpen);
        }
        // The inherited descriptor stays open: dropping the parent's `Heap` here closes nothing.
        let file = rustix::io::fcntl_dupfd_cloexec(self.core.space.file(), 0)
            .map_err(space::system("fcntl(F_DUPFD_CLOEXEC)"))?;
        Self::join(HeapSpace::open(file)?)
    }

    fn join(space: HeapSpace) -> Result<Self> {
        Ok(Self { core: Arc::new(Core::join(space)?) })
    }

    /// Returns the heap's descriptor, to be passed to a process that calls [`Heap::open`].
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. No duplicate of the descriptor is closed in this process while it is a member. Otherwise,
    ///    the kernel would release its record locks, and the other members would consider it dead
    ///    and free its blocks.
    /// 2. The descriptor is passed only to processes that use the file through this library.
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        self.core.space.file()
    }

    /// Returns this process as a member of the heap, to be sent to the members that hand blocks
    /// over to it ([`Member::to_u64`]).
    pub fn member(&self) -> Member {
        self.core.me()
    }

    /// Allocates a block of `len` bytes, aligned to 64.
    ///
    /// The bytes are not initialised: they hold the contents of an earlier block of any member.
    /// [`Heap::alloc_zeroed`] sets them to zero. The block is freed when it is dropped.
    ///
    /// If no space is left, `alloc` recovers dead members first, like [`Heap::recover_and_trim`].
    ///
    /// # Errors
    /// - [`HeapError::Full`] if no space is left, even after the recovery of dead members.
    /// - [`HeapError::System`] if the kernel has no memory.
    /// - [`HeapError::LimitReached`] if 2,048 threads of all members use the heap.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
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
    #[inline(always)]
    pub fn alloc(&self, len: usize) -> Result<Block<'_>> {
        let core = &*self.core;
        if !core.canaries
            && !core.space.is_forked()
            && let SizeClass::Small(class) = SizeClass::of(len)
            && let Some(granule) = local::with_recent(core, |arena| arena.loan_known(core, class))
        {
            return Ok(Block::new(core, granule, len));
        }
        match self.alloc_slowly(len) {
            Ok(granule) => Ok(Block::new(core, granule, len)),
            Err(error) => Err(*error),
        }
    }

    /// Returns the granule of a new block, for calls that may have to allocate memory or write a
    /// canary. The result fits into registers; otherwise the result of `alloc` would pass through
    /// memory too.
    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, len: usize) -> Result<usize, Box<HeapError>> {
        self.here()?;
        let core = &self.core;
        let class = SizeClass::of(len.saturating_add(core.behind()));
        if class.slabs() > core.space.geometry().slabs() {
            return Err(core.full(len).into());
        }
        let granule = match class {
            SizeClass::Small(class) => local::with(core, |arena| arena.allocate(core, class))??,
            SizeClass::Large(slabs) => local::with(core, |arena| arena.loan_large(core, slabs))??,
        };
        if core.canaries {
            canary::write(core, granule, class, len);
        }
        Ok(granule)
    }

    /// Allocates a block like [`Heap::alloc`], and sets all its bytes to zero.
    ///
    /// # Errors
    /// Returns the errors of [`Heap::alloc`], such as [`HeapError::Full`] if no space is left.
    pub fn alloc_zeroed(&self, len: usize) -> Result<Block<'_>> {
        let mut block = self.alloc(len)?;
        block.fill(0);
        Ok(block)
    }

    /// Returns the block of a handle that this process obtained from [`Block::into_handle`].
    ///
    /// If several threads claim one handle, only one of them obtains the block. Unless the heap has
    /// canaries, the block has the full length of its size class, which may exceed the requested
    /// length.
    ///
    /// # Errors
    /// - [`HeapError::Stale`] if the block was freed, handed over or claimed before, or another
    ///   process holds it.
    /// - [`HeapError::InvalidHandle`] if no block begins, or no longer begins, at the handle's
    ///   offset. The memory of a freed block's slab may have been returned.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
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
    pub fn claim(&self, handle: Handle) -> Result<Block<'_>> {
        self.here()?;
        self.core.claim(handle)
    }

    /// Frees the block of a handle that this process obtained from [`Block::into_handle`].
    ///
    /// The handle of a block that another process holds is stale here. That process frees the
    /// block, or hands it over ([`Block::hand_over`]).
    ///
    /// # Errors
    /// - [`HeapError::Stale`] if the block was freed or handed over before, or another process
    ///   holds it.
    /// - [`HeapError::InvalidHandle`] if no block begins, or no longer begins, at the handle's
    ///   offset.
    /// - [`HeapError::Overrun`] if the block was written beyond its end (heap with canaries). The
    ///   block is freed nevertheless.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let handle = heap.alloc(100)?.into_handle();
    /// heap.free(handle)?;
    /// assert!(heap.free(handle).is_err()); // the handle is stale
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn free(&self, handle: Handle) -> Result<()> {
        self.claim(handle)?.free()
    }

    /// Accepts a block that another member has handed over to this process ([`Block::hand_over`]).
    /// This process then holds the block. See [`Parcel`] for an example.
    ///
    /// # Errors
    /// - [`HeapError::Stale`] if the block was accepted or taken back before, or freed because both
    ///   members were found dead.
    /// - [`HeapError::InvalidHandle`] if the parcel is invalid, or the memory of the freed block's
    ///   slab was returned.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    #[inline]
    pub fn accept(&self, parcel: Parcel) -> Result<Block<'_>> {
        self.here()?;
        self.core.accept(parcel)
    }

    /// Takes back a block that this process has handed over and that no process has accepted.
    ///
    /// # Errors
    /// - [`HeapError::Stale`] if the block was accepted or taken back before, or another process
    ///   sent it.
    /// - [`HeapError::InvalidHandle`] and [`HeapError::Forked`] as for [`Heap::accept`].
    ///
    /// # Examples
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
    pub fn take_back(&self, parcel: Parcel) -> Result<Block<'_>> {
        self.here()?;
        self.core.take_back(parcel)
    }

    /// Frees the blocks that this process has handed over to a member that has ended and that the
    /// member has not accepted. Returns their number, or 0 if the member counts as alive.
    ///
    /// Call this method when a receiver has died, after [`Heap::recover_and_trim`], which proves
    /// the receiver's end. Blocks that an [`Outbox`] has sent are freed without this call.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// use tontine::heap::shared::{Heap, Member};
    ///
    /// fn receiver_died(heap: &Heap, receiver: Member) -> tontine::heap::Result<usize> {
    ///     heap.recover_and_trim()?; // frees the blocks that the receiver held
    ///     heap.reclaim_sent(receiver) // frees those that it has not accepted
    /// }
    /// ```
    pub fn reclaim_sent(&self, from: Member) -> Result<usize> {
        self.here()?;
        Ok(if self.core.is_alive(from) { 0 } else { self.core.reclaim_sent(from) })
    }

    /// Returns the members that a recovery has found dead and that a block may still name.
    ///
    /// Pass the result to [`Heap::reclaim_received`], which has an example.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    pub fn dead_members(&self) -> Result<Vec<Member>> {
        self.here()?;
        Ok(self.core.dead_members())
    }

    /// Frees the blocks that dead members have handed over to this process and that it has not
    /// accepted. Returns their number. Members that are alive are ignored.
    ///
    /// Call this method when a sender has died, because the sender may have died after it handed a
    /// block over and before it wrote the parcel. `dead` must be a result of [`Heap::dead_members`]
    /// from *before* all available parcels were read: a member that has died since then may have
    /// sent a parcel that has not been read.
    ///
    /// An [`Inbox`] does this for the blocks that outboxes have sent, if the process has one inbox.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// # use tontine::heap::shared::{Heap, Parcel};
    /// # fn read_parcel() -> Option<Parcel> { None }
    /// let heap = Heap::create(1 << 20)?;
    /// heap.recover_and_trim()?;
    /// let dead = heap.dead_members()?;
    /// while let Some(parcel) = read_parcel() {
    ///     let _ = heap.accept(parcel);
    /// }
    /// heap.reclaim_received(&dead)?;
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn reclaim_received(&self, dead: &[Member]) -> Result<usize> {
        self.here()?;
        Ok(self.core.reclaim_received(dead, false))
    }

    /// Returns `true` while the member is alive. A member that has ended counts as alive until
    /// another member has recovered it. Returns `false` in a forked child that has not joined.
    pub fn is_alive(&self, member: Member) -> bool {
        !self.core.space.is_forked() && self.core.is_alive(member)
    }

    /// Recovers dead members: proves that each has ended, frees its blocks and adopts its slabs.
    /// Also returns the memory of this thread's empty slabs to the kernel.
    ///
    /// Call this method when the program learns of a death, or periodically. Members that find no
    /// space, or no free slot in which to join, recover dead members too.
    ///
    /// # Errors
    /// - [`HeapError::System`] if the kernel does not take the memory back, or a lock call fails.
    /// - [`HeapError::LimitReached`] if 2,048 threads of all members use the heap.
    /// - [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// drop(heap.alloc(100)?);
    /// let recovery = heap.recover_and_trim()?;
    /// assert_eq!((recovery.members, recovery.blocks), (0, 0)); // no member has died
    /// assert_eq!(heap.check()?.committed(), 0); // the empty slab's memory was returned
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn recover_and_trim(&self) -> Result<Recovery> {
        self.here()?;
        let core = &self.core;
        local::with(core, |arena| {
            let desk = core.desk();
            let mut recovery = core.recover_all(&desk, Some(arena), EmptySlabPolicy::GivenBack)?;
            drop(desk);
            recovery.given_back += arena.trim(core)?;
            Ok(recovery)
        })?
    }

    /// Recovers dead members like [`Heap::recover_and_trim`], but keeps their empty slabs for this
    /// thread's next blocks.
    ///
    /// This function returns earlier, because freeing the memory takes the kernel longer than all
    /// other steps together. Other members cannot use the slabs until this thread returns them, by
    /// `recover_and_trim`, or a few slabs at a time when it frees blocks.
    ///
    /// # Errors
    /// [`HeapError::System`], [`HeapError::LimitReached`] and [`HeapError::Forked`], as for
    /// [`Heap::recover_and_trim`].
    pub fn recover(&self) -> Result<Recovery> {
        self.here()?;
        let core = &self.core;
        local::with(core, |arena| {
            core.recover_all(&core.desk(), Some(arena), EmptySlabPolicy::Kept)
        })?
    }

    /// Checks the whole heap. The [`HeapReport`] is exact while no member uses the heap, and a
    /// snapshot otherwise. It contains the faults of the heap.
    ///
    /// # Errors
    /// [`HeapError::Forked`] in a forked child that has not joined.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let block = heap.alloc(100)?;
    /// let report = heap.check()?;
    /// assert!(report.faults.is_empty(), "{report}");
    /// assert_eq!(report.in_use(), 128); // the block's size class
    /// # drop(block);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
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

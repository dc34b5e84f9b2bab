//! A block that this process holds: [`Block`].

#![allow(unsafe_code, reason = "the bytes of a block are in shared memory")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::Heap;
use super::class::LARGEST;
use super::core::{Core, LONG};
use super::handle::{Handle, Parcel};
use super::layout::{GRANULES, MOST_SLABS};
use super::local;
use super::word::{BlockState, BlockWord, Destination, LAST, Member, truth};
use crate::heap::{HeapError, Result};
use crate::sync::{AtomicU64, Ordering};

/// A block of a shared heap that this process holds: a smart pointer to `[u8]`. Dropping it frees
/// the block.
///
/// Any thread may drop a block, which then returns to the slab that it came from. A new block is
/// not cleared: it has the contents of an earlier block.
///
/// # Panics
/// - In a forked child, reading or writing a block of the parent panics, because the block's memory
///   is not mapped there.
/// - In a heap with canaries, dropping a block that was written beyond its end panics;
///   [`Block::free`] returns an error instead.
///
/// # Examples
/// ```
/// use tontine::heap::shared::Heap;
///
/// let heap = Heap::create(1 << 20)?;
/// let mut block = heap.alloc(8)?;
/// block.copy_from_slice(&7_u64.to_ne_bytes());
/// assert_eq!(block.as_ptr().addr() % 64, 0);
/// std::thread::scope(|threads| {
///     threads.spawn(move || drop(block)); // freed by another thread
/// });
/// assert_eq!(heap.check()?.in_use(), 0);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
pub struct Block<'heap> {
    core: &'heap Core,
    // A block consists of two words, which move in two registers. A larger value would be moved
    // with wide loads, which stall on the narrow stores before them. The generation is in the block
    // word, which no other process writes while this process holds the block.
    //
    //  63      16 15    0
    // +----------+-------+
    // | granule  | bytes |   or `LONG` if the list of long blocks has the length
    // +----------+-------+
    name: u64,
}

/// Number of bits of the length in a block's name.
const LEN_BITS: u32 = u16::BITS;

const _: () = assert!(MOST_SLABS * GRANULES <= 1 << (u64::BITS - LEN_BITS));
const _: () = assert!(LARGEST < LONG as usize, "blocks of a class are never long");

impl<'heap> Block<'heap> {
    /// Returns a block, which this process now holds.
    #[inline(always)]
    pub(super) fn new(core: &'heap Core, granule: usize, len: usize) -> Self {
        Self { core, name: Self::name(core, granule, len) }
    }

    #[inline(always)]
    fn name(core: &Core, granule: usize, len: usize) -> u64 {
        let short = if len as u64 >= LONG { core.set_long(granule, len) } else { len as u64 };
        (granule as u64) << LEN_BITS | short
    }

    #[inline(always)]
    pub(super) fn granule(&self) -> usize {
        (self.name >> LEN_BITS) as usize
    }

    /// Returns the length in bytes. A forked child can read the length, but not the bytes.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        match self.name & LONG {
            LONG => self.core.long(self.granule()),
            len => len as usize,
        }
    }

    #[inline(always)]
    fn word(&self) -> &'heap AtomicU64 {
        self.core.space.word(self.granule())
    }

    /// Returns the maximum length of the block.
    pub(super) fn capacity(&self) -> usize {
        self.must_be_ours();
        // The slab's class does not change while one of its blocks is held.
        let (class, len) = (self.core.class(self.granule() / GRANULES), self.bytes());
        class.map_or(len, |class| (class.bytes() - self.core.behind()).max(len))
    }

    /// Sets the block's length.
    ///
    /// # Panics
    /// Panics if `len` exceeds [`Block::capacity`].
    pub(super) fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a block of {}", self.capacity());
        let granule = self.granule();
        self.name = Self::name(self.core, granule, len);
        if self.core.canaries
            && let Some(class) = self.core.class(granule / GRANULES)
        {
            super::canary::write(self.core, granule, class, len);
        }
    }

    /// Returns `true` if the block belongs to this heap.
    #[inline]
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(self.core, core)
    }

    pub(super) fn core(&self) -> &'heap Core {
        self.core
    }

    /// Returns the block's offset in bytes, from the heap's first byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.core.space.geometry().block(self.granule()) as u64
    }

    /// Turns the block into a [`Handle`] without freeing it. The [module](super) has an example.
    ///
    /// The process holds the block until [`Heap::claim`] returns it, [`Heap::free`] frees it, or
    /// the process ends. In a forked child that has not joined, the parent's block is unchanged,
    /// and the handle has generation 0.
    #[must_use = "the handle is all that is left of the block"]
    pub fn into_handle(self) -> Handle {
        let block = ManuallyDrop::new(self);
        // A forked child cannot read the word of the parent's block, and must not change it.
        let generation = if block.core.space.is_forked() {
            0
        } else {
            let (word, generation) = (block.word(), truth::generation(block.word()));
            truth::park(word, block.core.slot(), generation);
            generation
        };
        Handle { offset: block.offset(), generation }
    }

    /// Turns the block into a pointer to its bytes without freeing it. The pointer can be passed to
    /// C code, or through a queue of words to another thread.
    ///
    /// The process holds the bytes until [`Block::from_raw_in`] turns the pointer back into the
    /// block, or the heap is dropped, which frees and unmaps them. The call writes no memory.
    ///
    /// # Examples
    /// ```
    /// use tontine::heap::shared::{Block, Heap};
    ///
    /// let heap = Heap::create(1 << 20)?;
    /// let pointer = heap.alloc(100)?.into_raw();
    /// // SAFETY: `into_raw` returned the pointer for a block of this heap; it is used once.
    /// let block = unsafe { Block::from_raw_in(pointer, &heap) };
    /// assert_eq!(block.len(), 100);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    #[must_use = "the pointer is all that is left of the block"]
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<[u8]> {
        let block = ManuallyDrop::new(self);
        let first = block.core.space.block(block.granule());
        NonNull::slice_from_raw_parts(first, block.bytes())
    }

    /// Returns the block of a pointer that [`Block::into_raw`] has returned. See
    /// [`Block::into_raw`] for an example.
    ///
    /// The pointer may have a shorter length than the block had. The block then keeps the shorter
    /// length, unless the heap has canaries.
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. [`Block::into_raw`] has returned the pointer, in this process, for a block of `heap`.
    /// 2. The pointer is turned into a block once.
    /// 3. Its length does not exceed the length of the block.
    /// 4. No other pointer or reference to the bytes is used after the call.
    #[inline(always)]
    pub unsafe fn from_raw_in(raw: NonNull<[u8]>, heap: &'heap Heap) -> Self {
        let core = &*heap.core;
        let granule = core.space.granule_at(raw.cast());
        core.space.prefetch(granule);
        let len = if core.canaries { super::canary::len(core, granule) } else { raw.len() };
        Self::new(core, granule, len)
    }

    /// Hands the block over to another member, which receives it by passing the parcel to
    /// [`Heap::accept`].
    ///
    /// After the call, neither process holds the block. The caller sends the parcel to the member
    /// through any channel, or takes the block back with [`Heap::take_back`]. An
    /// [`Outbox`](super::Outbox) does both through a mailbox.
    ///
    /// If the receiver dies before it accepts the block, [`Heap::reclaim_sent`] frees the block. If
    /// this process dies, the receiver frees the block with [`Heap::reclaim_received`]. If both
    /// die, [`Heap::recover_and_trim`] in any member frees the block.
    ///
    /// # Errors
    /// Each error is returned with the block, which this process still holds.
    ///
    /// - [`HeapError::MemberDead`] if the member is known to have ended.
    /// - [`HeapError::Overrun`] if the block was written beyond its end (heap with canaries).
    /// - [`HeapError::System`] if the kernel has no memory to record the block's destination.
    /// - [`HeapError::Forked`] in a forked child.
    ///
    /// # Examples
    /// ```
    /// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
    /// let receiver = heap.member(); // in a program, another process
    /// match heap.alloc(100)?.hand_over(receiver) {
    ///     Ok(parcel) => drop(heap.accept(parcel)?),
    ///     Err((error, block)) => println!("still ours, {} bytes: {error}", block.len()),
    /// }
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    #[inline]
    pub fn hand_over(self, to: Member) -> Result<Parcel, (HeapError, Self)> {
        self.send(to, false)
    }

    /// Hands the block over for an outbox, and marks it as *posted*.
    pub(super) fn post(self, to: Member) -> Result<Parcel, (HeapError, Self)> {
        self.send(to, true)
    }

    fn send(self, to: Member, posted: bool) -> Result<Parcel, (HeapError, Self)> {
        if let Err(error) = self.prepare(Destination::new(to, posted)) {
            return Err((error, self));
        }
        let block = ManuallyDrop::new(self);
        let word = block.word();
        let generation = truth::send(word, block.core.slot(), truth::generation(word));
        let flight = BlockWord::in_flight(block.core.slot(), generation).0;
        Ok(Parcel { offset: block.offset(), flight, len: block.bytes() as u64 })
    }

    #[inline]
    fn prepare(&self, destination: Destination) -> Result<()> {
        let to = destination.member();
        if self.core.space.is_forked() {
            return Err(HeapError::Forked);
        }
        if !self.core.is_alive(to) {
            return Err(HeapError::MemberDead { slot: to.slot() });
        }
        self.check_canary()?;
        self.core.fetch_destinations(self.granule())?;
        // The destination is stored before the word, so that a member that sees the block in flight
        // also sees its destination.
        self.core.space.destination(self.granule()).store(destination.0, Ordering::Relaxed);
        Ok(())
    }

    /// Frees the block. Dropping it does the same, but cannot return an error.
    ///
    /// # Errors
    /// [`HeapError::Overrun`] if the block was written beyond its end (heap with canaries). The
    /// block is freed nevertheless.
    #[inline(always)]
    pub fn free(self) -> Result<()> {
        if self.core.canaries {
            return self.free_with_canary();
        }
        drop(self);
        Ok(())
    }

    #[cold]
    fn free_with_canary(self) -> Result<()> {
        let found = self.check_canary();
        let block = ManuallyDrop::new(self);
        block.core.free(block.granule());
        found
    }

    /// Checks the canary after the block. Always returns `Ok` in a heap without canaries.
    ///
    /// # Errors
    /// [`HeapError::Overrun`] if the block was written beyond its end.
    #[inline]
    pub fn check_canary(&self) -> Result<()> {
        if self.core.canaries && !self.core.space.is_forked() {
            return super::canary::look(self.core, self.granule(), Some(self.bytes()));
        }
        Ok(())
    }

    #[inline(always)]
    fn must_be_ours(&self) {
        if self.core.space.is_forked() {
            not_ours();
        }
    }
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, len) = (self.offset(), self.bytes());
        out.debug_struct("Block").field("offset", &offset).field("len", &len).finish()
    }
}

#[cold]
fn not_ours() -> ! {
    panic!("{}", HeapError::Forked)
}

impl Deref for Block<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.must_be_ours();
        // SAFETY: the bytes are within the mapping, which outlives the borrow. While this process
        // holds the block, no other process writes it (contract 1 of `Heap::open`).
        unsafe {
            let first = self.core.space.block(self.granule()).as_ptr();
            std::slice::from_raw_parts(first, self.bytes())
        }
    }
}

impl DerefMut for Block<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.must_be_ours();
        // SAFETY: the reason is the same as in `deref`, and no other process reads the block.
        unsafe {
            let first = self.core.space.block(self.granule()).as_ptr();
            std::slice::from_raw_parts_mut(first, self.bytes())
        }
    }
}

impl AsRef<[u8]> for Block<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Block<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Block<'_> {
    /// # Panics
    /// Panics if the block of a heap with canaries was written beyond its end.
    #[inline(always)]
    fn drop(&mut self) {
        if self.core.canaries {
            drop_with_canary(self);
        }
        self.core.free(self.granule());
    }
}

#[cold]
fn drop_with_canary(block: &Block<'_>) {
    if block.core.space.is_forked() || std::thread::panicking() {
        return;
    }
    if let Err(error) = block.check_canary() {
        block.core.free(block.granule());
        panic!("{error}");
    }
}

impl Core {
    /// Frees a block that this process holds.
    #[inline(always)]
    pub(super) fn free(&self, granule: usize) {
        // A forked child does not free the parent's blocks.
        if self.space.is_forked() {
            return;
        }
        let word = self.space.word(granule);
        truth::free(word, truth::generation(word));
        if local::with_known(self, |arena| arena.put(self, granule)) != Some(true) {
            self.notify_owner(granule);
        }
    }

    /// Returns the granule of the block that begins at `offset`, and its maximum length.
    #[inline]
    pub(super) fn find(&self, offset: u64) -> Result<(usize, usize)> {
        let wrong = |reason| HeapError::InvalidHandle { offset, reason };
        let granule = self
            .space
            .geometry()
            .granule(offset)
            .ok_or(wrong("that is not a multiple of 64 within the slabs"))?;
        let slab = granule / GRANULES;
        if !self.is_owned(slab) {
            return Err(wrong("the slab there has no blocks"));
        }
        let class = self.class(slab).ok_or(wrong("the slab's entry in the table is corrupted"))?;
        if !class.begins_at(granule % GRANULES) {
            return Err(wrong("that is inside a block"));
        }
        Ok((granule, class.bytes() - self.behind()))
    }

    /// Returns the number of bytes after each block that belong to the heap.
    #[inline]
    pub(super) fn behind(&self) -> usize {
        if self.canaries { super::canary::BYTES } else { 0 }
    }

    /// Returns the block of a handle to the first thread that claims it.
    pub(super) fn claim(&self, handle: Handle) -> Result<Block<'_>> {
        let (granule, len) = self.find(handle.offset)?;
        let word = self.space.word(granule);
        let ours = BlockWord::parked(self.slot(), handle.generation);
        let then = BlockWord::allocated(self.slot(), BlockWord::next(handle.generation));
        // No generation has more than 48 bits, and a block of the last one is never allocated.
        if handle.generation >= LAST {
            let found = BlockWord(word.load(Ordering::Relaxed));
            return Err(self.stale(handle.offset, handle.generation, found));
        }
        // SYNC truth: pairs with itself; if two threads have one handle, only one obtains the
        // block.
        match word.compare_exchange(ours.0, then.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let len = if self.canaries { super::canary::len(self, granule) } else { len };
                Ok(Block::new(self, granule, len))
            }
            Err(found) => Err(self.stale(handle.offset, handle.generation, BlockWord(found))),
        }
    }

    /// Returns the block of a parcel, which this process now holds.
    #[inline]
    pub(super) fn accept(&self, parcel: Parcel) -> Result<Block<'_>> {
        let then = BlockWord::allocated(self.slot(), BlockWord(parcel.flight).generation());
        self.land(parcel, then)
    }

    /// Returns a block that this process has sent and that no process has accepted yet.
    pub(super) fn take_back(&self, parcel: Parcel) -> Result<Block<'_>> {
        let flight = BlockWord(parcel.flight);
        if flight.holder() != self.slot() {
            let now = BlockWord(parcel.flight);
            return Err(self.stale(parcel.offset, flight.generation(), now));
        }
        let generation = BlockWord::next(flight.generation());
        self.land(parcel, BlockWord::allocated(self.slot(), generation))
    }

    #[inline]
    fn land(&self, parcel: Parcel, then: BlockWord) -> Result<Block<'_>> {
        let flight = BlockWord(parcel.flight);
        let wrong = |reason| HeapError::InvalidHandle { offset: parcel.offset, reason };
        if flight.state() != BlockState::InFlight {
            return Err(wrong("the parcel does not describe a handover"));
        }
        let (granule, most) = self.find(parcel.offset)?;
        self.space.prefetch(granule);
        self.space.prefetch_destination(granule);
        let len = usize::try_from(parcel.len).ok().filter(|len| *len <= most);
        let len = len.ok_or(wrong("the block there is smaller than the parcel says"))?;
        match truth::leave_flight(self.space.word(granule), flight, then) {
            Ok(()) => Ok(Block::new(self, granule, len)),
            Err(found) => Err(self.stale(parcel.offset, flight.generation(), found)),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn stale(&self, offset: u64, generation: u64, found: BlockWord) -> HeapError {
        HeapError::Stale { offset, generation, now: Now { core: self, found }.to_string() }
    }
}

/// A block word that prints as text.
pub(super) struct Now<'a> {
    pub(super) core: &'a Core,
    pub(super) found: BlockWord,
}

impl fmt::Display for Now<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.found.generation();
        let pid = self.core.pid_of(self.found.holder());
        match self.found.state() {
            BlockState::Free => write!(out, "free (generation {generation})"),
            BlockState::Allocated | BlockState::Parked => {
                write!(out, "held by pid {pid} (generation {generation})")
            }
            BlockState::Published => {
                write!(out, "published by pid {pid} (generation {generation})")
            }
            BlockState::InFlight => {
                write!(out, "in flight from pid {pid} (generation {generation})")
            }
            BlockState::Rubbish => write!(out, "in an invalid state (word {:#x})", self.found.0),
        }
    }
}

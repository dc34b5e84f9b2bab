//! A block that one has: [`Block`]; and what is left of it where it is not at hand: [`Handle`],
//! [`Parcel`].

#![allow(unsafe_code, reason = "a block's bytes lie in shared memory")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::Heap;
use super::class::LARGEST;
use super::core::{Core, LONG};
use super::layout::{GRANULES, MOST_SLABS};
use super::local;
use super::word::{Destination, LAST, Member, State, Truth, truth};
use crate::heap::{HeapError, Result};
use crate::sync::{AtomicU64, Ordering};

/// Bytes of a heap that are this process's, until it is dropped: then they are free.
///
/// It may be dropped in another thread than it was allocated in; it goes home to the slab that it
/// came from. What it holds at first is whatever somebody left there.
///
/// # Panics
/// In a forked child, where the parent's blocks are not to be reached: reading and writing.
pub struct Block<'heap> {
    core: &'heap Core,
    // Two words and no more: what fits into two registers is moved by the word. Of more, a move is
    // a wide load, which has to wait for the narrow stores before it. The generation stands in the
    // truth word, which nobody else writes as long as the block is this process's.
    //
    //  63      16 15    0
    // +----------+-------+
    // | granule  | bytes |   or `LONG`: then the heap's list of long blocks has them
    // +----------+-------+
    name: u64,
}

/// Bits of the length in a block's name.
const LEN_BITS: u32 = u16::BITS;

const _: () = assert!(MOST_SLABS * GRANULES <= 1 << (u64::BITS - LEN_BITS));
const _: () = assert!(LARGEST < LONG as usize, "blocks of a class are never long");

/// The name of a block: where it begins, counted from the heap's first byte, and its generation.
///
/// It means the same in every process, wherever the heap is mapped there, and never another block:
/// a handle of a block that was freed is stale, and using it is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Handle {
    /// Bytes from the heap's first one.
    pub offset: u64,
    /// How often the block has changed hands.
    pub generation: u64,
}

/// A block on its way to another member, in 24 bytes of plain data that can be sent over anything.
///
/// Whoever gives it to [`Heap::accept`](super::Heap::accept) first has the block; a second time it
/// is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parcel {
    offset: u64,
    flight: u64,
    len: u64,
}

impl Parcel {
    /// Bytes of a parcel.
    pub const SIZE: usize = 24;

    /// As bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = [self.offset, self.flight, self.len];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From bytes, whatever they are: what is no parcel is refused where it is accepted.
    #[inline]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self::from_slice(&bytes).expect("so many bytes")
    }

    /// From as many bytes as a parcel has. Word by word, as they were written: a wider load would
    /// wait for all of those stores.
    #[inline]
    pub(super) fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (&[offset, flight, len], []) = bytes.as_chunks() else { return None };
        let [offset, flight, len] = [offset, flight, len].map(u64::from_le_bytes);
        Some(Self { offset, flight, len })
    }

    /// The block, and its generation.
    pub(super) fn names(self) -> (u64, u64) {
        (self.offset, Truth(self.flight).generation())
    }

    /// Bytes of the block.
    #[expect(clippy::len_without_is_empty, reason = "a length that is passed on, no collection's")]
    pub fn len(self) -> u64 {
        self.len
    }
}

impl<'heap> Block<'heap> {
    /// A block that has just become this process's.
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

    /// Bytes, also where they are not to be reached.
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

    /// Bytes that its block has at most.
    pub(super) fn room(&self) -> usize {
        self.must_be_ours();
        // The slab's class does not change while a block of it is somebody's.
        let (class, len) = (self.core.class(self.granule() / GRANULES), self.bytes());
        class.map_or(len, |class| (class.bytes() - self.core.behind()).max(len))
    }

    /// Makes it longer or shorter, within its room.
    ///
    /// # Panics
    /// There is not so much.
    pub(super) fn resize(&mut self, len: usize) {
        assert!(len <= self.room(), "{len} bytes in a block of {}", self.room());
        let granule = self.granule();
        self.name = Self::name(self.core, granule, len);
        if self.core.canaries
            && let Some(class) = self.core.class(granule / GRANULES)
        {
            super::canary::write(self.core, granule, class, len);
        }
    }

    /// Whether it is this heap's.
    #[inline]
    pub(super) fn is_of(&self, core: &Core) -> bool {
        std::ptr::eq(self.core, core)
    }

    pub(super) fn core(&self) -> &'heap Core {
        self.core
    }

    /// Where it begins, counted from the heap's first byte.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.core.space.geometry().block(self.granule()) as u64
    }

    /// Keeps the block without its borrow: it is this process's until [`Heap::claim`] gives it back
    /// or [`Heap::free`] frees it, or the process ends.
    ///
    /// [`Heap::claim`]: super::Heap::claim
    /// [`Heap::free`]: super::Heap::free
    #[must_use = "the handle is all that is left of the block"]
    pub fn into_handle(self) -> Handle {
        let block = ManuallyDrop::new(self);
        // The parent's block stays what it is, and its word is not to be read.
        let generation = if block.core.space.is_forked() {
            0
        } else {
            let (word, generation) = (block.word(), truth::generation(block.word()));
            truth::park(word, block.core.slot(), generation);
            generation
        };
        Handle { offset: block.offset(), generation }
    }

    /// Keeps the block without its borrow, as a pointer to its bytes, which are this process's
    /// until [`Block::from_raw_in`] has it back, or the heap is dropped, which frees it and unmaps
    /// it. Nothing is stored or exchanged: to pass a block to C code, or through a queue of words
    /// to another thread.
    #[must_use = "the pointer is all that is left of the block"]
    #[inline(always)]
    pub fn into_raw(self) -> NonNull<[u8]> {
        let block = ManuallyDrop::new(self);
        let first = block.core.space.block(block.granule());
        NonNull::slice_from_raw_parts(first, block.bytes())
    }

    /// The block that [`Block::into_raw`] has left at this place.
    ///
    /// # Safety
    /// The pointer is of `into_raw`, in this process, of a block of this heap, and is made a block
    /// once. It may say fewer bytes: so long is the block then, but in a heap with canaries.
    #[inline(always)]
    pub unsafe fn from_raw_in(raw: NonNull<[u8]>, heap: &'heap Heap) -> Self {
        let core = &*heap.core;
        let granule = core.space.granule_at(raw.cast());
        core.space.prefetch(granule);
        let len = if core.canaries { super::canary::len(core, granule) } else { raw.len() };
        Self::new(core, granule, len)
    }

    /// Sends the block to another member: from now on it is neither's, until that one accepts the
    /// parcel. How the parcel gets there is the caller's business.
    ///
    /// # Errors
    /// [`HeapError::MemberDead`]: it has ended, as far as is known. The block is in the error's company, and
    /// still this process's.
    #[inline]
    pub fn hand_over(self, to: Member) -> Result<Parcel, (HeapError, Self)> {
        self.send(to, false)
    }

    /// The same through an outbox, which says so.
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
        let flight = Truth::in_flight(block.core.slot(), generation).0;
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
        // Before the word: whoever sees the block in flight sees where to.
        self.core.space.destination(self.granule()).store(destination.0, Ordering::Relaxed);
        Ok(())
    }

    /// Frees it; dropping does the same, and cannot say what was wrong.
    ///
    /// # Errors
    /// [`HeapError::Overrun`], in a heap with canaries: somebody has written behind it. It is free all
    /// the same.
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

    /// With canaries: whether what lies behind it is as it was.
    ///
    /// # Errors
    /// [`HeapError::Overrun`].
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
        // SAFETY: within the mapping, which outlives the borrow; while the block is on loan to this
        // process nobody else writes it, which members promise each other (`Heap::open`).
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
        // SAFETY: as above, and nobody else reads it.
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
    /// In a heap with canaries, where somebody has written behind it.
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
    /// Frees a block of this process's.
    #[inline(always)]
    pub(super) fn free(&self, granule: usize) {
        // The parent's blocks are the parent's.
        if self.space.is_forked() {
            return;
        }
        let word = self.space.word(granule);
        truth::free(word, truth::generation(word));
        if local::with_known(self, |arena| arena.put(self, granule)) != Some(true) {
            self.tell_owner(granule);
        }
    }

    /// The granule of a handle's block and its bytes, if a block begins there.
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

    /// Bytes behind each block that are the heap's own.
    #[inline]
    pub(super) fn behind(&self) -> usize {
        if self.canaries { super::canary::BYTES } else { 0 }
    }

    /// A handle becomes a block again, for whoever comes first.
    pub(super) fn claim(&self, handle: Handle) -> Result<Block<'_>> {
        let (granule, len) = self.find(handle.offset)?;
        let word = self.space.word(granule);
        let ours = Truth::parked(self.slot(), handle.generation);
        let then = Truth::loaned(self.slot(), Truth::next(handle.generation));
        // More bits than a generation has are none of its own, and behind the last one is none.
        if handle.generation >= LAST {
            let found = Truth(word.load(Ordering::Relaxed));
            return Err(self.stale(handle.offset, handle.generation, found));
        }
        // SYNC truth: pairs with itself: of two threads with one handle one gets the block.
        match word.compare_exchange(ours.0, then.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let len = if self.canaries { super::canary::len(self, granule) } else { len };
                Ok(Block::new(self, granule, len))
            }
            Err(found) => Err(self.stale(handle.offset, handle.generation, Truth(found))),
        }
    }

    /// A block that was sent becomes this process's.
    #[inline]
    pub(super) fn accept(&self, parcel: Parcel) -> Result<Block<'_>> {
        let then = Truth::loaned(self.slot(), Truth(parcel.flight).generation());
        self.land(parcel, then)
    }

    /// A block that this process has sent, and that nobody has accepted, is its own again.
    pub(super) fn take_back(&self, parcel: Parcel) -> Result<Block<'_>> {
        let flight = Truth(parcel.flight);
        if flight.holder() != self.slot() {
            let now = Truth(parcel.flight);
            return Err(self.stale(parcel.offset, flight.generation(), now));
        }
        let generation = Truth::next(flight.generation());
        self.land(parcel, Truth::loaned(self.slot(), generation))
    }

    #[inline]
    fn land(&self, parcel: Parcel, then: Truth) -> Result<Block<'_>> {
        let flight = Truth(parcel.flight);
        let wrong = |reason| HeapError::InvalidHandle { offset: parcel.offset, reason };
        if flight.state() != State::InFlight {
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
    pub(super) fn stale(&self, offset: u64, generation: u64, found: Truth) -> HeapError {
        HeapError::Stale { offset, generation, now: Now { core: self, found }.to_string() }
    }
}

/// A truth word, for people.
pub(super) struct Now<'a> {
    pub(super) core: &'a Core,
    pub(super) found: Truth,
}

impl fmt::Display for Now<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generation = self.found.generation();
        let pid = self.core.pid_of(self.found.holder());
        match self.found.state() {
            State::Free => write!(out, "free (generation {generation})"),
            State::Loaned | State::Parked => {
                write!(out, "held by pid {pid} (generation {generation})")
            }
            State::Published => write!(out, "published by pid {pid} (generation {generation})"),
            State::InFlight => write!(out, "in flight from pid {pid} (generation {generation})"),
            State::Rubbish => write!(out, "in an invalid state (word {:#x})", self.found.0),
        }
    }
}

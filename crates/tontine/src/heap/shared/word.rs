//! The words on which members agree: the holder of a block, of a slab, of an arena, and of a slot.
//!
//! Each word is one atomic. In each state, one process may write it, or several may compare and
//! swap it; `docs/internals/heap-shared.md` has the table. All other data of the heap are hints.

use crate::sync::{AtomicU64, Ordering};

const SLOT_BITS: u32 = 13;
const LOW_BITS: u32 = 48;
const STATE_AT: u32 = LOW_BITS + SLOT_BITS;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// The last generation: a block that has reached it is never allocated again.
pub(super) const LAST: u64 = LOW_MASK;

const fn pack(state: u64, slot: usize, low: u64) -> u64 {
    (state << STATE_AT) | ((slot as u64 & SLOT_MASK) << LOW_BITS) | (low & LOW_MASK)
}

const fn state(word: u64) -> u64 {
    word >> STATE_AT
}

const fn slot(word: u64) -> usize {
    ((word >> LOW_BITS) & SLOT_MASK) as usize
}

const fn low(word: u64) -> u64 {
    word & LOW_MASK
}

/// The identity of one member of a heap: a process, from joining the heap to its end.
///
/// [`Heap::member`](super::Heap::member) identifies the calling process. To receive blocks, a
/// process sends its number, [`Member::to_u64`], to the members that hand blocks over to it.
///
/// # Examples
/// ```
/// use tontine::heap::shared::{Heap, Member};
///
/// let heap = Heap::create(1 << 20)?;
/// let number: u64 = heap.member().to_u64(); // to be sent to another process
/// let member = Member::from_u64(number);
/// assert!(heap.is_alive(member));
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    slot: u16,
    epoch: u64,
}

impl Member {
    pub(super) const fn new(slot: usize, epoch: u64) -> Self {
        Self { slot: (slot as u64 & SLOT_MASK) as u16, epoch: epoch & LOW_MASK }
    }

    pub(super) const fn slot(self) -> usize {
        self.slot as usize
    }

    pub(super) const fn epoch(self) -> u64 {
        self.epoch
    }

    /// Returns the member's number, which means the same in every process.
    pub const fn to_u64(self) -> u64 {
        pack(0, self.slot as usize, self.epoch)
    }

    /// Returns the member whose number [`Member::to_u64`] returned. Any number is allowed: a member
    /// that does not exist is not alive.
    pub const fn from_u64(number: u64) -> Self {
        Self::new(slot(number), low(number))
    }
}

/// The destination of a block in flight: the receiver, and whether an outbox has sent the block
/// (*posted* it).
///
/// ```text
///  63    61 60          48 47                                  0
/// +--------+--------------+-------------------------------------+
/// | posted |     slot     |                epoch                |
/// +--------+--------------+-------------------------------------+
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Destination(pub(super) u64);

impl Destination {
    const POSTED: u64 = 1;

    /// Returns the destination of a block that an outbox (`posted`) or the program itself sends.
    pub(super) const fn new(to: Member, posted: bool) -> Self {
        Self(pack(if posted { Self::POSTED } else { 0 }, to.slot(), to.epoch))
    }

    pub(super) const fn member(self) -> Member {
        Member::from_u64(self.0)
    }

    pub(super) const fn is_posted(self) -> bool {
        state(self.0) == Self::POSTED
    }
}

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    /// The block is free.
    Free,
    /// A member holds the block.
    Allocated,
    /// A member has sent the block, and no member has accepted it.
    InFlight,
    /// A member holds the block, and all members may read it.
    Published,
    /// A member holds the block, by its handle alone.
    Parked,
    /// Invalid: no member writes this state.
    Rubbish,
}

/// A block word: state, holder and generation of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockWord(pub(super) u64);

impl BlockWord {
    const FREE: u64 = 0;
    const ALLOCATED: u64 = 1;
    const IN_FLIGHT: u64 = 2;
    const PUBLISHED: u64 = 3;
    const PARKED: u64 = 4;

    pub(super) const fn free(generation: u64) -> Self {
        Self(pack(Self::FREE, 0, generation))
    }

    pub(super) const fn allocated(holder: usize, generation: u64) -> Self {
        Self(pack(Self::ALLOCATED, holder, generation))
    }

    pub(super) const fn in_flight(holder: usize, generation: u64) -> Self {
        Self(pack(Self::IN_FLIGHT, holder, generation))
    }

    pub(super) const fn published(holder: usize, generation: u64) -> Self {
        Self(pack(Self::PUBLISHED, holder, generation))
    }

    pub(super) const fn parked(holder: usize, generation: u64) -> Self {
        Self(pack(Self::PARKED, holder, generation))
    }

    pub(super) const fn state(self) -> BlockState {
        match state(self.0) {
            Self::FREE if slot(self.0) == 0 => BlockState::Free,
            Self::ALLOCATED => BlockState::Allocated,
            Self::IN_FLIGHT => BlockState::InFlight,
            Self::PUBLISHED => BlockState::Published,
            Self::PARKED => BlockState::Parked,
            _ => BlockState::Rubbish,
        }
    }

    pub(super) const fn holder(self) -> usize {
        slot(self.0)
    }

    pub(super) const fn generation(self) -> u64 {
        low(self.0)
    }

    /// Returns `true` if the block is free, and its generation is not the last one.
    #[inline(always)]
    pub(super) const fn can_be_given_out(self) -> bool {
        // FREE is zero, without a holder, so the word is the generation.
        self.0 < LAST
    }

    /// Returns the next generation, or the last generation if no next one exists.
    pub(super) const fn next(generation: u64) -> u64 {
        if generation >= LAST { LAST } else { generation + 1 }
    }
}

/// Operations on block words. They access no other data, so that the models can run them.
pub(super) mod truth {
    use crate::sync::fence;

    use super::{AtomicU64, BlockState, BlockWord, Ordering};

    /// Allocates a block, for the slab's owner. Returns `false` if the word is not FREE, or has the
    /// last generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn allocate(word: &AtomicU64, holder: usize) -> bool {
        // SYNC truth: pairs with the stores and exchanges below, by the last holder.
        let found = BlockWord(word.load(Ordering::Acquire));
        if !found.can_be_given_out() {
            return false;
        }
        // SYNC truth: pairs with the loads of recoverers.
        word.store(BlockWord::allocated(holder, found.0).0, Ordering::Release);
        true
    }

    /// Returns the block's generation to its holder. No other process writes the word while it is
    /// held.
    #[inline(always)]
    pub(in crate::heap::shared) fn generation(word: &AtomicU64) -> u64 {
        BlockWord(word.load(Ordering::Relaxed)).generation()
    }

    /// Frees a block, for its holder.
    #[inline(always)]
    pub(in crate::heap::shared) fn free(word: &AtomicU64, generation: u64) {
        // SYNC truth: pairs with the load in `allocate`.
        word.store(BlockWord::free(BlockWord::next(generation)).0, Ordering::Release);
    }

    /// Sends a block, for its holder. Returns the new generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn send(word: &AtomicU64, holder: usize, generation: u64) -> u64 {
        let next = BlockWord::next(generation);
        // SYNC truth: pairs with the exchange in `leave_flight`.
        word.store(BlockWord::in_flight(holder, next).0, Ordering::Release);
        next
    }

    /// Parks a block, for its holder, which keeps only the handle.
    #[inline(always)]
    pub(in crate::heap::shared) fn park(word: &AtomicU64, holder: usize, generation: u64) {
        // SYNC truth: pairs with the exchange in `Core::claim`.
        word.store(BlockWord::parked(holder, generation).0, Ordering::Release);
    }

    /// Publishes a block, for its holder. Returns the new generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn publish(
        word: &AtomicU64,
        holder: usize,
        generation: u64,
    ) -> u64 {
        let next = BlockWord::next(generation);
        // SYNC truth: pairs with the loads of readers.
        word.store(BlockWord::published(holder, next).0, Ordering::Release);
        next
    }

    /// Withdraws a published block, for its holder, which may then write it. Returns the new
    /// generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn withdraw(
        word: &AtomicU64,
        holder: usize,
        generation: u64,
    ) -> u64 {
        let next = BlockWord::next(generation);
        word.store(BlockWord::allocated(holder, next).0, Ordering::Relaxed);
        // SYNC withdrawn: pairs with the fence in `Heap::still_published`: a reader that sees a
        // later write to the block sees this store too.
        fence(Ordering::SeqCst);
        next
    }

    /// Ends the flight of a block: exchanges `flight` for `then`. If the word is not `flight`,
    /// returns the word as an error.
    #[inline(always)]
    pub(in crate::heap::shared) fn leave_flight(
        word: &AtomicU64,
        flight: BlockWord,
        then: BlockWord,
    ) -> Result<(), BlockWord> {
        debug_assert_eq!(flight.state(), BlockState::InFlight);
        // SYNC truth: pairs with the store in `send`, and with `allocate`.
        word.compare_exchange(flight.0, then.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(BlockWord)
    }

    /// Frees the block of a holder that was proved dead, if its word is still `found`.
    pub(in crate::heap::shared) fn reclaim(word: &AtomicU64, found: BlockWord) -> bool {
        let then = BlockWord::free(BlockWord::next(found.generation()));
        // SYNC truth: pairs with the stores of the dead holder, and with `allocate`.
        word.compare_exchange(found.0, then.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Operations on a slab's hint, which notifies its owner that other threads have freed blocks in
/// it.
pub(super) mod hint {
    use super::{AtomicU64, Ordering};

    /// Sets the hint, after a thread has freed a block of another arena's slab.
    #[inline]
    pub(in crate::heap::shared) fn give(hint: &AtomicU64) {
        // SYNC freed: pairs with the exchange in `take`. The store is unconditional: a load could
        // return 1 although the owner has read the words already. If two threads set the hint, the
        // language allows the second store to hide the words of the first thread. A processor on
        // which a store becomes visible to all other processors at the same time does not hide
        // them, and this library runs only on such processors. On any other processor, a lost hint
        // would cost a rescan.
        hint.store(1, Ordering::Release);
    }

    /// Clears the hint, and returns `true` if it was set. The owner calls it before it reads the
    /// words.
    #[inline]
    pub(in crate::heap::shared) fn take(hint: &AtomicU64) -> bool {
        // SYNC freed: pairs with the store in `give`, so that the owner sees the words.
        hint.load(Ordering::Relaxed) != 0 && hint.swap(0, Ordering::Acquire) != 0
    }
}

/// Operations on the words of members that have ended.
pub(super) mod ended {
    use super::{AtomicU64, MemberState, MemberWord, Ordering};
    use crate::sync::fence;

    /// Marks a member whose end was proved, before the caller reads the words of other members.
    pub(in crate::heap::shared) fn say(word: &AtomicU64, epoch: u64) {
        // SYNC member: pairs with the loads that check whether the member is alive.
        word.store(MemberWord::new(MemberState::Recovering, epoch).0, Ordering::Release);
        // SYNC recoverers: pairs with itself, in another process. If one process recovers a block's
        // holder and another its destination, at least one of them sees, in `is`, the other's store
        // above.
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if the member in this slot has ended.
    pub(in crate::heap::shared) fn is(word: &AtomicU64) -> bool {
        // SYNC member: pairs with the store in `say`.
        // SYNC recoverers: the load follows the caller's fence in `say`.
        MemberWord(word.load(Ordering::Acquire)).state() != MemberState::Alive
    }
}

/// Operations on the owner words of slabs.
pub(super) mod slab {
    use super::{AtomicU64, Ordering, SlabState, SlabWord};

    /// Claims an empty slab for an arena. Returns `false` if the slab is not empty.
    pub(in crate::heap::shared) fn claim(owner: &AtomicU64, arena: usize) -> bool {
        let claimed = SlabWord::new(SlabState::Claimed, arena, 0).0;
        owner.load(Ordering::Relaxed) == SlabWord::EMPTY.0
            // SYNC slab: pairs with the store that made the slab empty.
            && owner
                .compare_exchange(SlabWord::EMPTY.0, claimed, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// Marks a slab, in the name of an arena, as being returned to the kernel. Returns `false` if
    /// the word is no longer `found`: if two processes may release the slab, only one succeeds.
    pub(in crate::heap::shared) fn let_go(
        owner: &AtomicU64,
        found: SlabWord,
        arena: usize,
    ) -> bool {
        let punching = SlabWord::new(SlabState::Punching, arena, 0).0;
        // SYNC slab: pairs with the stores of the arena that owned the slab.
        owner.compare_exchange(found.0, punching, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Changes the state of a slab, for the only arena that may change it.
    pub(in crate::heap::shared) fn set(owner: &AtomicU64, then: SlabWord) {
        // SYNC slab: pairs with the loads of recoverers, and of arenas that claim the slab.
        owner.store(then.0, Ordering::Release);
    }
}

/// The state of a member's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberState {
    /// The slot has no member.
    Free,
    /// The slot's member is alive, or has not been found dead yet.
    Alive,
    /// The slot's member has ended, and is being recovered, or a word still names it.
    Recovering,
    /// Invalid: no member writes this state.
    Rubbish,
}

/// A member word: state and epoch of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemberWord(pub(super) u64);

impl MemberWord {
    pub(super) const fn new(state: MemberState, epoch: u64) -> Self {
        let state = match state {
            MemberState::Free => 0,
            MemberState::Alive => 1,
            MemberState::Recovering => 2,
            MemberState::Rubbish => 7,
        };
        Self(pack(state, 0, epoch))
    }

    pub(super) const fn state(self) -> MemberState {
        match state(self.0) {
            0 => MemberState::Free,
            1 => MemberState::Alive,
            2 => MemberState::Recovering,
            _ => MemberState::Rubbish,
        }
    }

    pub(super) const fn epoch(self) -> u64 {
        low(self.0)
    }
}

/// An arena word: owner and epoch of an arena's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaWord(pub(super) u64);

impl ArenaWord {
    pub(super) const fn free(epoch: u64) -> Self {
        Self(pack(0, 0, epoch))
    }

    pub(super) const fn owned(member: usize, epoch: u64) -> Self {
        Self(pack(1, member, epoch))
    }

    /// Returns the slot of the member that owns the arena.
    pub(super) const fn owner(self) -> Option<usize> {
        if state(self.0) == 1 { Some(slot(self.0)) } else { None }
    }

    pub(super) const fn is_free(self) -> bool {
        state(self.0) == 0
    }

    pub(super) const fn epoch(self) -> u64 {
        low(self.0)
    }
}

/// The state of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlabState {
    /// The slab has no memory.
    Empty,
    /// An arena allocates memory for the slab.
    Claimed,
    /// An arena allocates blocks from the slab.
    Owned,
    /// The slab is part of a block that begins in a slab before it.
    Span,
    /// The slab's memory is being returned.
    Punching,
    /// Invalid: no member writes this state.
    Rubbish,
}

/// The owner word of a slab: the state, the arena, and for a SPAN the distance from its block's
/// first slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlabWord(pub(super) u64);

impl SlabWord {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) const fn new(state: SlabState, arena: usize, part: usize) -> Self {
        let state = match state {
            SlabState::Empty => 0,
            SlabState::Claimed => 1,
            SlabState::Owned => 2,
            SlabState::Span => 3,
            SlabState::Punching => 4,
            SlabState::Rubbish => 7,
        };
        Self(pack(state, arena, part as u64))
    }

    pub(super) const fn state(self) -> SlabState {
        match state(self.0) {
            0 if self.0 == 0 => SlabState::Empty,
            1 => SlabState::Claimed,
            2 => SlabState::Owned,
            3 => SlabState::Span,
            4 => SlabState::Punching,
            _ => SlabState::Rubbish,
        }
    }

    pub(super) const fn arena(self) -> usize {
        slot(self.0)
    }

    /// Returns the distance, in slabs, of a SPAN from its block's first slab.
    pub(super) const fn part(self) -> usize {
        low(self.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_words_unpack_to_packed_fields() {
        let truth = BlockWord::allocated(8_191, LAST);
        assert_eq!(
            (truth.state(), truth.holder(), truth.generation()),
            (BlockState::Allocated, 8_191, LAST)
        );
        assert_eq!(BlockWord(0), BlockWord::free(0));
        assert_eq!(BlockWord(5 << STATE_AT).state(), BlockState::Rubbish);
        assert_eq!(
            BlockWord(1 << LOW_BITS).state(),
            BlockState::Rubbish,
            "free, but with a holder"
        );
        let slab = SlabWord::new(SlabState::Span, 2_047, 3);
        assert_eq!((slab.state(), slab.arena(), slab.part()), (SlabState::Span, 2_047, 3));
        assert_eq!(SlabWord(1).state(), SlabState::Rubbish, "empty, but with another field");
        let member = Member::new(511, 9);
        assert_eq!(Member::from_u64(member.to_u64()), member);
        for posted in [false, true] {
            let destination = Destination::new(member, posted);
            assert_eq!((destination.member(), destination.is_posted()), (member, posted));
        }
        let word = MemberWord::new(MemberState::Recovering, 9);
        assert_eq!((word.state(), word.epoch()), (MemberState::Recovering, 9));
    }

    #[test]
    fn last_generation_is_never_allocated() {
        let word = AtomicU64::new(BlockWord::free(LAST - 1).0);
        assert!(truth::allocate(&word, 3), "one generation is left");
        truth::free(&word, LAST - 1);
        assert_eq!(BlockWord(word.load(Ordering::Relaxed)), BlockWord::free(LAST));
        assert!(!truth::allocate(&word, 3));
    }
}

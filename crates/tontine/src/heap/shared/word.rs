//! The words on which members agree: who has a block, a slab, an arena, a slot.
//!
//! Each is one atomic, and each state of it has one entitled writer, or several that compare and
//! swap; `docs/heap-shared.md` has the table. Everything else in the heap is a hint.

use crate::sync::{AtomicU64, Ordering};

const SLOT_BITS: u32 = 13;
const LOW_BITS: u32 = 48;
const STATE_AT: u32 = LOW_BITS + SLOT_BITS;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// The last generation: a block that has come so far is never given out again.
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

/// The name of one member of a heap: a process, from joining the heap to its end.
///
/// [`Heap::member`](super::Heap::member) names the calling process. A process that is to receive
/// blocks sends its number, [`Member::to_u64`], to the members that hand blocks over to it.
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

    /// Returns the member with a number of [`Member::to_u64`]. Any number is allowed: a member that
    /// does not exist is not alive.
    pub const fn from_u64(number: u64) -> Self {
        Self::new(slot(number), low(number))
    }
}

/// Where a block in flight goes, and how.
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

    /// By an outbox, or by the program itself.
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

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has it.
    Free,
    /// A member has it.
    Loaned,
    /// It is on its way from a member.
    InFlight,
    /// A member has it, and all may read it.
    Published,
    /// A member has it, by its handle alone.
    Parked,
    /// No member writes this.
    Rubbish,
}

/// What a truth word says of its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Truth(pub(super) u64);

impl Truth {
    const FREE: u64 = 0;
    const LOANED: u64 = 1;
    const IN_FLIGHT: u64 = 2;
    const PUBLISHED: u64 = 3;
    const PARKED: u64 = 4;

    pub(super) const fn free(generation: u64) -> Self {
        Self(pack(Self::FREE, 0, generation))
    }

    pub(super) const fn loaned(holder: usize, generation: u64) -> Self {
        Self(pack(Self::LOANED, holder, generation))
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

    pub(super) const fn state(self) -> State {
        match state(self.0) {
            Self::FREE if slot(self.0) == 0 => State::Free,
            Self::LOANED => State::Loaned,
            Self::IN_FLIGHT => State::InFlight,
            Self::PUBLISHED => State::Published,
            Self::PARKED => State::Parked,
            _ => State::Rubbish,
        }
    }

    pub(super) const fn holder(self) -> usize {
        slot(self.0)
    }

    pub(super) const fn generation(self) -> u64 {
        low(self.0)
    }

    /// Whether it is free, and not worn out.
    #[inline(always)]
    pub(super) const fn can_be_given_out(self) -> bool {
        // FREE is zero, with no holder: what is left is the generation.
        self.0 < LAST
    }

    /// The generation that follows; the last one stays.
    pub(super) const fn next(generation: u64) -> u64 {
        if generation >= LAST { LAST } else { generation + 1 }
    }
}

/// What is done to truth words. Free of everything else, so that models can run it.
pub(super) mod truth {
    use crate::sync::fence;

    use super::{AtomicU64, Ordering, State, Truth};

    /// The slab's owner gives a block out; not where the word does not say FREE, or never will.
    #[inline(always)]
    pub(in crate::heap::shared) fn loan(word: &AtomicU64, holder: usize) -> bool {
        // SYNC truth: pairs with the stores and exchanges below, by whoever had it before.
        let found = Truth(word.load(Ordering::Acquire));
        if !found.can_be_given_out() {
            return false;
        }
        // SYNC truth: pairs with the loads of recoverers.
        word.store(Truth::loaned(holder, found.0).0, Ordering::Release);
        true
    }

    /// Its generation, for the holder: nobody else writes the word.
    #[inline(always)]
    pub(in crate::heap::shared) fn generation(word: &AtomicU64) -> u64 {
        Truth(word.load(Ordering::Relaxed)).generation()
    }

    /// The holder lets go of its block.
    #[inline(always)]
    pub(in crate::heap::shared) fn free(word: &AtomicU64, generation: u64) {
        // SYNC truth: pairs with the load in `loan`.
        word.store(Truth::free(Truth::next(generation)).0, Ordering::Release);
    }

    /// The holder sends its block; says under which generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn send(word: &AtomicU64, holder: usize, generation: u64) -> u64 {
        let next = Truth::next(generation);
        // SYNC truth: pairs with the exchange in `leave_flight`.
        word.store(Truth::in_flight(holder, next).0, Ordering::Release);
        next
    }

    /// The holder keeps its block by the handle alone.
    #[inline(always)]
    pub(in crate::heap::shared) fn park(word: &AtomicU64, holder: usize, generation: u64) {
        // SYNC truth: pairs with the exchange in `Core::claim`.
        word.store(Truth::parked(holder, generation).0, Ordering::Release);
    }

    /// The holder lets all read its block; says under which generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn publish(
        word: &AtomicU64,
        holder: usize,
        generation: u64,
    ) -> u64 {
        let next = Truth::next(generation);
        // SYNC truth: pairs with the loads of readers.
        word.store(Truth::published(holder, next).0, Ordering::Release);
        next
    }

    /// The holder takes it from them, and may write from then on; says under which generation.
    #[inline(always)]
    pub(in crate::heap::shared) fn withdraw(
        word: &AtomicU64,
        holder: usize,
        generation: u64,
    ) -> u64 {
        let next = Truth::next(generation);
        word.store(Truth::loaned(holder, next).0, Ordering::Relaxed);
        // SYNC withdrawn: pairs with the fence in `Heap::still_published`: a reader that sees what
        // is written from now on sees that word, too.
        fence(Ordering::SeqCst);
        next
    }

    /// A block in flight becomes `then`, if it is as expected still.
    #[inline(always)]
    pub(in crate::heap::shared) fn leave_flight(
        word: &AtomicU64,
        flight: Truth,
        then: Truth,
    ) -> Result<(), Truth> {
        debug_assert_eq!(flight.state(), State::InFlight);
        // SYNC truth: pairs with the store in `send`, and with `loan`.
        word.compare_exchange(flight.0, then.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Truth)
    }

    /// Whoever has proved a holder's end takes its block.
    pub(in crate::heap::shared) fn reclaim(word: &AtomicU64, found: Truth) -> bool {
        let then = Truth::free(Truth::next(found.generation()));
        // SYNC truth: pairs with the stores of the dead one, and with `loan`.
        word.compare_exchange(found.0, then.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// What is done to a slab's hint that others have freed blocks in it.
pub(super) mod hint {
    use super::{AtomicU64, Ordering};

    /// Whoever has freed a block that is not its own slab's.
    #[inline]
    pub(in crate::heap::shared) fn give(hint: &AtomicU64) {
        // SYNC freed: pairs with the exchange in `take`. Always: a load might say 1 while the owner
        // has read the words already. Of two that give it, the language lets the second one's hide
        // the first one's words; a processor on which all see a store at once does not, and that is
        // every one that this library runs on. Elsewhere it would cost a rescan.
        hint.store(1, Ordering::Release);
    }

    /// The owner, before it reads the words: whether somebody has; it is forgotten now.
    #[inline]
    pub(in crate::heap::shared) fn take(hint: &AtomicU64) -> bool {
        // SYNC freed: pairs with the store in `give`, so that the words are seen.
        hint.load(Ordering::Relaxed) != 0 && hint.swap(0, Ordering::Acquire) != 0
    }
}

/// What is done to members' words when they have ended.
pub(super) mod ended {
    use super::{AtomicU64, MemberState, MemberWord, Ordering};
    use crate::sync::fence;

    /// Whoever has proved it says so, before it reads what others say.
    pub(in crate::heap::shared) fn say(word: &AtomicU64, epoch: u64) {
        // SYNC member: pairs with the loads of those who ask whether it lives.
        word.store(MemberWord::new(MemberState::Recovering, epoch).0, Ordering::Release);
        // SYNC recoverers: pairs with itself, in another process: of two that recover a block's
        // holder and its destination, one sees in `is` what the other has stored above.
        fence(Ordering::SeqCst);
    }

    /// Whether whoever had this slot has ended.
    pub(in crate::heap::shared) fn is(word: &AtomicU64) -> bool {
        // SYNC member: pairs with the store in `say`.
        // SYNC recoverers: of the word that was stored before the fence.
        MemberWord(word.load(Ordering::Acquire)).state() != MemberState::Alive
    }
}

/// What is done to slabs' owner words.
pub(super) mod slab {
    use super::{AtomicU64, Ordering, SlabState, SlabWord};

    /// An empty slab becomes this arena's, to fetch memory for.
    pub(in crate::heap::shared) fn claim(owner: &AtomicU64, arena: usize) -> bool {
        let claimed = SlabWord::new(SlabState::Claimed, arena, 0).0;
        owner.load(Ordering::Relaxed) == SlabWord::EMPTY.0
            // SYNC slab: pairs with the store that made it empty.
            && owner
                .compare_exchange(SlabWord::EMPTY.0, claimed, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// What was found in a slab begins to be given back, in this arena's name, if it is there
    /// still: of two that are entitled to that, one does it.
    pub(in crate::heap::shared) fn let_go(
        owner: &AtomicU64,
        found: SlabWord,
        arena: usize,
    ) -> bool {
        let punching = SlabWord::new(SlabState::Punching, arena, 0).0;
        // SYNC slab: pairs with the stores of the arena that had it.
        owner.compare_exchange(found.0, punching, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whoever is entitled to leave a slab's state does so.
    pub(in crate::heap::shared) fn set(owner: &AtomicU64, then: SlabWord) {
        // SYNC slab: pairs with the loads of recoverers, and of those who claim it.
        owner.store(then.0, Ordering::Release);
    }
}

/// What a member's slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberState {
    Free,
    Alive,
    Recovering,
    Rubbish,
}

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

/// What an arena's slot says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArenaWord(pub(super) u64);

impl ArenaWord {
    pub(super) const fn free(epoch: u64) -> Self {
        Self(pack(0, 0, epoch))
    }

    pub(super) const fn owned(member: usize, epoch: u64) -> Self {
        Self(pack(1, member, epoch))
    }

    /// The member whose it is.
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

/// What is made of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlabState {
    /// No memory behind it.
    Empty,
    /// An arena fetches memory.
    Claimed,
    /// Blocks are allocated from it.
    Owned,
    /// Part of a block that begins in a slab before it.
    Span,
    /// Its memory is being given back.
    Punching,
    /// No member writes this.
    Rubbish,
}

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

    /// Of a SPAN: how many slabs before it its block begins.
    pub(super) const fn part(self) -> usize {
        low(self.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_what_was_packed() {
        let truth = Truth::loaned(8_191, LAST);
        assert_eq!(
            (truth.state(), truth.holder(), truth.generation()),
            (State::Loaned, 8_191, LAST)
        );
        assert_eq!(Truth(0), Truth::free(0));
        assert_eq!(Truth(5 << STATE_AT).state(), State::Rubbish);
        assert_eq!(Truth(1 << LOW_BITS).state(), State::Rubbish, "free, and somebody has it");
        let slab = SlabWord::new(SlabState::Span, 2_047, 3);
        assert_eq!((slab.state(), slab.arena(), slab.part()), (SlabState::Span, 2_047, 3));
        assert_eq!(SlabWord(1).state(), SlabState::Rubbish, "empty, and something else");
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
    fn the_last_generation_is_never_given_out() {
        let word = AtomicU64::new(Truth::free(LAST - 1).0);
        assert!(truth::loan(&word, 3), "one is left");
        truth::free(&word, LAST - 1);
        assert_eq!(Truth(word.load(Ordering::Relaxed)), Truth::free(LAST));
        assert!(!truth::loan(&word, 3));
    }
}

//! The recovery of dead members: [`Core::recover`], [`Core::recover_all`].
//!
//! The steps are numbered as in `docs/internals/heap-shared.md`. Each step can be repeated: if a
//! member dies during a recovery, the next recoverer recovers that member, and repeats the recovery
//! that the member had begun.

use super::arena::Arena;
use super::class::SizeClass;
use super::core::{ArenaRegistry, Core, EmptySlabPolicy};
use super::layout::{ARENAS, GRANULES, MEMBERS};
use super::transfers::Endpoints;
use super::word::{
    ArenaWord, BlockState, BlockWord, Member, MemberState, MemberWord, SlabState, SlabWord, ended,
    truth,
};
use crate::heap::Result;
use crate::sync::Ordering;

/// The result of [`Heap::recover_and_trim`](super::Heap::recover_and_trim) and of
/// [`Heap::recover`](super::Heap::recover): the numbers of recovered members, blocks and slabs.
///
/// # Examples
/// ```
/// let heap = tontine::heap::shared::Heap::create(1 << 20)?;
/// let recovery = heap.recover_and_trim()?;
/// println!("{} members were dead; {} blocks freed", recovery.members, recovery.blocks);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recovery {
    /// Number of members that were found dead.
    pub members: usize,
    /// Number of blocks freed: blocks that dead members held, and blocks in flight that no process
    /// will accept.
    pub blocks: usize,
    /// Number of slabs of dead members from which this process allocates now.
    pub adopted: usize,
    /// Number of empty slabs of dead members that are kept for this process's next blocks.
    pub kept: usize,
    /// Number of slabs whose memory was returned to the kernel.
    pub given_back: usize,
}

/// The result of freeing a dead member's blocks.
struct RecoveryScan {
    /// `true` if a word still names the member.
    names_it: bool,
    /// For each slab: `true` if a block in it is not free.
    in_use: Vec<bool>,
}

impl Core {
    /// Recovers all members that have ended. `heir` adopts the slabs in which other members hold
    /// blocks; if it is `None`, those slabs are unchanged.
    pub(super) fn recover_all(
        &self,
        _: &ArenaRegistry,
        mut heir: Option<&mut Arena>,
        whole: EmptySlabPolicy,
    ) -> Result<Recovery> {
        let mut recovery = Recovery::default();
        for slot in (0..MEMBERS).filter(|slot| *slot != self.slot()) {
            let word = &self.space.member(slot).word;
            let is_free = || MemberWord(word.load(Ordering::Acquire)).state() == MemberState::Free;
            if is_free() || !self.space.try_lock_member(slot)? {
                continue;
            }
            if !is_free() {
                let found = self.recover(slot, heir.as_deref_mut(), whole);
                if found.is_err() {
                    // Another member may succeed in recovering this one.
                    self.space.unlock_member(slot)?;
                }
                let found = found?;
                recovery.members += found.members;
                recovery.blocks += found.blocks;
                recovery.adopted += found.adopted;
                recovery.kept += found.kept;
                recovery.given_back += found.given_back;
            }
            self.space.unlock_member(slot)?;
        }
        // A recovery frees the blocks in flight from one dead member to another. The blocks in
        // flight between a dead member and this process are freed here, whichever member recovered
        // the dead one.
        recovery.blocks += self.reclaim_stranded();
        Ok(recovery)
    }

    /// Recovers the member of this slot. The caller has acquired the slot's record lock, or is that
    /// member.
    pub(super) fn recover(
        &self,
        slot: usize,
        heir: Option<&mut Arena>,
        whole: EmptySlabPolicy,
    ) -> Result<Recovery> {
        let word = &self.space.member(slot).word;
        let found = MemberWord(word.load(Ordering::Acquire));
        let member = Member::new(slot, found.epoch());
        // Step 1: marks the member as RECOVERING.
        ended::say(word, found.epoch());
        let arenas = self.arenas_of(slot);
        let mut recovery = Recovery {
            members: usize::from(found.state() == MemberState::Alive),
            ..Recovery::default()
        };
        recovery.given_back += self.let_halves_go(&arenas)?;
        let left = self.take_blocks(member, &mut recovery);
        // The counter is incremented once per dead member, even if no block was freed, because the
        // member may have freed blocks without setting the hint. This is not repeated for a member
        // that a word still names.
        let counted = &self.space.member(slot).counted;
        if recovery.blocks > 0 || counted.load(Ordering::Relaxed) != found.epoch() {
            // SYNC deaths: pairs with the loads in `Arena`.
            self.space.header().deaths.fetch_add(1, Ordering::AcqRel);
            counted.store(found.epoch(), Ordering::Relaxed);
        }
        self.redistribute(&arenas, &left.in_use, heir, whole, &mut recovery)?;
        // Step 6: frees the member's arenas that no slab names any more.
        let mut named = left.names_it;
        let in_need = self.named_arenas();
        for (index, _) in arenas.iter().enumerate().filter(|(_, is_theirs)| **is_theirs) {
            if in_need[index] {
                named = true;
                continue;
            }
            let word = &self.space.arena(index).word;
            let epoch = ArenaWord(word.load(Ordering::Relaxed)).epoch();
            // SYNC arena: pairs with the exchange in `Core::new_arena`.
            word.store(ArenaWord::free(epoch).0, Ordering::Release);
        }
        // Step 7: frees the member's slot if no word names the member.
        if !named {
            // SYNC member: pairs with the load in `Core::take_slot`.
            word.store(MemberWord::new(MemberState::Free, found.epoch()).0, Ordering::Release);
        }
        Ok(recovery)
    }

    /// Returns, for each arena, `true` if this member owns it.
    fn arenas_of(&self, slot: usize) -> Vec<bool> {
        (0..ARENAS).map(|index| self.owner_of_arena(index) == Some(slot)).collect()
    }

    /// Returns the slot of the member that owns an arena.
    pub(super) fn owner_of_arena(&self, index: usize) -> Option<usize> {
        // SYNC arena: pairs with the exchange in `Core::new_arena`.
        let word = (index < ARENAS).then(|| self.space.arena(index).word.load(Ordering::Acquire));
        ArenaWord(word?).owner()
    }

    /// Returns `true` if an arena allocates blocks from this slab.
    #[inline]
    pub(super) fn is_owned(&self, slab: usize) -> bool {
        self.owner(slab).state() == SlabState::Owned
    }

    /// Returns `true` if the slab has no memory.
    pub(super) fn is_empty(&self, slab: usize) -> bool {
        self.owner(slab) == SlabWord::EMPTY
    }

    /// Returns `true` if the slab's memory is being returned.
    pub(super) fn is_punching(&self, slab: usize) -> bool {
        self.owner(slab).state() == SlabState::Punching
    }

    #[inline]
    pub(super) fn owner(&self, slab: usize) -> SlabWord {
        // SYNC slab: pairs with the stores by the slab's arena.
        SlabWord(self.space.slab(slab).owner.load(Ordering::Acquire))
    }

    /// Returns, for each arena, `true` if a slab names it.
    fn named_arenas(&self) -> Vec<bool> {
        let mut named = vec![false; ARENAS];
        for slab in 0..self.space.geometry().slabs() {
            let owner = self.owner(slab);
            if owner.state() != SlabState::Empty && owner.arena() < ARENAS {
                named[owner.arena()] = true;
            }
        }
        named
    }

    /// Returns `true` if a SPAN, at distance `part` from the first slab of a block, belongs to that
    /// block.
    pub(super) fn belongs(&self, slab: usize, part: usize) -> bool {
        let Some(first) = slab.checked_sub(part).filter(|_| part > 0) else { return false };
        let large = matches!(self.class(first), Some(SizeClass::Large(slabs)) if slabs > part);
        large && self.owner(first).state() == SlabState::Owned
    }

    /// Step 2: returns the memory of slabs whose memory was being allocated or returned, and of
    /// parts of large blocks that were not completed. Returns the number of slabs.
    fn let_halves_go(&self, arenas: &[bool]) -> Result<usize> {
        let mut slabs = 0;
        for slab in 0..self.space.geometry().slabs() {
            let owner = self.owner(slab);
            let half = match owner.state() {
                SlabState::Claimed | SlabState::Punching => true,
                SlabState::Span => !self.belongs(slab, owner.part()),
                SlabState::Empty | SlabState::Owned | SlabState::Rubbish => false,
            };
            // Meanwhile, the recoverer of the block's owner may release a part.
            if half
                && arenas.get(owner.arena()) == Some(&true)
                && self.begin_to_let_go(slab, owner, owner.arena())
            {
                self.empty(slab..slab + 1)?;
                slabs += 1;
            }
        }
        Ok(slabs)
    }

    /// Steps 3 and 4: frees the member's blocks, and blocks in flight that no process will accept.
    fn take_blocks(&self, member: Member, recovery: &mut Recovery) -> RecoveryScan {
        let mut left =
            RecoveryScan { names_it: false, in_use: vec![false; self.space.geometry().slabs()] };
        // SYNC role: pairs with the store in `take_over_role`.
        let has_role = self.space.member(member.slot()).role.load(Ordering::Acquire) != 0;
        let ways = self.mail.ways();
        for (slab, class) in self.slabs_with_blocks() {
            let (mut freed, mut in_use) = (0, false);
            for granule in class.begins_in(slab) {
                let word = self.space.word(granule);
                // SYNC truth: pairs with the stores that freed the blocks.
                let found = BlockWord(word.load(Ordering::Acquire));
                let taken = match found.state() {
                    // Only the holder may end this state, and the recoverer has the holder's record
                    // lock.
                    BlockState::Allocated | BlockState::Parked
                        if found.holder() == member.slot() =>
                    {
                        truth::free(word, found.generation());
                        true
                    }
                    // If the member has a role, its successor receives the published blocks.
                    BlockState::Published if found.holder() == member.slot() => {
                        left.names_it |= has_role;
                        if !has_role {
                            // The block is withdrawn before it is freed, because the next holder
                            // writes into it.
                            let generation =
                                truth::withdraw(word, member.slot(), found.generation());
                            truth::free(word, generation);
                        }
                        !has_role
                    }
                    BlockState::InFlight => {
                        let taken = self.is_stranded(&ways, granule, found, member)
                            && truth::reclaim(word, found);
                        left.names_it |= !taken && found.holder() == member.slot();
                        taken
                    }
                    _ => false,
                };
                freed += usize::from(taken);
                in_use |= !taken && found.state() != BlockState::Free;
            }
            left.in_use[slab] = in_use;
            if freed > 0 {
                recovery.blocks += freed;
                self.notify_owner(slab * GRANULES);
            }
        }
        left
    }

    /// Returns `true` if a block in flight, whose sender or receiver is this dead member, will not
    /// be accepted: the other end is dead too, or the other end is this process and has no inbox or
    /// outbox for the block.
    fn is_stranded(
        &self,
        ways: &Endpoints,
        granule: usize,
        flight: BlockWord,
        dead: Member,
    ) -> bool {
        // The destination was stored before the word, which was loaded with acquire.
        let destination = self.destination(granule);
        let to = destination.member();
        if self.is_ours_to_free(ways, flight, destination) {
            return true;
        }
        if flight.holder() == dead.slot() {
            return !self.is_alive(to);
        }
        to == dead && self.is_dead_slot(flight.holder())
    }

    /// Returns `true` if the member in this slot has ended.
    pub(super) fn is_dead_slot(&self, slot: usize) -> bool {
        slot >= MEMBERS || ended::is(&self.space.member(slot).word)
    }

    /// Returns the slabs in which blocks begin, each with its class.
    pub(super) fn slabs_with_blocks(&self) -> impl Iterator<Item = (usize, SizeClass)> {
        let slabs = (0..self.space.geometry().slabs()).filter(|slab| self.is_owned(*slab));
        slabs.filter_map(|slab| Some((slab, self.class(slab)?)))
    }

    /// Returns all blocks: the granule at which each begins, and its class.
    pub(super) fn all_blocks(&self) -> impl Iterator<Item = (usize, SizeClass)> {
        self.slabs_with_blocks()
            .flat_map(|(slab, class)| class.begins_in(slab).map(move |granule| (granule, class)))
    }

    /// Step 5: returns the memory of the member's empty slabs, and passes its other slabs to the
    /// adopting arena. Their owner is dead, so no thread allocates from them, and free blocks stay
    /// free during this step.
    fn redistribute(
        &self,
        arenas: &[bool],
        in_use: &[bool],
        mut heir: Option<&mut Arena>,
        whole: EmptySlabPolicy,
        recovery: &mut Recovery,
    ) -> Result<()> {
        let mut run = 0..0;
        for (slab, class) in self.slabs_with_blocks() {
            let arena = self.owner(slab).arena();
            if arenas.get(arena) != Some(&true) {
                continue;
            }
            if !in_use[slab]
                && whole == EmptySlabPolicy::Kept
                && matches!(class, SizeClass::Small(_))
                && let Some(heir) = heir.as_deref_mut()
            {
                if self.pass_on(slab, arena, heir.index()) {
                    heir.adopt_whole(self, slab, class);
                    recovery.kept += 1;
                }
            } else if !in_use[slab] {
                recovery.given_back += class.slabs();
                if class.slabs() > 1 {
                    self.release(arena, slab, class)?;
                    continue;
                }
                // Adjacent slabs are returned to the kernel together, with one system call.
                if run.end != slab {
                    self.empty(std::mem::replace(&mut run, slab..slab))?;
                }
                self.begin_to_empty(slab, arena);
                run.end = slab + 1;
            } else if let Some(heir) = heir.as_deref_mut()
                && self.pass_on(slab, arena, heir.index())
            {
                heir.adopt(self, slab, class);
                recovery.adopted += class.slabs();
            }
        }
        self.empty(run)
    }
}

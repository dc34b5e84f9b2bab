//! A process's membership of a shared heap: [`Core`], to which its arenas and blocks refer.
//!
//! [`Core`] claims slabs for arenas, passes them on, and returns their memory. The recovery of dead
//! members is in `recover`.

#![allow(unsafe_code, reason = "arenas are borrowed by their threads through raw pointers")]

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use super::arena::Arena;
use super::class::SizeClass;
use super::layout::{ARENAS, GRANULES, MEMBERS, SLAB};
use super::space::HeapSpace;
use super::transfers::Transfers;
use super::word::{ArenaWord, Member, MemberState, MemberWord, SlabState, SlabWord, hint, slab};
use crate::heap::{HeapError, Result};
use crate::sync::{AtomicU64, Ordering};

/// Maximum number of searches for an empty slab while slabs are changing hands.
const LOOKS: usize = 50;
/// Interval between two of these searches.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Marks, in a block's name, a length that does not fit there.
pub(super) const LONG: u64 = u16::MAX as u64;

/// Number of heaps that this process has opened so far. Each heap takes its number from this
/// counter.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A process's membership of a shared heap.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) space: HeapSpace,
    me: Member,
    id: u64,
    pub(super) canaries: bool,
    desk: Mutex<ArenaRegistry>,
    pub(super) mail: Transfers,
    /// A bit for each slab, set if its destinations have memory.
    destinations: Box<[AtomicU64]>,
    /// For each slab, the length of the block that begins there, if it does not fit into the
    /// block's name.
    long: Box<[AtomicU64]>,
}

/// Policy for a dead member's slabs that are empty after its blocks were freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EmptySlabPolicy {
    /// The adopting arena keeps the slabs for its next blocks, except the slabs of large blocks.
    Kept,
    /// The slabs' memory returns to the kernel, which takes longer than all other steps together.
    GivenBack,
}

/// The result of a search for empty slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlabSearch {
    /// The first of the slabs that were found.
    At(usize),
    /// No slabs were found.
    None,
    /// No slabs were found, but some are changing hands and may be empty soon.
    Later,
}

/// The arenas of this process, and work that only one thread at a time may do.
#[derive(Debug, Default)]
pub(super) struct ArenaRegistry {
    /// All arenas of this process. Each is used by its thread, or, if it is abandoned, by the
    /// thread that holds the lock of this value.
    arenas: Vec<ArenaBox>,
    /// Arenas whose threads have ended.
    resting: Vec<AbandonedArena>,
}

/// An arena, at the address that its thread stores. This is not a `Box`, because moving a `Box`
/// asserts that no other pointer to its value exists.
#[derive(Debug)]
struct ArenaBox(NonNull<Arena>);

impl ArenaBox {
    fn new(arena: Arena) -> Self {
        Self(NonNull::from(Box::leak(Box::new(arena))))
    }
}

impl Drop for ArenaBox {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box. The heap is closed, and each thread checks whether
        // the heap is open before it uses an arena.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// An arena whose thread has ended.
#[derive(Debug)]
struct AbandonedArena(NonNull<Arena>);

// SAFETY: one thread at a time uses an arena: its own thread, or the thread that holds the lock.
unsafe impl Send for ArenaRegistry {}

impl Core {
    /// Joins the heap.
    pub(super) fn join(space: HeapSpace) -> Result<Self> {
        let canaries = space.header().canaries.load(Ordering::Relaxed) != 0;
        let slabs = space.geometry().slabs();
        let destinations = (0..slabs.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let id = OPENED.fetch_add(1, Ordering::Relaxed) + 1;
        // The process is not a member yet: this value reads the slots before it owns a slot.
        let me = Member::new(MEMBERS, 0);
        let desk = Mutex::default();
        let mail = Transfers::default();
        // The kernel provides the zeros, so most pages of a large slice are never touched.
        let zeros = Box::into_raw(vec![0_u64; slabs].into_boxed_slice());
        // SAFETY: the box has just been released. On 64-bit machines, an atomic has the size, the
        // alignment and the valid values of its integer.
        let long = unsafe { Box::from_raw(zeros as *mut [AtomicU64]) };
        let mut core = Self { space, me, id, canaries, desk, mail, destinations, long };
        core.me = core.take_slot()?;
        Ok(core)
    }

    fn take_slot(&self) -> Result<Member> {
        // Free slots come first, because the recovery of a dead member takes time.
        for dead in [false, true] {
            for slot in 0..MEMBERS {
                let word = &self.space.member(slot).word;
                let is_free = |word: u64| MemberWord(word).state() == MemberState::Free;
                if is_free(word.load(Ordering::Relaxed)) == dead
                    || !self.space.try_lock_member(slot)?
                {
                    continue;
                }
                // SYNC member: pairs with the stores by the slot's last holder or its recoverer.
                if !is_free(word.load(Ordering::Acquire)) {
                    self.recover(slot, None, EmptySlabPolicy::GivenBack)?;
                }
                let found = MemberWord(word.load(Ordering::Acquire));
                if found.state() == MemberState::Free {
                    let epoch = found.epoch() + 1;
                    let pid = std::process::id().into();
                    self.space.member(slot).pid.store(pid, Ordering::Relaxed);
                    self.space.member(slot).namespace.store(namespace(), Ordering::Relaxed);
                    self.space.member(slot).role.store(0, Ordering::Relaxed);
                    // SYNC member: pairs with the loads that check whether the member is alive.
                    word.store(MemberWord::new(MemberState::Alive, epoch).0, Ordering::Release);
                    return Ok(Member::new(slot, epoch));
                }
                self.space.unlock_member(slot)?;
            }
        }
        Err(HeapError::LimitReached { what: "member", max: MEMBERS })
    }

    /// Returns this process as a member.
    #[inline(always)]
    pub(super) fn me(&self) -> Member {
        self.me
    }

    /// Returns the slot of this process.
    #[inline(always)]
    pub(super) fn slot(&self) -> usize {
        self.me.slot()
    }

    /// Returns the number of this heap among the heaps that this process has opened.
    #[inline(always)]
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns `true` if the member is alive. Its slot says so until another member proves its end.
    #[inline]
    pub(super) fn is_alive(&self, member: Member) -> bool {
        if member.slot() >= MEMBERS {
            return false;
        }
        // SYNC member: pairs with the stores by the slot's holder, and by its recoverer.
        let word = self.space.member(member.slot()).word.load(Ordering::Acquire);
        MemberWord(word) == MemberWord::new(MemberState::Alive, member.epoch())
    }

    pub(super) fn desk(&self) -> MutexGuard<'_, ArenaRegistry> {
        // A panic under the lock leaves every word valid.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an arena for a thread that does not have one.
    pub(super) fn new_arena(&self) -> Result<NonNull<Arena>> {
        let mut desk = self.desk();
        if let Some(AbandonedArena(arena)) = desk.resting.pop() {
            return Ok(arena);
        }
        for index in 0..ARENAS {
            let word = &self.space.arena(index).word;
            let found = ArenaWord(word.load(Ordering::Relaxed));
            let owned = ArenaWord::owned(self.slot(), found.epoch() + 1);
            if found.is_free()
                // SYNC arena: pairs with the store that freed the arena.
                && word
                    .compare_exchange(found.0, owned.0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                let arena = Arena::new(index, self.space.geometry().slabs());
                let arena = ArenaBox::new(arena);
                let address = arena.0;
                desk.arenas.push(arena);
                return Ok(address);
            }
        }
        Err(HeapError::LimitReached { what: "thread's arena", max: ARENAS })
    }

    /// Abandons an arena whose thread is ending.
    ///
    /// # Safety
    /// The arena belongs to this heap, and its thread does not use it any more.
    pub(super) unsafe fn rest(&self, mut arena: NonNull<Arena>) {
        // SAFETY: the caller ensures that no other thread uses the arena.
        unsafe { arena.as_mut() }.rest(self);
        self.desk().resting.push(AbandonedArena(arena));
    }

    /// Claims an empty slab for the arena, and allocates its memory.
    pub(super) fn claim_slab(&self, arena: usize, class: SizeClass) -> Result<SlabSearch> {
        let slabs = self.space.geometry().slabs();
        let hint = &self.space.header().hint;
        let first = usize::try_from(hint.load(Ordering::Relaxed)).unwrap_or(0) % slabs;
        let mut none = SlabSearch::None;
        for slab in (first..slabs).chain(0..first) {
            if self.try_claim(arena, slab) {
                hint.store((slab + 1) as u64, Ordering::Relaxed);
                self.fetch(slab, 1)?;
                self.set_class(slab, class);
                self.set_owner(slab, SlabWord::new(SlabState::Owned, arena, 0));
                return Ok(SlabSearch::At(slab));
            }
            if self.is_changing_hands(slab) {
                none = SlabSearch::Later;
            }
        }
        Ok(none)
    }

    /// Claims adjacent empty slabs for one block. Returns the number of the first slab.
    pub(super) fn claim_slabs(&self, arena: usize, slabs: usize) -> Result<SlabSearch> {
        let mut none = SlabSearch::None;
        // Lengths of the runs that end at this slab: the run of empty slabs, and the run of slabs
        // that are or may soon be empty.
        let (mut empty, mut hopeful) = (0, 0);
        for last in 0..self.space.geometry().slabs() {
            let owner = self.space.slab(last).owner.load(Ordering::Relaxed);
            (empty, hopeful) = match owner == SlabWord::EMPTY.0 {
                true => (empty + 1, hopeful + 1),
                false => (0, if self.is_changing_hands(last) { hopeful + 1 } else { 0 }),
            };
            if empty >= slabs {
                let first = last + 1 - slabs;
                let claimed =
                    (first..=last).take_while(|slab| self.try_claim(arena, *slab)).count();
                if claimed == slabs {
                    return self.make_large(arena, first, slabs);
                }
                for slab in (first..first + claimed).rev() {
                    self.drop_claim(slab, arena)?;
                }
                empty = 0;
            }
            if hopeful >= slabs {
                none = SlabSearch::Later;
            }
        }
        Ok(none)
    }

    /// Turns claimed slabs into the slabs of one block.
    fn make_large(&self, arena: usize, first: usize, slabs: usize) -> Result<SlabSearch> {
        self.fetch(first, slabs)?;
        for part in (1..slabs).rev() {
            let span = SlabWord::new(SlabState::Span, arena, part);
            self.set_owner(first + part, span);
        }
        self.set_class(first, SizeClass::Large(slabs));
        self.set_owner(first, SlabWord::new(SlabState::Owned, arena, 0));
        Ok(SlabSearch::At(first))
    }

    /// Calls `claim` until it finds slabs. If `patient`, retries while slabs are changing hands,
    /// and makes at most [`LOOKS`] calls.
    pub(super) fn in_a_moment(
        &self,
        patient: bool,
        mut claim: impl FnMut() -> Result<SlabSearch>,
    ) -> Result<Option<usize>> {
        for _ in 0..if patient { LOOKS } else { 1 } {
            match claim()? {
                SlabSearch::At(slab) => return Ok(Some(slab)),
                SlabSearch::None => return Ok(None),
                SlabSearch::Later if patient => sleep(BETWEEN_LOOKS),
                SlabSearch::Later => {}
            }
        }
        Ok(None)
    }

    /// Returns `true` if a slab may be empty soon: the arena of a live member has claimed it, and
    /// may release it again, or is returning its memory.
    fn is_changing_hands(&self, slab: usize) -> bool {
        let owner = SlabWord(self.space.slab(slab).owner.load(Ordering::Relaxed));
        matches!(owner.state(), SlabState::Claimed | SlabState::Punching)
            && self.owner_of_arena(owner.arena()).is_some_and(|slot| !self.is_dead_slot(slot))
    }

    /// Claims a slab for the arena if it is empty. Returns `true` if it was.
    fn try_claim(&self, arena: usize, number: usize) -> bool {
        let owner = &self.space.slab(number).owner;
        slab::claim(owner, arena)
    }

    /// Allocates memory for claimed slabs. If the kernel has no memory, releases the slabs.
    fn fetch(&self, first: usize, slabs: usize) -> Result<()> {
        let fetched = (first..first + slabs).try_for_each(|slab| self.space.fetch_slab(slab));
        if fetched.is_err() {
            for slab in (first..first + slabs).rev() {
                let arena = SlabWord(self.space.slab(slab).owner.load(Ordering::Relaxed)).arena();
                self.drop_claim(slab, arena)?;
            }
        }
        fetched
    }

    /// Makes a claimed slab empty again.
    pub(super) fn drop_claim(&self, slab: usize, arena: usize) -> Result<()> {
        self.begin_to_empty(slab, arena);
        self.empty(slab..slab + 1)
    }

    /// Returns the memory of an empty slab to the kernel once more.
    pub(super) fn empty_again(&self, arena: usize, slab: usize) -> Result<()> {
        if self.try_claim(arena, slab) { self.drop_claim(slab, arena) } else { Ok(()) }
    }

    /// Marks a slab as being returned to the kernel.
    pub(super) fn begin_to_empty(&self, slab: usize, arena: usize) {
        self.set_owner(slab, SlabWord::new(SlabState::Punching, arena, 0));
    }

    /// Returns the memory of slabs that are so marked to the kernel, and marks the slabs as empty.
    pub(super) fn empty(&self, slabs: Range<usize>) -> Result<()> {
        if !slabs.is_empty() {
            self.space.punch(slabs.start, slabs.len())?;
            slabs.for_each(|slab| self.set_empty(slab));
        }
        Ok(())
    }

    /// Changes the class of a slab that has no block. If the process is killed during the change,
    /// the slab stays claimed.
    pub(super) fn change_class(&self, arena: usize, slab: usize, class: SizeClass) {
        self.set_owner(slab, SlabWord::new(SlabState::Claimed, arena, 0));
        self.set_class(slab, class);
        self.set_owner(slab, SlabWord::new(SlabState::Owned, arena, 0));
    }

    /// Returns the memory of adjacent slabs of small blocks, of which none is allocated, with one
    /// system call. If the call fails, the arena keeps the slabs.
    pub(super) fn let_run_go(&self, arena: usize, slabs: Range<usize>) -> Result<()> {
        slabs.clone().for_each(|slab| self.begin_to_empty(slab, arena));
        let emptied = self.empty(slabs.clone());
        if emptied.is_err() {
            slabs.for_each(|slab| {
                self.set_owner(slab, SlabWord::new(SlabState::Owned, arena, 0));
            });
        }
        emptied
    }

    /// Returns the memory of the slabs of a free block, from the last slab to the first, so that
    /// the remaining slabs are always a shorter block, until none is left.
    pub(super) fn release(&self, arena: usize, first: usize, class: SizeClass) -> Result<()> {
        // The class is untrusted: slabs whose words do not name this block stay as they are.
        let slabs = 1 + (1..class.slabs()).take_while(|part| self.is_part(first, *part)).count();
        let mut run = first + slabs..first + slabs;
        for part in (1..slabs).rev() {
            // The word is read before the class changes. While the class still includes the part,
            // only this arena owns the part.
            let found = SlabWord(self.space.slab(first + part).owner.load(Ordering::Relaxed));
            let ours = found.state() == SlabState::Span
                && self.begin_to_let_go(first + part, found, arena);
            self.set_class(first, SizeClass::Large(part));
            if ours {
                run.start -= 1;
            } else {
                self.empty(std::mem::replace(&mut run, first + part..first + part))?;
            }
        }
        self.begin_to_empty(first, arena);
        self.empty(first..run.end)
    }

    /// Marks a slab, which another process may release too, as being returned to the kernel.
    /// Returns `true` if the slab's word was still `found`.
    pub(super) fn begin_to_let_go(&self, slab: usize, found: SlabWord, arena: usize) -> bool {
        slab::let_go(&self.space.slab(slab).owner, found, arena)
    }

    /// Returns `true` if the slab at distance `part` from `first` is part of the block that begins
    /// in `first`.
    fn is_part(&self, first: usize, part: usize) -> bool {
        let all = self.space.geometry().slabs();
        first + part < all && {
            let owner = SlabWord(self.space.slab(first + part).owner.load(Ordering::Relaxed));
            (owner.state(), owner.part()) == (SlabState::Span, part)
        }
    }

    /// Passes a slab, with all other slabs of its block, from one arena to another.
    pub(super) fn pass_on(&self, slab: usize, from: usize, to: usize) -> bool {
        let Some(class) = self.class(slab) else { return false };
        let last = class.slabs().min(self.space.geometry().slabs() - slab);
        (0..last).rev().all(|part| {
            let state = if part == 0 { SlabState::Owned } else { SlabState::Span };
            let owner = &self.space.slab(slab + part).owner;
            let found = SlabWord(owner.load(Ordering::Relaxed));
            // A process that was killed here had already passed on some parts, which name its own
            // arena.
            let from = if part == 0 { from } else { found.arena() };
            let [from, to] = [from, to].map(|arena| SlabWord::new(state, arena, part).0);
            // SYNC slab: pairs with the stores of the arena that owned the slab.
            owner.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    /// Returns the class of a slab, if the table's entry is valid.
    #[inline]
    pub(super) fn class(&self, slab: usize) -> Option<SizeClass> {
        let class = SizeClass::from_raw(self.space.slab(slab).class.load(Ordering::Relaxed))?;
        (class.slabs() <= self.space.geometry().slabs() - slab).then_some(class)
    }

    fn set_class(&self, slab: usize, class: SizeClass) {
        self.space.slab(slab).class.store(class.raw(), Ordering::Relaxed);
    }

    fn set_owner(&self, number: usize, owner: SlabWord) {
        slab::set(&self.space.slab(number).owner, owner);
    }

    fn set_empty(&self, slab: usize) {
        self.set_owner(slab, SlabWord::EMPTY);
        let hint = &self.space.header().hint;
        if hint.load(Ordering::Relaxed) > slab as u64 {
            hint.store(slab as u64, Ordering::Relaxed);
        }
    }

    /// Notifies the owner of the block's slab that the block was freed.
    #[inline]
    pub(super) fn notify_owner(&self, granule: usize) {
        hint::give(&self.space.slab(granule / GRANULES).freed);
    }

    /// Allocates memory for the destinations of this granule's slab, unless they already have
    /// memory.
    #[inline]
    pub(super) fn fetch_destinations(&self, granule: usize) -> Result<()> {
        let slab = granule / GRANULES;
        let (word, bit) = (&self.destinations[slab / 64], 1 << (slab % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            self.space.fetch_destinations(slab)?;
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Stores the length of a block of this process. Returns the mark that replaces the length in
    /// the block's name.
    #[inline]
    pub(super) fn set_long(&self, granule: usize, len: usize) -> u64 {
        self.long[granule / GRANULES].store(len as u64, Ordering::Relaxed);
        LONG
    }

    /// Returns the length that [`Core::set_long`] has stored.
    #[inline]
    pub(super) fn long(&self, granule: usize) -> usize {
        self.long[granule / GRANULES].load(Ordering::Relaxed) as usize
    }

    /// Finds more space for an arena: takes over this process's abandoned arenas, and recovers dead
    /// members.
    pub(super) fn find_more(&self, arena: &mut Arena) -> Result<()> {
        let desk = self.desk();
        for AbandonedArena(other) in &desk.resting {
            // SAFETY: the arena is abandoned, and this thread holds the lock. `other` is not
            // `arena`, because `arena` has a thread.
            unsafe { &mut *other.as_ptr() }.transfer_to(self, arena)?;
        }
        // Slabs that this thread does not need become available to all members.
        self.recover_all(&desk, Some(arena), EmptySlabPolicy::GivenBack).map(drop)
    }

    /// Returns the error for a heap without space.
    pub(super) fn full(&self, requested: usize) -> HeapError {
        let max = self.space.geometry().slabs() * SLAB;
        let taken = (0..self.space.geometry().slabs()).filter(|slab| {
            self.space.slab(*slab).owner.load(Ordering::Relaxed) != SlabWord::EMPTY.0
        });
        HeapError::Full { requested, size: taken.count() * SLAB, max }
    }
}

/// Returns the number of this process's PID namespace, or 0 if it is unknown.
fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

impl Drop for Core {
    /// Leaves the heap: the process recovers its own slot.
    fn drop(&mut self) {
        if self.space.is_forked() || self.slot() >= MEMBERS {
            return;
        }
        let mut desk = std::mem::take(self.desk.get_mut().unwrap_or_else(PoisonError::into_inner));
        for arena in &mut desk.arenas {
            // SAFETY: the heap is being closed, so no thread uses the arena any more.
            unsafe { arena.0.as_mut() }.rest(self);
        }
        // If the recovery fails, another member recovers this slot later.
        let _ = self.recover(self.slot(), None, EmptySlabPolicy::GivenBack);
    }
}

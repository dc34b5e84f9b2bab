//! A thread's part of a shared heap: [`Arena`].
//!
//! An arena owns slabs, and no other arena allocates from them. Its map of their free blocks
//! ([`FreeMap`]) is in private memory and may be out of date: another thread that frees a block
//! updates the block word, and sets a hint in the slab's entry. An arena without a free block reads
//! these hints. Before it reports that no block is free, it reads all words of all its slabs.
//!
//! `docs/internals/heap-shared.md` lists each store and exchange, and the state after a death.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::class::{CLASSES, SizeClass};
use super::core::Core;
use super::free_map::{FreeMap, NONE, Use};
use super::layout::{GRANULES, SLAB};
use super::word::{BlockWord, hint, truth};
use crate::heap::Result;
use crate::sync::Ordering;

/// Maximum number of hints read before a slab is claimed, and of slabs returned in one step.
const LOOKS: usize = 64;
/// Number of empty slabs of small blocks that are kept regardless of age.
const KEPT: usize = 4;
/// Time for which other empty slabs are kept for reuse.
const KEPT_FOR: Duration = Duration::from_millis(100);

/// Index of the shelf that is always empty.
const NOTHING: u32 = 0;

/// The slabs of one class.
#[derive(Debug)]
struct Bin {
    /// The slab from which blocks are allocated.
    current: u32,
    /// Head of the list of slabs that have free blocks, apart from `current`.
    listed: u32,
    all: Vec<u32>,
    /// Index at which the last scan of hints ended.
    cursor: usize,
}

/// An empty slab, or the slabs of a free large block, kept for reuse.
#[derive(Debug)]
struct Spare {
    shelf: u32,
    since: Duration,
}

/// A thread's slabs.
#[derive(Debug)]
pub(super) struct Arena {
    /// The slot of the arena.
    index: usize,
    shelves: Vec<FreeMap>,
    /// Entries of `shelves` that no slab uses.
    vacant: Vec<u32>,
    /// The entry of each slab, or 0.
    by_slab: Box<[u32]>,
    classes: Box<[Bin; CLASSES]>,
    /// Allocated blocks that occupy whole slabs.
    large: Vec<u32>,
    spare: VecDeque<Spare>,
    spare_large: VecDeque<Spare>,
    /// Value of the header's `deaths` counter at the last scan of all slabs.
    deaths: u64,
}

impl Arena {
    /// Returns an arena without slabs, for a slot that the caller has claimed.
    pub(super) fn new(index: usize, slabs: usize) -> Self {
        let shelves = || Bin { current: NOTHING, listed: NONE, all: Vec::new(), cursor: 0 };
        Self {
            index,
            shelves: vec![FreeMap::nothing()],
            vacant: Vec::new(),
            by_slab: vec![0; slabs].into_boxed_slice(),
            classes: Box::new(std::array::from_fn(|_| shelves())),
            large: Vec::new(),
            spare: VecDeque::new(),
            spare_large: VecDeque::new(),
            deaths: 0,
        }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Allocates a block of this class from the current slab, if a block is known to be free there.
    /// Returns its granule.
    #[inline(always)]
    pub(super) fn loan_known(&mut self, core: &Core, class: u8) -> Option<usize> {
        let shelf = &mut self.shelves[self.classes[usize::from(class)].current as usize];
        let granule = shelf.take()? + shelf.slab as usize * GRANULES;
        // If the shelf was out of date, the search has removed the block from it.
        truth::allocate(core.space.word(granule), core.slot()).then_some(granule)
    }

    /// Allocates a block of this class. Returns its granule.
    pub(super) fn allocate(&mut self, core: &Core, class: u8) -> Result<usize> {
        loop {
            if let Some(granule) = self.loan_known(core, class) {
                return Ok(granule);
            }
            let current = self.classes[usize::from(class)].current;
            if self.shelves[current as usize].free() == 0 {
                self.refill(core, class)?;
            }
        }
    }

    /// Takes back a block that this thread has freed, if its slab belongs to this arena.
    #[inline(always)]
    pub(super) fn put(&mut self, core: &Core, granule: usize) -> bool {
        let entry = self.by_slab[granule / GRANULES];
        if entry == 0 {
            return false;
        }
        let shelf = &mut self.shelves[entry as usize];
        if !shelf.put(granule % GRANULES) {
            return true;
        }
        // This is rare: the block is the first of its slab to become free, or the last.
        if shelf.free() == 1 || shelf.is_whole() {
            self.note(core, entry);
        }
        true
    }

    /// Handles a slab that now has its first free block, or only free blocks.
    #[cold]
    #[inline(never)]
    fn note(&mut self, core: &Core, entry: u32) {
        let shelf = &self.shelves[entry as usize];
        match shelf.class() {
            SizeClass::Large(_) => self.retire(core, entry),
            SizeClass::Small(class) if self.classes[usize::from(class)].current == entry => {}
            SizeClass::Small(_) if shelf.is_whole() => self.retire(core, entry),
            SizeClass::Small(_) => self.list(entry),
        }
    }

    /// Finds a slab of the class with a free block, and makes it the current one.
    fn refill(&mut self, core: &Core, class: u8) -> Result<()> {
        // If a new slab has no memory, the search continues: another thread may free a block.
        if self.refill_from_own(core, class) || self.refill_with_new(core, class, false) == Ok(true)
        {
            return Ok(());
        }
        // Neither a hint nor a new slab was found, so every word of every slab is read.
        self.close();
        self.look_everywhere(core);
        if self.refill_from_own(core, class) {
            return Ok(());
        }
        core.find_more(self)?;
        if self.refill_from_own(core, class) || self.refill_with_new(core, class, false)? {
            return Ok(());
        }
        // Slabs of free large blocks are kept for the next large block; now small blocks need them.
        self.give_back_all(core)?;
        if self.refill_with_new(core, class, true)? {
            return Ok(());
        }
        Err(core.full(SizeClass::Small(class).bytes()))
    }

    fn refill_from_own(&mut self, core: &Core, class: u8) -> bool {
        self.look_after_deaths(core);
        if self.shelves[self.classes[usize::from(class)].current as usize].free() > 0 {
            return true;
        }
        if self.classes[usize::from(class)].listed == NONE {
            self.look_at_hints(core, class);
        }
        let listed = self.classes[usize::from(class)].listed;
        if listed != NONE {
            self.unlist(listed);
            self.classes[usize::from(class)].current = listed;
            return true;
        }
        // The scan of the hints may have found free blocks in the current slab.
        if self.shelves[self.classes[usize::from(class)].current as usize].free() > 0 {
            return true;
        }
        let Some(spare) = self.spare.pop_back() else { return false };
        self.open_again(core, spare.shelf, SizeClass::Small(class));
        self.classes[usize::from(class)].current = spare.shelf;
        true
    }

    fn refill_with_new(&mut self, core: &Core, class: u8, patient: bool) -> Result<bool> {
        let claim = || core.claim_slab(self.index, SizeClass::Small(class));
        let Some(slab) = core.in_a_moment(patient, claim)? else { return Ok(false) };
        let entry = self.enter(slab, SizeClass::Small(class));
        self.shelves[entry as usize].fill(SizeClass::Small(class));
        self.classes[usize::from(class)].current = entry;
        Ok(true)
    }

    /// Allocates a block of whole slabs. Returns its granule.
    pub(super) fn loan_large(&mut self, core: &Core, slabs: usize) -> Result<usize> {
        self.look_after_deaths(core);
        self.look_at_large(core, false);
        if let Some(found) = self.loan_spare_large(core, slabs) {
            return Ok(found);
        }
        // If the kernel has no memory, the search continues, as in `refill`.
        if let Ok(Some(found)) = self.loan_new_large(core, slabs, false) {
            return Ok(found);
        }
        self.close();
        self.look_everywhere(core);
        core.find_more(self)?;
        // The empty slabs that are kept for reuse are needed now, so their memory is returned.
        self.give_back_all(core)?;
        match self.loan_new_large(core, slabs, true)? {
            Some(found) => Ok(found),
            None => Err(core.full(slabs * SLAB)),
        }
    }

    fn loan_spare_large(&mut self, core: &Core, slabs: usize) -> Option<usize> {
        let class = SizeClass::Large(slabs);
        let shelves = &self.shelves;
        let fits = |spare: &Spare| shelves[spare.shelf as usize].class() == class;
        let at = self.spare_large.iter().rposition(fits)?;
        let entry = self.spare_large.remove(at).expect("just found").shelf;
        self.large.push(entry);
        let shelf = &mut self.shelves[entry as usize];
        shelf.used = Use::Open;
        shelf.clear();
        let granule = shelf.slab as usize * GRANULES;
        truth::allocate(core.space.word(granule), core.slot()).then_some(granule)
    }

    fn loan_new_large(
        &mut self,
        core: &Core,
        slabs: usize,
        patient: bool,
    ) -> Result<Option<usize>> {
        let class = SizeClass::Large(slabs);
        let claim = || core.claim_slabs(self.index, slabs);
        let Some(first) = core.in_a_moment(patient, claim)? else { return Ok(None) };
        let entry = self.enter(first, class);
        self.large.push(entry);
        let granule = first * GRANULES;
        // If the word has the last generation or was overwritten, the slabs stay unused until the
        // word is found to be free.
        Ok(truth::allocate(core.space.word(granule), core.slot()).then_some(granule))
    }

    /// Creates a shelf for a slab whose owner word names this arena.
    fn enter(&mut self, slab: usize, class: SizeClass) -> u32 {
        self.forget(slab);
        let number = u32::try_from(slab).expect("a heap has fewer slabs");
        let shelf = FreeMap::new(number, class);
        let entry = match self.vacant.pop() {
            Some(entry) => {
                self.shelves[entry as usize] = shelf;
                entry
            }
            None => {
                self.shelves.push(shelf);
                u32::try_from(self.shelves.len() - 1).expect("an arena has fewer shelves")
            }
        };
        self.by_slab[slab] = entry;
        self.assign(entry);
        entry
    }

    /// Removes the shelf of a slab that this arena is about to enter. The slab has a shelf only if
    /// a member has overwritten the slab's entry; the shelf is then wrong.
    fn forget(&mut self, slab: usize) {
        let entry = std::mem::replace(&mut self.by_slab[slab], 0);
        if entry == 0 {
            return;
        }
        if self.shelves[entry as usize].used == Use::Open {
            self.resign(entry);
        }
        self.spare.retain(|spare| spare.shelf != entry);
        self.spare_large.retain(|spare| spare.shelf != entry);
        self.shelves[entry as usize].used = Use::Vacant;
        self.vacant.push(entry);
    }

    /// Adopts a slab whose owner word has just been changed to this arena.
    pub(super) fn adopt(&mut self, core: &Core, slab: usize, class: SizeClass) {
        let entry = self.enter(slab, class);
        if matches!(class, SizeClass::Large(_)) {
            self.large.push(entry);
        }
        self.look(core, entry);
    }

    /// Like [`Arena::adopt`], but for an empty slab, which is kept for reuse.
    pub(super) fn adopt_whole(&mut self, core: &Core, slab: usize, class: SizeClass) {
        let entry = self.enter(slab, class);
        self.shelves[entry as usize].fill(class);
        self.retire(core, entry);
    }

    /// Adds a shelf to the shelves of its class.
    fn assign(&mut self, entry: u32) {
        let SizeClass::Small(class) = self.shelves[entry as usize].class() else { return };
        let all = &mut self.classes[usize::from(class)].all;
        self.shelves[entry as usize].place = all.len() as u32;
        all.push(entry);
    }

    /// Removes a shelf from the shelves of its class.
    fn resign(&mut self, entry: u32) {
        let shelf = &self.shelves[entry as usize];
        let place = shelf.place as usize;
        match shelf.class() {
            SizeClass::Small(class) => {
                self.unlist(entry);
                let shelves = &mut self.classes[usize::from(class)];
                if shelves.current == entry {
                    shelves.current = NOTHING;
                }
                shelves.all.swap_remove(place);
                if let Some(&moved) = shelves.all.get(place) {
                    self.shelves[moved as usize].place = place as u32;
                }
            }
            SizeClass::Large(_) => self.large.retain(|other| *other != entry),
        }
    }

    /// Keeps a slab whose blocks are all free for reuse.
    fn retire(&mut self, core: &Core, entry: u32) {
        self.resign(entry);
        let shelf = &mut self.shelves[entry as usize];
        shelf.used = Use::Spare;
        let since = now();
        let large = matches!(shelf.class(), SizeClass::Large(_));
        let spare = if large { &mut self.spare_large } else { &mut self.spare };
        spare.push_back(Spare { shelf: entry, since });
        self.give_back_old(core, since);
    }

    /// Reuses a spare slab, for any class.
    fn open_again(&mut self, core: &Core, entry: u32, class: SizeClass) {
        let shelf = &mut self.shelves[entry as usize];
        shelf.used = Use::Open;
        if shelf.class() != class {
            core.change_class(self.index, shelf.slab as usize, class);
            shelf.fill(class);
        }
        self.assign(entry);
    }

    /// Releases the memory of slabs that were not reused in time, except for a few slabs. Releases
    /// at most [`LOOKS`] slabs per call.
    fn give_back_old(&mut self, core: &Core, now: Duration) {
        let old = |spare: &Spare| now.saturating_sub(spare.since) > KEPT_FOR;
        // If the system call fails, a slab is kept for reuse, or stays unused until this process
        // ends.
        while self.spare_large.front().is_some_and(old) {
            let entry = self.spare_large.pop_front().expect("just seen").shelf;
            if self.give_back(core, entry).is_err() {
                return;
            }
        }
        let most = self.spare.len().saturating_sub(KEPT).min(LOOKS);
        let count = self.spare.iter().take(most).take_while(|spare| old(spare)).count();
        let spare = self.spare.drain(..count).collect();
        let _ = self.give_back_runs(core, spare);
    }

    /// Reads all words and releases the memory of all empty slabs. Returns their number.
    pub(super) fn trim(&mut self, core: &Core) -> Result<usize> {
        self.close();
        self.look_everywhere(core);
        self.give_back_all(core)
    }

    /// Releases the memory of all slabs that are known to be empty. Returns their number.
    fn give_back_all(&mut self, core: &Core) -> Result<usize> {
        let mut slabs = 0;
        while let Some(spare) = self.spare_large.pop_back() {
            slabs += self.shelves[spare.shelf as usize].class().slabs();
            self.give_back(core, spare.shelf)?;
        }
        slabs += self.spare.len();
        let spare = std::mem::take(&mut self.spare).into();
        self.give_back_runs(core, spare)?;
        Ok(slabs)
    }

    /// Releases the memory of spare slabs of small blocks, with one system call for adjacent slabs.
    /// If the call fails, the slabs stay spare.
    fn give_back_runs(&mut self, core: &Core, mut spare: Vec<Spare>) -> Result<()> {
        spare.sort_unstable_by_key(|spare| self.shelves[spare.shelf as usize].slab);
        let mut from = 0;
        while from < spare.len() {
            let slab = |at: usize| self.shelves[spare[at].shelf as usize].slab as usize;
            let (first, rest) = (slab(from), from..spare.len());
            let count = rest.take_while(|at| slab(*at) == first + at - from).count();
            if let Err(error) = core.let_run_go(self.index, first..first + count) {
                self.spare.extend(spare.drain(from..));
                return Err(error);
            }
            for given in &spare[from..from + count] {
                self.vacate(given.shelf);
            }
            from += count;
        }
        Ok(())
    }

    fn give_back(&mut self, core: &Core, entry: u32) -> Result<()> {
        let (slab, class) = self.vacate(entry);
        core.release(self.index, slab, class)
    }

    /// Removes a spare slab from this arena.
    fn vacate(&mut self, entry: u32) -> (usize, SizeClass) {
        let shelf = &mut self.shelves[entry as usize];
        debug_assert!(shelf.used == Use::Spare && shelf.is_whole());
        shelf.used = Use::Vacant;
        let slab = shelf.slab as usize;
        self.by_slab[slab] = 0;
        self.vacant.push(entry);
        (slab, shelf.class())
    }

    /// Reads the hints of at most [`LOOKS`] slabs of a class.
    fn look_at_hints(&mut self, core: &Core, class: u8) {
        let count = self.classes[usize::from(class)].all.len();
        for _ in 0..count.min(LOOKS) {
            let shelves = &mut self.classes[usize::from(class)];
            if shelves.all.is_empty() {
                return;
            }
            shelves.cursor = (shelves.cursor + 1) % shelves.all.len();
            let entry = shelves.all[shelves.cursor];
            if self.was_freed(core, entry) {
                self.look(core, entry);
                if self.classes[usize::from(class)].listed != NONE {
                    return;
                }
            }
        }
    }

    /// Finds large blocks freed by other threads, through their hints or, if `all`, their words.
    fn look_at_large(&mut self, core: &Core, all: bool) {
        let mut at = 0;
        while let Some(&entry) = self.large.get(at) {
            let before = self.large.len();
            if self.was_freed(core, entry) || all {
                self.look(core, entry);
            }
            // If a block is retired, another block takes its index in the list.
            at += usize::from(self.large.len() == before);
        }
    }

    /// Returns `true` if the slab's hint says that a block was freed, and clears the hint.
    #[inline]
    fn was_freed(&self, core: &Core, entry: u32) -> bool {
        hint::take(&core.space.slab(self.shelves[entry as usize].slab as usize).freed)
    }

    /// Reads all words again after a recovery, which may have changed any of them.
    fn look_after_deaths(&mut self, core: &Core) {
        // SYNC deaths: pairs with the addition at a recovery's end.
        let deaths = core.space.header().deaths.load(Ordering::Acquire);
        if deaths != self.deaths {
            core.reclaim_stranded();
            self.look_everywhere(core);
            self.deaths = deaths;
        }
    }

    /// Reads all words of all slabs.
    fn look_everywhere(&mut self, core: &Core) {
        for entry in 1..self.shelves.len() as u32 {
            if self.shelves[entry as usize].used == Use::Open {
                // The hint is cleared before the words are read; a block freed later sets it again.
                // SYNC freed: pairs with the store in `hint::give`.
                let slab = self.shelves[entry as usize].slab as usize;
                core.space.slab(slab).freed.swap(0, Ordering::Acquire);
                self.look(core, entry);
            }
        }
    }

    /// Reads the words of a slab, and rebuilds its shelf from them.
    fn look(&mut self, core: &Core, entry: u32) {
        let shelf = &mut self.shelves[entry as usize];
        shelf.clear();
        let first = shelf.slab as usize * GRANULES;
        for granule in shelf.class().begins() {
            // SYNC truth: pairs with the stores that freed the blocks.
            let word = BlockWord(core.space.word(first + granule).load(Ordering::Acquire));
            // A block of the last generation is free, but is never allocated.
            if word.can_be_given_out() {
                shelf.put(granule);
            }
        }
        match shelf.class() {
            SizeClass::Small(class) if self.classes[usize::from(class)].current == entry => {}
            _ if shelf.is_whole() => self.retire(core, entry),
            SizeClass::Small(_) if shelf.free() > 0 => self.list(entry),
            SizeClass::Small(_) => self.unlist(entry),
            SizeClass::Large(_) => {}
        }
    }

    /// Puts a shelf with free blocks at the head of its class's list.
    fn list(&mut self, entry: u32) {
        let shelf = &mut self.shelves[entry as usize];
        let SizeClass::Small(class) = shelf.class() else { return };
        if std::mem::replace(&mut shelf.listed, true) {
            return;
        }
        let first = std::mem::replace(&mut self.classes[usize::from(class)].listed, entry);
        shelf.before = NONE;
        shelf.behind = first;
        if first != NONE {
            self.shelves[first as usize].before = entry;
        }
    }

    /// Removes a shelf from the list.
    fn unlist(&mut self, entry: u32) {
        let shelf = &mut self.shelves[entry as usize];
        let SizeClass::Small(class) = shelf.class() else { return };
        if !std::mem::replace(&mut shelf.listed, false) {
            return;
        }
        let (before, behind) = (shelf.before, shelf.behind);
        match before {
            NONE => self.classes[usize::from(class)].listed = behind,
            before => self.shelves[before as usize].behind = behind,
        }
        if behind != NONE {
            self.shelves[behind as usize].before = before;
        }
    }

    /// Releases the memory of the empty slabs, and passes all other slabs to `heir`, an arena of
    /// the same process.
    pub(super) fn transfer_to(&mut self, core: &Core, heir: &mut Self) -> Result<()> {
        self.trim(core)?;
        for entry in 1..self.shelves.len() as u32 {
            let shelf = &self.shelves[entry as usize];
            if shelf.used != Use::Open {
                continue;
            }
            let (slab, class) = (shelf.slab as usize, shelf.class());
            self.resign(entry);
            self.shelves[entry as usize].used = Use::Vacant;
            self.by_slab[slab] = 0;
            self.vacant.push(entry);
            if core.pass_on(slab, self.index, heir.index) {
                heir.adopt(core, slab, class);
            }
        }
        Ok(())
    }

    /// Releases the memory of the empty slabs at the end of the thread. Another thread may take
    /// over the arena, with the other slabs.
    pub(super) fn rest(&mut self, core: &Core) {
        // If a system call fails, the arena keeps the slab.
        let _ = self.trim(core);
    }

    /// Removes the current slab of every class.
    fn close(&mut self) {
        for class in 0..CLASSES {
            let entry = std::mem::replace(&mut self.classes[class].current, NOTHING);
            if self.shelves[entry as usize].free() > 0 {
                self.list(entry);
            }
        }
    }

    /// Returns the arena's slabs, each with the blocks that its shelf considers free.
    pub(super) fn known(&self) -> impl Iterator<Item = (usize, Vec<usize>)> {
        let known = self.shelves.iter().filter(|shelf| shelf.used != Use::Vacant);
        known.map(|shelf| (shelf.slab as usize, shelf.free_blocks().collect()))
    }
}

/// Returns the time of a coarse clock, which is precise enough for the age of a slab.
fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

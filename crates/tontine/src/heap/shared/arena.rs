//! One thread's part of a shared heap: [`Arena`].
//!
//! An arena owns slabs, and only it allocates from them. What it knows of them is in its own
//! memory ([`Shelf`]) and may lag behind: a block that somebody else frees says so in its truth
//! word, and leaves a hint in the slab's entry. An arena without a free block looks there; it looks
//! at all words of all its slabs before it says that there is none.
//!
//! Which store or exchange does what, and what a death leaves, is in `docs/heap-shared.md`.

use std::collections::VecDeque;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::class::{CLASSES, Class};
use super::core::Core;
use super::layout::{GRANULES, SLAB};
use super::shelf::{NONE, Shelf, Use};
use super::word::{Truth, hint, truth};
use crate::heap::Result;
use crate::sync::Ordering;

/// So many slabs' hints are read before a new slab is taken.
const LOOKS: usize = 64;
/// Slabs without a block that are kept, however old; of those that were one large block, none.
const KEPT: usize = 4;
/// How long the others wait to be used again.
const PATIENCE: Duration = Duration::from_millis(100);

/// The shelf that is always empty.
const NOTHING: u32 = 0;

/// Slabs of one class.
#[derive(Debug)]
struct Shelves {
    /// From which one allocates.
    current: u32,
    /// The first of those that have free blocks, apart from `current`.
    listed: u32,
    all: Vec<u32>,
    /// Where the last look at hints ended.
    cursor: usize,
}

/// A slab, or several, without a block in it.
#[derive(Debug)]
struct Spare {
    shelf: u32,
    since: Duration,
}

/// A thread's slabs.
#[derive(Debug)]
pub(super) struct Arena {
    /// Its slot.
    index: usize,
    shelves: Vec<Shelf>,
    /// Entries of `shelves` that stand for no slab.
    vacant: Vec<u32>,
    /// By slab: its entry, or 0.
    by_slab: Box<[u32]>,
    classes: Box<[Shelves; CLASSES]>,
    /// Blocks of whole slabs that are allocated.
    large: Vec<u32>,
    spare: VecDeque<Spare>,
    spare_large: VecDeque<Spare>,
    /// How many recoveries there were when all slabs were looked at.
    deaths: u64,
}

impl Arena {
    /// Without a slab. The slot is the caller's.
    pub(super) fn new(index: usize, slabs: usize) -> Self {
        let shelves = || Shelves { current: NOTHING, listed: NONE, all: Vec::new(), cursor: 0 };
        Self {
            index,
            shelves: vec![Shelf::nothing()],
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

    /// A block of this class, if one is known to be free in the slab from which one allocates: its
    /// granule.
    #[inline(always)]
    pub(super) fn loan_known(&mut self, core: &Core, class: u8) -> Option<usize> {
        let shelf = &mut self.shelves[self.classes[usize::from(class)].current as usize];
        let granule = shelf.take()? + shelf.slab as usize * GRANULES;
        // What was wrong is forgotten.
        truth::loan(core.space.word(granule), core.slot()).then_some(granule)
    }

    /// A block of this class: its granule.
    pub(super) fn loan(&mut self, core: &Core, class: u8) -> Result<usize> {
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

    /// Takes a block back that this thread has freed, if its slab is this arena's.
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
        // Seldom: the first free block of a slab, or the last one.
        if shelf.free() == 1 || shelf.is_whole() {
            self.note(core, entry);
        }
        true
    }

    /// A shelf has its first free block, or has all of them.
    #[cold]
    #[inline(never)]
    fn note(&mut self, core: &Core, entry: u32) {
        let shelf = &self.shelves[entry as usize];
        match shelf.class() {
            Class::Large(_) => self.retire(core, entry),
            Class::Small(class) if self.classes[usize::from(class)].current == entry => {}
            Class::Small(_) if shelf.is_whole() => self.retire(core, entry),
            Class::Small(_) => self.list(entry),
        }
    }

    /// Finds the class a shelf with a free block, and makes it the current one.
    fn refill(&mut self, core: &Core, class: u8) -> Result<()> {
        // Where there is no memory for a new slab, somebody may have freed a block meanwhile.
        if self.refill_from_own(core, class) || self.refill_with_new(core, class, false) == Ok(true)
        {
            return Ok(());
        }
        // Nothing anywhere: now every word counts, and every slab without a block.
        self.close();
        self.look_everywhere(core);
        if self.refill_from_own(core, class) {
            return Ok(());
        }
        core.find_more(self)?;
        if self.refill_from_own(core, class) || self.refill_with_new(core, class, false)? {
            return Ok(());
        }
        // What was a large block is kept for the next one; now it stands in the way.
        self.give_back_all(core)?;
        if self.refill_with_new(core, class, true)? {
            return Ok(());
        }
        Err(core.full(Class::Small(class).bytes()))
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
        // The current one may have been looked at.
        if self.shelves[self.classes[usize::from(class)].current as usize].free() > 0 {
            return true;
        }
        let Some(spare) = self.spare.pop_back() else { return false };
        self.open_again(core, spare.shelf, Class::Small(class));
        self.classes[usize::from(class)].current = spare.shelf;
        true
    }

    fn refill_with_new(&mut self, core: &Core, class: u8, patient: bool) -> Result<bool> {
        let claim = || core.claim_slab(self.index, Class::Small(class));
        let Some(slab) = core.in_a_moment(patient, claim)? else { return Ok(false) };
        let entry = self.enter(slab, Class::Small(class));
        self.shelves[entry as usize].fill(Class::Small(class));
        self.classes[usize::from(class)].current = entry;
        Ok(true)
    }

    /// A block of whole slabs: its granule.
    pub(super) fn loan_large(&mut self, core: &Core, slabs: usize) -> Result<usize> {
        self.look_after_deaths(core);
        self.look_at_large(core, false);
        if let Some(found) = self.loan_spare_large(core, slabs) {
            return Ok(found);
        }
        // As above.
        if let Ok(Some(found)) = self.loan_new_large(core, slabs, false) {
            return Ok(found);
        }
        self.close();
        self.look_everywhere(core);
        core.find_more(self)?;
        // What is kept for later stands in the way now.
        self.give_back_all(core)?;
        match self.loan_new_large(core, slabs, true)? {
            Some(found) => Ok(found),
            None => Err(core.full(slabs * SLAB)),
        }
    }

    fn loan_spare_large(&mut self, core: &Core, slabs: usize) -> Option<usize> {
        let class = Class::Large(slabs);
        let shelves = &self.shelves;
        let fits = |spare: &Spare| shelves[spare.shelf as usize].class() == class;
        let at = self.spare_large.iter().rposition(fits)?;
        let entry = self.spare_large.remove(at).expect("just found").shelf;
        self.large.push(entry);
        let shelf = &mut self.shelves[entry as usize];
        shelf.used = Use::Open;
        shelf.clear();
        let granule = shelf.slab as usize * GRANULES;
        truth::loan(core.space.word(granule), core.slot()).then_some(granule)
    }

    fn loan_new_large(
        &mut self,
        core: &Core,
        slabs: usize,
        patient: bool,
    ) -> Result<Option<usize>> {
        let class = Class::Large(slabs);
        let claim = || core.claim_slabs(self.index, slabs);
        let Some(first) = core.in_a_moment(patient, claim)? else { return Ok(None) };
        let entry = self.enter(first, class);
        self.large.push(entry);
        let granule = first * GRANULES;
        // A word that is worn out, or that somebody wrote over: the slabs are lost until it is
        // found to be free.
        Ok(truth::loan(core.space.word(granule), core.slot()).then_some(granule))
    }

    /// A slab, which is this arena's by its owner word, gets a shelf.
    fn enter(&mut self, slab: usize, class: Class) -> u32 {
        self.forget(slab);
        let number = u32::try_from(slab).expect("so many slabs no heap has");
        let shelf = Shelf::new(number, class);
        let entry = match self.vacant.pop() {
            Some(entry) => {
                self.shelves[entry as usize] = shelf;
                entry
            }
            None => {
                self.shelves.push(shelf);
                u32::try_from(self.shelves.len() - 1).expect("as above")
            }
        };
        self.by_slab[slab] = entry;
        self.assign(entry);
        entry
    }

    /// A slab that becomes this arena's was not before, unless somebody has written over its entry:
    /// what was known of it is not true any more.
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

    /// Takes over a slab whose owner word has just been changed to this arena.
    pub(super) fn adopt(&mut self, core: &Core, slab: usize, class: Class) {
        let entry = self.enter(slab, class);
        if matches!(class, Class::Large(_)) {
            self.large.push(entry);
        }
        self.look(core, entry);
    }

    /// The same where it has no block: it waits to be used.
    pub(super) fn adopt_whole(&mut self, core: &Core, slab: usize, class: Class) {
        let entry = self.enter(slab, class);
        self.shelves[entry as usize].fill(class);
        self.retire(core, entry);
    }

    /// Puts a shelf among those of its class.
    fn assign(&mut self, entry: u32) {
        let Class::Small(class) = self.shelves[entry as usize].class() else { return };
        let all = &mut self.classes[usize::from(class)].all;
        self.shelves[entry as usize].place = all.len() as u32;
        all.push(entry);
    }

    /// Takes it out from among them.
    fn resign(&mut self, entry: u32) {
        let shelf = &self.shelves[entry as usize];
        let place = shelf.place as usize;
        match shelf.class() {
            Class::Small(class) => {
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
            Class::Large(_) => self.large.retain(|other| *other != entry),
        }
    }

    /// All blocks of a shelf are free: it waits to be used again.
    fn retire(&mut self, core: &Core, entry: u32) {
        self.resign(entry);
        let shelf = &mut self.shelves[entry as usize];
        shelf.used = Use::Spare;
        let since = now();
        let large = matches!(shelf.class(), Class::Large(_));
        let spare = if large { &mut self.spare_large } else { &mut self.spare };
        spare.push_back(Spare { shelf: entry, since });
        self.give_back_old(core, since);
    }

    /// A spare slab is used again, for any class.
    fn open_again(&mut self, core: &Core, entry: u32, class: Class) {
        let shelf = &mut self.shelves[entry as usize];
        shelf.used = Use::Open;
        if shelf.class() != class {
            core.change_class(self.index, shelf.slab as usize, class);
            shelf.fill(class);
        }
        self.assign(entry);
    }

    /// Gives back what has waited for long, but for a few slabs, and not too much of it at once.
    fn give_back_old(&mut self, core: &Core, now: Duration) {
        let old = |spare: &Spare| now.saturating_sub(spare.since) > PATIENCE;
        // A slab that the kernel does not take back waits again, or stays as it is until this
        // process ends.
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

    /// Looks at everything, and gives back all slabs without a block.
    pub(super) fn tidy(&mut self, core: &Core) -> Result<usize> {
        self.close();
        self.look_everywhere(core);
        self.give_back_all(core)
    }

    /// Gives back all slabs that are known to have no block.
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

    /// Gives back slabs of small blocks that were spare: those side by side by one call. Where the
    /// kernel does not take them, they are spare again.
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
        core.let_go(self.index, slab, class)
    }

    /// A spare slab is not this arena's any more.
    fn vacate(&mut self, entry: u32) -> (usize, Class) {
        let shelf = &mut self.shelves[entry as usize];
        debug_assert!(shelf.used == Use::Spare && shelf.is_whole());
        shelf.used = Use::Vacant;
        let slab = shelf.slab as usize;
        self.by_slab[slab] = 0;
        self.vacant.push(entry);
        (slab, shelf.class())
    }

    /// Looks at the hints of a few slabs of a class.
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

    /// Looks which large blocks others have freed.
    fn look_at_large(&mut self, core: &Core, all: bool) {
        let mut at = 0;
        while let Some(&entry) = self.large.get(at) {
            let before = self.large.len();
            if self.was_freed(core, entry) || all {
                self.look(core, entry);
            }
            // One that is retired leaves its place to another.
            at += usize::from(self.large.len() == before);
        }
    }

    /// Whether somebody has said that he has freed a block of this slab; it is forgotten now.
    #[inline]
    fn was_freed(&self, core: &Core, entry: u32) -> bool {
        hint::take(&core.space.slab(self.shelves[entry as usize].slab as usize).freed)
    }

    /// Where somebody died, all words of all slabs may have changed.
    fn look_after_deaths(&mut self, core: &Core) {
        // SYNC deaths: pairs with the addition at a recovery's end.
        let deaths = core.space.header().deaths.load(Ordering::Acquire);
        if deaths != self.deaths {
            core.settle();
            self.look_everywhere(core);
            self.deaths = deaths;
        }
    }

    /// Reads all words of all slabs.
    fn look_everywhere(&mut self, core: &Core) {
        for entry in 1..self.shelves.len() as u32 {
            if self.shelves[entry as usize].used == Use::Open {
                // Before the words: what is freed from now on says so again.
                // SYNC freed: pairs with the store in `hint::give`.
                let slab = self.shelves[entry as usize].slab as usize;
                core.space.slab(slab).freed.swap(0, Ordering::Acquire);
                self.look(core, entry);
            }
        }
    }

    /// Reads the words of a slab, and knows its free blocks from then on.
    fn look(&mut self, core: &Core, entry: u32) {
        let shelf = &mut self.shelves[entry as usize];
        shelf.clear();
        let first = shelf.slab as usize * GRANULES;
        for granule in shelf.class().begins() {
            // SYNC truth: pairs with the stores of those who freed them.
            let word = Truth(core.space.word(first + granule).load(Ordering::Acquire));
            // One that is worn out would be found again and again, and never given out.
            if word.can_be_given_out() {
                shelf.put(granule);
            }
        }
        match shelf.class() {
            Class::Small(class) if self.classes[usize::from(class)].current == entry => {}
            _ if shelf.is_whole() => self.retire(core, entry),
            Class::Small(_) if shelf.free() > 0 => self.list(entry),
            Class::Small(_) => self.unlist(entry),
            Class::Large(_) => {}
        }
    }

    /// Puts a shelf with free blocks in front of its class's list.
    fn list(&mut self, entry: u32) {
        let shelf = &mut self.shelves[entry as usize];
        let Class::Small(class) = shelf.class() else { return };
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

    /// Takes it out of the list.
    fn unlist(&mut self, entry: u32) {
        let shelf = &mut self.shelves[entry as usize];
        let Class::Small(class) = shelf.class() else { return };
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

    /// Gives up all slabs: those without a block go back, the others are handed to `heir`, whose
    /// arena is of the same process.
    pub(super) fn bequeath(&mut self, core: &Core, heir: &mut Self) -> Result<()> {
        self.tidy(core)?;
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

    /// At the end of its thread: whole slabs go back, the rest waits for another thread.
    pub(super) fn rest(&mut self, core: &Core) {
        // What cannot be given back waits for another thread, too.
        let _ = self.tidy(core);
    }

    /// No slab is one that is allocated from.
    fn close(&mut self) {
        for class in 0..CLASSES {
            let entry = std::mem::replace(&mut self.classes[class].current, NOTHING);
            if self.shelves[entry as usize].free() > 0 {
                self.list(entry);
            }
        }
    }

    /// Slabs that it has, by number, with the blocks of each that it believes to be free.
    pub(super) fn known(&self) -> impl Iterator<Item = (usize, Vec<usize>)> {
        let known = self.shelves.iter().filter(|shelf| shelf.used != Use::Vacant);
        known.map(|shelf| (shelf.slab as usize, shelf.free_blocks().collect()))
    }
}

/// Nobody needs to know exactly how long a slab has waited.
fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

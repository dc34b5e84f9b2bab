//! Overwriting of any word that a member can write, for fuzzing and tests.

use super::Heap;
use super::layout::{ARENAS, GRANULES, MEMBERS};
use crate::sync::{AtomicU64, Ordering};

impl Heap {
    /// Overwrites a word of the header or of the tables, a block word or a destination.
    pub(crate) fn scribble(&self, region: u8, at: u16, what: impl FnOnce(u64) -> u64) {
        let word = self.word_of(region, usize::from(at));
        word.store(what(word.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// Returns the offset after the last block.
    pub(crate) fn alloc_end(&self) -> u64 {
        self.core.space.geometry().size() as u64
    }

    fn word_of(&self, region: u8, at: usize) -> &AtomicU64 {
        let space = &self.core.space;
        let slab = space.slab(at % space.geometry().slabs());
        let granule = at % (space.geometry().slabs() * GRANULES);
        let header = space.header();
        match region % 10 {
            0 => [&header.deaths, &header.hint, &header.ready, &header.canaries][at % 4],
            1 => [&header.magic, &header.version, &header.slabs][at % 3],
            2 => &space.member(at % MEMBERS).word,
            3 => &space.member(at % MEMBERS).pid,
            4 => &space.arena(at % ARENAS).word,
            5 => &slab.owner,
            6 => &slab.class,
            7 => &slab.freed,
            8 => space.word(granule),
            _ => space.destination(granule),
        }
    }
}

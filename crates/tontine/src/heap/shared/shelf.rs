//! What an arena knows of one of its slabs: which blocks are free, as far as it has heard.
//!
//! Private memory of the owner, and nothing but hints: the truth words decide. One bit a granule,
//! set where a free block begins, whatever the slab's class.

use super::class::Class;
use super::layout::GRANULES;

const BITS: usize = 64;
const _: () = assert!(GRANULES / BITS <= u32::BITS as usize);

/// No shelf.
pub(super) const NONE: u32 = u32::MAX;

/// What a shelf is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// For nothing: the entry is free.
    Vacant,
    /// Blocks are allocated from it, and some are.
    Open,
    /// None of its blocks is allocated; it waits to be used again, or given back.
    Spare,
}

/// One slab.
#[derive(Debug, Clone)]
pub(super) struct Shelf {
    /// The slab's number; of several, the first one's.
    pub(super) slab: u32,
    pub(super) used: Use,
    class: Class,
    // Words of one size: a load that is wider than the store before it has to wait.
    /// Bits that are set, and how many can be.
    free: u32,
    blocks: u32,
    /// Which words of `bits` have one: a search by words would end where nobody can foresee.
    some: u32,
    bits: [u64; GRANULES / BITS],
    /// Bits that may be set: those of the class.
    begins: &'static [u64; GRANULES / BITS],
    /// Neighbours in the class's list of shelves with free blocks.
    pub(super) before: u32,
    pub(super) behind: u32,
    pub(super) listed: bool,
    /// Where it stands among the class's shelves.
    pub(super) place: u32,
}

impl Shelf {
    /// A slab none of whose blocks is known to be free.
    pub(super) fn new(slab: u32, class: Class) -> Self {
        Self {
            slab,
            used: Use::Open,
            class,
            free: 0,
            blocks: class.blocks() as u32,
            some: 0,
            bits: [0; GRANULES / BITS],
            begins: class.begin_bits(),
            before: NONE,
            behind: NONE,
            listed: false,
            place: NONE,
        }
    }

    /// The shelf of classes that have none: always empty.
    pub(super) fn nothing() -> Self {
        Self { used: Use::Vacant, ..Self::new(NONE, Class::Small(0)) }
    }

    /// What its slab is made of.
    #[inline]
    pub(super) fn class(&self) -> Class {
        self.class
    }

    /// How many blocks are free.
    #[inline(always)]
    pub(super) fn free(&self) -> usize {
        self.free as usize
    }

    /// Whether all are.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.free == self.blocks
    }

    /// Takes the first free block: the granule in the slab at which it begins.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<usize> {
        if self.some == 0 {
            return None;
        }
        let at = self.some.trailing_zeros() as usize % self.bits.len();
        let word = self.bits[at];
        let rest = word & (word - 1);
        self.bits[at] = rest;
        self.some &= !(u32::from(rest == 0) << at);
        self.free -= 1;
        Some(at * BITS + word.trailing_zeros() as usize)
    }

    /// Puts a block back. Not one that is there, and not where none begins: a holder may believe so
    /// whose words somebody has written over.
    #[inline(always)]
    pub(super) fn put(&mut self, granule: usize) -> bool {
        let (at, bit) = (granule / BITS % self.bits.len(), 1 << (granule % BITS));
        if (self.begins[at] & !self.bits[at]) & bit == 0 {
            return false;
        }
        self.free += 1;
        self.bits[at] |= bit;
        self.some |= 1 << at;
        true
    }

    /// Forgets all, to be told anew.
    pub(super) fn clear(&mut self) {
        self.free = 0;
        self.some = 0;
        self.bits = [0; GRANULES / BITS];
    }

    /// All blocks of this class are free.
    pub(super) fn fill(&mut self, class: Class) {
        self.class = class;
        self.blocks = class.blocks() as u32;
        self.begins = class.begin_bits();
        self.free = self.blocks;
        self.bits = *self.begins;
        let some = self.bits.iter().enumerate().map(|(at, word)| u32::from(*word != 0) << at);
        self.some = some.sum();
    }

    /// Blocks that are free: where they begin.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = usize> {
        let words = self.bits.iter().enumerate();
        words.flat_map(|(at, word)| {
            (0..BITS).filter(move |bit| word >> bit & 1 != 0).map(move |bit| at * BITS + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_from_the_front_and_come_back() {
        let class = Class::of(100);
        let mut shelf = Shelf::new(0, class);
        assert_eq!(shelf.take(), None);
        shelf.fill(class);
        assert!(shelf.is_whole());
        let all: Vec<_> = std::iter::from_fn(|| shelf.take()).collect();
        assert_eq!(all, class.begins().collect::<Vec<_>>());
        shelf.put(all[300]);
        shelf.put(all[7]);
        assert!(!shelf.put(all[7]), "it is there");
        assert!(!shelf.put(all[7] + 1), "within a block");
        assert_eq!(shelf.free_blocks().collect::<Vec<_>>(), [all[7], all[300]]);
        assert_eq!((shelf.take(), shelf.take()), (Some(all[7]), Some(all[300])));
        assert_eq!((shelf.take(), shelf.free()), (None, 0));
    }
}

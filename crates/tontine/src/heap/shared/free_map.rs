//! An arena's map of the free blocks of one of its slabs: [`FreeMap`].
//!
//! The map is in the owner's private memory and is only a hint, because the block words decide. It
//! has one bit per granule, which is set if a free block begins there.

use super::class::SizeClass;
use super::layout::GRANULES;

const BITS: usize = 64;
const _: () = assert!(GRANULES / BITS <= u32::BITS as usize);

/// Index in a list that means *no shelf*.
pub(super) const NONE: u32 = u32::MAX;

/// The use of a shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The entry has no slab.
    Vacant,
    /// Blocks are allocated from the slab.
    Open,
    /// No block of the slab is allocated; the slab is kept for reuse until its memory is returned.
    Spare,
}

/// The free blocks of one slab, as known to its owner.
#[derive(Debug, Clone)]
pub(super) struct FreeMap {
    /// Number of the slab, or of the first slab of a large block.
    pub(super) slab: u32,
    pub(super) used: Use,
    class: SizeClass,
    // All counts have the same width, because a load that is wider than the preceding store must
    // wait for that store.
    /// Number of bits that are set.
    free: u32,
    /// Number of bits that can be set.
    blocks: u32,
    /// A bit for each word of `bits` that is not 0. A word-by-word search would end in a branch
    /// that the processor cannot predict.
    some: u32,
    bits: [u64; GRANULES / BITS],
    /// Bits that may be set, as the class determines.
    begins: &'static [u64; GRANULES / BITS],
    /// Neighbours in the class's list of shelves with free blocks.
    pub(super) before: u32,
    pub(super) behind: u32,
    pub(super) listed: bool,
    /// Index among the class's shelves.
    pub(super) place: u32,
}

impl FreeMap {
    /// Returns the shelf of a slab without known free blocks.
    pub(super) fn new(slab: u32, class: SizeClass) -> Self {
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

    /// Returns the shelf for classes without a slab, which is always empty.
    pub(super) fn nothing() -> Self {
        Self { used: Use::Vacant, ..Self::new(NONE, SizeClass::Small(0)) }
    }

    /// Returns the class of the slab.
    #[inline]
    pub(super) fn class(&self) -> SizeClass {
        self.class
    }

    /// Returns the number of free blocks.
    #[inline(always)]
    pub(super) fn free(&self) -> usize {
        self.free as usize
    }

    /// Returns `true` if all blocks are free.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.free == self.blocks
    }

    /// Removes the first free block. Returns the granule in the slab at which it begins.
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

    /// Adds a free block. Returns `false`, and changes nothing, if the map has the block already or
    /// no block begins at the granule. Both happen if a member has overwritten the heap's words.
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

    /// Removes all blocks.
    pub(super) fn clear(&mut self) {
        self.free = 0;
        self.some = 0;
        self.bits = [0; GRANULES / BITS];
    }

    /// Sets the class, and adds all its blocks.
    pub(super) fn fill(&mut self, class: SizeClass) {
        self.class = class;
        self.blocks = class.blocks() as u32;
        self.begins = class.begin_bits();
        self.free = self.blocks;
        self.bits = *self.begins;
        let some = self.bits.iter().enumerate().map(|(at, word)| u32::from(*word != 0) << at);
        self.some = some.sum();
    }

    /// Returns the granules at which the free blocks begin.
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
    fn free_map_yields_first_block_and_refuses_duplicates() {
        let class = SizeClass::of(100);
        let mut shelf = FreeMap::new(0, class);
        assert_eq!(shelf.take(), None);
        shelf.fill(class);
        assert!(shelf.is_whole());
        let all: Vec<_> = std::iter::from_fn(|| shelf.take()).collect();
        assert_eq!(all, class.begins().collect::<Vec<_>>());
        shelf.put(all[300]);
        shelf.put(all[7]);
        assert!(!shelf.put(all[7]), "already free");
        assert!(!shelf.put(all[7] + 1), "inside a block");
        assert_eq!(shelf.free_blocks().collect::<Vec<_>>(), [all[7], all[300]]);
        assert_eq!((shelf.take(), shelf.take()), (Some(all[7]), Some(all[300])));
        assert_eq!((shelf.take(), shelf.free()), (None, 0));
    }
}

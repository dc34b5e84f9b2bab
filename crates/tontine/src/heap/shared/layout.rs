//! The layout of a shared heap: [`Geometry`], and the entries of its tables.
//!
//! `docs/internals/heap-shared.md` shows the layout as a table. The size of the file determines the
//! number of slabs, so a process that opens a heap knows its geometry before it reads any byte.

use std::mem::{offset_of, size_of};

use crate::sync::AtomicU64;

/// The first eight bytes of a heap: `tontheap`, read as a little-endian integer.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"tontheap");
/// Version of this layout.
pub(super) const VERSION: u64 = 1;

/// Bytes of a slab.
pub(super) const SLAB: usize = 64 << 10;
/// Alignment of a block: a cache line, so that no two blocks share a line.
pub(super) const GRANULE: usize = 64;
/// Number of granules in a slab, which has one block word for each granule.
pub(super) const GRANULES: usize = SLAB / GRANULE;
/// Maximum number of members at a time.
pub(super) const MEMBERS: usize = 512;
/// Maximum number of arenas at a time.
pub(super) const ARENAS: usize = 2048;
/// Maximum number of slabs of a heap: 4 TiB.
pub(super) const MOST_SLABS: usize = 1 << 26;

/// Bytes of a page, the unit in which memory is allocated.
pub(super) const PAGE: usize = 4096;
/// Size in bytes of a slab's block words, and of its destinations: whole pages.
pub(super) const WORDS: usize = GRANULES * size_of::<AtomicU64>();

const MEMBERS_AT: usize = PAGE;
const ARENAS_AT: usize = MEMBERS_AT + MEMBERS * size_of::<MemberSlot>();
const SLABS_AT: usize = ARENAS_AT + ARENAS * size_of::<ArenaSlot>();

/// The header at the heap's first byte.
#[repr(C)]
#[derive(Debug)]
pub(super) struct HeapHeader {
    /// [`MAGIC`].
    pub(super) magic: AtomicU64,
    /// [`VERSION`].
    pub(super) version: AtomicU64,
    /// Number of slabs.
    pub(super) slabs: AtomicU64,
    /// 1 if blocks end with a canary.
    pub(super) canaries: AtomicU64,
    /// 1, stored last, once the header and the tables are complete.
    pub(super) ready: AtomicU64,
    /// Incremented once for each dead member, and by each recovery that has freed a block.
    pub(super) deaths: AtomicU64,
    /// Slab at which a search for an empty slab begins: a hint.
    pub(super) hint: AtomicU64,
    /// Number of times that the root was set. Its last bit selects the entry of `root`.
    pub(super) roots: AtomicU64,
    /// Offset of the root, or 0, and its generation.
    pub(super) root: [[AtomicU64; 2]; 2],
}

/// The entry of one member.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct MemberSlot {
    /// A [`MemberWord`](super::word::MemberWord).
    pub(super) word: AtomicU64,
    /// Process id, which error messages name, and by which an outbox checks that its lane leads to
    /// this process.
    pub(super) pid: AtomicU64,
    /// The member's role, or 0. If the member has a role, its published blocks outlive it.
    pub(super) role: AtomicU64,
    /// Epoch of the last member in this slot whose end was counted in `deaths`.
    pub(super) counted: AtomicU64,
    /// The PID namespace of `pid`: an inode, or 0.
    pub(super) namespace: AtomicU64,
}

/// The entry of one arena.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct ArenaSlot {
    /// An [`ArenaWord`](super::word::ArenaWord).
    pub(super) word: AtomicU64,
}

/// The entry of one slab.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct SlabSlot {
    /// A [`SlabWord`](super::word::SlabWord).
    pub(super) owner: AtomicU64,
    /// Class of its blocks: [`super::class::SizeClass::raw`].
    pub(super) class: AtomicU64,
    /// 1 if other threads have freed blocks in the slab since its owner's last scan: a hint.
    pub(super) freed: AtomicU64,
}

const _: () = assert!(size_of::<HeapHeader>() <= PAGE);
const _: () = assert!(size_of::<MemberSlot>() == 64 && size_of::<ArenaSlot>() == 64);
const _: () = assert!(size_of::<SlabSlot>() == 64);
const _: () = assert!(offset_of!(SlabSlot, freed) == 16);
const _: () = assert!(SLABS_AT.is_multiple_of(PAGE) && WORDS.is_multiple_of(PAGE));
const _: () = assert!(MEMBERS <= 1 << 13 && ARENAS <= 1 << 13);

/// Offsets of a heap's regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    slabs: usize,
    words_at: usize,
    destinations_at: usize,
    blocks_at: usize,
}

impl Geometry {
    /// Returns the geometry of a heap with a number of slabs from 1 to [`MOST_SLABS`].
    pub(super) const fn of(slabs: usize) -> Self {
        let words_at = (SLABS_AT + slabs * size_of::<SlabSlot>()).next_multiple_of(PAGE);
        let destinations_at = words_at + slabs * WORDS;
        let blocks_at = (destinations_at + slabs * WORDS).next_multiple_of(SLAB);
        Self { slabs, words_at, destinations_at, blocks_at }
    }

    /// Returns the geometry of a heap in a file of `size` bytes, if a heap can have that size.
    pub(super) fn of_size(size: u64) -> Option<Self> {
        let size = usize::try_from(size).ok()?;
        let (mut slabs, mut too_many) = (1, MOST_SLABS + 1);
        while too_many - slabs > 1 {
            let middle = slabs.midpoint(too_many);
            let larger = Self::of(middle).size() > size;
            *if larger { &mut too_many } else { &mut slabs } = middle;
        }
        Some(Self::of(slabs)).filter(|geometry| geometry.size() == size)
    }

    /// Returns the number of slabs.
    #[inline]
    pub(super) const fn slabs(&self) -> usize {
        self.slabs
    }

    /// Returns the size of the heap in bytes.
    pub(super) const fn size(&self) -> usize {
        self.blocks_at + self.slabs * SLAB
    }

    /// Returns the number of bytes of the header and the tables, at the start of the heap, which
    /// always have memory.
    pub(super) const fn tables(&self) -> usize {
        self.words_at
    }

    #[inline]
    pub(super) const fn member(slot: usize) -> usize {
        MEMBERS_AT + slot * size_of::<MemberSlot>()
    }

    #[inline]
    pub(super) const fn arena(index: usize) -> usize {
        ARENAS_AT + index * size_of::<ArenaSlot>()
    }

    #[inline]
    pub(super) const fn slab(number: usize) -> usize {
        SLABS_AT + number * size_of::<SlabSlot>()
    }

    /// Returns the offset of a granule's block word.
    #[inline]
    pub(super) const fn word(&self, granule: usize) -> usize {
        self.words_at + granule * size_of::<AtomicU64>()
    }

    /// Returns the offset of a granule's destination.
    #[inline]
    pub(super) const fn destination(&self, granule: usize) -> usize {
        self.destinations_at + granule * size_of::<AtomicU64>()
    }

    /// Returns the offset of a granule's first byte.
    #[inline]
    pub(super) const fn block(&self, granule: usize) -> usize {
        self.blocks_at + granule * GRANULE
    }

    /// Returns the granule that begins at an offset.
    #[inline]
    pub(super) fn granule(&self, offset: u64) -> Option<usize> {
        let behind = usize::try_from(offset).ok()?.checked_sub(self.blocks_at)?;
        let granule = behind / GRANULE;
        (behind.is_multiple_of(GRANULE) && granule < self.slabs * GRANULES).then_some(granule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_size_determines_slab_count() {
        let counts = (1..2_000).chain([65_535, 65_536, 1_000_003, MOST_SLABS]);
        for slabs in counts {
            let geometry = Geometry::of(slabs);
            assert_eq!(Geometry::of_size(geometry.size() as u64), Some(geometry));
            for off in [1, 64, 4_096, SLAB / 2] {
                assert_eq!(Geometry::of_size((geometry.size() + off) as u64), None, "{slabs}");
                assert_eq!(Geometry::of_size((geometry.size() - off) as u64), None, "{slabs}");
            }
        }
        for size in [0, 1, SLAB as u64, u64::MAX] {
            assert_eq!(Geometry::of_size(size), None);
        }
    }

    #[test]
    fn heap_regions_are_adjacent_and_in_order() {
        let geometry = Geometry::of(1_000);
        assert_eq!(Geometry::member(MEMBERS), Geometry::arena(0));
        assert_eq!(Geometry::arena(ARENAS), Geometry::slab(0));
        assert!(Geometry::slab(1_000) <= geometry.word(0));
        assert_eq!(geometry.word(1_000 * GRANULES), geometry.destination(0));
        assert!(geometry.destination(1_000 * GRANULES) <= geometry.block(0));
        assert_eq!(geometry.block(1_000 * GRANULES), geometry.size());
        assert_eq!(geometry.granule(geometry.block(77) as u64), Some(77));
        assert_eq!(geometry.granule(geometry.block(77) as u64 + 1), None);
        assert_eq!(geometry.granule(geometry.size() as u64), None);
        assert_eq!(geometry.granule(0), None);
    }
}

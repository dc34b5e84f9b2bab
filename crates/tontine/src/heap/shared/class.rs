//! The sizes of blocks: [`SizeClass`].
//!
//! Up to half a slab, there are four sizes between two powers of two, so that a block exceeds the
//! requested size by at most a quarter, or by less than a granule. A larger block occupies whole
//! slabs.

use super::layout::{GRANULE, GRANULES, SLAB};

/// The largest block that shares its slab.
pub(super) const LARGEST: usize = SLAB / 2;
/// Number of sizes.
pub(super) const CLASSES: usize = SIZES.len();

/// The sizes in granules.
const SIZES: [u16; 32] = sizes();
/// The class of a block of 1 granule, 2 granules, and so on.
const BY_GRANULES: [u8; GRANULES / 2] = by_granules();

/// For each class, and last for large blocks: one bit for each granule at which a block begins.
static BEGINS: [[u64; GRANULES / 64]; CLASSES + 1] = all_begins();

const fn all_begins() -> [[u64; GRANULES / 64]; CLASSES + 1] {
    let mut all = [[0; GRANULES / 64]; CLASSES + 1];
    let mut class = 0;
    while class < CLASSES {
        let size = SIZES[class] as usize;
        let mut granule = 0;
        while granule + size <= GRANULES {
            all[class][granule / 64] |= 1 << (granule % 64);
            granule += size;
        }
        class += 1;
    }
    all[CLASSES][0] = 1;
    all
}

const fn sizes() -> [u16; 32] {
    let mut sizes = [0; 32];
    let mut size = 1_u16;
    let mut step = 1_u16;
    let mut at = 0;
    while at < 32 {
        sizes[at] = size;
        at += 1;
        if size >= 8 * step {
            step *= 2;
        }
        size += step;
    }
    sizes
}

const fn by_granules() -> [u8; GRANULES / 2] {
    let mut table = [0; GRANULES / 2];
    let mut class = 0;
    let mut granules = 1;
    while granules <= GRANULES / 2 {
        if granules > SIZES[class] as usize {
            class += 1;
        }
        table[granules - 1] = class as u8;
        granules += 1;
    }
    table
}

const _: () = assert!(SIZES[31] as usize * GRANULE == LARGEST);

/// The class of a slab, which determines the blocks in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SizeClass {
    /// Blocks of the size with this number.
    Small(u8),
    /// The first slab of a block that has this number of slabs.
    Large(usize),
}

/// Bit that marks a class field with the number of slabs of a large block.
const LARGE: u64 = 1 << 32;

impl SizeClass {
    /// Returns the class of a block of `bytes` bytes.
    #[inline]
    pub(super) const fn of(bytes: usize) -> Self {
        if bytes <= LARGEST {
            let granules = if bytes == 0 { 1 } else { bytes.div_ceil(GRANULE) };
            Self::Small(BY_GRANULES[granules - 1])
        } else {
            Self::Large(bytes.div_ceil(SLAB))
        }
    }

    /// Returns the class as the slab table stores it.
    pub(super) const fn raw(self) -> u64 {
        match self {
            Self::Small(class) => class as u64,
            Self::Large(slabs) => LARGE | slabs as u64,
        }
    }

    /// Returns the class of a value in the slab table, if the value is valid.
    #[inline]
    pub(super) const fn from_raw(raw: u64) -> Option<Self> {
        let slabs = raw & !LARGE;
        if raw & LARGE != 0 && slabs > 0 && slabs < LARGE {
            Some(Self::Large(slabs as usize))
        } else if raw < CLASSES as u64 {
            Some(Self::Small(raw as u8))
        } else {
            None
        }
    }

    /// Returns the size of a block in bytes.
    #[inline]
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::Small(class) => SIZES[class as usize] as usize * GRANULE,
            Self::Large(slabs) => slabs * SLAB,
        }
    }

    /// Returns the distance in granules between the beginnings of two blocks. For a large block,
    /// this is the number of granules in a slab.
    #[inline]
    pub(super) const fn stride(self) -> usize {
        match self {
            Self::Small(class) => SIZES[class as usize] as usize,
            Self::Large(_) => GRANULES,
        }
    }

    /// Returns the number of blocks that begin in a slab.
    #[inline]
    pub(super) const fn blocks(self) -> usize {
        GRANULES / self.stride()
    }

    /// Returns the granules, counted from the slab's first one, at which blocks begin.
    pub(super) fn begins(self) -> impl Iterator<Item = usize> + Clone {
        (0..self.blocks()).map(move |block| block * self.stride())
    }

    /// Returns the granules of a slab, counted from the heap's first one, at which blocks begin.
    pub(super) fn begins_in(self, slab: usize) -> impl Iterator<Item = usize> + Clone {
        self.begins().map(move |granule| slab * GRANULES + granule)
    }

    /// Returns one bit for each granule of a slab, set if a block begins there.
    #[inline]
    pub(super) fn begin_bits(self) -> &'static [u64; GRANULES / 64] {
        match self {
            Self::Small(class) => &BEGINS[usize::from(class)],
            Self::Large(_) => &BEGINS[CLASSES],
        }
    }

    /// Returns `true` if a block begins at this granule of a slab.
    #[inline]
    pub(super) fn begins_at(self, granule: usize) -> bool {
        // A table replaces a division, which would take as long as all other steps of a claim
        // together.
        let bits = self.begin_bits().get(granule / 64);
        bits.is_some_and(|bits| bits >> (granule % 64) & 1 != 0)
    }

    /// Returns the number of slabs of a block, or 1 for a small block, which shares its slab.
    pub(super) const fn slabs(self) -> usize {
        match self {
            Self::Small(_) => 1,
            Self::Large(slabs) => slabs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_class_wastes_at_most_quarter_or_granule() {
        for bytes in 0..=LARGEST {
            let class = SizeClass::of(bytes);
            assert!(class.bytes() >= bytes, "{bytes}");
            assert!(class.bytes() <= (bytes + bytes / 4).max(bytes + GRANULE), "{bytes}");
            assert_eq!(SizeClass::from_raw(class.raw()), Some(class));
            assert!(class.begins().all(|granule| class.begins_at(granule)));
            let bit = |granule: &usize| class.begin_bits()[granule / 64] >> (granule % 64) & 1 != 0;
            assert!((0..GRANULES).filter(bit).eq(class.begins()), "{bytes}");
        }
        assert_eq!(SizeClass::of(LARGEST + 1), SizeClass::Large(1));
        assert_eq!(SizeClass::of(SLAB), SizeClass::Large(1));
        assert_eq!(SizeClass::of(SLAB + 1), SizeClass::Large(2));
        assert_eq!(SizeClass::from_raw(SizeClass::Large(7).raw()), Some(SizeClass::Large(7)));
        for raw in [CLASSES as u64, LARGE, u64::MAX, 1 << 33] {
            assert_eq!(SizeClass::from_raw(raw), None, "{raw:#x}");
        }
    }

    #[test]
    fn blocks_stay_within_their_slab() {
        for class in (0..CLASSES as u8).map(SizeClass::Small) {
            assert!(class.blocks() * class.bytes() <= SLAB);
            let mut begins = (0..GRANULES).filter(|granule| class.begins_at(*granule));
            assert_eq!(begins.next_back(), Some((class.blocks() - 1) * class.stride()));
        }
    }
}

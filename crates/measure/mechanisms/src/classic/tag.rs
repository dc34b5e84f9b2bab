//! The word at both ends of a block: [`Tag`].

use std::fmt;

/// Alignment of payloads, and unit of sizes, in bytes.
pub(super) const ALIGN: usize = 16;

/// A block's header, and an equal footer: the size, and a bit that is set if the block is
/// allocated.
///
/// ```text
///  63                                     4 3   1 0
/// +----------------------------------------+-----+-+
/// | size in bytes, a multiple of 16        |  0  |a|
/// +----------------------------------------+-----+-+
/// ```
///
/// The size includes header and footer. `a` is the bit of allocated blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u64);

impl Tag {
    const ALLOCATED: u64 = 1;
    const FLAGS: u64 = ALIGN as u64 - 1;

    pub(super) const fn allocated(size: usize) -> Self {
        Self(size as u64 | Self::ALLOCATED)
    }

    pub(super) const fn free(size: usize) -> Self {
        Self(size as u64)
    }

    /// Returns the size of the block in bytes, or 0 for the end of the list.
    pub(super) fn size(self) -> usize {
        (self.0 & !Self::FLAGS) as usize
    }

    pub(super) fn is_allocated(self) -> bool {
        self.0 & Self::ALLOCATED != 0
    }

    /// Returns `true` if a heap may have written the tag, that is, if no flag except `a` is set.
    pub(super) fn is_whole(self) -> bool {
        self.0 & Self::FLAGS & !Self::ALLOCATED == 0
    }
}

/// Prints the tag as a map does: `48:a`, `3984:f`.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 & Self::FLAGS {
            0 => write!(f, "{}:f", self.size()),
            Self::ALLOCATED => write!(f, "{}:a", self.size()),
            _ => write!(f, "{:#x}", self.0),
        }
    }
}

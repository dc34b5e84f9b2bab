//! A list of a heap's blocks: [`Map`].

use std::fmt;

use super::tag::Tag;

/// All blocks of a [`ClassicHeap`](super::ClassicHeap) in the order of their addresses. Prints one
/// line per block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// The address of the heap's first byte.
    pub(super) base: usize,
    pub(super) blocks: Vec<BlockInfo>,
    /// The offset just after the last block.
    pub(super) end: usize,
}

/// A block of a [`Map`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Offset of the first byte that the holder may use, from the heap's first byte.
    pub offset: usize,
    /// Bytes of the block, header and footer of 8 bytes each included.
    pub size: usize,
    /// `true` if the block is allocated, `false` if it is free.
    pub allocated: bool,
}

impl Map {
    /// Returns the prologue, a block that is never freed, and all blocks after it.
    pub fn blocks(&self) -> &[BlockInfo] {
        &self.blocks
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |offset: usize| self.base + offset;
        writeln!(f, "Heap ({:#x}):", address(super::PROLOGUE))?;
        for &BlockInfo { offset, size, allocated } in &self.blocks {
            let tag = if allocated { Tag::allocated(size) } else { Tag::free(size) };
            writeln!(f, "{:#x}: header: [{tag}] footer: [{tag}]", address(offset))?;
        }
        writeln!(f, "{:#x}: EOL", address(self.end))
    }
}

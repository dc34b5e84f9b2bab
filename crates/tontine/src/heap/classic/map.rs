//! A heap, block by block: [`Map`].

use std::fmt;

use super::tag::Tag;

/// All blocks of a heap in the order of their addresses, with its prologue. [`fmt::Display`] prints
/// them as the source does, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// The address of the heap's first byte.
    pub(super) base: usize,
    pub(super) blocks: Vec<Block>,
    /// The offset behind the last block.
    pub(super) end: usize,
}

/// A block in a [`Map`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Of the first byte that its holder may use, from the heap's first byte.
    pub offset: usize,
    /// Bytes, with 8 of header and 8 of footer.
    pub size: usize,
    /// Whether somebody holds it.
    pub allocated: bool,
}

impl Map {
    /// The prologue, which nobody frees, and all blocks behind it.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |offset: usize| self.base + offset;
        writeln!(f, "Heap ({:#x}):", address(super::PROLOGUE))?;
        for &Block { offset, size, allocated } in &self.blocks {
            let tag = if allocated { Tag::allocated(size) } else { Tag::free(size) };
            writeln!(f, "{:#x}: header: [{tag}] footer: [{tag}]", address(offset))?;
        }
        writeln!(f, "{:#x}: EOL", address(self.end))
    }
}

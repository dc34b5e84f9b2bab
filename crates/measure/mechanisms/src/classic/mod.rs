//! The textbook heap that source 003 uses: [`ClassicHeap`], for one process and one thread at a
//! time. It has one arena and an implicit list of blocks, each with a header and a footer of 8
//! bytes.
//!
//! `malloc` walks from header to header until it finds a free block, so its time grows with the
//! number of blocks. `free` immediately joins a block with its free neighbours. This takes constant
//! time, because the footer before the block and the header after it describe the neighbours. The
//! design follows Bryant and O'Hallaron, *Computer Systems*, 9.9.
//!
//! # Layout
//! Offsets are from the heap's first byte, which is at the start of a page; each word has 8 bytes.
//!
//! | offset | content |
//! | --: | --- |
//! | 0x00 | unused, so that payloads are aligned to 16 |
//! | 0x08 | the header of the *prologue*, a block without payload: 16, *allocated* |
//! | 0x10 | the prologue's footer |
//! | 0x18 | the first block's header: size, in bit 0 *allocated* |
//! | 0x20 | the first block's payload |
//! | … | its footer, the next block's header, … |
//! | end − 8 | a header of size 0, *allocated*: the end of the list |
//!
//! The heap begins with one free block of 4,096 bytes, and grows by 4,096 bytes, or by more if a
//! block needs more. A free block that is larger than requested is split if 32 bytes or more are
//! left.
//!
//! Errors name a block by its offset. Even if headers and footers are overwritten with any values,
//! the heap reads and writes only its own memory, though it may overwrite blocks there.

#![allow(unsafe_code, reason = "only the caller can uphold the contract of `free`")]
#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "`ClassicError` describes its variants"
)]

mod map;
#[cfg(test)]
mod property_tests;
mod space;
mod tag;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

pub use map::{BlockInfo, Map};

use space::{ReservedSpace, WORD};
use tag::{ALIGN, Tag};

/// Bytes of a block's header and footer.
const OVERHEAD: usize = 2 * WORD;
/// Offset of the prologue's payload, which has no bytes.
const PROLOGUE: usize = ALIGN;
/// Offset of the first block's payload.
const FIRST: usize = PROLOGUE + OVERHEAD;
/// Minimum size of a block: header, footer, and 16 bytes of payload.
const LEAST: usize = OVERHEAD + ALIGN;
/// Minimum number of bytes by which the heap grows.
const EXTENSION: usize = 4096;
/// Maximum size of a heap: the bytes that a processor can address.
const MOST_HEAP: usize = 1 << 46;

/// Maximum size of a heap, unless its user has a reason for another: address space is reserved for
/// it, and memory is used as the heap grows.
pub const DEFAULT_SIZE: usize = 1 << 30;

/// The rule by which [`ClassicHeap::malloc`] chooses a free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The first block that is large enough.
    First,
    /// The first block that is large enough, searched for from the previous result to the end and
    /// then from the beginning.
    Next,
    /// The smallest block that is large enough, or the first of several such blocks.
    Best,
}

/// An error of a [`ClassicHeap`], which it leaves unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassicError {
    /// No free block is large enough, and the heap may not grow that far.
    #[error("no space for a block of {requested} bytes: the heap has {size} of at most {max}")]
    Full { requested: usize, size: usize, max: usize },
    /// The address is outside the heap, or before its first block.
    #[error("address {address:#x} is outside this heap")]
    NotInHeap { address: usize },
    /// No block begins at the address.
    #[error(
        "no block begins at offset {offset:#x}: it is inside the block at {block:#x} of {size} \
         bytes"
    )]
    InvalidPointer { offset: usize, block: usize, size: usize },
    #[error("the block at offset {offset:#x} was freed twice")]
    DoubleFree { offset: usize },
    /// A header or a footer was overwritten.
    #[error("the block at offset {offset:#x} is corrupted: {what}")]
    Corrupted { offset: usize, what: String },
    #[error("{call} failed: {}", io::Error::from_raw_os_error(*.errno))]
    System { call: &'static str, errno: i32 },
}

/// A heap of one process, for one thread at a time. Dropping it unmaps it with all its blocks.
#[derive(Debug)]
pub struct ClassicHeap {
    space: ReservedSpace,
    fit: Fit,
    /// Block, or end of the list, at which the search of [`Fit::Next`] begins.
    rover: usize,
}

impl ClassicHeap {
    /// Creates a heap with one free block of 4,096 bytes, which may grow to `max_size`.
    ///
    /// # Panics
    /// Panics if `max_size` is below 4,128.
    pub fn new(fit: Fit, max_size: usize) -> Result<Self, ClassicError> {
        assert!(max_size >= FIRST + EXTENSION, "{max_size} bytes are less than a heap begins with");
        let mut heap = Self { space: ReservedSpace::reserve(max_size)?, fit, rover: FIRST };
        heap.space.grow(FIRST)?;
        heap.set(PROLOGUE, Tag::allocated(OVERHEAD));
        heap.set_header(FIRST, Tag::allocated(0));
        heap.extend(EXTENSION)?;
        Ok(heap)
    }

    /// Allocates a block of at least `size` bytes (16 if `size` is 0), aligned to 16.
    ///
    /// The block's bytes are not initialised: they may contain the bytes of an earlier block. The
    /// block is valid until it is freed or the heap is dropped.
    pub fn malloc(&mut self, size: usize) -> Result<NonNull<u8>, ClassicError> {
        let whole = size.checked_add(OVERHEAD + ALIGN - 1).filter(|whole| *whole <= MOST_HEAP);
        let Some(whole) = whole.map(|whole| (whole / ALIGN * ALIGN).max(LEAST)) else {
            return Err(self.full(size));
        };
        let found = match self.find(whole)? {
            Some(found) => Some(found),
            None => self.extend(whole)?,
        };
        let Some((block, there)) = found else { return Err(self.full(size)) };
        self.place(block, there, whole);
        self.rover = block;
        Ok(self.space.at(block))
    }

    /// Frees a block, and joins it with its free neighbours.
    ///
    /// Detects some violations of the contract and some writes beyond a block's bounds. Checks only
    /// the positions at which the block's header and footer should be: if `malloc` has since
    /// allocated the memory to another holder, or bytes inside a block look like a header and a
    /// footer, that holder's block is freed.
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. `malloc` of this heap returned `block`.
    /// 2. The block has not been freed since then.
    /// 3. No pointer or reference to the block's bytes is used after the call.
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<(), ClassicError> {
        let (block, size) = self.allocated_at(block)?;
        let joined = self.free_around(block, size)?;
        // If the block is joined with the block before it, its old header stays in the payload, so
        // that a second `free` is detected.
        self.set(block, Tag::free(size));
        self.join(joined);
        Ok(())
    }

    /// Checks all blocks of the heap, and returns them. Fails with [`ClassicError::Corrupted`] at
    /// the first block whose header and footer differ, whose size leads outside the heap, or which
    /// is free and follows a free block.
    pub fn check(&self) -> Result<Map, ClassicError> {
        self.check_prologue()?;
        let mut blocks = vec![BlockInfo { offset: PROLOGUE, size: OVERHEAD, allocated: true }];
        let (mut offset, end) = (FIRST, self.space.used());
        while offset != end {
            let tag = self.sound(offset)?;
            let (size, allocated) = (tag.size(), tag.is_allocated());
            if !allocated && blocks.last().is_some_and(|before| !before.allocated) {
                let what =
                    "expected no two free blocks side by side, found this block and the one \
                            before it free"
                        .into();
                return Err(ClassicError::Corrupted { offset, what });
            }
            blocks.push(BlockInfo { offset, size, allocated });
            offset += size;
        }
        self.check_end()?;
        Ok(Map { base: self.space.address(0), blocks, end })
    }

    #[cold]
    fn full(&self, requested: usize) -> ClassicError {
        ClassicError::Full { requested, size: self.space.used(), max: self.space.most() }
    }

    /// Returns a free block of at least `whole` bytes, and its size.
    fn find(&self, whole: usize) -> Result<Option<(usize, usize)>, ClassicError> {
        let (rover, end) = (self.rover, self.space.used());
        let found = match self.fit {
            Fit::First => self.first(FIRST..end, whole)?,
            Fit::Next => match self.first(rover..end, whole)? {
                Some(found) => Some(found),
                None => self.first(FIRST..rover, whole)?,
            },
            Fit::Best => self.best(whole)?,
        };
        match found {
            Some(block) => self.sound(block).map(|tag| Some((block, tag.size()))),
            None => Ok(None),
        }
    }

    /// Returns the first free block that has at least `whole` bytes and begins within a range.
    fn first(&self, among: Range<usize>, whole: usize) -> Result<Option<usize>, ClassicError> {
        let mut block = among.start;
        while block < among.end {
            let tag = self.header(block);
            if !tag.is_allocated() && tag.size() >= whole {
                return Ok(Some(block));
            }
            block = self.behind(block, tag)?;
        }
        Ok(None)
    }

    /// Returns the smallest free block that has at least `whole` bytes.
    fn best(&self, whole: usize) -> Result<Option<usize>, ClassicError> {
        let (mut block, mut best) = (FIRST, None);
        while block < self.space.used() {
            let tag = self.header(block);
            let beats = best.is_none_or(|(_, size)| tag.size() < size);
            if !tag.is_allocated() && tag.size() >= whole && beats {
                best = Some((block, tag.size()));
            }
            block = self.behind(block, tag)?;
        }
        Ok(best.map(|(block, _)| block))
    }

    /// Returns the offset of the next block, or of the end of the list.
    fn behind(&self, block: usize, tag: Tag) -> Result<usize, ClassicError> {
        let next = block.saturating_add(tag.size());
        if tag.size() >= LEAST && next <= self.space.used() {
            return Ok(next);
        }
        Err(self.sound(block).err().unwrap_or_else(|| unreachable!("{tag} leads somewhere")))
    }

    /// Allocates `whole` bytes of a free block. The rest becomes a free block if it is large
    /// enough.
    fn place(&mut self, block: usize, size: usize, whole: usize) {
        let over = size - whole;
        if over < LEAST {
            self.set(block, Tag::allocated(size));
        } else {
            self.set(block, Tag::allocated(whole));
            self.set(block + whole, Tag::free(over));
        }
    }

    /// Grows the heap, so that it ends with a free block of at least `whole` bytes, and returns
    /// that block and its size. Returns `None` if the heap may not grow that far.
    fn extend(&mut self, whole: usize) -> Result<Option<(usize, usize)>, ClassicError> {
        self.check_end()?;
        // The header that ended the list becomes the header of the new block.
        let block = self.space.used();
        let before = self.free_before(block)?;
        let bytes = whole.max(EXTENSION).min(self.space.left() / ALIGN * ALIGN);
        if before + bytes < whole {
            return Ok(None);
        }
        self.space.grow(bytes)?;
        self.set_header(block + bytes, Tag::allocated(0));
        self.join(block - before..block + bytes);
        Ok(Some((block - before, before + bytes)))
    }

    /// Turns a range of blocks into one free block.
    fn join(&mut self, blocks: Range<usize>) {
        self.set(blocks.start, Tag::free(blocks.len()));
        if blocks.contains(&self.rover) {
            self.rover = blocks.start;
        }
    }

    /// Returns the range of a block that is being freed, including its free neighbours.
    fn free_around(&self, block: usize, size: usize) -> Result<Range<usize>, ClassicError> {
        let (before, next) = (self.free_before(block)?, block + size);
        let behind = if next == self.space.used() {
            self.check_end()?;
            0
        } else {
            let tag = self.sound(next)?;
            if tag.is_allocated() { 0 } else { tag.size() }
        };
        Ok(block - before..next + behind)
    }

    /// Returns the size of the block before this one, or 0 if the block before is allocated.
    fn free_before(&self, block: usize) -> Result<usize, ClassicError> {
        if block == FIRST {
            return self.check_prologue().map(|()| 0);
        }
        let footer = Tag(self.space.word(block - OVERHEAD));
        let before = block.checked_sub(footer.size()).filter(|before| *before >= FIRST);
        match before.map(|before| self.sound(before)) {
            Some(Ok(tag)) if tag == footer => Ok(if tag.is_allocated() { 0 } else { tag.size() }),
            _ => Err(ClassicError::Corrupted {
                offset: block,
                what: format!(
                    "the footer before it, {footer}, matches no block's header: {BEFORE}"
                ),
            }),
        }
    }

    /// Returns the offset and size of the allocated block at an address.
    fn allocated_at(&self, address: NonNull<u8>) -> Result<(usize, usize), ClassicError> {
        let address = address.as_ptr().addr();
        let offset = self.space.offset_of(address).filter(|offset| *offset >= FIRST);
        let offset = offset.ok_or(ClassicError::NotInHeap { address })?;
        let tag = offset.is_multiple_of(ALIGN).then(|| self.sound(offset));
        match tag {
            Some(Ok(tag)) if tag.is_allocated() => Ok((offset, tag.size())),
            _ => Err(self.why_not(offset)),
        }
    }

    /// Returns the error for an offset at which no block can be freed. Walks all blocks.
    #[cold]
    fn why_not(&self, offset: usize) -> ClassicError {
        let Map { blocks, .. } = match self.check() {
            Ok(map) => map,
            Err(damaged) => return damaged,
        };
        let within = blocks.iter().rfind(|block| block.offset <= offset);
        let BlockInfo { offset: block, size, allocated } = *within.expect("at least the prologue");
        // A freed block that was joined with the block before it still has its header.
        let is_freed = || {
            let tag = self.header(offset);
            !tag.is_allocated() && tag.is_whole() && tag.size() >= LEAST
        };
        if !allocated && offset.is_multiple_of(ALIGN) && is_freed() {
            return ClassicError::DoubleFree { offset };
        }
        ClassicError::InvalidPointer { offset, block, size }
    }

    /// Returns a block's tag, if header and footer are equal and the size leads to another block.
    fn sound(&self, block: usize) -> Result<Tag, ClassicError> {
        let tag = self.header(block);
        let damaged = |what: String| Err(ClassicError::Corrupted { offset: block, what });
        let end = block.checked_add(tag.size()).filter(|end| *end <= self.space.used());
        let Some(end) = end.filter(|_| tag.is_whole() && tag.size() >= LEAST) else {
            return damaged(format!("its header {tag} is not a valid size: {BEFORE}"));
        };
        let footer = Tag(self.space.word(end - OVERHEAD));
        if footer != tag {
            return damaged(format!(
                "its header {tag} and its footer {footer} differ: its holder has written beyond \
                 its end, or a neighbour's holder before its beginning or beyond its own end"
            ));
        }
        Ok(tag)
    }

    fn check_prologue(&self) -> Result<(), ClassicError> {
        let tags = [self.header(PROLOGUE), Tag(self.space.word(PROLOGUE))];
        if tags == [Tag::allocated(OVERHEAD); 2] {
            return Ok(());
        }
        let [header, footer] = tags;
        let what = format!("expected the prologue, 16:a twice, found {header} and {footer}");
        Err(ClassicError::Corrupted { offset: PROLOGUE, what })
    }

    fn check_end(&self) -> Result<(), ClassicError> {
        let offset = self.space.used();
        match self.header(offset) {
            tag if tag == Tag::allocated(0) => Ok(()),
            tag => {
                let what = format!("expected the list's end, 0:a, found {tag}: {BEFORE}");
                Err(ClassicError::Corrupted { offset, what })
            }
        }
    }

    fn header(&self, block: usize) -> Tag {
        Tag(self.space.word(block - WORD))
    }

    fn set_header(&mut self, block: usize, tag: Tag) {
        self.space.set_word(block - WORD, tag.0);
    }

    /// Writes a block's header and footer.
    fn set(&mut self, block: usize, tag: Tag) {
        self.set_header(block, tag);
        self.space.set_word(block + tag.size() - OVERHEAD, tag.0);
    }
}

/// The probable cause of an invalid word before a block.
const BEFORE: &str = "the holder of the block before it has written beyond its end";

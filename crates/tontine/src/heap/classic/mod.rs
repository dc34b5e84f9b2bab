//! A textbook's allocator: one arena, an implicit list of blocks, header and footer of 8 bytes
//! each: [`Heap`]; with one lock for all threads, [`Locked`].
//!
//! Every block is found by going from header to header, so `malloc` takes as long as there are
//! blocks; `free` joins a block with its free neighbours at once, in constant time, by the
//! neighbours' footer and header. What two threads get from it may lie in one cache line, and both
//! have to pass the lock. It is not made to be fast: it is what others are compared with.
//!
//! ```
//! use tontine::heap::classic::{Heap, Options};
//!
//! let mut heap = Heap::new(Options::new())?;
//! let block = heap.malloc(32)?;
//! // SAFETY: 32 bytes from there on are ours.
//! unsafe { block.write_bytes(7, 32) };
//! println!("{}", heap.check()?);
//! // SAFETY: it is of this heap, and nobody uses it any more.
//! unsafe { heap.free(block)? };
//! # Ok::<(), tontine::heap::HeapError>(())
//! ```
//!
//! Layout, from the first byte: 8 bytes of nothing, so that payloads are aligned to 16; the
//! prologue, a block of 16 bytes without payload; the blocks; a header of size 0 that ends the
//! list. The first block's payload is at offset 0x20. Source: seed 003, whose map docs/heap.md has;
//! Bryant and O'Hallaron, *Computer Systems*, 9.9.

#![allow(unsafe_code, reason = "`free` has a promise that only its caller can keep")]

mod locked;
mod map;
#[cfg(test)]
mod properties;
mod space;
mod tag;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::ptr::NonNull;

pub use locked::Locked;
pub use map::{Block, Map};

use super::{HeapError, Result};
use space::{Space, WORD};
use tag::{ALIGN, Tag};

/// What header and footer take.
const OVERHEAD: usize = 2 * WORD;
/// The prologue's payload, of no bytes.
const PROLOGUE: usize = ALIGN;
/// The first block's payload.
const FIRST: usize = PROLOGUE + OVERHEAD;
/// The smallest block: header, footer, 16 bytes of payload.
const LEAST: usize = OVERHEAD + ALIGN;
/// The heap grows by so many bytes, or by more where a block needs more.
const EXTENSION: usize = 4096;
/// The smallest heap.
const LEAST_HEAP: usize = FIRST + EXTENSION;
/// The largest: what a processor can address.
const MOST_HEAP: usize = 1 << 46;

/// Which free block is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fit {
    /// The first that is large enough.
    #[default]
    First,
    /// The first that is large enough from the last one on that was found, then from the beginning.
    Next,
    /// The smallest that is large enough, of several the first.
    Best,
}

/// How a heap is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    fit: Fit,
    most: usize,
}

impl Options {
    /// First fit, up to 1 GiB.
    pub const fn new() -> Self {
        Self { fit: Fit::First, most: 1 << 30 }
    }

    /// Which free block is taken.
    pub const fn fit(mut self, fit: Fit) -> Self {
        self.fit = fit;
        self
    }

    /// Bytes to which the heap may grow; it begins with 4,128 of them. Address space is reserved
    /// for all, memory is taken as it is used.
    pub const fn most(mut self, bytes: usize) -> Self {
        self.most = bytes;
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// The heap: `mm_init`, `mm_malloc`, `mm_free`, `mm_checkheap` and `mm_deinit` of the source are
/// [`Heap::new`], [`Heap::malloc`], [`Heap::free`], [`Heap::check`] and dropping it.
///
/// A forked child has a copy of its own, as of all its parent's memory.
#[derive(Debug)]
pub struct Heap {
    space: Space,
    fit: Fit,
    /// A block, or the list's end: where the search of [`Fit::Next`] begins.
    rover: usize,
}

impl Heap {
    /// A heap with one free block of 4,096 bytes.
    ///
    /// # Errors
    /// [`HeapError::InvalidSize`]: [`Options::most`] is below 4,128 or above 2⁴⁶. [`HeapError::System`]: the
    /// system does not have so much.
    pub fn new(options: Options) -> Result<Self> {
        let Options { fit, most } = options;
        if most < LEAST_HEAP {
            let reason = "it begins with 4,128 bytes; allow that many";
            return Err(HeapError::InvalidSize { size: most, reason });
        }
        if most > MOST_HEAP {
            let reason = "no processor addresses that many; allow 2⁴⁶ at most";
            return Err(HeapError::InvalidSize { size: most, reason });
        }
        let mut heap = Self { space: Space::reserve(most)?, fit, rover: FIRST };
        heap.space.grow(FIRST)?;
        heap.set(PROLOGUE, Tag::allocated(OVERHEAD));
        heap.set_header(FIRST, Tag::allocated(0));
        heap.extend(EXTENSION)?;
        Ok(heap)
    }

    /// A block of at least `size` bytes, aligned to 16; 16 bytes where none are asked for. What is
    /// in it is whatever was there before. It can be used until it is freed or the heap is dropped.
    ///
    /// # Errors
    /// [`HeapError::Full`]: there is no room for it, and the heap cannot grow so far.
    /// [`HeapError::Corrupted`]: what stands between the blocks was overwritten. [`HeapError::System`]: the
    /// kernel has no memory.
    pub fn malloc(&mut self, size: usize) -> Result<NonNull<u8>> {
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

    /// Takes a block back, and joins it with its free neighbours.
    ///
    /// # Errors
    /// Where the promise below is broken, and that can be seen: [`HeapError::NotInHeap`],
    /// [`HeapError::InvalidPointer`], [`HeapError::DoubleFree`]. [`HeapError::Corrupted`]: what stands at its ends, or
    /// at its neighbours', was overwritten. Nothing has changed then.
    ///
    /// # Safety
    /// The block is one that this heap's `malloc` returned, it was not freed since, and nobody uses
    /// it any more. Not every mistake can be seen: where somebody else has the block meanwhile, or
    /// bytes within a block look like a header and a footer, it is freed under its holder.
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<()> {
        let (block, size) = self.allocated_at(block)?;
        let joined = self.free_around(block, size)?;
        // Its header stays behind where it is joined with the block before it: who frees it twice
        // is told so.
        self.set(block, Tag::free(size));
        self.join(joined);
        Ok(())
    }

    /// Looks at the whole heap, and draws its map.
    ///
    /// # Errors
    /// [`HeapError::Corrupted`], with the first block that is not as it should be: header and footer are
    /// not the same, a size leads out of the heap, or two free blocks stand side by side.
    pub fn check(&self) -> Result<Map> {
        self.check_prologue()?;
        let mut blocks = vec![Block { offset: PROLOGUE, size: OVERHEAD, allocated: true }];
        let (mut offset, end) = (FIRST, self.space.used());
        while offset != end {
            let tag = self.sound(offset)?;
            let (size, allocated) = (tag.size(), tag.is_allocated());
            if !allocated && blocks.last().is_some_and(|before| !before.allocated) {
                let what =
                    "expected no two free blocks side by side, found this block and the one \
                            before it free"
                        .into();
                return Err(HeapError::Corrupted { offset, what });
            }
            blocks.push(Block { offset, size, allocated });
            offset += size;
        }
        self.check_end()?;
        Ok(Map { base: self.space.address(0), blocks, end })
    }

    /// Bytes that the heap has, used or not.
    pub fn size(&self) -> usize {
        self.space.used()
    }

    /// The offset of an address from the heap's first byte, as errors and the [`Map`] have it; none
    /// where it lies outside.
    pub fn offset_of(&self, address: NonNull<u8>) -> Option<usize> {
        self.space.offset_of(address.as_ptr().addr())
    }

    #[cold]
    fn full(&self, asked: usize) -> HeapError {
        HeapError::Full { asked, size: self.space.used(), max: self.space.most() }
    }

    /// A free block of at least `whole` bytes, and its bytes.
    fn find(&self, whole: usize) -> Result<Option<(usize, usize)>> {
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

    /// The first of the blocks that is free and large enough.
    fn first(&self, among: Range<usize>, whole: usize) -> Result<Option<usize>> {
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

    /// The smallest of all that is large enough.
    fn best(&self, whole: usize) -> Result<Option<usize>> {
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

    /// The next block's offset, or the list's end.
    fn behind(&self, block: usize, tag: Tag) -> Result<usize> {
        let next = block.saturating_add(tag.size());
        if tag.size() >= LEAST && next <= self.space.used() {
            return Ok(next);
        }
        Err(self.sound(block).err().unwrap_or_else(|| unreachable!("{tag} leads somewhere")))
    }

    /// Allocates a free block, and leaves what is over, if that is enough for one, a block.
    fn place(&mut self, block: usize, size: usize, whole: usize) {
        let over = size - whole;
        if over < LEAST {
            self.set(block, Tag::allocated(size));
        } else {
            self.set(block, Tag::allocated(whole));
            self.set(block + whole, Tag::free(over));
        }
    }

    /// A free block of at least `whole` bytes at the heap's end, joined with what is free before
    /// it, and its bytes; none where the heap may not grow so far.
    fn extend(&mut self, whole: usize) -> Result<Option<(usize, usize)>> {
        self.check_end()?;
        // The header that ended the list becomes the new block's.
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

    /// Makes one free block of all that lies there.
    fn join(&mut self, blocks: Range<usize>) {
        self.set(blocks.start, Tag::free(blocks.len()));
        if blocks.contains(&self.rover) {
            self.rover = blocks.start;
        }
    }

    /// From where to where it is free around a block that is being freed.
    fn free_around(&self, block: usize, size: usize) -> Result<Range<usize>> {
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

    /// Bytes of the block before this one, if that is free.
    fn free_before(&self, block: usize) -> Result<usize> {
        if block == FIRST {
            return self.check_prologue().map(|()| 0);
        }
        let footer = Tag(self.space.word(block - OVERHEAD));
        let before = block.checked_sub(footer.size()).filter(|before| *before >= FIRST);
        match before.map(|before| self.sound(before)) {
            Some(Ok(tag)) if tag == footer => Ok(if tag.is_allocated() { 0 } else { tag.size() }),
            _ => Err(HeapError::Corrupted {
                offset: block,
                what: format!(
                    "the footer before it, {footer}, matches no block's header: {BEFORE}"
                ),
            }),
        }
    }

    /// An allocated block by its address: its offset and its bytes.
    fn allocated_at(&self, address: NonNull<u8>) -> Result<(usize, usize)> {
        let address = address.as_ptr().addr();
        let offset = self.space.offset_of(address).filter(|offset| *offset >= FIRST);
        let offset = offset.ok_or(HeapError::NotInHeap { address })?;
        let tag = offset.is_multiple_of(ALIGN).then(|| self.sound(offset));
        match tag {
            Some(Ok(tag)) if tag.is_allocated() => Ok((offset, tag.size())),
            _ => Err(self.why_not(offset)),
        }
    }

    /// Why what lies there cannot be freed: goes through all blocks.
    #[cold]
    fn why_not(&self, offset: usize) -> HeapError {
        let Map { blocks, .. } = match self.check() {
            Ok(map) => map,
            Err(damaged) => return damaged,
        };
        let within = blocks.iter().rfind(|block| block.offset <= offset);
        let Block { offset: block, size, allocated } = *within.expect("a prologue at least");
        // A freed block that was joined with the one before it has its header still.
        let is_freed = || {
            let tag = self.header(offset);
            !tag.is_allocated() && tag.is_whole() && tag.size() >= LEAST
        };
        if !allocated && offset.is_multiple_of(ALIGN) && is_freed() {
            return HeapError::DoubleFree { offset };
        }
        HeapError::InvalidPointer { offset, block, size }
    }

    /// A block's tag, if it is the same at both ends and leads to another block.
    fn sound(&self, block: usize) -> Result<Tag> {
        let tag = self.header(block);
        let damaged = |what: String| Err(HeapError::Corrupted { offset: block, what });
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

    fn check_prologue(&self) -> Result<()> {
        let tags = [self.header(PROLOGUE), Tag(self.space.word(PROLOGUE))];
        if tags == [Tag::allocated(OVERHEAD); 2] {
            return Ok(());
        }
        let [header, footer] = tags;
        let what = format!("expected the prologue, 16:a twice, found {header} and {footer}");
        Err(HeapError::Corrupted { offset: PROLOGUE, what })
    }

    fn check_end(&self) -> Result<()> {
        let offset = self.space.used();
        match self.header(offset) {
            tag if tag == Tag::allocated(0) => Ok(()),
            tag => {
                let what = format!("expected the list's end, 0:a, found {tag}: {BEFORE}");
                Err(HeapError::Corrupted { offset, what })
            }
        }
    }

    fn header(&self, block: usize) -> Tag {
        Tag(self.space.word(block - WORD))
    }

    fn set_header(&mut self, block: usize, tag: Tag) {
        self.space.set_word(block - WORD, tag.0);
    }

    /// Writes header and footer.
    fn set(&mut self, block: usize, tag: Tag) {
        self.set_header(block, tag);
        self.space.set_word(block + tag.size() - OVERHEAD, tag.0);
    }
}

/// Who has written what stands before a block.
const BEFORE: &str = "the holder of the block before it has written beyond its end";

//! A textbook's allocator: one arena, an implicit list of blocks, header and footer of 8 bytes
//! each: [`Heap`]; with one lock for all threads, [`Locked`].
//!
//! Every block is found by going from header to header, so `malloc` takes as long as there are
//! blocks; `free` joins a block with its free neighbours at once, in constant time, by the
//! neighbours' footer and header. What two threads get from it may lie in one cache line, and both
//! have to pass the lock: that is what it is here to show. [`crate::heap`] has one that is fit for
//! production.
//!
//! ```
//! use tontine::heap::classic::{Heap, Options};
//!
//! let mut heap = Heap::new(Options::new())?;
//! let block = heap.malloc(32)?;
//! // SAFETY: 32 bytes from there on are ours.
//! unsafe { block.write_bytes(7, 32) };
//! println!("{}", heap.check()?);
//! // SAFETY: it is not used any more.
//! unsafe { heap.free(block)? };
//! # Ok::<(), tontine::heap::Error>(())
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

use super::{Error, Result};
use space::{Space, WORD};
use tag::{ALIGN, Tag};

/// The prologue's payload, of no bytes.
const PROLOGUE: usize = ALIGN;
/// The first block's payload.
const FIRST: usize = PROLOGUE + 2 * WORD;
/// What header and footer take.
const OVERHEAD: usize = 2 * WORD;
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
    /// The first that is large enough from where the last search ended, then from the beginning.
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
    /// A block, or the list's end: where the search of [`Fit::Next`] goes on.
    rover: usize,
}

impl Heap {
    /// A heap with one free block of 4,096 bytes.
    ///
    /// # Errors
    /// [`Error::BadSize`]: [`Options::most`] is below 4,128 or above 2⁴⁶. [`Error::Full`] and
    /// [`Error::System`]: the system does not have so much.
    pub fn new(options: Options) -> Result<Self> {
        let Options { fit, most } = options;
        let why = match most {
            ..LEAST_HEAP => "it begins with 4,128; allow it that many",
            LEAST_HEAP..=MOST_HEAP => "",
            _ => "no processor addresses so many; allow it 2⁴⁶ at most",
        };
        if !why.is_empty() {
            return Err(Error::BadSize { most, why });
        }
        let mut heap = Self { space: Space::reserve(most)?, fit, rover: FIRST };
        if !heap.space.grow(FIRST) {
            return Err(heap.full(0));
        }
        heap.set(PROLOGUE, Tag::allocated(OVERHEAD));
        heap.set_header(FIRST, Tag::allocated(0));
        match heap.extend(EXTENSION)? {
            Some(_) => Ok(heap),
            None => Err(heap.full(0)),
        }
    }

    /// A block of at least `size` bytes, aligned to 16; 16 bytes where none are asked for. What is
    /// in it is whatever was there before. It can be used until it is freed or the heap is dropped.
    ///
    /// # Errors
    /// [`Error::Full`]: there is no room for it, and the heap cannot grow so far.
    /// [`Error::Damaged`]: what stands between the blocks was overwritten.
    pub fn malloc(&mut self, size: usize) -> Result<NonNull<u8>> {
        let whole = size.checked_add(OVERHEAD + ALIGN - 1).filter(|whole| *whole <= MOST_HEAP);
        let Some(whole) = whole.map(|whole| (whole / ALIGN * ALIGN).max(LEAST)) else {
            return Err(self.full(size));
        };
        let found = match self.find(whole) {
            Some(block) => Some(block),
            None => self.extend(whole.max(EXTENSION))?,
        };
        let Some(block) = found else { return Err(self.full(size)) };
        self.sound(block)?;
        self.place(block, whole);
        Ok(self.space.at(block))
    }

    /// Takes a block back, and joins it with its free neighbours.
    ///
    /// # Errors
    /// [`Error::Foreign`], [`Error::NoBlock`], [`Error::FreeAlready`]: there is no such block that
    /// could be freed. [`Error::Damaged`]: what stands at its ends was overwritten. Nothing has
    /// changed then. Not every mistake is seen: where a block that was freed twice has been given
    /// out again meanwhile, its holder's is freed.
    ///
    /// # Safety
    /// Nobody uses the block any more.
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<()> {
        let block = self.allocated_at(block)?;
        let size = self.header(block).size();
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
    /// [`Error::Damaged`], with the first block that is not as it should be: header and footer are
    /// not the same, a size leads out of the heap, or two free blocks stand side by side.
    pub fn check(&self) -> Result<Map> {
        let damaged = |offset, what: String| Err(Error::Damaged { offset, what });
        let prologue = self.header(PROLOGUE);
        if prologue != Tag::allocated(OVERHEAD) || self.footer(PROLOGUE) != Some(prologue) {
            let what = format!("expected the prologue, 16:a, found {prologue}: {BEFORE}");
            return damaged(PROLOGUE, what);
        }
        let mut blocks = vec![Block { offset: PROLOGUE, size: OVERHEAD, allocated: true }];
        let mut block = FIRST;
        while block != self.space.used() {
            let tag = self.sound(block)?;
            let before = blocks.last().expect("there is a prologue");
            if !before.allocated && !tag.is_allocated() {
                return damaged(block, "it and the block before it are free, and not one".into());
            }
            blocks.push(Block { offset: block, size: tag.size(), allocated: tag.is_allocated() });
            block += tag.size();
        }
        let end = self.header(block);
        if end != Tag::allocated(0) {
            return damaged(block, format!("expected the list's end, 0:a, found {end}: {BEFORE}"));
        }
        Ok(Map { base: self.space.address(0), blocks, end: block })
    }

    /// Bytes that the heap has, used or not.
    pub fn size(&self) -> usize {
        self.space.used()
    }

    /// The offset of an address from the heap's first byte, as errors and the [`Map`] have it.
    pub fn offset_of(&self, address: NonNull<u8>) -> Option<usize> {
        self.space.offset_of(address.as_ptr().addr())
    }

    #[cold]
    fn full(&self, asked: usize) -> Error {
        Error::Full { asked, size: self.space.used(), most: self.space.most() }
    }

    /// A free block of at least `whole` bytes.
    fn find(&mut self, whole: usize) -> Option<usize> {
        let end = self.space.used();
        let fits = |&(_, tag): &(usize, Tag)| !tag.is_allocated() && tag.size() >= whole;
        match self.fit {
            Fit::First => self.blocks(FIRST, end).find(fits),
            Fit::Next => {
                let behind = self.blocks(self.rover, end).find(fits);
                let found = behind.or_else(|| self.blocks(FIRST, self.rover).find(fits));
                self.rover = found.map_or(self.rover, |(block, _)| block);
                found
            }
            Fit::Best => self.blocks(FIRST, end).filter(fits).min_by_key(|(_, tag)| tag.size()),
        }
        .map(|(block, _)| block)
    }

    /// The blocks from one on to before another; ends early where a size leads nowhere.
    fn blocks(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, Tag)> {
        let mut next = from;
        std::iter::from_fn(move || {
            let block = (next < to).then_some(next)?;
            let tag = self.header(block);
            next = match tag.size() {
                0 => to,
                size => block.saturating_add(size),
            };
            Some((block, tag))
        })
    }

    /// Allocates a free block, and leaves what is over, if that is enough for one, a block.
    fn place(&mut self, block: usize, whole: usize) {
        let size = self.header(block).size();
        let over = size - whole;
        if over < LEAST {
            self.set(block, Tag::allocated(size));
        } else {
            self.set(block, Tag::allocated(whole));
            self.set(block + whole, Tag::free(over));
        }
    }

    /// A free block at the heap's end, joined with what is free before it; none where the heap may
    /// not grow so far.
    fn extend(&mut self, bytes: usize) -> Result<Option<usize>> {
        // The header that ended the list becomes the new block's.
        let block = self.space.used();
        let before = self.free_before(block)?;
        if !self.space.grow(bytes) {
            return Ok(None);
        }
        self.set_header(block + bytes, Tag::allocated(0));
        self.join(block - before..block + bytes);
        Ok(Some(block - before))
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
        let behind = match self.header(block + size) {
            tag if tag.is_allocated() => 0,
            _ => self.sound(block + size)?.size(),
        };
        Ok(block - self.free_before(block)?..block + size + behind)
    }

    /// Bytes of the block before this one, if that is free.
    fn free_before(&self, block: usize) -> Result<usize> {
        let footer = Tag(self.space.word(block - 2 * WORD));
        if footer.is_allocated() {
            return Ok(0);
        }
        let before = block.checked_sub(footer.size()).filter(|before| *before >= FIRST);
        match before.map(|before| self.sound(before)) {
            Some(Ok(tag)) if tag == footer => Ok(tag.size()),
            _ => Err(Error::Damaged {
                offset: block,
                what: format!("the footer before it is {footer}, of no block: {BEFORE}"),
            }),
        }
    }

    /// The offset of an allocated block by its address.
    fn allocated_at(&self, address: NonNull<u8>) -> Result<usize> {
        let address = address.as_ptr().addr();
        let outside = Error::Foreign { address };
        let offset = self.space.offset_of(address).filter(|offset| *offset >= FIRST);
        let offset = offset.ok_or(outside)?;
        // A header that is freed says so until somebody else writes there.
        let tag = offset.is_multiple_of(ALIGN).then(|| self.header(offset));
        match tag {
            Some(tag) if tag.is_allocated() && self.sound(offset).is_ok() => Ok(offset),
            _ => Err(self.why_not(offset)),
        }
    }

    /// Why what lies there cannot be freed: goes through all blocks.
    #[cold]
    fn why_not(&self, offset: usize) -> Error {
        let mut block = FIRST;
        loop {
            let tag = match self.sound(block) {
                Ok(tag) => tag,
                Err(damaged) => return damaged,
            };
            if offset < block + tag.size() {
                let inside = offset != block;
                return match tag.is_allocated() {
                    true => Error::NoBlock { offset, block, size: tag.size() },
                    // A free block may have swallowed it.
                    false if !inside || offset.is_multiple_of(ALIGN) => {
                        Error::FreeAlready { offset }
                    }
                    false => Error::NoBlock { offset, block, size: tag.size() },
                };
            }
            block += tag.size();
            if block >= self.space.used() {
                return Error::Foreign { address: self.space.address(offset) };
            }
        }
    }

    /// A block's tag, if it is the same at both ends and leads to another block.
    fn sound(&self, block: usize) -> Result<Tag> {
        let tag = self.header(block);
        let damaged = |what: String| Err(Error::Damaged { offset: block, what });
        match self.footer(block) {
            _ if tag.0 & !1 != tag.size() as u64 => {
                damaged(format!("its header is {tag}, which is no size: {BEFORE}"))
            }
            None => damaged(format!("its header says {tag}, which leads nowhere: {BEFORE}")),
            Some(footer) if footer != tag => damaged(format!(
                "its header says {tag}, its footer {footer}: its holder has written beyond its \
                 end, or the next one's before its beginning"
            )),
            Some(_) => Ok(tag),
        }
    }

    fn header(&self, block: usize) -> Tag {
        Tag(self.space.word(block - WORD))
    }

    /// None where the header's size leads nowhere.
    fn footer(&self, block: usize) -> Option<Tag> {
        let size = self.header(block).size();
        let end = block.checked_add(size).filter(|end| *end <= self.space.used())?;
        (size >= OVERHEAD).then(|| Tag(self.space.word(end - 2 * WORD)))
    }

    fn set_header(&mut self, block: usize, tag: Tag) {
        self.space.set_word(block - WORD, tag.0);
    }

    /// Writes header and footer.
    fn set(&mut self, block: usize, tag: Tag) {
        self.set_header(block, tag);
        self.space.set_word(block + tag.size() - 2 * WORD, tag.0);
    }
}

/// Who has written what stands before a block.
const BEFORE: &str = "the holder of the block before it has written beyond its end";

//! A textbook allocator for one process: [`ClassicHeap`], and [`LockedHeap`], which threads share
//! under one lock. It has one arena and an implicit list of blocks, each with a header and a footer
//! of 8 bytes.
//!
//! `malloc` walks from header to header until it finds a free block, so its time grows with the
//! number of blocks. `free` immediately joins a block with its free neighbours. This takes constant
//! time, because the footer before the block and the header after it describe the neighbours.
//! Blocks of two threads may share a cache line, and both threads need the lock. The allocator is
//! not fast: it is a reference for comparisons.
//!
//! # Examples
//! ```
//! use tontine::heap::classic::ClassicHeap;
//!
//! let mut heap = ClassicHeap::new()?;
//! let block = heap.malloc(32)?;
//! // SAFETY: the block has 32 bytes.
//! unsafe { block.write_bytes(7, 32) };
//! println!("{}", heap.check()?);
//! // SAFETY: `malloc` of this heap returned the block, and nothing uses it any more.
//! unsafe { heap.free(block)? };
//! # Ok::<(), tontine::heap::HeapError>(())
//! ```
//!
//! # Layout
//! A heap begins with 8 unused bytes, so that payloads are aligned to 16. They are followed by the
//! *prologue*, which is a block of 16 bytes without payload, and by the blocks. A header of size 0
//! ends the list. The first block's payload is at offset 0x20. The design follows Bryant and
//! O'Hallaron, *Computer Systems*, 9.9.

#![allow(unsafe_code, reason = "only the caller can uphold the contract of `free`")]

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

pub use locked::LockedHeap;
pub use map::{BlockInfo, Map};

use super::{HeapError, Result};
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
/// Minimum size of a heap.
const LEAST_HEAP: usize = FIRST + EXTENSION;
/// Maximum size of a heap: the bytes that a processor can address.
const MOST_HEAP: usize = 1 << 46;

/// The rule by which [`ClassicHeap::malloc`] chooses a free block. See [`ClassicHeapOptions`] for
/// an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fit {
    /// The first block that is large enough.
    #[default]
    First,
    /// The first block that is large enough, searched for from the previous result to the end and
    /// then from the beginning.
    Next,
    /// The smallest block that is large enough, or the first of several such blocks.
    Best,
}

/// Settings of a new [`ClassicHeap`].
///
/// # Examples
/// ```
/// use tontine::heap::classic::{ClassicHeapOptions, Fit};
///
/// let heap = ClassicHeapOptions::new().fit(Fit::Best).max_size(1 << 20).create()?;
/// assert_eq!(heap.size(), 4_128);
/// # Ok::<(), tontine::heap::HeapError>(())
/// ```
#[must_use = "options do nothing until `create` is called"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassicHeapOptions {
    fit: Fit,
    max_size: usize,
}

impl ClassicHeapOptions {
    /// Returns the default settings: first fit, at most 1 GiB.
    pub const fn new() -> Self {
        Self { fit: Fit::First, max_size: 1 << 30 }
    }

    /// Sets the rule by which `malloc` chooses a free block. Default: [`Fit::First`].
    pub const fn fit(mut self, fit: Fit) -> Self {
        self.fit = fit;
        self
    }

    /// Sets the maximum number of bytes that the heap may have, from 4,128 to 2⁴⁶. Default: 1 GiB.
    ///
    /// The heap begins with 4,128 bytes. Address space is reserved for the maximum; memory is used
    /// as the heap grows.
    pub const fn max_size(mut self, bytes: usize) -> Self {
        self.max_size = bytes;
        self
    }

    /// Creates a heap with one free block of 4,096 bytes.
    ///
    /// # Errors
    /// - [`HeapError::InvalidSize`] if [`max_size`](Self::max_size) is below 4,128 or above 2⁴⁶.
    /// - [`HeapError::System`] if the kernel has no address space or memory for the heap.
    pub fn create(self) -> Result<ClassicHeap> {
        ClassicHeap::with(self)
    }
}

impl Default for ClassicHeapOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A heap of one process, for one thread at a time. Dropping it unmaps it with all its blocks.
///
/// The functions that courses call `mm_init`, `mm_malloc`, `mm_free` and `mm_checkheap` are
/// [`ClassicHeap::new`], [`ClassicHeap::malloc`], [`ClassicHeap::free`] and [`ClassicHeap::check`];
/// to do what `mm_deinit` does, drop the heap.
///
/// A forked child receives a copy of the heap, as it does of all its parent's memory.
///
/// # Examples
/// ```
/// use tontine::heap::HeapError;
/// use tontine::heap::classic::ClassicHeap;
///
/// let mut heap = ClassicHeap::new()?;
/// let block = heap.malloc(100)?;
/// // SAFETY: `malloc` of this heap returned the block, and nothing uses it any more.
/// unsafe { heap.free(block)? };
/// // SAFETY: the block is free, which the heap detects.
/// let twice = unsafe { heap.free(block) };
/// assert_eq!(twice, Err(HeapError::DoubleFree { offset: 0x20 }));
/// # Ok::<(), HeapError>(())
/// ```
#[derive(Debug)]
pub struct ClassicHeap {
    space: ReservedSpace,
    fit: Fit,
    /// Block, or end of the list, at which the search of [`Fit::Next`] begins.
    rover: usize,
}

impl ClassicHeap {
    /// Creates a heap with the default settings: first fit, at most 1 GiB.
    ///
    /// # Errors
    /// [`HeapError::System`] if the kernel has no address space or memory for the heap.
    pub fn new() -> Result<Self> {
        ClassicHeapOptions::new().create()
    }

    fn with(options: ClassicHeapOptions) -> Result<Self> {
        let ClassicHeapOptions { fit, max_size } = options;
        if max_size < LEAST_HEAP {
            let reason = "it begins with 4,128 bytes; allow that many";
            return Err(HeapError::InvalidSize { size: max_size, reason });
        }
        if max_size > MOST_HEAP {
            let reason = "no processor addresses that many; allow 2⁴⁶ at most";
            return Err(HeapError::InvalidSize { size: max_size, reason });
        }
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
    ///
    /// # Errors
    /// - [`HeapError::Full`] if no free block is large enough, and the heap cannot grow that far.
    /// - [`HeapError::Corrupted`] if headers or footers between the blocks were overwritten.
    /// - [`HeapError::System`] if the kernel has no memory.
    ///
    /// # Examples
    /// ```
    /// let mut heap = tontine::heap::classic::ClassicHeap::new()?;
    /// let block = heap.malloc(100)?;
    /// assert_eq!(block.addr().get() % 16, 0);
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
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

    /// Frees a block, and joins it with its free neighbours.
    ///
    /// # Errors
    /// The heap detects some violations of the contract and some writes beyond a block's bounds. In
    /// each case, the heap is unchanged.
    ///
    /// - [`HeapError::NotInHeap`] if the pointer is outside the heap.
    /// - [`HeapError::InvalidPointer`] if no block begins there.
    /// - [`HeapError::DoubleFree`] if the block is already free.
    /// - [`HeapError::Corrupted`] if the header or footer of the block, or of a neighbour, was
    ///   overwritten.
    ///
    /// # Safety
    /// The caller must ensure:
    ///
    /// 1. `malloc` of this heap returned `block`.
    /// 2. The block has not been freed since then.
    /// 3. No pointer or reference to the block's bytes is used after the call.
    ///
    /// The errors do not cover every violation: if `malloc` has since allocated the memory to
    /// another holder, or bytes inside a block look like a header and a footer, that holder's block
    /// is freed.
    ///
    /// # Examples
    /// ```
    /// let mut heap = tontine::heap::classic::ClassicHeap::new()?;
    /// let block = heap.malloc(100)?;
    /// // SAFETY: `malloc` of this heap returned the block, and nothing uses it any more.
    /// unsafe { heap.free(block)? };
    /// assert_eq!(heap.check()?.blocks().len(), 2); // the prologue, and one free block
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub unsafe fn free(&mut self, block: NonNull<u8>) -> Result<()> {
        let (block, size) = self.allocated_at(block)?;
        let joined = self.free_around(block, size)?;
        // If the block is joined with the block before it, its old header stays in the payload, so
        // that a second `free` is detected.
        self.set(block, Tag::free(size));
        self.join(joined);
        Ok(())
    }

    /// Checks all blocks of the heap, and returns them as a [`Map`].
    ///
    /// # Errors
    /// [`HeapError::Corrupted`] with the first block whose header and footer differ, whose size
    /// leads outside the heap, or which is free and follows a free block.
    ///
    /// # Examples
    /// ```
    /// let mut heap = tontine::heap::classic::ClassicHeap::new()?;
    /// heap.malloc(32)?;
    /// let map = heap.check()?;
    /// let sizes: Vec<_> = map.blocks().iter().map(|block| block.size).collect();
    /// assert_eq!(sizes, [16, 48, 4048]); // the prologue, the block, the free rest
    /// print!("{map}");
    /// # Ok::<(), tontine::heap::HeapError>(())
    /// ```
    pub fn check(&self) -> Result<Map> {
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
                return Err(HeapError::Corrupted { offset, what });
            }
            blocks.push(BlockInfo { offset, size, allocated });
            offset += size;
        }
        self.check_end()?;
        Ok(Map { base: self.space.address(0), blocks, end })
    }

    /// Returns the size of the heap in bytes, including free blocks.
    pub fn size(&self) -> usize {
        self.space.used()
    }

    /// Returns an address's offset from the heap's first byte, by which errors and the [`Map`] name
    /// blocks, or `None` if the address is outside the heap.
    pub fn offset_of(&self, address: NonNull<u8>) -> Option<usize> {
        self.space.offset_of(address.as_ptr().addr())
    }

    #[cold]
    fn full(&self, asked: usize) -> HeapError {
        HeapError::Full { asked, size: self.space.used(), max: self.space.most() }
    }

    /// Returns a free block of at least `whole` bytes, and its size.
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

    /// Returns the first free block that has at least `whole` bytes and begins within a range.
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

    /// Returns the smallest free block that has at least `whole` bytes.
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

    /// Returns the offset of the next block, or of the end of the list.
    fn behind(&self, block: usize, tag: Tag) -> Result<usize> {
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
    fn extend(&mut self, whole: usize) -> Result<Option<(usize, usize)>> {
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

    /// Returns the size of the block before this one, or 0 if the block before is allocated.
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

    /// Returns the offset and size of the allocated block at an address.
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

    /// Returns the error for an offset at which no block can be freed. Walks all blocks.
    #[cold]
    fn why_not(&self, offset: usize) -> HeapError {
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
            return HeapError::DoubleFree { offset };
        }
        HeapError::InvalidPointer { offset, block, size }
    }

    /// Returns a block's tag, if header and footer are equal and the size leads to another block.
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

    /// Writes a block's header and footer.
    fn set(&mut self, block: usize, tag: Tag) {
        self.set_header(block, tag);
        self.space.set_word(block + tag.size() - OVERHEAD, tag.0);
    }
}

/// The probable cause of an invalid word before a block.
const BEFORE: &str = "the holder of the block before it has written beyond its end";

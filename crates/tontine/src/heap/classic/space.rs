//! Where a classic heap lies: address space that is reserved once and used from its beginning on:
//! [`Space`].
//!
//! A word is read and written by its offset, and each access is checked against what is in use: a
//! block whose size somebody has overwritten leads nowhere outside of the heap.

#![allow(unsafe_code, reason = "reserves memory, and reads and writes words in it")]

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::heap::{HeapError, Result};

/// Memory is made usable in steps of so many bytes: fewer calls than growing needs.
const STEP: usize = 1 << 20;
/// Bytes of a word: a header, or a footer.
pub(super) const WORD: usize = size_of::<u64>();

/// Reserved addresses, `used` bytes of which can be read and written.
#[derive(Debug)]
pub(super) struct Space {
    base: NonNull<u8>,
    reserved: usize,
    /// Can be read and written; a multiple of [`STEP`], or all.
    usable: usize,
    used: usize,
}

// SAFETY: the memory belongs to the process, and to this handle alone.
unsafe impl Send for Space {}

impl Space {
    /// Reserves `most` bytes, none of them in use. The first one is at a page's begin.
    ///
    /// # Errors
    /// [`HeapError::System`]: there is less address space than that.
    pub(super) fn reserve(most: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                most,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| HeapError::System { call: "mmap", errno: errno.raw_os_error() })?;
        let base = NonNull::new(base.cast()).expect("no mapping begins at null");
        Ok(Self { base, reserved: most, usable: 0, used: 0 })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Bytes that may come to be in use.
    pub(super) fn most(&self) -> usize {
        self.reserved
    }

    /// The address of the byte at this offset.
    pub(super) fn address(&self, offset: usize) -> usize {
        self.base.as_ptr().addr() + offset
    }

    /// The byte at an offset that is in use, or at the end of those.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.used, "{offset:#x} is beyond the heap's end");
        // SAFETY: within the mapping.
        unsafe { self.base.add(offset) }
    }

    /// The offset of an address that is in use.
    pub(super) fn offset_of(&self, address: usize) -> Option<usize> {
        address.checked_sub(self.address(0)).filter(|offset| *offset < self.used)
    }

    /// Bytes that are left to be taken into use.
    pub(super) fn left(&self) -> usize {
        self.reserved - self.used
    }

    /// Takes `bytes` more into use, zeroes.
    ///
    /// # Errors
    /// [`HeapError::System`]: the kernel has no memory for them.
    ///
    /// # Panics
    /// There are not so many left.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<()> {
        assert!(bytes <= self.left(), "{bytes} bytes are not reserved");
        let used = self.used + bytes;
        if used > self.usable {
            let usable = used.next_multiple_of(STEP).min(self.reserved);
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: a range of this mapping, whose content stays as it is.
            unsafe { rustix::mm::mprotect(self.base.as_ptr().cast(), usable, access) }.map_err(
                |errno| HeapError::System { call: "mprotect", errno: errno.raw_os_error() },
            )?;
            self.usable = usable;
        }
        self.used = used;
        Ok(())
    }

    /// The word at an offset.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> u64 {
        let place = self.place(offset);
        // SAFETY: aligned, in use, and outside of all blocks that somebody has, as long as callers
        // of `ClassicHeap::free` keep their promise; written beyond a block's end, it is any
        // number.
        unsafe { place.read() }
    }

    /// Writes it.
    #[inline]
    pub(super) fn set_word(&mut self, offset: usize, word: u64) {
        let place = self.place(offset);
        // SAFETY: as above.
        unsafe { place.write(word) };
    }

    #[inline]
    fn place(&self, offset: usize) -> NonNull<u64> {
        assert!(
            offset.is_multiple_of(WORD) && offset < self.used,
            "{offset:#x} is no word of the heap"
        );
        // SAFETY: within the mapping.
        unsafe { self.base.add(offset) }.cast()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: the mapping is this handle's, and blocks end with the heap, as
        // `ClassicHeap::malloc` says.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.reserved) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

//! A classic heap's memory: address space that is reserved once, and used from its start upwards
//! ([`ReservedSpace`]).
//!
//! Words are read and written by their offsets. Each access is checked against the number of bytes
//! in use, so that an overwritten size cannot lead to an address outside the heap.

#![allow(unsafe_code, reason = "reserves memory, and reads and writes words in it")]

use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::ClassicError;

/// Number of bytes that one system call makes usable. It exceeds the bytes by which the heap grows,
/// so that fewer calls are needed.
const STEP: usize = 1 << 20;
/// Bytes of a word: a header, or a footer.
pub(super) const WORD: usize = size_of::<u64>();

/// Reserved addresses, `used` bytes of which can be read and written.
#[derive(Debug)]
pub(super) struct ReservedSpace {
    base: NonNull<u8>,
    reserved: usize,
    /// Number of bytes that can be read and written: a multiple of [`STEP`], or all reserved bytes.
    usable: usize,
    used: usize,
}

// SAFETY: the memory belongs to the process, and only this handle refers to it.
unsafe impl Send for ReservedSpace {}

impl ReservedSpace {
    /// Reserves `most` bytes, none of them in use. The first byte is page-aligned.
    pub(super) fn reserve(most: usize) -> Result<Self, ClassicError> {
        // SAFETY: the call creates a new mapping at an address that the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                most,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|errno| ClassicError::System { call: "mmap", errno: errno.raw_os_error() })?;
        let base = NonNull::new(base.cast()).expect("no mapping begins at null");
        Ok(Self { base, reserved: most, usable: 0, used: 0 })
    }

    /// Returns the number of bytes in use.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Returns the maximum number of bytes in use.
    pub(super) fn most(&self) -> usize {
        self.reserved
    }

    /// Returns the address of the byte at an offset.
    pub(super) fn address(&self, offset: usize) -> usize {
        self.base.as_ptr().addr() + offset
    }

    /// Returns a pointer to the byte at an offset. The byte is in use, or is the end of the bytes
    /// in use.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.used, "{offset:#x} is beyond the heap's end");
        // SAFETY: the offset is within the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Returns the offset of an address, if it is in use.
    pub(super) fn offset_of(&self, address: usize) -> Option<usize> {
        address.checked_sub(self.address(0)).filter(|offset| *offset < self.used)
    }

    /// Returns the number of reserved bytes that are not in use.
    pub(super) fn left(&self) -> usize {
        self.reserved - self.used
    }

    /// Brings `bytes` more bytes into use. They are zero.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), ClassicError> {
        assert!(bytes <= self.left(), "{bytes} bytes are not reserved");
        let used = self.used + bytes;
        if used > self.usable {
            let usable = used.next_multiple_of(STEP).min(self.reserved);
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: the range is part of this mapping, and its content is unchanged.
            unsafe { rustix::mm::mprotect(self.base.as_ptr().cast(), usable, access) }.map_err(
                |errno| ClassicError::System { call: "mprotect", errno: errno.raw_os_error() },
            )?;
            self.usable = usable;
        }
        self.used = used;
        Ok(())
    }

    /// Returns the word at an offset.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> u64 {
        let place = self.place(offset);
        // SAFETY: the word is aligned, in use, and outside every block that a caller holds,
        // provided that the callers of `ClassicHeap::free` uphold its contract. If a holder has
        // written beyond its block's end, the word may have any value.
        unsafe { place.read() }
    }

    /// Writes the word at an offset.
    #[inline]
    pub(super) fn set_word(&mut self, offset: usize, word: u64) {
        let place = self.place(offset);
        // SAFETY: the reason is the same as in `word`.
        unsafe { place.write(word) };
    }

    #[inline]
    fn place(&self, offset: usize) -> NonNull<u64> {
        assert!(
            offset.is_multiple_of(WORD) && offset < self.used,
            "{offset:#x} is not the offset of a word of the heap"
        );
        // SAFETY: the offset is within the mapping.
        unsafe { self.base.add(offset) }.cast()
    }
}

impl Drop for ReservedSpace {
    fn drop(&mut self) {
        // SAFETY: this handle owns the mapping, and blocks are valid only until the heap is
        // dropped, as `ClassicHeap::malloc` documents.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.reserved) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

//! Shared memory as a lane's [`LaneMemory`].
//!
//! Bytes that another process may be writing are copied with atomic loads or with an instruction
//! that is opaque to the compiler; the module never makes a Rust reference to them.

#![allow(unsafe_code, reason = "views of memory that another process writes")]

use super::region::LaneMemory;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::sys::region::{OwnRegion, PeerRegion};

/// Maximum length in bytes of a copy made word by word. Longer copies use a string instruction,
/// which is slow to start.
const SHORT: usize = 512;

/// Length in bytes of a line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

impl LaneMemory for OwnRegion {
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= self.size() && at.is_multiple_of(8));
        // SAFETY: the word is inside the mapping (callers stay within the size that they
        // requested), is aligned, and lives as long as `self`. All access to shared words is
        // atomic.
        unsafe { self.base().add(at).cast::<AtomicU64>().as_ref() }
    }

    #[inline(always)]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.size());
        if bytes.len() == 8 {
            let word = u64::from_ne_bytes(bytes.try_into().expect("eight"));
            return self.word(at).store(word, Ordering::Relaxed);
        }
        // SAFETY: the bytes are inside the mapping, which only this process writes, and only
        // through this handle. The program's slice cannot overlap the mapping, because only a
        // `Reservation` holds a reference into it, and a `Reservation` borrows the sender.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.base().add(at).as_ptr(),
                bytes.len(),
            );
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn copy_in_past_cache(&self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.size());
        // The first and the last line may contain the words of records, which are in the cache.
        let first = at.wrapping_neg() % LINE;
        let Some((first, rest)) = bytes.split_at_checked(first) else {
            return self.copy_in(at, bytes);
        };
        let (lines, last) = rest.split_at(rest.len() / LINE * LINE);
        let lines_at = at + first.len();
        self.copy_in(at, first);
        self.copy_in(lines_at + lines.len(), last);
        // SAFETY: the bytes are inside the mapping, which only this process writes, and only
        // through this handle; `copy_in` explains why the slice does not overlap the mapping. The
        // mapping begins at a page, so `lines_at` is the address of a line.
        unsafe { copy_lines_past_cache(lines, self.base().add(lines_at).as_ptr()) }
    }

    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        debug_assert!(at + length <= self.size());
        // SAFETY: the bytes are inside the mapping. No other process writes the mapping, and this
        // process does not write it during the borrow.
        into.extend_from_slice(unsafe {
            std::slice::from_raw_parts(self.base().add(at).as_ptr(), length)
        });
    }
}

impl LaneMemory for PeerRegion {
    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at + 8 <= self.size() && at.is_multiple_of(8));
        // SAFETY: the word is inside the mapping (callers check untrusted values against the size),
        // is aligned, and lives as long as `self`. The mapping is read-only: callers only load.
        unsafe { self.base().add(at).cast::<AtomicU64>().as_ref() }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn expect_reading(&self, at: usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base().as_ptr().wrapping_add(at).cast()) }
    }

    fn copy_in(&self, _: usize, _: &[u8]) {
        unreachable!("a write to a peer's region");
    }

    #[inline(always)]
    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        debug_assert!(at + length.next_multiple_of(8) <= self.size());
        into.reserve(length.next_multiple_of(8));
        let start = into.len();
        if (1..=8).contains(&length) {
            let word = self.word(at).load(Ordering::Relaxed);
            // SAFETY: space for a whole word was reserved above.
            unsafe { into.as_mut_ptr().add(start).cast::<u64>().write_unaligned(word) }
        } else if length <= SHORT {
            let mut offset = 0;
            while offset < length {
                let word = self.word(at + offset).load(Ordering::Relaxed);
                // SAFETY: space for whole words was reserved above.
                unsafe { into.as_mut_ptr().add(start + offset).cast::<u64>().write_unaligned(word) }
                offset += 8;
            }
        } else {
            // SAFETY: `length` bytes are inside the mapping and inside the reserved space.
            unsafe { copy_long(self.base().add(at).as_ptr(), into.as_mut_ptr().add(start), length) }
        }
        // SAFETY: `length` bytes were just written after `start`.
        unsafe { into.set_len(start + length) }
    }
}

impl PeerRegion {
    /// Returns the address of the byte at `at`.
    ///
    /// # Panics
    /// Panics if `at` is outside the region.
    pub(crate) fn place(&self, at: usize) -> std::ptr::NonNull<u8> {
        assert!(at <= self.size());
        // SAFETY: the pointer is inside the mapping or one byte past its end.
        unsafe { self.base().add(at) }
    }
}

/// Copies whole lines past the cache, in the instructions that every x86-64 processor has. Their
/// stores are weakly ordered: the `sfence` keeps later stores behind them.
///
/// # Safety
/// 1. `to` is valid for writes of as many bytes as `lines` has.
/// 2. The two ranges do not overlap.
/// 3. `to` is aligned to a line.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
unsafe fn copy_lines_past_cache(lines: &[u8], to: *mut u8) {
    debug_assert!(lines.len().is_multiple_of(LINE));
    // SAFETY: the caller guarantees all conditions. The loop ends with the last line.
    unsafe {
        std::arch::asm!(
            "2:",
            "cmp {from}, {end}",
            "je 3f",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movntdq [{to}], {a}",
            "movntdq [{to} + 16], {b}",
            "movntdq [{to} + 32], {c}",
            "movntdq [{to} + 48], {d}",
            "add {from}, {LINE}",
            "add {to}, {LINE}",
            "jmp 2b",
            "3:",
            "sfence",
            from = inout(reg) lines.as_ptr() => _,
            end = in(reg) lines.as_ptr_range().end,
            to = inout(reg) to => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            LINE = const LINE,
            options(nostack)
        );
    }
}

/// Copies bytes that another process may be changing.
///
/// # Safety
/// 1. `from` is valid for reads and `to` for writes of `length` bytes.
/// 2. The two ranges do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_long(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller guarantees both conditions, and the ABI guarantees a clear direction flag.
    // To the compiler this is one opaque operation, so a concurrent change only makes the bytes
    // unspecified.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copies bytes that another process may be changing, on processors without a string instruction.
///
/// # Safety
/// 1. `from` is valid for reads and `to` for writes of `length` bytes, rounded up to a multiple of
///    8.
/// 2. The two ranges do not overlap.
/// 3. `from` is aligned to 8.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_long(from: *const u8, to: *mut u8, length: usize) {
    for offset in (0..length).step_by(8) {
        // SAFETY: the caller guarantees that the word is valid and aligned.
        unsafe {
            let word = (*from.add(offset).cast::<AtomicU64>()).load(Ordering::Relaxed);
            to.add(offset).cast::<u64>().write_unaligned(word);
        }
    }
}

/// Returns the 32-bit word at offset `at`, a multiple of 4, in one of this process's regions.
#[inline(always)]
pub(crate) fn half_of_own(region: &OwnRegion, at: usize) -> &AtomicU32 {
    assert!(at + 4 <= region.size() && at.is_multiple_of(4));
    // SAFETY: the word is inside the region, is aligned, and lives as long as the region.
    unsafe { region.base().add(at).cast::<AtomicU32>().as_ref() }
}

/// Returns the 32-bit word at offset `at`, a multiple of 4, in a peer's region. The caller may
/// only load it.
#[inline(always)]
pub(crate) fn half_of_peer(region: &PeerRegion, at: usize) -> &AtomicU32 {
    assert!(at + 4 <= region.size() && at.is_multiple_of(4));
    // SAFETY: the word is inside the region, is aligned, and lives as long as the region, which is
    // mapped read-only.
    unsafe { region.base().add(at).cast::<AtomicU32>().as_ref() }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// The first and the last line of a message are stored through the cache, with the words of the
    /// neighbouring records.
    #[test]
    fn copies_in_past_cache_and_out_are_exact() {
        const SIZE: usize = 1 << 13;
        let (region, descriptor) = OwnRegion::new("test", SIZE).expect("a region");
        let peer = PeerRegion::map(descriptor.as_fd(), SIZE).expect("the region");
        let message: Vec<u8> = (0..SIZE).map(|at| at as u8 | 1).collect();
        let blank = vec![0; SIZE];
        for at in (1024..1024 + 2 * 64).step_by(8) {
            for length in (0..700).chain(2000..2100) {
                region.copy_in(0, &blank);
                region.copy_in_past_cache(at, &message[..length]);
                let mut found = Vec::new();
                region.copy_out(0, SIZE, &mut found);
                let (before, rest) = found.split_at(at);
                let (copied, after) = rest.split_at(length);
                assert!(copied == &message[..length], "{length} bytes at {at}");
                let mut received = Vec::new();
                peer.copy_out(at, length, &mut received);
                assert!(received == copied, "{length} bytes at {at}");
                assert!(before.iter().chain(after).all(|byte| *byte == 0), "{length} at {at}");
            }
        }
    }
}

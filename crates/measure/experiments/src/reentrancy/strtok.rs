//! `strtok`, which keeps its position in a static variable, and `strtok_r`, whose caller provides
//! that variable: [`tokenise`], and [`Tokens`], whose splitting is interrupted.
//!
//! Two threads that call `strtok` at the same time race for its static variable. This is undefined
//! behaviour, so only a child does it. The text of each side is in a static buffer, so that any
//! address in `strtok`'s static variable points to valid memory that ends with a zero byte.

#![allow(unsafe_code, reason = "strtok and strtok_r")]

use std::sync::atomic::Ordering;

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::AtomicU8;

use super::interrupted::InterruptedWork;

const TEXTS: [&CStr; 2] =
    [c"one two three four five six seven eight", c"eins zwei drei vier fuenf sechs sieben acht"];
/// Size of each buffer in bytes: a text followed by zero bytes.
const SIZE: usize = 64;

/// The buffer in which a side splits its text, on its own cache lines.
#[repr(align(128))]
struct TokenBuffer([AtomicU8; SIZE]);

impl TokenBuffer {
    const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; SIZE])
    }
}

/// A buffer per side. Only that side writes a text into it, but `strtok` on either side writes
/// zero bytes into both buffers. The bytes after a text are always zero.
static BUFFERS: [TokenBuffer; 2] = [TokenBuffer::new(), TokenBuffer::new()];
const _: () = assert!(TEXTS[0].count_bytes() < SIZE && TEXTS[1].count_bytes() < SIZE);
/// Maximum number of words requested, so that a broken static variable causes no endless loop.
const MOST_WORDS: usize = 32;

/// Splits the text of `side`, by `strtok_r` if `REENTRANT`. Calls `midway` after the first word.
/// Returns `true` if the words are those of the text, each of them once and in order.
#[inline(always)]
pub(super) fn tokenise<const REENTRANT: bool>(side: usize, midway: &mut dyn FnMut()) -> bool {
    let text = TEXTS[side];
    let buffer = &BUFFERS[side].0;
    for (place, &byte) in buffer.iter().zip(text.to_bytes()) {
        place.store(byte, Ordering::Relaxed);
    }
    let mut expected = text.to_bytes().split(|&byte| byte == b' ');
    let mut save: *mut libc::c_char = ptr::null_mut();
    let mut from = buffer.as_ptr().cast::<libc::c_char>().cast_mut();
    let mut right = true;
    for number in 0..MOST_WORDS {
        // SAFETY: each buffer is static and ends with a zero byte, whichever buffer `strtok` points
        // to; so are the separators; `save` is a live local. Another thread or a handler in
        // `strtok` at the same time violates its contract: that is the documented undefined
        // behaviour under measurement, in a child whose memory is not trusted.
        let word = unsafe {
            let separators = c" ".as_ptr();
            if REENTRANT {
                libc::strtok_r(from, separators, &mut save)
            } else {
                libc::strtok(from, separators)
            }
        };
        from = ptr::null_mut();
        if word.is_null() {
            return right && expected.next().is_none();
        }
        // SAFETY: the word is in one of the buffers.
        right &= expected.next().is_some_and(|expected| unsafe { reads(word, expected) });
        if number == 0 {
            midway();
        }
    }
    false
}

/// Returns `true` if `word` equals `expected` and ends there. Compares byte by byte, because
/// another thread may be writing at the same time.
///
/// # Safety
/// `word` lies in one of [`BUFFERS`].
#[inline(always)]
unsafe fn reads(word: *mut libc::c_char, expected: &[u8]) -> bool {
    expected.iter().chain([&0]).enumerate().all(|(at, &byte)| {
        // SAFETY: the buffer has not ended, because no text contains a zero byte and no byte before
        // this one was zero. All accesses to our buffers are atomic.
        unsafe { AtomicU8::from_ptr(word.add(at).cast()) }.load(Ordering::Relaxed) == byte
    })
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<const REENTRANT: bool>;

impl<const REENTRANT: bool> InterruptedWork for Tokens<REENTRANT> {
    const HANDLER_JUDGES: bool = false;

    fn prepare(&mut self) -> bool {
        true
    }

    fn operation(&mut self, midway: &mut dyn FnMut()) -> bool {
        tokenise::<REENTRANT>(0, midway)
    }

    fn in_handler() -> bool {
        tokenise::<REENTRANT>(1, &mut || ())
    }
}

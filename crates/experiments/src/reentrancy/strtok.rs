//! `strtok`, which keeps its position in a static variable, and `strtok_r`, whose caller provides
//! that variable: [`tokenise`], and [`Tokens`], whose splitting is interrupted.
//!
//! Two threads that call `strtok` at the same time race for its static variable. This is undefined
//! behaviour, so only a child does it. The text of each side is in a static buffer, so that any
//! address in `strtok`'s static variable points to valid memory that ends with a zero byte.

#![allow(unsafe_code, reason = "strtok and strtok_r")]

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::interrupted::InterruptedWork;

/// The texts that the sides split.
const TEXTS: [&CStr; 2] =
    [c"one two three four five six seven eight", c"eins zwei drei vier fuenf sechs sieben acht"];
/// Size of each buffer in bytes: a text followed by zero bytes.
const ROOM: usize = 64;

/// The buffer in which a side splits its text, on its own cache lines.
#[repr(align(128))]
struct TokenBuffer([AtomicU8; ROOM]);

impl TokenBuffer {
    const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; ROOM])
    }
}

/// One buffer per side. Only that side writes a text into it, but `strtok` on either side writes
/// zero bytes into both buffers. The bytes after a text are always zero.
static ROOMS: [TokenBuffer; 2] = [TokenBuffer::new(), TokenBuffer::new()];
const _: () = assert!(TEXTS[0].count_bytes() < ROOM && TEXTS[1].count_bytes() < ROOM);
/// Maximum number of words requested, so that a broken static variable causes no endless loop.
const MOST_WORDS: usize = 32;

/// The function to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    /// `strtok`.
    Static,
    /// `strtok_r`.
    Reentrant,
}

/// Splits the text of `side` and calls `midway` after the first word. Returns `true` if the words
/// are those of the text, each of them once and in order.
#[inline(always)]
pub(super) fn tokenise(function: Function, side: usize, midway: &mut dyn FnMut()) -> bool {
    let text = TEXTS[side];
    let room = &ROOMS[side].0;
    for (place, &byte) in room.iter().zip(text.to_bytes()) {
        place.store(byte, Ordering::Relaxed);
    }
    let mut expected = text.to_bytes().split(|&byte| byte == b' ');
    let mut save: *mut libc::c_char = ptr::null_mut();
    let mut from = room.as_ptr().cast::<libc::c_char>().cast_mut();
    let mut right = true;
    for number in 0..MOST_WORDS {
        // SAFETY: each buffer is static and ends with a zero byte, whichever buffer `strtok` points
        // to; so are the separators; `save` is a live local. Another thread or a handler in
        // `strtok` at the same time violates its contract: that is the documented undefined
        // behaviour under measurement, in a child whose memory is not trusted.
        let word = unsafe {
            let separators = c" ".as_ptr();
            match function {
                Function::Static => libc::strtok(from, separators),
                Function::Reentrant => libc::strtok_r(from, separators, &mut save),
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
/// `word` lies in one of [`ROOMS`].
#[inline(always)]
unsafe fn reads(word: *mut libc::c_char, expected: &[u8]) -> bool {
    expected.iter().chain([&0]).enumerate().all(|(at, &byte)| {
        // SAFETY: the buffer has not ended, because no text contains a zero byte and no byte before
        // this one was zero. All accesses to our buffers are atomic.
        unsafe { AtomicU8::from_ptr(word.add(at).cast()) }.load(Ordering::Relaxed) == byte
    })
}

/// A split that a handler interrupts with another split.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<const REENTRANT: bool>;

impl<const REENTRANT: bool> Tokens<REENTRANT> {
    const FUNCTION: Function = if REENTRANT { Function::Reentrant } else { Function::Static };
}

impl<const REENTRANT: bool> InterruptedWork for Tokens<REENTRANT> {
    const HANDLER_JUDGES: bool = false;

    fn prepare(&mut self) -> bool {
        true
    }

    fn operation(&mut self, midway: &mut dyn FnMut()) -> bool {
        tokenise(Self::FUNCTION, 0, midway)
    }

    fn in_handler() -> bool {
        tokenise(Self::FUNCTION, 1, &mut || ())
    }
}

//! `strtok`, which remembers in a static where it was, and `strtok_r`, which its caller lends the
//! memory for that: [`tokenise`], and [`Tokens`], interrupted while it does.
//!
//! Two threads in `strtok` at once race for its static: undefined behaviour, so only a child does
//! it. Each side's text lies in a static room of its own, so that whatever address `strtok`
//! remembers is that of memory which is there, and which ends with a zero byte.

#![allow(unsafe_code, reason = "strtok and strtok_r")]

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use super::interrupted::Victim;

/// What each side takes apart, and into how many words.
const TEXTS: [&CStr; 2] =
    [c"one two three four five six seven eight", c"eins zwei drei vier fuenf sechs sieben acht"];
/// Room for each text, and zero bytes behind it.
const ROOM: usize = 64;

/// Where a side takes its text apart; in cache lines of its own.
#[repr(align(128))]
struct Room([AtomicU8; ROOM]);

impl Room {
    const fn new() -> Self {
        Self([const { AtomicU8::new(0) }; ROOM])
    }
}

/// A room for each side. Only its side writes a text into it; `strtok` writes zero bytes, of both
/// sides into either. What lies behind a text is never anything else.
static ROOMS: [Room; 2] = [Room::new(), Room::new()];
const _: () = assert!(TEXTS[0].count_bytes() < ROOM && TEXTS[1].count_bytes() < ROOM);
/// Most words asked for: a broken static must not keep us for ever.
const MOST_WORDS: usize = 32;

/// Which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    /// `strtok`.
    Static,
    /// `strtok_r`.
    Reentrant,
}

/// Takes the text of `side` apart, calls `midway` after the first word, and says whether the words
/// are those of the text, each once and in order.
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
        // SAFETY: each room ends with a zero byte and lives for ever, whichever of them `strtok`
        // remembers; so do the separators; `save` is a live local. That another thread or a
        // handler is in `strtok` too breaks its contract: the documented undefined behaviour that
        // is measured, in a child whose memory nobody trusts.
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
        // SAFETY: a word lies in one of the rooms.
        right &= expected.next().is_some_and(|expected| unsafe { reads(word, expected) });
        if number == 0 {
            midway();
        }
    }
    false
}

/// Whether `word` is `expected` and ends there. Byte by byte: another thread may write meanwhile.
///
/// # Safety
/// `word` lies in one of [`ROOMS`].
#[inline(always)]
unsafe fn reads(word: *mut libc::c_char, expected: &[u8]) -> bool {
    expected.iter().chain([&0]).enumerate().all(|(at, &byte)| {
        // SAFETY: no byte before this one was zero, because no byte of a text is; so the room has
        // not ended. All access to a room that is ours is atomic.
        unsafe { AtomicU8::from_ptr(word.add(at).cast()) }.load(Ordering::Relaxed) == byte
    })
}

/// A tokenisation that a handler interrupts with another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<const REENTRANT: bool>;

impl<const REENTRANT: bool> Tokens<REENTRANT> {
    const FUNCTION: Function = if REENTRANT { Function::Reentrant } else { Function::Static };
}

impl<const REENTRANT: bool> Victim for Tokens<REENTRANT> {
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

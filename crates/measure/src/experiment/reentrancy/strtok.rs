//! `strtok`, which remembers in a static where it was, and `strtok_r`, which its caller lends the
//! memory for that: [`tokenise`], and [`Tokens`], interrupted while it does.
//!
//! Two threads in `strtok` at once race for its static: undefined behaviour, so only a child does
//! it. Each reads and writes live buffers of the other, whatever the static holds.

#![allow(unsafe_code, reason = "strtok and strtok_r")]

use std::ffi::CStr;
use std::ptr;

use super::interrupted::Victim;

/// What each side takes apart, and into how many words.
const TEXTS: [&CStr; 2] =
    [c"one two three four five six seven eight", c"eins zwei drei vier fuenf sechs sieben acht"];
/// Room for each text.
const ROOM: usize = 64;
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
    let mut room = [0 as libc::c_char; ROOM];
    for (place, &byte) in room.iter_mut().zip(text.to_bytes()) {
        *place = byte as libc::c_char;
    }
    let mut expected = text.to_bytes().split(|&byte| byte == b' ');
    let mut save: *mut libc::c_char = ptr::null_mut();
    let mut from = room.as_mut_ptr();
    let mut right = true;
    for number in 0..MOST_WORDS {
        // SAFETY: `room` and the separators end with a zero byte; `save` is a live local. That
        // another thread or a handler is in `strtok` too breaks its contract: the documented
        // undefined behaviour that is measured, in a child whose memory nobody trusts.
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
        // SAFETY: a word lies in one of the live buffers, each of which ends with a zero byte.
        let word = unsafe { CStr::from_ptr(word) };
        right &= expected.next() == Some(word.to_bytes());
        if number == 0 {
            midway();
        }
    }
    false
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

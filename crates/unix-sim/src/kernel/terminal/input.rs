//! What was typed and not yet read: [`Input`].
//!
//! In canonical mode it is a queue of lines, the last of them unfinished; else a queue of bytes. A
//! line ends with its newline, or where the end of input was typed, which stands in the queue as a
//! byte 0 that no reader gets. Which byte does what, [`Line`](super::line::Line) knows.

use std::collections::VecDeque;
use std::io::Read as _;

/// What reading found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes.
    Bytes(usize),
    /// The end of input: it was typed, or the terminal is hung up.
    End,
    /// Nothing yet.
    Nothing,
}

/// Bytes that the queue holds, the last newline included; `N_TTY_BUF_SIZE`.
pub(super) const SIZE: usize = 4096;

/// Stands in the queue where the end of input was typed.
const END: u8 = 0;

/// A queue of bytes with the places where lines end.
#[derive(Debug, Default)]
pub(super) struct Input {
    bytes: VecDeque<u8>,
    /// How many bytes were ever read: the position of the first one in the queue.
    first: u64,
    /// Positions of the bytes that finish a line, ascending. Empty unless the mode is canonical.
    ends: VecDeque<u64>,
}

impl Input {
    /// Whether one more byte may be typed.
    ///
    /// A full queue accepts none until somebody reads; but while it holds no whole line, nobody who
    /// reads lines could, and the newest byte gives way to the next, so that a newline still fits.
    pub(super) fn admits(&mut self, canonical: bool) -> bool {
        if self.bytes.len() < SIZE - 1 {
            return true;
        }
        if !canonical || !self.ends.is_empty() {
            return false;
        }
        self.bytes.truncate(SIZE - 1);
        true
    }

    pub(super) fn push(&mut self, byte: u8) {
        self.bytes.push_back(byte);
    }

    /// Finishes a line with a newline.
    pub(super) fn push_newline(&mut self) {
        self.push_end(b'\n');
    }

    /// Finishes a line without one.
    pub(super) fn push_end_of_input(&mut self) {
        self.push_end(END);
    }

    fn push_end(&mut self, byte: u8) {
        self.ends.push_back(self.first + self.bytes.len() as u64);
        self.bytes.push_back(byte);
    }

    /// The bytes of the unfinished line.
    pub(super) fn unfinished(&self) -> impl DoubleEndedIterator<Item = u8> {
        let finished = self.ends.back().map_or(0, |end| (end + 1 - self.first) as usize);
        self.bytes.range(finished..).copied()
    }

    /// Takes the newest byte of the unfinished line back.
    pub(super) fn pop(&mut self) -> Option<u8> {
        self.unfinished().next_back()?;
        self.bytes.pop_back()
    }

    pub(super) fn clear(&mut self) {
        self.first += self.bytes.len() as u64;
        self.bytes.clear();
        self.ends.clear();
    }

    /// Goes from bytes to lines, all that is there making one; or from lines to bytes.
    pub(super) fn set_canonical(&mut self, canonical: bool) {
        self.ends.clear();
        if canonical && !self.bytes.is_empty() {
            self.ends.push_back(self.first + self.bytes.len() as u64 - 1);
        }
    }

    #[cfg(test)]
    pub(super) fn can_read(&self, canonical: bool) -> bool {
        if canonical { !self.ends.is_empty() } else { !self.bytes.is_empty() }
    }

    pub(super) fn read_bytes(&mut self, buffer: &mut [u8]) -> Read {
        let n = buffer.len().min(self.bytes.len());
        if n == 0 && !buffer.is_empty() {
            return Read::Nothing;
        }
        self.take(&mut buffer[..n]);
        Read::Bytes(n)
    }

    /// Reads from one line, at most to its end.
    pub(super) fn read_line(&mut self, buffer: &mut [u8]) -> Read {
        let Some(&end) = self.ends.front() else { return Read::Nothing };
        if buffer.is_empty() {
            return Read::Bytes(0);
        }
        let last = (end - self.first) as usize;
        let ends_bare = self.bytes[last] == END;
        let text = if ends_bare { last } else { last + 1 };
        let n = text.min(buffer.len());
        self.take(&mut buffer[..n]);
        // An end of input behind the last byte that fits goes with it: the next read waits.
        if n == text {
            self.ends.pop_front();
            if ends_bare {
                self.take(&mut [END]);
            }
        }
        if text == 0 { Read::End } else { Read::Bytes(n) }
    }

    /// Takes as many bytes out as `to` holds, which must be there.
    fn take(&mut self, to: &mut [u8]) {
        self.bytes.read_exact(to).expect("they are there");
        self.first += to.len() as u64;
    }
}

//! Input of a terminal that has not been read yet: [`InputQueue`].
//!
//! In canonical mode the queue contains lines, the last of them unfinished; otherwise it contains
//! bytes. A line ends with its newline or at the position where end-of-file was typed. The queue
//! stores an end-of-file as a byte 0 that no reader receives.
//! [`LineDiscipline`](super::LineDiscipline) defines the meaning of each byte.

use std::collections::VecDeque;
use std::io::Read as _;

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    /// This many bytes were read.
    Bytes(usize),
    /// End-of-file was typed, or the terminal is hung up.
    End,
    /// No input is available yet.
    Nothing,
}

/// Capacity of the queue in bytes, including the last newline; `N_TTY_BUF_SIZE`.
pub(super) const SIZE: usize = 4096;

/// The byte that represents a typed end-of-file in the queue.
const END: u8 = 0;

/// A queue of bytes with the positions at which lines end.
#[derive(Default)]
pub(super) struct InputQueue {
    bytes: VecDeque<u8>,
    /// Number of bytes read so far, which is the position of the first byte in the queue.
    first: u64,
    /// Positions of the bytes that finish a line, ascending. Empty outside canonical mode.
    ends: VecDeque<u64>,
}

impl InputQueue {
    /// Returns `true` if another byte may be typed.
    ///
    /// A full queue accepts no byte until a process reads. But while it contains no complete line,
    /// readers of lines could never read, so each new byte replaces the newest one, and a newline
    /// still fits.
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

    /// Finishes a line without a newline.
    pub(super) fn push_end_of_input(&mut self) {
        self.push_end(END);
    }

    fn push_end(&mut self, byte: u8) {
        self.ends.push_back(self.first + self.bytes.len() as u64);
        self.bytes.push_back(byte);
    }

    /// Returns the bytes of the unfinished line.
    pub(super) fn unfinished(&self) -> impl DoubleEndedIterator<Item = u8> {
        let finished = self.ends.back().map_or(0, |end| (end + 1 - self.first) as usize);
        self.bytes.range(finished..).copied()
    }

    /// Removes the newest byte of the unfinished line.
    pub(super) fn pop(&mut self) -> Option<u8> {
        self.unfinished().next_back()?;
        self.bytes.pop_back()
    }

    pub(super) fn clear(&mut self) {
        self.first += self.bytes.len() as u64;
        self.bytes.clear();
        self.ends.clear();
    }

    /// Switches from bytes to lines, which makes all queued bytes one line, or from lines to bytes.
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
        // An end-of-file directly after the last byte that fits is removed too; the next read then
        // waits.
        if n == text {
            self.ends.pop_front();
            if ends_bare {
                self.take(&mut [END]);
            }
        }
        if text == 0 { Read::End } else { Read::Bytes(n) }
    }

    /// Removes as many bytes as fit into `to`. The queue must contain that many.
    fn take(&mut self, to: &mut [u8]) {
        self.bytes.read_exact(to).expect("the bytes are in the queue");
        self.first += to.len() as u64;
    }
}

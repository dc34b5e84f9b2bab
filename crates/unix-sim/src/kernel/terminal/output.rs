//! What was written to a terminal and not yet seen at its controlling end: [`Output`].
//!
//! The queue knows in which column the cursor is, so that an echoed tab can be taken back.

use std::collections::VecDeque;
use std::io::Read as _;

/// Bytes that count as having arrived where they are seen, as Linux's controlling end has them in a
/// buffer of its own: a signal from the terminal throws them away no more.
pub(super) const ARRIVED: usize = 4095;
/// Bytes that the queue holds; who writes more waits.
pub(super) const SIZE: usize = ARRIVED + 16_384;
/// What echo may add to a full queue, since nobody waits there; what is beyond is not shown.
const ECHO: usize = 4096;
/// Columns from one tab stop to the next.
const TAB: usize = 8;

/// A queue of bytes, and the column behind the last one.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: VecDeque<u8>,
    column: usize,
}

impl Output {
    /// The column that the next byte is shown in.
    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Bytes that may be written before one has to wait.
    pub(super) fn room(&self) -> usize {
        SIZE.saturating_sub(self.bytes.len())
    }

    /// Writes what there is room for, with `returns` each newline as two bytes; says how many bytes
    /// of `bytes` that was.
    pub(super) fn write(&mut self, bytes: &[u8], returns: bool) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.room() < if returns && byte == b'\n' { 2 } else { 1 } {
                return at;
            }
            self.put(byte, returns);
        }
        bytes.len()
    }

    /// Shows what was typed.
    pub(super) fn echo(&mut self, bytes: &[u8], returns: bool) {
        if self.bytes.len() + 2 * bytes.len() <= SIZE + ECHO {
            bytes.iter().for_each(|&byte| self.put(byte, returns));
        }
    }

    fn put(&mut self, byte: u8, returns: bool) {
        if returns && byte == b'\n' {
            self.bytes.push_back(b'\r');
            self.column = 0;
        }
        self.bytes.push_back(byte);
        self.column = after(self.column, byte);
    }

    /// Throws away what has not arrived.
    pub(super) fn flush(&mut self) {
        self.bytes.truncate(ARRIVED);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes out what fits into `buffer`; says how many bytes.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let n = buffer.len().min(self.bytes.len());
        self.bytes.read_exact(&mut buffer[..n]).expect("they are there");
        n
    }
}

/// The column behind `byte`, which is shown in `column`.
pub(super) fn after(column: usize, byte: u8) -> usize {
    match byte {
        b'\r' => 0,
        b'\t' => (column / TAB + 1) * TAB,
        0x08 => column.saturating_sub(1),
        0..0x20 | 0x7f => column,
        _ if is_continuation(byte) => column,
        _ => column + 1,
    }
}

/// Whether `byte` is not the first one of a character in UTF-8.
pub(super) const fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

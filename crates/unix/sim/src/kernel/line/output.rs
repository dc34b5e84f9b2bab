//! Output of a terminal that has not yet been taken at its controlling end: [`OutputQueue`].
//!
//! The queue tracks the column of the cursor, so that an echoed tab can be erased.

use std::collections::VecDeque;
use std::io::Read as _;

/// Number of bytes that are considered delivered to the controlling end, like the bytes in that
/// end's own buffer on Linux. A signal from the terminal no longer discards them.
pub(super) const ARRIVED: usize = 4095;
/// Capacity of the queue in bytes. Writers wait if it is full.
pub(super) const SIZE: usize = ARRIVED + 16_384;
/// Maximum number of bytes that echo may add to a full queue. No process waits for space for echo,
/// so further echo is dropped.
const ECHO: usize = 4096;
/// Number of columns from one tab stop to the next.
const TAB: usize = 8;

/// A queue of bytes, and the column after the last one.
#[derive(Default)]
pub(super) struct OutputQueue {
    bytes: VecDeque<u8>,
    column: usize,
}

impl OutputQueue {
    /// Returns the column of the next byte.
    pub(super) fn column(&self) -> usize {
        self.column
    }

    /// Returns the number of bytes that can be written without waiting.
    pub(super) fn space(&self) -> usize {
        SIZE.saturating_sub(self.bytes.len())
    }

    /// Writes as many bytes as there is space for; if `returns` is set, each newline takes two
    /// bytes. Returns the number of bytes of `bytes` that were written.
    pub(super) fn write(&mut self, bytes: &[u8], returns: bool) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.space() < if returns && byte == b'\n' { 2 } else { 1 } {
                return at;
            }
            self.put(byte, returns);
        }
        bytes.len()
    }

    /// Echoes typed bytes.
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

    /// Discards the output that has not been delivered.
    pub(super) fn flush(&mut self) {
        self.bytes.truncate(ARRIVED);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes as many bytes as fit into `buffer`. Returns their number.
    pub(super) fn take(&mut self, buffer: &mut [u8]) -> usize {
        let n = buffer.len().min(self.bytes.len());
        self.bytes.read_exact(&mut buffer[..n]).expect("the bytes are in the queue");
        n
    }
}

/// Returns the column after `byte`, which is shown in `column`.
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

/// Returns `true` if `byte` is not the first byte of a UTF-8 character.
pub(super) const fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

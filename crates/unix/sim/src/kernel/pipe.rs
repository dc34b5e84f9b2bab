//! A pipe's buffer: [`KernelPipe`].
//!
//! As in pipe(7), the capacity is 64 KiB; up to [`ATOMIC`] bytes that are written in one call stay
//! together; a read returns end-of-file when the last writer has closed; and a write fails when the
//! last reader has closed. The buffer never waits and sends no signal: after
//! [`PipeRead::WouldWait`] or [`PipeWrite::WouldWait`] the caller must retry after a change at the
//! other end, and [`PipeWrite::Broken`] stands for `EPIPE` and SIGPIPE.

use std::collections::VecDeque;
use std::io::Read as _;

/// Capacity of a pipe in bytes.
pub(crate) const SIZE: usize = 65_536;
/// Maximum number of bytes that are written together or not at all; `PIPE_BUF`.
pub(crate) const ATOMIC: usize = 4096;

/// An end of a pipe, open in some process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PipeEnd {
    Reader,
    Writer,
}

/// A pipe with both its ends. Its buffer grows on demand.
pub(crate) struct KernelPipe {
    bytes: VecDeque<u8>,
    is_read: bool,
    is_written: bool,
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeRead {
    /// This many bytes were read.
    Bytes(usize),
    /// The pipe is empty, and no writer is left.
    End,
    /// The pipe is empty, but a writer is left.
    WouldWait,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeWrite {
    /// This many bytes were written. If more than [`ATOMIC`] bytes were passed, this may be a part
    /// of them.
    Bytes(usize),
    /// The pipe has no space yet.
    WouldWait,
    /// No reader is left.
    Broken,
}

impl KernelPipe {
    pub(crate) fn new() -> Self {
        Self { bytes: VecDeque::new(), is_read: true, is_written: true }
    }

    /// Marks the last reading descriptor as closed. The caller must wake the writers.
    pub(crate) fn drop_reader(&mut self) {
        self.is_read = false;
    }

    /// Marks the last writing descriptor as closed. The caller must wake the readers.
    pub(crate) fn drop_writer(&mut self) {
        self.is_written = false;
    }

    /// Reads the available bytes, as many as fit into `buffer`.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> PipeRead {
        if buffer.is_empty() {
            return PipeRead::Bytes(0);
        }
        let n = buffer.len().min(self.bytes.len());
        if n == 0 {
            return if self.is_written { PipeRead::WouldWait } else { PipeRead::End };
        }
        self.bytes.read_exact(&mut buffer[..n]).expect("the bytes are in the queue");
        PipeRead::Bytes(n)
    }

    /// Writes up to [`ATOMIC`] bytes as a whole. If more bytes are passed, writes as many as there
    /// is space for. An empty write always succeeds.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> PipeWrite {
        if bytes.is_empty() {
            return PipeWrite::Bytes(0);
        }
        if !self.is_read {
            return PipeWrite::Broken;
        }
        let space = SIZE - self.bytes.len();
        let n =
            if bytes.len() <= ATOMIC && space < bytes.len() { 0 } else { bytes.len().min(space) };
        if n == 0 {
            return PipeWrite::WouldWait;
        }
        self.bytes.extend(&bytes[..n]);
        PipeWrite::Bytes(n)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pipe: &mut KernelPipe, size: usize) -> Result<Vec<u8>, PipeRead> {
        let mut buffer = vec![0; size];
        match pipe.read(&mut buffer) {
            PipeRead::Bytes(n) => Ok(buffer[..n].to_vec()),
            other => Err(other),
        }
    }

    #[test]
    fn atomic_write_is_whole_or_refused() {
        let mut pipe = KernelPipe::new();
        assert_eq!(pipe.write(&[0; SIZE - ATOMIC + 1]), PipeWrite::Bytes(SIZE - ATOMIC + 1));
        assert_eq!(pipe.write(&[1; ATOMIC]), PipeWrite::WouldWait);
        assert_eq!(pipe.write(&[1; ATOMIC + 1]), PipeWrite::Bytes(ATOMIC - 1));
        assert_eq!(pipe.write(&[1; ATOMIC + 1]), PipeWrite::WouldWait);
        assert_eq!(read(&mut pipe, ATOMIC).map(|bytes| bytes.len()), Ok(ATOMIC));
        assert_eq!(pipe.write(&[1; ATOMIC]), PipeWrite::Bytes(ATOMIC));
    }

    proptest! {
        #[test]
        fn pipe_bytes_are_read_in_write_order(
            steps in prop::collection::vec((any::<bool>(), 0..10_000_usize), 0..40),
        ) {
            let mut pipe = KernelPipe::new();
            let (mut written, mut taken) = (0_usize, 0_usize);
            for (write, size) in steps {
                if write {
                    let bytes: Vec<u8> = (written..written + size).map(|n| n as u8).collect();
                    match pipe.write(&bytes) {
                        PipeWrite::Bytes(n) => {
                            prop_assert!(n == size || size > ATOMIC && written + n - taken == SIZE);
                            written += n;
                        }
                        other => prop_assert_eq!(other, PipeWrite::WouldWait),
                    }
                } else {
                    let got = read(&mut pipe, size).unwrap_or_default();
                    prop_assert_eq!(got.len(), size.min(written - taken));
                    let expected: Vec<u8> = (taken..taken + got.len()).map(|n| n as u8).collect();
                    prop_assert!(got == expected);
                    taken += got.len();
                }
                prop_assert!(written - taken <= SIZE);
            }
        }
    }
}

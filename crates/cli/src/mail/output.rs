//! Unbuffered standard output, whose writes can be ended by a signal: [`LineWriter`].

use std::io::{self, Stdout};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tontine_bench::engine::stop::StopRequest;

/// Number of bytes that a writable pipe accepts in one write (`PIPE_BUF`).
const PIECE: usize = 4096;

/// A writer of lines. The kernel has each line when [`LineWriter::write`] returns.
#[derive(Debug)]
pub(super) struct LineWriter {
    stdout: Stdout,
    line: Vec<u8>,
}

/// Result of writing a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// The whole line was written.
    Whole,
    /// The reader of standard output has ended.
    Unread,
    /// A signal arrived first. A part of the line may have been written.
    Stopped,
}

impl LineWriter {
    pub(super) fn new() -> Self {
        Self { stdout: io::stdout(), line: Vec::new() }
    }

    /// Returns standard output, which is in error once its reader has ended.
    pub(super) fn stdout(&self) -> &Stdout {
        &self.stdout
    }

    /// Writes a line and its separator. Blocks until the consumer reads or a signal arrives.
    pub(super) fn write(
        &mut self,
        line: &[u8],
        separator: u8,
        stop: &StopRequest,
    ) -> io::Result<WriteResult> {
        self.line.clear();
        self.line.extend_from_slice(line);
        self.line.push(separator);
        let mut rest = self.line.as_slice();
        while !rest.is_empty() {
            if stop.requested() {
                return Ok(WriteResult::Stopped);
            }
            let mut polled = [
                PollFd::new(&self.stdout, PollFlags::OUT),
                PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            ];
            match poll(&mut polled, None) {
                Ok(_) if polled[0].revents().is_empty() => continue,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            match rustix::io::write(&self.stdout, &rest[..rest.len().min(PIECE)]) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::PIPE) => return Ok(WriteResult::Unread),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(WriteResult::Whole)
    }
}

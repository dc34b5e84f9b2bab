//! Unbuffered standard output, whose writes can be ended by a signal: [`MessageWriter`].

use std::io::{self, Stdout};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tontine_command::stop::StopRequest;

use super::framing::append;
use crate::args::Framing;

/// Number of bytes that a writable pipe accepts in one write (`PIPE_BUF`).
const PIECE: usize = 4096;

/// A writer of messages. The kernel has each when [`MessageWriter::write`] returns.
#[derive(Debug)]
pub(super) struct MessageWriter {
    stdout: Stdout,
    framing: Framing,
    framed: Vec<u8>,
}

/// Result of writing a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// The whole message was written.
    Whole,
    /// The reader of standard output has ended.
    Unread,
    /// A signal arrived first. A part of the message may have been written.
    Stopped,
}

impl MessageWriter {
    pub(super) fn new(framing: Framing) -> Self {
        Self { stdout: io::stdout(), framing, framed: Vec::new() }
    }

    /// Returns standard output, which is in error once its reader has ended.
    pub(super) fn stdout(&self) -> &Stdout {
        &self.stdout
    }

    /// Writes a message, framed. Blocks until the consumer reads or a signal arrives.
    pub(super) fn write(&mut self, message: &[u8], stop: &StopRequest) -> io::Result<WriteResult> {
        self.framed.clear();
        append(self.framing, message, &mut self.framed);
        let mut rest = self.framed.as_slice();
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

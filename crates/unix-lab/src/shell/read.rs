//! Where the shell's lines come from: [`Lines`].

use tontine_unix::{Errno, Fd, Sys};

use super::say::say;

/// Bytes of the longest line; a terminal has no longer ones.
const LONGEST: usize = 65_536;

/// Lines from standard input.
///
/// One byte is read at a time where lines are not a terminal's, so that what the shell does not
/// need is left to the programs that it starts.
#[derive(Debug)]
pub(super) struct Lines {
    terminal: bool,
    /// Lines that are read and not taken yet, and the beginning of one.
    bytes: Vec<u8>,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line(String),
    /// A signal was caught while it waited; what was typed is gone. One that is caught just before
    /// the wait begins is noticed with the next line: reading takes no mask as sigsuspend does.
    Interrupted,
    End,
}

impl Lines {
    pub(super) fn new(terminal: bool) -> Self {
        Self { terminal, bytes: Vec::new() }
    }

    /// Waits for the next line, after `prompt` if they come from a terminal.
    pub(super) fn next(&mut self, sys: &dyn Sys, prompt: &str) -> Next {
        if self.terminal && self.bytes.is_empty() {
            let _ = say(sys, prompt);
        }
        let mut buffer = [0; 4096];
        let size = if self.terminal { buffer.len() } else { 1 };
        loop {
            let end = self.bytes.iter().position(|&byte| byte == b'\n');
            if let Some(end) = end.or((self.bytes.len() >= LONGEST).then_some(LONGEST - 1)) {
                return Next::Line(self.take(end + 1));
            }
            match sys.read(Fd::STDIN, &mut buffer[..size]) {
                Ok(0) | Err(Errno::EIO | Errno::EBADF) if self.bytes.is_empty() => {
                    return Next::End;
                }
                // ^D behind text, in a terminal: the line goes on.
                Ok(0) if self.terminal => {}
                Ok(n) if n > 0 => self.bytes.extend(&buffer[..n]),
                Err(Errno::EINTR) => {
                    self.bytes.clear();
                    return Next::Interrupted;
                }
                _ => {
                    let all = self.bytes.len();
                    return Next::Line(self.take(all));
                }
            }
        }
    }

    fn take(&mut self, n: usize) -> String {
        let line: Vec<u8> = self.bytes.drain(..n).collect();
        String::from_utf8_lossy(&line).into_owned()
    }
}

//! The source of the shell's lines: [`InputLines`].

use tontine_unix::{Errno, Fd, Sys};

use super::say::say;

/// Maximum length of a line in bytes; a terminal does not deliver longer lines.
const LONGEST: usize = 65_536;

/// Lines from standard input.
///
/// If the lines do not come from a terminal, one byte is read at a time, so that the programs that
/// the shell starts can read the rest of the input.
#[derive(Debug)]
pub(super) struct InputLines {
    terminal: bool,
    /// Bytes that were read but not returned yet: whole lines, and the beginning of another line.
    bytes: Vec<u8>,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextInput {
    Line(String),
    /// A signal was caught during the wait, and the typed text is discarded. A signal that is
    /// caught just before the wait starts is noticed only with the next line, because read, unlike
    /// sigsuspend, takes no mask.
    Interrupted,
    End,
}

impl InputLines {
    pub(super) fn new(terminal: bool) -> Self {
        Self { terminal, bytes: Vec::new() }
    }

    /// Waits for the next line. Prints `prompt` first if the lines come from a terminal.
    pub(super) fn next(&mut self, sys: &dyn Sys, prompt: &str) -> NextInput {
        if self.terminal && self.bytes.is_empty() {
            let _ = say(sys, prompt);
        }
        let mut buffer = [0; 4096];
        let size = if self.terminal { buffer.len() } else { 1 };
        loop {
            let end = self.bytes.iter().position(|&byte| byte == b'\n');
            if let Some(end) = end.or((self.bytes.len() >= LONGEST).then_some(LONGEST - 1)) {
                return NextInput::Line(self.take(end + 1));
            }
            match sys.read(Fd::STDIN, &mut buffer[..size]) {
                Ok(0) | Err(Errno::EIO | Errno::EBADF) if self.bytes.is_empty() => {
                    return NextInput::End;
                }
                // ^D was typed after text at a terminal, so the line continues.
                Ok(0) if self.terminal => {}
                Ok(n) if n > 0 => self.bytes.extend(&buffer[..n]),
                Err(Errno::EINTR) => {
                    self.bytes.clear();
                    return NextInput::Interrupted;
                }
                _ => {
                    let all = self.bytes.len();
                    return NextInput::Line(self.take(all));
                }
            }
        }
    }

    fn take(&mut self, n: usize) -> String {
        let line: Vec<u8> = self.bytes.drain(..n).collect();
        String::from_utf8_lossy(&line).into_owned()
    }
}

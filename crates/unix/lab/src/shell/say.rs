//! Output, and the error of a command: [`say`], [`complain`], [`CommandError`].

use std::fmt::Display;

use tontine_unix::{Errno, Fd, Result, Sys};

/// The reason why a command failed.
#[derive(Debug)]
pub(super) struct CommandError {
    /// The value of `$?`: 2 if the line is wrong, 1 if the command fails.
    pub(super) status: i32,
    pub(super) text: String,
}

impl CommandError {
    pub(super) fn failed(text: impl Display) -> Self {
        Self { status: 1, text: text.to_string() }
    }

    pub(super) fn wrong(text: impl Display) -> Self {
        Self { status: 2, text: text.to_string() }
    }

    /// Returns a function that names the attempted operation when a system call fails.
    pub(super) fn call(what: impl Display) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::failed(format_args!("{what}: {errno}"))
    }
}

/// Writes a text to standard output.
pub(super) fn say(sys: &dyn Sys, text: impl Display) -> Result<()> {
    write_all(sys, Fd::STDOUT, text.to_string().as_bytes())
}

/// Writes a line to standard error, after the name of the program. An error is dropped, because it
/// cannot be reported elsewhere.
pub(super) fn complain(sys: &dyn Sys, who: &str, text: impl Display) {
    let _ = write_all(sys, Fd::STDERR, format!("{who}: {text}\n").as_bytes());
}

/// Writes all bytes.
pub(super) fn write_all(sys: &dyn Sys, to: Fd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match sys.write(to, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

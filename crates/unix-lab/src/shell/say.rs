//! Writes to descriptors: [`say`], [`complain`], [`write_all`].

use std::fmt::Display;

use tontine_unix::{Errno, Fd, Result, Sys};

/// Writes a text to standard output.
///
/// # Errors
/// The errors of [`Sys::write`], but never `EINTR`.
pub(super) fn say(sys: &dyn Sys, text: impl Display) -> Result<()> {
    write_all(sys, Fd::STDOUT, text.to_string().as_bytes())
}

/// Writes a line to standard error, after the name of the program. An error is dropped, because it
/// cannot be reported elsewhere.
pub(super) fn complain(sys: &dyn Sys, who: &str, text: impl Display) {
    let _ = write_all(sys, Fd::STDERR, format!("{who}: {text}\n").as_bytes());
}

/// Writes all bytes.
///
/// # Errors
/// The errors of [`Sys::write`], but never `EINTR`.
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

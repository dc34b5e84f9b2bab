//! `tontine recv` and `tontine send`: a mailbox from the shell.
//!
//! `recv` and `send` are the commands. `framing` splits standard input into messages, `output`
//! writes messages to standard output, and `stdout` reports whether standard output is open. The
//! mailbox is `tontine::mailbox`.

mod framing;
mod output;
mod recv;
mod send;
mod stdout;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use tontine::Error;
use tontine::mailbox::Address;

pub(crate) use recv::recv;
pub(crate) use send::send;
use tontine_command::CommandFailure;

/// Interval between two checks for a receiver that starts or ends.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn address(text: &OsStr) -> Result<Address, CommandFailure> {
    match text.as_bytes() {
        b"" | b"@" => Err(CommandFailure::usage(
            "expected a PATH, found an empty one; name a path, or @ and a name",
        )),
        [b'@', name @ ..] => Ok(Address::abstract_name(name)),
        _ => Ok(Address::path(Path::new(text))),
    }
}

/// Converts an error of the library, and adds the address if the error's text lacks it.
fn refuse(address: &Address, error: &Error) -> CommandFailure {
    let (text, address) = (error.to_string(), address.to_string());
    CommandFailure::failed(if text.contains(&address) {
        text
    } else {
        format!("{address}: {text}")
    })
}

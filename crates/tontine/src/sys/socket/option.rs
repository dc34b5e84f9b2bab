//! Having the kernel say who sent a message: [`pass_credentials`].

#![allow(unsafe_code, reason = "a socket option that no crate knows yet")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::net::sockopt;

use crate::error::{Error, Result};

/// Since Linux 6.5; the same on all architectures but PA-RISC and SPARC.
const SO_PASSPIDFD: i32 = 76;

/// Has the kernel attach the sender's credentials to each message that arrives from now on, and a
/// pidfd of the sender, where it knows how. A listener hands this down to the connections that it
/// accepts.
///
/// # Errors
/// [`Error::System`].
pub(crate) fn pass_credentials(fd: impl AsFd) -> Result<()> {
    sockopt::set_socket_passcred(&fd, true)
        .map_err(|errno| Error::system("setsockopt(SO_PASSCRED)", errno))?;
    let on = 1_i32;
    // SAFETY: the option's value is one integer, which is readable. An older kernel answers
    // ENOPROTOOPT: then there is no pidfd with the messages.
    unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSPIDFD,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        );
    }
    Ok(())
}

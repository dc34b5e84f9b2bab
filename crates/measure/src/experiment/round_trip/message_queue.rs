//! Two POSIX message queues, one byte a message. Their names are gone before the first one is sent.

#![allow(unsafe_code, reason = "POSIX message queues")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::harness::{self, End, Plan, Timed};
use super::peer::{Peer, checked};
use crate::os::shared::first_free_name;
use crate::trouble::{During, Result};

/// Times it between two processes.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let (ask, answer) = (queue()?, queue()?);
    harness::between_processes(
        plan,
        |peer| harness::time(plan, &mut Queues { read: &answer, write: &ask, peer }),
        |peer| harness::answer(plan, &mut Queues { read: &ask, write: &answer, peer }),
    )
}

/// A queue of one-byte messages without a name. On Linux its descriptor is a file descriptor.
fn queue() -> Result<OwnedFd> {
    // SAFETY: each name is a C string; the attributes are a valid plain structure that outlives the
    // call; a descriptor that is returned is new and ours.
    let open = |name: &CStr| unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = 1;
        attributes.mq_msgsize = 1;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let mode: libc::mode_t = 0o600;
        checked(libc::mq_open(name.as_ptr(), flags, mode, &raw const attributes))
            .map(|queue| OwnedFd::from_raw_fd(queue))
    };
    let (name, queue) = first_free_name(open).setting_up("mq_open")?;
    // SAFETY: `name` is a C string.
    checked(unsafe { libc::mq_unlink(name.as_ptr()) }).setting_up("mq_unlink")?;
    Ok(queue)
}

struct Queues<'a> {
    read: &'a OwnedFd,
    write: &'a OwnedFd,
    peer: Peer<'a>,
}

impl Queues<'_> {
    /// After a failed call: asks for the peer where it was only interrupted.
    #[cold]
    fn interrupted(&self, call: &str) -> Result<()> {
        let error = std::io::Error::last_os_error();
        if error.kind() == std::io::ErrorKind::Interrupted {
            self.peer.check()
        } else {
            Err(error).during(call)
        }
    }
}

impl End for Queues<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        // SAFETY: the queue is open; the message is one byte of a live array.
        while unsafe { libc::mq_send(self.write.as_raw_fd(), [1].as_ptr(), 1, 0) } != 0 {
            self.interrupted("mq_send")?;
        }
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let mut message = [0; 1];
        let (queue, into) = (self.read.as_raw_fd(), message.as_mut_ptr());
        // SAFETY: the queue is open; its messages have one byte, and so has the array.
        while unsafe { libc::mq_receive(queue, into, 1, std::ptr::null_mut()) } != 1 {
            self.interrupted("mq_receive")?;
        }
        Ok(())
    }
}

//! POSIX message queues whose names are gone before the first message: [`nameless`].

#![allow(unsafe_code, reason = "POSIX message queues")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tontine_host::os::checked;
use tontine_host::os::shared::first_free_name;
use tontine_host::trouble::{During, Result, Trouble};

/// Where the system keeps the limit of a message's size.
const LIMIT: &str = "/proc/sys/fs/mqueue/msgsize_max";

/// A queue of up to `depth` messages of up to `bytes` bytes. On Linux its descriptor is a file
/// descriptor.
///
/// # Errors
/// Skipped, where the system has no queues, none so large, or no room for it.
pub fn nameless(depth: usize, bytes: usize) -> Result<OwnedFd> {
    // SAFETY: each name is a C string; the attributes are a valid plain structure that outlives the
    // call; a descriptor that is returned is new and ours.
    let open = |name: &CStr| unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = depth as libc::c_long;
        attributes.mq_msgsize = bytes as libc::c_long;
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_CLOEXEC;
        let mode: libc::mode_t = 0o600;
        checked(libc::mq_open(name.as_ptr(), flags, mode, &raw const attributes))
            .map(|queue| OwnedFd::from_raw_fd(queue))
    };
    let (name, queue) = first_free_name(open).map_err(|error| refused(depth, bytes, error))?;
    // SAFETY: `name` is a C string.
    checked(unsafe { libc::mq_unlink(name.as_ptr()) }).setting_up("mq_unlink")?;
    Ok(queue)
}

/// EINVAL is the system's answer to a message beyond its limit; EMFILE the one to a queue beyond
/// RLIMIT_MSGQUEUE.
fn refused(depth: usize, bytes: usize, error: io::Error) -> Trouble {
    let asked = format!("{depth} messages of {bytes} bytes");
    match error.raw_os_error() {
        Some(libc::EINVAL) => {
            let limit = std::fs::read_to_string(LIMIT).unwrap_or_default();
            let limit = limit.trim();
            Trouble::skip(format!("mq_open of {asked}: {error}; {LIMIT} is {limit}"))
        }
        Some(libc::EMFILE) => {
            Trouble::skip(format!("mq_open of {asked}: {error}, or RLIMIT_MSGQUEUE is too small"))
        }
        _ => Trouble::setting_up("mq_open", error),
    }
}

/// Puts a message into a queue; waits for room.
///
/// # Errors
/// As `mq_send(3)`.
#[inline(always)]
pub fn send(queue: &OwnedFd, message: &[u8]) -> io::Result<()> {
    // SAFETY: the queue is open; pointer and length are those of a live slice.
    let sent =
        unsafe { libc::mq_send(queue.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    checked(sent).map(|_| ())
}

/// Takes a message out of a queue; waits for one. How many bytes it has. `into` must have room for
/// the largest that the queue takes.
///
/// # Errors
/// As `mq_receive(3)`.
#[inline(always)]
pub fn receive(queue: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    let (at, room) = (into.as_mut_ptr().cast(), into.len());
    // SAFETY: the queue is open; pointer and length are those of a live slice that we may write.
    let got = unsafe { libc::mq_receive(queue.as_raw_fd(), at, room, std::ptr::null_mut()) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_messages_whole_and_in_order_and_a_size_beyond_the_limit_is_a_skip() {
        let queue = match nameless(2, 16) {
            Ok(queue) => queue,
            Err(trouble) => return eprintln!("{trouble}"),
        };
        send(&queue, b"first").expect("room");
        send(&queue, b"2nd").expect("room");
        let mut into = [0; 16];
        assert_eq!(receive(&queue, &mut into).expect("a message"), 5);
        assert_eq!(&into[..5], b"first");
        assert_eq!(receive(&queue, &mut into).expect("a message"), 3);
        let Err(Trouble::Skipped(why)) = nameless(1, 1 << 30) else {
            panic!("no queue takes messages of a gibibyte");
        };
        assert!(why.contains("mq_open of 1 messages of 1073741824 bytes"), "{why}");
    }
}

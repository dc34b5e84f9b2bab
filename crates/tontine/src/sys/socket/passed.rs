//! Messages with descriptors: [`receive_passed`].
//!
//! Such a message is received in [`quarantine`], where memory that is what a peer announced is
//! mapped. Only a doorbell's end and the sender's pidfd come to the process's table: sockets and
//! pidfds, whose entries go without a wait and without a lock. All other descriptors end with the
//! thread. Nothing before the report waits: no file system is asked anything until the kernel has
//! said that a descriptor is a sealed memfd.
//!
//! Neighbours: [`super::receive`](super::receive()) tells that a message carries descriptors; the
//! mailbox says by [`Expected`] what they should be.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::close::Socket;
use super::option::{is_unix_datagram, owner, pass_pidfd};
use super::receive::{Credentials, MAX_PASSED, Seen, Take, message, remove};
use super::{Sent, pair, send};
use crate::error::{Error, Result};
use crate::sys::region::{PeerRegion, Unfit};
use crate::sys::{limits, quarantine};

/// The kind that a descriptor of a message should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Sealed memory of this many bytes.
    Memory(usize),
    /// The end of a doorbell that rings it.
    Doorbell,
}

/// A message with descriptors, as far as they are what was expected.
#[derive(Debug)]
pub(crate) struct Passed {
    /// The message.
    pub(crate) bytes: Vec<u8>,
    /// The message is longer than that.
    pub(crate) oversize: bool,
    /// The sender, if the socket passes credentials.
    pub(crate) from: Option<Credentials>,
    /// The sender's pidfd, if it was asked for, and the kernel knows how.
    pub(crate) pidfd: Option<OwnedFd>,
    /// Number of descriptors that came with the message and found room.
    pub(crate) count: usize,
    /// The memory that was expected, in order; empty if another number of descriptors came.
    pub(crate) memory: Result<Vec<PeerRegion>, Unfit>,
    /// The doorbell that was expected.
    pub(crate) doorbell: Option<Socket>,
}

impl Passed {
    /// A message that carried no descriptors.
    pub(crate) fn nothing(bytes: Vec<u8>, oversize: bool, from: Option<Credentials>) -> Self {
        let memory = Ok(Vec::new());
        Self { bytes, oversize, from, pidfd: None, count: 0, memory, doorbell: None }
    }
}

/// Receives the next message, of at most `len` bytes, with its descriptors, of which `expected`
/// says what they should be. If they are, the message is taken from the queue; otherwise it stays.
///
/// `with_sender` asks for the sender's pidfd and for a doorbell, if one is expected.
/// Returns `None` if the queue is empty by now. The caller waits for a thread, which waits for no
/// peer.
///
/// # Errors
/// [`Error::System`]: this process lacks a thread, a descriptor or memory; the message stays.
pub(crate) fn receive_passed(
    socket: impl AsFd,
    len: usize,
    with_sender: bool,
    expected: impl FnOnce(&[u8]) -> Vec<Expected> + Send + 'static,
) -> Result<Option<Passed>> {
    // The way back for the descriptors that this process keeps.
    let way_back = with_sender.then(pair).transpose()?;
    let mut lent = vec![socket.as_fd()];
    lent.extend(way_back.iter().map(|(_, there)| there.as_fd()));
    // The thread keeps its copies until everything is done here: then it is the last holder of what
    // is not kept.
    let user = owner(&socket)?.uid;
    let (found, _hold) = quarantine::run(&lent, Some(user), move |lent| match *lent {
        [socket] => examine(socket, None, len, expected),
        [socket, back] => examine(socket, Some(back), len, expected),
        _ => Err(Error::system("recvmsg", Errno::BADF)),
    })?;
    let Some(Found { mut passed, is_sound, has_pidfd, has_doorbell }) = found? else {
        return Ok(None);
    };
    if let Some((here, _)) = &way_back
        && (has_pidfd || has_doorbell)
    {
        let kept = message(here.as_fd(), &mut [0; 8], Take::LookWhole)?.unwrap_or_default();
        if kept.fds.len() < usize::from(has_pidfd) + usize::from(has_doorbell) {
            return Err(Error::system("recvmsg", Errno::MFILE));
        }
        let mut kept = kept.fds.into_iter();
        passed.pidfd = if has_pidfd { kept.next() } else { None };
        passed.doorbell = kept.next().map(Socket::of_peer).transpose()?;
    }
    // All that is in it has another holder by now, so the kernel has nothing to close.
    if is_sound {
        remove(socket.as_fd())?;
    }
    Ok(Some(passed))
}

/// The thread's report.
struct Found {
    passed: Passed,
    /// Everything is what was expected.
    is_sound: bool,
    has_pidfd: bool,
    has_doorbell: bool,
}

/// Looks at the next message in a table of its own, maps its memory, and sends `back` what the
/// process keeps. Drops no descriptor: the thread's end closes them.
fn examine(
    socket: BorrowedFd<'_>,
    back: Option<BorrowedFd<'_>>,
    len: usize,
    expected: impl FnOnce(&[u8]) -> Vec<Expected>,
) -> Result<Option<Found>> {
    let mut bytes = vec![0; len];
    let Some(seen) = look_whole(socket, back.is_some(), &mut bytes)? else { return Ok(None) };
    let Seen { len, oversize, from, .. } = *seen;
    bytes.truncate(len);
    let wanted = if oversize { Vec::new() } else { expected(&bytes) };
    let count = seen.fds.len();
    let (mut memory, mut doorbell, mut unfit) = (Vec::new(), None, None);
    let pairs = seen.fds.iter().zip(&wanted).filter(|_| wanted.len() == count);
    for (fd, wanted) in pairs {
        match wanted {
            Expected::Memory(size) => match PeerRegion::map(fd.as_fd(), *size) {
                Ok(region) => memory.push(region),
                Err(Unfit::System(call, errno)) => return Err(Error::system(call, errno)),
                Err(lack) => unfit = unfit.or(Some(lack)),
            },
            Expected::Doorbell => doorbell = Some(fd).filter(|fd| is_unix_datagram(fd)),
        }
    }
    let is_sound = wanted.len() == count
        && unfit.is_none()
        && doorbell.is_some() == wanted.contains(&Expected::Doorbell);
    let (mut has_pidfd, mut has_doorbell) = (false, false);
    if let Some(back) = back {
        let pidfd = seen.pidfd.as_ref();
        (has_pidfd, has_doorbell) = (pidfd.is_some(), doorbell.is_some());
        let kept: Vec<BorrowedFd<'_>> =
            pidfd.into_iter().chain(doorbell).map(AsFd::as_fd).collect();
        if !kept.is_empty() && send(back, b"kept", &kept)? != Sent::Yes {
            return Err(Error::system("sendmsg", Errno::TOOMANYREFS));
        }
    }
    let memory = unfit.map_or(Ok(memory), Err);
    let passed = Passed { bytes, oversize, from, pidfd: None, count, memory, doorbell: None };
    Ok(Some(Found { passed, is_sound, has_pidfd, has_doorbell }))
}

/// Looks at the next message with copies of all its descriptors, and of the sender's pidfd.
fn look_whole(
    socket: BorrowedFd<'_>,
    with_sender: bool,
    bytes: &mut [u8],
) -> Result<Option<ManuallyDrop<Seen>>> {
    // Only for this look: it would take room for control data from each message otherwise.
    if with_sender {
        pass_pidfd(socket, true);
    }
    let mut look =
        || message(socket, bytes, Take::LookWhole).map(|seen| seen.map(ManuallyDrop::new));
    let is_short = |seen: &Seen| seen.truncated && seen.fds.len() < MAX_PASSED;
    let mut seen = look();
    if let Ok(Some(first)) = &seen
        && is_short(first)
        && limits::raise_descriptors()
    {
        seen = look();
    }
    if with_sender {
        pass_pidfd(socket, false);
    }
    match seen? {
        Some(seen) if is_short(&seen) => Err(Error::system("recvmsg", Errno::MFILE)),
        seen => Ok(seen.filter(|seen| !seen.hung_up)),
    }
}

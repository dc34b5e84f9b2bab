//! Messages with descriptors: [`receive_passed`].
//!
//! Such a message is received in [`quarantine`], whose thread maps the memory if it is as
//! announced. Only a doorbell's end and the sender's pidfd enter the process's table, because their
//! entries can be removed without a wait and without effect on locks. All other descriptors are
//! closed when the thread ends. The caller does not wait for a peer before the thread reports: no
//! request is sent to a file system until the kernel has confirmed that a descriptor is a sealed
//! memfd.
//!
//! Neighbours: [`super::receive`](super::receive()) detects that a message carries descriptors; the
//! mailbox states the expected kinds with [`DescriptorKind`].

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::close::PeerSocket;
use super::option::{is_doorbell_of, owner, pass_pidfd};
use super::receive::{MAX_PASSED, RecvmsgResult, SenderCredentials, Take, message, remove};
use super::{SendResult, pair, send};
use crate::error::{Error, Result};
use crate::sys::quarantine;
use crate::sys::region::{InvalidRegion, PeerRegion};

/// The expected kind of a descriptor in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// Sealed memory of this many bytes.
    Memory(usize),
    /// The ringing end of a doorbell.
    Doorbell,
}

/// A message, with its expected descriptors.
#[derive(Debug)]
pub(crate) struct PassedMessage {
    /// The bytes of the message.
    pub(crate) bytes: Vec<u8>,
    /// `true` if the message is longer than `bytes`.
    pub(crate) oversize: bool,
    /// The sender, if the socket passes credentials.
    pub(crate) from: Option<SenderCredentials>,
    /// The sender's pidfd, if it was requested and the kernel supports it.
    pub(crate) pidfd: Option<OwnedFd>,
    /// Number of descriptors that the message carried and for which there was space.
    pub(crate) count: usize,
    /// The expected memory, in order; empty if the number of descriptors is wrong.
    pub(crate) memory: Result<Vec<PeerRegion>, InvalidRegion>,
    /// The expected doorbell.
    pub(crate) doorbell: Option<PeerSocket>,
}

impl PassedMessage {
    /// Returns a message without descriptors.
    pub(crate) fn nothing(bytes: Vec<u8>, oversize: bool, from: Option<SenderCredentials>) -> Self {
        let memory = Ok(Vec::new());
        Self { bytes, oversize, from, pidfd: None, count: 0, memory, doorbell: None }
    }
}

/// Receives the next message, of at most `len` bytes, with its descriptors. `expected` returns the
/// expected kinds. If the descriptors have these kinds, the message is removed from the queue;
/// otherwise it stays.
///
/// `with_sender` requests the sender's pidfd and a doorbell, if one is expected. Returns `None` if
/// the queue is now empty. The caller waits for a thread, which itself waits for no peer.
///
/// # Errors
/// [`Error::System`] if this process lacks a thread, a descriptor or memory; the message stays.
pub(crate) fn receive_passed(
    socket: impl AsFd,
    len: usize,
    with_sender: bool,
    expected: impl FnOnce(&[u8]) -> Vec<DescriptorKind> + Send + 'static,
) -> Result<Option<PassedMessage>> {
    // Over this pair, the thread returns the descriptors that this process keeps.
    let way_back = with_sender.then(pair).transpose()?;
    let mut lent = vec![socket.as_fd()];
    lent.extend(way_back.iter().map(|(_, there)| there.as_fd()));
    // The thread keeps its copies until this function is done, so it is the last holder of the
    // descriptors that are not kept.
    let user = owner(&socket)?.uid;
    let (found, _hold) = quarantine::run(&lent, Some(user), move |lent| match *lent {
        [socket] => examine(socket, None, len, expected),
        [socket, back] => examine(socket, Some(back), len, expected),
        _ => Err(Error::system("recvmsg", Errno::BADF)),
    })?;
    let Some(ThreadFindings { mut passed, is_sound, has_pidfd, has_doorbell }) = found? else {
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
        passed.doorbell = kept.next().map(PeerSocket::of_peer).transpose()?;
    }
    // All descriptors of the message now have another holder, so the kernel closes none of them.
    if is_sound {
        remove(socket.as_fd())?;
    }
    Ok(Some(passed))
}

/// The thread's report.
struct ThreadFindings {
    passed: PassedMessage,
    /// `true` if all descriptors have the expected kinds.
    is_sound: bool,
    has_pidfd: bool,
    has_doorbell: bool,
}

/// Peeks at the next message in the thread's own table, maps its memory, and sends over `back` the
/// descriptors that the process keeps. Drops no descriptor: all of them are closed when the thread
/// ends.
fn examine(
    socket: BorrowedFd<'_>,
    back: Option<BorrowedFd<'_>>,
    len: usize,
    expected: impl FnOnce(&[u8]) -> Vec<DescriptorKind>,
) -> Result<Option<ThreadFindings>> {
    let mut bytes = vec![0; len];
    let Some(seen) = look_whole(socket, back.is_some(), &mut bytes)? else { return Ok(None) };
    let RecvmsgResult { len, oversize, from, .. } = *seen;
    bytes.truncate(len);
    let wanted = if oversize { Vec::new() } else { expected(&bytes) };
    let count = seen.fds.len();
    let (mut memory, mut doorbell, mut unfit) = (Vec::new(), None, None);
    let pairs = seen.fds.iter().zip(&wanted).filter(|_| wanted.len() == count);
    for (fd, wanted) in pairs {
        match wanted {
            DescriptorKind::Memory(size) => match PeerRegion::map(fd.as_fd(), *size) {
                Ok(region) => memory.push(region),
                Err(InvalidRegion::System(call, errno)) => return Err(Error::system(call, errno)),
                Err(lack) => unfit = unfit.or(Some(lack)),
            },
            DescriptorKind::Doorbell => doorbell = Some(fd).filter(|fd| is_doorbell_of(fd, from)),
        }
    }
    let is_sound = wanted.len() == count
        && unfit.is_none()
        && doorbell.is_some() == wanted.contains(&DescriptorKind::Doorbell);
    let (mut has_pidfd, mut has_doorbell) = (false, false);
    if let Some(back) = back {
        let pidfd = seen.pidfd.as_ref();
        (has_pidfd, has_doorbell) = (pidfd.is_some(), doorbell.is_some());
        let kept: Vec<BorrowedFd<'_>> =
            pidfd.into_iter().chain(doorbell).map(AsFd::as_fd).collect();
        if !kept.is_empty() && send(back, b"kept", &kept)? != SendResult::Yes {
            return Err(Error::system("sendmsg", Errno::TOOMANYREFS));
        }
    }
    let memory = unfit.map_or(Ok(memory), Err);
    let passed =
        PassedMessage { bytes, oversize, from, pidfd: None, count, memory, doorbell: None };
    Ok(Some(ThreadFindings { passed, is_sound, has_pidfd, has_doorbell }))
}

/// Peeks at the next message with copies of all its descriptors, and of the sender's pidfd.
fn look_whole(
    socket: BorrowedFd<'_>,
    with_sender: bool,
    bytes: &mut [u8],
) -> Result<Option<ManuallyDrop<RecvmsgResult>>> {
    // The option is set for this call only, since otherwise each message would need space for the
    // pidfd.
    if with_sender {
        pass_pidfd(socket, true);
    }
    let seen = message(socket, bytes, Take::LookWhole).map(|seen| seen.map(ManuallyDrop::new));
    if with_sender {
        pass_pidfd(socket, false);
    }
    match seen? {
        Some(seen) if seen.truncated && seen.fds.len() < MAX_PASSED => {
            Err(Error::system("recvmsg", Errno::MFILE))
        }
        seen => Ok(seen.filter(|seen| !seen.hung_up)),
    }
}

//! The protocol's socket without assertions, because a hostile peer continues after any error.
//! [`raw`](super::raw) creates valid messages.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags,
};

use super::common::{Random, is_readable};
use super::raw;

/// Maximum number of descriptors of a message.
pub(super) const MAX_FDS: usize = 253;

/// Connects to a mailbox; returns `None` if it does not accept within a second.
pub(super) fn dial(path: &Path) -> Option<OwnedFd> {
    let socket = raw::socket();
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(Duration::from_secs(1))).ok()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    Some(socket)
}

/// Accepts the next connection, if one arrives in time.
pub(super) fn accept(listener: &OwnedFd, timeout: Duration) -> Option<OwnedFd> {
    is_readable(listener, timeout)
        .then(|| rustix::net::accept_with(listener, SocketFlags::CLOEXEC).ok())?
}

/// The result of one receive from a socket.
#[derive(Debug)]
pub(super) enum SocketLook {
    Nothing,
    HungUp,
    /// The kind of a message, and its descriptors.
    Message(u32, Vec<OwnedFd>),
}

/// Receives the next message without waiting.
pub(super) fn hear(socket: &OwnedFd) -> SocketLook {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 256];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let parts = &mut [IoSliceMut::new(&mut bytes)];
    match rustix::net::recvmsg(socket, parts, &mut control, flags) {
        Ok(received) if received.bytes > 0 => {}
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return SocketLook::Nothing,
        Ok(_) | Err(_) => return SocketLook::HungUp,
    }
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(passed) => passed.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let fds = fds.collect();
    let kind = bytes.first_chunk().map_or(0, |kind| u32::from_le_bytes(*kind));
    SocketLook::Message(kind, fds)
}

/// Sends without waiting. Descriptors beyond [`MAX_FDS`] are omitted.
pub(super) fn say(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    raw::send(socket, bytes, &fds[..fds.len().min(MAX_FDS)])
}

/// Returns a random number at a limit of the protocol's checks.
pub(super) fn edge(random: &mut Random) -> u64 {
    const EDGES: [u64; 18] = [
        0,
        1,
        7,
        8,
        9,
        16,
        3960,
        3968,
        4096,
        1 << 16,
        1 << 20,
        1 << 31,
        u32::MAX as u64,
        1 << 32,
        1 << 62,
        1 << 63,
        u64::MAX - 7,
        u64::MAX,
    ];
    let edge = EDGES[random.below(EDGES.len() as u64) as usize];
    match random.below(4) {
        0 => edge.wrapping_add(random.below(17)).wrapping_sub(8),
        1 => random.next() >> random.below(64),
        _ => edge,
    }
}

/// Returns one of `choices`.
pub(super) fn pick<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

/// Changes, cuts or extends a message.
pub(super) fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        match random.below(5) {
            0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
            1 => bytes.extend((0..random.below(120)).map(|_| random.next() as u8)),
            2 if bytes.len() >= 8 => {
                let at = random.below(bytes.len() as u64 - 7) as usize;
                let word = edge(random).to_le_bytes();
                bytes[at..at + 8].copy_from_slice(&word);
            }
            _ if !bytes.is_empty() => {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            _ => {}
        }
    }
}

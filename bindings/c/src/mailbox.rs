//! The receiving end.

#![allow(unsafe_code, reason = "handles and buffers of a program in C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;

use libc::ssize_t;
use tontine::mailbox::{Mailbox, Message, SenderId};
use tontine::{Error, Peer};

use crate::border::{
    Kept, Outcome, Refusal, address, answer, behind, close, copy_out, hand_over, length, owned,
    timeout,
};
use crate::options::{read, tontine_options};

/// One receiver's bundle of lanes.
#[derive(Debug)]
pub struct tontine_mailbox(Kept<State>);

#[derive(Debug)]
struct State {
    mailbox: Mailbox,
    /// Of the message last received.
    from: Option<(Peer, SenderId)>,
    /// Of the message that did not fit last.
    too_long: Option<usize>,
    faults: VecDeque<Error>,
}

/// The process at the other end, as the kernel named it when it connected.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct tontine_peer {
    /// In this process's PID namespace; 0 where it cannot be seen from here.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

impl From<Peer> for tontine_peer {
    fn from(peer: Peer) -> Self {
        Self { pid: peer.pid.unwrap_or(0), uid: peer.uid }
    }
}

/// Opens a mailbox at the address, in place of a dead owner if there was one. options may be NULL.
/// EADDRINUSE where the address has a living owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_bind(
    at: *const c_char,
    options: *const tontine_options,
) -> *mut tontine_mailbox {
    answer(|| {
        // SAFETY: the contract at the header's top.
        let (address, options) = unsafe { (address(at)?, read(options)?) };
        Ok(opened(options.bind(address)?))
    })
}

/// Opens a mailbox without an address: connected sockets are given to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_unbound(
    options: *const tontine_options,
) -> *mut tontine_mailbox {
    answer(|| {
        // SAFETY: the contract at the header's top.
        let options = unsafe { read(options) }?;
        Ok(opened(options.unbound()?))
    })
}

fn opened(mailbox: Mailbox) -> *mut tontine_mailbox {
    let state = State { mailbox, from: None, too_long: None, faults: VecDeque::new() };
    hand_over(tontine_mailbox(Kept::new(state)))
}

/// Takes a connected SOCK_SEQPACKET socket, whose other end is given to tontine_sender_over(). From
/// then on it is the library's, also where the call fails (but not with EBADF or EINVAL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_adopt(
    mailbox: *mut tontine_mailbox,
    socket: c_int,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the caller gives it away.
        state.mailbox.adopt(unsafe { owned(socket) }?)?;
        Ok(0)
    })
}

/// Waits for the next message, copies it into the buffer and returns its length; acknowledges the
/// one before. EMSGSIZE where it is longer than the buffer: it is kept and received again (see
/// tontine_mailbox_next_length()).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_recv(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the contract at the header's top.
    unsafe { receive(mailbox, buffer, size, |mailbox| mailbox.recv()) }
}

/// As tontine_mailbox_recv(), without waiting: EAGAIN where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_try_recv(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the contract at the header's top.
    unsafe { receive(mailbox, buffer, size, |mailbox| mailbox.try_recv()) }
}

/// As tontine_mailbox_recv(), for at most so many milliseconds: then ETIMEDOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_recv_timeout(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: i64,
) -> ssize_t {
    // SAFETY: the contract at the header's top.
    unsafe {
        receive(mailbox, buffer, size, |mailbox| match timeout(timeout_ms) {
            Some(timeout) => mailbox.recv_timeout(timeout),
            None => mailbox.recv(),
        })
    }
}

/// # Safety
/// As [`behind`] and [`copy_out`].
unsafe fn receive(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
    take: impl for<'a> FnOnce(&'a mut Mailbox) -> tontine::Result<Message<'a>>,
) -> ssize_t {
    with(mailbox, |state| {
        let message = take(&mut state.mailbox)?;
        let (from, length) = ((message.peer(), message.sender()), message.len());
        // SAFETY: passed on.
        let copied = unsafe { copy_out(&message, buffer, size) };
        if copied.is_ok() {
            (state.from, state.too_long) = (Some(from), None);
        } else {
            state.too_long = Some(length);
            state.mailbox.put_back();
        }
        copied
    })
}

/// The length of the message that was last kept because the buffer was too small; ENODATA where
/// none was. The next message may still be another, of another sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_next_length(mailbox: *mut tontine_mailbox) -> ssize_t {
    with(mailbox, |state| match state.too_long {
        Some(bytes) => length(bytes),
        None => Err(Refusal::new(libc::ENODATA, "no message was kept for want of room")),
    })
}

/// Who sent the message last received; ENODATA where there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_peer(
    mailbox: *mut tontine_mailbox,
    peer: *mut tontine_peer,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the contract at the header's top.
        unsafe { tell_peer(state.from.map(|(peer, _)| peer), peer) }
    })
}

/// The lane by which the message last received came, as a number that no other lane of this mailbox
/// has or will have: a process may have several, and a process id may be used again. ENODATA where
/// there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_sender(
    mailbox: *mut tontine_mailbox,
    sender: *mut u64,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the contract at the header's top.
        let place = unsafe { behind(sender) }?;
        let nobody = || Refusal::new(libc::ENODATA, "no message was received yet");
        *place = state.from.ok_or_else(nobody)?.1.number();
        Ok(0)
    })
}

/// Writes who it is.
///
/// # Safety
/// NULL, or a place for it.
pub(crate) unsafe fn tell_peer(known: Option<Peer>, place: *mut tontine_peer) -> Outcome<c_int> {
    // SAFETY: passed on.
    let place = unsafe { behind(place) }?;
    *place = known.ok_or_else(|| Refusal::new(libc::ENODATA, "nobody is known yet"))?.into();
    Ok(0)
}

/// Acknowledges the message last received: should this process die, a successor does not get it
/// again. The next receiving call and tontine_mailbox_close() do it too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_acknowledge(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        state.mailbox.acknowledge();
        Ok(0)
    })
}

/// Takes the message last received for not received: it is received again, or stays the sender's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_put_back(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        state.mailbox.put_back();
        Ok(0)
    })
}

/// The descriptor to wait on, with poll or epoll: readable when there is something to do. Call
/// tontine_mailbox_arm() before waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_fd(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| Ok(state.mailbox.descriptor().as_raw_fd()))
}

/// Prepares for waiting on the descriptor. 1: nothing is there, wait; 0: call
/// tontine_mailbox_try_recv() until it says EAGAIN, then arm again. Acknowledges the message last
/// received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_arm(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| Ok(c_int::from(state.mailbox.arm()?)))
}

/// How many senders are connected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_lanes(mailbox: *mut tontine_mailbox) -> ssize_t {
    with(mailbox, |state| length(state.mailbox.lanes()))
}

/// The error number of a lane that had to be closed or of a peer that was refused, the oldest
/// first, each told once; tontine_last_error() then has the words. 0 where nothing was wrong.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_fault(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        if state.faults.is_empty() {
            state.faults = state.mailbox.faults().into();
        }
        Ok(state.faults.pop_front().map_or(0, |fault| {
            let number = fault.errno();
            Refusal::from(fault).keep_words();
            number
        }))
    })
}

/// Closes the mailbox: its senders get EPIPE and keep what is unread. In a forked child it only
/// frees the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_close(mailbox: *mut tontine_mailbox) {
    // SAFETY: the contract at the header's top.
    unsafe { close(mailbox) }
}

/// The body of a function that takes a mailbox. The contract at the header's top is its callers'.
fn with<T: crate::border::Answer>(
    mailbox: *mut tontine_mailbox,
    body: impl FnOnce(&mut State) -> Outcome<T>,
) -> T {
    // SAFETY: the contract at the header's top.
    answer(|| unsafe { behind(mailbox) }?.0.with(body))
}

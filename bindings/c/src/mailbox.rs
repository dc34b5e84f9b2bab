//! The receiving end of lanes: [`tontine_mailbox`].

#![allow(unsafe_code, reason = "handles and buffers of a program in C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use libc::ssize_t;
use tontine::mailbox::{Mailbox, Message, SenderId};
use tontine::{Error, Peer};

use crate::border::{
    CError, CResult, Poisonable, address, answer, behind, close, copy_out, hand_over, length,
    owned, timeout,
};
use crate::options::{read, tontine_options};

/// A mailbox: receives the messages of many senders.
#[derive(Debug)]
pub struct tontine_mailbox(Poisonable<MailboxHandle>);

#[derive(Debug)]
struct MailboxHandle {
    mailbox: Mailbox,
    /// Sender of the message last received.
    from: Option<(Peer, SenderId)>,
    /// Length of the last message that did not fit into the buffer.
    too_long: Option<usize>,
    errors: VecDeque<Error>,
}

/// The process at the other end, as the kernel identified it when it connected.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct tontine_peer {
    /// Process id in this process's PID namespace; 0 if the process is not visible there.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

impl From<Peer> for tontine_peer {
    fn from(peer: Peer) -> Self {
        Self { pid: peer.pid.unwrap_or(0), uid: peer.uid }
    }
}

/// Opens a mailbox at the address. Takes over the address if its last owner is dead. If options is
/// NULL, every setting has its default. EADDRINUSE if the address has a live owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_bind(
    at: *const c_char,
    options: *const tontine_options,
) -> *mut tontine_mailbox {
    answer(|| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let (address, options) = unsafe { (address(at)?, read(options)?) };
        Ok(opened(options.bind(address)?))
    })
}

/// Opens a mailbox without an address, for senders whose sockets tontine_mailbox_adopt() adds. If
/// options is NULL, every setting has its default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_unbound(
    options: *const tontine_options,
) -> *mut tontine_mailbox {
    answer(|| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let options = unsafe { read(options) }?;
        Ok(opened(options.unbound()?))
    })
}

fn opened(mailbox: Mailbox) -> *mut tontine_mailbox {
    let state = MailboxHandle { mailbox, from: None, too_long: None, errors: VecDeque::new() };
    hand_over(tontine_mailbox(Poisonable::new(state)))
}

/// Adds a connected SOCK_SEQPACKET socket of AF_UNIX, whose other end is passed to
/// tontine_sender_from_socket(). The socket then belongs to the library, even if the call fails
/// (except with EBADF or EINVAL).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_adopt(
    mailbox: *mut tontine_mailbox,
    socket: c_int,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the caller passes ownership of the socket to the library.
        state.mailbox.adopt(unsafe { owned(socket) }?)?;
        Ok(0)
    })
}

/// Blocks until a message has arrived, copies it into the buffer and returns its length. First
/// acknowledges the previous message. EMSGSIZE if the message is longer than the buffer: the
/// message is kept and received again (tontine_mailbox_next_length() returns its length).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_recv(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { receive(mailbox, buffer, size, |mailbox| mailbox.recv()) }
}

/// Receives like tontine_mailbox_recv(), without blocking: EAGAIN if there is no message. Finds
/// each message that a connected sender sent before the call. Senders that are connecting are
/// accepted by a call that enters the kernel: each call while no sender is connected; otherwise one
/// of the 64 calls after 5 ms have passed, and the first of them if the program calls rarely.
/// tontine_mailbox_recv_timeout() with a timeout of 0 always enters the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_try_recv(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { receive(mailbox, buffer, size, |mailbox| mailbox.try_recv()) }
}

/// Receives like tontine_mailbox_recv(), but fails with ETIMEDOUT after timeout_ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_recv_timeout(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: i64,
) -> ssize_t {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe {
        receive(mailbox, buffer, size, |mailbox| match timeout(timeout_ms) {
            Some(timeout) => mailbox.recv_timeout(timeout),
            None => mailbox.recv(),
        })
    }
}

/// # Safety
/// The contracts of [`behind`] and [`copy_out`].
unsafe fn receive(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
    take: impl for<'a> FnOnce(&'a mut Mailbox) -> tontine::Result<Message<'a>>,
) -> ssize_t {
    with(mailbox, |state| {
        let message = take(&mut state.mailbox)?;
        let (from, length) = ((message.peer(), message.sender()), message.len());
        // SAFETY: the caller upholds the contract.
        let copied = unsafe { copy_out(&message, buffer, size) };
        if copied.is_ok() {
            (state.from, state.too_long) = (Some(from), None);
        } else {
            state.too_long = Some(length);
            state.mailbox.requeue();
        }
        copied
    })
}

/// Returns the length of the last message that was kept because the buffer was too small; ENODATA
/// if no message was kept. The next message received may be a different one, from another sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_next_length(mailbox: *mut tontine_mailbox) -> ssize_t {
    with(mailbox, |state| match state.too_long {
        Some(bytes) => length(bytes),
        None => {
            let text = "no message was kept because the buffer was too small";
            Err(CError::new(libc::ENODATA, text))
        }
    })
}

/// Stores the process that sent the message last received. ENODATA if no message was received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_peer(
    mailbox: *mut tontine_mailbox,
    peer: *mut tontine_peer,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the caller upholds the contract at the top of the header.
        unsafe { tell_peer(state.from.map(|(peer, _)| peer), peer) }
    })
}

/// Stores the number of the lane on which the message last received arrived. No other lane of this
/// mailbox has or will have that number. A process, in contrast, may have several lanes, and its id
/// may be reused. ENODATA if no message was received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_sender(
    mailbox: *mut tontine_mailbox,
    sender: *mut u64,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let place = unsafe { behind(sender) }?;
        let no_message = || CError::new(libc::ENODATA, "no message was received yet");
        *place = state.from.ok_or_else(no_message)?.1.number();
        Ok(0)
    })
}

/// Stores a peer in the program's struct.
///
/// # Safety
/// `place` is NULL, or points to a `tontine_peer` that may be written.
pub(crate) unsafe fn tell_peer(known: Option<Peer>, place: *mut tontine_peer) -> CResult<c_int> {
    // SAFETY: the caller upholds the contract.
    let place = unsafe { behind(place) }?;
    *place = known.ok_or_else(|| CError::new(libc::ENODATA, "no peer is known yet"))?.into();
    Ok(0)
}

/// Acknowledges the message last received: if this process dies, a successor does not receive it
/// again. The next receiving call also acknowledges it, whether or not it finds a message, and so
/// do tontine_mailbox_arm() and tontine_mailbox_close().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_ack(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        state.mailbox.ack();
        Ok(0)
    })
}

/// Marks the message last received as unread, if it has not been acknowledged: call this function
/// before the next receiving call, tontine_mailbox_ack() and tontine_mailbox_arm(). A receiving
/// call then returns the message again, perhaps after messages of other senders. If the mailbox is
/// closed instead, the message stays with its sender, unread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_requeue(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        state.mailbox.requeue();
        Ok(0)
    })
}

/// Returns the descriptor to wait on, with poll or epoll: readable when the mailbox has something
/// to do. Call tontine_mailbox_arm() before each wait. If the descriptor is registered with
/// EPOLLET, also poll it once after tontine_mailbox_arm() has returned 1: each call handles a
/// bounded number of events, and those that are left cause no new edge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_fd(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| Ok(state.mailbox.as_fd().as_raw_fd()))
}

/// Prepares for waiting on the descriptor, and acknowledges the message last received. Returns 1 if
/// there is nothing to receive: wait. Returns 0 if there may be a message: call
/// tontine_mailbox_try_recv() until it fails with EAGAIN, then arm again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_arm(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| Ok(c_int::from(state.mailbox.arm()?)))
}

/// Returns the number of connected senders.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_sender_count(mailbox: *mut tontine_mailbox) -> ssize_t {
    with(mailbox, |state| length(state.mailbox.sender_count()))
}

/// Removes the oldest error of a lane that had to be closed, or of a peer that was refused, and
/// returns it as an errno value; tontine_last_error() then returns its text. Returns 0 if there is
/// no such error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_next_error(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        if state.errors.is_empty() {
            state.errors = state.mailbox.take_errors().into();
        }
        Ok(state.errors.pop_front().map_or(0, |error| {
            let number = error.errno();
            CError::from(error).keep_words();
            number
        }))
    })
}

/// Closes the mailbox, and acknowledges the message last received: to leave that message unread,
/// call tontine_mailbox_requeue() first. The calls of its senders then fail with EPIPE; the senders
/// keep the messages that were not acknowledged. A sender that the mailbox had not accepted yet
/// receives EOWNERDEAD if this process has ended, or if the sender was made from a socket or does
/// not see this process in `/proc`. In a forked child, the call only frees the child's copy of the
/// handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_close(mailbox: *mut tontine_mailbox) {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { close(mailbox) }
}

/// Runs the body of a function that takes a mailbox. The callers of that function uphold the
/// contract at the top of the header.
fn with<T: crate::border::CReturn>(
    mailbox: *mut tontine_mailbox,
    body: impl FnOnce(&mut MailboxHandle) -> CResult<T>,
) -> T {
    // SAFETY: the caller upholds the contract at the top of the header.
    answer(|| unsafe { behind(mailbox) }?.0.with(body))
}

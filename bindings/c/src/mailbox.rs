//! The receiving end.

#![allow(unsafe_code, reason = "handles and buffers of a program in C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use libc::ssize_t;
use tontine::mailbox::{Mailbox, Message, SenderId};
use tontine::{Error, Peer};

use crate::border::{
    Kept, Outcome, Refusal, address, answer, behind, close, copy_out, hand_over, length, owned,
    timeout,
};
use crate::options::{read, tontine_options};

/// The receiving end: messages of many senders.
#[derive(Debug)]
pub struct tontine_mailbox(Kept<State>);

#[derive(Debug)]
struct State {
    mailbox: Mailbox,
    /// Of the message last received.
    from: Option<(Peer, SenderId)>,
    /// Of the message that did not fit last.
    too_long: Option<usize>,
    errors: VecDeque<Error>,
}

/// The process at the other end, as the kernel identified it when it connected.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct tontine_peer {
    /// Process id in this process's PID namespace; 0 if the process is not visible from here.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

impl From<Peer> for tontine_peer {
    fn from(peer: Peer) -> Self {
        Self { pid: peer.pid.unwrap_or(0), uid: peer.uid }
    }
}

/// Opens a mailbox at the address, and takes the address over if its last owner is dead. options
/// may be NULL. EADDRINUSE if the address has a live owner.
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

/// Opens a mailbox without an address: it receives by the sockets that tontine_mailbox_adopt()
/// adds.
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
    let state = State { mailbox, from: None, too_long: None, errors: VecDeque::new() };
    hand_over(tontine_mailbox(Kept::new(state)))
}

/// Adds a connected SOCK_SEQPACKET socket, whose other end is given to
/// tontine_sender_from_socket(). From then on the socket is the library's, also if the call fails
/// (except with EBADF or EINVAL).
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

/// Blocks until a message has arrived, copies it into the buffer and returns its length;
/// acknowledges the message before it. EMSGSIZE if it is longer than the buffer: it is kept and
/// received again (see tontine_mailbox_next_length()).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_recv(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the contract at the header's top.
    unsafe { receive(mailbox, buffer, size, |mailbox| mailbox.recv()) }
}

/// Receives like tontine_mailbox_recv(), without blocking: EAGAIN if there is no message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_try_recv(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    // SAFETY: the contract at the header's top.
    unsafe { receive(mailbox, buffer, size, |mailbox| mailbox.try_recv()) }
}

/// Receives like tontine_mailbox_recv(), blocking for at most timeout_ms: then ETIMEDOUT.
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
            state.mailbox.requeue();
        }
        copied
    })
}

/// Returns the length of the message that was last kept because the buffer was too small; ENODATA
/// if none was. The next message may still be another sender's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_next_length(mailbox: *mut tontine_mailbox) -> ssize_t {
    with(mailbox, |state| match state.too_long {
        Some(bytes) => length(bytes),
        None => {
            let text = "no message was kept because the buffer was too small";
            Err(Refusal::new(libc::ENODATA, text))
        }
    })
}

/// Stores the process that sent the message last received; ENODATA if there was none.
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

/// Stores the lane by which the message last received came, as a number that no other lane of this
/// mailbox has or will have: a process may have several lanes, and a process id may be reused.
/// ENODATA if there was no message.
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

/// Stores a peer.
///
/// # Safety
/// `place` is NULL, or leads to a `tontine_peer` that may be written.
pub(crate) unsafe fn tell_peer(known: Option<Peer>, place: *mut tontine_peer) -> Outcome<c_int> {
    // SAFETY: passed on.
    let place = unsafe { behind(place) }?;
    *place = known.ok_or_else(|| Refusal::new(libc::ENODATA, "no peer is known yet"))?.into();
    Ok(0)
}

/// Acknowledges the message last received: if this process dies, a successor does not receive it
/// again. The next receiving call and tontine_mailbox_close() acknowledge too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_ack(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        state.mailbox.ack();
        Ok(0)
    })
}

/// Marks the message last received as unread: it is received again, or stays with its sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_requeue(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        state.mailbox.requeue();
        Ok(0)
    })
}

/// Returns the descriptor to wait on, with poll or epoll: readable when the mailbox has something
/// to do. Call tontine_mailbox_arm() before waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_fd(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| Ok(state.mailbox.as_fd().as_raw_fd()))
}

/// Prepares for waiting on the descriptor. Returns 1 if there is nothing to receive: wait. Returns
/// 0 if there may be: call tontine_mailbox_try_recv() until it fails with EAGAIN, then arm again.
/// Acknowledges the message last received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_arm(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| Ok(c_int::from(state.mailbox.arm()?)))
}

/// Returns the number of connected senders.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_sender_count(mailbox: *mut tontine_mailbox) -> ssize_t {
    with(mailbox, |state| length(state.mailbox.sender_count()))
}

/// Removes and returns, as an errno value, the oldest error of a lane that had to be closed or of a
/// peer that was refused; tontine_last_error() then returns its text. Returns 0 if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_next_error(mailbox: *mut tontine_mailbox) -> c_int {
    with(mailbox, |state| {
        if state.errors.is_empty() {
            state.errors = state.mailbox.take_errors().into();
        }
        Ok(state.errors.pop_front().map_or(0, |error| {
            let number = error.errno();
            Refusal::from(error).keep_words();
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

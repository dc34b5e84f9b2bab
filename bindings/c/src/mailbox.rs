//! The receiving end of lanes: [`tontine_mailbox`].

#![allow(unsafe_code, reason = "handles and buffers of a program in C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use libc::ssize_t;
use tontine::mailbox::{Mailbox, Message, SenderId, Waker};
use tontine::{Error, Peer};

use crate::border::{
    CError, CResult, Poisonable, address, answer, answer_cancellable, behind, close, copy_out,
    hand_over, length, owned, timeout,
};
use crate::options::{read_for_mailbox, tontine_options};

/// A mailbox: receives the messages of many senders.
#[derive(Debug)]
pub struct tontine_mailbox(Poisonable<MailboxHandle>);

#[derive(Debug)]
struct MailboxHandle {
    mailbox: Mailbox,
    /// The message last received.
    last: Option<Received>,
    /// Length of the last message that did not fit into the buffer.
    too_long: Option<usize>,
    errors: VecDeque<Error>,
    deaths: VecDeque<(SenderId, Peer)>,
}

impl MailboxHandle {
    /// Completes a call that has copied a message, or has not, so that the message stays unread.
    fn received(&mut self, message: Received, copied: CResult<ssize_t>) -> CResult<ssize_t> {
        if copied.is_ok() {
            (self.last, self.too_long) = (Some(message), None);
        } else {
            self.too_long = Some(message.length);
            self.mailbox.requeue_unseen();
        }
        copied
    }
}

/// A message, without its bytes.
#[derive(Debug, Clone, Copy)]
struct Received {
    peer: Peer,
    sender: SenderId,
    redelivered: u32,
    length: usize,
}

impl From<&Message<'_>> for Received {
    fn from(message: &Message<'_>) -> Self {
        Self {
            peer: message.peer(),
            sender: message.sender(),
            redelivered: message.redelivered(),
            length: message.len(),
        }
    }
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

/// A message, as tontine_mailbox_recv_batch() passes it to a function. The bytes are valid until
/// that function returns.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct tontine_message {
    /// The first byte.
    pub bytes: *const c_void,
    /// Number of bytes.
    pub length: usize,
    /// Number of the lane on which it arrived, as tontine_mailbox_sender() stores it.
    pub sender: u64,
    /// The process that sent it.
    pub peer: tontine_peer,
    /// Number of owners that may have received it before, as tontine_mailbox_redelivered() stores
    /// it.
    pub redelivered: u32,
}

/// A function that tontine_mailbox_recv_batch() calls for each message, with the program's context.
/// It returns normally, without a C++ exception, longjmp() or the end of the thread, and does not
/// call a function with the mailbox.
pub type tontine_receive =
    Option<unsafe extern "C" fn(context: *mut c_void, message: *const tontine_message)>;

/// Opens a mailbox at the address. Takes over the address if its last owner is dead. If options is
/// NULL, every setting has its default. EADDRINUSE if the address has a live owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_bind(
    at: *const c_char,
    options: *const tontine_options,
) -> *mut tontine_mailbox {
    answer(|| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let (address, options) = unsafe { (address(at)?, read_for_mailbox(options)?) };
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
        let options = unsafe { read_for_mailbox(options) }?;
        Ok(opened(options.unbound()?))
    })
}

fn opened(mailbox: Mailbox) -> *mut tontine_mailbox {
    let (errors, deaths) = (VecDeque::new(), VecDeque::new());
    let state = MailboxHandle { mailbox, last: None, too_long: None, errors, deaths };
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
    unsafe { receive(mailbox, buffer, size, AtOnce::Poll, |mailbox| mailbox.recv()) }
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
    unsafe { receive(mailbox, buffer, size, AtOnce::LookOrFail, |mailbox| mailbox.try_recv()) }
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
        match timeout(timeout_ms) {
            Some(timeout) => receive(mailbox, buffer, size, AtOnce::Look, |mailbox| {
                mailbox.recv_timeout(timeout)
            }),
            None => tontine_mailbox_recv(mailbox, buffer, size),
        }
    }
}

/// The search for a message before a receiving call disables cancellation, which takes about as
/// long as the receipt of a message that is already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtOnce {
    /// Polls for a short time.
    Poll,
    /// Looks once.
    Look,
    /// Looks once, and fails if there is neither a message nor other work.
    LookOrFail,
}

/// # Safety
/// The contracts of [`behind`] and [`copy_out`].
unsafe fn receive(
    mailbox: *mut tontine_mailbox,
    buffer: *mut c_void,
    size: usize,
    at_once: AtOnce,
    take: impl for<'a> FnOnce(&'a mut Mailbox) -> tontine::Result<Message<'a>>,
) -> ssize_t {
    let received = answer_cancellable(|| {
        // SAFETY: the caller upholds the contract.
        unsafe { behind(mailbox) }?.0.with(|state| {
            if at_once == AtOnce::LookOrFail && state.mailbox.is_vain() {
                return Err(Error::WouldBlock.into());
            }
            let found = state.mailbox.recv_at_once(at_once == AtOnce::Poll);
            let Some(message) = found else { return Ok(None) };
            // SAFETY: the caller upholds the contract.
            let copied = unsafe { copy_out(&message, buffer, size) };
            let message = Received::from(&message);
            state.received(message, copied).map(Some)
        })
    });
    received.unwrap_or_else(|| {
        with(mailbox, |state| {
            let message = take(&mut state.mailbox)?;
            // SAFETY: the caller upholds the contract.
            let copied = unsafe { copy_out(&message, buffer, size) };
            let message = Received::from(&message);
            state.received(message, copied)
        })
    })
}

/// Blocks for the first message, then passes up to max queued messages to the function receive, and
/// acknowledges each when it returns. Returns their number; 0 at once if max is 0. One call costs
/// less than one call per message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_recv_batch(
    mailbox: *mut tontine_mailbox,
    max: usize,
    receive: tontine_receive,
    context: *mut c_void,
) -> ssize_t {
    with(mailbox, |state| {
        let null = || CError::new(libc::EINVAL, "the function is NULL; pass one");
        let receive = receive.ok_or_else(null)?;
        let mut last = None;
        let count = state.mailbox.recv_batch(max, |message| {
            last = Some(Received::from(message));
            let passed = tontine_message {
                bytes: message.as_ptr().cast(),
                length: message.len(),
                sender: message.sender().number(),
                peer: message.peer().into(),
                redelivered: message.redelivered(),
            };
            // SAFETY: the caller passes a function that may be called with this context, and the
            // message is valid during the call.
            unsafe { receive(context, &raw const passed) };
        })?;
        if last.is_some() {
            (state.last, state.too_long) = (last, None);
        }
        length(count)
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
        unsafe { store_peer(state.last.map(|message| message.peer), peer) }
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
        *place = state.last.ok_or_else(no_message)?.sender.number();
        Ok(0)
    })
}

/// Stores the number of owners of the address that may have received the message last received
/// before: 0 if it is certainly received for the first time. A message with a high count may be the
/// cause of their deaths. This mailbox counts too if it has put the message back with
/// tontine_mailbox_requeue(), but not if a buffer was too small. ENODATA if no message was
/// received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_redelivered(
    mailbox: *mut tontine_mailbox,
    count: *mut u32,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let place = unsafe { behind(count) }?;
        *place = state.last.ok_or_else(no_message)?.redelivered;
        Ok(0)
    })
}

fn no_message() -> CError {
    CError::new(libc::ENODATA, "no message was received yet")
}

/// Stores a peer in the program's struct.
///
/// # Safety
/// `place` is NULL, or points to a `tontine_peer` that may be written.
pub(crate) unsafe fn store_peer(known: Option<Peer>, place: *mut tontine_peer) -> CResult<c_int> {
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
/// tontine_mailbox_try_recv() until it fails with EAGAIN or ENOTCONN, then arm again.
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

/// Removes the oldest report of a sender that died, or ended without closing its lane, after its
/// messages were received; stores the number of its lane and its process, and returns 1. Returns 0
/// if there is no such report. Receiving calls find the deaths, but a report does not keep the
/// descriptor readable: call this function after each call that fails with EAGAIN, ETIMEDOUT or
/// ENOTCONN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_next_death(
    mailbox: *mut tontine_mailbox,
    sender: *mut u64,
    peer: *mut tontine_peer,
) -> c_int {
    with(mailbox, |state| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let (sender, peer) = unsafe { (behind(sender)?, behind(peer)?) };
        if state.deaths.is_empty() {
            state.deaths = state.mailbox.take_deaths().into();
        }
        let Some((id, process)) = state.deaths.pop_front() else { return Ok(0) };
        (*sender, *peer) = (id.number(), process.into());
        Ok(1)
    })
}

/// Returns 1 while the process at the other end of a lane lives, 0 once it has ended. The check is
/// one load from memory, without a system call. ENODATA if the mailbox has no lane of this number
/// (tontine_mailbox_sender()): it was closed, or its process has ended and its messages are read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_is_alive(
    mailbox: *mut tontine_mailbox,
    sender: u64,
) -> c_int {
    answer_cancellable(|| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let state = unsafe { behind(mailbox) }?;
        let alive =
            state.0.with(|state| Ok(state.mailbox.is_alive(SenderId::from_number(sender))))?;
        let gone = || CError::new(libc::ENODATA, "the mailbox has no lane of this number");
        alive.map(c_int::from).ok_or_else(gone)
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

/// Ends a receiving call of another thread.
#[derive(Debug)]
pub struct tontine_waker(Waker);

/// Returns a handle that ends a blocking receiving call of this mailbox. Unlike other handles, any
/// number of threads may use it at the same time, also while one uses the mailbox. Close it with
/// tontine_waker_close(), before or after the mailbox.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_mailbox_waker(
    mailbox: *mut tontine_mailbox,
) -> *mut tontine_waker {
    with(mailbox, |state| Ok(hand_over(tontine_waker(state.mailbox.waker()?))))
}

/// Makes the receiving call that blocks, or else the next one that would, fail once with ECANCELED.
/// Calls that do not block are not affected, and messages that are already there may be received
/// first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_waker_wake(waker: *const tontine_waker) -> c_int {
    answer(|| {
        // SAFETY: the caller upholds the contract at the top of the header. The handle is only
        // read, so that other threads may do so too.
        let waker = unsafe { waker.as_ref() }
            .ok_or_else(|| CError::new(libc::EINVAL, "the handle is NULL; open one first"))?;
        waker.0.wake()?;
        Ok(0)
    })
}

/// Closes the handle. The mailbox stays open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_waker_close(waker: *mut tontine_waker) {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { close(waker) }
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

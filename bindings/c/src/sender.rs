//! The sender: [`tontine_sender`].

#![allow(unsafe_code, reason = "handles and buffers of a program in C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use libc::ssize_t;
use tontine::mailbox::{Reservation, Sender};

use crate::border::{
    CError, CResult, CReturn, Poisonable, address, answer, answer_cancellable, behind, bytes,
    close, copy_out, hand_over, length, owned, timeout,
};
use crate::mailbox::{store_peer, tontine_peer};
use crate::options::{read_for_sender, tontine_options};

/// A sender: the sending end of one lane to a mailbox.
#[derive(Debug)]
pub struct tontine_sender(Poisonable<SenderHandle>);

#[derive(Debug)]
struct SenderHandle {
    /// The pointer is from `Box::into_raw`; `reservation` borrows it while space is reserved.
    sender: NonNull<Sender>,
    reservation: Option<Reservation<'static>>,
    /// Messages that were taken back from a dead receiver and not yet returned to the program.
    unread: VecDeque<Vec<u8>>,
    /// Number of these, the first ones, that a receiver may have processed.
    in_doubt: usize,
}

impl SenderHandle {
    /// Returns the sender, or EBUSY if space is reserved in it.
    fn free(&mut self) -> CResult<&mut Sender> {
        if self.reservation.is_some() {
            let text = "space is reserved; commit or cancel it first";
            return Err(CError::new(libc::EBUSY, text));
        }
        // SAFETY: this value owns the box; only a reservation borrows it, and no space is reserved.
        Ok(unsafe { self.sender.as_mut() })
    }
}

impl Drop for SenderHandle {
    fn drop(&mut self) {
        self.reservation = None;
        // SAFETY: the pointer is from `Box::into_raw`, and converted back only once; the
        // reservation, which borrowed it, no longer exists.
        drop(unsafe { Box::from_raw(self.sender.as_ptr()) });
    }
}

/// Opens a lane to the mailbox at the address. If options is NULL, every setting has its default.
/// Returns as soon as the socket is connected; the receiver accepts the connection when it next
/// receives, and messages sent before that wait in the lane. ECONNREFUSED if no process has a
/// mailbox at the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_connect(
    to: *const c_char,
    options: *const tontine_options,
) -> *mut tontine_sender {
    answer(|| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let (address, options) = unsafe { (address(to)?, read_for_sender(options)?) };
        Ok(opened(options.connect(address)?))
    })
}

/// Opens a lane over a connected SOCK_SEQPACKET socket of AF_UNIX, whose other end is passed to
/// tontine_mailbox_adopt(). The socket then belongs to the library, even if the call fails (except
/// with EBADF, EINVAL or E2BIG).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_from_socket(
    socket: c_int,
    options: *const tontine_options,
) -> *mut tontine_sender {
    answer(|| {
        // SAFETY: the caller upholds the contract at the top of the header, and passes ownership of
        // the socket to the library.
        let (options, socket) = unsafe { (read_for_sender(options)?, owned(socket)?) };
        Ok(opened(options.connect_socket(socket)?))
    })
}

/// Opens another lane to the same mailbox, with the same options, for another thread. ECONNREFUSED
/// if the lane was opened over a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_clone(sender: *mut tontine_sender) -> *mut tontine_sender {
    with(sender, |state| Ok(opened(state.free()?.try_clone()?)))
}

fn opened(sender: Sender) -> *mut tontine_sender {
    let sender = NonNull::from(Box::leak(Box::new(sender)));
    let state = SenderHandle { sender, reservation: None, unread: VecDeque::new(), in_doubt: 0 };
    hand_over(tontine_sender(Poisonable::new(state)))
}

/// Sends a message; blocks while the lane has no free space for it. If the receiver is alive and
/// awake, the call makes no system call. EOWNERDEAD if the receiver is dead, EPIPE if it has closed
/// its mailbox. If the call fails, nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_send(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { send(sender, message, length, |sender, message| sender.send(message)) }
}

/// Sends like tontine_sender_send(), without blocking: EAGAIN if the lane has no free space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_try_send(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { send(sender, message, length, |sender, message| sender.try_send(message)) }
}

/// Sends like tontine_sender_send(), but fails with ETIMEDOUT after timeout_ms.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_send_timeout(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
    timeout_ms: i64,
) -> c_int {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe {
        send(sender, message, length, |sender, message| match timeout(timeout_ms) {
            Some(timeout) => sender.send_timeout(message, timeout),
            None => sender.send(message),
        })
    }
}

/// # Safety
/// The contracts of [`behind`] and [`bytes`].
unsafe fn send(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
    how: impl FnOnce(&mut Sender, &[u8]) -> tontine::Result<()>,
) -> c_int {
    // A message for which no system call is necessary is sent without disabling cancellation.
    let sent = answer_cancellable(|| {
        // SAFETY: the caller upholds the contract.
        let (state, message) = unsafe { (behind(sender)?, bytes(message, length)?) };
        let sent = state.0.with(|state| Ok(state.free()?.send_at_once(message)))?;
        Ok(sent.then_some(0))
    });
    if let Some(done) = sent {
        return done;
    }
    with(sender, |state| {
        // SAFETY: the caller upholds the contract.
        let message = unsafe { bytes(message, length) }?;
        how(state.free()?, message)?;
        Ok(0)
    })
}

/// Reserves space for a message of length bytes, and returns a pointer to it; blocks while the lane
/// has no free space. Write the message there, then call tontine_sender_commit() or
/// tontine_sender_cancel(). Until then the pointer is valid, and every other call with this sender
/// except tontine_sender_close() fails with EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_reserve(
    sender: *mut tontine_sender,
    length: usize,
) -> *mut c_void {
    with(sender, |state| {
        state.free()?;
        // SAFETY: this value owns the box, which exists until `SenderHandle` is dropped, after the
        // reservation. Only one reservation borrows it, because `free` fails while space is
        // reserved.
        let sender: &'static mut Sender = unsafe { state.sender.as_mut() };
        let bytes = state.reservation.insert(sender.reserve(length)?);
        Ok(bytes.as_mut_ptr().cast())
    })
}

/// Sends the message that was written to the reserved space. ENODATA if no space is reserved. If
/// the call fails, nothing was sent, and the space is released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_commit(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        let nothing = || CError::new(libc::ENODATA, "no space is reserved; reserve it first");
        state.reservation.take().ok_or_else(nothing)?.commit()?;
        Ok(0)
    })
}

/// Releases the reserved space without sending a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_cancel(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        state.reservation = None;
        Ok(0)
    })
}

/// Takes back a message that the receiver did not acknowledge before it died or closed its mailbox:
/// copies the message into the buffer and returns its length. Call this function until it fails
/// with ENODATA: it returns the messages in the order in which they were sent. EAGAIN while the
/// receiver is alive; EMSGSIZE if the message is longer than the buffer: the message is kept
/// (tontine_sender_next_unread_length() returns its length).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_take_unread(
    sender: *mut tontine_sender,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    with(sender, |state| {
        // SAFETY: the caller upholds the contract at the top of the header.
        let copied = unsafe { copy_out(next_unread(state)?, buffer, size) }?;
        state.unread.pop_front();
        state.in_doubt = state.in_doubt.saturating_sub(1);
        Ok(copied)
    })
}

/// Returns the length of the message that tontine_sender_take_unread() returns next. EAGAIN while
/// the receiver is alive; ENODATA when no message is left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_next_unread_length(sender: *mut tontine_sender) -> ssize_t {
    with(sender, |state| length(next_unread(state)?.len()))
}

/// Returns 1 if a receiver may have processed the message that tontine_sender_take_unread() returns
/// next, without acknowledging it; 0 if no receiver has processed it: it can be sent again without
/// being processed twice. EAGAIN while the receiver is alive; ENODATA when no message is left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_next_unread_in_doubt(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        next_unread(state)?;
        Ok(c_int::from(state.in_doubt > 0))
    })
}

fn next_unread(state: &mut SenderHandle) -> CResult<&[u8]> {
    if state.unread.is_empty() {
        let parts = state.free()?.take_unread_parts()?;
        state.in_doubt = parts.in_doubt.len();
        state.unread = parts.in_doubt.into_iter().chain(parts.unsent).collect();
    }
    let none = || CError::new(libc::ENODATA, "no unread message is left");
    state.unread.front().map(Vec::as_slice).ok_or_else(none)
}

/// Returns the number of bytes in the lane that the receiver has not acknowledged, padding and 8
/// bytes per message included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_unread_bytes(sender: *mut tontine_sender) -> ssize_t {
    with(sender, |state| {
        length(usize::try_from(state.free()?.unread_bytes()).unwrap_or(usize::MAX))
    })
}

/// Blocks until the receiver has acknowledged every message; fails with ETIMEDOUT after timeout_ms.
/// EOWNERDEAD or EPIPE if the receiver has ended and left messages unread; with one of
/// TONTINE_ON_DEATH_WAIT_... the sender waits for the next owner instead. If the receiver ends
/// after it has acknowledged every message, the call succeeds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_wait_acked(
    sender: *mut tontine_sender,
    timeout_ms: i64,
) -> c_int {
    with(sender, |state| {
        state.free()?.wait_acked(timeout(timeout_ms))?;
        Ok(0)
    })
}

/// Does the lane's pending work: reads the receiver's control messages, returns memory, and looks
/// for a successor. No thread does this work: call this function when the descriptor of
/// tontine_sender_fd() is readable, or from time to time. EOWNERDEAD or EPIPE if the receiver has
/// ended: stop waiting on the descriptor, which then stays readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_service(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        state.free()?.service()?;
        Ok(0)
    })
}

/// Returns the descriptor to wait on, with poll or epoll: readable when tontine_sender_service()
/// has something to do, such as after the receiver's end. The descriptor reports free space in the
/// lane only after tontine_sender_arm(). A handover to a successor replaces the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_fd(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| Ok(state.free()?.as_fd().as_raw_fd()))
}

/// Prepares for waiting on the descriptor until the lane has free space for a message of `length`
/// bytes. Returns 1 if the lane has no free space: wait, for at most half a second, because the
/// descriptor does not report every end of a receiver. Returns 0 if the lane may have free space:
/// call tontine_sender_try_send(). Arm again before each wait. Fails like tontine_sender_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_arm(sender: *mut tontine_sender, length: usize) -> c_int {
    with(sender, |state| Ok(c_int::from(state.free()?.arm(length)?)))
}

/// Stores the receiver's process. ENODATA until the receiver has accepted the connection, and while
/// this process cannot receive the answer, because it has no free descriptor or can start no thread
/// (`RLIMIT_NPROC`, a cgroup's `pids.max`): calls that wait then fail with ETIMEDOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_peer(
    sender: *mut tontine_sender,
    peer: *mut tontine_peer,
) -> c_int {
    with(sender, |state| {
        // SAFETY: the caller upholds the contract at the top of the header.
        unsafe { store_peer(state.free()?.peer(), peer) }
    })
}

/// Returns the length in bytes of the longest message that the lane's cap allows. Once the receiver
/// has accepted the connection, the receiver's cap applies too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_max_message_length(sender: *mut tontine_sender) -> ssize_t {
    with(sender, |state| length(state.free()?.max_message_len()))
}

/// Closes the lane. A live receiver still receives the messages in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_close(sender: *mut tontine_sender) {
    // SAFETY: the caller upholds the contract at the top of the header.
    unsafe { close(sender) }
}

/// Runs the body of a function that takes a sender. The callers of that function uphold the
/// contract at the top of the header.
fn with<T: CReturn>(
    sender: *mut tontine_sender,
    body: impl FnOnce(&mut SenderHandle) -> CResult<T>,
) -> T {
    // SAFETY: the caller upholds the contract at the top of the header.
    answer(|| unsafe { behind(sender) }?.0.with(body))
}

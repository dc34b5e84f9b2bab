//! The sending end.

#![allow(unsafe_code, reason = "handles and buffers of a program in C")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use libc::ssize_t;
use tontine::mailbox::{Reservation, Sender};

use crate::border::{
    Answer, Kept, Outcome, Refusal, address, answer, behind, bytes, close, copy_out, hand_over,
    length, owned, timeout,
};
use crate::mailbox::{tell_peer, tontine_peer};
use crate::options::{read, tontine_options};

/// One sender's lane to a mailbox.
#[derive(Debug)]
pub struct tontine_sender(Kept<State>);

#[derive(Debug)]
struct State {
    /// Made by `Box::into_raw`; borrowed by `reservation` while there is one.
    sender: NonNull<Sender>,
    reservation: Option<Reservation<'static>>,
    /// Taken back from a dead reader, and not given to the program yet.
    unread: VecDeque<Vec<u8>>,
}

impl State {
    /// The sender, where nothing is reserved in it.
    fn free(&mut self) -> Outcome<&mut Sender> {
        if self.reservation.is_some() {
            let text = "room is reserved: commit or cancel it first";
            return Err(Refusal::new(libc::EBUSY, text));
        }
        // SAFETY: a box of our own; nobody borrows it but the reservation, and there is none.
        Ok(unsafe { self.sender.as_mut() })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.reservation = None;
        // SAFETY: came from `Box::into_raw`, is given back once, and nobody borrows it any more.
        drop(unsafe { Box::from_raw(self.sender.as_ptr()) });
    }
}

/// Begins a lane to the mailbox at the address. options may be NULL. It returns as soon as the
/// connection stands; the reader takes it when it next receives. ECONNREFUSED where nobody has a
/// mailbox there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_connect(
    to: *const c_char,
    options: *const tontine_options,
) -> *mut tontine_sender {
    answer(|| {
        // SAFETY: the contract at the header's top.
        let (address, options) = unsafe { (address(to)?, read(options)?) };
        Ok(opened(options.connect(address)?))
    })
}

/// Begins a lane over a connected SOCK_SEQPACKET socket, whose other end is given to
/// tontine_mailbox_adopt(). From then on it is the library's, also where the call fails (but not
/// with EBADF, EINVAL or E2BIG).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_over(
    socket: c_int,
    options: *const tontine_options,
) -> *mut tontine_sender {
    answer(|| {
        // SAFETY: the contract at the header's top; the caller gives the socket away.
        let (options, socket) = unsafe { (read(options)?, owned(socket)?) };
        Ok(opened(options.over(socket)?))
    })
}

/// A lane of its own to the same mailbox, for another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_clone(sender: *mut tontine_sender) -> *mut tontine_sender {
    with(sender, |state| Ok(opened(state.free()?.try_clone()?)))
}

fn opened(sender: Sender) -> *mut tontine_sender {
    let sender = NonNull::from(Box::leak(Box::new(sender)));
    let state = State { sender, reservation: None, unread: VecDeque::new() };
    hand_over(tontine_sender(Kept::new(state)))
}

/// Sends a message; waits for room where there is none. To a living reader that is awake it makes
/// no system call. EOWNERDEAD where the reader is dead, EPIPE where it has closed; then nothing was
/// sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_send(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the contract at the header's top.
    unsafe { send(sender, message, length, |sender, message| sender.send(message)) }
}

/// As tontine_sender_send(), without waiting: EAGAIN where there is no room.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_try_send(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the contract at the header's top.
    unsafe { send(sender, message, length, |sender, message| sender.try_send(message)) }
}

/// As tontine_sender_send(), waiting for at most so many milliseconds: then ETIMEDOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_send_timeout(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
    timeout_ms: i64,
) -> c_int {
    // SAFETY: the contract at the header's top.
    unsafe {
        send(sender, message, length, |sender, message| match timeout(timeout_ms) {
            Some(timeout) => sender.send_timeout(message, timeout),
            None => sender.send(message),
        })
    }
}

/// # Safety
/// As [`behind`] and [`bytes`].
unsafe fn send(
    sender: *mut tontine_sender,
    message: *const c_void,
    length: usize,
    how: impl FnOnce(&mut Sender, &[u8]) -> tontine::Result<()>,
) -> c_int {
    with(sender, |state| {
        // SAFETY: passed on.
        let message = unsafe { bytes(message, length) }?;
        how(state.free()?, message)?;
        Ok(0)
    })
}

/// Room for a message of so many bytes, to be written in place; waits for it. Then call
/// tontine_sender_commit() or tontine_sender_cancel(): everything else on this sender fails with
/// EBUSY until then, and the pointer ends with either.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_reserve(
    sender: *mut tontine_sender,
    length: usize,
) -> *mut c_void {
    with(sender, |state| {
        state.free()?;
        // SAFETY: a box of our own that lives until `State` is dropped, which drops the reservation
        // first; nobody else borrows it: `free` refuses while there is a reservation.
        let sender: &'static mut Sender = unsafe { state.sender.as_mut() };
        let room = state.reservation.insert(sender.reserve(length)?);
        Ok(room.as_mut_ptr().cast())
    })
}

/// Sends what stands in the reserved room. ENODATA where nothing is reserved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_commit(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        let nothing = || Refusal::new(libc::ENODATA, "nothing is reserved");
        state.reservation.take().ok_or_else(nothing)?.commit()?;
        Ok(0)
    })
}

/// Gives the reserved room back: nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_cancel(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        state.reservation = None;
        Ok(0)
    })
}

/// Takes back the next message that a dead or closed reader did not acknowledge, in the order in
/// which they were sent: copies it into the buffer and returns its length. EAGAIN while the reader
/// is alive; ENODATA when there is none any more; EMSGSIZE where it is longer than the buffer: it
/// is kept (see tontine_sender_unread_length()).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_unread(
    sender: *mut tontine_sender,
    buffer: *mut c_void,
    size: usize,
) -> ssize_t {
    with(sender, |state| {
        // SAFETY: the contract at the header's top.
        let copied = unsafe { copy_out(next_unread(state)?, buffer, size) }?;
        state.unread.pop_front();
        Ok(copied)
    })
}

/// The length of the message that tontine_sender_unread() gives next; its errors but EMSGSIZE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_unread_length(sender: *mut tontine_sender) -> ssize_t {
    with(sender, |state| length(next_unread(state)?.len()))
}

fn next_unread(state: &mut State) -> Outcome<&[u8]> {
    if state.unread.is_empty() {
        state.unread = state.free()?.unread()?.into();
    }
    let none = || Refusal::new(libc::ENODATA, "there are no unread messages");
    state.unread.front().map(Vec::as_slice).ok_or_else(none)
}

/// Bytes in the lane that the reader has not acknowledged, 8 a message and padding included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_unread_bytes(sender: *mut tontine_sender) -> ssize_t {
    with(sender, |state| {
        length(usize::try_from(state.free()?.unread_bytes()).unwrap_or(usize::MAX))
    })
}

/// Waits until everything is read and acknowledged: ETIMEDOUT, or EOWNERDEAD or EPIPE where the
/// reader will not read it. With one of TONTINE_ON_DEATH_WAIT_... a death is waited out. What
/// became of the reader after it had read everything does not matter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_wait_read(
    sender: *mut tontine_sender,
    timeout_ms: i64,
) -> c_int {
    with(sender, |state| {
        state.free()?.wait_read(timeout(timeout_ms))?;
        Ok(0)
    })
}

/// Does what there is to do between messages: takes word of room, gives memory back, looks for a
/// successor. There is no thread that would do it: call it when the descriptor is readable, or now
/// and then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_service(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| {
        state.free()?.service()?;
        Ok(0)
    })
}

/// The descriptor to wait on: readable when tontine_sender_service() has something to do. It
/// changes when a successor takes the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_fd(sender: *mut tontine_sender) -> c_int {
    with(sender, |state| Ok(state.free()?.descriptor().as_raw_fd()))
}

/// Who receives; ENODATA until it has taken the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_peer(
    sender: *mut tontine_sender,
    peer: *mut tontine_peer,
) -> c_int {
    with(sender, |state| {
        // SAFETY: the contract at the header's top.
        unsafe { tell_peer(state.free()?.peer(), peer) }
    })
}

/// The longest message that the lane's cap allows; the reader's cap counts too, once it has taken
/// the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_longest_message(sender: *mut tontine_sender) -> ssize_t {
    with(sender, |state| length(state.free()?.longest_message()))
}

/// Closes the lane. A living reader still reads what is in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tontine_sender_close(sender: *mut tontine_sender) {
    // SAFETY: the contract at the header's top.
    unsafe { close(sender) }
}

/// The body of a function that takes a sender. The contract at the header's top is its callers'.
fn with<T: Answer>(sender: *mut tontine_sender, body: impl FnOnce(&mut State) -> Outcome<T>) -> T {
    // SAFETY: the contract at the header's top.
    answer(|| unsafe { behind(sender) }?.0.with(body))
}

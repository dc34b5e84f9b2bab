//! The sending end: [`PySender`], which Python calls `Sender`.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tontine::Error;
use tontine::mailbox::{ListenerCheck, WaitStrategy};

use crate::bytes::{LONG, MessageBytes};
use crate::failure::exception;
use crate::listener::PyListener;
use crate::parts::OutgoingParts;
use crate::shared::{self, Shared, duplicate, options};
use crate::wait::{Timeout, spin as spin_time};

/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(2);

/// Maximum time that a wait keeps other threads from using the sender.
const MAX_LOCKED: Duration = Duration::from_millis(20);

/// Sends messages to one mailbox, and learns when its owner dies.
///
/// A message is any object with a contiguous buffer: `bytes`, a `memoryview`, a NumPy array. It is
/// copied once, into memory that the receiver reads.
///
/// If a gateway carries the messages to another host that is silent for too long (the gateway's
/// `unreachable_after`), all methods that send raise `Error` with the `errno` `EHOSTUNREACH`.
///
/// A sender belongs to the process that opened it: in a forked child, its methods raise `Forked`.
/// Use it in a `with` statement: if a process ends without closing a sender, that counts as its
/// death.
///
/// Args:
///     address: The mailbox's address: a path, or "@" and a name.
///     timeout: Seconds to wait until a process owns the address; None waits indefinitely.
///     cap: Maximum number of bytes that the messages may occupy (default 64 MiB). The longest
///         message is a quarter of it.
///     first_chunk: Number of bytes of the memory in which messages wait until the receiver accepts
///         the sender. It grows up to `cap` later.
///     large_backlog: Maximum number of bytes of the memory in which messages of 64 KiB and more
///         wait (default: `cap`). It grows further for a message that does not fit.
///     spin: Seconds to poll before each sleep in the kernel (at most 0.1).
///     allow_uids: Other users who may own the mailbox. By default only this user may.
///     raise_descriptor_limit: If false, a lack of descriptors does not raise the process's soft
///         limit (`RLIMIT_NOFILE`).
///
/// Raises:
///     NoMailbox: No process owns the address.
///     Error: The address is not valid, or a system call failed.
#[pyclass(name = "Sender", module = "tontine", frozen, weakref)]
pub(crate) struct PySender {
    sender: Shared<tontine::mailbox::Sender>,
    /// Maximum number of messages that the receiver has not acknowledged.
    max_unread: Option<usize>,
    /// Number of these messages, or more: it is counted again when it reaches the maximum. Used
    /// while the sender is locked.
    unread: AtomicUsize,
    address: PathBuf,
    poll_time: Duration,
    /// A duplicate of the sender's descriptor, which stays open until no thread can use it.
    descriptor: OwnedFd,
}

impl PySender {
    /// Sends a message if there is free space now, and returns whether it was sent.
    fn send_now(&self, py: Python<'_>, bytes: &MessageBytes<'_>) -> PyResult<bool> {
        self.sender.with(py, |sender| {
            if !self.may_send(sender) {
                // The end of the receiver comes first.
                return sender.service().map(|()| false);
            }
            let sent = if bytes.len() < LONG {
                sender.try_send(bytes)
            } else {
                py.detach(|| sender.try_send(bytes))
            };
            match sent {
                Err(Error::WouldBlock) => Ok(false),
                sent => sent.map(|()| self.count()),
            }
        })
    }

    /// Returns `true` unless the maximum number of messages is unread.
    fn may_send(&self, sender: &mut tontine::mailbox::Sender) -> bool {
        let Some(max) = self.max_unread else { return true };
        if self.unread.load(Ordering::Relaxed) >= max {
            self.unread.store(sender.unread_count(), Ordering::Relaxed);
        }
        self.unread.load(Ordering::Relaxed) < max
    }

    /// Counts a message that was sent. Returns `true`.
    fn count(&self) -> bool {
        if self.max_unread.is_some() {
            self.unread.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Prepares for waiting on the descriptor. Returns `false` if a message may be sent.
    fn arm_for(
        &self,
        sender: &mut tontine::mailbox::Sender,
        length: usize,
    ) -> tontine::Result<bool> {
        let acked = sender.acked();
        if self.may_send(sender) { sender.arm(length) } else { sender.arm_acked(acked) }
    }

    /// Sends bytes, and waits while there is no free space.
    pub(crate) fn send_bytes(&self, py: Python<'_>, bytes: &MessageBytes<'_>) -> PyResult<()> {
        if self.send_now(py, bytes)? {
            Ok(())
        } else {
            self.send_later(py, bytes, Timeout::of(None)?)
        }
    }

    /// Waits for free space, and sends a message.
    fn send_later(&self, py: Python<'_>, bytes: &MessageBytes<'_>, limit: Timeout) -> PyResult<()> {
        loop {
            let poll_time = limit.left(self.poll_time);
            let (sent, armed) = self.sender.with(py, |sender| {
                if !self.may_send(sender) {
                    return Ok((false, self.arm_for(sender, bytes.len())?));
                }
                match py.detach(|| sender.send_timeout(bytes, poll_time)) {
                    Err(Error::TimedOut | Error::Interrupted) => {
                        Ok((false, sender.arm(bytes.len())?))
                    }
                    sent => sent.map(|()| (self.count(), false)),
                }
            })?;
            if sent {
                return Ok(());
            }
            if armed {
                limit.sleep(py, self.descriptor.as_fd())?;
            } else {
                limit.step(py)?;
            }
        }
    }
}

#[pymethods]
impl PySender {
    #[new]
    #[pyo3(signature = (
        address, *, timeout = 0.0, cap = None, first_chunk = 4096, large_backlog = None,
        spin = 20e-6, allow_uids = Vec::new(), raise_descriptor_limit = true, _listener = None,
        _held = false, _required = false, _max_unread = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a call in Python")]
    fn new(
        py: Python<'_>,
        address: PathBuf,
        timeout: Option<f64>,
        cap: Option<u64>,
        first_chunk: u64,
        large_backlog: Option<u64>,
        spin: f64,
        allow_uids: Vec<u32>,
        raise_descriptor_limit: bool,
        _listener: Option<&Bound<'_, PyListener>>,
        _held: bool,
        _required: bool,
        _max_unread: Option<usize>,
    ) -> PyResult<Self> {
        let limit = Timeout::of(timeout)?;
        let poll_time = spin_time(spin)?;
        let options = options(cap, allow_uids, raise_descriptor_limit)
            .wait_strategy(WaitStrategy::SpinThenSleep(poll_time))
            .interruptible(true)
            .first_chunk(first_chunk)
            .large_backlog(large_backlog.unwrap_or(u64::MAX));
        // Several processes may hold the socket of a queue, and receive in turn.
        let attended = _listener.filter(|_| _required);
        let options = match _listener {
            Some(_) if _required => options,
            Some(listener) => options.check_listener(listener.get().check()),
            None if _held => options.check_listener(ListenerCheck::Watched),
            None => options,
        };
        loop {
            let is_left = attended.is_some_and(|listener| !listener.get().is_attended());
            let connected = py.detach(|| {
                if is_left {
                    return Err(Error::NoMailbox { address: address.display().to_string() });
                }
                let sender = options.connect(shared::address(&address))?;
                let descriptor = duplicate(&sender)?;
                Ok((sender, descriptor))
            });
            match connected {
                Ok((sender, descriptor)) => {
                    let sender = Shared::new(sender, "sender");
                    return Ok(Self {
                        sender,
                        max_unread: _max_unread,
                        unread: AtomicUsize::new(0),
                        address,
                        poll_time,
                        descriptor,
                    });
                }
                Err(Error::NoMailbox { .. }) if !limit.left(CONNECT_PAUSE).is_zero() => {
                    py.check_signals()?;
                    py.detach(|| std::thread::sleep(limit.left(CONNECT_PAUSE)));
                }
                Err(error) => return Err(exception(py, &error)),
            }
        }
    }

    /// The address.
    #[getter]
    fn address(&self) -> &OsStr {
        self.address.as_os_str()
    }

    /// The process id of the mailbox's owner, or None before the owner has accepted this sender.
    #[getter]
    fn receiver_pid(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        self.sender.with(py, |sender| {
            // An ended receiver keeps its process id.
            let _ = sender.service();
            Ok(sender.peer().and_then(|peer| peer.pid))
        })
    }

    /// Number of bytes that the receiver has not acknowledged, with 8 to 15 per message for its
    /// header and padding.
    #[getter]
    fn unread_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.sender.with(py, |sender| Ok(sender.unread_bytes()))
    }

    /// Number of messages that the receiver has not acknowledged.
    fn _unread_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.sender.with(py, |sender| Ok(sender.unread_count()))
    }

    /// Length in bytes of the longest message that this sender can ever send.
    #[getter]
    fn max_message_len(&self, py: Python<'_>) -> PyResult<usize> {
        self.sender.with(py, |sender| Ok(sender.max_message_len()))
    }

    /// Sends a message, and waits while there is no free space.
    ///
    /// Args:
    ///     message: Any object with a contiguous buffer.
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     OwnerDied: The process that owned the mailbox died. Nothing was sent;
    ///         `take_unread` returns what it had not acknowledged.
    ///     Closed: The receiver closed the mailbox.
    ///     Error: A gateway ended the lane; nothing was sent. `errno` is `EHOSTUNREACH` if the
    ///         receiver's host was silent for longer than the gateway's `unreachable_after`. The
    ///         receiver may live, and `take_unread` returns what it had not acknowledged.
    ///     TimedOut: There was no free space in time. Nothing was sent.
    ///     TooLarge: The message is longer than `max_message_len`.
    ///     Forked: The sender belongs to the parent of this process.
    ///     TypeError: The message has no buffer.
    ///     BufferError, ValueError: Its buffer is not contiguous.
    ///     ValueError: The sender was closed, or the timeout is negative or not a number.
    #[pyo3(signature = (message, timeout = None))]
    fn send(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        Timeout::check(timeout)?;
        let bytes = MessageBytes::of(message)?;
        if self.send_now(py, &bytes)? {
            return Ok(());
        }
        self.send_later(py, &bytes, Timeout::of(timeout)?)
    }

    /// Sends a message.
    ///
    /// Raises:
    ///     WouldBlock: There is no free space now. Nothing was sent.
    ///     Other exceptions: As for `send`.
    fn try_send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.send_now(py, &MessageBytes::of(message)?)? {
            return Ok(());
        }
        Err(exception(py, &Error::WouldBlock))
    }

    /// Sends several messages, and waits while there is no free space.
    ///
    /// Args:
    ///     messages: An iterable of messages.
    ///     timeout: Seconds to wait for free space for all of them; None waits indefinitely.
    ///
    /// Raises:
    ///     The exceptions of `send`, for the first message that was not sent. The messages before
    ///     it were sent.
    #[pyo3(signature = (messages, timeout = None))]
    fn send_batch(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let limit = Timeout::of(timeout)?;
        for message in messages.try_iter()? {
            let message = message?;
            let bytes = MessageBytes::of(&message)?;
            if !self.send_now(py, &bytes)? {
                self.send_later(py, &bytes, limit)?;
            }
        }
        Ok(())
    }

    /// Sends several parts as one message, and waits while there is no free space.
    ///
    /// Each part is copied once, to a multiple of 64 bytes in the receiver's memory (except the
    /// first). `Mailbox.recv_parts` returns them; for other receivers it is a message with a table
    /// of the parts at its beginning.
    ///
    /// Args:
    ///     parts: A list of at least one object with a contiguous buffer.
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     ValueError: The list is empty.
    ///     Other exceptions: As for `send`.
    #[pyo3(signature = (parts, timeout = None))]
    fn send_parts(
        &self,
        py: Python<'_>,
        parts: Vec<Bound<'_, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        if parts.is_empty() {
            return Err(PyValueError::new_err("expected at least one part, found none"));
        }
        let parts = OutgoingParts::of(&parts)?;
        let limit = Timeout::of(timeout)?;
        loop {
            let (sent, armed) = self.sender.with(py, |sender| {
                if !self.may_send(sender) {
                    return Ok((false, self.arm_for(sender, parts.len())?));
                }
                let sent = if parts.len() < LONG {
                    parts.try_send(sender)
                } else {
                    py.detach(|| parts.try_send(sender))
                };
                match sent {
                    Err(Error::WouldBlock) => Ok((false, sender.arm(parts.len())?)),
                    sent => sent.map(|()| (self.count(), false)),
                }
            })?;
            if sent {
                return Ok(());
            }
            if armed {
                limit.sleep(py, self.descriptor.as_fd())?;
            } else {
                limit.step(py)?;
            }
        }
    }

    /// Sends a message, and waits for free space while the event loop runs other tasks.
    ///
    /// Raises:
    ///     RuntimeError: Another task waits for this sender.
    ///     Other exceptions: As for `send`.
    fn send_async<'py>(
        slf: &Bound<'py, Self>,
        message: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("tontine._asyncio")?.call_method1("send", (slf, message))
    }

    /// Removes and returns the messages that a dead or closed receiver had not acknowledged, oldest
    /// first.
    ///
    /// The receiver may have acted on the first of them before it died. If a gateway carries the
    /// messages to another host, the receiver may have acted on several, and they are in this one
    /// list with those that were never sent there: no call separates the two.
    ///
    /// Raises:
    ///     WouldBlock: The receiver lives.
    fn take_unread<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let unread = self.sender.with(py, tontine::mailbox::Sender::take_unread)?;
        Ok(unread.iter().map(|message| PyBytes::new(py, message)).collect())
    }

    /// Waits until the receiver has acknowledged everything that was sent.
    ///
    /// Args:
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     The exceptions of `send`.
    #[pyo3(signature = (timeout = None))]
    fn wait_acked(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let limit = Timeout::of(timeout)?;
        loop {
            let length = limit.step(py)?.min(MAX_LOCKED);
            let acked = self.sender.with(py, |sender| {
                match py.detach(|| sender.wait_acked(Some(length))) {
                    Err(Error::TimedOut | Error::Interrupted) => Ok(false),
                    acked => acked.map(|()| true),
                }
            })?;
            if acked {
                return Ok(());
            }
        }
    }

    /// Returns a descriptor that is readable when the receiver has ended and, after `arm`, when
    /// there may be free space.
    ///
    /// Raises:
    ///     ValueError: The sender was closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.sender.with(py, |_| Ok(self.descriptor.as_raw_fd()))
    }

    /// Prepares for waiting until the descriptor is readable, to send `length` bytes.
    ///
    /// Returns False if there may be free space: call `try_send` again.
    fn arm(&self, py: Python<'_>, length: usize) -> PyResult<bool> {
        self.sender.with(py, |sender| self.arm_for(sender, length))
    }

    /// Does what is due while nothing is sent. Call it when the descriptor is readable.
    ///
    /// Raises:
    ///     OwnerDied, Closed: The receiver has ended.
    fn service(&self, py: Python<'_>) -> PyResult<()> {
        self.sender.with(py, tontine::mailbox::Sender::service)
    }

    /// Closes the sender. The receiver still receives what was sent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.sender.close(py)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<tontine.Sender to {:?}>", self.address)
    }
}

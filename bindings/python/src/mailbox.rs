//! The receiving end: [`PyMailbox`], which Python calls `Mailbox`.

#![allow(unsafe_code, reason = "a message that is read in place")]

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use tontine::mailbox::Order;
use tontine::{Error, Peer};

use crate::failure::exception;
use crate::listener::PyListener;
use crate::parts::ReceivedParts;
use crate::shared::{self, Failure, Shared, duplicate, options};
use crate::view::{MessagePointer, MessageView};
use crate::wait::{Timeout, spin as spin_time};

/// Default of the parameter `cap`, in bytes.
const DEFAULT_CAP: u64 = 64 << 20;

/// Number of pauses between two looks. Each look takes the cache line from a sender that writes:
/// with one pause, a stream takes about 1.4 times as long.
const PAUSES: u32 = 8;

/// Maximum number of times that a closing mailbox accepts senders.
const MAX_ACCEPTS: usize = 256;

/// Number of senders that can have all of their cap at the same time. The memory is the senders'.
const MANY_SENDERS: u64 = 64;

/// Receives messages from any number of senders, in processes that may die at any time.
///
/// The address is a path in the file system, or a text that begins with "@", which is a name in
/// Linux's abstract namespace. A path is free again as soon as its owner has ended, however it
/// ended.
///
/// A mailbox belongs to the process that opened it: in a forked child, its methods raise `Forked`.
/// Use it in a `with` statement, and iterate over it with `for` or `async for`. Each receiving call
/// acknowledges the message before: if this process dies, the unacknowledged messages are not lost,
/// and `Sender.take_unread` returns them.
///
/// Args:
///     address: A path, or "@" and a name.
///     cap: Maximum number of bytes that one sender's messages may occupy (default 64 MiB).
///     spin: Seconds to poll before each sleep in the kernel (at most 0.1).
///     mode: Permissions of the socket in the file system.
///     allow_uids: Other users who may send. By default only this user may.
///     report_deaths: If true, a receiving call raises `SenderDied` once for each sender whose
///         process died before it closed the sender, after the sender's last message.
///     report_no_senders: If true, a receiving call that would wait raises `NoSenders` once every
///         sender that had connected has ended, and all their messages were received.
///     order: "by_sender" keeps each sender's own order. With "causal", a message that was sent
///         after another, by a sender that could know this, is also received after it, which takes
///         one system call for all messages that are there. None is "causal" if this machine has
///         the clock for it, else "by_sender"; the attribute `order` is what the mailbox has.
///     raise_descriptor_limit: If false, a lack of descriptors does not raise the process's soft
///         limit (`RLIMIT_NOFILE`).
///
/// Raises:
///     AddressInUse: A live process owns the address.
///     Error: The address is not valid, or a system call failed; with the error number ENOSYS,
///         this machine has no clock for `order="causal"`.
#[pyclass(name = "Mailbox", module = "tontine", frozen, weakref)]
pub(crate) struct PyMailbox {
    state: Shared<State>,
    address: PathBuf,
    order: Order,
    poll_time: Duration,
    /// The socket that other processes hold too.
    listener: Option<Py<PyListener>>,
    /// `true` while a `MessageView` shows the message last received.
    viewed: Arc<AtomicBool>,
    /// A duplicate of the mailbox's descriptor, which stays open until no thread can use it.
    descriptor: OwnedFd,
    /// Makes `descriptor` readable, so that waits for a closed mailbox end.
    end_of_waits: OnceLock<OwnedFd>,
}

struct State {
    mailbox: tontine::mailbox::Mailbox,
    /// `Mailbox.redelivered`.
    redelivered: u32,
    report_deaths: bool,
    /// Senders that have died since the last report.
    deaths: VecDeque<Peer>,
}

impl PyMailbox {
    /// Returns `true` while a message is used in place.
    fn has_view(&self) -> bool {
        self.viewed.load(Ordering::Acquire)
    }

    /// Calls `operation` with the open mailbox, unless a message is in use.
    fn receive<T>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut State) -> Result<T, Failure>,
    ) -> PyResult<T> {
        let outcome = match &mut *self.state.lock(py)? {
            None => Err(Failure::ClosedHere),
            Some(_) if self.has_view() => Err(Failure::Viewed),
            Some(state) => operation(state),
        };
        outcome.map_err(|failure| self.state.exception(py, &failure))
    }

    /// Waits for the next message, and calls `take` with it while the mailbox is locked.
    fn next<T>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        take: impl Fn(&mut State, MessagePointer) -> T,
    ) -> PyResult<T> {
        Timeout::check(timeout)?;
        let look = |state: &mut State| {
            let found = state.look()?;
            Ok(found.map(|message| take(state, message)))
        };
        if let Some(taken) = self.receive(py, look)? {
            return Ok(taken);
        }
        let limit = Timeout::of(timeout)?;
        loop {
            let mut armed = false;
            let poll_then_arm = |state: &mut State| {
                let found = py.detach(|| state.poll(limit.left(self.poll_time)))?;
                armed = found.is_none() && state.arm()?;
                Ok(found.map(|message| take(state, message)))
            };
            if let Some(taken) = self.receive(py, poll_then_arm)? {
                return Ok(taken);
            }
            if armed {
                limit.sleep(py, self.descriptor.as_fd())?;
            } else {
                limit.step(py)?;
            }
        }
    }
}

impl PyMailbox {
    /// Calls `take` with each message that is there, at most `max`, while the mailbox is locked.
    pub(crate) fn take_each(
        &self,
        py: Python<'_>,
        max: usize,
        mut take: impl FnMut(&[u8]) -> Option<()>,
    ) -> PyResult<()> {
        self.receive(py, |state| {
            for taken in 0..max {
                // SAFETY: the senders are processes of the same program, and the slice ends before
                // the next receiving call.
                match unsafe { state.mailbox.try_recv_in_place() } {
                    Ok(message) => take(&message),
                    Err(Error::WouldBlock) => break,
                    // What was taken comes first.
                    Err(_) if taken > 0 => break,
                    Err(error) => return Err(error.into()),
                };
            }
            state.mailbox.ack();
            Ok(())
        })
    }
}

impl State {
    /// Returns the next message, or `None` if there is none now.
    fn look(&mut self) -> Result<Option<MessagePointer>, Failure> {
        self.report_death()?;
        // SAFETY: the callers copy the message, or show it in a read-only view until the next
        // receiving call. A sender that does not keep to the protocol can change its bytes, but
        // not make them inaccessible.
        match unsafe { self.mailbox.try_recv_in_place() } {
            Ok(message) => {
                self.redelivered = message.redelivered();
                Ok(Some(MessagePointer { start: message.as_ptr(), length: message.len() }))
            }
            Err(Error::WouldBlock) => {
                // The call may have found that a sender has ended.
                self.report_death()?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn report_death(&mut self) -> Result<(), Failure> {
        if self.report_deaths {
            self.deaths.extend(self.mailbox.take_deaths().into_iter().map(|(_, peer)| peer));
        }
        self.deaths.pop_front().map_or(Ok(()), |peer| Err(Failure::SenderDied(peer)))
    }

    /// Arms the mailbox, and returns `true` if there is nothing to receive or to report.
    fn arm(&mut self) -> tontine::Result<bool> {
        let armed = self.mailbox.arm()?;
        if self.report_deaths {
            self.deaths.extend(self.mailbox.take_deaths().into_iter().map(|(_, peer)| peer));
        }
        Ok(armed && self.deaths.is_empty())
    }

    /// Copies the message that was just found. If there is no memory for the copy, the next call
    /// finds the message again.
    fn copy<'py>(
        &mut self,
        py: Python<'py>,
        message: MessagePointer,
    ) -> PyResult<Bound<'py, PyBytes>> {
        message.copy(py).inspect_err(|_| self.mailbox.requeue_unseen())
    }

    /// Returns the next message, or `None` if there is none now or the next call fails.
    fn look_further(&mut self) -> Option<MessagePointer> {
        match self.look() {
            Ok(found) => found,
            Err(failure) => {
                if let Failure::SenderDied(peer) = failure {
                    self.deaths.push_front(peer);
                }
                None
            }
        }
    }

    /// Accepts the senders that wait, as far as this process has the resources.
    fn accept_waiting(&mut self) {
        for _ in 0..MAX_ACCEPTS {
            let mut ready = [PollFd::new(&self.mailbox, PollFlags::IN)];
            if !poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
                return;
            }
            // A receiving call without a wait processes events. The message stays unread.
            drop(self.mailbox.recv_timeout(Duration::ZERO));
            self.mailbox.requeue_unseen();
        }
    }

    /// Polls for the next message.
    fn poll(&mut self, time: Duration) -> Result<Option<MessagePointer>, Failure> {
        let end = Instant::now() + time;
        loop {
            let found = self.look()?;
            if found.is_some() || Instant::now() >= end {
                return Ok(found);
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
    }
}

#[pymethods]
impl PyMailbox {
    #[new]
    #[pyo3(signature = (
        address, *, cap = None, spin = 20e-6, mode = 0o600, allow_uids = Vec::new(),
        report_deaths = false, report_no_senders = false, order = Some("by_sender"),
        raise_descriptor_limit = true, _listener = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords of a call in Python")]
    fn new(
        py: Python<'_>,
        address: PathBuf,
        cap: Option<u64>,
        spin: f64,
        mode: u32,
        allow_uids: Vec<u32>,
        report_deaths: bool,
        report_no_senders: bool,
        order: Option<&str>,
        raise_descriptor_limit: bool,
        _listener: Option<Py<PyListener>>,
    ) -> PyResult<Self> {
        let lane_cap = cap.unwrap_or(DEFAULT_CAP);
        // Half of the mailbox's cap is for lanes with their whole cap.
        let mailbox_cap = lane_cap.saturating_mul(2 * MANY_SENDERS);
        let options = options(cap, allow_uids, raise_descriptor_limit);
        let options = options.mode(mode).mailbox_cap(mailbox_cap);
        let options = options.report_no_senders(report_no_senders);
        let poll_time = spin_time(spin)?;
        let open = |order| {
            let options = options.clone().order(order);
            let mailbox = match &_listener {
                Some(listener) => listener.get().open(&options)?,
                None => options.bind(shared::address(&address))?,
            };
            let descriptor = duplicate(&mailbox)?;
            Ok((mailbox, descriptor, order))
        };
        let opened = match shared::chosen_order(order)? {
            Some(order) => open(order),
            None => match open(Order::Causal) {
                Err(Error::NoSharedClock { .. }) => open(Order::BySender),
                opened => opened,
            },
        };
        let (mailbox, descriptor, order) = opened.map_err(|error| exception(py, &error))?;
        let state = State { mailbox, redelivered: 0, report_deaths, deaths: VecDeque::new() };
        Ok(Self {
            state: Shared::new(state, "mailbox"),
            address,
            order,
            poll_time,
            listener: _listener,
            viewed: Arc::new(AtomicBool::new(false)),
            descriptor,
            end_of_waits: OnceLock::new(),
        })
    }

    /// The address.
    #[getter]
    fn address(&self) -> &OsStr {
        self.address.as_os_str()
    }

    /// The order of messages of different senders: "causal" or "by_sender".
    #[getter]
    fn order(&self) -> &'static str {
        if self.order == Order::Causal { "causal" } else { "by_sender" }
    }

    /// Number of connected senders.
    #[getter]
    fn sender_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.state.with(py, |state| Ok(state.mailbox.sender_count()))
    }

    /// Number of messages that were sent and not received.
    fn _unread_count(&self, py: Python<'_>) -> PyResult<usize> {
        self.state.with(py, |state| state.mailbox.unread_count())
    }

    /// Number of owners of the address that may have received the message last received before: 0
    /// if it was certainly received for the first time. A message with a high count may be the
    /// cause of their deaths.
    #[getter]
    fn redelivered(&self, py: Python<'_>) -> PyResult<u32> {
        self.state.with(py, |state| Ok(state.redelivered))
    }

    /// Waits for the next message and returns it.
    ///
    /// Args:
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     TimedOut: There was no message in time.
    ///     SenderDied: A sender's process died (only with `report_deaths`).
    ///     NoSenders: All senders have ended (only with `report_no_senders`).
    ///     Forked: The mailbox belongs to the parent of this process.
    ///     BufferError: A message of `recv_view` is in use.
    ///     ValueError: The mailbox was closed, or the timeout is negative or not a number.
    #[pyo3(signature = (timeout = None))]
    fn recv<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyBytes>> {
        self.next(py, timeout, |state, message| state.copy(py, message))?
    }

    /// Returns the next message.
    ///
    /// A sender that connects meanwhile may be found by a later call only.
    ///
    /// Raises:
    ///     WouldBlock: There is no message now.
    ///     Other exceptions: As for `recv`.
    fn try_recv<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let take = |state: &mut State| match state.look()? {
            Some(message) => Ok(state.copy(py, message)),
            None => Err(Error::WouldBlock.into()),
        };
        self.receive(py, take)?
    }

    /// Waits for the next message, and returns it with those that follow without a wait.
    ///
    /// All messages of the batch but the last are acknowledged.
    ///
    /// Args:
    ///     max: Maximum number of messages.
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     The exceptions of `recv`.
    #[pyo3(signature = (max = 1024, timeout = None))]
    fn recv_batch<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        timeout: Option<f64>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        self.next(py, timeout, |state, message| {
            let mut batch = vec![state.copy(py, message)?];
            while batch.len() < max
                && let Some(message) = state.look_further()
                && let Ok(copy) = state.copy(py, message)
            {
                batch.push(copy);
            }
            Ok(batch)
        })?
    }

    /// Waits for the next message and returns its parts, if `Sender.send_parts` sent it.
    ///
    /// The first part is `bytes`. The others are objects with writable buffers, each in private
    /// memory of its own. Any other message is returned as `bytes`, like by `recv`.
    ///
    /// Args:
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     The exceptions of `recv`.
    #[pyo3(signature = (timeout = None))]
    fn recv_parts<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let take = |state: &mut State, message| {
            ReceivedParts::copy(py, message).inspect_err(|_| state.mailbox.requeue_unseen())
        };
        self.next(py, timeout, take)??.into_object(py)
    }

    /// Waits for the next message and returns a view of it, without a copy.
    ///
    /// Use the result in a `with` statement, which yields a read-only `memoryview`:
    ///
    ///     with mailbox.recv_view() as view:
    ///         frame = numpy.frombuffer(view, dtype=numpy.uint8)
    ///         ...
    ///         del frame
    ///
    /// Until the statement ends, the mailbox receives nothing else. Do not fork meanwhile: the view
    /// is not accessible in the child.
    ///
    /// Args:
    ///     timeout: Seconds to wait; None waits indefinitely.
    ///
    /// Raises:
    ///     The exceptions of `recv`.
    #[pyo3(signature = (timeout = None))]
    fn recv_view(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<MessageView> {
        let this = slf.get();
        let message = this.next(slf.py(), timeout, |_, message| {
            this.viewed.store(true, Ordering::Release);
            message
        })?;
        Ok(MessageView::new(slf.clone().into_any().unbind(), Arc::clone(&this.viewed), message))
    }

    /// Waits for the next message and returns it, while the event loop runs other tasks.
    ///
    /// Raises:
    ///     RuntimeError: Another task waits for this mailbox.
    ///     Other exceptions: As for `recv`.
    fn recv_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("tontine._asyncio")?.call_method1("recv", (slf,))
    }

    /// Acknowledges the message last received.
    ///
    /// The next receiving call also does so. Call this before long work that must not be repeated
    /// if this process dies.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        self.receive(py, |state| {
            state.mailbox.ack();
            Ok(())
        })
    }

    /// Marks the message last received as unread: the next receiving call returns it again.
    ///
    /// Call this before `close` if the message was not processed: `close` acknowledges it
    /// otherwise, and the sender cannot take it back.
    fn requeue(&self, py: Python<'_>) -> PyResult<()> {
        self.receive(py, |state| {
            state.mailbox.requeue();
            Ok(())
        })
    }

    /// Ends the use of the message in place, and acknowledges it.
    fn _end_view(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state.lock(py)?;
        self.viewed.store(false, Ordering::Release);
        if let Some(state) = &mut *state {
            state.mailbox.ack();
        }
        Ok(())
    }

    /// Removes and returns the errors of senders that were refused or broke the protocol, oldest
    /// first.
    fn take_errors(&self, py: Python<'_>) -> PyResult<Vec<PyErr>> {
        let errors = self.state.with(py, |state| Ok(state.mailbox.take_errors()))?;
        Ok(errors.iter().map(|error| exception(py, error)).collect())
    }

    /// Returns a descriptor for `select` and event loops; call `arm` before each wait.
    ///
    /// Raises:
    ///     ValueError: The mailbox was closed.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.state.with(py, |_| Ok(self.descriptor.as_raw_fd()))
    }

    /// Prepares for waiting until the descriptor is readable.
    ///
    /// Returns False if there may be a message or a death to report: call `try_recv` until it
    /// raises `WouldBlock`, then arm again.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.receive(py, |state| Ok(state.arm()?))
    }

    /// Closes the mailbox and frees its address.
    ///
    /// Senders raise `Closed`, and can take back what was not acknowledged. Other threads that wait
    /// for a message raise `ValueError`.
    ///
    /// Raises:
    ///     BufferError: A message of `recv_view` is in use.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state.lock(py)?;
        if self.has_view() {
            drop(state);
            return Err(self.state.exception(py, &Failure::Viewed));
        }
        // A failure here only delays the end of the waits.
        if let Ok(event) = eventfd(1, EventfdFlags::CLOEXEC)
            && self.end_of_waits.set(event).is_ok()
            && let Some(event) = self.end_of_waits.get()
        {
            let data = epoll::EventData::new_u64(u64::MAX);
            let _ = epoll::add(&self.descriptor, event, data, epoll::EventFlags::IN);
        }
        let mut open = state.take();
        drop(state);
        if let Some(listener) = &self.listener {
            // Producers in the queue of the socket learn that this process receives no more.
            if let Some(open) = &mut open {
                open.accept_waiting();
            }
            drop(open);
            listener.get().release();
        }
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, _value, _traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        // The frames of an exception may keep a message in use. The mailbox is then closed when the
        // last object that refers to it is gone.
        if self.has_view() && !kind.is_none() { Ok(()) } else { self.close(py) }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.recv(py, None)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::recv_async(slf)
    }

    fn __repr__(&self) -> String {
        format!("<tontine.Mailbox {:?}>", self.address)
    }
}

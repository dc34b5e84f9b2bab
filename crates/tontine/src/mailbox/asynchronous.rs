//! Both ends on tokio: [`AsyncMailbox`], [`AsyncSender`].
//!
//! Both do the work of `recv` and `send`, but await instead of sleeping. tokio reports *edges*, so
//! each end inspects everything after announcing that it waits and before awaiting; a later event
//! is an edge. If a wait must end at a given time (to drop a silent connecting sender, to return a
//! chunk, to look for a successor), it includes a kernel timer. The runtime therefore needs only
//! its I/O driver.
//!
//! Neighbours: [`super::receiver`] and [`super::sender`] do all the work. Nothing here starts a
//! thread or a task.

#![allow(unsafe_code, reason = "the caller of tokio guarantees that descriptors stay open")]

use std::future::poll_fn;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{coop, yield_now};

use super::lanes::TakenMessage;
use super::outbound::OutboundLane;
use super::wait_limit::longest_wait;
use super::{Mailbox, Message, Sender};
use crate::error::{Error, Result};
use crate::sys::fork::Guard;

/// Maximum number of passes over the connections between two awaits while more connections keep
/// arriving: the number of passes that a full backlog takes.
const MOST_LOOKS: u32 = 256;

/// A [`Mailbox`] whose `recv` is awaited on tokio.
///
/// An `AsyncMailbox` belongs to the runtime in which it was made, which needs its I/O driver
/// (`enable_io`) but no timer. [`WaitStrategy`](super::WaitStrategy) is not used: a task that polls
/// would occupy a thread. The runtime starts and ends threads at will, so the process's
/// [`Life`](crate::life::Life) must not end with one of its threads: on any thread,
/// [`Mailbox::bind`] registers a life that ends with the process, unless the process already has a
/// life.
///
/// # Examples
/// ```
/// use tontine::mailbox::{AsyncMailbox, AsyncSender, Mailbox, Sender};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
/// runtime.block_on(async {
///     let mut mailbox = AsyncMailbox::new(Mailbox::bind(&path)?)?;
///     let mut sender = AsyncSender::new(Sender::connect(&path)?);
///     sender.send(b"hello").await?;
///     assert_eq!(&*mailbox.recv().await?, b"hello");
///     Ok(())
/// })
/// # }
/// ```
pub struct AsyncMailbox {
    /// A duplicate of the mailbox's descriptor.
    readable: Watched<OwnedFd>,
    mailbox: Mailbox,
}

/// A [`Sender`] whose `send` is awaited on tokio.
///
/// An `AsyncSender` needs a runtime with its I/O driver only when it waits.
///
/// # Examples
/// ```
/// use tontine::{Error, mailbox::{AsyncSender, Mailbox, Sender}};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// # let mailbox = Mailbox::bind(&path)?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
/// # runtime.block_on(async {
/// let mut sender = AsyncSender::new(Sender::connect(&path)?);
/// sender.send(b"hello").await?;
/// assert_eq!(sender.get_mut().take_unread(), Err(Error::WouldBlock)); // the receiver lives
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncSender {
    sender: Sender,
}

impl AsyncMailbox {
    /// Registers a mailbox with the current runtime.
    ///
    /// # Errors
    /// - [`Error::System`] if the runtime cannot watch the mailbox's descriptor, or if no
    ///   descriptor is left for the duplicate that it watches.
    /// - [`Error::Forked`] in a forked child.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, or in a runtime without its I/O driver.
    pub fn new(mailbox: Mailbox) -> Result<Self> {
        let copy =
            mailbox.as_fd().try_clone_to_owned().map_err(|error| Error::io("fcntl", &error))?;
        Ok(Self { readable: Watched::new(copy)?, mailbox })
    }

    /// Waits for the next message and returns a copy of it; acknowledges the previous message.
    ///
    /// Cancel safe: a future that is dropped before it is ready has taken no message. It may have
    /// acknowledged the previous one.
    ///
    /// # Errors
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    pub async fn recv(&mut self) -> Result<Message<'_>> {
        // Lets other tasks run even if the mailbox is never empty.
        coop::consume_budget().await;
        let taken = self.next().await?;
        Ok(self.mailbox.hand_out(taken))
    }

    /// Returns the mailbox, for calls that do not wait.
    pub fn get_ref(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Returns the mailbox, for calls that do not wait: its waiting calls block the thread.
    pub fn get_mut(&mut self) -> &mut Mailbox {
        &mut self.mailbox
    }

    /// Removes the mailbox from the runtime and returns it.
    pub fn into_inner(self) -> Mailbox {
        self.mailbox
    }

    async fn next(&mut self) -> Result<TakenMessage> {
        let mut looks = 0;
        loop {
            let mailbox = &mut self.mailbox;
            if let Some(taken) = mailbox.next_or_service()? {
                return Ok(taken);
            }
            if !mailbox.arm()? {
                // A message has arrived in the meantime, or a wake-up could be lost.
                yield_now().await;
                continue;
            }
            // One pass handles a bounded number of events, and tokio reports no event twice.
            if looks < MOST_LOOKS && is_readable(mailbox.as_fd())? {
                looks += 1;
                mailbox.disarm();
                coop::consume_budget().await;
                continue;
            }
            looks = 0;
            let nudge = mailbox.nudge();
            Armed(self).sleep(nudge).await?;
        }
    }
}

impl std::fmt::Debug for AsyncMailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AsyncMailbox").field(self.get_ref()).finish()
    }
}

impl AsyncSender {
    /// Wraps a sender.
    pub fn new(sender: Sender) -> Self {
        Self { sender }
    }

    /// Sends a message; waits while the lane has no free space for it.
    ///
    /// The lane grows to its cap before `send` waits, as with [`Sender::try_send`]. Cancel safe: a
    /// future that is dropped before it is ready has sent nothing.
    ///
    /// # Errors
    /// The errors of [`Sender::send`], in particular [`Error::OwnerDied`], [`Error::Closed`] and
    /// [`Error::TooLarge`].
    ///
    /// # Panics
    /// Panics if it must wait outside a tokio runtime, or in a runtime without its I/O driver.
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        coop::consume_budget().await;
        loop {
            match self.sender.try_send(message) {
                Err(Error::WouldBlock) => {}
                done => return done,
            }
            if !self.sender.arm(message.len())? {
                yield_now().await;
                continue;
            }
            let armed = Asking(&mut self.sender);
            let waits = Waits::of(armed.0.lane())?;
            waits.happen().await?;
            drop(waits);
            armed.0.lane().look_at_process();
        }
    }

    /// Returns the sender, for calls that do not wait.
    pub fn get_ref(&self) -> &Sender {
        &self.sender
    }

    /// Returns the sender, for calls that do not wait: its waiting calls block the thread.
    pub fn get_mut(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Returns the sender.
    pub fn into_inner(self) -> Sender {
        self.sender
    }
}

/// An armed mailbox. Disarmed on drop: senders need not ring once the wait has ended or was
/// dropped.
struct Armed<'a>(&'a mut AsyncMailbox);

impl Armed<'_> {
    async fn sleep(&mut self, nudge: Option<Duration>) -> Result<()> {
        let timer = nudge.map(OneShotTimer::after).transpose()?;
        let happened = poll_fn(|context| {
            if let Some(timer) = &timer
                && let Poll::Ready(fired) = timer.0.poll(context)
            {
                return Poll::Ready(fired);
            }
            // The caller then inspects everything that the descriptor reports.
            self.0.readable.poll(context)
        });
        happened.await.map_err(|error| Error::io("epoll_wait", &error))
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.0.mailbox.disarm();
    }
}

/// An armed sender. Disarmed on drop: the receiver need not report free space any more.
struct Asking<'a>(&'a mut Sender);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.disarm();
    }
}

/// The events that a sender waits for: a control message from the receiver, the end of its process,
/// and the time of the next check. Made for each wait, since a successor has different descriptors;
/// an event that has already happened is reported immediately.
struct Waits<'a> {
    descriptors: Vec<Watched<BorrowedFd<'a>>>,
    timer: OneShotTimer,
}

impl<'a> Waits<'a> {
    fn of(lane: &'a OutboundLane) -> Result<Self> {
        let (socket, process) = lane.watched();
        let descriptors = socket.into_iter().chain(process).map(Watched::new);
        let descriptors = descriptors.collect::<Result<_>>()?;
        Ok(Self { descriptors, timer: OneShotTimer::after(longest_wait(lane))? })
    }

    async fn happen(&self) -> Result<()> {
        let happened = poll_fn(|context| {
            if let Poll::Ready(fired) = self.timer.0.poll(context) {
                return Poll::Ready(fired);
            }
            for descriptor in &self.descriptors {
                if let Poll::Ready(readable) = descriptor.poll(context) {
                    return Poll::Ready(readable);
                }
            }
            Poll::Pending
        });
        happened.await.map_err(|error| Error::io("epoll_wait", &error))
    }
}

/// A timer that becomes readable once.
struct OneShotTimer(Watched<OwnedFd>);

impl OneShotTimer {
    fn after(time: Duration) -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| Error::system("timerfd_create", errno))?;
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A timer that is set to zero never fires.
        let time = time.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: time.as_secs().min(i64::MAX as u64).cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        };
        let once = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)
            .map_err(|errno| Error::system("timerfd_settime", errno))?;
        Ok(Self(Watched::new(timer)?))
    }
}

/// A descriptor that the current runtime watches.
///
/// A forked child shares the runtime's epoll set with its parent, and threads that do not exist in
/// the child may hold the locks of its copy of the runtime. So the child leaves the registration
/// alone and closes only its copy of the descriptor.
struct Watched<T> {
    registration: ManuallyDrop<AsyncFd<RawFd>>,
    guard: Guard,
    _descriptor: T,
}

impl<T: AsFd> Watched<T> {
    fn new(descriptor: T) -> Result<Self> {
        let guard = Guard::here()?;
        let raw = descriptor.as_fd().as_raw_fd();
        // SAFETY: `_descriptor` keeps the descriptor open, and is dropped after the registration.
        let registration = unsafe { AsyncFd::register_with_interest(raw, Interest::READABLE) }
            .map_err(|error| Error::io("epoll_ctl", &error.into()))?;
        let registration = ManuallyDrop::new(registration);
        Ok(Self { registration, guard, _descriptor: descriptor })
    }
}

impl<T> Watched<T> {
    /// Waits until the descriptor is readable. In a forked child, returns immediately, and the
    /// handle's next call returns [`Error::Forked`].
    fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.guard.is_forked() {
            ready!(self.registration.poll_read_ready(context))?.clear_ready();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T> Drop for Watched<T> {
    fn drop(&mut self) {
        if !self.guard.is_forked() {
            // SAFETY: the registration is dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.registration) }
        }
    }
}

/// Returns `true` if a descriptor is readable now.
fn is_readable(descriptor: BorrowedFd<'_>) -> Result<bool> {
    let mut wanted = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut wanted, Some(&at_once)) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => Err(Error::system("poll", errno)),
    }
}

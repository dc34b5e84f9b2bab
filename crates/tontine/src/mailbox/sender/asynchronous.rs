//! Sending on tokio: [`AsyncSender`].
//!
//! [`super`] does the work; [`crate::mailbox::watched`] says how it is awaited. Nothing here starts
//! a thread or a task.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_sink::Sink;
use tokio::task::{coop, yield_now};

use super::outbound::OutboundLane;
use super::wait_limit::longest_wait;
use super::{Reservation, Sender};
use crate::error::{Error, Result};
use crate::mailbox::watched::{OneShotTimer, Watched};

/// A [`Sender`] whose calls are awaited on tokio, and a sink of messages.
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
pub struct AsyncSender {
    sender: Sender,
    /// The message that the sink has accepted and the lane has no space for.
    unsent: Option<Vec<u8>>,
    /// The events that the sink waits for.
    waits: Option<Waits<OwnedFd>>,
}

impl fmt::Debug for AsyncSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncSender").field(self.get_ref()).finish()
    }
}

impl AsyncSender {
    /// Wraps a sender.
    pub fn new(sender: Sender) -> Self {
        Self { sender, unsent: None, waits: None }
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
        self.flush().await?;
        loop {
            match self.sender.try_send(message) {
                Err(Error::WouldBlock) => {}
                done => return done,
            }
            let is_armed = self.sender.arm(message.len())?;
            self.wait_if(is_armed).await?;
        }
    }

    /// Waits until the receiver has acknowledged every message.
    ///
    /// Cancel safe. If the receiver ends after it has acknowledged everything, the result is still
    /// `Ok`.
    ///
    /// # Errors
    /// The errors of [`Sender::wait_acked`], except [`Error::TimedOut`].
    ///
    /// # Panics
    /// Panics like [`AsyncSender::send`].
    ///
    /// # Examples
    /// ```
    /// use tontine::mailbox::{AsyncMailbox, AsyncSender, Mailbox, Sender};
    ///
    /// # fn main() -> tontine::Result<()> {
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    /// # runtime.block_on(async {
    /// let mut mailbox = AsyncMailbox::new(Mailbox::bind(&path)?)?;
    /// let mut sender = AsyncSender::new(Sender::connect(&path)?);
    /// let mut space = sender.reserve(5).await?;
    /// space.copy_from_slice(b"hello");
    /// space.commit()?;
    ///
    /// assert_eq!(mailbox.recv_batch(10, |message| println!("{} bytes", message.len())).await?, 1);
    /// sender.wait_acked().await
    /// # })
    /// # }
    /// ```
    pub async fn wait_acked(&mut self) -> Result<()> {
        self.flush().await?;
        loop {
            let acked = self.sender.acked();
            match self.sender.wait_acked(Some(Duration::ZERO)) {
                Err(Error::TimedOut) => {}
                done => return done,
            }
            match self.sender.arm_acked(acked) {
                Ok(is_armed) => self.wait_if(is_armed).await?,
                // The receiver may have acknowledged everything before it ended.
                Err(error) => match self.sender.wait_acked(Some(Duration::ZERO)) {
                    Err(Error::TimedOut) => return Err(error),
                    done => return done,
                },
            }
        }
    }

    /// Reserves space for a message of `length` bytes, to be written in place, like
    /// [`Sender::reserve`]; waits while the lane has no free space for it.
    ///
    /// Cancel safe. See [`AsyncSender::wait_acked`] for an example.
    ///
    /// # Errors
    /// The errors of [`Sender::reserve`].
    ///
    /// # Panics
    /// Panics like [`AsyncSender::send`].
    pub async fn reserve(&mut self, length: usize) -> Result<Reservation<'_>> {
        self.flush().await?;
        loop {
            match self.sender.try_reserve(length).map(drop) {
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(error),
                // The space that was found stays free.
                Ok(()) => return self.sender.try_reserve(length),
            }
            let is_armed = self.sender.arm(length)?;
            self.wait_if(is_armed).await?;
        }
    }

    /// Waits for an event if the sender `is_armed`; otherwise lets other tasks run.
    async fn wait_if(&mut self, is_armed: bool) -> Result<()> {
        if !is_armed {
            yield_now().await;
            return Ok(());
        }
        let armed = Asking(&mut self.sender);
        let waits = Waits::of(armed.0.lane())?;
        waits.happen().await?;
        drop(waits);
        armed.0.lane().look_at_process();
        Ok(())
    }

    /// Sends the message that the sink has accepted.
    async fn flush(&mut self) -> Result<()> {
        coop::consume_budget().await;
        if self.unsent.is_none() {
            Ok(())
        } else {
            poll_fn(|context| self.poll_unsent(context)).await
        }
    }

    /// Sends the message that the sink has accepted, as soon as the lane has space for it.
    fn poll_unsent(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let Some(message) = &self.unsent else { return Poll::Ready(Ok(())) };
            let length = message.len();
            match self.sender.try_send(message) {
                Err(Error::WouldBlock) => {}
                done => {
                    // A message that can never be sent is not tried again.
                    self.unsent = None;
                    self.waits = None;
                    return Poll::Ready(done);
                }
            }
            if !self.sender.arm(length)? {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let waits = Waits::owned(self.sender.lane())?;
            let happened = waits.poll(context);
            self.waits = Some(waits);
            ready!(happened).map_err(|error| Error::io("epoll_wait", &error))?;
            self.sender.disarm();
            self.sender.lane().look_at_process();
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
struct Waits<T> {
    descriptors: Vec<Watched<T>>,
    timer: OneShotTimer,
}

impl<'a> Waits<BorrowedFd<'a>> {
    fn of(lane: &'a OutboundLane) -> Result<Self> {
        let (socket, process) = lane.watched();
        let descriptors = socket.into_iter().chain(process).map(Watched::new);
        let descriptors = descriptors.collect::<Result<_>>()?;
        Ok(Self { descriptors, timer: OneShotTimer::after(longest_wait(lane))? })
    }

    async fn happen(&self) -> Result<()> {
        let happened = poll_fn(|context| self.poll(context)).await;
        happened.map_err(|error| Error::io("epoll_wait", &error))
    }
}

impl Waits<OwnedFd> {
    /// Returns the events with duplicates of the descriptors, which the lane may close meanwhile.
    fn owned(lane: &OutboundLane) -> Result<Self> {
        let (socket, process) = lane.watched();
        let copy = |descriptor: BorrowedFd<'_>| {
            let copy = descriptor.try_clone_to_owned();
            Watched::new(copy.map_err(|error| Error::io("fcntl", &error))?)
        };
        let descriptors = socket.into_iter().chain(process).map(copy).collect::<Result<_>>()?;
        Ok(Self { descriptors, timer: OneShotTimer::after(longest_wait(lane))? })
    }
}

impl<T> Waits<T> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(fired) = self.timer.poll(context) {
            return Poll::Ready(fired);
        }
        let mut descriptors = self.descriptors.iter().map(|descriptor| descriptor.poll(context));
        descriptors.find(Poll::is_ready).unwrap_or(Poll::Pending)
    }
}

/// Sends each item as one message.
///
/// An item for which the lane has no space is kept until it has, and sent before everything that
/// follows through the [`AsyncSender`]. `flush` means that it is in the lane, not that the receiver
/// has read it: [`AsyncSender::wait_acked`]. A sender that is dropped, or taken out by
/// [`AsyncSender::into_inner`], before a flush loses the item.
///
/// # Examples
/// ```
/// use std::{future::poll_fn, pin::Pin};
/// use futures_sink::Sink;
/// use tontine::mailbox::{AsyncSender, Mailbox, Sender};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// # let mut mailbox = Mailbox::bind(&path)?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
/// # runtime.block_on(async {
/// let mut sink = AsyncSender::new(Sender::connect(&path)?);
/// let mut sink: Pin<&mut (dyn Sink<&str, Error = _> + Unpin)> = Pin::new(&mut sink);
/// poll_fn(|context| sink.as_mut().poll_ready(context)).await?;
/// sink.as_mut().start_send("hello")?;
/// poll_fn(|context| sink.as_mut().poll_flush(context)).await?; // or `sink.send("hello").await?`
/// # assert_eq!(&*mailbox.recv()?, b"hello");
/// # Ok(())
/// # })
/// # }
/// ```
impl<T: AsRef<[u8]>> Sink<T> for AsyncSender {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_unsent(context)
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<()> {
        let this = self.get_mut();
        let message = item.as_ref();
        assert!(this.unsent.is_none(), "start_send without poll_ready; await the sink first");
        match this.sender.try_send(message) {
            Err(Error::WouldBlock) => {
                this.unsent = Some(message.to_vec());
                Ok(())
            }
            done => done,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_unsent(context)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_unsent(context)
    }
}

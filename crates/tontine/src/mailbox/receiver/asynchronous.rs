//! Receiving on tokio: [`AsyncMailbox`].
//!
//! [`super`] does the work; [`crate::mailbox::watched`] says how it is awaited. Nothing here starts
//! a thread or a task.

use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::{coop, yield_now};

use super::lanes::TakenMessage;
use super::{Mailbox, Message};
use crate::error::{Error, Result};
use crate::mailbox::watched::{OneShotTimer, Watched};

/// Maximum number of passes over the connections between two awaits while more connections keep
/// arriving: the number of passes that a full backlog takes.
const MOST_LOOKS: u32 = 256;

/// A [`Mailbox`] whose `recv` is awaited on tokio, and a stream of messages.
///
/// An `AsyncMailbox` belongs to the runtime in which it was made, which needs its I/O driver
/// (`enable_io`) but no timer. [`WaitStrategy`](crate::mailbox::WaitStrategy) is not used: a task
/// that polls would occupy a thread. The runtime starts and ends threads at will, so the process's
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
    /// The time of the next task that no descriptor reports, while the stream waits.
    timer: Option<OneShotTimer>,
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
        Ok(Self { readable: Watched::new(copy)?, mailbox, timer: None })
    }

    /// Waits for the next message and returns a copy of it; acknowledges the previous message.
    ///
    /// Cancel safe: a future that is dropped before it is ready has taken no message. It may have
    /// acknowledged the previous one.
    ///
    /// # Errors
    /// [`Error::Forked`], [`Error::NoSenders`], [`Error::Woken`] and [`Error::System`] like
    /// [`Mailbox::recv`].
    pub async fn recv(&mut self) -> Result<Message<'_>> {
        // Lets other tasks run even if the mailbox is never empty.
        coop::consume_budget().await;
        let taken = self.next().await?;
        Ok(self.mailbox.hand_out(taken))
    }

    /// Waits for the first message, then passes up to `max` queued messages to `f`, and
    /// acknowledges each when `f` returns, like [`Mailbox::recv_batch`]. Returns the number of
    /// messages.
    ///
    /// Cancel safe: a future that is dropped before it is ready has passed no message to `f`.
    ///
    /// # Errors
    /// The errors of [`AsyncMailbox::recv`], before the first message is passed to `f`.
    ///
    /// # Panics
    /// Panics if `f` does; see [`Mailbox::recv_batch`].
    pub async fn recv_batch(&mut self, max: usize, f: impl FnMut(&Message<'_>)) -> Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        coop::consume_budget().await;
        let taken = self.next().await?;
        let first = self.mailbox.hand_out(taken);
        let (from, redelivered) = ((first.sender(), first.peer()), first.redelivered());
        Ok(self.mailbox.pass_batch(max, from, redelivered, f))
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
            match self.step(&mut looks)? {
                Step::Found(taken) => return Ok(taken),
                // A message has arrived in the meantime, or a wake-up could be lost.
                Step::Yield => yield_now().await,
                Step::Again => coop::consume_budget().await,
                Step::Sleep(nudge) => Armed(self).sleep(nudge).await?,
            }
        }
    }

    /// Looks for a message, and prepares to wait if there is none.
    fn step(&mut self, looks: &mut u32) -> Result<Step> {
        let mailbox = &mut self.mailbox;
        if mailbox.is_woken() {
            mailbox.ack();
            return Err(Error::Woken);
        }
        if let Some(taken) = mailbox.next_or_service()? {
            return Ok(Step::Found(taken));
        }
        if mailbox.has_no_senders() {
            return Err(Error::NoSenders);
        }
        if !mailbox.arm()? {
            return Ok(Step::Yield);
        }
        // One pass handles a bounded number of events, and tokio reports no event twice.
        if *looks < MOST_LOOKS && is_readable(mailbox.as_fd())? {
            *looks += 1;
            mailbox.disarm();
            return Ok(Step::Again);
        }
        // The work above may have processed the event of a token set after the first check.
        if mailbox.is_woken() {
            mailbox.disarm();
            return Err(Error::Woken);
        }
        *looks = 0;
        Ok(Step::Sleep(mailbox.nudge()))
    }

    /// Returns the next message as soon as it is there. The mailbox stays armed until then.
    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>>> {
        let budget = ready!(coop::poll_proceed(context));
        let mut looks = 0;
        loop {
            match self.step(&mut looks)? {
                Step::Found(taken) => {
                    budget.made_progress();
                    self.timer = None;
                    return Poll::Ready(Ok(self.mailbox.hand_out(taken).into_vec()));
                }
                Step::Again => {}
                Step::Yield => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Step::Sleep(nudge) => {
                    self.timer = nudge.map(OneShotTimer::after).transpose()?;
                    let fired = self.timer.as_ref().map(|timer| timer.poll(context));
                    let event = match fired {
                        Some(Poll::Ready(fired)) => Poll::Ready(fired),
                        _ => self.readable.poll(context),
                    };
                    ready!(event).map_err(|error| Error::io("epoll_wait", &error))?;
                }
            }
        }
    }
}

/// The result of a look for a message.
enum Step {
    Found(TakenMessage),
    /// Let other tasks run, then look again.
    Yield,
    /// Look again.
    Again,
    /// Wait for an event, and for at most this time.
    Sleep(Option<Duration>),
}

/// The messages, each as [`Message::into_vec`] returns it; the next one acknowledges the previous.
///
/// The stream ends when the mailbox [has no senders](crate::mailbox::Options::report_no_senders). A
/// call that [woke](Mailbox::waker) the mailbox is an error of the stream, which then continues.
/// Senders notify the mailbox until the next item is there, so a program that drops the stream's
/// `next` loses nothing.
///
/// # Examples
/// ```
/// use std::{future::poll_fn, pin::pin};
/// use futures_core::Stream;
/// use tontine::mailbox::{AsyncMailbox, Options, Sender};
///
/// # fn main() -> tontine::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
/// # runtime.block_on(async {
/// let mailbox = Options::new().report_no_senders(true).bind(&path)?;
/// Sender::connect(&path)?.send(b"the only one")?;
///
/// let mut messages = pin!(AsyncMailbox::new(mailbox)?);
/// while let Some(message) = poll_fn(|context| messages.as_mut().poll_next(context)).await {
///     assert_eq!(message?, b"the only one"); // with a crate of adapters: `messages.next().await`
/// }
/// # Ok(())
/// # })
/// # }
/// ```
impl futures_core::Stream for AsyncMailbox {
    type Item = Result<Vec<u8>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_message(context).map(|message| match message {
            Err(Error::NoSenders) => None,
            message => Some(message),
        })
    }
}

impl std::fmt::Debug for AsyncMailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AsyncMailbox").field(self.get_ref()).finish()
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
                && let Poll::Ready(fired) = timer.poll(context)
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

/// Returns `true` if a descriptor is readable now.
fn is_readable(descriptor: BorrowedFd<'_>) -> Result<bool> {
    let mut wanted = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut wanted, Some(&at_once)) {
        Ok(ready) => Ok(ready > 0),
        Err(errno) => Err(Error::system("poll", errno)),
    }
}

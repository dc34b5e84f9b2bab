//! A receiver that holds several messages at once: [`HoldingMailbox`].
//!
//! It finds messages like a [`Mailbox`], but each lane's reader is ahead of the acknowledged
//! position: [`InboundLane::hold`](super::inbound::InboundLane::hold). The bytes of a message that
//! is put back stay in this process, so nothing is read twice. `docs/internals/recovery.md` lists
//! the steps.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Mailbox;
use super::lanes::TakenMessage;
use super::message::SenderId;
use super::waker::Waker;
use crate::error::{Error, Peer, Result};
use crate::sys::fork::Guard;

/// A receiver that may hold several messages at once, and completes them in any order.
///
/// [`Mailbox::into_holding`] makes it. Use it if worker threads process the messages: a
/// [`HeldMessage`] owns its bytes and is [`Send`]. The thread with the mailbox
/// [completes](HoldingMailbox::complete) it.
///
/// Each sender's messages are acknowledged in the order in which it sent them: a completed message
/// stays unread until all messages before it, of the same sender, are completed too. If this
/// process dies, or drops the mailbox, every message from the first one that was not completed is
/// received *again* by the successor, or taken back by the sender: also those behind it that were
/// completed. They are *in doubt*: [`HeldMessage::redelivered`] counts this owner for each of them,
/// and [`Sender::take_unread_parts`](crate::mailbox::Sender::take_unread_parts) returns them as
/// such. Their number is at most that given to [`Mailbox::into_holding`].
///
/// In causal order ([`Order::Causal`](crate::mailbox::Order)), messages are received, but of course
/// not completed, in this order.
///
/// # Examples
/// ```
/// use std::{sync::mpsc, thread};
/// use tontine::{Error, mailbox::{Mailbox, Sender}};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut mailbox = Mailbox::bind(&path)?.into_holding(8)?;
/// let mut sender = Sender::connect(&path)?; // usually in another process
/// for job in [b"one", b"two", b"six"] {
///     sender.send(job)?;
/// }
///
/// // A worker that finishes would wake the calls that receive the other jobs.
/// let jobs = [mailbox.recv()?, mailbox.recv()?, mailbox.recv()?];
/// let (done, completions) = mpsc::channel();
/// for job in jobs {
///     let (done, waker) = (done.clone(), mailbox.waker()?);
///     thread::spawn(move || {
///         println!("working on {} bytes", job.len());
///         done.send(job).expect("the receiver lives");
///         waker.wake()
///     });
/// }
/// let mut completed = 0;
/// while completed < 3 {
///     assert_eq!(mailbox.recv().unwrap_err(), Error::Woken);
///     for job in completions.try_iter() {
///         mailbox.complete(job);
///         completed += 1;
///     }
/// }
/// assert_eq!(sender.unread_bytes(), 0);
/// # Ok::<(), tontine::Error>(())
/// ```
pub struct HoldingMailbox {
    mailbox: Mailbox,
    /// Maximum number of messages that are received and not acknowledged.
    max: usize,
    /// Number of messages that are received and not completed.
    held: usize,
    /// At least the number of completed messages that are not acknowledged. Too high once a lane
    /// with such messages was removed.
    completed: usize,
    returns: Arc<Returns>,
}

/// The path of dropped messages back to the mailbox.
struct Returns {
    queue: Mutex<ReturnQueue>,
    waker: Waker,
    guard: Guard,
}

#[derive(Default)]
struct ReturnQueue {
    messages: VecDeque<HeldMessage>,
    /// `true` while the receiver waits, so that it must be woken.
    waits: bool,
    /// `true` if it was woken for that reason.
    is_woken: bool,
}

impl Returns {
    fn queue(&self) -> MutexGuard<'_, ReturnQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message that a [`HoldingMailbox`] has received; dereferences to its bytes.
///
/// Pass it to [`HoldingMailbox::complete`] once its work is done. If it is dropped instead, for
/// example because the thread that has it panics, it is *put back*: a later call of this mailbox
/// receives it again, and nothing is acknowledged. A message that is leaked stays unread until the
/// mailbox ends.
#[must_use = "a message that is dropped is received again; pass it to `complete`"]
pub struct HeldMessage {
    bytes: Vec<u8>,
    sender: SenderId,
    peer: Peer,
    redelivered: u32,
    /// `true` if the message was put back before.
    is_again: bool,
    /// The position of its record.
    position: u64,
    /// `None` once the message is completed or put back.
    returns: Option<Arc<Returns>>,
}

impl HeldMessage {
    /// Returns the identifier of the lane on which the message arrived.
    pub fn sender(&self) -> SenderId {
        self.sender
    }

    /// Returns the process that sent the message, as the kernel identified it when the process
    /// connected.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the number of owners of the address that may have received the message before, like
    /// [`Message::redelivered`](super::Message::redelivered). An earlier owner that held several
    /// messages counts for each of them, whether it had completed the message or not.
    pub fn redelivered(&self) -> u32 {
        self.redelivered
    }
}

impl Deref for HeldMessage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for HeldMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, sender, peer, redelivered, .. } = self;
        f.debug_struct("HeldMessage")
            .field("bytes", bytes)
            .field("sender", sender)
            .field("peer", peer)
            .field("redelivered", redelivered)
            .finish_non_exhaustive()
    }
}

impl Drop for HeldMessage {
    fn drop(&mut self) {
        let Some(returns) = self.returns.take() else { return };
        // In a forked child, a thread that does not exist there may have the lock.
        if returns.guard.is_forked() {
            return;
        }
        let mut queue = returns.queue();
        let bytes = std::mem::take(&mut self.bytes);
        let Self { sender, peer, redelivered, is_again, position, .. } = *self;
        let back = Self { bytes, sender, peer, redelivered, is_again, position, returns: None };
        queue.messages.push_back(back);
        if queue.waits && !queue.is_woken {
            queue.is_woken = returns.waker.wake().is_ok();
        }
    }
}

impl fmt::Debug for HoldingMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mailbox, max, held, .. } = self;
        f.debug_struct("HoldingMailbox")
            .field("mailbox", mailbox)
            .field("max", max)
            .field("held", held)
            .finish_non_exhaustive()
    }
}

impl Mailbox {
    /// Converts the mailbox into one that holds up to `max` messages at once. Acknowledges the
    /// message last received.
    ///
    /// A completed message counts until it is acknowledged, so `max` is also the maximum number of
    /// messages that are received again after a death.
    ///
    /// # Errors
    /// The mailbox is closed if `into_holding` fails.
    ///
    /// - [`Error::InvalidOption`] if `max` is 0.
    /// - [`Error::System`] if no descriptor is left for the waker, [`Error::Forked`] in a forked
    ///   child.
    ///
    /// See [`HoldingMailbox`] for an example.
    pub fn into_holding(mut self, max: usize) -> Result<HoldingMailbox> {
        let waker = self.waker()?;
        if max == 0 {
            let reason = "a mailbox must be able to hold a message; pass 1 or more";
            return Err(Error::InvalidOption { option: "max", value: 0, reason });
        }
        self.ack();
        let returns = Returns { queue: Mutex::default(), waker, guard: self.guard };
        Ok(HoldingMailbox { mailbox: self, max, held: 0, completed: 0, returns: returns.into() })
    }
}

impl HoldingMailbox {
    /// Blocks until a message arrives and returns a copy of it, without acknowledging others. A
    /// message that was put back comes first.
    ///
    /// A thread that completes messages cannot block here meanwhile: let the workers
    /// [wake](HoldingMailbox::waker) it.
    ///
    /// # Errors
    /// - [`Error::Full`] if the mailbox has as many messages that are not acknowledged as it may
    ///   hold: complete some first, the oldest of each sender above all.
    /// - [`Error::Woken`] if another thread has woken the call, or has dropped a message while the
    ///   call waited; the next call then returns that message.
    /// - [`Error::Forked`], [`Error::Interrupted`], [`Error::NoSenders`] and [`Error::System`] like
    ///   [`Mailbox::recv`].
    pub fn recv(&mut self) -> Result<HeldMessage> {
        self.take(None)
    }

    /// Receives like [`HoldingMailbox::recv`], but blocks for at most `timeout`.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if no message arrived within `timeout`.
    /// - Otherwise the errors of [`HoldingMailbox::recv`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<HeldMessage> {
        self.take(Instant::now().checked_add(timeout))
    }

    /// Returns the next message, if any, without blocking, like [`Mailbox::try_recv`].
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] if there is no message.
    /// - [`Error::Full`], [`Error::Forked`], [`Error::NoSenders`] and [`Error::System`] like
    ///   [`HoldingMailbox::recv`].
    pub fn try_recv(&mut self) -> Result<HeldMessage> {
        if let Some(again) = self.take_returned()? {
            return Ok(again);
        }
        let taken = match self.mailbox.take_fast(0) {
            Some(taken) => taken,
            None => self.mailbox.next_or_service()?.ok_or_else(|| self.mailbox.no_message())?,
        };
        Ok(self.hold(taken))
    }

    /// Completes a message. It is acknowledged, and its sender's memory free, once all earlier
    /// messages of its sender are completed too.
    ///
    /// Notifies a sender that waits. Does nothing in a forked child, or if the sender has ended.
    ///
    /// # Panics
    /// Panics if another mailbox has received the message, and puts the message back there.
    pub fn complete(&mut self, mut message: HeldMessage) {
        let is_own = message.returns.as_ref().is_some_and(|to| Arc::ptr_eq(to, &self.returns));
        assert!(is_own, "a message is completed by the mailbox that has received it");
        message.returns = None;
        if self.mailbox.guard.is_forked() {
            return;
        }
        self.held -= 1;
        if let Some(lane) = self.mailbox.lanes.named(message.sender) {
            let before = lane.completed();
            lane.complete(message.position);
            self.completed = self.completed + lane.completed() - before;
        }
    }

    /// Prepares for waiting on the descriptor, like [`Mailbox::arm`]. A message that is put back
    /// makes the descriptor readable, too. Do not arm a mailbox whose last call has returned
    /// [`Error::Full`]: it would return `false` again and again.
    ///
    /// # Errors
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    pub fn arm(&mut self) -> Result<bool> {
        self.mailbox.check()?;
        if !self.begin_wait() {
            return Ok(false);
        }
        self.mailbox.arm()
    }

    /// Returns a handle with which another thread ends a blocking call, like [`Mailbox::waker`].
    ///
    /// # Errors
    /// [`Error::Forked`] in a forked child.
    pub fn waker(&mut self) -> Result<Waker> {
        self.mailbox.waker()
    }

    /// Adds a connected socket, like [`Mailbox::adopt`].
    ///
    /// # Errors
    /// The errors of [`Mailbox::adopt`].
    pub fn adopt(&mut self, socket: OwnedFd) -> Result<()> {
        self.mailbox.adopt(socket)
    }

    /// Returns the number of messages that were received and are not completed.
    pub fn held_count(&self) -> usize {
        self.held
    }

    /// Returns the number of connected senders, like [`Mailbox::sender_count`]. A sender of held
    /// messages that has ended does not count.
    pub fn sender_count(&self) -> usize {
        self.mailbox.sender_count()
    }

    /// Removes and returns the errors since the last call, like [`Mailbox::take_errors`].
    #[must_use = "errors that were taken are not returned again"]
    pub fn take_errors(&mut self) -> Vec<Error> {
        self.mailbox.take_errors()
    }

    /// Removes and returns the senders whose processes died, like [`Mailbox::take_deaths`].
    #[must_use = "deaths that were taken are not returned again"]
    pub fn take_deaths(&mut self) -> Vec<(SenderId, Peer)> {
        self.mailbox.take_deaths()
    }

    fn take(&mut self, deadline: Option<Instant>) -> Result<HeldMessage> {
        if let Some(again) = self.take_returned()? {
            return Ok(again);
        }
        if let Some(taken) = self.mailbox.take_fast(self.mailbox.looks()) {
            return Ok(self.hold(taken));
        }
        if !self.begin_wait() {
            return self.take(deadline);
        }
        let found = self.mailbox.wait(deadline);
        let mut queue = self.returns.queue();
        (queue.waits, queue.is_woken) = (false, false);
        drop(queue);
        Ok(self.hold(found?))
    }

    /// Returns a message that was put back, if there is one.
    ///
    /// # Errors
    /// [`Error::Full`] if there is none, and the mailbox may not hold another message.
    fn take_returned(&mut self) -> Result<Option<HeldMessage>> {
        self.mailbox.check()?;
        let mut queue = self.returns.queue();
        queue.waits = false;
        if std::mem::take(&mut queue.is_woken) {
            // The program waited on the descriptor: the token must not end a call that blocks.
            self.mailbox.is_woken();
        }
        let again = queue.messages.pop_front();
        drop(queue);
        if let Some(mut again) = again {
            again.redelivered = again.redelivered.saturating_add((!again.is_again).into());
            again.is_again = true;
            again.returns = Some(Arc::clone(&self.returns));
            return Ok(Some(again));
        }
        if self.held + self.completed >= self.max {
            self.completed = self.mailbox.lanes.all().map(|lane| lane.completed()).sum();
            if self.held + self.completed >= self.max {
                let what = "messages that this mailbox holds";
                return Err(Error::Full { what, max: self.max as u64 });
            }
        }
        Ok(None)
    }

    /// Announces that the receiver is about to wait. Returns `false` if a message is put back.
    fn begin_wait(&self) -> bool {
        let mut queue = self.returns.queue();
        queue.waits = queue.messages.is_empty();
        queue.waits
    }

    /// Takes a message that was found.
    fn hold(&mut self, taken: TakenMessage) -> HeldMessage {
        let mailbox = &mut self.mailbox;
        let message = mailbox.hand_out(taken);
        let (sender, peer, redelivered) = (message.sender, message.peer, message.redelivered);
        let bytes = message.into_vec();
        mailbox.taken = None;
        let lane = mailbox.lanes.at(taken.slot);
        let position = lane.map_or(0, |lane| lane.hold(taken.length));
        self.held += 1;
        let returns = Some(Arc::clone(&self.returns));
        HeldMessage { bytes, sender, peer, redelivered, is_again: false, position, returns }
    }
}

/// The descriptor is readable when the mailbox has something to do, like a [`Mailbox`]'s.
impl AsFd for HoldingMailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.as_fd()
    }
}

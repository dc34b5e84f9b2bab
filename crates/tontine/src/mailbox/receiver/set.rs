//! Waiting on several mailboxes at once: [`MailboxSet`].
//!
//! Each mailbox is armed, and `poll` waits on the descriptors of all. Neighbours:
//! [`super::waiting`] arms one mailbox.

use std::ops::{Index, IndexMut};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::lanes::TakenMessage;
use super::{Mailbox, Message};
use crate::error::{Error, Result};

/// Number of rounds without a sleep while a mailbox cannot be armed, for example because a message
/// has just arrived.
const ROUNDS: u32 = 2;

/// Maximum length of a sleep whose wake-up could be lost.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// Several mailboxes from which one thread receives.
///
/// A set owns its mailboxes, which [`MailboxSet::add`] numbers from 0. A receiving call takes the
/// messages of the mailboxes in turn, so that a busy mailbox does not delay the others. Each
/// message is acknowledged by the set's next receiving call. If there is no message, the call
/// sleeps at once, whatever the [`WaitStrategy`](crate::mailbox::WaitStrategy) of the mailboxes.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Mailbox, MailboxSet, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let (jobs, control) = (folder.path().join("jobs"), folder.path().join("control"));
/// let mut set = MailboxSet::new();
/// let from_jobs = set.add(Mailbox::bind(&jobs)?);
/// let from_control = set.add(Mailbox::bind(&control)?);
///
/// let mut sender = Sender::connect(&control)?; // usually in another process
/// sender.send(b"stop")?;
/// let (from, message) = set.recv()?;
/// assert_eq!((from, &*message), (from_control, &b"stop"[..]));
/// # assert_ne!(from, from_jobs);
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct MailboxSet {
    mailboxes: Vec<Mailbox>,
    /// Index of the mailbox whose message was received last.
    last: usize,
}

impl MailboxSet {
    /// Returns a set without mailboxes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a mailbox, and returns its index.
    pub fn add(&mut self, mailbox: Mailbox) -> usize {
        self.mailboxes.push(mailbox);
        self.mailboxes.len() - 1
    }

    /// Returns the number of mailboxes.
    pub fn len(&self) -> usize {
        self.mailboxes.len()
    }

    /// Returns `true` if the set has no mailbox.
    pub fn is_empty(&self) -> bool {
        self.mailboxes.is_empty()
    }

    /// Returns the mailboxes, in the order of their indices.
    pub fn into_inner(self) -> Vec<Mailbox> {
        self.mailboxes
    }

    /// Blocks until one of the mailboxes has a message; returns the mailbox's index and a copy of
    /// the message. Acknowledges the previous message.
    ///
    /// # Errors
    /// - [`Error::Woken`] if another thread has [woken](Mailbox::waker) one of the mailboxes. Each
    ///   mailbox that was woken ends one call.
    /// - [`Error::NoSenders`] if all mailboxes
    ///   [report that](crate::mailbox::Options::report_no_senders).
    /// - [`Error::Interrupted`] if a signal handler ran and a mailbox is interruptible.
    /// - [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    ///
    /// # Panics
    /// Panics if the set has no mailbox: the call would wait indefinitely.
    pub fn recv(&mut self) -> Result<(usize, Message<'_>)> {
        self.wait(None)
    }

    /// Receives like [`MailboxSet::recv`], but blocks for at most `timeout`.
    ///
    /// # Errors
    /// - [`Error::TimedOut`] if no message arrived within `timeout`.
    /// - Otherwise the errors of [`MailboxSet::recv`].
    ///
    /// # Panics
    /// Panics if the set has no mailbox.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<(usize, Message<'_>)> {
        self.wait(Instant::now().checked_add(timeout))
    }

    /// Returns the next message, if any, with the index of its mailbox, without blocking.
    /// Acknowledges the previous message.
    ///
    /// # Errors
    /// - [`Error::WouldBlock`] if no mailbox has a message.
    /// - [`Error::NoSenders`], [`Error::Forked`] and [`Error::System`] like [`MailboxSet::recv`].
    pub fn try_recv(&mut self) -> Result<(usize, Message<'_>)> {
        match self.find()? {
            Some(found) => Ok(self.hand_out(found)),
            None => Err(self.no_message()),
        }
    }

    fn wait(&mut self, deadline: Option<Instant>) -> Result<(usize, Message<'_>)> {
        assert!(!self.is_empty(), "a MailboxSet without mailboxes receives nothing; add one first");
        let mut vain = 0;
        loop {
            if self.is_woken() {
                return Err(Error::Woken);
            }
            if let Some(found) = self.find()? {
                return Ok(self.hand_out(found));
            }
            let error = self.no_message();
            if error != Error::WouldBlock {
                return Err(error);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Error::TimedOut);
            }
            let is_sure = self.arm()?;
            // The search may have processed the event of a token set after the first check.
            if self.is_woken() {
                return Err(Error::Woken);
            }
            vain = if is_sure { 0 } else { vain + 1 };
            if is_sure || vain > ROUNDS {
                self.sleep(left, is_sure)?;
            }
        }
    }

    /// Takes the token of the first mailbox that has one, and ends the wait. Returns `true` if
    /// there was a token.
    fn is_woken(&mut self) -> bool {
        let is_woken = self.mailboxes.iter().any(Mailbox::is_woken);
        if is_woken {
            self.mailboxes.iter_mut().for_each(Mailbox::disarm);
            self.acknowledge();
        }
        is_woken
    }

    /// Returns the next message, beginning with the mailbox after the last one.
    fn find(&mut self) -> Result<Option<(usize, TakenMessage)>> {
        self.acknowledge();
        let count = self.mailboxes.len();
        for offset in 1..=count {
            let index = (self.last + offset) % count;
            if let Some(taken) = self.mailboxes[index].next_or_service()? {
                self.last = index;
                return Ok(Some((index, taken)));
            }
        }
        Ok(None)
    }

    fn acknowledge(&mut self) {
        if let Some(mailbox) = self.mailboxes.get_mut(self.last) {
            mailbox.ack();
        }
    }

    fn hand_out(&mut self, (index, taken): (usize, TakenMessage)) -> (usize, Message<'_>) {
        (index, self.mailboxes[index].hand_out(taken))
    }

    /// Returns the error of a call that does not block and has found no message.
    fn no_message(&mut self) -> Error {
        let is_over = !self.is_empty() && self.mailboxes.iter_mut().all(Mailbox::has_no_senders);
        if is_over { Error::NoSenders } else { Error::WouldBlock }
    }

    /// Prepares each mailbox for waiting. Returns `true` if each is certain to be notified.
    fn arm(&mut self) -> Result<bool> {
        let mut is_sure = true;
        for mailbox in &mut self.mailboxes {
            is_sure &= mailbox.arm_lanes()?;
        }
        Ok(is_sure)
    }

    /// Waits for an event of any mailbox, and for at most the time `left`.
    fn sleep(&mut self, left: Option<Duration>, is_sure: bool) -> Result<()> {
        let nudge = self.mailboxes.iter_mut().filter_map(Mailbox::nudge).min();
        let unsure = (!is_sure).then_some(UNSURE_SLEEP);
        let timeout = [left, nudge, unsure].into_iter().flatten().min().map(|time| Timespec {
            tv_sec: time.as_secs().min(i64::MAX as u64).cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        });
        let interest = |mailbox| PollFd::from_borrowed_fd(Mailbox::as_fd(mailbox), PollFlags::IN);
        let mut watched: Vec<PollFd<'_>> = self.mailboxes.iter().map(interest).collect();
        let slept = poll(&mut watched, timeout.as_ref());
        // Senders need not ring any more.
        self.mailboxes.iter_mut().for_each(Mailbox::disarm);
        match slept {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => {
                let ends = self.mailboxes.iter().any(|mailbox| mailbox.options.interruptible);
                if ends { Err(Error::Interrupted) } else { Ok(()) }
            }
            Err(errno) => Err(Error::system("poll", errno)),
        }
    }
}

/// The mailbox with this index, for calls of one mailbox.
///
/// # Panics
/// Panics if the set has no mailbox with this index.
impl Index<usize> for MailboxSet {
    type Output = Mailbox;

    fn index(&self, index: usize) -> &Mailbox {
        &self.mailboxes[index]
    }
}

impl IndexMut<usize> for MailboxSet {
    fn index_mut(&mut self, index: usize) -> &mut Mailbox {
        &mut self.mailboxes[index]
    }
}

//! How a sender waits: for room, for its mail to be read, for a successor.
//!
//! The mirror of a receiver that sleeps: `waiting` in place of `sleeping`, the position in place of
//! the header. Neighbours: [`super::growth`] says whether there is room.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::joined::Joined;
use super::options::Waiting;
use super::sender::Sender;
use crate::error::{Error, Result};
use crate::lane::mapped::half_of_own;
use crate::lane::page::WAITING_AT;
use crate::sync::Ordering;

/// Looks for room before the clock is asked.
const LOOKS: u32 = 64;

/// So many times that, before the kernel is asked and the reader's hot line is looked at.
const THOROUGH_AFTER: u32 = 16;

/// Interval between looks for what no descriptor shows: a successor, a free descriptor, or a chunk
/// that the receiver let go of.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How long a sleep may be that nobody is sure to interrupt.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// The longest sleep without a look at the life word: only an exec of a reader with forked children
/// passes pidfd and hang-up by.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// How long a call may wait.
pub(super) enum Patience {
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    pub(super) fn until(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Self::Endless, Self::Until)
    }

    fn is_over(&self, now: Instant) -> bool {
        match self {
            Self::None => true,
            Self::Until(until) => now >= *until,
            Self::Endless => false,
        }
    }

    fn left(&self, most: Duration) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Until(until) => until.saturating_duration_since(Instant::now()).min(most),
            Self::Endless => most,
        }
    }
}

impl Sender {
    /// Prepares for waiting on the descriptor until there is room for a message of `length` bytes:
    /// from now on the receiver sends word. `true`: there is none, wait; `false`: call
    /// [`Sender::try_send`]. Arm again before each wait.
    ///
    /// The descriptor does not tell of a reader that called `exec` or was killed and left a forked
    /// child behind: wait for half a second at a time. Nor does it tell of a successor, while one
    /// is waited for.
    ///
    /// # Errors
    /// As [`Sender::try_send`], but for [`Error::WouldBlock`].
    pub fn arm(&mut self, length: usize) -> Result<bool> {
        self.check()?;
        self.say_waiting(1);
        self.armed = true;
        // Where the kernel forbids the barrier by now, nobody could be sure to send word: the
        // caller has to look again and again.
        let sure = self.connection.joined.as_ref().is_none_or(Joined::separate_heavily);
        let room = self.ready().and_then(|()| self.find_room(length, true, true));
        if !matches!(room, Ok(false)) {
            self.disarm();
        }
        Ok(!room? && sure)
    }

    /// Calls `done` until it says so; spins, then sleeps, as the options say. Told to be thorough,
    /// it asks the kernel and looks at lines that the reader writes often; else it looks only where
    /// room is told of.
    pub(super) fn wait_until(
        &mut self,
        patience: &Patience,
        mut done: impl FnMut(&mut Self, bool) -> Result<bool>,
    ) -> Result<()> {
        if done(self, true)? {
            return Ok(());
        }
        if matches!(patience, Patience::None) {
            return Err(Error::TimedOut);
        }
        let begun = Instant::now();
        let spin_until = match self.options.waiting {
            Waiting::Spin => None,
            Waiting::Sleep => Some(begun),
            Waiting::SpinThenSleep(time) => begun.checked_add(time),
        };
        let (mut now, mut rounds) = (begun, 0_u32);
        while !patience.is_over(now) {
            // For a successor nobody spins.
            if self.ended.is_some() || spin_until.is_some_and(|until| now >= until) {
                if self.sleep(patience, &mut done)? {
                    return Ok(());
                }
                now = Instant::now();
                continue;
            }
            for _ in 0..LOOKS {
                if done(self, false)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(THOROUGH_AFTER) && done(self, true)? {
                return Ok(());
            }
            now = Instant::now();
        }
        Err(Error::TimedOut)
    }

    /// Waits in the kernel for word from the receiver, or its end. Returns whether it is done.
    fn sleep(
        &mut self,
        patience: &Patience,
        done: &mut impl FnMut(&mut Self, bool) -> Result<bool>,
    ) -> Result<bool> {
        self.say_waiting(1);
        let sure = self.connection.joined.as_ref().is_none_or(Joined::separate_heavily);
        let mut slept = done(self, true);
        if slept == Ok(false) {
            let longest = if sure { self.longest_wait() } else { UNSURE_SLEEP };
            slept = self.poll(patience.left(longest)).and_then(|()| done(self, true));
        }
        self.say_waiting(0);
        slept
    }

    /// Tells the receiver, in every chunk that it may be reading, whether we wait.
    pub(super) fn say_waiting(&self, waiting: u32) {
        for link in self.writer.chain() {
            half_of_own(&link.region, WAITING_AT).store(waiting, Ordering::Relaxed);
        }
    }

    /// Reverts [`Sender::arm`]. A forked child that drops its parent's pending future calls this
    /// too, and has no chunk to write to.
    pub(super) fn disarm(&mut self) {
        if self.armed && self.check().is_ok() {
            self.say_waiting(0);
            self.armed = false;
        }
    }

    /// How long a wait may last until it is time to look again, whatever the descriptors say.
    pub(super) fn longest_wait(&self) -> Duration {
        let unannounced = self.ended.is_some() || self.unreadable || self.chunks.held() > 0;
        if unannounced { LOOK_AGAIN } else { LONGEST_SLEEP }
    }

    /// What tells of the receiver, and is not readable already for as long as nothing changes: a
    /// socket that hung up is for ever, one with a message for which our table is full until it has
    /// room. Then only time passes.
    pub(super) fn watched(&self) -> (Option<BorrowedFd<'_>>, Option<BorrowedFd<'_>>) {
        if self.ended.is_some() {
            return (None, None);
        }
        let (socket, process) = self.connection.waits();
        ((!self.unreadable).then_some(socket), process)
    }

    fn poll(&mut self, timeout: Duration) -> Result<()> {
        let (socket, process) = self.watched();
        let interest = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        // The process comes first, so that its answer is found.
        let mut watched: Vec<PollFd<'_>> =
            process.into_iter().chain(socket).map(interest).collect();
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => {
                let ended = process.is_some() && !watched[0].revents().is_empty();
                if ended {
                    self.look_at_process();
                }
                Ok(())
            }
            Err(errno) => Err(Error::system("poll", errno)),
        }
    }
}

//! How a sender waits: for room, for its mail to be read, for a successor.
//!
//! The mirror of a receiver that sleeps: `waiting` in place of `sleeping`, the position in place of
//! the header. Neighbours: [`super::growth`] says whether there is room.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::options::Waiting;
use super::outbound::Joined;
use super::sender::Sender;
use crate::error::{Error, Result};
use crate::lane::mapped::half_of_own;
use crate::lane::page::WAITING_AT;
use crate::sync::Ordering;

/// Looks for room before the clock is asked.
const LOOKS: u32 = 32;

/// A sender that waits for its reader's successor looks this often for one.
const LOOK_FOR_SUCCESSOR: Duration = Duration::from_millis(10);

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

    fn is_over(&self) -> bool {
        match self {
            Self::None => true,
            Self::Until(until) => Instant::now() >= *until,
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
    /// it looks for more than room.
    pub(super) fn wait_until(
        &mut self,
        patience: &Patience,
        mut done: impl FnMut(&mut Self, bool) -> Result<bool>,
    ) -> Result<()> {
        if done(self, true)? {
            return Ok(());
        }
        let spin_until = match self.options.waiting {
            _ if self.ended.is_some() => Some(Instant::now()),
            Waiting::Spin => None,
            Waiting::Sleep => Some(Instant::now()),
            Waiting::SpinThenSleep(time) => Instant::now().checked_add(time),
        };
        loop {
            if patience.is_over() {
                return Err(Error::TimedOut);
            }
            for look in 0..LOOKS {
                if done(self, look == 0)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if spin_until.is_some_and(|until| Instant::now() >= until)
                && self.sleep(patience, &mut done)?
            {
                return Ok(());
            }
        }
    }

    /// Waits in the kernel for word from the receiver, or its end. Returns whether it is done.
    pub(super) fn sleep(
        &mut self,
        patience: &Patience,
        done: &mut impl FnMut(&mut Self, bool) -> Result<bool>,
    ) -> Result<bool> {
        self.say_waiting(1);
        let sure = self.connection.joined.as_ref().is_none_or(Joined::separate_heavily);
        let slept = match done(self, true) {
            Ok(false) => {
                let longest = if sure { self.longest_wait() } else { UNSURE_SLEEP };
                self.poll(patience.left(longest)).map(|()| false)
            }
            other => other,
        };
        self.say_waiting(0);
        slept
    }

    /// Tells the receiver, in every chunk that it may be reading, whether we wait.
    pub(super) fn say_waiting(&self, waiting: u32) {
        for link in self.writer.chain() {
            half_of_own(&link.region, WAITING_AT).store(waiting, Ordering::Relaxed);
        }
    }

    /// Takes back what [`Sender::arm`] said.
    pub(super) fn disarm(&mut self) {
        if self.armed {
            self.say_waiting(0);
            self.armed = false;
        }
    }

    /// How long a wait may last until it is time to look again, whatever the descriptors say.
    pub(super) fn longest_wait(&self) -> Duration {
        if self.ended.is_some() { LOOK_FOR_SUCCESSOR } else { LONGEST_SLEEP }
    }

    pub(super) fn poll(&mut self, timeout: Duration) -> Result<()> {
        let (socket, process) = self.connection.waits();
        let mut watched: Vec<PollFd<'_>> = Vec::with_capacity(2);
        // A socket that hung up is readable for ever; then only time passes.
        if self.ended.is_none() {
            watched.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
            watched.extend(process.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {
                self.look_at_process();
                Ok(())
            }
            Err(errno) => Err(Error::system("poll", errno)),
        }
    }
}

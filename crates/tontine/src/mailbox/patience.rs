//! Waiting of a sender: for space, for its messages to be read, or for a successor: [`SenderWait`].
//!
//! The mirror of a receiver that sleeps: `waiting` in place of `sleeping`, the position in place of
//! the header. Neighbours: [`super::outbound`] says whether there is what a call waits for.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::growth::SpaceRequest;
use super::options::WaitStrategy;
use super::outbound::OutboundLane;
use crate::error::{Error, Result};

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

/// The waiting of one sender.
pub(super) struct SenderWait {
    strategy: WaitStrategy,
    /// The receiver was told by [`SenderWait::arm`] that we wait.
    armed: bool,
}

impl SenderWait {
    pub(super) fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, armed: false }
    }

    /// Has the receiver send word of room from now on, and looks for it. Returns `true` if there is
    /// none for a message of `length` bytes, and word of it is sure to come.
    ///
    /// # Errors
    /// As [`OutboundLane::ready`] and [`OutboundLane::find_room`].
    pub(super) fn arm(&mut self, lane: &mut OutboundLane, length: usize) -> Result<bool> {
        lane.check()?;
        lane.say_waiting(true);
        self.armed = true;
        // Where the kernel forbids the barrier by now, nobody could be sure to send word: the
        // caller has to look again and again.
        let sure = lane.separate_heavily();
        let mut request = SpaceRequest::new(length, true);
        let room = lane.ready().and_then(|()| lane.find_room(&mut request, true));
        if !matches!(room, Ok(false)) {
            self.disarm(lane);
        }
        Ok(!room? && sure)
    }

    /// Reverts [`SenderWait::arm`]. A forked child that drops its parent's pending future calls
    /// this too, and has no chunk to write to.
    pub(super) fn disarm(&mut self, lane: &OutboundLane) {
        if self.armed && lane.check().is_ok() {
            lane.say_waiting(false);
            self.armed = false;
        }
    }

    /// Calls `done` until it says so; spins, then sleeps, as the options say. Told to be thorough,
    /// it asks the kernel and looks at lines that the reader writes often; else it looks only where
    /// room is told of.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; those of `done`; what the system says.
    pub(super) fn until(
        &self,
        lane: &mut OutboundLane,
        patience: &Patience,
        mut done: impl FnMut(&mut OutboundLane, bool) -> Result<bool>,
    ) -> Result<()> {
        if done(lane, true)? {
            return Ok(());
        }
        if matches!(patience, Patience::None) {
            return Err(Error::TimedOut);
        }
        let begun = Instant::now();
        let spin_until = match self.strategy {
            WaitStrategy::Spin => None,
            WaitStrategy::Sleep => Some(begun),
            WaitStrategy::SpinThenSleep(time) => begun.checked_add(time),
        };
        let (mut now, mut rounds) = (begun, 0_u32);
        while !patience.is_over(now) {
            // For a successor nobody spins.
            if !lane.is_live() || spin_until.is_some_and(|until| now >= until) {
                if sleep(lane, patience, &mut done)? {
                    return Ok(());
                }
                now = Instant::now();
                continue;
            }
            for _ in 0..LOOKS {
                if done(lane, false)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(THOROUGH_AFTER) && done(lane, true)? {
                return Ok(());
            }
            now = Instant::now();
        }
        Err(Error::TimedOut)
    }
}

/// Waits in the kernel for word from the receiver, or its end. Returns whether it is done.
fn sleep(
    lane: &mut OutboundLane,
    patience: &Patience,
    done: &mut impl FnMut(&mut OutboundLane, bool) -> Result<bool>,
) -> Result<bool> {
    lane.say_waiting(true);
    let sure = lane.separate_heavily();
    let mut slept = done(lane, true);
    if slept == Ok(false) {
        let longest = if sure { longest_wait(lane) } else { UNSURE_SLEEP };
        slept = wait_for_word(lane, patience.left(longest)).and_then(|()| done(lane, true));
    }
    lane.say_waiting(false);
    slept
}

/// How long a wait may last until it is time to look again, whatever the descriptors say.
pub(super) fn longest_wait(lane: &OutboundLane) -> Duration {
    if lane.has_unannounced() { LOOK_AGAIN } else { LONGEST_SLEEP }
}

fn wait_for_word(lane: &mut OutboundLane, timeout: Duration) -> Result<()> {
    let (socket, process) = lane.watched();
    let interest = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    // The process comes first, so that its answer is found.
    let mut watched: Vec<PollFd<'_>> = process.into_iter().chain(socket).map(interest).collect();
    let timeout = Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut watched, Some(&timeout)) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => {
            let ended = process.is_some() && !watched[0].revents().is_empty();
            if ended {
                lane.look_at_process();
            }
            Ok(())
        }
        Err(errno) => Err(Error::system("poll", errno)),
    }
}

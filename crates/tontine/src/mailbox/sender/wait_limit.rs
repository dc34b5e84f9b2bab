//! The waiting of a sender for space, for acknowledgements, or for a successor: [`SenderWait`].
//!
//! The protocol mirrors that of a receiver that sleeps: the word is `waiting` instead of
//! `sleeping`, and the position takes the role of the header. Neighbours: [`super::outbound`]
//! checks the condition that a call waits for.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::growth::SpaceRequest;
use super::outbound::OutboundLane;
use crate::error::{Error, Result};
use crate::lane::page::WAITING_AT;
use crate::mailbox::settings::Settings;
use crate::mailbox::spin::{Polling, SpinPolicy};

/// Number of checks between two readings of the clock.
const LOOKS: u32 = 64;

/// Number of rounds of [`LOOKS`] checks between two thorough checks, which enter the kernel and
/// load a cache line that the receiver often writes.
const THOROUGH_AFTER: u32 = 16;

/// Interval between checks for events that no descriptor reports: a successor, a free descriptor,
/// or the release of a chunk by the receiver.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Maximum length of a sleep whose wake-up could be lost.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

/// Maximum length of a sleep without a check of the liveness word. Neither pidfd nor hang-up
/// reports an `exec` of a receiver that has forked children.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Maximum wait of a call.
pub(super) enum WaitLimit {
    /// The call does not wait.
    None,
    /// The call waits until a deadline.
    Until(Instant),
    /// The call waits indefinitely.
    Endless,
}

impl WaitLimit {
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

/// The waiting state of one sender.
pub(super) struct SenderWait {
    pub(super) spin: SpinPolicy,
    interruptible: bool,
    /// `true` once [`SenderWait::arm`] has announced to the receiver that the sender waits.
    armed: bool,
}

impl SenderWait {
    pub(super) fn new(options: &Settings) -> Self {
        let Settings { wait_strategy, interruptible, .. } = *options;
        Self { spin: SpinPolicy::new(wait_strategy), interruptible, armed: false }
    }

    /// Asks the receiver to report free space, and checks for free space. Returns `true` if a
    /// message of `length` bytes does not fit, and the receiver is certain to report when it fits.
    ///
    /// # Errors
    /// The errors of [`OutboundLane::ready`] and [`OutboundLane::find_space`].
    pub(super) fn arm(&mut self, lane: &mut OutboundLane, length: usize) -> Result<bool> {
        let mut request = SpaceRequest::new(length, true);
        self.arm_unless(lane, |lane| lane.find_space(&mut request, true))
    }

    /// Asks the receiver to report acknowledgements. Returns `true` if it has acknowledged nothing
    /// after `position`, and is certain to report when it has.
    ///
    /// # Errors
    /// The errors of [`OutboundLane::ready`] and [`OutboundLane::refresh`].
    pub(super) fn arm_for_ack(&mut self, lane: &mut OutboundLane, position: u64) -> Result<bool> {
        self.arm_unless(lane, |lane| {
            lane.refresh()?;
            Ok(lane.writer.acknowledged() > position)
        })
    }

    fn arm_unless(
        &mut self,
        lane: &mut OutboundLane,
        done: impl FnOnce(&mut OutboundLane) -> Result<bool>,
    ) -> Result<bool> {
        lane.check()?;
        lane.store_in_chunks(WAITING_AT, true);
        self.armed = true;
        // If the kernel no longer allows the barrier, the report could be lost: the caller must
        // poll.
        let sure = lane.heavy_fence();
        let done = lane.ready().and_then(|()| done(lane));
        if !matches!(done, Ok(false)) {
            self.disarm(lane);
        }
        Ok(!done? && sure)
    }

    /// Reverts [`SenderWait::arm`]. A forked child that drops its parent's pending future also
    /// calls `disarm`, but has no chunk to write to.
    pub(super) fn disarm(&mut self, lane: &OutboundLane) {
        if self.armed && lane.check().is_ok() {
            lane.store_in_chunks(WAITING_AT, false);
            self.armed = false;
        }
    }

    /// Calls `done` until it returns `true`; spins, then sleeps, as the wait strategy specifies. If
    /// its second argument is `true`, `done` must be thorough: enter the kernel, and load cache
    /// lines that the receiver often writes. Otherwise `done` checks only the announced space.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Interrupted`] if the end is interruptible, the errors of
    /// `done`, or the error of a system call.
    pub(super) fn until(
        &mut self,
        lane: &mut OutboundLane,
        limit: &WaitLimit,
        mut done: impl FnMut(&mut OutboundLane, bool) -> Result<bool>,
    ) -> Result<()> {
        if done(lane, true)? {
            return Ok(());
        }
        let began = Instant::now();
        if limit.is_over(began) {
            return Err(Error::TimedOut);
        }
        let polling = self.spin.begin(began);
        let (mut now, mut rounds) = (began, 0_u32);
        let mut has_polled = polling == Polling::None;
        while !limit.is_over(now) {
            // A wait for a successor does not poll.
            if !lane.is_live() || polling.is_over(now) {
                self.note_poll(&mut has_polled, began, false);
                match sleep(lane, limit, &mut done)? {
                    Slept::Done => return Ok(()),
                    Slept::Interrupted if self.interruptible => return Err(Error::Interrupted),
                    Slept::Interrupted | Slept::NotDone => {}
                }
                now = Instant::now();
                continue;
            }
            rounds = rounds.wrapping_add(1);
            if poll_briefly(lane, rounds.is_multiple_of(THOROUGH_AFTER), &mut done)? {
                self.note_poll(&mut has_polled, began, true);
                return Ok(());
            }
            now = Instant::now();
        }
        self.note_poll(&mut has_polled, began, false);
        Err(Error::TimedOut)
    }

    /// Records the poll with which a wait began, if it is not recorded yet.
    fn note_poll(&mut self, has_polled: &mut bool, began: Instant, ended: bool) {
        if !std::mem::replace(has_polled, true) {
            self.spin.note(began, ended);
        }
    }
}

/// Calls `done` [`LOOKS`] times, then once more if the check should be thorough. Returns `true` as
/// soon as `done` does.
#[inline]
fn poll_briefly(
    lane: &mut OutboundLane,
    thorough: bool,
    done: &mut impl FnMut(&mut OutboundLane, bool) -> Result<bool>,
) -> Result<bool> {
    for _ in 0..LOOKS {
        if done(lane, false)? {
            return Ok(true);
        }
        std::hint::spin_loop();
    }
    Ok(thorough && done(lane, true)?)
}

/// The result of [`sleep`].
enum Slept {
    /// `done` returned `true`.
    Done,
    /// A signal handler ran during the sleep, and `done` returned `false`.
    Interrupted,
    NotDone,
}

/// Waits in the kernel for a control message from the receiver, or for its end. Calls `done` before
/// and after the wait.
fn sleep(
    lane: &mut OutboundLane,
    limit: &WaitLimit,
    done: &mut impl FnMut(&mut OutboundLane, bool) -> Result<bool>,
) -> Result<Slept> {
    lane.store_in_chunks(WAITING_AT, true);
    let sure = lane.heavy_fence();
    let mut slept = done(lane, true);
    let mut interrupted = false;
    if slept == Ok(false) {
        let longest = if sure { longest_wait(lane) } else { UNSURE_SLEEP };
        let waited = wait_for_word(lane, limit.left(longest));
        interrupted = waited == Err(Error::Interrupted);
        slept = if interrupted { Ok(()) } else { waited }.and_then(|()| done(lane, true));
    }
    lane.store_in_chunks(WAITING_AT, false);
    slept.map(|is_done| match (is_done, interrupted) {
        (true, _) => Slept::Done,
        (false, true) => Slept::Interrupted,
        (false, false) => Slept::NotDone,
    })
}

/// Returns the maximum length of a sleep, after which the caller checks again even if no descriptor
/// is readable.
pub(super) fn longest_wait(lane: &OutboundLane) -> Duration {
    if lane.has_unannounced() { LOOK_AGAIN } else { LONGEST_SLEEP }
}

fn wait_for_word(lane: &mut OutboundLane, timeout: Duration) -> Result<()> {
    let (socket, process) = lane.watched();
    let interest = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    // The process is first, because its result is read by index.
    let mut watched: Vec<PollFd<'_>> = process.into_iter().chain(socket).map(interest).collect();
    let timeout = Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match poll(&mut watched, Some(&timeout)) {
        Ok(0) => Ok(()),
        Err(Errno::INTR) => Err(Error::Interrupted),
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

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::mailbox::Sender;

    /// A timeout that is longer than a poll.
    const TIMEOUT: Duration = Duration::from_millis(1);

    #[test]
    fn sender_that_polls_in_vain_soon_sleeps_at_once() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
        let (ours, _theirs) = pair.expect("a pair");
        let mut sender = Sender::from_socket(ours).expect("connected");
        sender.send(b"unread").expect("space");
        for _ in 0..5 {
            assert_eq!(sender.wait_acked(Some(TIMEOUT)), Err(Error::TimedOut));
        }
        assert_eq!(sender.wait.spin.begin(Instant::now()), Polling::None);
    }
}

//! The waiting of a [`Mailbox`]: it polls its lanes, then sleeps in the kernel.
//!
//! The protocol mirrors that of a sender that waits for space
//! ([`crate::mailbox::sender::wait_limit`]). [`super::service`] processes the events that wake the
//! mailbox.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Mailbox;
use super::inbound::LaneScan;
use super::lanes::TakenMessage;
use super::message::Message;
use crate::error::Error;
use crate::error::Result;
use crate::mailbox::spin::Polling;
use crate::mailbox::wire::MOST_CHUNKS;
use crate::sync::{Ordering, fence};
use crate::sys::membarrier;

/// Maximum number of turns, or passes without a message, between two services of the connections.
const SERVICE_AFTER: u32 = 1024;

/// Number of checks of a lane between two readings of the clock. It bounds how much longer than the
/// wait strategy says a receiver spins: 64 checks take about 2 µs, a reading 25 ns.
const CLOCK_AFTER: u32 = 64;

/// Maximum length of a sleep whose wake-up could be lost.
const UNSURE_SLEEP: Duration = Duration::from_millis(1);

impl Mailbox {
    /// Prepares for waiting on the descriptor: senders then notify this mailbox. Acknowledges the
    /// message last received.
    ///
    /// Returns `true` if there is nothing to receive: wait until the descriptor is readable.
    /// Returns `false` if there may be a message, or a sender was found to have ended
    /// ([`Mailbox::take_deaths`]): call [`Mailbox::try_recv`] until it returns
    /// [`Error::WouldBlock`] or [`Error::NoSenders`], then arm again. Also returns `false` while
    /// the system keeps the mailbox from reading a message or from being notified, for example
    /// because memory is short.
    ///
    /// # Errors
    /// [`Error::Forked`] and [`Error::System`] like [`Mailbox::recv`].
    ///
    /// # Examples
    /// ```
    /// use rustix::event::{PollFd, PollFlags, poll};
    /// use tontine::{Error, mailbox::{Mailbox, Sender}};
    ///
    /// # let folder = tempfile::tempdir().expect("a folder");
    /// # let path = folder.path().join("jobs");
    /// let mut mailbox = Mailbox::bind(&path)?;
    /// # let mut sender = Sender::connect(&path)?;
    /// # sender.send(b"hello")?;
    /// let mut received = 0;
    /// while received == 0 {
    ///     if mailbox.arm()? {
    ///         let mut fds = [PollFd::new(&mailbox, PollFlags::IN)]; // and your own
    ///         poll(&mut fds, None).unwrap();
    ///     }
    ///     loop {
    ///         match mailbox.try_recv() {
    ///             Ok(message) => received += message.len(),
    ///             Err(Error::WouldBlock) => break,
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    /// }
    /// # assert_eq!(received, 5);
    /// # Ok::<(), tontine::Error>(())
    /// ```
    pub fn arm(&mut self) -> Result<bool> {
        self.check()?;
        if self.has_no_senders() {
            self.ack();
            return Ok(false);
        }
        self.arm_lanes()
    }

    /// Does the work of `arm`, also for a mailbox without senders.
    pub(super) fn arm_lanes(&mut self) -> Result<bool> {
        self.check()?;
        self.ack();
        self.disarm();
        let departures = self.departures();
        if self.door.is_announced() {
            // A sender that has rung for this number does not ring again, and a caller that is
            // notified of each event only once may have been notified.
            self.service(Some(Duration::ZERO))?;
        }
        if !self.announce_sleep() {
            // A ring could be lost, so the caller must check repeatedly.
            return Ok(false);
        }
        self.armed = true;
        if self.look_everywhere() != LaneScan::Nothing || self.departures() != departures {
            self.disarm();
            return Ok(false);
        }
        self.wait_for_what_lanes_lack();
        Ok(true)
    }

    /// Returns the next message that one pass finds.
    pub(super) fn next(&mut self) -> Result<Option<TakenMessage>> {
        self.check()?;
        self.acknowledge_own();
        self.since_service += 1;
        self.taken = self.next_of_all();
        Ok(self.taken)
    }

    #[inline(never)]
    fn next_of_all(&mut self) -> Option<TakenMessage> {
        if self.lanes.count(0) {
            self.look_at_clock();
        }
        if self.since_service > SERVICE_AFTER {
            // The error is not returned here: the next call that waits returns it.
            let _ = self.service(Some(Duration::ZERO));
        }
        if let Some(taken) = self.next_of_scan() {
            return Some(taken);
        }
        let found = self.lanes.pass();
        self.in_order(found)
    }

    /// Reads the clock between two turns. If enough time has passed, makes a service of the
    /// connections due, and wakes the sender whose turn it was if that sender waits for space.
    #[cold]
    fn look_at_clock(&mut self) {
        if self.lanes.pace.look(Instant::now()) {
            self.lanes.notify_if_waiting();
            self.since_service = SERVICE_AFTER + 1;
        }
    }

    /// Makes the check that precedes each sleep: checks every lane, through as many empty chunks as
    /// an honest sender leaves.
    pub(super) fn look_everywhere(&mut self) -> LaneScan<TakenMessage> {
        if let Some(taken) = self.next_of_scan() {
            return LaneScan::Message(taken);
        }
        for _ in 0..MOST_CHUNKS {
            let found = self.lanes.sweep();
            match found {
                LaneScan::Again => {}
                LaneScan::Nothing => return found,
                LaneScan::Message(taken) => {
                    return self.in_order(Some(taken)).map_or(LaneScan::Again, LaneScan::Message);
                }
            }
        }
        LaneScan::Again
    }

    /// Returns `true` if the mailbox has no message, and no other work is due. This is the first
    /// check of `try_recv`, because a program that polls finds nothing most often.
    ///
    /// Public for the C binding, like `recv_at_once`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn is_vain(&mut self) -> bool {
        self.taken.is_none()
            && !self.armed
            && !self.guard.is_forked()
            && self.since_service <= SERVICE_AFTER
            && self.lanes.is_vain()
    }

    /// Returns the next message, if any. Enters the kernel first if a service of the connections is
    /// due: if no sender is connected, if the program has waited on the descriptor, or at the first
    /// reading of the clock after [`super::poll_interval::MOMENT`]. The clock is read every 64th
    /// call, or more often if the program calls rarely.
    #[inline]
    pub(super) fn next_or_service(&mut self) -> Result<Option<TakenMessage>> {
        self.check()?;
        self.disarm();
        self.acknowledge_own();
        if self.is_vain() { Ok(None) } else { self.service_if_due() }
    }

    #[inline(never)]
    fn service_if_due(&mut self) -> Result<Option<TakenMessage>> {
        if self.lanes.count(1) {
            self.look_at_clock();
        }
        if self.lanes.len() == 0 || self.since_service > SERVICE_AFTER {
            self.service(Some(Duration::ZERO))?;
        }
        self.taken = self.look_everywhere().message();
        Ok(self.taken)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn recv_slowly(&mut self, deadline: Option<Instant>) -> Result<Message<'_>> {
        let taken = self.wait(deadline)?;
        Ok(self.hand_out(taken))
    }

    /// Blocks until a message arrives, and returns it.
    #[inline]
    pub(super) fn wait(&mut self, deadline: Option<Instant>) -> Result<TakenMessage> {
        self.check()?;
        self.disarm();
        if self.is_woken() {
            self.acknowledge_own();
            return Err(Error::Woken);
        }
        match self.next()? {
            Some(taken) => Ok(taken),
            None => self.wait_longer(deadline),
        }
    }

    #[cold]
    #[inline(never)]
    fn wait_longer(&mut self, deadline: Option<Instant>) -> Result<TakenMessage> {
        let began = Instant::now();
        let polling = if deadline.is_some_and(|at| began >= at) {
            Polling::None
        } else {
            self.spin.begin(began)
        };
        // Only the poll before the first sleep counts: the others follow events without messages.
        let (mut now, mut has_polled) = (began, polling == Polling::None);
        if self.lanes.pace.is_due(now) {
            self.since_service = SERVICE_AFTER + 1;
        }
        loop {
            if self.is_woken() {
                return Err(Error::Woken);
            }
            let departures = self.departures();
            if self.has_no_senders() {
                return Err(Error::NoSenders);
            }
            self.lanes.pace.waited(now);
            if polling != Polling::None
                && let Some(taken) = self.poll(self.lanes.passes_of(CLOCK_AFTER))
            {
                if !has_polled {
                    self.spin.note(began, true);
                }
                return Ok(taken);
            }
            now = Instant::now();
            let is_late = deadline.is_some_and(|at| now >= at);
            if (is_late || polling.is_over(now)) && !has_polled {
                self.spin.note(began, false);
                has_polled = true;
            }
            if is_late {
                self.service(Some(Duration::ZERO))?;
                self.taken = self.look_everywhere().message();
                let is_over = self.taken.is_none() && self.has_no_senders();
                return self.taken.ok_or(if is_over { Error::NoSenders } else { Error::TimedOut });
            }
            if polling.is_over(now)
                && let Some(taken) = self.sleep(deadline, departures)?
            {
                return Ok(taken);
            }
            if self.since_service > SERVICE_AFTER {
                self.service(Some(Duration::ZERO))?;
            }
        }
    }

    /// Makes up to `passes` passes, until one finds a message.
    #[inline]
    fn poll(&mut self, passes: u32) -> Option<TakenMessage> {
        for _ in 0..passes {
            self.lanes.wait_for_turn();
            let found = self.lanes.pass();
            self.taken = self.in_order(found);
            if self.taken.is_some() {
                return self.taken;
            }
        }
        self.since_service += passes;
        None
    }

    /// Sleeps until an event, or the deadline. Returns a message if it found one. Does not sleep if
    /// a lane was removed since the caller counted the `departures`.
    fn sleep(
        &mut self,
        deadline: Option<Instant>,
        departures: u64,
    ) -> Result<Option<TakenMessage>> {
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let nudge = self.nudge();
        let unsure = (!self.announce_sleep()).then_some(UNSURE_SLEEP);
        let timeout = [deadline.map(left), nudge, unsure].into_iter().flatten().min();
        let found = self.look_everywhere();
        let happened = match found {
            LaneScan::Message(_) => {
                self.desk.sleeping().store(0, Ordering::Relaxed);
                Ok(())
            }
            // It may have been the last one, whose end the set reports no more.
            LaneScan::Nothing if self.departures() != departures => {
                self.desk.sleeping().store(0, Ordering::Relaxed);
                return Ok(None);
            }
            LaneScan::Again => self.service(Some(Duration::ZERO)),
            LaneScan::Nothing => {
                self.wait_for_what_lanes_lack();
                self.service(timeout)
            }
        };
        self.taken = found.message();
        let interrupted = happened == Err(Error::Interrupted);
        if !interrupted {
            happened?;
        }
        self.lanes.pace.waited(Instant::now());
        if self.taken.is_none() {
            self.taken = self.look_everywhere().message();
        }
        if interrupted && self.options.interruptible && self.taken.is_none() {
            return Err(Error::Interrupted);
        }
        Ok(self.taken)
    }

    /// Announces that the receiver is about to sleep. Then, for every sender, either the sender
    /// sees the announcement, or the caller's next check of the lanes, which must follow, sees the
    /// sender's message. Returns `false` if the kernel no longer allows the barrier that ensures
    /// this.
    pub(super) fn announce_sleep(&mut self) -> bool {
        self.desk.sleeping().store(self.door.announce(), Ordering::Relaxed);
        // SYNC doorbell: pairs with the barrier between header store and `sleeping` load in
        // `Sender`. In symmetric mode, both sides execute a full fence between their store and
        // their load, so at least one load sees the other side's store. In asymmetric mode, `heavy`
        // executes a full fence between the same two instructions of every running sender; a sender
        // that is not running executed a fence when it was switched out.
        fence(Ordering::SeqCst);
        !self.lanes.any_asymmetric() || membarrier::heavy()
    }

    /// Reverts [`Mailbox::arm`], after which a service of the connections is due. A forked child
    /// that drops its parent's pending future also calls `disarm`, which does nothing in the child,
    /// where the page is not mapped.
    pub(super) fn disarm(&mut self) {
        if self.armed && self.check().is_ok() {
            self.desk.sleeping().store(0, Ordering::Relaxed);
            self.armed = false;
            self.since_service = SERVICE_AFTER + 1;
        }
    }
}

/// The descriptor is readable when the mailbox has something to do: a message has arrived, or a
/// sender is connecting or has ended. Use it with `poll`, `epoll` or a runtime.
///
/// Call [`Mailbox::arm`] before each wait: senders notify only a mailbox that is armed or blocked
/// in a receiving call. See [`Mailbox::arm`] for an example. If the descriptor is registered
/// edge-triggered, also `poll` it once after [`Mailbox::arm`] has returned `true`: each call
/// handles a bounded number of events, and those that are left cause no new edge.
impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.door.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A timeout that is longer than a poll.
    const TIMEOUT: Duration = Duration::from_millis(1);

    #[test]
    fn receiver_that_polls_in_vain_soon_sleeps_at_once() {
        let mut mailbox = Mailbox::unbound().expect("a mailbox");
        for _ in 0..5 {
            assert_eq!(mailbox.recv_timeout(TIMEOUT).err(), Some(Error::TimedOut));
        }
        assert_eq!(mailbox.spin.begin(Instant::now()), Polling::None);
    }
}

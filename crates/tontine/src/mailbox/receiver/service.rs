//! The tasks of a [`Mailbox`] besides receiving: accepting connections, detecting the ends of
//! senders, and requesting memory back from idle lanes. No thread performs these tasks: the
//! receiving calls do.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::Mailbox;
use super::inbound::InboundLane;
use super::listener::{EventSource, GENERATION_MASK, same_generation};
use super::message::SenderId;
use super::waker::Waker;
use crate::error::{Peer, Result};
use crate::lane::reader::ProtocolError;
use crate::sync::Ordering;
use crate::sys::doorbell;

/// Number of waits from one drain of a doorbell to the next. A sender rings once per wait, and at
/// most one ring after a drain is late, for an earlier wait. So the wait that takes the event of
/// the fifth ring after a drain drains again, and five rings fit into the smallest queue that a
/// system administrator can set (`net.core.wmem_default`).
const UNDRAINED_WAITS: u64 = 4;

/// Maximum capacity in bytes of the copy buffer that an idle mailbox keeps.
const LONGEST_KEPT: usize = 64 << 10;

impl Mailbox {
    /// Removes and returns the senders, since the last call, whose processes died, oldest first: at
    /// most the newest 1,024.
    ///
    /// A death is reported once everything that the sender sent is read, and wakes a caller that
    /// waits on the descriptor. A process dies if it ends without dropping its [`Sender`], or
    /// executes another program; a sender that was dropped is not reported.
    ///
    /// # Examples
    /// ```
    /// # let mut mailbox = tontine::mailbox::Mailbox::unbound()?;
    /// for (sender, peer) in mailbox.take_deaths() {
    ///     eprintln!("lane {sender}: {peer} died");
    /// }
    /// # Ok::<(), tontine::Error>(())
    /// ```
    ///
    /// [`Sender`]: crate::mailbox::Sender
    #[must_use = "deaths that were taken are not returned again"]
    pub fn take_deaths(&mut self) -> Vec<(SenderId, Peer)> {
        self.lanes.take_deaths()
    }

    /// Returns the time until the next task that no descriptor reports.
    pub(super) fn nudge(&mut self) -> Option<Duration> {
        let expiry = self.door.next_expiry(self.options.handshake_timeout);
        [self.shrink_lanes(), expiry].into_iter().flatten().min()
    }

    /// Requests the large chunks of idle lanes back, and checks the liveness words of all senders.
    /// Returns the time until the next check, if one is needed.
    pub(super) fn shrink_lanes(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let after = self.options.shrink_after;
        let before = now.checked_sub(after)?;
        let mut next = self.give_up_copy(now, before).then_some(after);
        let (mut wanting, mut is_owed) = (Vec::new(), false);
        let wanted = self.lanes.wanted.then(|| self.share());
        for lane in self.lanes.all() {
            next = [next, lane.request_back(now, after, wanted)].into_iter().flatten().min();
            if lane.wants > 0 {
                wanting.push(lane.id.slot);
            }
            is_owed |= lane.owed > 0;
            // Nothing else reports a sender that called `exec` while a forked child has its
            // connection. So the caller must look at the lane again instead of sleeping.
            if !lane.ended && !lane.watch.is_alive() {
                lane.ended = true;
                next = Some(Duration::ZERO);
            }
        }
        self.lanes.wanted = !wanting.is_empty() || is_owed;
        wanting.into_iter().for_each(|slot| self.lend(slot));
        [next, self.lanes.wanted.then_some(after)].into_iter().flatten().min()
    }

    /// Frees the copy buffer if it is long and has been unused since `before`. Returns `true` if a
    /// later call may free it.
    fn give_up_copy(&mut self, now: Instant, before: Instant) -> bool {
        if self.copied.capacity() <= LONGEST_KEPT {
            return false;
        }
        // The caller has made another call, so it no longer borrows the copy. The buffer is emptied
        // so that a later call sees whether it was used again.
        if !self.copied.is_empty() {
            self.copied.clear();
            self.copy_idle_since = Some(now);
        } else if self.copy_idle_since.is_some_and(|since| since <= before) {
            self.copied = Vec::new();
            return false;
        }
        true
    }

    /// Processes connections, hang-ups and ends; waits up to `timeout` for them.
    pub(super) fn service(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.since_service = 0;
        let events = self.door.events(timeout);
        // Precedes the drains: a sender that rings after a drain then finds that the wait is over.
        self.desk.sleeping().store(0, Ordering::Relaxed);
        let mut again = false;
        if let Some(lost) = self.door.look_at_names() {
            self.lanes.fault(lost);
        }
        for about in events? {
            match about {
                EventSource::Listener => self.accept()?,
                EventSource::PendingConnection(number) => self.answer(number),
                EventSource::Timer => again = true,
                EventSource::Waker => self.waker.iter().for_each(Waker::drain),
                EventSource::Doorbell(slot, generation) => self.hear_ring(slot, generation),
                EventSource::Socket(slot, generation) => self.hear(slot, generation),
                EventSource::Process(slot, generation) => {
                    if let Some(lane) = self.of_lane(slot, generation) {
                        lane.ended = true;
                        if let Some(process) = lane.pidfd.take() {
                            self.door.unwatch(process.as_fd());
                        }
                    }
                }
            }
        }
        for lane in self.lanes.take_departed() {
            let process = lane.pidfd.as_ref().map(AsFd::as_fd);
            let descriptors = [lane.socket.as_fd(), lane.doorbell.as_fd()];
            // The descriptors are removed explicitly: a forked child's copies would keep them in
            // the set.
            descriptors.into_iter().chain(process).for_each(|one| self.door.unwatch(one));
            // The lane's resources may be the ones that deferred work lacks.
            again |= self.door.is_waiting();
        }
        for late in self.door.expire(self.options.handshake_timeout) {
            if let Some(lack) = &late.lack {
                self.refuse(&late, lack);
            }
            again |= self.door.is_waiting();
        }
        if again {
            self.try_again()?;
        }
        self.lanes.settle();
        if timeout == Some(Duration::ZERO) {
            self.shrink_lanes();
        }
        Ok(())
    }

    /// Retries the work that was deferred.
    fn try_again(&mut self) -> Result<()> {
        self.door.stop_timer();
        let mut is_exhausted = false;
        for id in self.lanes.short_ones() {
            let is_owed = |lane: &mut InboundLane| lane.owed > 0;
            if !is_exhausted || !self.lanes.at(id.slot).is_some_and(is_owed) {
                self.hear(id.slot, id.generation & GENERATION_MASK);
                is_exhausted |= self.lanes.at(id.slot).is_some_and(is_owed);
            }
        }
        for number in self.door.deferred_numbers() {
            self.answer(number);
        }
        if self.door.is_paused() { self.accept() } else { Ok(()) }
    }

    /// Makes the descriptor become readable when it is time to retry a lane for which descriptors
    /// or memory are short.
    pub(super) fn wait_for_what_lanes_lack(&mut self) {
        if self.lanes.all().any(|lane| lane.is_short()) {
            self.door.try_later();
        }
    }

    /// Returns the lane that an event concerns, and marks it as busy.
    pub(super) fn of_lane(&mut self, slot: u32, event: u32) -> Option<&mut InboundLane> {
        self.lanes.wake(slot);
        self.lanes.at(slot).filter(|lane| same_generation(event, lane.id.generation))
    }

    /// Marks the lane of a ring as busy. Drains its doorbell only after several waits, because the
    /// set reports each ring as an event of its own, and an honest sender rings once per wait.
    fn hear_ring(&mut self, slot: u32, generation: u32) {
        let wait = self.door.wait_number();
        let Some(lane) = self.of_lane(slot, generation) else { return };
        if wait - lane.drained_at < UNDRAINED_WAITS {
            return;
        }
        lane.drained_at = wait;
        if doorbell::drain(&lane.doorbell) == doorbell::BellState::Noise
            && let Some(lane) = self.lanes.at(slot)
        {
            // A peer that sends noise could fill the queue with it. Its content is closed with the
            // lane.
            self.door.unwatch(lane.doorbell.as_fd());
        }
    }

    /// Processes a lane's control messages.
    pub(super) fn hear(&mut self, slot: u32, generation: u32) {
        if self.of_lane(slot, generation).is_none() {
            return;
        }
        if let Err(broken) = self.read_notes(slot) {
            return self.lanes.remove_broken(slot, broken);
        }
        let Some(lane) = self.lanes.at(slot) else { return };
        if lane.ended && !lane.is_short() {
            // Otherwise the set would report the hang-up until the lane is drained.
            self.door.unwatch(lane.socket.as_fd());
            return;
        }
        if lane.is_short() != lane.put_off {
            lane.put_off = !lane.put_off;
            let about = EventSource::Socket(slot, generation);
            // This call needs no memory, because the descriptor is already in the set.
            let _ = if lane.put_off {
                self.door.defer(lane.socket.as_fd(), about)
            } else {
                self.door.watch(lane.socket.as_fd(), about)
            };
        }
        if lane.put_off {
            self.door.try_later();
        }
        if lane.wants > 0 {
            self.lend(slot);
        }
    }

    /// Receives a lane's control messages, as far as descriptors, memory and grants allow.
    ///
    /// # Errors
    /// The sender broke the protocol.
    fn read_notes(&mut self, slot: u32) -> Result<(), ProtocolError> {
        loop {
            let Some(lane) = self.lanes.at(slot) else { return Ok(()) };
            lane.read_notes()?;
            let is_relieved = lane.lack().is_some_and(|lack| self.options.relieves(lack));
            let is_owed = lane.owed > 0;
            if !is_relieved && (!is_owed || !self.lend_owed(slot)) {
                return Ok(());
            }
        }
    }

    /// Grants a lane the memory of a chunk that was passed without a grant, even if it exceeds the
    /// caps. Returns `false` if the excess of all lanes would be too large.
    fn lend_owed(&mut self, slot: u32) -> bool {
        let (left, reserve) = (self.memory_left(), self.reserve());
        let Some(lane) = self.lanes.at(slot) else { return false };
        let more = lane.owed - lane.granted;
        if more > left.total.saturating_sub(reserve) {
            return false;
        }
        if more > left.regular.saturating_sub(reserve) {
            lane.excess += more;
        }
        lane.grant(lane.owed);
        true
    }

    /// Grants a lane's request in full if enough memory is left. A partial grant would be useless
    /// to the lane and unavailable to others. Otherwise the request waits until other lanes have
    /// returned memory.
    fn lend(&mut self, slot: u32) {
        let left = self.memory_left().regular.saturating_sub(self.reserve());
        let lane_cap = self.options.lane_cap;
        let Some(lane) = self.lanes.at(slot) else { return };
        let more = lane.wants.min(lane_cap).saturating_sub(lane.granted);
        if more > left {
            return;
        }
        lane.wants = 0;
        if more > 0 {
            self.lanes.grant(slot, more);
        }
    }
}

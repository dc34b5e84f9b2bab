//! All lanes of a mailbox, and the order in which they are read: [`Lanes`].
//!
//! Each pass checks every busy lane and a few idle ones, so that a thousand idle senders hardly
//! delay the messages of a busy sender. A lane with a message becomes busy; a lane that had no
//! message between two calls of [`Lanes::settle`] becomes idle. Neighbours: [`super::inbound`]
//! defines one lane, [`super::poll_interval`] sets the length of a turn.

use std::time::Duration;

use super::Mailbox;
use super::inbound::{InboundLane, LaneScan};
use super::message::SenderId;
use super::poll_interval::PollInterval;
use crate::error::{Error, Peer, Result};
use crate::lane::reader::ProtocolError;

/// Maximum number of idle lanes checked per pass.
const IDLE_A_PASS: usize = 2;

/// Maximum number of passes that find a message in a busy lane before idle lanes are checked.
const BUSY_PASSES: u32 = 16;

/// Number of checks of the only busy lane before the others are checked.
const LOOKS_AT_ONE: u32 = 64;

/// Maximum number of errors kept until [`super::Mailbox::take_errors`] is called.
const MOST_FAULTS: usize = 64;

/// Maximum number of deaths kept until [`super::Mailbox::take_deaths`] is called.
const MAX_DEATHS: usize = 1024;

// What each message needs lies in the first three cache lines of a lane.
const _: () = assert!(std::mem::offset_of!(InboundLane, passed) <= 192);

/// All lanes of a mailbox.
#[derive(Default)]
pub(super) struct Lanes {
    slots: Vec<LaneSlot>,
    free: Vec<u32>,
    busy: Vec<u32>,
    idle: Vec<u32>,
    /// Slot of the lane whose turn it is.
    turn: u32,
    /// Number of messages left in that lane's turn.
    left: u32,
    /// Value of `left` when messages were last counted.
    counted: u32,
    pub(super) pace: PollInterval,
    next_busy: usize,
    next_idle: usize,
    next_slot: usize,
    /// Passes since idle lanes were last checked.
    since_idle: u32,
    /// Number of lanes in symmetric fence mode.
    symmetric: usize,
    /// `true` if a lane had requested more memory than was left at the last check of all lanes.
    pub(super) wanted: bool,
    /// Removed lanes that are still in the epoll set.
    departed: Vec<InboundLane>,
    /// Number of lanes removed so far.
    pub(super) departures: u64,
    faults: Vec<Error>,
    deaths: Vec<(SenderId, Peer)>,
}

#[derive(Default)]
struct LaneSlot {
    generation: u32,
    lane: Option<Box<InboundLane>>,
}

/// A message that was found and is not acknowledged yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TakenMessage {
    pub(super) slot: u32,
    pub(super) length: usize,
}

impl Lanes {
    /// Returns the identifier of the next lane to be added.
    pub(super) fn next_id(&self) -> SenderId {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(slot as usize).map_or(0, |slot| slot.generation);
        SenderId { slot, generation }
    }

    /// Adds a lane whose identifier is [`Lanes::next_id`].
    pub(super) fn add(&mut self, lane: InboundLane) {
        let slot = lane.id.slot as usize;
        if self.free.pop().is_none() {
            self.slots.push(LaneSlot::default());
        }
        self.symmetric += usize::from(lane.is_symmetric());
        self.slots[slot].lane = Some(Box::new(lane));
        self.busy.push(slot as u32);
    }

    /// Returns the lane with this identifier, unless it was removed.
    pub(super) fn named(&mut self, id: SenderId) -> Option<&mut InboundLane> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.lane.as_deref_mut() } else { None }
    }

    #[inline(always)]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut InboundLane> {
        self.slots.get_mut(slot as usize)?.lane.as_deref_mut()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut InboundLane> {
        self.slots.iter_mut().filter_map(|slot| slot.lane.as_deref_mut())
    }

    pub(super) fn len(&self) -> usize {
        self.busy.len() + self.idle.len()
    }

    /// Returns the lanes with a control message that could not be received for lack of descriptors,
    /// memory or a grant.
    pub(super) fn short_ones(&mut self) -> Vec<SenderId> {
        self.all().filter(|lane| lane.is_short() || lane.put_off).map(|lane| lane.id).collect()
    }

    /// Returns `true` if a lane relies on this process to execute the fence for both ends.
    pub(super) fn any_asymmetric(&self) -> bool {
        self.symmetric < self.len()
    }

    /// Removes and returns the errors for which lanes were closed, oldest first.
    pub(super) fn take_faults(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.faults)
    }

    /// Keeps an error for [`Lanes::take_faults`].
    pub(super) fn fault(&mut self, error: Error) {
        if self.faults.len() == MOST_FAULTS {
            self.faults.remove(0);
        }
        self.faults.push(error);
    }

    /// Removes and returns the senders whose lanes ended by a death, oldest first.
    pub(super) fn take_deaths(&mut self) -> Vec<(SenderId, Peer)> {
        std::mem::take(&mut self.deaths)
    }

    /// Keeps a death for [`Lanes::take_deaths`].
    fn note_death(&mut self, slot: u32) {
        if let Some(lane) = self.at(slot)
            && lane.died()
        {
            let death = (lane.id, lane.peer);
            if self.deaths.len() == MAX_DEATHS {
                self.deaths.remove(0);
            }
            self.deaths.push(death);
        }
    }

    /// Acknowledges the `taken` message, and returns the next one of the same lane, whose turn it
    /// is, while the turn lasts. If there is no message, checks up to `looks` more times. A check
    /// that finds nothing does not shorten the turn.
    #[inline(always)]
    pub(super) fn in_turn(
        &mut self,
        taken: &mut Option<TakenMessage>,
        looks: u32,
    ) -> Option<(&InboundLane, usize)> {
        let slot = self.turn;
        // A check of all lanes may have passed the turn on. The slow path acknowledges then.
        if taken.is_some_and(|taken| taken.slot != slot) {
            return None;
        }
        let lane = self.slots.get_mut(slot as usize)?.lane.as_deref_mut()?;
        if let Some(taken) = taken.take() {
            lane.ack(taken.length);
        }
        let left = self.left.checked_sub(1)?;
        let length = lane.message(looks)?;
        self.left = left;
        *taken = Some(TakenMessage { slot, length });
        Some((lane, length))
    }

    /// Returns the lane whose turn it is, and the number of messages of its turn, at most `most`,
    /// that the caller may take.
    #[inline(always)]
    pub(super) fn whole_turn(&mut self, most: usize) -> Option<(&mut InboundLane, usize)> {
        let taken = self.left.min(u32::try_from(most).unwrap_or(u32::MAX));
        self.left -= taken;
        let lane = self.slots.get_mut(self.turn as usize)?.lane.as_deref_mut()?;
        Some((lane, taken as usize))
    }

    /// Passes the turn to a lane for up to `most` messages, the first of which was just found. All
    /// messages that the program was given are acknowledged or put back.
    pub(super) fn pass_turn(&mut self, slot: u32, most: u32) {
        if let Some(lane) = self.at(slot) {
            lane.begin_turn();
        }
        let before = std::mem::replace(&mut self.turn, slot);
        if before != slot
            && let Some(lane) = self.at(before)
        {
            lane.end_turn();
        }
        self.counted = most;
        self.left = most - 1;
    }

    /// Ends the turn, so that the next message is found by a check of all lanes.
    pub(super) fn end_turn(&mut self) {
        self.counted -= self.left;
        self.left = 0;
    }

    /// Records that the program has put a message back.
    pub(super) fn requeue(&mut self, taken: TakenMessage) {
        if let Some(lane) = self.at(taken.slot) {
            lane.requeue();
        }
        self.end_turn();
    }

    /// Records, after the program's function has panicked, that it had the next message of the lane
    /// whose turn it is.
    pub(super) fn requeue_turn(&mut self) {
        self.requeue(TakenMessage { slot: self.turn, length: 0 });
    }

    /// Returns `true` if the only lane has nothing, and it is not yet time to read the clock.
    #[inline(always)]
    pub(super) fn is_vain(&mut self) -> bool {
        self.len() == 1 && self.at(self.turn).is_some_and(|lane| lane.is_quiet()) && !self.count(1)
    }

    /// Returns the number of checks of the lane whose turn it is, which usually sends next, before
    /// all lanes are checked.
    #[inline(always)]
    pub(super) fn looks(&self) -> u32 {
        if self.busy.len() > 1 { 1 } else { LOOKS_AT_ONE }
    }

    /// Returns the number of passes, at least 1, that make about this number of checks of a lane.
    pub(super) fn passes_of(&self, checks: u32) -> u32 {
        (checks / self.looks().max(self.busy.len() as u32)).max(1)
    }

    /// Spins for a short time on the lane whose turn it is.
    #[inline(always)]
    pub(super) fn wait_for_turn(&mut self) {
        let looks = self.looks();
        let Some(lane) = self.at(self.turn) else { return std::hint::spin_loop() };
        for _ in 0..looks {
            if !lane.is_empty() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Counts the messages of the turn, and a number of `vain` calls that found no message. Returns
    /// `true` if it is time to read the clock.
    #[inline]
    pub(super) fn count(&mut self, vain: u32) -> bool {
        let yielded = self.counted - self.left;
        self.counted = self.left;
        self.pace.count(yielded + vain)
    }

    /// Passes over the busy lanes and a few idle ones. May miss a message, unlike [`Lanes::sweep`].
    #[inline]
    pub(super) fn pass(&mut self) -> Option<TakenMessage> {
        // Bounds how long busy lanes that always have a message can delay the idle ones.
        let idle_first = self.left == 0 || self.since_idle >= BUSY_PASSES;
        if idle_first && let Some(taken) = self.pass_idle(IDLE_A_PASS) {
            return Some(taken);
        }
        self.since_idle += 1;
        if let Some(taken) = self.pass_busy() {
            return Some(taken);
        }
        if idle_first { None } else { self.pass_idle(IDLE_A_PASS) }
    }

    /// Checks every lane once, until one has a message. This check precedes each sleep.
    pub(super) fn sweep(&mut self) -> LaneScan<TakenMessage> {
        self.since_idle = 0;
        let mut found = LaneScan::Nothing;
        // Checks the lanes in the order of their slots, which is stable: a check may move a lane
        // from one list to another, or remove the lane.
        for _ in 0..self.slots.len() {
            self.next_slot =
                if self.next_slot + 1 < self.slots.len() { self.next_slot + 1 } else { 0 };
            let slot = self.next_slot as u32;
            match self.look_at(slot) {
                LaneScan::Message(taken) => {
                    self.wake(slot);
                    return LaneScan::Message(taken);
                }
                LaneScan::Again => found = LaneScan::Again,
                LaneScan::Nothing => {}
            }
        }
        found
    }

    #[inline]
    fn pass_busy(&mut self) -> Option<TakenMessage> {
        for _ in 0..self.busy.len() {
            self.next_busy =
                if self.next_busy + 1 < self.busy.len() { self.next_busy + 1 } else { 0 };
            let Some(&slot) = self.busy.get(self.next_busy) else { break };
            if let LaneScan::Message(taken) = self.look_at(slot) {
                return Some(taken);
            }
        }
        None
    }

    /// Checks up to `most` idle lanes; a lane with a message becomes busy.
    #[inline]
    fn pass_idle(&mut self, most: usize) -> Option<TakenMessage> {
        self.since_idle = 0;
        for _ in 0..self.idle.len().min(most) {
            self.next_idle =
                if self.next_idle + 1 < self.idle.len() { self.next_idle + 1 } else { 0 };
            let Some(&slot) = self.idle.get(self.next_idle) else { break };
            if self.at(slot).is_some_and(|lane| !lane.is_empty() || lane.ended) {
                self.wake(slot);
                if let LaneScan::Message(taken) = self.look_at(slot) {
                    return Some(taken);
                }
            }
        }
        None
    }

    #[inline]
    fn look_at(&mut self, slot: u32) -> LaneScan<TakenMessage> {
        let Some(lane) = self.at(slot) else { return LaneScan::Nothing };
        match lane.look() {
            Ok(LaneScan::Message(length)) => {
                // The fast path does not check whether an earlier owner may have had a message.
                let most = if lane.redelivered() > 0 { 1 } else { self.pace.turn() };
                self.pass_turn(slot, most);
                LaneScan::Message(TakenMessage { slot, length })
            }
            // An ended sender writes nothing more, so no message follows the last one found.
            Ok(LaneScan::Nothing) if lane.ended && lane.is_empty() => {
                self.note_death(slot);
                self.remove(slot);
                LaneScan::Nothing
            }
            Ok(LaneScan::Nothing) => LaneScan::Nothing,
            Ok(LaneScan::Again) => LaneScan::Again,
            Err(broken) => {
                self.remove_broken(slot, broken);
                LaneScan::Nothing
            }
        }
    }

    /// Removes a lane whose sender broke the protocol, and keeps the error.
    #[cold]
    pub(super) fn remove_broken(&mut self, slot: u32, broken: ProtocolError) {
        let Some(lane) = self.at(slot) else { return };
        lane.end_broken();
        let peer = lane.peer;
        self.fault(Error::Protocol { peer, what: broken.0 });
        self.remove(slot);
    }

    /// Wakes the sender whose turn it is, if it waits and the position has advanced.
    pub(super) fn notify_if_waiting(&mut self) {
        if let Some(lane) = self.at(self.turn) {
            lane.notify_if_waiting();
        }
    }

    /// Marks a lane as busy.
    pub(super) fn wake(&mut self, slot: u32) {
        if let Some(place) = self.idle.iter().position(|&other| other == slot) {
            self.idle.swap_remove(place);
            self.busy.push(slot);
        }
    }

    /// Marks as idle each lane that had no message since the last call.
    pub(super) fn settle(&mut self) {
        let mut place = 0;
        while place < self.busy.len() {
            let slot = self.busy[place];
            let idle = self.at(slot).is_none_or(|lane| {
                let idle = lane.found == lane.found_before && !lane.ended;
                lane.found_before = lane.found;
                idle
            });
            // A single lane stays busy, since checking it in each pass costs nothing.
            if idle && self.len() > 1 {
                self.busy.swap_remove(place);
                self.idle.push(slot);
            } else {
                place += 1;
            }
        }
    }

    /// Returns the total chunk size, in bytes, that all lanes together may have.
    pub(super) fn granted(&self) -> u64 {
        self.slots.iter().filter_map(|slot| slot.lane.as_ref()).map(|lane| lane.granted).sum()
    }

    /// Returns the parts of [`Lanes::granted`]: what was granted in excess of the caps; the rest;
    /// and of this rest, what lanes may need: lanes that are empty and do not return memory on
    /// request do not count.
    pub(super) fn granted_parts(&self) -> (u64, u64, u64) {
        let lanes = self.slots.iter().filter_map(|slot| slot.lane.as_ref());
        lanes.fold((0, 0, 0), |(excess, regular, needed), lane| {
            let part = lane.granted - lane.excess;
            let needs = if lane.is_unresponsive() { 0 } else { part };
            (excess + lane.excess, regular + part, needed + needs)
        })
    }

    /// Grants a lane `more` bytes.
    pub(super) fn grant(&mut self, slot: u32, more: u64) {
        if let Some(lane) = self.at(slot) {
            lane.grant(lane.granted + more);
        }
    }

    /// Returns the lanes that were removed since the last call.
    pub(super) fn take_departed(&mut self) -> Vec<InboundLane> {
        std::mem::take(&mut self.departed)
    }

    /// Removes a lane.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(gone) = self.slots.get_mut(slot as usize) else { return };
        let Some(mut lane) = gone.lane.take() else { return };
        if self.turn == slot {
            // Another lane may get the slot.
            self.counted -= self.left;
            self.left = 0;
        }
        // A live sender would otherwise fill a lane that no process reads.
        lane.close();
        gone.generation = gone.generation.wrapping_add(1);
        self.symmetric -= usize::from(lane.is_symmetric());
        self.departed.push(*lane);
        self.departures += 1;
        self.busy.retain(|&other| other != slot);
        self.idle.retain(|&other| other != slot);
        self.free.push(slot);
    }
}

/// The lanes and their errors.
impl Mailbox {
    /// Returns the number of connected senders.
    ///
    /// A sender is counted from the receiving call that accepts it until it has ended and
    /// everything that it sent is read.
    pub fn sender_count(&self) -> usize {
        self.lanes.len()
    }

    /// Accepts the senders that wait, and returns the number of messages that were sent and not
    /// received, as far as their chunks were. Public for the Python binding.
    #[doc(hidden)]
    pub fn unread_count(&mut self) -> Result<usize> {
        self.check()?;
        self.service(Some(Duration::ZERO))?;
        self.accept_waiting();
        let count = |lane: &mut InboundLane| lane.reader.count_messages(lane.passed.iter());
        let unread: usize = self.lanes.all().map(count).sum();
        Ok(unread.saturating_sub(self.taken.is_some().into()))
    }

    /// Returns `true` if the mailbox reports that it has no senders, and it has had some: every
    /// lane was removed, and no process is connecting.
    #[inline]
    pub(super) fn has_no_senders(&mut self) -> bool {
        self.options.reports_no_senders
            && self.lanes.len() == 0
            && self.lanes.departures > 0
            && self.finds_no_sender()
    }

    /// Accepts every sender that waits. Returns `true` if there is none.
    #[cold]
    fn finds_no_sender(&mut self) -> bool {
        // A sender may have connected, sent messages and ended since the last call.
        self.accept_waiting();
        self.lanes.len() == 0 && !self.door.is_connecting()
    }

    /// Returns the error of a call that does not block and has found no message.
    pub(super) fn no_message(&mut self) -> Error {
        if self.has_no_senders() { Error::NoSenders } else { Error::WouldBlock }
    }

    /// Returns the number of lanes that have ended since the mailbox was opened.
    pub(crate) fn departures(&self) -> u64 {
        self.lanes.departures
    }

    /// Returns `true` if every lane is read to its end: no lane has a message, and no lane is stuck
    /// because this process lacks a resource.
    pub(crate) fn is_read_out(&mut self) -> bool {
        // A check of all lanes passes the turn on, and a message that is not acknowledged is
        // unread.
        self.taken.is_none()
            && self.look_everywhere() == LaneScan::Nothing
            && !self.lanes.all().any(|lane| lane.is_short())
    }

    /// Removes and returns the errors, since the last call, of lanes that had to be closed and of
    /// peers that were refused: at most the newest 64, oldest first.
    ///
    /// # Examples
    /// ```
    /// # let mut mailbox = tontine::mailbox::Mailbox::unbound()?;
    /// for error in mailbox.take_errors() {
    ///     eprintln!("{error}"); // names the process
    /// }
    /// # Ok::<(), tontine::Error>(())
    /// ```
    #[must_use = "errors that were taken are not returned again"]
    pub fn take_errors(&mut self) -> Vec<Error> {
        self.lanes.take_faults()
    }

    /// Returns `true` while the process at the other end of a lane lives (one load), or `None` if
    /// the lane is gone.
    pub fn is_alive(&self, sender: SenderId) -> Option<bool> {
        let slot = self.lanes.slots.get(sender.slot as usize)?;
        let lane = slot.lane.as_ref().filter(|lane| lane.id == sender)?;
        Some(lane.watch.is_alive())
    }
}

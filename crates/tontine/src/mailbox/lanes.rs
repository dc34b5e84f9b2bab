//! All lanes of a mailbox, and whose turn it is: [`Lanes`].
//!
//! Busy lanes are looked at in each pass, idle ones a few at a time: a thousand idle senders cost a
//! busy one's messages little. A lane that yields something becomes busy; one that has yielded
//! nothing between two visits of [`Lanes::settle`] becomes idle.

use super::SenderId;
use super::inbound::{Inbound, Look};
use super::pace::Pace;
use crate::error::Error;

/// Idle lanes that are looked at in each pass.
const IDLE_A_PASS: usize = 2;

/// Passes over busy lanes that yield something, before idle ones are looked at all the same.
const BUSY_PASSES: u32 = 16;

/// Looks at the only busy lane before the others get one.
const LOOKS_AT_ONE: u32 = 64;

/// Errors of lanes that are kept until somebody asks.
const MOST_FAULTS: usize = 64;

/// The lanes.
#[derive(Default)]
pub(super) struct Lanes {
    slots: Vec<Slot>,
    free: Vec<u32>,
    busy: Vec<u32>,
    idle: Vec<u32>,
    /// Whose turn it is, and how many messages it may still yield.
    turn: u32,
    left: u32,
    /// `left` when messages were last counted.
    counted: u32,
    pub(super) pace: Pace,
    next_busy: usize,
    next_idle: usize,
    next_slot: usize,
    /// Passes since idle lanes were looked at.
    since_idle: u32,
    symmetric: usize,
    /// Some lane wanted more than there was, when all were last looked at.
    pub(super) wanted: bool,
    /// Lanes that are gone, until somebody has taken them out of the epoll set.
    departed: Vec<Inbound>,
    /// How many there have been.
    pub(super) departures: u64,
    faults: Vec<Error>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    lane: Option<Box<Inbound>>,
}

/// A message that was found and not yet acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) slot: u32,
    pub(super) length: usize,
}

impl Lanes {
    /// The name of the lane that will be added next.
    pub(super) fn next_id(&self) -> SenderId {
        let slot = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(slot as usize).map_or(0, |slot| slot.generation);
        SenderId { slot, generation }
    }

    /// Adds a lane whose name is [`Lanes::next_id`].
    pub(super) fn add(&mut self, lane: Inbound) {
        let slot = lane.id.slot as usize;
        if self.free.pop().is_none() {
            self.slots.push(Slot::default());
        }
        self.symmetric += usize::from(lane.is_symmetric());
        self.slots[slot].lane = Some(Box::new(lane));
        self.busy.push(slot as u32);
    }

    /// The lane of that name, if it still is.
    pub(super) fn named(&mut self, id: SenderId) -> Option<&mut Inbound> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        if slot.generation == id.generation { slot.lane.as_deref_mut() } else { None }
    }

    #[inline(always)]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut Inbound> {
        self.slots.get_mut(slot as usize)?.lane.as_deref_mut()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Inbound> {
        self.slots.iter_mut().filter_map(|slot| slot.lane.as_deref_mut())
    }

    pub(super) fn len(&self) -> usize {
        self.busy.len() + self.idle.len()
    }

    /// Those who have sent something that could not be taken for want of descriptors or memory.
    pub(super) fn short_ones(&mut self) -> Vec<SenderId> {
        self.all().filter(|lane| lane.is_short()).map(|lane| lane.id).collect()
    }

    /// Whether some lane relies on the sleeper's interrupting others.
    pub(super) fn any_asymmetric(&self) -> bool {
        self.symmetric < self.len()
    }

    /// The errors of lanes that were closed for them, the oldest first.
    pub(super) fn take_faults(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.faults)
    }

    pub(super) fn fault(&mut self, error: Error) {
        if self.faults.len() == MOST_FAULTS {
            self.faults.remove(0);
        }
        self.faults.push(error);
    }

    /// The lane whose turn it is, while it lasts.
    #[inline(always)]
    pub(super) fn in_turn(&mut self) -> Option<&mut Inbound> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        self.slots.get_mut(self.turn as usize)?.lane.as_deref_mut()
    }

    /// The lane whose turn it is, and how many messages it may yield: they are taken.
    #[inline(always)]
    pub(super) fn whole_turn(&mut self, most: usize) -> Option<(&mut Inbound, usize)> {
        let taken = self.left.min(u32::try_from(most).unwrap_or(u32::MAX));
        self.left -= taken;
        let lane = self.slots.get_mut(self.turn as usize)?.lane.as_deref_mut()?;
        Some((lane, taken as usize))
    }

    /// Waits a little for the lane that spoke last: it most often speaks next. With several busy
    /// lanes it looks only once.
    #[inline(always)]
    pub(super) fn wait_for_turn(&mut self) {
        let looks = if self.busy.len() > 1 { 1 } else { LOOKS_AT_ONE };
        let Some(lane) = self.at(self.turn) else { return std::hint::spin_loop() };
        for _ in 0..looks {
            if !lane.is_empty() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Counts what the turn has yielded. Returns whether it is time for a look at the clock.
    #[inline]
    pub(super) fn count(&mut self) -> bool {
        let yielded = self.counted - self.left;
        self.counted = self.left;
        self.pace.count(yielded)
    }

    /// One pass: busy lanes, and a few idle ones. It may miss one; [`Lanes::sweep`] does not.
    #[inline]
    pub(super) fn pass(&mut self) -> Option<Taken> {
        // Busy lanes that always have something would keep the idle ones waiting for ever.
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

    /// Looks at every lane once, until one has a message: the look without which nobody sleeps.
    pub(super) fn sweep(&mut self) -> Look<Taken> {
        self.since_idle = 0;
        let mut found = Look::Nothing;
        // Along the slots, which stay where they are: a look may move a lane from list to list, or
        // take it out.
        for _ in 0..self.slots.len() {
            self.next_slot =
                if self.next_slot + 1 < self.slots.len() { self.next_slot + 1 } else { 0 };
            let slot = self.next_slot as u32;
            match self.look_at(slot) {
                Look::Message(taken) => {
                    self.wake(slot);
                    return Look::Message(taken);
                }
                Look::Again => found = Look::Again,
                Look::Nothing => {}
            }
        }
        found
    }

    #[inline]
    fn pass_busy(&mut self) -> Option<Taken> {
        for _ in 0..self.busy.len() {
            self.next_busy =
                if self.next_busy + 1 < self.busy.len() { self.next_busy + 1 } else { 0 };
            let Some(&slot) = self.busy.get(self.next_busy) else { break };
            if let Look::Message(taken) = self.look_at(slot) {
                return Some(taken);
            }
        }
        None
    }

    /// Looks at so many idle lanes; one that has something becomes busy.
    #[inline]
    fn pass_idle(&mut self, most: usize) -> Option<Taken> {
        self.since_idle = 0;
        for _ in 0..self.idle.len().min(most) {
            self.next_idle =
                if self.next_idle + 1 < self.idle.len() { self.next_idle + 1 } else { 0 };
            let Some(&slot) = self.idle.get(self.next_idle) else { break };
            if self.at(slot).is_some_and(|lane| !lane.is_empty() || lane.ended) {
                self.wake(slot);
                if let Look::Message(taken) = self.look_at(slot) {
                    return Some(taken);
                }
            }
        }
        None
    }

    #[inline]
    fn look_at(&mut self, slot: u32) -> Look<Taken> {
        let Some(lane) = self.at(slot) else { return Look::Nothing };
        match lane.look() {
            Ok(Look::Message(length)) => {
                self.turn = slot;
                self.counted = self.pace.turn();
                self.left = self.counted - 1;
                Look::Message(Taken { slot, length })
            }
            // An ended sender writes no more: what `look` did not find will not come.
            Ok(Look::Nothing) if lane.ended && lane.is_empty() => {
                self.remove(slot);
                Look::Nothing
            }
            Ok(Look::Nothing) => Look::Nothing,
            Ok(Look::Again) => Look::Again,
            Err(broken) => {
                let peer = lane.peer;
                self.fault(Error::Protocol { peer, what: broken.0 });
                self.remove(slot);
                Look::Nothing
            }
        }
    }

    /// Tells the sender whose turn it is of room, if it waits for any.
    pub(super) fn tell_if_waiting(&mut self) {
        if let Some(lane) = self.at(self.turn) {
            lane.tell_if_waiting();
        }
    }

    /// Counts a lane among the busy ones.
    pub(super) fn wake(&mut self, slot: u32) {
        if let Some(place) = self.idle.iter().position(|&other| other == slot) {
            self.idle.swap_remove(place);
            self.busy.push(slot);
        }
    }

    /// Lets lanes that yielded nothing since the last visit be idle.
    pub(super) fn settle(&mut self) {
        let mut place = 0;
        while place < self.busy.len() {
            let slot = self.busy[place];
            let idle = self.at(slot).is_none_or(|lane| {
                let idle = lane.found == lane.found_before && !lane.ended;
                lane.found_before = lane.found;
                idle
            });
            // One that is looked at in each pass costs nothing where it is the only one.
            if idle && self.len() > 1 {
                self.busy.swap_remove(place);
                self.idle.push(slot);
            } else {
                place += 1;
            }
        }
    }

    /// Bytes of chunks that all lanes together may have.
    pub(super) fn granted(&self) -> u64 {
        self.slots.iter().filter_map(|slot| slot.lane.as_ref()).map(|lane| lane.granted).sum()
    }

    /// Lets a lane have so many bytes more.
    pub(super) fn grant(&mut self, slot: u32, more: u64) {
        if let Some(lane) = self.at(slot) {
            lane.grant(lane.granted + more);
        }
    }

    /// Lanes that are gone since the last time.
    pub(super) fn take_departed(&mut self) -> Vec<Inbound> {
        std::mem::take(&mut self.departed)
    }

    /// Takes a lane out.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(gone) = self.slots.get_mut(slot as usize) else { return };
        let Some(mut lane) = gone.lane.take() else { return };
        // Its sender may live, and would fill a lane that nobody reads.
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

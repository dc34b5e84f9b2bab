//! Receiving without a system call, a fence or a lock: the fast paths of [`Mailbox`].
//!
//! While messages keep arriving, the fast path is the whole receiving call; [`super::waiting`] does
//! the rest. Neighbours: [`super::receiver`] defines the calls, [`super::lanes`] the lanes.

use super::lanes::TakenMessage;
use super::message::{InPlace, Message, SenderId};
use super::options::WaitStrategy;
use super::receiver::Mailbox;
use crate::error::Peer;

impl Mailbox {
    /// Does all the work of a `recv` if the lane whose turn it is has a message: acknowledges the
    /// previous message, copies the next one, and returns its sender. Makes no system call,
    /// executes no fence and takes no lock.
    #[inline(always)]
    pub(super) fn recv_fast(&mut self) -> Option<(SenderId, Peer)> {
        if self.guard.is_forked() || self.armed {
            return None;
        }
        self.acknowledge_own();
        let lane = self.lanes.in_turn()?;
        let length = lane.message()?;
        self.copied.clear();
        lane.copy(length, &mut self.copied);
        self.taken = Some(TakenMessage { slot: lane.id.slot, length });
        Some((lane.id, lane.peer))
    }

    /// Calls `recv_fast` after a short spin on the lane whose turn it is: the shortest path from a
    /// message's header to the program.
    #[inline]
    pub(super) fn recv_soon(&mut self) -> Option<(SenderId, Peer)> {
        if self.options.wait_strategy == WaitStrategy::Sleep {
            return None;
        }
        self.lanes.wait_for_turn();
        self.recv_fast()
    }

    /// Returns a message that is already there, or that arrives while `recv` would poll without
    /// doing other work. Makes no system call.
    #[inline]
    pub(crate) fn recv_at_once(&mut self) -> Option<Message<'_>> {
        let from = self.recv_fast().or_else(|| self.recv_soon())?;
        Some(self.message(from))
    }

    /// Does the work of `recv_fast` without the copy.
    #[inline(always)]
    pub(super) fn take_fast(&mut self) -> Option<TakenMessage> {
        if self.guard.is_forked() || self.armed {
            return None;
        }
        self.acknowledge_own();
        let lane = self.lanes.in_turn()?;
        let length = lane.message()?;
        self.taken = Some(TakenMessage { slot: lane.id.slot, length });
        self.taken
    }

    /// Does the work of `recv_soon` without the copy.
    #[inline]
    pub(super) fn take_soon(&mut self) -> Option<TakenMessage> {
        if self.options.wait_strategy == WaitStrategy::Sleep {
            return None;
        }
        self.lanes.wait_for_turn();
        self.take_fast()
    }

    /// Returns the message that was copied last.
    #[inline(always)]
    pub(super) fn message(&self, (sender, peer): (SenderId, Peer)) -> Message<'_> {
        Message { bytes: &self.copied, sender, peer }
    }

    /// Copies a message that was found, and returns it.
    pub(super) fn hand_out(&mut self, taken: TakenMessage) -> Message<'_> {
        self.copied.clear();
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with an unacknowledged message was removed")
        };
        lane.copy(taken.length, &mut self.copied);
        Message { sender: lane.id, peer: lane.peer, bytes: &self.copied }
    }

    /// Returns a view of a message that was found.
    #[inline]
    pub(super) fn show(&mut self, taken: TakenMessage) -> InPlace<'_> {
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with an unacknowledged message was removed")
        };
        let (start, length) = (lane.payload(), taken.length);
        let mailbox = std::marker::PhantomData;
        InPlace { start, length, sender: lane.id, peer: lane.peer, mailbox }
    }
}

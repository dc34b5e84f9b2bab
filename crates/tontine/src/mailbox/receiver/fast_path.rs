//! Receiving without a system call, a fence or a lock: the fast paths of [`Mailbox`].
//!
//! While messages keep arriving, the fast path is the whole receiving call; [`super::waiting`] does
//! the rest. Neighbours: [`super`] defines the calls, [`super::lanes`] the lanes.

use super::Mailbox;
use super::inbound::InboundLane;
use super::lanes::TakenMessage;
use super::message::{InPlace, Message, SenderId};
use crate::error::Peer;
use crate::mailbox::settings::WaitStrategy;

impl Mailbox {
    /// Does all the work of a `recv` if the lane whose turn it is has a message, or gets one within
    /// `looks` further checks: acknowledges the previous message, copies the next one, and returns
    /// its sender. Makes no system call, executes no fence and takes no lock.
    #[inline(always)]
    pub(super) fn recv_fast(&mut self, looks: u32) -> Option<(SenderId, Peer)> {
        let (lane, copied, length) = self.next_in_turn(looks)?;
        copied.clear();
        lane.copy(length, copied);
        Some((lane.id, lane.peer))
    }

    /// Does the work of `recv_fast` without the copy.
    #[inline(always)]
    pub(super) fn take_fast(&mut self, looks: u32) -> Option<TakenMessage> {
        self.next_in_turn(looks)?;
        self.taken
    }

    /// Acknowledges the previous message and finds the next one. Everything that does not depend on
    /// that message precedes the wait for it, so that little is left to do when it arrives.
    #[inline(always)]
    fn next_in_turn(&mut self, looks: u32) -> Option<(&InboundLane, &mut Vec<u8>, usize)> {
        if self.guard.is_forked() || self.armed {
            return None;
        }
        let (lane, length) = self.lanes.in_turn(&mut self.taken, looks)?;
        Some((lane, &mut self.copied, length))
    }

    /// Returns the number of checks for a message that a blocking call makes before it does other
    /// work.
    #[inline(always)]
    pub(super) fn looks(&self) -> u32 {
        if self.options.wait_strategy == WaitStrategy::Sleep { 0 } else { self.lanes.looks() }
    }

    /// Returns a message that is already there, or, if `polls`, one that arrives while `recv` would
    /// poll without doing other work. Makes no system call.
    ///
    /// Public for the C binding, which makes system calls with cancellation disabled.
    #[doc(hidden)]
    #[inline]
    pub fn recv_at_once(&mut self, polls: bool) -> Option<Message<'_>> {
        let from = self.recv_fast(if polls { self.looks() } else { 0 })?;
        Some(self.message(from))
    }

    /// Returns the message that was copied last. The fast path finds only messages that are
    /// received for the first time.
    #[inline(always)]
    pub(super) fn message(&mut self, (sender, peer): (SenderId, Peer)) -> Message<'_> {
        Message { bytes: &mut self.copied, sender, peer, redelivered: 0 }
    }

    /// Copies a message that was found, and returns it.
    pub(super) fn hand_out(&mut self, taken: TakenMessage) -> Message<'_> {
        self.copied.clear();
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with an unacknowledged message was removed")
        };
        lane.copy(taken.length, &mut self.copied);
        let redelivered = lane.redelivered();
        Message { sender: lane.id, peer: lane.peer, redelivered, bytes: &mut self.copied }
    }

    /// Returns a view of a message that was found.
    #[inline]
    pub(super) fn show(&mut self, taken: TakenMessage) -> InPlace<'_> {
        let Some(lane) = self.lanes.at(taken.slot) else {
            unreachable!("a lane with an unacknowledged message was removed")
        };
        let (start, length) = (lane.payload(), taken.length);
        let (redelivered, mailbox) = (lane.redelivered(), std::marker::PhantomData);
        InPlace { start, length, sender: lane.id, peer: lane.peer, redelivered, mailbox }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::mailbox::Sender;

    /// Regression: a check of all lanes passed the turn on, and the next call acknowledged the
    /// message that it had returned in the lane of another sender.
    #[test]
    fn message_is_acknowledged_in_its_lane_after_check_of_all() {
        let mut mailbox = Mailbox::unbound().expect("a mailbox");
        let mut senders = [1_usize, 100, 1000].map(|length| {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let pair = socketpair(family, kind, SocketFlags::CLOEXEC, None);
            let (ours, theirs) = pair.expect("a pair");
            mailbox.adopt(ours).expect("adopted");
            (Sender::from_socket(theirs).expect("connected"), length)
        });
        for round in 0..3 {
            for (sender, length) in &mut senders {
                for _ in 0..2 {
                    sender.send(&vec![round; *length]).expect("sent");
                }
            }
            for _ in 0..2 * senders.len() {
                let message = mailbox.recv_timeout(Duration::from_secs(20)).expect("a message");
                assert!(message.iter().all(|byte| *byte == round));
                mailbox.is_read_out();
            }
            assert!(mailbox.recv_timeout(Duration::ZERO).is_err());
            assert!(senders.iter_mut().all(|(sender, _)| sender.unread_bytes() == 0));
        }
    }
}

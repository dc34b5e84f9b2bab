//! The handover of a lane to the next owner of its address: calls of [`OutboundLane`].
//!
//! `docs/internals/recovery.md` lists the steps. Neighbours: [`super::outbound`] decides when to
//! hand over; [`super::succession`] connects to the next owner and introduces the lane.

use std::time::{Duration, Instant};

use super::connection::Connection;
use super::outbound::OutboundLane;
use super::succession::{self, Introduction};
use crate::error::{Error, Result};
use crate::mailbox::address::Address;
use crate::sync::{Ordering, fence};

impl OutboundLane {
    /// Hands the lane over to the next owner of the address. If the address has no owner yet,
    /// returns `Ok`: the messages wait in the lane.
    ///
    /// # Errors
    /// - No successor can be reached: the lane ends, and its messages can be taken back.
    /// - A shortage in this process that has lasted for the handshake timeout.
    pub(super) fn try_hand_over(&mut self) -> Result<()> {
        let now = Instant::now();
        let Connection::Awaiting(awaiting) = &mut self.connection else { return Ok(()) };
        if !awaiting.is_look_due(now) {
            return Ok(());
        }
        let handed_over = self.hand_over();
        let Connection::Awaiting(awaiting) = &mut self.connection else { return handed_over };
        let Err(error) = handed_over else { return Ok(()) };
        match error {
            // There is no owner, or it has just died, or its queue is full: the lane is unchanged.
            Error::NoMailbox { .. } | Error::TimedOut | Error::WouldBlock => {
                awaiting.note_shortage(now, false);
                Ok(())
            }
            error if error.is_shortage() || error.errno() == libc::ENOBUFS => {
                let lasted = awaiting.note_shortage(now, true);
                if lasted < self.options.handshake_timeout { Ok(()) } else { Err(error) }
            }
            error => {
                self.end(error.clone());
                Err(error)
            }
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        let Some(address) = self.succession.address() else { return Err(Error::WouldBlock) };
        let options = &self.options;
        let (socket, mut pending) =
            options.with_descriptors(|| succession::connect(address, options, Duration::ZERO))?;
        // Accepts the dead receiver's last position while its page is still mapped.
        self.refresh()?;
        let (doubt, first) = (self.last_doubt_limit(), self.writer.first_unread());
        let (writer, growth) = (&self.writer, &self.growth);
        let next = self.succession.next_handover().with_doubt(doubt, first);
        next.announce(writer);
        let brought = Introduction { writer, growth, life: self.life, options: &self.options };
        let send = || brought.send_hello(&next, &socket, &mut pending);
        if let Err(error) = self.options.with_descriptors(send) {
            self.succession.announce(writer);
            return Err(error);
        }
        if let Connection::Awaiting(awaiting) = &self.connection {
            self.growth.handed_over(awaiting.last());
        }
        self.succession = next;
        self.socket = socket;
        self.connection = Connection::Pending(pending);
        Ok(())
    }

    /// Ends an unanswered lane if another process now owns the path. If only a forked child of a
    /// dead owner holds the listener, the listener queues connections that no process reads.
    ///
    /// As long as the path leads to the same file, there is no other owner, and the lane keeps its
    /// place in a slow owner's queue.
    pub(super) fn look_for_another_owner(&mut self) {
        let Connection::Pending(pending) = &mut self.connection else { return };
        if !self.succession.waits() || !pending.is_look_elsewhere_due(Instant::now()) {
            return;
        }
        let leads_to = self.succession.address().and_then(Address::leads_to);
        if pending.was_replaced(leads_to) && self.withdraw() {
            self.end(self.connection.noticed_end());
        }
    }

    /// Withdraws an unanswered `HELLO`. Returns `false` if an answer arrived or the lane ended.
    pub(super) fn withdraw(&mut self) -> bool {
        let next = self.succession.next_handover();
        next.announce(&self.writer);
        // SYNC handover: pairs with the fence in `Mailbox::begin`, where it is explained.
        fence(Ordering::SeqCst);
        self.listen();
        if self.connection.is_unanswered() {
            self.succession = next;
            return true;
        }
        // If the owner answered but saw the withdrawal, it hangs up and has read nothing.
        self.succession.announce(&self.writer);
        false
    }
}

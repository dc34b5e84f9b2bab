//! The messages of a lane that the program has and has not completed, and those behind them.
//!
//! The reader is ahead of the acknowledged position here, as in a relay. Only a
//! [`HoldingMailbox`](crate::mailbox::HoldingMailbox) holds messages.

use std::collections::VecDeque;

use super::InboundLane;

/// The messages from the acknowledged position to the reader's.
#[derive(Default)]
pub(super) struct HeldRecords {
    /// The position of each record, in ascending order, and whether its message is completed. The
    /// first is not.
    records: VecDeque<(u64, bool)>,
    /// Number of completed messages among them.
    completed: usize,
    /// The acknowledged position that was announced last with [`InboundLane::notify_space`].
    pub(super) announced_at: u64,
}

impl InboundLane {
    /// Returns the position before which every message is acknowledged.
    pub(super) fn acked(&self) -> u64 {
        self.held.records.front().map_or_else(|| self.reader.position(), |&(begin, _)| begin)
    }

    /// Returns `true` if a message is read and not acknowledged.
    pub(super) fn holds(&self) -> bool {
        !self.held.records.is_empty()
    }

    /// Returns the number of completed messages that follow one that is not.
    pub(in crate::mailbox::receiver) fn completed(&self) -> usize {
        self.held.completed
    }

    /// Advances past the message that was just found without acknowledging it, and returns its
    /// position. From then on, the program may have it.
    pub(in crate::mailbox::receiver) fn hold(&mut self, length: usize) -> u64 {
        let begin = self.reader.position();
        self.reader.advance(length);
        self.control.mark_sent(self.reader.position());
        self.held.records.push_back((begin, false));
        begin
    }

    /// Completes the message at a position, and acknowledges all messages before the first that is
    /// not completed.
    pub(in crate::mailbox::receiver) fn complete(&mut self, begin: u64) {
        let held = &mut self.held;
        let Ok(index) = held.records.binary_search_by_key(&begin, |&(begin, _)| begin) else {
            return;
        };
        held.records[index].1 = true;
        held.completed += 1;
        if index > 0 {
            return;
        }
        while held.records.front().is_some_and(|&(_, is_completed)| is_completed) {
            held.records.pop_front();
            held.completed -= 1;
        }
        let acked = self.acked();
        self.control.acknowledge(acked);
        let freed = acked - self.held.announced_at;
        let is_much = freed >= (self.reader.size() / 4) as u64;
        if is_much || !self.holds() || self.sender_waits() {
            self.notify_space();
        }
    }
}

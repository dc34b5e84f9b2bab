//! The memory of a lane at its receiver: what its sender holds, may have and has to return.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::InboundLane;
use crate::sys::region::PeerRegion;

/// Maximum number of doublings of the time for which a lane must be empty before its memory is
/// requested back.
pub(super) const MAX_REGROWTHS: u32 = 6;

impl InboundLane {
    /// Returns the total size of the chunks that this process holds.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.reader.size() as u64 + bytes_of(&self.passed)
    }

    /// Returns the maximum total size of the chunks with unread messages.
    pub(in crate::mailbox::receiver) fn chunk_bytes_max(&self) -> u64 {
        self.chunk_bytes().max(self.granted)
    }

    /// Begins a scan in causal order, to which every message belongs that the lane has now, and few
    /// later ones: a sender that refilled its chunk would otherwise hold up all others.
    pub(in crate::mailbox::receiver) fn begin_scan(&mut self) {
        self.scan_limit = self.reader.position().saturating_add(self.chunk_bytes_max());
        self.scan_end = self.chunk_end();
    }

    /// Returns a position behind all messages that are in the chunk now.
    pub(super) fn chunk_end(&self) -> u64 {
        self.reader.position().saturating_add(self.reader.size() as u64)
    }

    /// Returns the maximum size of a chunk that the sender may still pass.
    pub(super) fn chunk_bytes_left(&self) -> u64 {
        self.granted.saturating_sub(self.chunk_bytes())
    }

    /// Grants the sender this number of bytes for chunks.
    pub(in crate::mailbox::receiver) fn grant(&mut self, bytes: u64) {
        self.granted = bytes;
        self.control.grant(bytes);
        self.notify_space();
    }

    /// Lowers the grant by the memory that the sender has returned. The sender does not grow until
    /// it sees `GIVE_BACK` cleared, so it never uses the earlier grant.
    pub(in crate::mailbox::receiver) fn lower_grant(&mut self) {
        if !self.returned || !self.passed.is_empty() {
            return;
        }
        let size = self.reader.size();
        self.is_shrunk = size <= self.first_size;
        // The size is raised, so that the receiver does not repeat a request for memory that the
        // sender could not return.
        self.first_size = self.first_size.max(size);
        self.requested_back = false;
        self.returned = false;
        let granted = self.granted.min(size as u64 + self.spare);
        self.control.grant(granted);
        self.control.give_back(false);
        self.excess = self.excess.saturating_sub(self.granted - granted);
        self.granted = granted;
        self.notify_space();
    }

    /// Asks the sender of a lane that has been empty for `after` to return a chunk that is larger
    /// than the first and, if other lanes request memory, the unused part of its grant above
    /// `share`. Returns the time until a call that may have something to request.
    ///
    /// A lane whose large messages come rarely would make its large chunk again for each of them.
    /// So each return that was in vain doubles the time, unless other lanes request memory.
    pub(in crate::mailbox::receiver) fn request_back(
        &mut self,
        now: Instant,
        after: Duration,
        share: Option<u64>,
    ) -> Option<Duration> {
        let doublings = if share.is_some() { 0 } else { self.regrowths };
        let after = after.saturating_mul(1 << doublings);
        if let Some(share) = share {
            self.spare = self.spare.min(share);
        }
        let unused = share.is_some() && self.granted > self.reader.size() as u64 + self.spare;
        let large = self.reader.size() > self.first_size;
        if self.requested_back || !(large || unused) || !self.is_empty() || self.holds() {
            self.idle_since = None;
            return None;
        }
        match self.idle_since {
            Some(since) if now - since >= after => {
                self.control.give_back(true);
                self.requested_back = true;
                // A sender that still needs what it requested asks again.
                self.wants = 0;
                self.idle_since = None;
                // Wakes the sender, which may wait for a grant while other senders wait for its
                // memory.
                self.notify_space();
                None
            }
            Some(since) => Some(after.saturating_sub(now - since)),
            None => {
                self.idle_since = Some(now);
                Some(after)
            }
        }
    }
}

/// Returns the total size of chunks that were passed.
pub(super) fn bytes_of(chunks: &VecDeque<(PeerRegion, u32)>) -> u64 {
    chunks.iter().map(|(_, log2)| 1_u64 << log2).sum()
}

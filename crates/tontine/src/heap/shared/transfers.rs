//! This process's outboxes and inboxes: [`Transfers`].
//!
//! `in_flight` and `recover` use these numbers to decide which blocks in flight to free.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::word::Member;

/// The outboxes and inboxes of this process.
#[derive(Debug, Default)]
pub(super) struct Transfers(Mutex<Endpoints>);

#[derive(Debug, Default)]
pub(super) struct Endpoints {
    /// The receiver of each outbox. An outbox takes back the blocks that a dead receiver has not
    /// read.
    outboxes: Vec<Member>,
    /// Number of inboxes. If the process has only one inbox, it frees the blocks of dead senders
    /// that did not reach its lanes.
    pub(super) inboxes: usize,
    /// `true` once the process has had an outbox or an inbox.
    pub(super) used: bool,
    /// `true` once the process has had an inbox.
    pub(super) had_inbox: bool,
    /// Value of the header's `deaths` counter at the last
    /// [`Core::reclaim_stranded`](super::core::Core::reclaim_stranded).
    pub(super) settled: u64,
}

impl Transfers {
    pub(super) fn ways(&self) -> MutexGuard<'_, Endpoints> {
        // A panic under the lock leaves every field valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoints {
    /// Adds an outbox to a member.
    pub(super) fn open_outbox(&mut self, to: Member) {
        self.outboxes.push(to);
        self.used = true;
    }

    /// Removes an outbox to a member. Returns `true` if it was the last outbox to that member.
    pub(super) fn close_outbox(&mut self, to: Member) -> bool {
        if let Some(at) = self.outboxes.iter().position(|other| *other == to) {
            self.outboxes.swap_remove(at);
        }
        !self.leads_to(to)
    }

    pub(super) fn open_inbox(&mut self) {
        self.inboxes += 1;
        (self.used, self.had_inbox) = (true, true);
    }

    /// Removes an inbox. Returns `true` if it was the last inbox.
    pub(super) fn close_inbox(&mut self) -> bool {
        self.inboxes -= 1;
        self.inboxes == 0
    }

    pub(super) fn leads_to(&self, to: Member) -> bool {
        self.outboxes.contains(&to)
    }
}

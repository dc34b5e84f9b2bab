//! The ways by which blocks come to this process and leave it: [`Mail`].
//!
//! What is freed because a way is gone is decided in `flight` and `recover`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::word::Member;

/// The ways by which blocks come to this process and leave it.
#[derive(Debug, Default)]
pub(super) struct Mail(Mutex<Ways>);

#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Where outboxes lead. Each takes back itself what a dead receiver has not read.
    outboxes: Vec<Member>,
    /// How many inboxes there are. Each frees itself what the dead have sent and not published.
    pub(super) inboxes: usize,
    /// There was an outbox, or an inbox.
    pub(super) used: bool,
    pub(super) had_inbox: bool,
    /// Recoveries after which nothing was left to settle.
    pub(super) settled: u64,
}

impl Mail {
    pub(super) fn ways(&self) -> MutexGuard<'_, Ways> {
        // Each change is one of a number, or of a list.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ways {
    /// An outbox to this member is there.
    pub(super) fn open_outbox(&mut self, to: Member) {
        self.outboxes.push(to);
        self.used = true;
    }

    /// It is there no more. Whether that was the last one.
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

    /// Whether that was the last one.
    pub(super) fn close_inbox(&mut self) -> bool {
        self.inboxes -= 1;
        self.inboxes == 0
    }

    pub(super) fn leads_to(&self, to: Member) -> bool {
        self.outboxes.contains(&to)
    }
}

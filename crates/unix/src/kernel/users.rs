//! Users, and what each has of what is limited: [`Credentials`], [`User`]. `uidhash_lock` is one of
//! the global locks of §5 (table 1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Kernel;
use crate::mutation::Mutation;

/// The process uid hash table, guarded by `uidhash_lock` (table 1).
pub(super) type Users = BTreeMap<u32, Arc<User>>;

/// What a user has.
#[derive(Debug, Default)]
pub(super) struct User {
    /// Processes and threads.
    pub(super) tasks: Count,
    /// Queued signals.
    pub(super) signals: Count,
}

/// How many there are.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// One more, unless that were more than `limit`.
    pub(super) fn take(&self, limit: u64) -> bool {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before >= limit {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        before < limit
    }

    /// So many more, whatever the limit.
    pub(super) fn take_all(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// So many fewer.
    pub(super) fn give_back(&self, count: usize) {
        self.0.fetch_sub(count as u64, Ordering::Relaxed);
    }
}

/// Whose a process is.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    pub(super) real: u32,
    pub(super) effective: u32,
    pub(super) saved: u32,
    /// The real user's counts.
    pub(super) user: Arc<User>,
}

impl Credentials {
    pub(super) fn new(uid: u32, user: Arc<User>) -> Self {
        Self { real: uid, effective: uid, saved: uid, user }
    }

    /// Whether nothing is refused to it.
    pub(super) fn is_privileged(&self) -> bool {
        self.effective == 0
    }
}

/// Who a caller is, as far as it matters to whom it may signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) real: u32,
    pub(super) effective: u32,
    pub(super) session: i32,
}

impl Ids {
    /// Whether somebody with these may signal somebody with `target`'s users, as kill(2) has it.
    pub(super) fn may_signal(self, target: &Credentials) -> bool {
        let mine = [self.effective, self.real];
        self.effective == 0 || mine.iter().any(|uid| [target.real, target.saved].contains(uid))
    }
}

impl Kernel {
    /// Counts a new task as its user's that was counted as another's: `setuid` came between. Under
    /// the `p_lock` of its process, as `setuid`.
    pub(super) fn charge(&self, owner: &Credentials, charged: &User) {
        if !std::ptr::eq(&raw const *owner.user, charged) && !self.mutates(Mutation::ChargeKept) {
            charged.tasks.give_back(1);
            owner.user.tasks.take_all(1);
        }
    }

    /// The user with this number, made if it has never been here.
    pub(super) fn user(&self, uid: u32) -> Arc<User> {
        self.users.lock(&self.locks).entry(uid).or_default().clone()
    }
}

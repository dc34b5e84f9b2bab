//! Users, and the resources that each user occupies: [`Cred`], [`User`]. `uidhash_lock` is one of
//! the global locks of §5 (table 1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Kernel;
use crate::executor::{self, Object};

/// The process uid hash table, guarded by `uidhash_lock` (table 1).
pub(super) type UidTable = BTreeMap<u32, Arc<User>>;

/// The counted resources of a user.
#[derive(Default)]
pub(super) struct User {
    /// Number of processes and threads.
    pub(super) tasks: PopulationCount,
    /// Number of queued signals.
    pub(super) signals: PopulationCount,
}

/// Number of stripes; if there are more processors, they share stripes.
const STRIPES: usize = 16;

/// A count: the sum of the counts of all processors, each on a separate cache line. The sum is
/// computed only if there is a limit.
#[derive(Default)]
pub(super) struct PopulationCount([Stripe; STRIPES]);

/// The number of units taken on some processors minus the number released there, modulo 2⁶⁴.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl PopulationCount {
    /// Adds one, unless the sum would exceed `limit`. Returns `true` if the count was increased.
    pub(super) fn take(&self, limit: u64) -> bool {
        // SYNC count: pairs with `sum`: if two threads take the last unit, at least one of them
        // sees the other's addition.
        self.stripe().fetch_add(1, Ordering::SeqCst);
        let refused = limit != u64::MAX && self.sum() > limit;
        if refused {
            self.give_back(1);
        }
        !refused
    }

    /// Adds `count`, regardless of the limit.
    pub(super) fn take_all(&self, count: usize) {
        self.stripe().fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Subtracts `count`.
    pub(super) fn give_back(&self, count: usize) {
        if count > 0 {
            self.stripe().fetch_sub(count as u64, Ordering::Relaxed);
        }
    }

    fn stripe(&self) -> &AtomicU64 {
        executor::looks_at(Object::Users);
        &self.0[executor::processor() % STRIPES].0
    }

    /// Returns the current count.
    pub(super) fn counted(&self) -> u64 {
        self.sum()
    }

    fn sum(&self) -> u64 {
        // In an exploration, the order of this read and any change of the count matters.
        executor::changes(Object::Users);
        // SYNC count: pairs with `take`.
        let counted = self.0.iter().map(|stripe| stripe.0.load(Ordering::SeqCst));
        let sum = counted.fold(0, u64::wrapping_add).cast_signed();
        // A concurrent release may be seen before the corresponding addition.
        u64::try_from(sum).unwrap_or(0)
    }
}

/// The users of a process.
#[derive(Clone)]
pub(super) struct Cred {
    pub(super) real: u32,
    pub(super) effective: u32,
    pub(super) saved: u32,
    /// The counts of the real user.
    pub(super) user: Arc<User>,
}

impl Cred {
    pub(super) fn new(uid: u32, user: Arc<User>) -> Self {
        Self { real: uid, effective: uid, saved: uid, user }
    }

    /// Returns `true` if the process has all permissions.
    pub(super) fn is_privileged(&self) -> bool {
        self.effective == 0
    }
}

/// The identity of a caller in permission checks for signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) real: u32,
    pub(super) effective: u32,
    pub(super) session: i32,
}

impl Ids {
    /// Returns `true` if, as in kill(2), a process with these users may signal a process with the
    /// users in `target`.
    pub(super) fn may_signal(self, target: &Cred) -> bool {
        let mine = [self.effective, self.real];
        self.effective == 0 || mine.iter().any(|uid| [target.real, target.saved].contains(uid))
    }
}

impl Kernel {
    /// Moves the charge for a new task from one user to another, if a `setuid` happened in between.
    /// Called under the `p_lock` of the task's process, like `setuid`.
    pub(super) fn charge(&self, owner: &Cred, charged: &User) {
        if !std::ptr::eq(&raw const *owner.user, charged) {
            charged.tasks.give_back(1);
            owner.user.tasks.take_all(1);
        }
    }

    /// Returns the user with this number, created on first use.
    pub(super) fn user(&self, uid: u32) -> Arc<User> {
        self.users.lock(&self.locks).entry(uid).or_default().clone()
    }
}

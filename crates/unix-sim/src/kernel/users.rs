//! Users, and what each has of what is limited: [`Credentials`], [`User`]. `uidhash_lock` is one of
//! the global locks of §5 (table 1).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Kernel;
use crate::executor::{self, Object};

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

/// More processors than this share stripes.
const STRIPES: usize = 16;

/// How many there are: the sum of what each processor counted, on a cache line of its own. Only
/// where there is a limit does anybody ask for the sum.
#[derive(Debug, Default)]
pub(super) struct Count([Stripe; STRIPES]);

/// What was taken on some processors less what was given back there, modulo 2⁶⁴.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Count {
    /// One more, unless that were more than `limit`.
    pub(super) fn take(&self, limit: u64) -> bool {
        // SYNC count: pairs with `sum`: of two who take the last one, one at least sees the other.
        self.stripe().fetch_add(1, Ordering::SeqCst);
        let refused = limit != u64::MAX && self.sum() > limit;
        if refused {
            self.give_back(1);
        }
        !refused
    }

    /// So many more, whatever the limit.
    pub(super) fn take_all(&self, count: usize) {
        self.stripe().fetch_add(count as u64, Ordering::Relaxed);
    }

    /// So many fewer.
    pub(super) fn give_back(&self, count: usize) {
        if count > 0 {
            self.stripe().fetch_sub(count as u64, Ordering::Relaxed);
        }
    }

    fn stripe(&self) -> &AtomicU64 {
        executor::looks_at(Object::Users);
        &self.0[executor::processor() % STRIPES].0
    }

    /// How many there are.
    pub(super) fn counted(&self) -> u64 {
        self.sum()
    }

    fn sum(&self) -> u64 {
        // Who asks is kept apart from all that count.
        executor::changes(Object::Users);
        // SYNC count: pairs with `take`.
        let counted = self.0.iter().map(|stripe| stripe.0.load(Ordering::SeqCst));
        let sum = counted.fold(0, u64::wrapping_add).cast_signed();
        // What is given back meanwhile may be seen before what it was taken as.
        u64::try_from(sum).unwrap_or(0)
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
        if !std::ptr::eq(&raw const *owner.user, charged) {
            charged.tasks.give_back(1);
            owner.user.tasks.take_all(1);
        }
    }

    /// The user with this number, made if it has never been here.
    pub(super) fn user(&self, uid: u32) -> Arc<User> {
        self.users.lock(&self.locks).entry(uid).or_default().clone()
    }
}

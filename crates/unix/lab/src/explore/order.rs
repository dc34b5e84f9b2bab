//! The fibers that may run at a decision, and the order in which the search tries them:
//! [`ReadyOrder`].
//!
//! The running fiber comes first if it can continue, then the others, longest-waiting first. A
//! fiber that yields, or polls, is not chosen again until each fiber that could run at that time
//! has had a turn or can no longer run. Without this rule, a polling loop would never end in a
//! schedule that always chooses it.

use tontine_unix_sim::internal::{At, CLOCK, SwitchEvent, SwitchReason};

/// The state that determines the order in one run.
#[derive(Debug, Default)]
pub(super) struct ReadyOrder {
    /// The time at which each fiber last left the processor, indexed by the fiber's number; 0 for
    /// never.
    last: Vec<u32>,
    /// Number of turns so far.
    clock: u32,
    yielded: Vec<Yielded>,
    /// The fibers that may run now, in the order in which they are tried; the clock is last.
    pub(super) ready: Vec<u32>,
    /// `true` if the first fiber in `ready` is the running fiber and can continue.
    pub(super) continues: bool,
}

/// A fiber that yielded, and the fibers that must run before that fiber.
#[derive(Debug)]
struct Yielded {
    fiber: u32,
    /// `None` until the next decision.
    before: Option<Vec<u32>>,
}

/// Returns `true` if a fiber that leaves in this way lets others run first.
pub(super) fn yields(left: &SwitchEvent) -> bool {
    left.leave == SwitchReason::Yield
        || (left.leave == SwitchReason::Point && left.at == At::Within)
}

impl ReadyOrder {
    /// Starts a new run.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.yielded.clear();
        self.clock = 0;
    }

    /// Records that a fiber has had a turn.
    #[inline]
    pub(super) fn left(&mut self, left: &SwitchEvent, yields: bool) {
        self.clock += 1;
        let index = left.fiber as usize;
        if self.last.len() <= index {
            self.last.resize(index + 1, 0);
        }
        self.last[index] = self.clock;
        if !self.yielded.is_empty() {
            self.yielded.retain(|one| one.fiber != left.fiber);
            for before in self.yielded.iter_mut().filter_map(|one| one.before.as_mut()) {
                before.retain(|fiber| *fiber != left.fiber);
            }
        }
        if yields {
            self.yielded.push(Yielded { fiber: left.fiber, before: None });
        }
    }

    /// Returns `true` if a fiber has yielded and must not run yet.
    #[inline]
    pub(super) fn waits(&self, fiber: u32) -> bool {
        self.yielded.iter().any(|one| one.fiber == fiber)
    }

    /// Determines which of the runnable fibers may run.
    pub(super) fn decide(&mut self, runnable: &[u32], running: Option<u32>) {
        let Self { last, yielded, ready, continues, .. } = self;
        let has_clock = runnable.last() == Some(&CLOCK);
        let runnable = &runnable[..runnable.len() - usize::from(has_clock)];
        for one in yielded.iter_mut() {
            let others = || runnable.iter().copied().filter(|fiber| *fiber != one.fiber).collect();
            let before = one.before.get_or_insert_with(others);
            before.retain(|fiber| runnable.contains(fiber));
        }
        yielded.retain(|one| one.before.as_ref().is_some_and(|before| !before.is_empty()));
        let waits = |fiber: u32| yielded.iter().any(|one| one.fiber == fiber);
        ready.clear();
        ready.extend(runnable.iter().copied().filter(|fiber| !waits(*fiber)));
        if ready.is_empty() {
            ready.extend_from_slice(runnable);
        }
        let since = |fiber: u32| (last.get(fiber as usize).copied().unwrap_or(0), fiber);
        ready.sort_unstable_by_key(|fiber| since(*fiber));
        *continues = false;
        if let Some(running) = running
            && let Some(at) = ready.iter().position(|fiber| *fiber == running)
        {
            ready[..=at].rotate_right(1);
            *continues = !yielded.iter().any(|one| one.fiber == running);
        }
        if has_clock {
            ready.push(CLOCK);
        }
    }
}

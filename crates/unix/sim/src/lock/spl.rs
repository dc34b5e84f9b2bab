//! The interrupt priority level of a worker (§6.1): [`splhigh`] defers ticks until its guard is
//! dropped.
//!
//! A tick may occur whenever the level is [`InterruptLevel::Base`], even while a lock is held. A
//! lock that a tick takes must therefore always be taken at [`InterruptLevel::High`]; otherwise the
//! tick would spin on a lock that its own thread holds. A fiber never sleeps at high spl. If the
//! simulated executor interrupts a fiber at high spl, the fiber keeps its level while another one
//! runs, as on a processor: [`TickState`].
//!
//! The executor generates the ticks, and defers them from its own `splhigh` to its `splx`.

use crate::executor;
use crate::held::{self, InterruptLevel, TickState};
use std::marker::PhantomData;

/// Returns the level of the current fiber.
pub(crate) fn level() -> InterruptLevel {
    held::state().level
}

/// Defers ticks on this worker until the guard is dropped.
#[inline]
#[must_use]
pub(crate) fn splhigh() -> Spl {
    raised(TickState { level: InterruptLevel::High, ..held::state() })
}

/// Marks this worker as handling a tick, at high spl, until the guard is dropped. With debug
/// assertions, panics if the level is already high, because the tick should have been deferred.
#[must_use]
pub(crate) fn tick() -> Spl {
    debug_assert_eq!(level(), InterruptLevel::Base, "spl: a tick landed at high spl");
    raised(TickState { level: InterruptLevel::High, in_tick: true })
}

#[inline]
fn raised(state: TickState) -> Spl {
    let level = executor::splhigh();
    Spl { before: held::replace_state(state), level, here: PhantomData }
}

/// Restores the previous state when dropped. With debug assertions, dropping it panics if a lock
/// that is taken at high spl is still held.
pub(crate) struct Spl {
    before: TickState,
    /// The level that the executor restores; it then delivers the deferred ticks.
    level: u8,
    here: PhantomData<*const ()>,
}

impl Drop for Spl {
    #[inline]
    fn drop(&mut self) {
        let _ = held::replace_state(self.before);
        if self.before.level == InterruptLevel::Base {
            held::assert_may_lower();
        }
        executor::splx(self.level);
    }
}

//! The interrupt priority level of a worker (§6.1): [`splhigh`] defers ticks until its guard is
//! dropped.
//!
//! A tick may occur wherever the level is [`Level::Base`], even while a lock is held. A lock that a
//! tick takes must therefore always be taken at [`Level::High`]; otherwise the tick would spin for
//! a lock that its own thread holds. A fiber never sleeps at high spl. A fiber that the simulated
//! executor interrupts there keeps its level, as on a processor, while another one runs:
//! [`State`].
//!
//! The executor generates the ticks: it defers them from its own `splhigh` to its `splx`.

use crate::executor;
use crate::held::{self, Level, State};
use std::marker::PhantomData;

/// Returns the level of the current fiber.
pub(crate) fn level() -> Level {
    held::state().level
}

/// Defers ticks on this worker until the guard is dropped.
#[inline]
#[must_use]
pub(crate) fn splhigh() -> Spl {
    raised(State { level: Level::High, ..held::state() })
}

/// Marks, until the guard is dropped, that this worker is handling a tick, at high spl.
///
/// # Panics
///
/// With debug assertions, if the level is already high: the tick should have been deferred.
#[must_use]
pub(crate) fn tick() -> Spl {
    debug_assert_eq!(level(), Level::Base, "spl: a tick landed at high spl");
    raised(State { level: Level::High, in_tick: true })
}

#[inline]
fn raised(state: State) -> Spl {
    let level = executor::splhigh();
    Spl { before: held::replace_state(state), level, here: PhantomData }
}

/// Restores the previous state when dropped. With debug assertions, that panics if a lock of high
/// spl is still held.
#[derive(Debug)]
pub(crate) struct Spl {
    before: State,
    /// The level that the executor restores; it then delivers the deferred ticks.
    level: u8,
    here: PhantomData<*const ()>,
}

impl Drop for Spl {
    #[inline]
    fn drop(&mut self) {
        let _ = held::replace_state(self.before);
        if self.before.level == Level::Base {
            held::assert_may_lower();
        }
        executor::splx(self.level);
    }
}

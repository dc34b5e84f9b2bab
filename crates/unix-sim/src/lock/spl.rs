//! The interrupt priority level of a worker (§6.1): [`splhigh`] holds ticks back until its guard
//! goes.
//!
//! A tick may land wherever the level is [`Level::Base`], in the middle of any lock's hold. So a
//! lock that a tick takes must always be taken at [`Level::High`], or the tick would spin for what
//! its own thread holds. A fiber never sleeps at high spl. One that the simulated executor
//! interrupts there keeps its level, as a processor would, while another one runs: [`State`].
//!
//! The executor makes the ticks: it holds them back from its own `splhigh` to its `splx`.

use crate::executor;
use crate::held::{self, Level, State};
use std::marker::PhantomData;

/// The level here.
pub(crate) fn level() -> Level {
    held::state().level
}

/// Holds ticks back on this worker until the guard goes.
#[inline]
#[must_use]
pub(crate) fn splhigh() -> Spl {
    raised(State { level: Level::High, ..held::state() })
}

/// Says until the guard goes that a tick is being handled here, at high spl.
///
/// # Panics
///
/// With debug assertions, if the level is high already: the tick should have been held back.
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

/// Restores what was before. With debug assertions it panics if a lock of high spl is still held.
#[derive(Debug)]
pub(crate) struct Spl {
    before: State,
    /// What the executor restores; it lets the ticks in that it held back.
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

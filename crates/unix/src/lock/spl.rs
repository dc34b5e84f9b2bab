//! The interrupt priority level of a worker: [`splhigh`] holds ticks back until its guard goes.
//!
//! A tick may land wherever the level is [`Level::Base`], in the middle of any lock's hold. So a lock
//! that a tick takes must always be taken at [`Level::High`], or the tick would spin for what its own
//! thread holds. The level belongs to the worker and not to the fiber: a fiber that switches away at
//! high spl would leave it to the next one, which is refused.
//!
//! Who makes ticks hands this module a function by [`on_lowered`], which is called when the level
//! comes back to base: there it delivers what was held back.

use std::cell::Cell;
use std::marker::PhantomData;

/// What may interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Everything.
    Base,
    /// Nothing: the clock is held back.
    High,
}

thread_local! {
    // Constant, without a destructor: a signal handler may read them.
    static LEVEL: Cell<Level> = const { Cell::new(Level::Base) };
    static IN_TICK: Cell<bool> = const { Cell::new(false) };
    static LOWERED: Cell<fn()> = const { Cell::new(nothing) };
}

fn nothing() {}

/// Has `hook` called on this worker whenever its level comes back to base.
pub(crate) fn on_lowered(hook: fn()) {
    LOWERED.set(hook);
}

/// The level here.
pub(crate) fn level() -> Level {
    LEVEL.get()
}

/// Whether a tick is being handled here.
pub(crate) fn in_tick() -> bool {
    IN_TICK.get()
}

/// Holds ticks back on this worker until the guard goes.
#[must_use]
pub(crate) fn splhigh() -> Spl {
    Spl { before: LEVEL.replace(Level::High), here: PhantomData }
}

/// Restores the level that was before.
#[derive(Debug)]
pub(crate) struct Spl {
    before: Level,
    here: PhantomData<*const ()>,
}

impl Drop for Spl {
    fn drop(&mut self) {
        LEVEL.set(self.before);
        if self.before == Level::Base {
            LOWERED.get()();
        }
    }
}

/// Says until the guard goes that a tick is being handled here, at high spl.
///
/// # Panics
///
/// With debug assertions, if the level is high already: the tick should have been held back.
#[must_use]
pub(crate) fn tick() -> Tick {
    debug_assert_eq!(level(), Level::Base, "a tick landed at high spl: it is to be held back");
    let spl = splhigh();
    IN_TICK.set(true);
    Tick { _spl: spl }
}

/// A tick that is being handled.
#[derive(Debug)]
pub(crate) struct Tick {
    _spl: Spl,
}

impl Drop for Tick {
    fn drop(&mut self) {
        IN_TICK.set(false);
    }
}

//! What is read as time in this experiment: [`Stamps`].

use tontine_host::clock::{self, Clock, ClockSource};

/// The calibrated clock and the bare reading that seed 000 uses, in the same ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamps {
    clock: Clock,
    bare: bool,
}

impl Stamps {
    /// Stamps whose ticks are those of `clock`.
    pub(crate) fn new(clock: Clock) -> Self {
        // Elsewhere `bare_counter` is another clock than the calibrated one.
        let bare = cfg!(target_arch = "x86_64") && clock.source() == ClockSource::Counter;
        Self { clock, bare }
    }

    /// The clock, for fenced stamps and for conversions.
    pub(crate) fn clock(self) -> Clock {
        self.clock
    }

    /// Whether ticks are what the seed calls cycles.
    pub(crate) fn are_cycles(self) -> bool {
        self.bare
    }

    /// The counter without a fence, as in seed 000; where it is no clock, a stamp of the clock.
    #[inline(always)]
    pub(crate) fn bare(self) -> u64 {
        if self.bare { clock::bare_counter() } else { self.clock.start() }
    }
}

//! The clock of this experiment: [`Stamps`].

use tontine_bench::clock::{self, ClockSource};

use crate::prelude::*;

/// The calibrated clock and the bare counter that source 000 reads, both in the same ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamps {
    clock: Clock,
    bare: bool,
}

impl Stamps {
    pub(crate) fn new(clock: Clock) -> Self {
        // On other processors `bare_counter` is not the calibrated clock.
        let bare = cfg!(target_arch = "x86_64") && clock.source() == ClockSource::Counter;
        Self { clock, bare }
    }

    pub(crate) fn clock(self) -> Clock {
        self.clock
    }

    /// Returns `true` if a tick is a cycle in the source's sense.
    pub(crate) fn are_cycles(self) -> bool {
        self.bare
    }

    /// Reads the counter without a fence, as in source 000. If the clock is not the counter, takes
    /// a stamp of the clock.
    #[inline(always)]
    pub(crate) fn bare(self) -> u64 {
        if self.bare { clock::bare_counter() } else { self.clock.start() }
    }
}

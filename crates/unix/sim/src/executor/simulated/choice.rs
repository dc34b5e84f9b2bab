//! Decisions of a [`SimulatedRun`]: the choice of the next fiber, or of letting time pass.

use std::sync::atomic::Ordering;

use super::{ChoiceOutcome, SimulatedRun};
use crate::executor::chooser::{CLOCK, SwitchEvent};
use crate::executor::footprint::{At, Footprint};
use crate::executor::task::SwitchReason;

impl SimulatedRun<'_> {
    /// Returns `true` if a timer is due before the next choice. If the clock does not move with
    /// points, timers expire in [`SimulatedRun::wait`].
    #[inline]
    pub(super) fn is_timer_due(&self) -> bool {
        self.simulation.step_ns != 0 && self.executor.timers.first_ns() <= self.simulation.now_ns()
    }

    /// Decides which fiber runs, or that time passes. Returns `None` if no fiber is runnable.
    #[inline]
    pub(super) fn decide(&mut self) -> Option<ChoiceOutcome> {
        let heir = self.heir.take().filter(|_| self.left == SwitchReason::Park);
        let heir = heir.and_then(|heir| self.place(heir.task));
        let Some(chosen) = self.choose(self.left, self.last.or(heir))? else {
            self.simulation.record(CLOCK, self.left, false);
            return Some(ChoiceOutcome::Clock);
        };
        let tick = self.executor.ticks.get().is_some() && self.chooser.tick();
        self.simulation.record(self.numbers[chosen], self.left, tick);
        Some(ChoiceOutcome::Fiber(chosen, tick))
    }

    /// Returns `true` if the chooser may let time pass now, even while fibers are runnable.
    #[inline]
    pub(super) fn offers_clock(&self) -> bool {
        // In nearly all cases no timer is set.
        let is_set = self.executor.timers.first_ns() != u64::MAX;
        is_set && self.passes_time && self.next_timer_ns().is_some()
    }

    /// Advances the clock to the next timer, as the chooser decided.
    pub(super) fn pass_time(&mut self) {
        self.advance_to_timer();
        let (leave, at, touched) = (SwitchReason::Park, At::Start, Footprint::EVERYTHING);
        self.chooser.left(&SwitchEvent { fiber: CLOCK, context: 0, name: 0, leave, at, touched });
        (self.left, self.last) = (leave, None);
    }

    /// Chooses the index of a fiber, or the clock (`Some(None)`). Returns `None` if no fiber is
    /// runnable. A fiber that yielded is chosen only if no other fiber is runnable and the clock
    /// cannot be chosen.
    #[inline]
    pub(super) fn choose(
        &mut self,
        left: SwitchReason,
        last: Option<usize>,
    ) -> Option<Option<usize>> {
        let count = self.runnable.len();
        let offers_clock = self.offers_clock();
        if count < 2 && !offers_clock {
            return count.checked_sub(1).map(Some);
        }
        let (fibers, running) = match last {
            Some(last) if left == SwitchReason::Yield && count > 1 => {
                self.runnable.swap(last, count - 1);
                self.numbers.swap(last, count - 1);
                (count - 1, None)
            }
            _ => (count, last),
        };
        if offers_clock && count > 0 {
            return Some(self.choose_or_pass(fibers, running));
        }
        (count > 0).then(|| Some(self.chooser.choose(&self.numbers[..fibers], running)))
    }

    /// Chooses among the first `fibers` fibers and the clock.
    #[cold]
    fn choose_or_pass(&mut self, fibers: usize, running: Option<usize>) -> Option<usize> {
        // The clock replaces the fiber that yielded, or the last fiber.
        self.numbers.push(CLOCK);
        let last = self.numbers.len() - 1;
        self.numbers.swap(fibers, last);
        let chosen = self.chooser.choose(&self.numbers[..=fibers], running);
        self.numbers.swap(fibers, last);
        self.numbers.pop();
        (chosen < fibers).then_some(chosen)
    }

    /// Returns the time at which the next timer expires, unless that time is too far off to wait
    /// for.
    pub(super) fn next_timer_ns(&self) -> Option<u64> {
        let next_ns = self.executor.timers.first_ns();
        let farthest = self.executor.options.farthest.map_or(u64::MAX, |farthest| {
            let farthest_ns = u64::try_from(farthest.as_nanos()).unwrap_or(u64::MAX);
            self.simulation.now_ns().saturating_add(farthest_ns)
        });
        (next_ns != u64::MAX && next_ns <= farthest).then_some(next_ns)
    }

    /// Advances the clock to the next timer. Returns `false` if no timer is set.
    fn advance_to_timer(&self) -> bool {
        let Some(next_ns) = self.next_timer_ns() else { return false };
        let now_ns = next_ns.max(self.simulation.now_ns());
        self.simulation.clock_ns.store(now_ns, Ordering::Relaxed);
        true
    }

    /// If no fiber is runnable, advances the clock to the next timer, or waits for an outside
    /// event. Returns `false` if neither can make a fiber runnable.
    pub(super) fn wait(&self) -> bool {
        if self.advance_to_timer() {
            if self.simulation.step_ns == 0 {
                self.executor.timers.run_first(self.simulation.now());
            }
            return true;
        }
        self.executor.wait_outside(self.worker)
    }
}

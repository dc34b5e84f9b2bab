//! Decides for the simulated executor at each point, and remembers what came of it: [`Guide`].

#![allow(unsafe_code, reason = "a guide outlives the runs in which it decides")]

use std::ops::{Deref, DerefMut};

use tontine_unix_sim::internal::{CLOCK, Chooser, SwitchEvent, SwitchReason, call_of};

use super::dice::Dice;
use super::interleaving::Step;
use super::order::{Order, gives_way};
use super::path::Path;
use super::schedule::Schedule;

/// Who decides.
#[derive(Debug)]
enum Policy {
    /// Each schedule in its turn.
    All(Path),
    /// Dice, and preemptions that they have made.
    Dice(Dice, u32),
    /// A schedule that is given; how many of its turns were had, and preemptions.
    Given(Schedule, usize, u32),
}

/// Decides in one run after another.
#[derive(Debug)]
pub(crate) struct Guide {
    policy: Policy,
    order: Order,
    /// Decisions of this run.
    decisions: u32,
    /// The next one at which who runs may not go on.
    next: u32,
    /// Where it departed from what would have been chosen.
    taken: Schedule,
    /// What each fiber has done in this run, as a hash, by its number, if that is wanted.
    histories: Option<Vec<u64>>,
    /// Whether who left last lets others run first.
    gave_way: bool,
    /// What happened, if it is to be told.
    steps: Option<Vec<Step>>,
}

impl Guide {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            order: Order::default(),
            decisions: 0,
            next: 0,
            taken: Schedule::default(),
            histories: None,
            gave_way: false,
            steps: None,
        }
    }

    /// One that goes through all schedules of at most so many preemptions.
    pub(super) fn all(bound: u32, reduces: bool) -> Self {
        let mut path = Path::default();
        path.begin(bound, reduces);
        Self::new(Policy::All(path))
    }

    /// One that throws dice.
    pub(super) fn sampled() -> Self {
        Self::new(Policy::Dice(Dice::new(0), 0))
    }

    /// One that follows a schedule.
    pub(super) fn given(schedule: &Schedule) -> Self {
        Self::new(Policy::Given(schedule.clone(), 0, 0))
    }

    /// The next run is decided by dice with this seed.
    pub(super) fn seed(&mut self, seed: u64) {
        self.policy = Policy::Dice(Dice::new(seed), 0);
        self.begin_run();
    }

    /// Goes on to the next of all schedules; false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.begin_run();
        match &mut self.policy {
            Policy::All(path) => path.advance(),
            _ => false,
        }
    }

    fn begin_run(&mut self) {
        self.order.clear();
        (self.decisions, self.next) = (0, 0);
        self.taken.turns.clear();
        self.gave_way = false;
        if let Some(histories) = &mut self.histories {
            histories.clear();
        }
    }

    /// From now on it remembers what each run comes to.
    pub(super) fn with_classes(mut self) -> Self {
        self.histories = Some(Vec::new());
        self
    }

    /// From now on it remembers what happens.
    pub(super) fn with_steps(mut self) -> Self {
        self.steps = Some(Vec::new());
        self
    }

    /// The schedule of this run.
    pub(super) fn taken(&self) -> &Schedule {
        &self.taken
    }

    /// How often this run took the processor from who could go on.
    pub(super) fn preemptions(&self) -> u32 {
        match &self.policy {
            Policy::All(path) => path.spent(),
            Policy::Dice(_, preemptions) | Policy::Given(.., preemptions) => *preemptions,
        }
    }

    /// Whether this run comes to the same as another one.
    pub(super) fn repeats(&self) -> bool {
        matches!(&self.policy, Policy::All(path) if path.is_over())
    }

    /// A hash of what everybody did: the same for schedules that come to the same.
    pub(super) fn class(&self) -> u64 {
        let mix = |all: u64, (fiber, history): (usize, &u64)| {
            let one = history.wrapping_add(fiber as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (all.rotate_left(13) ^ one).wrapping_mul(0x0000_0100_0000_01b3)
        };
        self.histories.iter().flatten().enumerate().fold(0, mix)
    }

    /// What happened.
    pub(super) fn steps(&mut self) -> Vec<Step> {
        self.steps.take().unwrap_or_default()
    }

    fn note(&mut self, left: &SwitchEvent) {
        if let Some(histories) = &mut self.histories {
            let place = left.fiber as usize;
            if histories.len() <= place {
                histories.resize(place + 1, 0);
            }
            let history = &mut histories[place];
            let step = left.touched.hash() ^ (left.at.hash() << 8 | left.leave as u64);
            *history = (history.rotate_left(23) ^ step).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(steps) = &mut self.steps {
            // A fiber that has ended has let go of its thread.
            let is_there = left.leave != SwitchReason::End && left.leave != SwitchReason::Overflow;
            // SAFETY: the fiber has not ended.
            let call = if is_there { unsafe { call_of(left.context) } } else { None };
            steps.push(Step { left: *left, call, decision: self.decisions });
        }
    }

    /// Whether each step is told.
    #[inline]
    fn notes(&self) -> bool {
        self.histories.is_some() || self.steps.is_some()
    }

    #[inline]
    fn stays(&mut self, several: bool) -> bool {
        if self.notes() || (several && self.decisions + 1 >= self.next) {
            return false;
        }
        self.decisions += u32::from(several);
        true
    }

    /// All schedules have no choice where something is handed over: nobody else is concerned.
    fn hands_over(&mut self, several: bool) -> bool {
        let is_choice = several && !matches!(self.policy, Policy::All(_));
        if is_choice && self.decisions + 1 >= self.next {
            return false;
        }
        self.decisions += u32::from(several);
        true
    }

    #[inline]
    fn left(&mut self, left: &SwitchEvent) {
        if self.notes() {
            self.note(left);
        }
        self.gave_way = gives_way(left);
        self.order.left(left, self.gave_way);
        if let Policy::All(path) = &mut self.policy {
            path.left(left, self.gave_way);
        }
    }

    fn choose(&mut self, runnable: &[u32], running: Option<u32>) -> u32 {
        self.decisions += 1;
        let fiber = self.choose_now(runnable, running);
        self.next = match &self.policy {
            Policy::All(path) => path.next_decision(),
            Policy::Dice(dice, _) => dice.next(),
            Policy::Given(schedule, had, _) => {
                schedule.turns.get(*had).map_or(u32::MAX, |turn| turn.0)
            }
        };
        fiber
    }

    fn choose_now(&mut self, runnable: &[u32], running: Option<u32>) -> u32 {
        if let Some(running) = running
            && !self.gave_way
        {
            let stays = match &mut self.policy {
                Policy::All(path) => path.leaves_alone(),
                Policy::Dice(dice, _) => !dice.interrupts(self.decisions),
                Policy::Given(schedule, had, _) => {
                    schedule.turns.get(*had).is_none_or(|turn| turn.0 != self.decisions)
                }
            };
            if stays && !self.order.waits(running) {
                return running;
            }
        }
        self.order.decide(runnable, running);
        let Order { ready, goes_on, .. } = &self.order;
        let first = ready[0];
        let (fiber, preemptions) = match &mut self.policy {
            Policy::All(path) => (path.choose(&self.order, self.decisions), None),
            Policy::Dice(dice, preemptions) => {
                // Time passes as a preemption only.
                let clocks = u32::from(!goes_on && ready.last() == Some(&CLOCK));
                let others = ready.len() as u32 - u32::from(*goes_on) - clocks;
                let fiber = match goes_on {
                    _ if others == 0 => first,
                    true => ready[1 + dice.below(others) as usize],
                    false => ready[dice.below(others) as usize],
                };
                (fiber, Some(preemptions))
            }
            Policy::Given(schedule, had, preemptions) => {
                let turn = schedule.turns.get(*had);
                let fiber = match turn {
                    Some((decision, fiber)) if *decision == self.decisions => {
                        *had += 1;
                        if runnable.contains(fiber) { *fiber } else { first }
                    }
                    _ => first,
                };
                (fiber, Some(preemptions))
            }
        };
        if let Some(preemptions) = preemptions {
            *preemptions += u32::from(fiber == CLOCK || (*goes_on && fiber != first));
        }
        if fiber != first {
            self.taken.turns.push((self.decisions, fiber));
        }
        fiber
    }
}

/// Keeps a guide where it is, while it is lent to runs.
#[derive(Debug)]
pub(super) struct Kept(*mut Guide);

impl Kept {
    pub(super) fn new(guide: Guide) -> Self {
        Self(Box::into_raw(Box::new(guide)))
    }

    /// Lends it to runs. With `passes_time` it may let time pass while fibers are runnable.
    ///
    /// # Safety
    ///
    /// They are on this thread, and over before this is dropped. Nobody uses the guide while one is
    /// under way.
    pub(super) unsafe fn lend(&self, passes_time: bool) -> Guided {
        Guided { guide: self.0, passes_time }
    }
}

impl Deref for Kept {
    type Target = Guide;

    fn deref(&self) -> &Guide {
        // SAFETY: made of a box, and no run is under way, says `Kept::lend`.
        unsafe { &*self.0 }
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Guide {
        // SAFETY: as above.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: made of a box, once; no run is left to use it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A guide that outlives the run in which it decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guided {
    guide: *mut Guide,
    passes_time: bool,
}

// SAFETY: a run has one thread, which made the guide, says `Kept::lend`.
unsafe impl Send for Guided {}
// SAFETY: as above.
unsafe impl Sync for Guided {}

impl Chooser for Guided {
    fn passes_time(&self) -> bool {
        self.passes_time
    }

    fn decides_in_place(&self) -> bool {
        true
    }

    fn stretch(&mut self) -> u32 {
        1
    }

    fn choose(&mut self, runnable: &[u32], running: Option<usize>) -> usize {
        // SAFETY: the guide was lent for the run that asks.
        let guide = unsafe { &mut *self.guide };
        let fiber = guide.choose(runnable, running.map(|at| runnable[at]));
        runnable.iter().position(|one| *one == fiber).unwrap_or(0)
    }

    fn compares(&self) -> bool {
        // SAFETY: as above.
        matches!(unsafe { &(*self.guide).policy }, Policy::All(_))
    }

    fn stays(&mut self, several: bool) -> bool {
        // SAFETY: as above.
        unsafe { (*self.guide).stays(several) }
    }

    fn hands_over(&mut self, several: bool) -> bool {
        // SAFETY: as above.
        unsafe { (*self.guide).hands_over(several) }
    }

    fn left(&mut self, left: &SwitchEvent) {
        // SAFETY: as above.
        unsafe { (*self.guide).left(left) }
    }
}

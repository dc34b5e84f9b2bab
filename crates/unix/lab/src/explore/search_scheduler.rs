//! The scheduler that decides for the simulated executor at each point and records the run:
//! [`SearchScheduler`].

#![allow(unsafe_code, reason = "a guide outlives the runs in which it decides")]

use std::ops::{Deref, DerefMut};

use tontine_unix_sim::internal::{CLOCK, Chooser, SwitchEvent, SwitchReason, call_of};

use super::interleaving::Segment;
use super::order::{ReadyOrder, yields};
use super::preemption_sampler::PreemptionSampler;
use super::schedule::Schedule;
use super::search_tree::SearchTree;

/// The source of decisions.
#[derive(Debug)]
enum Policy {
    /// The search through all schedules.
    All(SearchTree),
    /// Random choices, with the number of preemptions so far.
    PreemptionSampler(PreemptionSampler, u32),
    /// A given schedule, with the number of departures taken and the number of preemptions so far.
    Given(Schedule, usize, u32),
}

/// A scheduler for any number of runs, one after another.
#[derive(Debug)]
pub(crate) struct SearchScheduler {
    policy: Policy,
    order: ReadyOrder,
    /// Number of decisions in this run.
    decisions: u32,
    /// The next decision at which the running fiber may not continue without a choice.
    next: u32,
    /// The departures of this run from the default choice.
    taken: Schedule,
    /// For each fiber, indexed by its number, a hash of its steps in this run, if requested.
    histories: Option<Vec<u64>>,
    /// `true` if the fiber that last left the processor lets other fibers run first.
    yielded: bool,
    /// The steps of this run, if requested.
    steps: Option<Vec<Segment>>,
}

impl SearchScheduler {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            order: ReadyOrder::default(),
            decisions: 0,
            next: 0,
            taken: Schedule::default(),
            histories: None,
            yielded: false,
            steps: None,
        }
    }

    /// Creates a scheduler that searches all schedules with at most `bound` preemptions.
    pub(super) fn all(bound: u32, reduces: bool) -> Self {
        let mut path = SearchTree::default();
        path.begin(bound, reduces);
        Self::new(Policy::All(path))
    }

    /// Creates a scheduler that samples schedules.
    pub(super) fn sampled() -> Self {
        Self::new(Policy::PreemptionSampler(PreemptionSampler::new(0), 0))
    }

    /// Creates a scheduler that follows a given schedule.
    pub(super) fn given(schedule: &Schedule) -> Self {
        Self::new(Policy::Given(schedule.clone(), 0, 0))
    }

    /// Sets the seed of the random choices for the next run.
    pub(super) fn seed(&mut self, seed: u64) {
        self.policy = Policy::PreemptionSampler(PreemptionSampler::new(seed), 0);
        self.begin_run();
    }

    /// Advances to the next schedule. Returns `false` if no schedule is left.
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
        self.yielded = false;
        if let Some(histories) = &mut self.histories {
            histories.clear();
        }
    }

    /// Enables recording of the equivalence class of each run.
    pub(super) fn with_classes(mut self) -> Self {
        self.histories = Some(Vec::new());
        self
    }

    /// Enables recording of the steps of each run.
    pub(super) fn with_steps(mut self) -> Self {
        self.steps = Some(Vec::new());
        self
    }

    /// Returns the schedule of this run.
    pub(super) fn taken(&self) -> &Schedule {
        &self.taken
    }

    /// Returns the number of times that this run took the processor from a fiber that could
    /// continue.
    pub(super) fn preemptions(&self) -> u32 {
        match &self.policy {
            Policy::All(path) => path.spent(),
            Policy::PreemptionSampler(_, preemptions) | Policy::Given(.., preemptions) => {
                *preemptions
            }
        }
    }

    /// Returns `true` if this run is equivalent to another.
    pub(super) fn repeats(&self) -> bool {
        matches!(&self.policy, Policy::All(path) if path.is_over())
    }

    /// Returns a hash of the steps of all fibers, which is equal for equivalent schedules.
    pub(super) fn class(&self) -> u64 {
        let mix = |all: u64, (fiber, history): (usize, &u64)| {
            let one = history.wrapping_add(fiber as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (all.rotate_left(13) ^ one).wrapping_mul(0x0000_0100_0000_01b3)
        };
        self.histories.iter().flatten().enumerate().fold(0, mix)
    }

    /// Returns the recorded steps.
    pub(super) fn steps(&mut self) -> Vec<Segment> {
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
            // A fiber that has ended no longer belongs to a thread.
            let is_there = left.leave != SwitchReason::End && left.leave != SwitchReason::Overflow;
            // SAFETY: the fiber has not ended.
            let call = if is_there { unsafe { call_of(left.context) } } else { None };
            steps.push(Segment { left: *left, call, decision: self.decisions });
        }
    }

    /// Returns `true` if each step must be reported.
    #[inline]
    fn notes(&self) -> bool {
        self.histories.is_some() || self.steps.is_some()
    }

    #[inline]
    fn keeps_running(&mut self, several: bool) -> bool {
        if self.notes() || (several && self.decisions + 1 >= self.next) {
            return false;
        }
        self.decisions += u32::from(several);
        true
    }

    /// In a search through all schedules a handover is not a choice, because it concerns no other
    /// fiber.
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
        self.yielded = yields(left);
        self.order.left(left, self.yielded);
        if let Policy::All(path) = &mut self.policy {
            path.left(left, self.yielded);
        }
    }

    fn choose(&mut self, runnable: &[u32], running: Option<u32>) -> u32 {
        self.decisions += 1;
        let fiber = self.choose_now(runnable, running);
        self.next = match &self.policy {
            Policy::All(path) => path.next_decision(),
            Policy::PreemptionSampler(sampler, _) => sampler.next(),
            Policy::Given(schedule, had, _) => {
                schedule.turns.get(*had).map_or(u32::MAX, |turn| turn.0)
            }
        };
        fiber
    }

    fn choose_now(&mut self, runnable: &[u32], running: Option<u32>) -> u32 {
        if let Some(running) = running
            && !self.yielded
        {
            let is_kept = match &mut self.policy {
                Policy::All(path) => path.leaves_alone(),
                Policy::PreemptionSampler(sampler, _) => !sampler.interrupts(self.decisions),
                Policy::Given(schedule, had, _) => {
                    schedule.turns.get(*had).is_none_or(|turn| turn.0 != self.decisions)
                }
            };
            if is_kept && !self.order.waits(running) {
                return running;
            }
        }
        self.order.decide(runnable, running);
        let ReadyOrder { ready, continues, .. } = &self.order;
        let first = ready[0];
        let (fiber, preemptions) = match &mut self.policy {
            Policy::All(path) => (path.choose(&self.order, self.decisions), None),
            Policy::PreemptionSampler(sampler, preemptions) => {
                // Only a preemption lets time pass.
                let clocks = u32::from(!continues && ready.last() == Some(&CLOCK));
                let others = ready.len() as u32 - u32::from(*continues) - clocks;
                let fiber = match continues {
                    _ if others == 0 => first,
                    true => ready[1 + sampler.below(others) as usize],
                    false => ready[sampler.below(others) as usize],
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
            *preemptions += u32::from(fiber == CLOCK || (*continues && fiber != first));
        }
        if fiber != first {
            self.taken.turns.push((self.decisions, fiber));
        }
        fiber
    }
}

/// A scheduler that stays at its address while it is lent to runs.
#[derive(Debug)]
pub(super) struct LentScheduler(*mut SearchScheduler);

impl LentScheduler {
    pub(super) fn new(guide: SearchScheduler) -> Self {
        Self(Box::into_raw(Box::new(guide)))
    }

    /// Lends the scheduler to runs. With `passes_time`, it may let time pass while fibers are
    /// runnable.
    ///
    /// # Safety
    /// 1. The runs are on this thread.
    /// 2. The runs end before `self` is dropped.
    /// 3. The scheduler is not accessed through `self` during a run.
    pub(super) unsafe fn lend(&self, passes_time: bool) -> Guided {
        Guided { guide: self.0, passes_time }
    }
}

impl Deref for LentScheduler {
    type Target = SearchScheduler;

    fn deref(&self) -> &SearchScheduler {
        // SAFETY: the pointer comes from a box, and no run is in progress, by the contract of
        // `LentScheduler::lend`.
        unsafe { &*self.0 }
    }
}

impl DerefMut for LentScheduler {
    fn deref_mut(&mut self) -> &mut SearchScheduler {
        // SAFETY: as above.
        unsafe { &mut *self.0 }
    }
}

impl Drop for LentScheduler {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, is freed only here, and no run still uses it.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// A run's access to a scheduler, which outlives the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Guided {
    guide: *mut SearchScheduler,
    passes_time: bool,
}

// SAFETY: by the contract of `LentScheduler::lend`, the run has one thread, which created the
// scheduler.
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
        // SAFETY: the scheduler was lent for the run that makes this call.
        let guide = unsafe { &mut *self.guide };
        let fiber = guide.choose(runnable, running.map(|at| runnable[at]));
        runnable.iter().position(|one| *one == fiber).unwrap_or(0)
    }

    fn compares(&self) -> bool {
        // SAFETY: as above.
        matches!(unsafe { &(*self.guide).policy }, Policy::All(_))
    }

    fn keeps_running(&mut self, several: bool) -> bool {
        // SAFETY: as above.
        unsafe { (*self.guide).keeps_running(several) }
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

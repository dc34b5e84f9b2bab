//! The search through all schedules of a program or a scenario, up to a bound of preemptions:
//! [`Exploration`].
//!
//! A system on the simulated executor runs repeatedly, each time with other choices at its points:
//! locks, system calls, sleeps. A *preemption* takes the processor from a fiber that could
//! continue; a switch is free if the fiber sleeps, spins, yields or ends. All schedules without a
//! preemption run first, then the schedules with at most one preemption, and so on. The first
//! violation found therefore has the fewest preemptions.
//!
//! ```
//! use tontine_unix_lab::explore::Exploration;
//! use tontine_unix::{Signal, Sys};
//!
//! // Waits once for two children, and assumes that the first one has ended.
//! let exploration = Exploration::new(|| {
//!     |sys: &dyn Sys| {
//!         let first = sys.fork(|_| 0).expect("fork succeeds");
//!         sys.fork(|_| 0).expect("fork succeeds");
//!         let waited = sys.wait().expect("a child exists");
//!         i32::from(waited.pid != first)
//!     }
//! });
//! let violation = exploration.run().violation.expect("the second may end first");
//! let schedule = violation.schedule.to_string().parse().expect("it was printed");
//! assert_eq!(exploration.replay(&schedule).violation, Some(violation.what));
//! ```
//!
//! `search_scheduler.rs` decides at each point; `search_tree.rs` searches all schedules and prunes
//! equivalent ones; `order.rs` defines the order in which fibers are tried; `preemption_sampler.rs`
//! samples schedules; `subject.rs` runs and judges the subject; `schedule.rs` and `interleaving.rs`
//! print texts. The executor carries out the choices, and `tontine_unix_sim` defines the system.
#![allow(unsafe_code, reason = "lends guides to runs")]

mod interleaving;
mod order;
mod preemption_sampler;
mod schedule;
mod search_scheduler;
mod search_tree;
mod subject;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

pub use schedule::{ParseScheduleError, Schedule};
use search_scheduler::{LentScheduler, SearchScheduler};
use subject::{ExplorationSubject, RunVerdict};
use tontine_unix::Sys;
use tontine_unix_sim::internal::{Reused, SignalStack};
use tontine_unix_sim::{Builder, LockingMode, Virtual};

use crate::scenario::{Scenario, ScenarioRunner};

/// Runs a program or a scenario under many schedules.
pub struct Exploration {
    subject: ExplorationSubject,
    configure: Box<dyn Fn(Builder) -> Builder>,
    mode: LockingMode,
    processors: Option<usize>,
    preemption_bound: u32,
    max_steps: u64,
    max_schedules: u64,
    reduces: bool,
    idle_clock: bool,
}

/// The result of [`Exploration::run`] or [`Exploration::sample`].
#[derive(Debug, Clone)]
pub struct ExplorationReport {
    /// Number of runs.
    pub schedules: u64,
    /// Number of runs for each bound of preemptions, from 0. Runs that turned out to be equivalent
    /// to other runs also count. The search starts from scratch at each bound.
    pub by_bound: Vec<u64>,
    /// `true` if every schedule up to the bound, or an equivalent schedule, was run. Always `false`
    /// for a sample.
    pub complete: bool,
    /// The first run that failed.
    pub violation: Option<Violation>,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Description of the failure.
    pub what: String,
    /// The schedule that reproduces the run: see [`Exploration::replay`].
    pub schedule: Schedule,
    /// The seed that found the failure, in a sample.
    pub seed: Option<u64>,
    /// Number of times that a fiber that could have continued lost the processor.
    pub preemptions: u32,
    /// The fibers that ran, turn by turn, and the point at which each turn ended.
    pub interleaving: String,
}

/// The result of [`Exploration::replay`] or [`Exploration::replay_seed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// Description of the failure; `None` if the run held.
    pub violation: Option<String>,
    /// The schedule, without the choices that could not be followed.
    pub schedule: Schedule,
    /// Number of times that a fiber that could have continued lost the processor.
    pub preemptions: u32,
    /// The fibers that ran, turn by turn, and the point at which each turn ended.
    pub interleaving: String,
}

impl Exploration {
    /// Maximum number of steps of a run, unless [`Exploration::max_steps`] sets another value.
    pub const DEFAULT_MAX_STEPS: u64 = 20_000;

    /// Creates the exploration of a program; `make` returns the program for each run. A run fails
    /// if the program exits with a status other than 0. The defaults are mode
    /// [`Uniprocessor`](LockingMode::Uniprocessor) and two preemptions. The other modes also
    /// explore the kernel, with many more schedules.
    pub fn new<P>(make: impl Fn() -> P + 'static) -> Self
    where
        P: FnOnce(&dyn Sys) -> i32 + Send + 'static,
    {
        Self::of(ExplorationSubject::Program(Box::new(move || Box::new(make()))))
    }

    /// Creates the exploration of a scenario. A run fails if an expectation of the scenario fails.
    pub fn scenario(scenario: &Scenario) -> Self {
        Self::of(ExplorationSubject::Scenario(Box::new(ScenarioRunner::sparse(scenario))))
    }

    fn of(subject: ExplorationSubject) -> Self {
        Self {
            subject,
            configure: Box::new(|builder| builder),
            mode: LockingMode::Uniprocessor,
            processors: None,
            preemption_bound: 2,
            max_steps: Self::DEFAULT_MAX_STEPS,
            max_schedules: u64::MAX,
            reduces: true,
            idle_clock: false,
        }
    }

    /// Sets the locking mode, which determines which locks the system has and where its calls run.
    #[must_use]
    pub fn mode(mut self, mode: LockingMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the number of processors, which is 1 in mode
    /// [`Uniprocessor`](LockingMode::Uniprocessor) and by default 2 in the other modes.
    #[must_use]
    pub fn processors(mut self, processors: usize) -> Self {
        self.processors = Some(processors);
        self
    }

    /// Sets a function that configures the system further, for example with programs or limits.
    #[must_use]
    pub fn configure(mut self, configure: impl Fn(Builder) -> Builder + 'static) -> Self {
        self.configure = Box::new(configure);
        self
    }

    /// Sets the maximum number of preemptions of a run. The default is 2.
    #[must_use]
    pub fn preemption_bound(mut self, preemptions: u32) -> Self {
        self.preemption_bound = preemptions;
        self
    }

    /// Sets the maximum number of steps: a longer run counts as endless. The default is
    /// [`Exploration::DEFAULT_MAX_STEPS`].
    #[must_use]
    pub fn max_steps(mut self, steps: u64) -> Self {
        self.max_steps = steps;
        self
    }

    /// Sets the maximum number of runs. By default the number is not limited.
    #[must_use]
    pub fn max_schedules(mut self, schedules: u64) -> Self {
        self.max_schedules = schedules;
        self
    }

    /// Sets whether the search prunes schedules that are equivalent to others. The default is
    /// `true`.
    #[must_use]
    pub fn reduced(mut self, reduced: bool) -> Self {
        self.reduces = reduced;
        self
    }

    /// Sets whether time passes only while no thread is runnable, for programs that rely on a timer
    /// not expiring soon. The default is `false`: time may pass at any point, as a preemption.
    #[must_use]
    pub fn idle_clock(mut self, idle_clock: bool) -> Self {
        self.idle_clock = idle_clock;
        self
    }

    /// Runs all schedules up to the bound, in ascending order of preemptions, until one fails.
    pub fn run(&self) -> ExplorationReport {
        self.run_all(|guide| guide, |_| {})
    }

    /// Returns the equivalence classes of the schedules up to the bound, as hashes, each with a
    /// schedule of the class. The classes are the same with and without pruning. For tests only.
    #[doc(hidden)]
    pub fn classes(&self) -> (ExplorationReport, BTreeMap<u64, Schedule>) {
        let mut classes = BTreeMap::new();
        let outcome = self.run_all(SearchScheduler::with_classes, |guide| {
            if !guide.repeats() {
                classes.entry(guide.class()).or_insert_with(|| guide.taken().clone());
            }
        });
        (outcome, classes)
    }

    fn run_all(
        &self,
        with: fn(SearchScheduler) -> SearchScheduler,
        mut each: impl FnMut(&SearchScheduler),
    ) -> ExplorationReport {
        let mut outcome = ExplorationReport {
            schedules: 0,
            by_bound: Vec::new(),
            complete: true,
            violation: None,
        };
        let (reused, _signal_stack) = (Reused::default(), SignalStack::install());
        for bound in 0..=self.preemption_bound {
            let mut guide = LentScheduler::new(with(SearchScheduler::all(bound, self.reduces)));
            let system = self.system(&guide, Some(&reused));
            outcome.by_bound.push(0);
            loop {
                if outcome.schedules == self.max_schedules {
                    outcome.complete = false;
                    return outcome;
                }
                let seen = self.subject.run(&system);
                outcome.schedules += 1;
                outcome.by_bound[bound as usize] += 1;
                each(&guide);
                if seen.wrong.is_some() {
                    outcome.complete = false;
                    outcome.violation = Some(self.violation(&guide, seen, None));
                    return outcome;
                }
                if !guide.advance() {
                    break;
                }
            }
        }
        outcome
    }

    /// Runs randomly chosen schedules until one fails: one schedule for each of `seeds` seeds,
    /// starting at `first`.
    pub fn sample(&self, first: u64, seeds: u64) -> ExplorationReport {
        let mut outcome = ExplorationReport {
            schedules: 0,
            by_bound: Vec::new(),
            complete: false,
            violation: None,
        };
        let mut guide = LentScheduler::new(SearchScheduler::sampled());
        let (reused, _signal_stack) = (Reused::default(), SignalStack::install());
        let system = self.system(&guide, Some(&reused));
        for seed in first..first.saturating_add(seeds) {
            guide.seed(seed);
            let seen = self.subject.run(&system);
            outcome.schedules += 1;
            if seen.wrong.is_some() {
                outcome.violation = Some(self.violation(&guide, seen, Some(seed)));
                break;
            }
        }
        outcome
    }

    /// Runs one schedule, and reports the run regardless of whether it fails or holds.
    pub fn replay(&self, schedule: &Schedule) -> ReplayReport {
        self.describe(SearchScheduler::given(schedule))
    }

    /// Runs the schedule that [`Exploration::sample`] chooses with this seed, and reports the run.
    pub fn replay_seed(&self, seed: u64) -> ReplayReport {
        let mut guide = SearchScheduler::sampled();
        guide.seed(seed);
        self.describe(guide)
    }

    /// Makes one run with the scheduler's decisions, and reports it.
    fn describe(&self, guide: SearchScheduler) -> ReplayReport {
        let mut guide = LentScheduler::new(guide.with_steps());
        let seen = self.subject.run(&self.system(&guide, None));
        let name =
            |pid| seen.names.iter().find(|(one, _)| *one == pid).map(|(_, name)| name.clone());
        ReplayReport {
            violation: seen.wrong,
            schedule: guide.taken().clone(),
            preemptions: guide.preemptions(),
            interleaving: interleaving::describe(&guide.steps(), name),
        }
    }

    /// Returns the violation that the scheduler found. Runs the schedule again to record the
    /// interleaving.
    fn violation(&self, guide: &SearchScheduler, seen: RunVerdict, seed: Option<u64>) -> Violation {
        let schedule = guide.taken().clone();
        let what = seen.wrong.unwrap_or_default();
        let again = self.replay(&schedule);
        let interleaving = if again.violation.as_ref() == Some(&what) {
            again.interleaving
        } else {
            "the replay of its schedule had another result: the program depends on something \
             outside the system
"
            .to_owned()
        };
        Violation { what, schedule, seed, preemptions: guide.preemptions(), interleaving }
    }

    /// Builds a system in whose consecutive runs the scheduler decides.
    fn system(&self, guide: &LentScheduler, reused: Option<&Reused>) -> Virtual {
        let usual = if self.mode == LockingMode::Uniprocessor { 1 } else { 2 };
        let builder = Virtual::builder()
            .mode(self.mode)
            .processors(self.processors.unwrap_or(usual))
            .pids(PIDS)
            .stop_at(self.max_steps);
        // SAFETY: a run is over when `ExplorationSubject::run` returns; until then the callers of
        // this function do not access the scheduler, and they keep the scheduler alive at least as
        // long as the system.
        let guided = unsafe { guide.lend(!self.idle_clock) };
        self.subject.system((self.configure)(builder).guided(guided, reused))
    }
}

/// The highest process number.
const PIDS: usize = 300;

impl Debug for Exploration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { mode, preemption_bound, .. } = self;
        f.debug_struct("Exploration")
            .field("mode", mode)
            .field("preemption_bound", preemption_bound)
            .finish_non_exhaustive()
    }
}

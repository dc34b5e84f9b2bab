//! All schedules of a program or a scenario, up to a bound of preemptions: [`Exploration`].
//!
//! A system on the simulated executor is run again and again, each time with other choices at its
//! points: locks, system calls, sleeps. A *preemption* takes the processor from who could go on;
//! who sleeps, spins, yields or ends makes way for nothing. First all schedules without a
//! preemption are run, then those with at most one, and so on: what is found first has the fewest.
//!
//! ```
//! use tontine_unix_lab::explore::Exploration;
//! use tontine_unix::{Signal, Sys};
//!
//! // Waits once for two children, and believes that both have ended.
//! let exploration = Exploration::new(|| {
//!     |sys: &dyn Sys| {
//!         let first = sys.fork(|_| 0).expect("there is room");
//!         sys.fork(|_| 0).expect("there is room");
//!         let waited = sys.wait().expect("there is a child");
//!         i32::from(waited.pid != first)
//!     }
//! });
//! let violation = exploration.run().violation.expect("the second may end first");
//! let schedule = violation.schedule.to_string().parse().expect("it was printed");
//! assert_eq!(exploration.replay(&schedule).expect("again").what, violation.what);
//! ```
//!
//! `guide.rs` decides at each point, `path.rs` goes through all schedules and leaves out those
//! that come to the same, `order.rs` says who is tried first, `dice.rs` samples; `subject.rs` runs
//! and judges, `schedule.rs` and `interleaving.rs` are what is printed. docs/explore.md has the
//! design. How the choices are carried out is the executor's business, what a system is the
//! machine's.
#![allow(unsafe_code, reason = "lends guides to runs")]

mod dice;
mod guide;
mod interleaving;
mod order;
mod path;
mod schedule;
mod subject;

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};

use guide::{Guide, Kept};
pub use schedule::{NoSchedule, Schedule};
use subject::{Seen, Subject};
use tontine_unix::Sys;
use tontine_unix_sim::internal::{Reused, SignalStack};
use tontine_unix_sim::{Builder, Mode, Virtual};

use crate::scenario::{Scenario, Stage};

/// Runs something under many schedules.
pub struct Exploration {
    subject: Subject,
    with: Box<dyn Fn(Builder) -> Builder>,
    mode: Mode,
    processors: Option<usize>,
    bound: u32,
    steps: u64,
    most: u64,
    reduces: bool,
    idle_clock: bool,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Runs.
    pub schedules: u64,
    /// Runs with at most as many preemptions as the place in this list says, those included that
    /// turned out to come to the same as others; each bound begins anew.
    pub by_bound: Vec<u64>,
    /// Whether every schedule up to the bound was seen, or one that comes to the same. Never of a
    /// sample.
    pub complete: bool,
    /// The first run that was wrong.
    pub violation: Option<Violation>,
}

/// A run that was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What was wrong.
    pub what: String,
    /// Runs it again.
    pub schedule: Schedule,
    /// The seed that found it, in a sample.
    pub seed: Option<u64>,
    /// How often it took the processor from who could go on.
    pub preemptions: u32,
    /// Who ran, up to which point, turn by turn.
    pub interleaving: String,
}

/// A run that followed a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// What was wrong, if anything.
    pub wrong: Option<String>,
    /// The schedule, without what cannot be followed.
    pub schedule: Schedule,
    /// How often it took the processor from who could go on.
    pub preemptions: u32,
    /// Who ran, up to which point, turn by turn.
    pub interleaving: String,
}

impl Exploration {
    /// Maximum number of steps of a run, unless [`Exploration::steps`] sets another.
    pub const STEPS: u64 = 20_000;

    /// Of a program that `make` makes for each run; its exit status is 0 if what is to hold has
    /// held. Begins with mode [`Parallel`](Mode::Parallel), two processors and two preemptions.
    pub fn new<P>(make: impl Fn() -> P + 'static) -> Self
    where
        P: FnOnce(&dyn Sys) -> i32 + Send + 'static,
    {
        Self::of(Subject::Program(Box::new(move || Box::new(make()))))
    }

    /// Of a scenario: what its text expects is to hold.
    pub fn scenario(scenario: &Scenario) -> Self {
        Self::of(Subject::Scenario(Box::new(Stage::sparse(scenario))))
    }

    fn of(subject: Subject) -> Self {
        Self {
            subject,
            with: Box::new(|builder| builder),
            mode: Mode::Parallel,
            processors: None,
            bound: 2,
            steps: Self::STEPS,
            most: u64::MAX,
            reduces: true,
            idle_clock: false,
        }
    }

    /// Which locks the system has, and where its calls run.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// How many processors it has; two, or one in mode [`Uniprocessor`](Mode::Uniprocessor), if
    /// nothing is said.
    #[must_use]
    pub fn processors(mut self, processors: usize) -> Self {
        self.processors = Some(processors);
        self
    }

    /// What the system has beside: programs, limits.
    #[must_use]
    pub fn with(mut self, with: impl Fn(Builder) -> Builder + 'static) -> Self {
        self.with = Box::new(with);
        self
    }

    /// At most so many preemptions.
    #[must_use]
    pub fn bound(mut self, preemptions: u32) -> Self {
        self.bound = preemptions;
        self
    }

    /// Sets the maximum number of steps: a longer run counts as one that does not end. The default
    /// is [`Exploration::STEPS`].
    #[must_use]
    pub fn steps(mut self, most: u64) -> Self {
        self.steps = most;
        self
    }

    /// At most so many runs.
    #[must_use]
    pub fn most(mut self, schedules: u64) -> Self {
        self.most = schedules;
        self
    }

    /// Whether schedules are left out that come to the same as others; true if nothing is said.
    #[must_use]
    pub fn reduced(mut self, reduced: bool) -> Self {
        self.reduces = reduced;
        self
    }

    /// Lets time pass only while no thread is runnable: for programs that rely on a timer being
    /// far off. False by default: then time may pass at any point, as a preemption.
    #[must_use]
    pub fn idle_clock(mut self, idle_clock: bool) -> Self {
        self.idle_clock = idle_clock;
        self
    }

    /// All schedules, those with the fewest preemptions first, until one is wrong.
    pub fn run(&self) -> Outcome {
        self.run_all(|guide| guide, |_| {})
    }

    /// What the schedules up to the bound come to, as hashes, and a schedule that comes to each:
    /// the same hashes with and without those that are left out. For tests.
    #[doc(hidden)]
    pub fn classes(&self) -> (Outcome, BTreeMap<u64, Schedule>) {
        let mut classes = BTreeMap::new();
        let outcome = self.run_all(Guide::with_classes, |guide| {
            if !guide.repeats() {
                classes.entry(guide.class()).or_insert_with(|| guide.taken().clone());
            }
        });
        (outcome, classes)
    }

    fn run_all(&self, with: fn(Guide) -> Guide, mut each: impl FnMut(&Guide)) -> Outcome {
        let mut outcome =
            Outcome { schedules: 0, by_bound: Vec::new(), complete: true, violation: None };
        let (reused, _signal_stack) = (Reused::default(), SignalStack::install());
        for bound in 0..=self.bound {
            let mut guide = Kept::new(with(Guide::all(bound, self.reduces)));
            let system = self.system(&guide, Some(&reused));
            outcome.by_bound.push(0);
            loop {
                if outcome.schedules == self.most {
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

    /// So many runs, each with choices by dice: the seeds from `first` on, until one is wrong.
    pub fn sample(&self, first: u64, seeds: u64) -> Outcome {
        let mut outcome =
            Outcome { schedules: 0, by_bound: Vec::new(), complete: false, violation: None };
        let mut guide = Kept::new(Guide::sampled());
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

    /// One run again: what was wrong with it, if anything.
    pub fn replay(&self, schedule: &Schedule) -> Option<Violation> {
        let Replayed { wrong, schedule, preemptions, interleaving } = self.follow(schedule);
        Some(Violation { what: wrong?, schedule, seed: None, preemptions, interleaving })
    }

    /// One run, and how it went, whether it was wrong or not.
    pub fn follow(&self, schedule: &Schedule) -> Replayed {
        self.told(Guide::given(schedule))
    }

    /// The run whose choices the dice make with this seed, as [`Exploration::sample`] has it, and
    /// how it went.
    pub fn follow_seed(&self, seed: u64) -> Replayed {
        let mut guide = Guide::sampled();
        guide.seed(seed);
        self.told(guide)
    }

    /// One run as the guide decides, and how it went.
    fn told(&self, guide: Guide) -> Replayed {
        let mut guide = Kept::new(guide.with_steps());
        let seen = self.subject.run(&self.system(&guide, None));
        let name =
            |pid| seen.names.iter().find(|(one, _)| *one == pid).map(|(_, name)| name.clone());
        Replayed {
            wrong: seen.wrong,
            schedule: guide.taken().clone(),
            preemptions: guide.preemptions(),
            interleaving: interleaving::told(&guide.steps(), name),
        }
    }

    /// The violation that the guide has met, by running it again.
    fn violation(&self, guide: &Guide, seen: Seen, seed: Option<u64>) -> Violation {
        let schedule = guide.taken().clone();
        let what = seen.wrong.unwrap_or_default();
        let again = self.replay(&schedule).filter(|again| again.what == what);
        let interleaving = again.map_or_else(
            || "the same choices came to something else: something outside is asked\n".to_owned(),
            |again| again.interleaving,
        );
        Violation { what, schedule, seed, preemptions: guide.preemptions(), interleaving }
    }

    /// A system in whose runs the guide decides, one after another.
    fn system(&self, guide: &Kept, reused: Option<&Reused>) -> Virtual {
        let usual = if self.mode == Mode::Uniprocessor { 1 } else { 2 };
        let builder = Virtual::builder()
            .mode(self.mode)
            .processors(self.processors.unwrap_or(usual))
            .pids(PIDS)
            .stop_at(self.steps);
        // SAFETY: a run is over when `Subject::run` returns, and nobody uses the guide meanwhile;
        // whoever asked keeps it as long as the system.
        let guided = unsafe { guide.lend(!self.idle_clock) };
        self.subject.system((self.with)(builder).guided(guided, reused))
    }
}

/// The highest number of a process.
const PIDS: usize = 300;

impl Debug for Exploration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { mode, bound, .. } = self;
        f.debug_struct("Exploration")
            .field("mode", mode)
            .field("bound", bound)
            .finish_non_exhaustive()
    }
}

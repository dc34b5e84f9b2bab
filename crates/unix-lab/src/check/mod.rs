//! A scenario on both backends in lock-step, and where they part: [`Checker`].
//!
//! Each thread of a scenario stands at a *gate* before each call. A conductor lets one through,
//! waits until the whole system is at rest, and lets the next one through; a seed and the threads'
//! names decide which. Both backends so take the same steps, and what the threads tell has to be
//! the same. docs/check.md has the whole of it.
//!
//! [`fibers`] conducts the virtual Unix, [`conductor`] real processes, in a [`keeper`]; [`gates`]
//! are theirs, and [`image`] is what they execute; what they tell stands in the [`log`].
//! [`trace`] is what either system did,
//! [`compare`](mod@compare) finds where two part.
//!
//! ```no_run
//! use tontine_unix_lab::check::{Checker, Comparison, Options};
//!
//! let scenario = "process main\n  raise TERM\n".parse()?;
//! let mut checker = Checker::new()?;
//! let compared = checker.check(&scenario, &Options::new())?;
//! assert!(matches!(compared, Comparison::Same(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compare;
mod conductor;
mod fibers;
mod fit;
mod gates;
mod image;
mod keeper;
mod log;
mod region;
mod rolls;
mod tasks;
mod text;
mod time;
mod trace;
mod typing;

use std::io;
use std::time::Duration;

pub use compare::{Difference, compare};
pub use trace::{Ending, Entry, Step, Trace, Waiting};

use crate::scenario::Scenario;
use conductor::Lost;
use keeper::{Keeper, Place};
use rolls::{Rolls, Search};
use tontine_unix_sim::{BuildError, Builder, Executor, Virtual};

/// How a scenario is run on both sides.
#[derive(Debug, Clone)]
pub struct Options {
    /// What chooses who is let through next.
    pub seed: u64,
    /// The virtual Unix: its mode, say. Executor, programs and numbers are the checker's.
    pub builder: Builder,
    /// After so many steps both runs are cut.
    pub most_steps: u32,
    /// How long the real run may take.
    pub patience: Duration,
    /// How many schedules of the virtual Unix are tried inside of the steps, where several threads
    /// are woken at once: the real one must be among them. What was the same before the step in
    /// which they part is kept from one to the next.
    pub schedules: u32,
}

impl Options {
    /// Seed 1, mode [`Parallel`](tontine_unix_sim::Mode::Parallel), 5,000 steps, 20 seconds, 2,048
    /// schedules.
    pub fn new() -> Self {
        Self {
            seed: 1,
            builder: Virtual::builder(),
            most_steps: 5_000,
            patience: Duration::from_secs(20),
            schedules: 2_048,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// What came of a comparison.
#[derive(Debug, Clone)]
pub enum Comparison {
    /// Both did this.
    Same(Trace),
    /// They part.
    Differs(Box<Difference>),
}

impl Comparison {
    /// Where they part, if they do.
    pub fn difference(&self) -> Option<&Difference> {
        match self {
            Self::Same(_) => None,
            Self::Differs(difference) => Some(difference),
        }
    }
}

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The scenario says something that cannot be compared.
    #[error("line {line}: cannot be compared: {why}")]
    Unfit {
        /// Where.
        line: u32,
        /// What.
        why: &'static str,
    },
    /// The virtual Unix that was asked for cannot be.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The real run came to no ending, not even to rest.
    #[error("the run on Linux was given up: {0}")]
    Lost(String),
    /// Timers did not end in their turn, for steps took too long, however far they were apart.
    #[error("timers on Linux ended before steps that others could take: is the machine busy?")]
    Late,
    /// The keeper of real processes is gone.
    #[error("the keeper of real processes failed: {0}")]
    Keeper(#[from] io::Error),
}

/// Why real processes cannot be conducted here.
#[derive(Debug, thiserror::Error)]
#[error("real processes cannot be kept: {0}")]
pub struct Unavailable(#[from] io::Error);

/// Runs scenarios on both backends, one after another. It owns the keeper of the real processes.
#[derive(Debug)]
pub struct Checker {
    keeper: Keeper,
}

impl Checker {
    /// Starts the keeper, in a PID namespace of its own where the system has one for it.
    ///
    /// # Errors
    /// The system refuses a process.
    pub fn new() -> Result<Self, Unavailable> {
        match Keeper::start(Place::Namespace) {
            Ok(keeper) => Ok(Self { keeper }),
            Err(_) => Self::without_namespace(),
        }
    }

    /// The same without a namespace: only the keeper's own descendants are killed in the end, and
    /// scenarios that could reach other processes are refused.
    ///
    /// # Errors
    /// The system refuses a process.
    pub fn without_namespace() -> Result<Self, Unavailable> {
        Ok(Self { keeper: Keeper::start(Place::Open)? })
    }

    /// Whether the real processes are in a PID namespace of their own.
    pub fn has_namespace(&self) -> bool {
        self.keeper.place() == Place::Namespace
    }

    /// Runs it on both and compares.
    ///
    /// # Errors
    /// As [`Checker::on_linux`] and [`on_virtual`].
    pub fn check(
        &mut self,
        scenario: &Scenario,
        options: &Options,
    ) -> Result<Comparison, CheckError> {
        let on_linux = self.on_linux(scenario, options)?;
        against(scenario, options, &on_linux)
    }

    /// Runs it on Linux alone.
    ///
    /// # Errors
    /// It cannot be compared, did not come to rest in time, or the keeper is gone.
    pub fn on_linux(
        &mut self,
        scenario: &Scenario,
        options: &Options,
    ) -> Result<Trace, CheckError> {
        if let Some((line, why)) = fit::unfit(scenario) {
            return Err(CheckError::Unfit { line, why });
        }
        if !self.has_namespace()
            && let Some((line, why)) = fit::reaches_out(scenario)
        {
            return Err(CheckError::Unfit { line, why });
        }
        let Options { seed, most_steps, patience, .. } = *options;
        let traced = self.keeper.run(scenario, seed, most_steps, patience)?;
        traced.map_err(|lost| match lost {
            Lost::Words(words) => CheckError::Lost(words),
            Lost::Late => CheckError::Late,
        })
    }
}

/// Runs without an end that are tried where the real one has an end.
const MOST_ENDLESS: u32 = 32;

/// Runs it on the virtual Unix, and compares with what Linux did.
///
/// # Errors
/// As [`on_virtual`].
pub fn against(
    scenario: &Scenario,
    options: &Options,
    on_linux: &Trace,
) -> Result<Comparison, CheckError> {
    let mut search = Search::new(options.seed);
    let mut nearest: Option<Difference> = None;
    let mut endless = 0;
    for _ in 0..options.schedules.max(1) {
        let on_virtual = on_virtual_by(scenario, options, search.rolls())?;
        let Some(difference) = compare(options.seed, &on_virtual, on_linux) else {
            return Ok(Comparison::Same(on_virtual));
        };
        // Who goes on for ever mostly does so under any schedule, and that takes long.
        let is_endless =
            difference.on_virtual.ending == Ending::Cut && on_linux.ending != Ending::Cut;
        endless += u32::from(is_endless);
        if search.parts_in(difference.step) {
            nearest = Some(difference);
        }
        if endless == MOST_ENDLESS {
            break;
        }
    }
    let difference = nearest.expect("the first schedule is the nearest one so far");
    Ok(Comparison::Differs(Box::new(difference)))
}

/// Runs it on the virtual Unix alone.
///
/// # Errors
/// It cannot be compared, or built.
pub fn on_virtual(
    scenario: &Scenario,
    options: &Options,
    schedule: u32,
) -> Result<Trace, CheckError> {
    let seed = options.seed.wrapping_add(schedule.into());
    on_virtual_by(scenario, options, Rolls::new(seed))
}

fn on_virtual_by(
    scenario: &Scenario,
    options: &Options,
    rolls: Rolls,
) -> Result<Trace, CheckError> {
    if let Some((line, why)) = fit::unfit(scenario) {
        return Err(CheckError::Unfit { line, why });
    }
    let executor = Executor::Simulated { seed: options.seed };
    let builder = options.builder.clone().executor(executor);
    Ok(fibers::run(scenario, builder, options.seed, options.most_steps, rolls)?)
}

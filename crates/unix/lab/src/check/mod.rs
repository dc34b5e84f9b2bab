//! The comparison of a scenario's run on Linux with its run on the virtual Unix, in lock-step:
//! [`Checker`].
//!
//! Each thread of a scenario stops at a *gate* before each call. On each backend a stepper releases
//! one thread, waits until all threads are quiescent, and releases the next. A seed and the
//! threads' names decide which thread is released. Both backends therefore take the same steps, and
//! their threads must make the same observations.
//!
//! A [`Trace`] records what one system did; [`compare`] returns the first [`TraceDifference`] of
//! two traces.
//!
//! ```no_run
//! use tontine_unix_lab::check::{Checker, TraceComparison, CheckOptions};
//!
//! let scenario = "process main\n  raise TERM\n".parse()?;
//! let mut checker = Checker::new()?;
//! let compared = checker.check(&scenario, &CheckOptions::new())?;
//! assert!(matches!(compared, TraceComparison::Same(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// `fibers` steps the virtual Unix; `linux_stepper` steps real processes, in the process of
// `namespace_init`, with the gates of `gates`. `image` is the program that these processes exec,
// `log` collects their events. `trace` describes a run on either system, `compare` finds the first
// difference of two runs.
mod compare;
mod fibers;
mod fit;
mod gates;
mod image;
mod linux_stepper;
mod log;
mod namespace_init;
mod region;
mod rolls;
mod tasks;
mod text;
mod time;
mod trace;
mod typing;

use std::io;
use std::time::Duration;

pub use compare::{TraceDifference, compare};
pub use trace::{BlockedThread, StepRecord, Trace, TraceEnd, TraceEntry};

use crate::scenario::Scenario;
use linux_stepper::RunError;
use namespace_init::{Isolation, NamespaceInit};
use rolls::{RollSearch, Rolls};
use tontine_unix_sim::{BuildError, Builder, Executor, Virtual};

/// Settings with which [`Checker`], [`against`] and [`on_virtual`] run a scenario.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The seed that decides which thread is released next.
    pub seed: u64,
    /// The builder of the virtual Unix, for example with its mode. The checker sets executor,
    /// programs and process numbers.
    pub builder: Builder,
    /// Maximum number of steps, after which both runs are cut off.
    pub max_steps: u32,
    /// Maximum duration of the run on Linux.
    pub timeout: Duration,
    /// Maximum number of schedules tried on the virtual Unix. If a step wakes several threads,
    /// their order within the step is not determined, and one of the schedules must match the run
    /// on Linux. Each schedule keeps the choices before the step in which the previous schedule
    /// diverged.
    pub max_schedules: u32,
}

impl CheckOptions {
    /// Returns the defaults: seed 1, mode [`Parallel`](tontine_unix_sim::LockingMode::Parallel),
    /// 5,000 steps, 20 seconds, 2,048 schedules.
    pub fn new() -> Self {
        Self {
            seed: 1,
            builder: Virtual::builder(),
            max_steps: 5_000,
            timeout: Duration::from_secs(20),
            max_schedules: 2_048,
        }
    }
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of comparing both systems.
#[derive(Debug, Clone)]
pub enum TraceComparison {
    /// Both systems did the same. Contains the trace of the virtual Unix.
    Same(Trace),
    /// The systems diverge.
    Differs(Box<TraceDifference>),
}

impl TraceComparison {
    /// Returns the difference, if the systems diverge.
    pub fn difference(&self) -> Option<&TraceDifference> {
        match self {
            Self::Same(_) => None,
            Self::Differs(difference) => Some(difference),
        }
    }
}

/// The reason why a comparison has no result.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The scenario has a statement whose result cannot be compared.
    #[error(
        "line {line}: cannot be compared: {why}; \
         remove the statement, or run the scenario on one system"
    )]
    Unsupported {
        /// The line in the text, from 1.
        line: u32,
        why: &'static str,
    },
    /// The virtual Unix cannot be built from [`CheckOptions::builder`].
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The run on Linux did not end in time, although not all of its threads are blocked.
    #[error("the run on Linux was aborted: {0}")]
    RunFailed(String),
    /// Timers expired out of turn at every spacing that the checker tried, because steps took
    /// longer than the time between two timers.
    #[error(
        "timers on Linux expired before steps that other threads could take; \
         try again while the machine is less busy"
    )]
    TimersLate,
    /// The init process of the runs on Linux failed.
    #[error("the init process of the run on Linux failed: {0}; create another checker")]
    InitFailed(#[from] io::Error),
}

/// The error of [`Checker::new`] if no scenario can run on Linux.
#[derive(Debug, thiserror::Error)]
#[error("the init process for runs on Linux cannot be started: {0}")]
pub struct Unavailable(#[from] io::Error);

/// Runs scenarios on Linux and on the virtual Unix, one after another. Owns the init process for
/// the runs on Linux.
#[derive(Debug)]
pub struct Checker {
    keeper: NamespaceInit,
}

impl Checker {
    /// Starts the init process, in its own PID namespace if the kernel permits one.
    pub fn new() -> Result<Self, Unavailable> {
        match NamespaceInit::start(Isolation::Namespace) {
            Ok(keeper) => Ok(Self { keeper }),
            Err(_) => Self::without_namespace(),
        }
    }

    /// Like [`Checker::new`], but without a namespace. At the end of a run only descendants of the
    /// init process are killed, and scenarios that could reach other processes are refused.
    pub fn without_namespace() -> Result<Self, Unavailable> {
        Ok(Self { keeper: NamespaceInit::start(Isolation::Open)? })
    }

    /// Returns `true` if the processes on Linux are in their own PID namespace.
    pub fn has_namespace(&self) -> bool {
        self.keeper.place() == Isolation::Namespace
    }

    /// Runs a scenario on Linux and on the virtual Unix, and compares the two runs.
    pub fn check(
        &mut self,
        scenario: &Scenario,
        options: &CheckOptions,
    ) -> Result<TraceComparison, CheckError> {
        let on_linux = self.on_linux(scenario, options)?;
        against(scenario, options, &on_linux)
    }

    /// Runs a scenario on Linux only.
    pub fn on_linux(
        &mut self,
        scenario: &Scenario,
        options: &CheckOptions,
    ) -> Result<Trace, CheckError> {
        if let Some((line, why)) = fit::unfit(scenario) {
            return Err(CheckError::Unsupported { line, why });
        }
        if !self.has_namespace()
            && let Some((line, why)) = fit::reaches_out(scenario)
        {
            return Err(CheckError::Unsupported { line, why });
        }
        let CheckOptions { seed, max_steps, timeout, .. } = *options;
        let traced = self.keeper.run(scenario, seed, max_steps, timeout)?;
        traced.map_err(|lost| match lost {
            RunError::Words(words) => CheckError::RunFailed(words),
            RunError::Late => CheckError::TimersLate,
        })
    }
}

/// Maximum number of endless runs tried if the run on Linux has ended.
const MOST_ENDLESS: u32 = 32;

/// Runs a scenario on the virtual Unix, and compares the run with the trace of Linux.
pub fn against(
    scenario: &Scenario,
    options: &CheckOptions,
    on_linux: &Trace,
) -> Result<TraceComparison, CheckError> {
    let mut search = RollSearch::new(options.seed);
    let mut nearest: Option<TraceDifference> = None;
    let mut endless = 0;
    for _ in 0..options.max_schedules.max(1) {
        let on_virtual = on_virtual_by(scenario, options, search.rolls())?;
        let Some(difference) = compare(options.seed, &on_virtual, on_linux) else {
            return Ok(TraceComparison::Same(on_virtual));
        };
        // A run that is endless under one schedule is usually endless under all schedules, and each
        // endless run takes a long time.
        let is_endless =
            difference.on_virtual.ending == TraceEnd::Cut && on_linux.ending != TraceEnd::Cut;
        endless += u32::from(is_endless);
        if search.parts_in(difference.step) {
            nearest = Some(difference);
        }
        if endless == MOST_ENDLESS {
            break;
        }
    }
    let difference = nearest.expect("the first schedule is the nearest one so far");
    Ok(TraceComparison::Differs(Box::new(difference)))
}

/// Runs a scenario on the virtual Unix only, under the `schedule`th schedule.
pub fn on_virtual(
    scenario: &Scenario,
    options: &CheckOptions,
    schedule: u32,
) -> Result<Trace, CheckError> {
    let seed = options.seed.wrapping_add(schedule.into());
    on_virtual_by(scenario, options, Rolls::new(seed))
}

fn on_virtual_by(
    scenario: &Scenario,
    options: &CheckOptions,
    rolls: Rolls,
) -> Result<Trace, CheckError> {
    if let Some((line, why)) = fit::unfit(scenario) {
        return Err(CheckError::Unsupported { line, why });
    }
    let executor = Executor::Simulated { seed: options.seed };
    let builder = options.builder.clone().executor(executor);
    Ok(fibers::run(scenario, builder, options.seed, options.max_steps, rolls)?)
}

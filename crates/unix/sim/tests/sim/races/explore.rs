//! Runs a race over many seeds: [`Race`].

use std::panic::{AssertUnwindSafe, catch_unwind};

use tontine_unix::{Sys, WaitStatus};
use tontine_unix_sim::{Builder, EndReason, Executor, LockingMode, RunReport, Virtual};

use crate::extent;

/// A program that exits with status 0 if the invariant under test holds.
pub(crate) type Scene = fn(&dyn Sys) -> i32;

/// A race and the configuration of its runs.
pub(crate) struct Race {
    pub(crate) scene: Scene,
    /// A function that configures the system, for example its programs and limits.
    pub(crate) with: fn(Builder) -> Builder,
    /// Number of runs on real processors, per mode.
    pub(crate) parallel: usize,
}

/// Returns the number of seeds per mode.
fn seeds() -> u64 {
    let requested = std::env::var("RACE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    requested.unwrap_or(extent::seeds(if cfg!(debug_assertions) { 300 } else { 2000 }, 50))
}

/// Returns the modes to run: all, or the one that `RACE_MODE` names.
fn modes() -> Vec<LockingMode> {
    let Ok(name) = std::env::var("RACE_MODE") else { return LockingMode::ALL.to_vec() };
    let named = LockingMode::ALL.into_iter().find(|mode| mode.to_string() == name);
    vec![named.unwrap_or_else(|| panic!("RACE_MODE={name} is not a mode"))]
}

/// Maximum number of seeds tried in the search for a seed that shows a race.
const MOST_SEEDS: u64 = 10_000;

/// Default number of runs on the parallel executor, per mode, for a race that takes no real time.
const PARALLEL: usize = 4;

/// Maximum number of steps of a scene. A scene that exceeds it is in an endless loop.
const MOST_STEPS: u64 = 200_000;

/// Asserts that the invariant of `scene` [`holds`](Race::holds).
pub(crate) fn holds(scene: Scene) {
    Race::of(scene).holds();
}

impl Race {
    pub(crate) const fn of(scene: Scene) -> Self {
        Self { scene, with: |builder| builder, parallel: PARALLEL }
    }

    fn system(&self, mode: LockingMode, executor: Executor) -> Builder {
        let processors = if mode == LockingMode::Uniprocessor { 1 } else { 4 };
        let builder = Virtual::builder().mode(mode).processors(processors).executor(executor);
        (self.with)(builder.pids(300))
    }

    fn simulation(&self, mode: LockingMode, seed: u64) -> Builder {
        self.system(mode, Executor::Simulated { seed }).stop_at(MOST_STEPS)
    }

    fn run(&self, builder: Builder) -> RunReport {
        builder.build().expect("a valid configuration").run(self.scene)
    }

    /// Asserts that the invariant holds for every seed, in every mode, and on real processors.
    pub(crate) fn holds(&self) {
        for mode in modes() {
            for seed in 0..seeds() {
                let violation = || self.violation(self.simulation(mode, seed));
                if let Some(seen) = violation() {
                    let same = violation().as_ref() == Some(&seen);
                    let again = if same { "shows it again" } else { "does not show it again" };
                    // `cargo xtask mutants` reads this text.
                    panic!("{mode}, seed {seed}, which {again}: {seen}");
                }
            }
            for _ in 0..self.parallel {
                let report = self.run(self.system(mode, Executor::Parallel));
                assert!(held(&report), "{mode}, parallel: {}", describe(&report));
            }
        }
    }

    /// Asserts that the race is in the program itself: in every mode, some seed shows it
    /// reproducibly.
    pub(crate) fn fails(&self) {
        for mode in LockingMode::ALL {
            let violated = |seed| self.violation(self.simulation(mode, seed));
            let found = (0..MOST_SEEDS).find_map(|seed| Some((seed, violated(seed)?)));
            let (seed, seen) = found.unwrap_or_else(|| panic!("{mode}: no seed shows the race"));
            println!("{mode}: seed {seed}: {seen}");
            assert_eq!(violated(seed), Some(seen), "{mode}, seed {seed}: not reproducible");
        }
    }

    /// Describes the violation in a run, if any: its unexpected end, or the kernel check that
    /// failed.
    fn violation(&self, builder: Builder) -> Option<String> {
        match catch_unwind(AssertUnwindSafe(|| self.run(builder))) {
            Ok(report) if held(&report) => None,
            Ok(report) => Some(describe(&report)),
            Err(panic) => Some(match panic.downcast::<String>() {
                Ok(message) => *message,
                Err(_) => "a check failed".to_owned(),
            }),
        }
    }
}

fn held(report: &RunReport) -> bool {
    report.ending == EndReason::Finished
        && report.status == Some(WaitStatus::Exited(0))
        && report.panicked.is_empty()
        && report.abandoned == 0
}

fn describe(report: &RunReport) -> String {
    let RunReport { ending, status, panicked, steps, digest, state, .. } = report;
    let state = state.as_ref().map(ToString::to_string).unwrap_or_default();
    format!(
        "{ending:?} with {status:?}, panicked {panicked:?}, {steps} steps, digest {digest:016x}\n\
         {state}"
    )
}

//! The comparison of random scenarios, seed by seed: [`Campaign`].

use tontine_unix_sim::{Builder, LockingMode, Virtual};

use super::{scenario, shrink};
use crate::check::{
    CheckError, CheckOptions, Checker, TraceComparison, TraceDifference, Unavailable, against,
};
use crate::scenario::Scenario;

/// Maximum number of steps of a run.
const STEPS: u32 = 400;
/// Number of further runs that must all diverge to confirm a divergence.
const CONFIRMED: u32 = 3;
/// Maximum number of attempts to shrink a scenario.
const TRIES: u32 = 800;

/// Compares random scenarios on both backends, one after another.
#[derive(Debug)]
pub struct Campaign(Checker);

/// The result of the comparison of one seed's scenario.
#[derive(Debug)]
pub enum SeedResult {
    /// Both systems did the same.
    Same,
    /// The systems diverge reproducibly. Contains the smallest scenario found in which they
    /// diverge.
    Diverges(Box<Divergence>),
    /// The systems diverged once and not again, because the run on Linux depends on more than the
    /// order of the steps.
    Flaky(Box<TraceDifference>),
    /// The comparison has no result, for this reason.
    Failed(CheckError),
}

/// A reproducible difference between the two systems, with its shrunk scenario.
#[derive(Debug)]
pub struct Divergence {
    /// The seed of the scenario, and of the order of steps.
    pub seed: u64,
    /// The smallest scenario found.
    pub scenario: Scenario,
    /// The first difference of the two traces.
    pub difference: TraceDifference,
}

impl Campaign {
    /// Starts a process to run the scenarios on Linux.
    pub fn new() -> Result<Self, Unavailable> {
        Checker::new().map(Self)
    }

    /// Returns the options for a seed's scenario, with a builder of the virtual Unix.
    pub fn options(seed: u64, builder: Builder) -> CheckOptions {
        CheckOptions { seed, builder, max_steps: STEPS, ..CheckOptions::new() }
    }

    /// Runs a seed's scenario on both backends, and shrinks it if they diverge.
    pub fn run(&mut self, seed: u64, mode: LockingMode) -> Result<SeedResult, Unavailable> {
        let made = scenario(seed);
        let first = match self.parts(&made, seed, mode) {
            Ok(None) => return Ok(SeedResult::Same),
            Ok(Some(difference)) if !self.parts_always(&made, seed, mode) => {
                return Ok(SeedResult::Flaky(Box::new(difference)));
            }
            Ok(Some(difference)) => difference,
            Err(error) => return self.lost(error),
        };
        let small = shrink(&made, TRIES, |candidate| self.parts_always(candidate, seed, mode));
        // The systems have diverged several times in succession, and usually diverge again.
        for _ in 0..TRIES {
            match self.parts(&small, seed, mode) {
                Ok(Some(difference)) => {
                    let parting = Divergence { seed, scenario: small, difference };
                    return Ok(SeedResult::Diverges(Box::new(parting)));
                }
                Ok(None) => {}
                Err(error) => return self.lost(error),
            }
        }
        Ok(SeedResult::Flaky(Box::new(first)))
    }

    /// Returns a failure. Replaces an init process that has ended or hangs.
    fn lost(&mut self, error: CheckError) -> Result<SeedResult, Unavailable> {
        if let CheckError::InitFailed(_) = error {
            self.0 = Checker::new()?;
        }
        Ok(SeedResult::Failed(error))
    }

    fn parts_always(&mut self, scenario: &Scenario, seed: u64, mode: LockingMode) -> bool {
        (0..CONFIRMED).all(|_| matches!(self.parts(scenario, seed, mode), Ok(Some(_))))
    }

    fn parts(
        &mut self,
        scenario: &Scenario,
        seed: u64,
        mode: LockingMode,
    ) -> Result<Option<TraceDifference>, CheckError> {
        let options = Self::options(seed, Virtual::builder().mode(mode));
        let real = self.0.on_linux(scenario, &options)?;
        Ok(match against(scenario, &options, &real)? {
            TraceComparison::Same(_) => None,
            TraceComparison::Differs(difference) => Some(*difference),
        })
    }
}

//! Seed after seed on both backends: [`Campaign`].

use tontine_unix_sim::{Builder, Mode, Virtual};

use super::{scenario, shrink};
use crate::check::{CheckError, Checker, Comparison, Difference, Options, Unavailable, against};
use crate::scenario::Scenario;

/// Steps after which both runs are cut.
const STEPS: u32 = 400;
/// How often a difference has to show.
const CONFIRMED: u32 = 3;
/// Tries to make a scenario smaller.
const TRIES: u32 = 800;

/// Compares random scenarios, one after another.
#[derive(Debug)]
pub struct Campaign(Checker);

/// What came of a seed.
#[derive(Debug)]
pub enum Finding {
    /// Both did the same.
    Same,
    /// They part, always: the smallest scenario that still does.
    Parts(Box<Parting>),
    /// They parted once, and then did not: what the real system does depends on more than on who
    /// was let through.
    Unsteady(Box<Difference>),
    /// There is nothing to compare.
    Lost(CheckError),
}

/// A difference, made small.
#[derive(Debug)]
pub struct Parting {
    /// The seed of the scenario, and of the order of steps.
    pub seed: u64,
    /// The smallest scenario found.
    pub scenario: Scenario,
    /// Where it parts.
    pub difference: Difference,
}

impl Campaign {
    /// Starts a process to run the scenarios on Linux.
    ///
    /// # Errors
    /// As [`Checker::new`].
    pub fn new() -> Result<Self, Unavailable> {
        Checker::new().map(Self)
    }

    /// How a seed's scenario is run, on a system like this.
    pub fn options(seed: u64, builder: Builder) -> Options {
        Options { seed, builder, most_steps: STEPS, ..Options::new() }
    }

    /// Runs a seed's scenario on both sides, and makes it smaller if they part.
    ///
    /// # Errors
    /// The keeper of real processes is gone, and there is no other.
    pub fn run(&mut self, seed: u64, mode: Mode) -> Result<Finding, Unavailable> {
        let made = scenario(seed);
        let first = match self.parts(&made, seed, mode) {
            Ok(None) => return Ok(Finding::Same),
            Ok(Some(difference)) if !self.parts_always(&made, seed, mode) => {
                return Ok(Finding::Unsteady(Box::new(difference)));
            }
            Ok(Some(difference)) => difference,
            Err(error) => return self.lost(error),
        };
        let small = shrink(&made, TRIES, |candidate| self.parts_always(candidate, seed, mode));
        // It has parted several times in a row, and mostly will once more.
        for _ in 0..TRIES {
            match self.parts(&small, seed, mode) {
                Ok(Some(difference)) => {
                    let parting = Parting { seed, scenario: small, difference };
                    return Ok(Finding::Parts(Box::new(parting)));
                }
                Ok(None) => {}
                Err(error) => return self.lost(error),
            }
        }
        Ok(Finding::Unsteady(Box::new(first)))
    }

    /// Nothing to compare; a keeper that has gone or hangs is replaced.
    fn lost(&mut self, error: CheckError) -> Result<Finding, Unavailable> {
        if let CheckError::Keeper(_) = error {
            self.0 = Checker::new()?;
        }
        Ok(Finding::Lost(error))
    }

    fn parts_always(&mut self, scenario: &Scenario, seed: u64, mode: Mode) -> bool {
        (0..CONFIRMED).all(|_| matches!(self.parts(scenario, seed, mode), Ok(Some(_))))
    }

    fn parts(
        &mut self,
        scenario: &Scenario,
        seed: u64,
        mode: Mode,
    ) -> Result<Option<Difference>, CheckError> {
        let options = Self::options(seed, Virtual::builder().mode(mode));
        let real = self.0.on_linux(scenario, &options)?;
        Ok(match against(scenario, &options, &real)? {
            Comparison::Same(_) => None,
            Comparison::Differs(difference) => Some(*difference),
        })
    }
}

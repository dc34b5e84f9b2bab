//! `tontine-unix check --random`: compares random scenarios with Linux.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Instant;

use tontine_command::{CommandFailure, FAILED, print};
use tontine_unix_lab::random::{Campaign, Divergence, SeedResult};
use tontine_unix_sim::LockingMode;

use super::mode;
use crate::args::CheckScenario;

/// Maximum number of differences before the campaign ends.
const MAX_DIFFERENCES: usize = 10;

/// Results of all seeds.
#[derive(Default)]
struct SeedTally {
    same: u64,
    flaky: Vec<u64>,
    failures: Vec<(u64, String)>,
    differing: usize,
}

/// Runs `unix check --random`.
pub(super) fn check(args: &CheckScenario, count: u64) -> Result<ExitCode, CommandFailure> {
    let modes = args.mode.map_or(LockingMode::ALL.to_vec(), |args| vec![mode(args)]);
    let mut campaign = Campaign::new().map_err(CommandFailure::failed)?;
    let begun = Instant::now();
    let mut tally = SeedTally::default();
    let seeds = args.seed..args.seed.saturating_add(count);
    for (seed, mode) in seeds.zip(modes.iter().cycle()) {
        match campaign.run(seed, *mode).map_err(CommandFailure::failed)? {
            SeedResult::Same => tally.same += 1,
            SeedResult::Flaky(_) => tally.flaky.push(seed),
            SeedResult::Failed(error) => tally.failures.push((seed, error.to_string())),
            SeedResult::Diverges(divergence) => {
                tally.differing += 1;
                print(differing(&divergence, *mode).as_bytes())?;
                if tally.differing == MAX_DIFFERENCES {
                    break;
                }
            }
        }
    }
    let mut printed = String::new();
    let seconds = begun.elapsed().as_secs_f64();
    // Writing to a string does not fail.
    for (seed, why) in &tally.failures {
        let _ = writeln!(printed, "seed {seed}: {why}");
    }
    if !tally.flaky.is_empty() {
        let _ = writeln!(printed, "diverged once and not again: seeds {:?}", tally.flaky);
    }
    let _ = writeln!(
        printed,
        "{} the same, {} diverge, {} diverged once, {} no result; {:.0} per second",
        tally.same,
        tally.differing,
        tally.flaky.len(),
        tally.failures.len(),
        tally.same as f64 / seconds
    );
    print(printed.as_bytes())?;
    let failed = tally.differing > 0 || !tally.failures.is_empty();
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Returns a difference as text, with the scenario to save in a file.
fn differing(divergence: &Divergence, mode: LockingMode) -> String {
    let Divergence { seed, scenario, difference } = divergence;
    format!(
        "# tontine-unix check --random 1 --seed {seed} --mode {mode}\n\
         # or, of this text: tontine-unix check --seed {seed} --mode {mode} FILE\n\
         {scenario}\n{difference}\n"
    )
}

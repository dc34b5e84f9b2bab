//! The program behind `cargo xtask coverage`: counts how often the intervals contain the true
//! value, in docs/evidence/coverage.md.
//!
//! [`trial`] draws runs from the models of [`tontine_bench::stats::simulate`] and counts,
//! [`shares`] draws shares, [`few`] runs of fewer than six invocations, and [`resampled`] makes
//! comparisons of runs of the experiments in [`recorded`]. [`claims`] defines the expected counts;
//! [`page`] writes the page. Seeds are fixed, so every run writes the same page, and `--check`
//! compares the page with the file.

mod claims;
mod few;
mod page;
mod recorded;
mod resampled;
mod shares;
mod trial;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

/// All simulations whose results the page shows.
struct SimulatedTrials {
    trials: Vec<trial::CoverageTrial>,
    widths: Vec<trial::Alternative>,
    shares: Vec<shares::ShareTrial>,
    few: Vec<few::FewTrial>,
    compared: resampled::CompareTrials,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let check = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => {
            eprintln!(
                "usage: coverage [--check]\n\n  --check  Write nothing; fail if a statement of \
                 docs/evidence/coverage.md does not hold, or the file is out of date"
            );
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("coverage: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Simulates, then writes or checks the page. Returns `Ok(false)` if a statement does not hold.
fn run(check: bool) -> io::Result<bool> {
    let trials = trial::all();
    let widths = trial::alternatives();
    let (shares, few, compared) = (shares::all(), few::all(), resampled::all());
    let mut broken = claims::broken(&trials);
    broken.extend(shares::broken(&shares));
    broken.extend(few::broken(&few));
    broken.extend(compared.broken());
    let simulated = SimulatedTrials { trials, widths, shares, few, compared };
    let text = page::render(&simulated, &broken);
    for claim in &broken {
        eprintln!("coverage: does not hold: {claim}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/coverage.md");
    if !check {
        fs::write(&path, text)?;
        return Ok(broken.is_empty());
    }
    let current = fs::read_to_string(&path)? == text;
    if !current {
        eprintln!(
            "coverage: docs/evidence/coverage.md is outdated; run `cargo xtask coverage`, commit it"
        );
    }
    Ok(broken.is_empty() && current)
}

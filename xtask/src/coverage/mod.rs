//! `cargo xtask coverage`: how often the intervals hold the truth, in docs/coverage.md.
//!
//! [`trial`] draws runs from the models of [`tontine_bench::stats::simulate`] and counts;
//! [`claims`] says what the counts have to be; [`page`] writes them down. Seeds are fixed: the page
//! is the same after every run, and `--check` compares it.

mod claims;
mod page;
mod trial;

use std::path::PathBuf;
use std::{fs, io};

/// Simulates, then writes the page or checks it. `Ok(false)` if a statement does not hold.
pub(crate) fn run(check: bool) -> io::Result<bool> {
    let trials = trial::all();
    let widths = trial::alternatives();
    let broken = claims::broken(&trials);
    let text = page::render(&trials, &widths, &broken);
    for claim in &broken {
        eprintln!("coverage: does not hold: {claim}");
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/coverage.md");
    if !check {
        fs::write(&path, text)?;
        return Ok(broken.is_empty());
    }
    let current = fs::read_to_string(&path)? == text;
    if !current {
        eprintln!("coverage: docs/coverage.md is stale; run `cargo xtask coverage` and commit it");
    }
    Ok(broken.is_empty() && current)
}

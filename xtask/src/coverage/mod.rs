//! `cargo xtask coverage`: counts how often the intervals contain the true value, in
//! docs/evidence/coverage.md.
//!
//! [`trial`] draws runs from the models of [`tontine_bench::stats::simulate`] and counts;
//! [`claims`] defines the expected counts; [`page`] writes the page. Seeds are fixed, so every run
//! writes the same page, and `--check` compares the page with the file.

mod claims;
mod page;
mod trial;

use std::path::PathBuf;
use std::{fs, io};

/// Simulates, then writes or checks the page. Returns `Ok(false)` if a statement does not hold.
pub(crate) fn run(check: bool) -> io::Result<bool> {
    let trials = trial::all();
    let widths = trial::alternatives();
    let broken = claims::broken(&trials);
    let text = page::render(&trials, &widths, &broken);
    for claim in &broken {
        eprintln!("coverage: does not hold: {claim}");
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/evidence/coverage.md");
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

//! The program behind `cargo xtask claims` and `cargo xtask trees`: writes evidence that rests on
//! runs of the experiments.
//!
//! [`claims`] writes verdicts into docs/evidence/claims.md, [`trees`] records the calls of a real
//! build and of a real session.

mod claims;
mod trees;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: evidence claims FOLDER [--check]
       evidence trees

  claims  Write the verdicts of `tontine-measure --as-published N` into docs/evidence/claims.md.
          FOLDER contains the runs' as-published-N.txt. With --check, write nothing; fail if the
          page and the runs have different claims
  trees   Trace a real build and a real session, for the virtual Unix to repeat";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["claims", folder] if !folder.starts_with('-') => {
            claims::run(&root(), folder.as_ref(), false)
        }
        ["claims", "--check", folder] | ["claims", folder, "--check"] => {
            claims::run(&root(), folder.as_ref(), true)
        }
        ["trees"] => trees::run(&root()),
        [trees::INVOCATION] => trees::serve(),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("evidence: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

//! `cargo xtask crash`: what a kill leaves of each peer, in the table of docs/survival.md.
//!
//! The exploration is made by the `tontine` command itself, built for release: the points that the
//! page names are then those that a reader gets by the same command.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tontine_crash::report::{Report, markdown};

/// What stands between these lines of the page is written anew.
const BEGIN: &str = "<!-- begin: written by `cargo xtask crash` -->";
const END: &str = "<!-- end -->";

/// Explores, and writes the table. `Ok(false)` where the exploration was not complete, or Tontine's
/// own mailbox did what it must not.
pub(crate) fn run(full: bool) -> io::Result<bool> {
    let mode = if full { "full" } else { "fast" };
    let done = Command::new(env!("CARGO"))
        .args(["run", "--release", "--quiet", "--package", "tontine-cli", "--"])
        .args(["crash", "--mode", mode, "--format", "json"])
        .stderr(Stdio::inherit())
        .output()?;
    let report: Report = serde_json::from_slice(&done.stdout).map_err(|error| {
        io::Error::other(format!("expected the report of `tontine crash`, found {error}"))
    })?;
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/survival.md");
    let page = std::fs::read_to_string(&path)?;
    let table = format!("{}\n\n{}", machine(), markdown::render(&report));
    std::fs::write(&path, between_marks(&page, &table)?)?;
    Ok(report.complete && !report.is_bad())
}

/// Where the figures come from.
fn machine() -> String {
    let machine = tontine_measure::machine::Machine::look();
    format!("Explored on: {}.", machine.one_line())
}

/// The page with `table` in place of what stood between the marks.
fn between_marks(page: &str, table: &str) -> io::Result<String> {
    let missing = |mark| io::Error::other(format!("docs/survival.md has no line `{mark}`"));
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = between_marks(&page, "new\n").expect("both marks are there");
        assert_eq!(new, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between_marks(&new, "new\n").expect("still there"), new);
        assert!(between_marks("no marks", "new").is_err());
    }
}

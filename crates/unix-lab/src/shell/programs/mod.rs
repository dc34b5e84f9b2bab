//! Programs for pipelines: [`programs`].
//!
//! Each program is a function that takes [`Sys`] and the arguments, the first of which is the
//! program's name, and returns the exit status. On a system without files, the programs are
//! registered under their names.

mod process;
mod text;
mod time;

pub use process::ps;

use tontine_unix::{Errno, Sys};

use super::say::complain;

/// The function of a program.
pub type Main = fn(&dyn Sys, &[String]) -> i32;

/// Returns the programs with their names. [`ps`] is not included, because it needs an argument.
pub fn programs() -> Vec<(&'static str, Main)> {
    PROGRAMS.iter().map(|program| (program.name, program.main)).collect()
}

/// Returns the lines of `help` about the programs.
pub(super) fn help() -> String {
    let line = |program: &BuiltinProgram| {
        let usage = format!("{} {}", program.name, program.arguments);
        format!("  {usage:<22} {}\n", program.summary)
    };
    PROGRAMS.iter().map(line).collect()
}

struct BuiltinProgram {
    name: &'static str,
    main: Main,
    arguments: &'static str,
    summary: &'static str,
}

const fn known(
    name: &'static str,
    main: Main,
    arguments: &'static str,
    summary: &'static str,
) -> BuiltinProgram {
    BuiltinProgram { name, main, arguments, summary }
}

const PROGRAMS: [BuiltinProgram; 14] = [
    known("cat", text::cat, "", "copies its input"),
    known("catch", process::catch, "[-n times] SIG…", "catches signals and reports them"),
    known("count", time::count, "[last]", "writes one number per second"),
    known("echo", text::echo, "word…", "writes words"),
    known("false", |_, _| 1, "", "fails"),
    known("family", process::family, "members", "creates a tree of processes"),
    known("head", text::head, "[-n lines]", "copies the first lines of its input"),
    known("orphan", process::orphan, "[seconds]", "leaves an orphan behind"),
    known("seq", text::seq, "[first] last", "writes numbers"),
    known("sleep", time::sleep, "seconds", "sleeps"),
    known("spin", time::spin, "[seconds]", "computes"),
    known("true", |_, _| 0, "", "does nothing"),
    known("wc", text::wc, "", "counts lines, words and bytes"),
    known("yes", text::yes, "[word…]", "writes the same line until killed"),
];

/// The error that ends a program early.
#[derive(Debug, thiserror::Error)]
enum ProgramFailure {
    #[error("usage: {0}")]
    Usage(&'static str),
    #[error("{0}")]
    Call(#[from] Errno),
}

/// Returns the exit status. Reports the failure, if any.
fn finish(sys: &dyn Sys, arguments: &[String], done: Result<i32, ProgramFailure>) -> i32 {
    done.unwrap_or_else(|failure| {
        complain(sys, &arguments[0], &failure);
        if matches!(failure, ProgramFailure::Usage(_)) { 2 } else { 1 }
    })
}

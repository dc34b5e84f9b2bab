//! Programs for pipelines: [`programs`].
//!
//! Each is a function of [`Sys`] and its arguments, the name first, and returns its exit status. They
//! are registered under their names where there are no files to execute.

mod process;
mod text;
mod time;

pub use process::ps;

use super::say::complain;
use crate::errno::Errno;
use crate::sys::Sys;

/// What a program is.
pub type Main = fn(&dyn Sys, &[String]) -> i32;

/// The programs and their names. [`ps`] has to be told what there is, and is not among them.
pub fn programs() -> Vec<(&'static str, Main)> {
    vec![
        ("cat", text::cat),
        ("catch", process::catch),
        ("count", time::count),
        ("echo", text::echo),
        ("false", |_, _| 1),
        ("family", process::family),
        ("head", text::head),
        ("orphan", process::orphan),
        ("seq", text::seq),
        ("sleep", time::sleep),
        ("spin", time::spin),
        ("true", |_, _| 0),
        ("wc", text::wc),
        ("yes", text::yes),
    ]
}

/// Why a program ends early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("usage: {0}")]
    Usage(&'static str),
    #[error("{0}")]
    Call(#[from] Errno),
}

/// The exit status, after saying what failed.
fn finish(sys: &dyn Sys, arguments: &[String], done: Result<i32, Failure>) -> i32 {
    done.unwrap_or_else(|failure| {
        complain(sys, &arguments[0], &failure);
        if matches!(failure, Failure::Usage(_)) { 2 } else { 1 }
    })
}

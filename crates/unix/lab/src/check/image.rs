//! The program that a scenario's `exec` and `spawn` start on Linux: this program itself, which
//! becomes a process of the scenario before its `main` starts ([`BEFORE_MAIN`]).
//!
//! The program finds the run in the [`CheckRegion`], whose descriptor its parent left open, and
//! continues as the thread whose ordinal its arguments name. No part of Rust's runtime changes the
//! state that `exec` left: SIGPIPE is not ignored, no descriptor is opened in place of a closed
//! one, and no alternate stack is set.

#![allow(unsafe_code, reason = "a function that runs before `main`")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tontine_unix::Linux;

use super::gates::{Gates, MARK};
use super::region::CheckRegion;
use super::text;
use crate::scenario::conducted_program;

/// Exit status if there is nothing to run, equal to the status of a shell that does not find a
/// program.
const NOTHING_TO_RUN: i32 = 127;

/// `true` if the function ran before `main` and found the arguments. Otherwise, an exec of this
/// program would run its `main` again.
static WAS_CALLED: AtomicBool = AtomicBool::new(false);

/// Called by the C library before `main`. glibc calls it after the function that passes the
/// arguments to the standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Returns `true` if processes of a scenario can call exec and spawn.
pub(super) fn is_possible() -> bool {
    WAS_CALLED.load(Relaxed)
}

extern "C" fn before_main() {
    let mut arguments = std::env::args_os();
    let Some(first) = arguments.next() else { return };
    WAS_CALLED.store(true, Relaxed);
    if first != MARK {
        return;
    }
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let status = become_process(&arguments).unwrap_or(NOTHING_TO_RUN);
    // SAFETY: the call takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Runs the process that the first argument names. Returns `None` if there is nothing to run.
fn become_process(arguments: &[String]) -> Option<i32> {
    let region = Arc::new(CheckRegion::inherited().ok()?);
    let scenario = text::get(&region).ok()?;
    let name = arguments.first()?;
    scenario.block(name)?;
    let linux = Linux::alone();
    Some(conducted_program(&scenario, name, Arc::new(Gates(region)))(&linux, arguments))
}

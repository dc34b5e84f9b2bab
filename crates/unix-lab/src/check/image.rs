//! What a scenario's `exec` and `spawn` start on Linux: this program once more, which becomes a
//! process of the scenario before its `main` begins ([`BEFORE_MAIN`]).
//!
//! It finds the run in the [`Region`], which its maker left open for it, and goes on in the seat
//! that its arguments name. Nothing of the language's runtime stands between it and what `exec`
//! left: no ignored SIGPIPE, no descriptor opened for a closed one, no alternate stack.

#![allow(unsafe_code, reason = "a function that runs before `main`")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tontine_unix::Linux;

use super::gates::{Gates, MARK};
use super::region::Region;
use super::text;
use crate::scenario::conducted_program;

/// How one ends that has nothing to run: as in a shell, where there is no such program.
const NOTHING_TO_RUN: i32 = 127;

/// Whether this program was asked before its `main`, and knew its arguments then. Where that is not
/// so, executing it would run its `main` again.
static WAS_ASKED: AtomicBool = AtomicBool::new(false);

/// Run by the C library before `main`; by glibc behind what tells the standard library the
/// program's arguments.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Whether processes of a scenario can be executed.
pub(super) fn is_possible() -> bool {
    WAS_ASKED.load(Relaxed)
}

extern "C" fn before_main() {
    let mut arguments = std::env::args_os();
    let Some(first) = arguments.next() else { return };
    WAS_ASKED.store(true, Relaxed);
    if first != MARK {
        return;
    }
    let arguments: Vec<String> =
        arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let status = become_process(&arguments).unwrap_or(NOTHING_TO_RUN);
    // SAFETY: it takes an integer and does not return.
    unsafe { libc::_exit(status) }
}

/// Runs the process that the first argument names; `None` if there is nothing to run.
fn become_process(arguments: &[String]) -> Option<i32> {
    let region = Arc::new(Region::inherited().ok()?);
    let scenario = text::get(&region).ok()?;
    let name = arguments.first()?;
    scenario.block(name)?;
    let linux = Linux::alone();
    Some(conducted_program(&scenario, name, Arc::new(Gates(region)))(&linux, arguments))
}

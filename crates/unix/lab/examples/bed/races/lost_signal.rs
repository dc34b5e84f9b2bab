//! A signal arrives between a check and a sleep, and the program keeps sleeping.
//!
//! HAProxy, reported as <https://github.com/haproxy/haproxy/issues/1841>. The handler of SIGTERM
//! sets a flag; the loop checks the flag and then waits for work. If the signal arrives between the
//! check and the wait, the program notices it only when another event ends the wait. In the report,
//! a stop took a minute.
//!
//! If no other event occurs, as here, the program sleeps forever. The fix: the handler also writes
//! a byte to a pipe on which the loop waits.
//!
//! A signal that arrives between two calls is delivered before the second call begins, on Linux and
//! in the virtual Unix. Exploration therefore finds the mistake in the unmodified program, without
//! a [`Sys::poll`] between the check and the sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{Errno, SigAction, Signal, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "lost-signal",
    project: "HAProxy",
    report: "https://github.com/haproxy/haproxy/issues/1841",
    what: "SIGTERM arrives between the check and the sleep, and the program continues to sleep",
    wrong: |sys| serve_until_signalled(sys, false),
    right: |sys| serve_until_signalled(sys, true),
};

/// Returns 0 if the server stops on SIGTERM.
fn serve_until_signalled(sys: &dyn Sys, wakes: bool) -> i32 {
    let (work, arrives) = sys.pipe().expect("below the limits");
    let requested = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&requested);
    let note = SigAction::handler(move |sys, _| {
        noted.store(true, Ordering::Relaxed);
        if wakes {
            // If the pipe is full, its reader wakes anyway.
            let _ = sys.write(arrives, &[0]);
        }
    });
    sys.sigaction(Signal::TERM, Some(note)).expect("it is allowed");
    let server = sys.getpid();
    let operator =
        sys.fork(move |sys| i32::from(sys.kill(server.into(), Some(Signal::TERM)).is_err()));
    let operator = operator.expect("below the limits");
    while !requested.load(Ordering::Relaxed) {
        // A real server does its work here, and computes the time for which it may sleep.
        match sys.read(work, &mut [0]) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 2,
        }
    }
    let waited = sys.waitpid(operator.into(), WaitOptions::empty());
    i32::from(waited.ok().flatten().and_then(|waited| waited.status.exited()) != Some(0))
}

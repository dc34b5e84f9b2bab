//! A signal comes between the look and the sleep, and is slept through.
//!
//! HAProxy, reported as <https://github.com/haproxy/haproxy/issues/1841>. The handler of SIGTERM
//! makes a note; the loop looks at the notes and then waits for work. What is noted between the two
//! is seen when the wait ends by something else: a stop took a minute.
//!
//! Where nothing else comes the program sleeps for ever, as here. What keeps it right: the handler
//! also makes work, a byte in a pipe that the loop waits for.
//!
//! A signal that arrives between two calls is delivered before the second one begins, on Linux as
//! in the virtual Unix. So exploration finds the mistake in the program as it is, without a
//! [`Sys::poll`] between the look and the sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tontine_unix::{Errno, SigAction, Signal, Sys, WaitOptions};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "lost-signal",
    project: "HAProxy",
    report: "https://github.com/haproxy/haproxy/issues/1841",
    what: "SIGTERM comes after the look and before the sleep, and nobody wakes up",
    wrong: |sys| serve_until_told(sys, false),
    right: |sys| serve_until_told(sys, true),
};

/// 0 if it stops when it is told to.
fn serve_until_told(sys: &dyn Sys, wakes: bool) -> i32 {
    let (work, arrives) = sys.pipe().expect("there is room");
    let asked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&asked);
    let note = SigAction::handler(move |sys, _| {
        noted.store(true, Ordering::Relaxed);
        if wakes {
            // A pipe that is full wakes whoever reads it, too.
            let _ = sys.write(arrives, &[0]);
        }
    });
    sys.sigaction(Signal::TERM, Some(note)).expect("it is allowed");
    let server = sys.getpid();
    let operator =
        sys.fork(move |sys| i32::from(sys.kill(server.into(), Some(Signal::TERM)).is_err()));
    let operator = operator.expect("there is room");
    while !asked.load(Ordering::Relaxed) {
        // Here the server did what there was to do, and computed how long it may sleep.
        match sys.read(work, &mut [0]) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 2,
        }
    }
    let waited = sys.waitpid(operator.into(), WaitOptions::empty());
    i32::from(waited.ok().flatten().and_then(|waited| waited.status.exited()) != Some(0))
}

//! A child ends before its parent has stored the child's number.
//!
//! OpenRC, `openrc-run`, reported as <https://github.com/OpenRC/openrc/issues/895>. The SIGCHLD
//! handler waits for each child that has ended, and notifies the main loop through a pipe if the
//! child was the service. The main program stores the number of the service when `fork` returns. If
//! a service ends immediately, the handler does not recognize it, sends no notification, and the
//! boot hangs.
//!
//! The fix: block SIGCHLD from before the fork until the number is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{
    ActionFlags, Children, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions,
};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "early-handler",
    project: "OpenRC",
    report: "https://github.com/OpenRC/openrc/issues/895",
    what: "a child ends before its number is stored, and the handler does not recognize it",
    wrong: |sys| run_a_service(sys, false),
    right: |sys| run_a_service(sys, true),
};

/// Returns 0 if the main loop was notified of the service's end.
fn run_a_service(sys: &dyn Sys, blocks: bool) -> i32 {
    let (reads, writes) = sys.pipe().expect("below the limits");
    let service = Arc::new(AtomicI32::new(0));
    let known = Arc::clone(&service);
    let reap = SigAction::handler(move |sys, _| {
        while let Ok(Some(waited)) = sys.waitpid(Children::Any, WaitOptions::NOHANG) {
            if waited.pid.number() == known.load(Ordering::Relaxed) {
                // One byte in an empty pipe always fits.
                let _ = sys.write(writes, &[0]);
            }
        }
    });
    let reap = reap.with_flags(ActionFlags::RESTART);
    sys.sigaction(Signal::CHLD, Some(reap)).expect("it is allowed");
    let before = sys.sigprocmask(None).expect("it is allowed");
    if blocks {
        sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::CHLD]))))
            .expect("it is allowed");
    }
    let child = sys.fork(|_| 0).expect("below the limits");
    service.store(child.number(), Ordering::Relaxed);
    sys.sigprocmask(Some((SigmaskHow::Set, before))).expect("it is allowed");
    i32::from(sys.read(reads, &mut [0]) != Ok(1))
}

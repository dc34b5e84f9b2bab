//! The exploration of the supervisor under all schedules up to a bound of preemptions:
//! [`exploration`].

use tontine_unix::{Children, Errno, SigSet, SigmaskHow, Signal, Sys, WaitOptions};
use tontine_unix_lab::explore::Exploration;

use crate::supervise::{Groups, Service, supervise};

/// Maximum number of preemptions.
const BOUND: u32 = 1;

/// Returns the exploration. A run fails if the supervisor leaves a service behind when it is
/// stopped.
pub(crate) fn exploration(groups: Groups) -> Exploration {
    Exploration::new(move || move |sys: &dyn Sys| stopped_at_any_moment(sys, groups))
        .preemption_bound(BOUND)
}

/// Exit status if the supervisor exited with 0 but left a child.
const LEFT_BEHIND: i32 = 9;

/// Runs the supervisor with one service, and sends it SIGTERM at any time. The signal is blocked
/// until the supervisor waits for it.
fn stopped_at_any_moment(sys: &dyn Sys, groups: Groups) -> i32 {
    sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::TERM])))).expect("it is allowed");
    let steady = Service::new("steady", |sys| {
        sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY))).expect("it is allowed");
        loop {
            sys.pause();
        }
    });
    let supervisor = sys.fork(move |sys| match supervise(sys, vec![steady], groups) {
        0 if sys.waitpid(Children::Any, WaitOptions::NOHANG) == Err(Errno::ECHILD) => 0,
        0 => LEFT_BEHIND,
        status => status,
    });
    let supervisor = supervisor.expect("below the limits");
    sys.kill(supervisor.into(), Some(Signal::TERM)).expect("it was not waited for");
    let waited = sys.waitpid(supervisor.into(), WaitOptions::empty());
    waited.expect("it is my child").expect("it ended").status.exited().unwrap_or(1)
}

//! The supervisor at many schedules: [`find`] looks for one at which it leaves somebody behind,
//! [`replay`] runs one again.

use tontine_unix::{
    Children, Ending, Errno, Executor, How, Report, SigSet, Signal, Status, Sys, Virtual,
    WaitOptions,
};

use crate::supervise::{Groups, Service, supervise};

/// A supervisor that makes more steps goes round in circles.
const MOST_STEPS: u64 = 200_000;

/// The supervisor stopped with 0, and a child of it is there.
const LEFT_BEHIND: i32 = 9;

/// One service, and SIGTERM at any moment, which is blocked until the supervisor looks for it.
fn stopped_at_any_moment(sys: &dyn Sys, groups: Groups) -> i32 {
    sys.sigprocmask(Some((How::Block, SigSet::of(&[Signal::TERM])))).expect("it is allowed");
    let steady = Service::new("steady", |sys| {
        sys.sigprocmask(Some((How::Set, SigSet::EMPTY))).expect("it is allowed");
        loop {
            sys.pause();
        }
    });
    let supervisor = sys.fork(move |sys| match supervise(sys, vec![steady], groups) {
        0 if sys.waitpid(Children::Any, WaitOptions::NOHANG) == Err(Errno::ECHILD) => 0,
        0 => LEFT_BEHIND,
        status => status,
    });
    let supervisor = supervisor.expect("there is room");
    sys.kill(supervisor.into(), Some(Signal::TERM)).expect("it was not waited for");
    let waited = sys.waitpid(supervisor.into(), WaitOptions::empty());
    waited.expect("it is my child").expect("it ended").status.exited().unwrap_or(1)
}

/// The first of so many seeds at which it goes wrong, and what was seen.
pub(crate) fn find(groups: Groups, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| replay(groups, seed).map(|seen| (seed, seen)))
}

/// Runs it at this seed; what was seen if it went wrong.
pub(crate) fn replay(groups: Groups, seed: u64) -> Option<String> {
    let builder = Virtual::builder().executor(Executor::Simulated { seed }).processors(2);
    let unix = builder.stop_at(MOST_STEPS).build().expect("it goes together");
    let report = unix.run(move |sys| stopped_at_any_moment(sys, groups));
    (!held(&report)).then(|| told(&report))
}

fn held(report: &Report) -> bool {
    report.ending == Ending::Finished && report.status == Some(Status::Exited(0))
}

fn told(report: &Report) -> String {
    match report.status.and_then(Status::exited) {
        Some(LEFT_BEHIND) => "it stopped, and left a service behind".to_owned(),
        _ => format!("{:?}, {:?}", report.ending, report.status),
    }
}

//! A child takes the terminal, and its parent is stopped when it restores the terminal's modes.
//!
//! nextest, a test runner, reported as <https://github.com/nextest-rs/nextest/issues/2878>. The
//! runner checks that it is in the foreground, and switches echo off. A test starts an interactive
//! shell, which opens the controlling terminal and puts itself into the foreground. When the runner
//! ends, it restores the terminal's modes, now from the background: SIGTTOU stops it.
//!
//! The mistake here is a second check before the modes are restored. It only narrows the window:
//! the child may take the terminal between the check and the call. The fix is to ignore SIGTTOU,
//! because then the call is also permitted from the background.

use tontine_unix::{
    Errno, Fd, Modes, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions, WaitStatus,
};

use super::Race;

pub(crate) const RACE: Race = Race {
    name: "taken-terminal",
    project: "nextest",
    report: "https://github.com/nextest-rs/nextest/issues/2878",
    what: "a child takes the terminal, and SIGTTOU stops its parent, which restores the modes",
    wrong: |sys| in_a_session(sys, false),
    right: |sys| in_a_session(sys, true),
};

/// Denotes the caller in calls that name a process.
const OWN: Pid = Pid::number_only(0);
/// Exit status if the runner was stopped.
const STOPPED: i32 = 1;
/// Exit status for any other failure.
const BROKEN: i32 = 2;

/// Creates a session with a terminal. The session leader starts the runner. Returns the runner's
/// result.
fn in_a_session(sys: &dyn Sys, ignores: bool) -> i32 {
    let leader = sys.fork(move |sys| {
        sys.setsid().expect("it leads no group");
        let (_user, terminal) = sys.openpty().expect("below the limits");
        sys.set_controlling(terminal).expect("it leads a session");
        let runner = sys.fork(move |sys| run_a_test(sys, terminal, ignores).map_or(BROKEN, |()| 0));
        let runner = runner.expect("below the limits");
        match change(sys, runner) {
            WaitStatus::Stopped(_) => {
                sys.kill(runner.into(), Some(Signal::KILL)).expect("it is there");
                change(sys, runner);
                STOPPED
            }
            status => status.exited().unwrap_or(BROKEN),
        }
    });
    change(sys, leader.expect("below the limits")).exited().unwrap_or(BROKEN)
}

/// Waits until a child ends or stops. Returns its status.
fn change(sys: &dyn Sys, child: Pid) -> WaitStatus {
    let waited = sys.waitpid(child.into(), WaitOptions::STOPPED);
    waited.expect("it is my child").expect("it changed").status
}

/// The test runner: switches echo off, runs a test, switches echo on.
fn run_a_test(sys: &dyn Sys, terminal: Fd, ignores: bool) -> Result<(), Errno> {
    enter_foreground(sys, terminal)?;
    if ignores {
        sys.sigaction(Signal::TTOU, Some(SigAction::IGNORE))?;
    }
    let before = sys.tcgetattr(terminal)?;
    let mut quiet = before;
    quiet.modes -= Modes::ECHO;
    sys.tcsetattr(terminal, &quiet)?;
    let test = sys.fork(|sys| {
        let taken = sys.open_tty().and_then(|terminal| enter_foreground(sys, terminal));
        i32::from(taken.is_err())
    })?;
    if ignores || sys.tcgetpgrp(terminal)? == sys.getpgrp() {
        sys.tcsetattr(terminal, &before)?;
    }
    sys.waitpid(test.into(), WaitOptions::empty())?;
    Ok(())
}

/// Creates a group and makes it the foreground group, as an interactive shell does.
fn enter_foreground(sys: &dyn Sys, terminal: Fd) -> Result<(), Errno> {
    sys.setpgid(OWN, OWN)?;
    let before = sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::TTOU]))))?;
    sys.tcsetpgrp(terminal, sys.getpid())?;
    sys.sigprocmask(Some((SigmaskHow::Set, before)))?;
    Ok(())
}

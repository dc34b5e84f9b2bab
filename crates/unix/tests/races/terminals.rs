//! A shell and its job both see to it that the job has the terminal, as with `setpgid`: whoever is
//! late finds it done.

use std::sync::Arc;

use tontine_unix::{Fd, Mode, Pid, SigAction, Signal, Status, Sys, WaitOptions};

use crate::explore::{PARALLEL, Race, Scene};

const OWN: Pid = Pid::number_only(0);

/// A shell with a terminal gives it to a job that reads a line, and takes it back. A job that is
/// not `careful` leaves all to the shell.
fn hand_over(careful: bool) -> Scene {
    Arc::new(move |sys| {
        let shell = sys.fork(move |sys| {
            sys.setsid().expect("it leads no group");
            let (user, terminal) = sys.openpty().expect("there is room");
            sys.set_controlling(terminal).expect("it leads a session");
            sys.sigaction(Signal::TTOU, Some(SigAction::IGNORE)).expect("it is allowed");
            sys.write(user, b"line\n").expect("there is room");
            run_job(sys, terminal, careful)
        });
        let waited = sys.waitpid(shell.expect("there is room").into(), WaitOptions::empty());
        waited.expect("it is my child").expect("it ended").status.exited().unwrap_or(9)
    })
}

fn run_job(sys: &dyn Sys, terminal: Fd, careful: bool) -> i32 {
    let job = sys.fork(move |sys| {
        if careful {
            sys.setpgid(OWN, OWN).expect("it may");
            sys.tcsetpgrp(terminal, sys.getpid()).expect("it may");
        }
        sys.sigaction(Signal::TTOU, Some(SigAction::DEFAULT)).expect("it is allowed");
        let mut line = [0; 9];
        i32::from(sys.read(terminal, &mut line) != Ok(5) || &line[..5] != b"line\n")
    });
    let job = job.expect("there is room");
    // A job that has ended has no group any more.
    let _ = sys.setpgid(job, job);
    let _ = sys.tcsetpgrp(terminal, job);
    let waited = sys.waitpid(job.into(), WaitOptions::STOPPED);
    let status = waited.expect("it is my child").expect("it changed").status;
    sys.tcsetpgrp(terminal, sys.getpid()).expect("it ignores SIGTTOU");
    let back = sys.tcgetpgrp(terminal).map(Pid::number) == Ok(sys.getpid().number());
    match status {
        Status::Exited(0) if back => 0,
        Status::Stopped(_) => {
            sys.kill(job.into(), Some(Signal::KILL)).expect("it is there");
            sys.wait().expect("it is my child");
            2
        }
        _ => 3,
    }
}

#[test]
fn a_job_that_takes_the_terminal_itself_is_not_stopped() {
    let race = Race {
        scene: || hand_over(true),
        with: |builder| builder,
        modes: &Mode::ALL,
        parallel: PARALLEL,
    };
    race.holds();
}

#[test]
fn a_job_that_waits_for_its_shell_may_read_too_early() {
    let race = Race {
        scene: || hand_over(false),
        with: |builder| builder,
        modes: &Mode::ALL,
        parallel: 0,
    };
    race.fails();
}

//! Races for a terminal. A shell and its job both give the job the terminal, as with `setpgid`, and
//! the later call has no effect. Two session leaders compete for one terminal. Another thread
//! changes a reader's group (§7.2.3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use tontine_unix::{
    Errno, Fd, Pid, SigAction, SigSet, SigmaskHow, Signal, Sys, WaitOptions, WaitStatus,
};

use crate::children::{await_set, end_of, forked, send, threaded};
use crate::races::explore::{Race, holds};

const OWN: Pid = Pid::number_only(0);

/// A shell with a terminal gives the terminal to a job that reads a line, and then takes the
/// terminal back. If `careful` is false, the job leaves the setup to the shell.
fn hand_over(sys: &dyn Sys, careful: bool) -> i32 {
    let shell = forked(sys, move |sys| {
        sys.setsid().expect("the caller leads no group");
        let (user, terminal) = sys.openpty().expect("within the limits");
        sys.set_controlling(terminal).expect("the caller leads a session");
        sys.sigaction(Signal::TTOU, Some(SigAction::IGNORE)).expect("permitted");
        sys.write(user, b"line\n").expect("the terminal has space");
        run_job(sys, terminal, careful)
    });
    end_of(sys, shell).exited().unwrap_or(9)
}

fn run_job(sys: &dyn Sys, terminal: Fd, careful: bool) -> i32 {
    let job = forked(sys, move |sys| {
        if careful {
            sys.setpgid(OWN, OWN).expect("permitted");
            sys.tcsetpgrp(terminal, sys.getpid()).expect("permitted");
        }
        sys.sigaction(Signal::TTOU, Some(SigAction::DEFAULT)).expect("permitted");
        let mut line = [0; 9];
        i32::from(sys.read(terminal, &mut line) != Ok(5) || &line[..5] != b"line\n")
    });
    // A job that has ended no longer has a group.
    let _ = sys.setpgid(job, job);
    let _ = sys.tcsetpgrp(terminal, job);
    let waited = sys.waitpid(job.into(), WaitOptions::STOPPED);
    let status = waited.expect("a child of the caller").expect("the wait blocks").status;
    sys.tcsetpgrp(terminal, sys.getpid()).expect("the caller ignores SIGTTOU");
    let back = sys.tcgetpgrp(terminal).map(Pid::number) == Ok(sys.getpid().number());
    match status {
        WaitStatus::Exited(0) if back => 0,
        WaitStatus::Stopped(_) => {
            send(sys, job, Signal::KILL);
            sys.wait().expect("a child of the caller");
            2
        }
        _ => 3,
    }
}

/// Waits for a child and returns its exit status, or 9.
fn status_of(sys: &dyn Sys, child: Pid) -> i32 {
    end_of(sys, child).exited().unwrap_or(9)
}

/// Two session leaders compete for the same terminal. One acquires the terminal, and the other
/// receives an error.
#[test]
fn one_of_two_session_leaders_gets_the_terminal() {
    holds(|sys| {
        let tried = Arc::new(AtomicI32::new(0));
        let (_user, terminal) = sys.openpty().expect("within the limits");
        let leader = |tried: Arc<AtomicI32>| {
            move |sys: &dyn Sys| {
                let session = sys.setsid().expect("the caller leads no group");
                let taken = sys.set_controlling(terminal);
                tried.fetch_add(1, Ordering::Relaxed);
                // The owner must not exit earlier, because its exit would free the terminal.
                while tried.load(Ordering::Relaxed) < 2 {
                    sys.sched_yield();
                }
                match (taken, sys.tcgetsid(terminal)) {
                    (Ok(()), Ok(its)) if its == session => 1,
                    (Err(Errno::EPERM), Err(Errno::ENOTTY)) => 2,
                    _ => 4,
                }
            }
        };
        let leaders = [(); 2].map(|()| forked(sys, leader(tried.clone())));
        let results: i32 = leaders.map(|leader| status_of(sys, leader)).iter().sum();
        i32::from(results != 1 + 2)
    });
}

/// A process reads from a background group while another thread moves it to the foreground group.
/// If the read signals the old group, the signal also reaches the process, whichever group it is in
/// by then.
#[test]
fn background_reader_is_signalled_though_it_left_its_group() {
    holds(|sys| {
        let shell = forked(sys, |sys| {
            sys.setsid().expect("the caller leads no group");
            let (user, terminal) = sys.openpty().expect("within the limits");
            sys.set_controlling(terminal).expect("the caller leads a session");
            sys.write(user, b"line\n").expect("the terminal has space");
            read_while_moved(sys, terminal)
        });
        status_of(sys, shell)
    });
}

fn read_while_moved(sys: &dyn Sys, terminal: Fd) -> i32 {
    let ttin = SigSet::of(&[Signal::TTIN]);
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    sys.sigprocmask(Some((SigmaskHow::Block, ttin))).expect("permitted");
    let friend = forked(sys, move |sys| {
        await_set(sys, &seen);
        i32::from(sys.sigpending().contains(Signal::TTIN))
    });
    sys.setpgid(friend, friend).expect("a child of the caller");
    sys.sigprocmask(Some((SigmaskHow::Unblock, ttin))).expect("permitted");
    let foreground = sys.getpgrp();
    let reader = forked(sys, move |sys| {
        let signalled = Arc::new(AtomicI32::new(0));
        let counts = signalled.clone();
        let action = SigAction::handler(move |_, _| {
            counts.fetch_add(1, Ordering::Relaxed);
        });
        sys.sigaction(Signal::TTIN, Some(action)).expect("permitted");
        sys.setpgid(OWN, friend).expect("the group exists");
        threaded(sys, move |sys| sys.setpgid(OWN, foreground).expect("the group exists"));
        let _ = sys.read(terminal, &mut [0; 9]);
        signalled.load(Ordering::Relaxed)
    });
    let reader_signalled = status_of(sys, reader);
    over.store(true, Ordering::Relaxed);
    let group_signalled = status_of(sys, friend);
    i32::from(group_signalled > reader_signalled)
}

#[test]
fn job_that_takes_the_terminal_itself_is_not_stopped() {
    holds(|sys| hand_over(sys, true));
}

#[test]
fn job_that_relies_on_its_shell_may_read_too_early() {
    Race::of(|sys| hand_over(sys, false)).fails();
}

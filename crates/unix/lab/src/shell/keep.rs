//! The parent that continues a stopped shell: [`keep`].
//!
//! A shell continues its jobs; the process that started the shell continues the shell itself, as
//! `login` or a terminal window does for a user's shell.

use tontine_unix::{
    Children, Errno, Fd, Pid, Program, SigSet, SigmaskHow, Signal, Sys, WaitOptions, WaitStatus,
};

use super::run::hand_over;
use super::say::{complain, say};

/// Runs a shell in its own process and foreground group. Returns its exit status, or 128 plus the
/// number of the signal that terminated it. If the shell stops, the user at standard input is asked
/// whether to continue it; if standard input is not a terminal, the shell is killed.
///
/// The caller must lead a session with a terminal at its standard output. In the caller all signals
/// stay blocked; the shell starts with no signal blocked.
pub fn keep(sys: &dyn Sys, shell: Program) -> i32 {
    kept(sys, shell).unwrap_or_else(|errno| {
        complain(sys, "tontine", errno);
        1
    })
}

fn kept(sys: &dyn Sys, shell: Program) -> Result<i32, Errno> {
    let _ = sys.sigprocmask(Some((SigmaskHow::Set, SigSet::ALL)));
    let made = sys.fork(move |sys| {
        let _ = sys.setpgid(Pid::number_only(0), Pid::number_only(0));
        let _ = hand_over(sys, Fd::STDOUT, sys.getpgrp());
        let _ = sys.sigprocmask(Some((SigmaskHow::Set, SigSet::EMPTY)));
        shell(sys)
    })?;
    loop {
        let options = WaitOptions::EXITED | WaitOptions::STOPPED;
        match sys.waitid(Children::One(made), options)?.map(|waited| waited.status) {
            Some(WaitStatus::Exited(status)) => return Ok(status),
            Some(WaitStatus::Signaled(signal, _)) => return Ok(128 + signal.number()),
            Some(WaitStatus::Stopped(signal)) => resume_or_kill(sys, made, signal),
            _ => {}
        }
    }
}

/// Asks the user whether to continue or kill a shell that has stopped, and does so.
fn resume_or_kill(sys: &dyn Sys, shell: Pid, signal: Signal) {
    let group = sys.tcgetpgrp(Fd::STDOUT);
    let _ = hand_over(sys, Fd::STDOUT, sys.getpgrp());
    let is_resumed = if sys.tcgetattr(Fd::STDIN).is_ok() {
        let question = format!(
            "\ntontine: the shell has stopped ({signal}); Return continues it, ^D kills it: "
        );
        let _ = say(sys, question);
        matches!(sys.read(Fd::STDIN, &mut [0; 256]), Ok(read) if read > 0)
    } else {
        let why = format!("the shell has stopped ({signal}), and no user can continue it");
        complain(sys, "tontine", why);
        false
    };
    if let Ok(group) = group {
        let _ = hand_over(sys, Fd::STDOUT, group);
    }
    let next = if is_resumed { Signal::CONT } else { Signal::KILL };
    let _ = sys.kill(shell.into(), Some(next));
}

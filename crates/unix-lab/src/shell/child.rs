//! The steps of a process between its fork from the shell and its program: [`ShellCommand`].
//!
//! The process enters its job's group, and makes this group the foreground group of the terminal.
//! The shell does the same, because neither may continue before both steps are done, and either may
//! run first.

use tontine_unix::{Fd, Pid, Result, SigAction, SigSet, SigmaskHow, Signal, Sys};

use super::launch::Launch;

/// One command of a pipeline.
pub(super) struct ShellCommand {
    pub(super) arguments: Vec<String>,
    pub(super) launch: Launch,
    /// The number of the job's group; `None` for the job's first process, which leads it. The
    /// shell's handle of the group may not be valid in another process.
    pub(super) group: Option<i32>,
    /// The terminal on which the job enters the foreground.
    pub(super) terminal: Option<Fd>,
    pub(super) input: Option<Fd>,
    pub(super) output: Option<Fd>,
    /// The read end of the pipe to which the process writes.
    pub(super) close: Option<Fd>,
    /// The signals that the shell ignores or catches.
    pub(super) defaults: SigSet,
    /// The signals that are blocked when the program starts. Until then all signals are blocked.
    pub(super) mask: SigSet,
}

impl ShellCommand {
    /// Becomes the command. Returns its exit status.
    pub(super) fn run(self, sys: &dyn Sys) -> i32 {
        let group = Pid::number_only(self.group.unwrap_or(sys.getpid().number()));
        // The shell makes the same call, and handles the errors.
        let _ = sys.setpgid(Pid::number_only(0), group);
        if let Some(terminal) = self.terminal {
            let _ = hand_over(sys, terminal, group);
        }
        for signal in self.defaults.iter() {
            let _ = sys.sigaction(signal, Some(SigAction::DEFAULT));
        }
        let _ = sys.sigprocmask(Some((SigmaskHow::Set, self.mask)));
        for (from, to) in [(self.input, Fd::STDIN), (self.output, Fd::STDOUT)] {
            if let Some(from) = from.filter(|from| *from != to) {
                let _ = sys.dup2(from, to).and_then(|()| sys.close(from));
            }
        }
        if let Some(other) = self.close {
            let _ = sys.close(other);
        }
        (self.launch)(sys, &self.arguments)
    }
}

/// Makes a group the foreground group of the terminal, even if the caller is in the background.
///
/// # Errors
/// The errors of [`Sys::tcsetpgrp`].
pub(super) fn hand_over(sys: &dyn Sys, terminal: Fd, group: Pid) -> Result<()> {
    let mask = sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::TTOU]))))?;
    let done = sys.tcsetpgrp(terminal, group);
    sys.sigprocmask(Some((SigmaskHow::Set, mask)))?;
    done
}

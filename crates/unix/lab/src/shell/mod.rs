//! A job-control shell, as an example of a program of [`Sys`]: [`shell`].
//!
//! The shell runs at a virtual or a real terminal. Each pipeline is a job with its own process
//! group. A foreground job receives the terminal, loses it when the job stops, and receives it
//! again from `fg`; `help` lists the commands. The terminal itself does the line editing.
//!
//! [`call`] runs the shell's own programs, on a system without files; [`execute`] calls exec.
//! [`log_in`] creates a session at a terminal for the shell, [`keep()`] continues the shell if it
//! stops, and [`attend`] connects the user's terminal to the session's.

mod builtins;
mod host;
mod job;
mod keep;
mod launch;
mod parse;
mod programs;
mod run;
mod say;
mod signals;
mod suspend;

pub use host::attend;
pub use keep::keep;
pub use launch::{Launch, execute};
pub use programs::{call, program_names, ps};

use tontine_unix::{Errno, Fd, Pid, Result, SigAction, SigSet, Signal, Sys, Termios};

use self::job::Jobs;
use self::run::hand_over;
use self::say::{CommandError, complain, say};
use self::signals::ShellSignals;

const PROMPT: &str = "tontine$ ";

/// Runs a shell on standard input, or runs the commands after `-c`. Returns its exit status.
///
/// The shell starts programs with `launch`. It does not restore the dispositions that it sets for
/// the calling process. A shell that leads a session obtains its terminal from [`log_in`].
pub fn shell(sys: &dyn Sys, arguments: &[String], launch: Launch) -> i32 {
    let commands = match arguments.get(1..).unwrap_or_default() {
        [] => None,
        [flag, commands] if flag == "-c" => Some(commands.as_str()),
        _ => {
            complain(sys, "tontine", "usage: shell [-c commands]");
            return 2;
        }
    };
    match Shell::begin(sys, launch, commands.is_none()) {
        Ok(shell) => shell.run(commands),
        Err(error) => {
            complain(sys, "tontine", &error.text);
            error.status
        }
    }
}

/// Makes the caller the leader of a session at `terminal`, which becomes its standard input, output
/// and error. All signals are reset to their default dispositions, including signals that the
/// caller's runtime ignored.
pub fn log_in(sys: &dyn Sys, terminal: Fd) -> Result<()> {
    for signal in Signal::all().filter(|signal| !SigSet::UNBLOCKABLE.contains(*signal)) {
        sys.sigaction(signal, Some(SigAction::DEFAULT))?;
    }
    sys.setsid()?;
    sys.set_controlling(terminal)?;
    // The descriptor is copied to another number first, because a copy to its own number would keep
    // the close-on-exec flag.
    sys.dup2(terminal, ASIDE)?;
    for standard in [Fd::STDIN, Fd::STDOUT, Fd::STDERR] {
        sys.dup2(ASIDE, standard)?;
    }
    sys.close(ASIDE)?;
    if terminal > Fd::STDERR { sys.close(terminal) } else { Ok(()) }
}

/// A descriptor number that is not otherwise in use.
const ASIDE: Fd = Fd(255);

struct Shell<'a> {
    sys: &'a dyn Sys,
    launch: Launch,
    /// `true` if a user types the commands.
    interactive: bool,
    /// The terminal on which the shell moves jobs to the foreground, if any.
    terminal: Option<Fd>,
    /// The number of the group that had the terminal before the shell and receives it again at the
    /// end.
    group: i32,
    /// The terminal's modes while the shell is in the foreground.
    modes: Option<Termios>,
    /// The signal mask with which the shell was started.
    mask: SigSet,
    jobs: Jobs,
    signals: ShellSignals,
    /// `$?`
    status: i32,
    /// The exit status, once the shell must end.
    over: Option<i32>,
}

impl<'a> Shell<'a> {
    fn begin(
        sys: &'a dyn Sys,
        launch: Launch,
        reads: bool,
    ) -> std::result::Result<Self, CommandError> {
        let mut shell = Self {
            sys,
            launch,
            interactive: false,
            terminal: None,
            group: sys.getpgrp().number(),
            modes: None,
            mask: sys.sigprocmask(None).map_err(CommandError::call("signal mask"))?,
            jobs: Jobs::default(),
            signals: ShellSignals::default(),
            status: 0,
            over: None,
        };
        shell.terminal = shell.find_terminal();
        shell.interactive = reads && shell.terminal.is_some();
        shell.signals =
            ShellSignals::begin(sys, shell.interactive).map_err(CommandError::call("signals"))?;
        if let Some(terminal) = shell.terminal {
            // The leader of a session already leads a group, and may not change its group.
            let _ = sys.setpgid(Pid::number_only(0), Pid::number_only(0));
            let taken = hand_over(sys, terminal, sys.getpgrp());
            taken.map_err(CommandError::call("terminal"))?;
            shell.modes = sys.tcgetattr(terminal).ok();
        }
        Ok(shell)
    }

    /// Runs `commands`, or the lines of standard input. Returns the exit status.
    fn run(mut self, commands: Option<&str>) -> i32 {
        match commands {
            Some(commands) => self.execute(commands),
            None => self.converse(),
        }
        self.hang_up();
        self.give_terminal_back();
        self.over.unwrap_or(self.status)
    }

    fn converse(&mut self) {
        while self.over.is_none() {
            if self.signals.arrived().contains(Signal::HUP) {
                self.over = Some(128 + Signal::HUP.number());
                return;
            }
            self.note_interrupt();
            self.look_around();
            let news = self.jobs.report(|job| job.news);
            let prompt = if self.terminal.is_some() { PROMPT } else { "" };
            let _ = say(self.sys, news + prompt);
            match self.read_line() {
                Ok(Some(line)) => self.execute(&line),
                // A signal was caught during the read, and the typed text is discarded. A signal
                // that is caught just before the read starts is noticed only with the next line,
                // because read, unlike sigsuspend, takes no mask.
                Err(Errno::EINTR) => {
                    let _ = say(self.sys, "\n");
                }
                Ok(None) | Err(_) => {
                    if self.terminal.is_some() {
                        let _ = say(self.sys, "\n");
                    }
                    return;
                }
            }
        }
    }

    /// Reads a line, byte by byte, so that the programs that the shell starts can read the rest of
    /// the input. Returns `None` at its end.
    fn read_line(&self) -> Result<Option<String>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.sys.read(Fd::STDIN, &mut byte)? > 0 {
            if byte == *b"\n" {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            line.extend(byte);
        }
        Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
    }

    /// Sends SIGHUP to the jobs, because the shell ends.
    fn hang_up(&mut self) {
        self.look_around();
        for job in self.jobs.0.iter().filter(|job| !job.state().is_over()) {
            let _ = self.sys.killpg(job.group, Some(Signal::HUP));
            if job.state().is_stopped() {
                let _ = self.sys.killpg(job.group, Some(Signal::CONT));
            }
        }
    }
}

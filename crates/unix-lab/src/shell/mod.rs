//! A job-control shell, for experiments and teaching: [`shell`].
//!
//! The shell is an ordinary program of [`Sys`], and runs at a virtual or a real terminal. Each
//! pipeline is a job with its own process group. A foreground job receives the terminal, loses it
//! when the job stops, and receives it again from `fg`; `help` lists the commands. The terminal
//! itself does the line editing.
//!
//! [`programs()`] returns the programs that the shell runs on a system without files; a [`Launch`]
//! runs them. [`log_in`] creates a session at a terminal for the shell, [`keep()`] continues the
//! shell if it stops, and [`attend`] connects the user's terminal to the session's.

mod builtins;
mod child;
mod complaint;
mod host;
mod job;
mod keep;
mod launch;
mod parse;
mod programs;
mod read;
mod run;
mod say;
mod suspend;
mod trap;

pub use host::attend;
pub use keep::keep;
pub use launch::{Launch, call, execute};
pub use programs::{Main, programs, ps};

use tontine_unix::{Fd, Pid, Result, SigAction, SigSet, Signal, Sys, Termios};

use self::complaint::CommandError;
use self::job::Jobs;
use self::read::{InputLines, NextInput};
use self::say::{complain, say};
use self::trap::Traps;

const PROMPT: &str = "tontine$ ";

/// Runs a shell on standard input, or runs the commands after `-c`. Returns its exit status.
///
/// The shell starts programs by exec. It does not restore the dispositions that it sets for the
/// calling process. A shell that leads a session obtains its terminal from [`log_in`].
pub fn shell(sys: &dyn Sys, arguments: &[String]) -> i32 {
    shell_with(sys, arguments, &execute())
}

/// Like [`shell`], but runs programs with `launch`.
///
/// ```
/// use tontine_unix_lab::shell::{call, programs, shell_with};
/// use tontine_unix::{Linux, WaitStatus, Sys};
///
/// let linux = Linux::new()?;
/// let sys: &dyn Sys = &linux;
/// let shell = sys.fork(|sys| {
///     let arguments = ["shell", "-c", "seq 3 | wc && exit 7"].map(String::from);
///     shell_with(sys, &arguments, &call(programs()))
/// })?;
/// let ended = sys.waitpid(shell.into(), Default::default())?.expect("it waited");
/// assert_eq!(ended.status, WaitStatus::Exited(7));
/// # Ok::<(), tontine_unix::Errno>(())
/// ```
pub fn shell_with(sys: &dyn Sys, arguments: &[String], launch: &Launch) -> i32 {
    let commands = match arguments.get(1..).unwrap_or_default() {
        [] => None,
        [flag, commands] if flag == "-c" => Some(commands.as_str()),
        _ => {
            complain(sys, "tontine", CommandError::Usage("shell [-c commands]"));
            return 2;
        }
    };
    match Shell::begin(sys, launch, commands.is_none()) {
        Ok(shell) => shell.run(commands),
        Err(complaint) => {
            complain(sys, "tontine", &complaint);
            complaint.status()
        }
    }
}

/// Makes the caller the leader of a session at `terminal`, which becomes its standard input, output
/// and error. All signals are reset to their default dispositions, including signals that the
/// caller's runtime ignored.
///
/// # Errors
/// The errors of [`Sys::setsid`], [`Sys::set_controlling`] and [`Sys::dup2`].
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

/// A shell.
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
    traps: Traps,
    /// `$?`
    status: i32,
    /// `$!`
    background: Option<Pid>,
    /// Number of lines read, including the end of input.
    lines: u64,
    /// The number of the line at which the user was last warned of stopped jobs.
    told_at: Option<u64>,
    /// The exit status, once the shell must end.
    over: Option<i32>,
}

impl<'a> Shell<'a> {
    fn begin(
        sys: &'a dyn Sys,
        launch: &Launch,
        reads: bool,
    ) -> std::result::Result<Self, CommandError> {
        let mut shell = Self {
            sys,
            launch: launch.clone(),
            interactive: false,
            terminal: None,
            group: sys.getpgrp().number(),
            modes: None,
            mask: sys.sigprocmask(None).map_err(CommandError::call("signal mask"))?,
            jobs: Jobs::default(),
            traps: Traps::default(),
            status: 0,
            background: None,
            lines: 0,
            told_at: None,
            over: None,
        };
        shell.terminal = shell.find_terminal();
        shell.interactive = reads && shell.terminal.is_some();
        shell.traps =
            Traps::begin(sys, shell.interactive).map_err(CommandError::call("signals"))?;
        if let Some(terminal) = shell.terminal {
            // The leader of a session already leads a group, and may not change its group.
            let _ = sys.setpgid(Pid::number_only(0), Pid::number_only(0));
            let taken = child::hand_over(sys, terminal, sys.getpgrp());
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
        let mut lines = InputLines::new(self.terminal.is_some());
        while self.over.is_none() {
            if self.traps.hung_up() {
                self.over = Some(128 + Signal::HUP.number());
                return;
            }
            self.run_traps();
            if self.over.is_some() {
                return;
            }
            self.look_around();
            let news: String = self.jobs.news().into_iter().map(|line| line + "\n").collect();
            let _ = say(self.sys, news);
            match lines.next(self.sys, PROMPT) {
                NextInput::Line(line) => {
                    self.lines += 1;
                    self.execute(&line);
                }
                NextInput::Interrupted => {
                    let _ = say(self.sys, "\n");
                }
                NextInput::End => {
                    self.lines += 1;
                    if self.terminal.is_some() {
                        let _ = say(self.sys, "\n");
                    }
                    self.leave_with(self.status);
                }
            }
        }
    }
}

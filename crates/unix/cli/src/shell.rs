//! `tontine-unix shell`: a shell in a virtual system, at the user's own terminal.
//!
//! The virtual system runs in a separate thread; the calling thread copies bytes between the two
//! terminals. Without a terminal, standard input is empty and output is not formatted for a
//! terminal.

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;

use tontine_command::{CommandFailure, stopped_by};
use tontine_unix::{Errno, Fd, Modes, Signal, Sys, WaitStatus};
use tontine_unix_lab::shell::{attend, call, execute, keep, program_names, ps, shell as run_shell};
use tontine_unix_sim::{Builder, Console, Executor, RunReport, SystemState, Virtual};

use super::mode;
use crate::args::{ExecutorName, UnixShell};

/// The default seed of a simulation.
const SEED: u64 = 1;

/// Runs `unix shell`.
pub(crate) fn shell(args: &UnixShell) -> Result<ExitCode, CommandFailure> {
    let (input, output) = (io::stdin(), io::stdout());
    let terminals = TerminalUse { typed: input.is_terminal(), shown: output.is_terminal() };
    if !terminals.typed && args.commands.is_none() {
        return Err(CommandFailure::usage(
            "expected a terminal on standard input, found none; \
             without one, pass the commands: tontine-unix shell -c COMMANDS",
        ));
    }
    let console = if terminals.typed { Console::new() } else { Console::unattended() };
    let system = system(args).console(&console).build().map_err(CommandFailure::usage)?;
    let arguments = arguments(args.commands.as_deref());
    let nothing = File::open("/dev/null").map_err(CommandFailure::cannot("open /dev/null"))?;
    let typed: BorrowedFd<'_> = if terminals.typed { input.as_fd() } else { nothing.as_fd() };
    // The thread is not joined if the user's terminal fails, because it ends with the process.
    let running = thread::spawn(move || {
        system.run(move |sys| match terminals.prepare(sys) {
            Ok(()) => {
                SystemState::name_caller("login");
                keep(
                    sys,
                    Box::new(move |sys| {
                        SystemState::name_caller("shell");
                        run_shell(sys, &arguments, execute)
                    }),
                )
            }
            Err(_) => 1,
        })
    });
    match attend(&console, &typed, &output) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            return Ok(stopped_by(Signal::PIPE.number()));
        }
        attended => attended.map_err(CommandFailure::cannot("use the terminal"))?,
    }
    status(&running.join().unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Returns a builder for the system that the arguments describe, with the shell's programs.
fn system(args: &UnixShell) -> Builder {
    let executor = match (args.seed, args.executor) {
        (Some(seed), _) => Executor::Simulated { seed },
        (None, ExecutorName::Simulated) => Executor::Simulated { seed: SEED },
        (None, ExecutorName::Parallel) => Executor::Parallel,
    };
    let builder = Virtual::builder()
        .mode(mode(args.mode))
        .processors(args.processors.into())
        .executor(executor)
        .program("ps", ps(|| SystemState::here().unwrap_or_default().to_string()));
    program_names().fold(builder, |builder, name| builder.program(name, call))
}

fn arguments(commands: Option<&str>) -> Vec<String> {
    let commands = commands.into_iter().flat_map(|commands| ["-c", commands]);
    ["shell"].into_iter().chain(commands).map(str::to_owned).collect()
}

/// The standard streams of the command that are terminals.
#[derive(Clone, Copy)]
struct TerminalUse {
    typed: bool,
    shown: bool,
}

impl TerminalUse {
    /// Sets the modes of the system's terminal. The user's terminal is in raw mode and needs
    /// carriage returns, but files and pipes do not. Without a terminal, standard input is at its
    /// end.
    fn prepare(self, sys: &dyn Sys) -> Result<(), Errno> {
        let mut termios = sys.tcgetattr(Fd::STDIN)?;
        termios.modes.set(Modes::ONLCR, self.typed && self.shown);
        termios.modes.set(Modes::ECHO, self.typed);
        sys.tcsetattr(Fd::STDIN, &termios)?;
        if self.typed {
            return Ok(());
        }
        let (empty, writer) = sys.pipe()?;
        sys.close(writer)?;
        sys.dup2(empty, Fd::STDIN)?;
        sys.close(empty)
    }
}

/// Converts the shell's exit status.
fn status(report: &RunReport) -> Result<ExitCode, CommandFailure> {
    match report.status {
        Some(WaitStatus::Exited(status)) => Ok(ExitCode::from(status as u8)),
        Some(WaitStatus::Signaled(signal, _)) => Ok(stopped_by(signal.number())),
        None => {
            let state = report.state.as_ref().map(SystemState::to_string).unwrap_or_default();
            let waits = "expected the shell to end, found that all threads are blocked";
            Err(CommandFailure::failed(format!("{waits}:\n{}", state.trim_end())))
        }
        other => Err(CommandFailure::failed(format!("expected the shell to end, found {other:?}"))),
    }
}

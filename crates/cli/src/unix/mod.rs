//! `tontine unix`: a Unix in user space, from the command line.

mod run;

use std::process::ExitCode;

use crate::Refusal;
use crate::args::{Unix, UnixCommand};

/// Carries out one of its commands.
pub(crate) fn unix(asked: &Unix) -> Result<ExitCode, Refusal> {
    match &asked.command {
        UnixCommand::Run(asked) => run::run(asked),
    }
}

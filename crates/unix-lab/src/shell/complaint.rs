//! The error messages of the shell: [`CommandError`].

use tontine_unix::{Errno, ParseSignalError};

use super::parse::ParseError;

/// The reason why a command failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CommandError {
    #[error("no such job: {0}")]
    NoJob(String),
    #[error("more than one job: {0}")]
    ManyJobs(String),
    #[error("no current job")]
    NoCurrentJob,
    #[error("job {0} has ended")]
    Over(usize),
    #[error("cannot bring a job to the foreground: the shell has no terminal")]
    NoTerminal,
    #[error("usage: {0}")]
    Usage(&'static str),
    #[error(
        "`{0}` acts on the shell itself and cannot be part of a pipeline or run in the background"
    )]
    InPipeline(String),
    #[error("{0}: {1}")]
    Call(String, Errno),
    #[error(transparent)]
    Signal(#[from] ParseSignalError),
    #[error(transparent)]
    Parse(#[from] ParseError),
}

impl CommandError {
    /// Returns the value of `$?`: 2 if the line is wrong, 1 if the command fails.
    pub(super) fn status(&self) -> i32 {
        match self {
            Self::Usage(_) | Self::Parse(_) | Self::InPipeline(_) => 2,
            _ => 1,
        }
    }

    /// Returns a function that names the attempted operation when a system call fails.
    pub(super) fn call(what: impl ToString) -> impl FnOnce(Errno) -> Self {
        let what = what.to_string();
        move |errno| Self::Call(what, errno)
    }
}

//! What the shell says when it cannot do something: [`Complaint`].

use tontine_unix::{Errno, ParseSignalError};

use super::parse::ParseError;

/// Why a command did not do what it says.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Complaint {
    #[error("no such job: {0}")]
    NoJob(String),
    #[error("more than one job: {0}")]
    ManyJobs(String),
    #[error("no current job")]
    NoCurrentJob,
    #[error("job {0} is over")]
    Over(usize),
    #[error("there is no terminal to bring a job to")]
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

impl Complaint {
    /// What `$?` is then: 2 where the line is wrong, 1 where the world is.
    pub(super) fn status(&self) -> i32 {
        match self {
            Self::Usage(_) | Self::Parse(_) | Self::InPipeline(_) => 2,
            _ => 1,
        }
    }

    /// Names what was tried when a system call refused.
    pub(super) fn call(what: impl ToString) -> impl FnOnce(Errno) -> Self {
        let what = what.to_string();
        move |errno| Self::Call(what, errno)
    }
}

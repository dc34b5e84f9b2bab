//! Why an exploration yielded nothing: [`Trouble`].
//!
//! What the machine refuses is *skipped*, what should have worked has *failed*, and the two are
//! never mixed. That a mechanism wedges is neither: it is a finding, and stands in the report.

use std::io;

/// Why a subject, or one of its operations, could not be explored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The machine lacks what is needed; the text says what.
    #[error("skipped: {0}")]
    Skipped(String),
    /// It should have worked and did not.
    #[error("failed: {0}")]
    Failed(String),
    /// The caller asked for an early end.
    #[error("ended early")]
    Stopped,
}

/// What most functions here return.
pub type Result<T> = std::result::Result<T, Trouble>;

impl Trouble {
    /// A skip, with its reason.
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skipped(why.into())
    }

    /// A failure, with its reason.
    pub fn fail(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }
}

/// Names the call that an error came from.
pub(crate) trait During<T> {
    /// For calls that a machine may well refuse: permission, limits, a missing call are a skip.
    fn setting_up(self, call: &str) -> Result<T>;
    /// For calls inside a running exploration: a failure.
    fn during(self, call: &str) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for std::result::Result<T, E> {
    fn setting_up(self, call: &str) -> Result<T> {
        self.map_err(|error| {
            let error = error.into();
            let text = format!("{call}: {error}");
            if refused(&error) { Trouble::Skipped(text) } else { Trouble::Failed(text) }
        })
    }

    fn during(self, call: &str) -> Result<T> {
        self.map_err(|error| Trouble::Failed(format!("{call}: {}", error.into())))
    }
}

/// Whether an error says that the machine does not offer a thing, rather than that it was misused.
pub(crate) fn refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EPERM
                | libc::EACCES
                | libc::ENOENT
                | libc::ENOSYS
                | libc::EOPNOTSUPP
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::ENOSPC
                | libc::EAGAIN
                | libc::EROFS
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_a_skip_and_a_misused_one_a_failure() {
        let of = |number| Err::<(), _>(io::Error::from_raw_os_error(number)).setting_up("ptrace");
        assert!(matches!(of(libc::EPERM), Err(Trouble::Skipped(why)) if why.starts_with("ptrace")));
        assert!(matches!(of(libc::EINVAL), Err(Trouble::Failed(_))));
    }
}

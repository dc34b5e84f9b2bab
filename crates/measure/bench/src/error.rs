//! The reason why an experiment or an exploration has no result: [`MeasureError`].
//!
//! An experiment is *skipped* if the machine lacks something that it needs, and it has *failed* if
//! something went wrong that should have worked. The two are never mixed: a skip is a property of
//! the machine, and a failure is a bug. A wedged mechanism is neither a skip nor a failure, but a
//! result.

use std::io;

/// The reason why an invocation, or an operation under exploration, has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MeasureError {
    /// The machine lacks a requirement of the row. The text names the requirement and, if possible,
    /// a way to meet it.
    #[error("skipped: {0}")]
    Skipped(String),
    /// The row should have worked and did not.
    #[error("failed: {0}")]
    Failed(String),
}

pub type Result<T, E = MeasureError> = std::result::Result<T, E>;

impl MeasureError {
    pub fn skip(why: impl Into<String>) -> Self {
        Self::Skipped(why.into())
    }

    pub fn fail(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }

    /// Converts an error in the same way as [`ErrorContext::setting_up`].
    pub fn setting_up(call: &str, error: io::Error) -> Self {
        let text = format!("{call}: {error}");
        if refused(&error) { Self::Skipped(text) } else { Self::Failed(text) }
    }

    /// Returns the text alone, without the prefix.
    pub fn why(&self) -> &str {
        match self {
            Self::Skipped(why) | Self::Failed(why) => why,
        }
    }
}

/// Returns a failure from the calling function.
#[macro_export]
macro_rules! bail {
    ($($why:tt)*) => {
        return Err($crate::error::MeasureError::fail(format!($($why)*)))
    };
}

/// Returns a skip from the calling function.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {
        return Err($crate::error::MeasureError::skip(format!($($why)*)))
    };
}

/// Returns a failure from the calling function unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $($why:tt)*) => {
        if !$holds {
            $crate::bail!($($why)*);
        }
    };
}

/// Conversion of an error to a [`MeasureError`] that names the failed system call.
pub trait ErrorContext<T> {
    /// Converts the error of a call that *sets up an experiment*: to a skip if the system refused
    /// the call (no permission, no such call, a limit), otherwise to a failure.
    fn setting_up(self, call: &str) -> Result<T>;
    /// Converts the error of a call inside a running experiment to a failure.
    fn during(self, call: &str) -> Result<T>;
}

impl<T, E: Into<io::Error>> ErrorContext<T> for std::result::Result<T, E> {
    fn setting_up(self, call: &str) -> Result<T> {
        self.map_err(|error| MeasureError::setting_up(call, error.into()))
    }

    fn during(self, call: &str) -> Result<T> {
        self.map_err(|error| MeasureError::Failed(format!("{call}: {}", error.into())))
    }
}

/// Returns `true` if an error reports that the machine lacks something, and `false` if it reports
/// misuse of a call.
pub fn refused(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EPERM
                | libc::EACCES
                | libc::ENOENT
                | libc::ENODEV
                | libc::ENOSYS
                | libc::EOPNOTSUPP
                | libc::EPROTONOSUPPORT
                | libc::EAFNOSUPPORT
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOMEM
                | libc::ENOSPC
                | libc::EAGAIN
                | libc::EADDRNOTAVAIL
                | libc::EROFS
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_call_is_skip_misused_call_is_failure() {
        let refused: io::Result<()> = Err(io::Error::from_raw_os_error(libc::ENOSYS));
        let misused: io::Result<()> = Err(io::Error::from_raw_os_error(libc::EINVAL));
        let Err(MeasureError::Skipped(why)) = refused.setting_up("eventfd2") else {
            panic!("a refused call is a skip");
        };
        assert!(why.starts_with("eventfd2: "), "{why}");
        assert!(matches!(misused.setting_up("eventfd2"), Err(MeasureError::Failed(_))));
    }
}

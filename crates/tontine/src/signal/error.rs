//! The error of [`signal`](super): [`SignalError`].
//!
//! [`SignalError`] is separate from [`crate::Error`], which concerns peers. The cause of a
//! [`SignalError`] is in this program or in the system.

use std::io;

use super::{Signal, SignalSet};

/// An error of a function of [`signal`](super). The failed call has changed nothing.
///
/// [`SignalError::errno`] returns the error number of each variant. An error converts into an
/// [`io::Error`], which has the same text and the [`io::ErrorKind`] of that number.
///
/// # Examples
/// ```
/// use tontine::signal::{Blocked, Signal, SignalError};
///
/// let error = Blocked::new(Signal::KILL).expect_err("no program can block SIGKILL");
/// assert!(matches!(error, SignalError::CannotTake { signal: Signal::KILL, .. }));
/// let error = std::io::Error::from(error);
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The set contains a signal that no program can take as a value, or the handler is for such a
    /// signal.
    #[error("{signal} cannot be taken: {reason}")]
    CannotTake {
        /// The signal.
        signal: Signal,
        /// The reason, and what to do.
        reason: &'static str,
    },

    /// The set contains no signal.
    #[error("the set of signals is empty, so no signal could ever be taken; name at least one")]
    EmptySet,

    /// Another thread runs with signals of the set unblocked. These signals could interrupt that
    /// thread or terminate the process. The call has undone its own blocking.
    #[error(
        "thread {thread} ({name}) runs with {signals} unblocked and could be interrupted by it, \
         but every thread must block what is to be taken; call Blocked::new at the top of main, \
         before the first thread or runtime starts, or block {signals} in that thread"
    )]
    Unblocked {
        /// The thread's id, as in `/proc/self/task`.
        thread: u32,
        /// The thread's name.
        name: String,
        /// The signals of the set that the thread does not block.
        signals: SignalSet,
    },

    /// A file below `/proc/self/task` cannot be read, so the masks of the other threads are
    /// unknown.
    #[error(
        "{path} cannot be read ({}), so the signal masks of the other threads are unknown; \
         mount proc on /proc",
        io::Error::from_raw_os_error(*.errno)
    )]
    ProcUnavailable {
        /// The path that could not be read.
        path: String,
        /// The error number of the system call that failed.
        errno: i32,
    },

    /// The parent of this process created the handle, before a fork. Its thread runs in the parent.
    #[error(
        "this handle was made before a fork and its thread runs in the parent process; \
         make a new Blocked and a new handle in the child"
    )]
    Forked,

    /// The thread that takes the signals has ended, and every signal that it took has been
    /// received. The thread ends by itself only if it panics.
    #[error(
        "the thread that takes the signals has ended and its queue is empty; \
         drop the handle and make a new one"
    )]
    Disconnected,

    /// The bytes are not a [`SignalInfo`](super::SignalInfo), or the text does not name a signal.
    #[error("not a signal: {reason}")]
    Malformed {
        /// The expected form.
        reason: &'static str,
    },

    /// A system call failed.
    #[error("{call} failed: {}", io::Error::from_raw_os_error(*.errno))]
    System {
        /// The name of the call.
        call: &'static str,
        /// The error number of the call.
        errno: i32,
    },
}

/// Formats the text, because a `main` that returns the error prints this form.
impl std::fmt::Debug for SignalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl SignalError {
    /// Returns the error of the system call `call`, which has failed with `errno`.
    pub(super) fn system(call: &'static str, errno: i32) -> Self {
        Self::System { call, errno }
    }

    /// Converts an I/O error into the error of `call`.
    pub(super) fn io(call: &'static str, error: &io::Error) -> Self {
        Self::system(call, error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Returns the calling thread's `errno` as the error of the C library's function `call`.
    pub(super) fn last(call: &'static str) -> Self {
        Self::io(call, &io::Error::last_os_error())
    }

    /// Returns the error number of this error, for callers in C.
    ///
    /// | variant | number |
    /// | --- | --- |
    /// | `CannotTake`, `EmptySet` | EINVAL |
    /// | `Unblocked` | EBUSY |
    /// | `ProcUnavailable`, `System` | the error number of the system call |
    /// | `Forked` | ESTALE |
    /// | `Disconnected` | EPIPE |
    /// | `Malformed` | EBADMSG |
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::SignalError;
    ///
    /// assert_eq!(SignalError::Disconnected.errno(), libc::EPIPE);
    /// ```
    pub fn errno(&self) -> i32 {
        match self {
            Self::CannotTake { .. } | Self::EmptySet => libc::EINVAL,
            Self::Unblocked { .. } => libc::EBUSY,
            Self::ProcUnavailable { errno, .. } | Self::System { errno, .. } => *errno,
            Self::Forked => libc::ESTALE,
            Self::Disconnected => libc::EPIPE,
            Self::Malformed { .. } => libc::EBADMSG,
        }
    }
}

/// Converts into an I/O error with the same text and the kind of [`SignalError::errno`]. The
/// `SignalError` is its inner error ([`io::Error::get_ref`]).
impl From<SignalError> for io::Error {
    fn from(error: SignalError) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_error_keeps_text_and_kind() {
        let all = [
            SignalError::CannotTake { signal: Signal::KILL, reason: "leave it out" },
            SignalError::EmptySet,
            SignalError::Unblocked {
                thread: 7,
                name: "worker".into(),
                signals: Signal::TERM.into(),
            },
            SignalError::ProcUnavailable { path: "/proc".into(), errno: libc::EACCES },
            SignalError::Forked,
            SignalError::Disconnected,
            SignalError::Malformed { reason: "a signal has 32 bytes" },
            SignalError::System { call: "signalfd", errno: libc::EMFILE },
        ];
        for error in all {
            let io = io::Error::from(error.clone());
            assert_eq!(io.to_string(), error.to_string());
            assert_eq!(io.kind(), io::Error::from_raw_os_error(error.errno()).kind());
            assert_eq!(io.downcast::<SignalError>().expect("the inner error"), error);
        }
        let kind = |error| io::Error::from(error).kind();
        assert_eq!(kind(SignalError::EmptySet), io::ErrorKind::InvalidInput);
        assert_eq!(kind(SignalError::Disconnected), io::ErrorKind::BrokenPipe);
        let denied = SignalError::ProcUnavailable { path: "/proc".into(), errno: libc::EACCES };
        assert_eq!(kind(denied), io::ErrorKind::PermissionDenied);
    }
}

//! Why signals cannot be taken: [`Error`].
//!
//! Apart from [`crate::Error`], which is about peers: here this program itself is to blame, or the
//! system.

use rustix::io::Errno;

use super::{Set, Signal};

/// What this module's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why it was not done. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A signal that nobody can take as a value.
    #[error("{signal} cannot be taken: {why}")]
    CannotTake {
        /// The signal.
        signal: Signal,
        /// Why not, and what to do.
        why: &'static str,
    },

    /// A set without a signal.
    #[error("there is no signal in the set, so that none would ever come; name at least one")]
    Nothing,

    /// Another thread runs with signals of the set unblocked: they could interrupt it, or end the
    /// process. What was blocked is unblocked again.
    #[error(
        "thread {thread} ({name}) runs with {signals} unblocked and could be interrupted by it; \
         block signals before the first thread starts (first in main, before a runtime), or give \
         that thread the mask"
    )]
    Unblocked {
        /// Its id, as in `/proc/self/task`.
        thread: u32,
        /// Its name.
        name: String,
        /// What it does not block.
        signals: Set,
    },

    /// `/proc/self/task` cannot be read, so nobody knows what other threads block.
    #[error(
        "{path} cannot be read ({}), so nobody can say what the other threads block; mount proc",
        std::io::Error::from(*.errno)
    )]
    NoProc {
        /// What was to be read.
        path: String,
        /// What the system answered.
        errno: Errno,
    },

    /// The handle was made by the process that forked this one, where its thread runs.
    #[error(
        "this handle belongs to the process that forked this one, where its thread runs; \
         make a new one in the child"
    )]
    Forked,

    /// The thread that takes signals has ended.
    #[error("the thread that takes the signals has ended; nothing more will come")]
    Ended,

    /// Bytes that no [`Received`](super::Received) was made into.
    #[error("these are not the bytes of a signal: {why}")]
    Malformed {
        /// What was expected.
        why: &'static str,
    },

    /// A system call failed for a reason of its own.
    #[error("{call} failed: {}", std::io::Error::from(*.errno))]
    System {
        /// The call.
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },
}

impl Error {
    /// A system call's error.
    pub(super) fn system(call: &'static str, errno: Errno) -> Self {
        Self::System { call, errno }
    }

    /// An I/O error as the error of `call`.
    pub(super) fn io(call: &'static str, error: &std::io::Error) -> Self {
        Self::System { call, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
    }

    /// The calling thread's `errno` as the error of the C library's function `call`.
    pub(super) fn last(call: &'static str) -> Self {
        Self::io(call, &std::io::Error::last_os_error())
    }

    /// The error number that says this to a caller in C.
    pub fn errno(&self) -> i32 {
        match self {
            Self::CannotTake { .. } | Self::Nothing => libc::EINVAL,
            Self::Unblocked { .. } => libc::EBUSY,
            Self::NoProc { errno, .. } | Self::System { errno, .. } => errno.raw_os_error(),
            Self::Forked => libc::ESTALE,
            Self::Ended => libc::EPIPE,
            Self::Malformed { .. } => libc::EBADMSG,
        }
    }
}

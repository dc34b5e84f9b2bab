//! The error of a system call: [`Errno`].

use std::fmt;

/// The result of a system call of [`Sys`](crate::Sys).
pub type Result<T> = std::result::Result<T, Errno>;

/// The error number of a failed system call, with Linux's numbers and names.
///
/// ```
/// use tontine_unix::Errno;
///
/// assert_eq!(Errno::ESRCH.to_string(), "ESRCH: no such process");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident $text:literal,)*) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`: ", $text, ".")]
            pub const $name: Self = Self(libc::$name);)*

            const KNOWN: &[(i32, &str, &str)] = &[$((libc::$name, stringify!($name), $text),)*];
        }
    };
}

errnos! {
    EPERM "operation not permitted",
    ENOENT "no such file or directory",
    ESRCH "no such process",
    EINTR "interrupted by a signal",
    EIO "input or output error",
    ENXIO "no such device or address",
    E2BIG "argument list too long",
    ENOEXEC "not an executable",
    EBADF "bad file descriptor",
    ECHILD "no such child",
    EAGAIN "try again",
    ENOMEM "out of memory",
    EACCES "permission denied",
    EFAULT "bad address",
    EBUSY "busy",
    EEXIST "already exists",
    ENODEV "no such device",
    ENOTDIR "not a directory",
    EISDIR "is a directory",
    EINVAL "invalid argument",
    ENFILE "too many open files in the system",
    EMFILE "too many open files",
    ENOTTY "not a terminal",
    ETXTBSY "the program file is open for writing",
    ESPIPE "not seekable",
    EPIPE "no reader",
    ERANGE "out of range",
    EDEADLK "would deadlock",
    ENAMETOOLONG "name too long",
    ENOSYS "not implemented",
    ELOOP "too many symbolic links",
    EOVERFLOW "value too large",
    ENOTSUP "not supported",
    ETIMEDOUT "timed out",
}

impl Errno {
    /// Creates an error from its number, which may be a number without a name in [`Errno::name`].
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Returns the error number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Returns the name, such as `ESRCH`, or `None` if no system call of this crate returns the
    /// error.
    pub fn name(self) -> Option<&'static str> {
        self.known().map(|(_, name, _)| *name)
    }

    fn known(self) -> Option<&'static (i32, &'static str, &'static str)> {
        Self::KNOWN.iter().find(|(number, ..)| *number == self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((_, name, text)) => write!(f, "{name}: {text}"),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl From<std::io::Error> for Errno {
    /// Converts an I/O error. An error without a number becomes `EIO`.
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::EIO, Self)
    }
}

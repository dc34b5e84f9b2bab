//! [`Error`], returned by every function of the crate except those of `heap` and `signal`, and
//! [`Peer`], the process that it names.
//!
//! Each variant corresponds to one error number ([`Error::errno`]), which the C bindings return;
//! [`Error::System`] and [`Error::SystemAt`] keep the number of the system call that failed. Each
//! text names the failed operation, the expected and the found value, and the remedy.
//!
//! Neighbours: every module returns these errors. Only `sys::region` has its own error type,
//! because it finds what is wrong with a peer's region before the peer is known. Once the peer is
//! known, that error becomes an [`Error::Protocol`].

use std::fmt;
use std::io;

use rustix::io::Errno;

use self::text::{ExpectedUsers, HeldBy, HeldChunks, LengthRemedy, RefusalRemedy, Shown};

pub use self::peer::Peer;

mod peer;
mod text;

/// The result of a fallible function of this crate.
///
/// # Examples
/// ```no_run
/// fn main() -> tontine::Result {
///     let mut sender = tontine::mailbox::Sender::connect("/run/jobs")?;
///     sender.send(b"hello")
/// }
/// ```
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The error type of [`mailbox`](crate::mailbox) and [`life`](crate::life).
///
/// [`Error::errno`] returns the error number of each variant. An error converts into a
/// [`std::io::Error`] with the same text and the kind of its number. Its `Debug` form is its text,
/// which a `main` that returns the error prints.
///
/// # Examples
/// ```
/// use tontine::mailbox::Mailbox;
///
/// fn serve() -> std::io::Result<()> {
///     let mut mailbox = Mailbox::bind("")?;
///     mailbox.recv()?;
///     Ok(())
/// }
///
/// let error = serve().expect_err("the address is empty");
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// ```
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The receiver died. The sender can still take back the unread messages, that is, the messages
    /// that the receiver had not acknowledged
    /// ([`Sender::take_unread`](crate::mailbox::Sender::take_unread)).
    #[error("{peer} died; take the unread messages back, or connect to its successor")]
    OwnerDied {
        /// The dead process.
        peer: Peer,
    },

    /// The receiver closed the mailbox on purpose, or closed this lane because it found a violation
    /// of the protocol in it. Before it has accepted the lane, a receiver that calls `exec`, or a
    /// process without a mailbox, closes it, too. The sender can take back the unread messages.
    #[error(
        "{peer} has closed its mailbox or this lane, and accepts no more messages; take the unread \
         ones back"
    )]
    Closed {
        /// The process that closed the mailbox or the lane.
        peer: Peer,
    },

    /// A relay could not reach the receiver's host for the time that it allows. The sender can take
    /// back the unread messages; the receiver may have processed those that the relay had sent
    /// ([`Sender::take_unread_parts`](crate::mailbox::Sender::take_unread_parts)).
    #[error(
        "{peer} could not reach the receiver's host; take the unread messages back, or connect \
         again"
    )]
    Unreachable {
        /// The relay.
        peer: Peer,
    },

    /// A position is not in the range that the call allows, or not between two records.
    #[error(
        "position {position} is not the end of a record from {from} to {to}; use a position that \
         a record reported"
    )]
    InvalidPosition {
        /// The position.
        position: u64,
        /// The smallest allowed position.
        from: u64,
        /// The largest allowed position.
        to: u64,
    },

    /// The call does not block, and the mailbox has no message, or the lane has no free space.
    #[error("the call would block; wait for the descriptor, or use the blocking call")]
    WouldBlock,

    /// The timeout expired before anything was sent or received.
    #[error("the timeout expired and nothing was sent or received; retry, or allow more time")]
    TimedOut,

    /// A signal handler ran while the call slept, and the end was opened with
    /// [`Options::interruptible`](crate::mailbox::Options::interruptible). Nothing was sent or
    /// received.
    #[error("a signal handler ran while the call slept; call again, or stop")]
    Interrupted,

    /// Every sender has ended, everything that they sent was received, and the mailbox was opened
    /// with [`Options::report_no_senders`](crate::mailbox::Options::report_no_senders).
    #[error(
        "every sender has ended and all messages were received; stop, or receive again to wait for \
         another sender"
    )]
    NoSenders,

    /// Another thread woke the call ([`Waker`](crate::mailbox::Waker)). Nothing was received.
    #[error("another thread woke the call; call again, or stop")]
    Woken,

    /// A message exceeds the maximum that the lane's cap allows, and can never be sent.
    #[error(
        "a message of {len} bytes exceeds the lane's maximum of {max} bytes, {}",
        LengthRemedy(*.max, *.set_by)
    )]
    TooLarge {
        /// Length of the message in bytes.
        len: u64,
        /// Maximum length in bytes of a message in this lane.
        max: u64,
        /// The receiver if its cap is the smaller one; `None` if the sender's cap is smaller.
        set_by: Option<Peer>,
    },

    /// The handle was made by the process that forked this one, and still belongs to that process.
    #[error(
        "this handle belongs to the process that forked this one; make a new one in the child \
         (first of all its life, by Life::register)"
    )]
    Forked,

    /// The address has a live owner.
    #[error(
        "{} is in use by {}; wait until its owner ends, or choose another address",
        Shown(.address),
        HeldBy(*.holder)
    )]
    AddrInUse {
        /// The address.
        address: String,
        /// The process id of its owner, if the kernel reports one.
        holder: Option<u32>,
    },

    /// The path of a mailbox no longer leads to it: its socket or its lock file was removed or
    /// replaced. Senders cannot connect, or another process can become the owner.
    #[error(
        "{what} at {} was removed or replaced; close the mailbox and bind it again",
        Shown(.address)
    )]
    NameLost {
        /// The address.
        address: String,
        /// The lost file.
        what: &'static str,
    },

    /// No process listens at the address.
    #[error(
        "no process listens at {}; start the receiver, or retry until it has started",
        Shown(.address)
    )]
    NoMailbox {
        /// The address.
        address: String,
    },

    /// The user of the other end is not allowed here, or this process's user is not allowed there.
    #[error("{peer} was refused{}", ExpectedUsers(peer.uid, .allowed, .allowed_groups))]
    Denied {
        /// The process that was refused.
        peer: Peer,
        /// The allowed users; empty if the other end refused without naming any. If the process's
        /// own user is among them, its uid stands for several users here.
        allowed: Box<[u32]>,
        /// The groups of which any user is allowed
        /// ([`allow_gid`](crate::mailbox::Options::allow_gid)).
        allowed_groups: Box<[u32]>,
    },

    /// The receiver refused the lane, either permanently or because its process is short of
    /// descriptors or memory. In the second case, field `errno` is EMFILE, ENOMEM or another
    /// shortage, the text recommends a retry, and a sender that waits for successors retries by
    /// itself.
    #[error(
        "the receiver refused the lane: {}{}",
        io::Error::from_raw_os_error(*.errno),
        RefusalRemedy(*.errno)
    )]
    Refused {
        /// The error number that the receiver sent.
        errno: i32,
    },

    /// The other end uses another version of the protocol.
    #[error(
        "expected protocol version {ours}, found version {theirs} at the peer; \
         build both programs from releases with the same version"
    )]
    VersionMismatch {
        /// The version of this program.
        ours: u32,
        /// The version of the other end.
        theirs: u32,
    },

    /// The other end violated the protocol, by mistake or on purpose. Only its own lane is closed.
    #[error("{peer} violated the protocol: {what}; its lane is closed")]
    Protocol {
        /// The process that violated the protocol.
        peer: Peer,
        /// The expected and the found value.
        what: &'static str,
    },

    /// The calling thread cannot hold the process's life: the kernel would never mark its end.
    #[error("this thread cannot hold the process's life: {reason}")]
    CannotRegister {
        /// The expected thread, the thread that was found, and the remedy.
        reason: &'static str,
    },

    /// No mailbox can have this address.
    #[error("{} is not a valid address: {reason}", Shown(.address))]
    InvalidAddress {
        /// The address.
        address: String,
        /// The expected value, the found value, and the remedy.
        reason: &'static str,
    },

    /// The socket cannot carry a lane.
    #[error("this socket cannot carry a lane: {reason}")]
    InvalidSocket {
        /// The expected value, the found value, and the remedy.
        reason: &'static str,
    },

    /// Causal order needs the processor's counter as a clock, but the kernel uses another.
    #[error(
        "a mailbox in causal order needs the processor's counter as the kernel's clock source \
         (tsc or arch_sys_counter), found '{found}'; use Order::BySender"
    )]
    NoSharedClock {
        /// The kernel's clock source; empty if `/sys` does not show it.
        found: String,
    },

    /// An option has a value outside its range.
    #[error("option {option} cannot be {value} ({value:#o}): {reason}")]
    InvalidOption {
        /// The option.
        option: &'static str,
        /// The value of the option.
        value: u32,
        /// The valid values, and the remedy.
        reason: &'static str,
    },

    /// This process has used up a fixed number of resources.
    #[error("this process has reached its limit of {max} {what}; free some first")]
    Full {
        /// The resource, in the plural.
        what: &'static str,
        /// Maximum number of these resources.
        max: u64,
    },

    /// Chunks that left the lane count against its cap, and leave no space for the message,
    /// although the receiver has read everything.
    #[error(
        "{held} bytes of a lane with a cap of {cap} are still in use: {}",
        HeldChunks(*.is_unknown)
    )]
    ChunksHeld {
        /// Total size of these chunks.
        held: u64,
        /// The cap of the lane.
        cap: u64,
        /// `true` if the kernel does not report when their last mapping ends; `false` if a process
        /// still maps them.
        is_unknown: bool,
    },

    /// Shared memory would exceed the process's file size limit, which includes memory files.
    #[error(
        "a memory file of {requested} bytes exceeds this process's limit of {limit} bytes for a \
         file; raise the limit (RLIMIT_FSIZE, `ulimit -f`), or send smaller messages"
    )]
    FileTooLarge {
        /// Size in bytes that the file would have.
        requested: u64,
        /// Maximum size of a file in bytes.
        limit: u64,
    },

    /// A system call failed.
    #[error("{call} failed: {}", io::Error::from_raw_os_error(*.errno))]
    System {
        /// The call.
        call: &'static str,
        /// The error number that it returned.
        errno: i32,
    },

    /// A system call about a known file or address failed.
    #[error("{call} failed at {}: {}", Shown(.address), io::Error::from_raw_os_error(*.errno))]
    SystemAt {
        /// The call.
        call: &'static str,
        /// The file or the address.
        address: String,
        /// The error number that it returned.
        errno: i32,
    },
}

/// Length in bytes of the longest message that a lane with the largest chunks carries.
pub(crate) const LONGEST_MESSAGE: u64 = 536_870_824;

/// Returns `true` if the number means a shortage of descriptors or memory, which may be temporary.
/// ENOBUFS is excluded: a mailbox returns it when it has reached its maximum of lanes or of memory.
fn is_lack(errno: i32) -> bool {
    use libc::{EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC, ETOOMANYREFS};
    [EMFILE, ENFILE, ENOMEM, ENOSPC, ETOOMANYREFS, EAGAIN].contains(&errno)
}

/// Formats the text, because a `main` that returns the error prints this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Returns the error of the system call `call`.
    pub(crate) fn system(call: &'static str, errno: Errno) -> Self {
        Self::System { call, errno: errno.raw_os_error() }
    }

    /// Converts an error of the standard library into the error of the system call `call`.
    pub(crate) fn io(call: &'static str, error: &io::Error) -> Self {
        Self::System { call, errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    /// Returns the calling thread's `errno` as the error of the C library's function `call`.
    pub(crate) fn last(call: &'static str) -> Self {
        Self::System { call, errno: io::Error::last_os_error().raw_os_error().unwrap_or(0) }
    }

    /// Adds the file or address that the call concerned to a system call's error.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        match self {
            Self::System { call, errno } => {
                Self::SystemAt { call, address: place.to_string(), errno }
            }
            other => other,
        }
    }

    /// Returns `true` if this process is short of a resource, so that a retry may succeed.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, Self::System { .. } | Self::SystemAt { .. }) && is_lack(self.errno())
    }

    /// Returns `true` if a receiver refused because of a shortage, so that a retry may succeed.
    pub(crate) fn is_refusal_for_now(&self) -> bool {
        matches!(self, Self::Refused { errno } if is_lack(*errno))
    }

    /// Returns the error number of the variant, as listed in the C header. The error number of
    /// [`Error::System`] and [`Error::SystemAt`] is the number that the system call returned.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OwnerDied { .. } => libc::EOWNERDEAD,
            Self::Closed { .. } => libc::EPIPE,
            Self::Unreachable { .. } => libc::EHOSTUNREACH,
            Self::InvalidPosition { .. } => libc::ERANGE,
            Self::WouldBlock => libc::EAGAIN,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::Interrupted => libc::EINTR,
            Self::NoSenders => libc::ENOTCONN,
            Self::Woken => libc::ECANCELED,
            Self::TooLarge { .. } => libc::EMSGSIZE,
            Self::Forked => libc::ESTALE,
            Self::AddrInUse { .. } => libc::EADDRINUSE,
            Self::NameLost { .. } => libc::EIDRM,
            Self::NoMailbox { .. } => libc::ECONNREFUSED,
            Self::Denied { .. } => libc::EACCES,
            Self::Refused { .. } => libc::ECONNABORTED,
            Self::VersionMismatch { .. } => libc::EPROTONOSUPPORT,
            Self::Protocol { .. } => libc::EPROTO,
            Self::CannotRegister { .. } => libc::EOPNOTSUPP,
            Self::InvalidAddress { .. } => libc::EINVAL,
            Self::InvalidSocket { .. } => libc::EPROTOTYPE,
            Self::InvalidOption { .. } => libc::EDOM,
            Self::NoSharedClock { .. } => libc::ENOSYS,
            Self::Full { .. } => libc::ENOBUFS,
            Self::ChunksHeld { .. } => libc::EDQUOT,
            Self::FileTooLarge { .. } => libc::EFBIG,
            Self::System { errno, .. } | Self::SystemAt { errno, .. } => *errno,
        }
    }
}

/// The result has the same text, and the kind that corresponds to [`Error::errno`].
/// [`get_ref`](io::Error::get_ref) and [`downcast`](io::Error::downcast) return the original error.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(Self::from_raw_os_error(error.errno()).kind(), error)
    }
}

// The size is bounded, because each function of the fast paths returns a `Result` with this error.
const _: () = assert!(size_of::<Error>() <= 48);

#[cfg(test)]
mod tests;

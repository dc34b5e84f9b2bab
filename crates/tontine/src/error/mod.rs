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

mod text;

/// The result of a fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The process at the other end, as identified by the kernel (`SO_PEERCRED`, `SCM_CREDENTIALS`).
///
/// # Examples
/// ```
/// use tontine::Peer;
///
/// let peer = Peer { pid: Some(4711), uid: 1000 };
/// assert_eq!(peer.to_string(), "pid 4711 (uid 1000)");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The process id in the PID namespace of *this* process; `None` if it is not visible there.
    pub pid: Option<u32>,
    /// The user id in the user namespace of this process; 65534 (the kernel's overflow uid) if the
    /// user has no id in it.
    pub uid: u32,
}

impl Peer {
    /// A peer that the kernel has not identified yet.
    pub(crate) const UNKNOWN: Self = Self { pid: None, uid: u32::MAX };
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid} (uid {})", self.uid),
            None if *self == Self::UNKNOWN => write!(f, "an unidentified process"),
            None => write!(f, "a process of uid {}", self.uid),
        }
    }
}

/// The error type of [`mailbox`](crate::mailbox) and [`life`](crate::life).
///
/// [`Error::errno`] returns the error number of each variant. An error converts into a
/// [`std::io::Error`] with the same text and the kind of its number.
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    #[error("{peer} was refused{}", ExpectedUsers(peer.uid, .allowed))]
    Denied {
        /// The process that was refused.
        peer: Peer,
        /// The allowed users; empty if the other end refused without naming any. If the process's
        /// own user is among them, its uid stands for several users here.
        allowed: Vec<u32>,
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
        "a memory file of {asked} bytes exceeds this process's limit of {limit} bytes for a file; \
         raise the limit (RLIMIT_FSIZE, `ulimit -f`), or send smaller messages"
    )]
    FileTooLarge {
        /// Size in bytes that the file would have.
        asked: u64,
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
pub(crate) const LONGEST_MESSAGE: u64 = 536_870_832;

/// Returns `true` if the number means a shortage of descriptors or memory, which may be temporary.
/// ENOBUFS is excluded: a mailbox returns it when it has reached its maximum of lanes or of memory.
fn is_lack(errno: i32) -> bool {
    use libc::{EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC, ETOOMANYREFS};
    [EMFILE, ENFILE, ENOMEM, ENOSPC, ETOOMANYREFS, EAGAIN].contains(&errno)
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
mod tests {
    use super::*;

    const PEER: Peer = Peer { pid: Some(4711), uid: 1000 };

    fn each() -> Vec<Error> {
        vec![
            Error::OwnerDied { peer: PEER },
            Error::Closed { peer: PEER },
            Error::Unreachable { peer: PEER },
            Error::InvalidPosition { position: 12, from: 8, to: 16 },
            Error::WouldBlock,
            Error::TimedOut,
            Error::Interrupted,
            Error::TooLarge { len: 70, max: 64, set_by: None },
            Error::Forked,
            Error::AddrInUse { address: "/run/a".into(), holder: Some(4711) },
            Error::NameLost { address: "/run/a".into(), what: "its lock file" },
            Error::NoMailbox { address: "@a".into() },
            Error::Denied { peer: PEER, allowed: vec![0] },
            Error::Refused { errno: libc::ENOSPC },
            Error::VersionMismatch { ours: 1, theirs: 2 },
            Error::Protocol { peer: PEER, what: "expected a, found b" },
            Error::CannotRegister { reason: "made by a bare clone" },
            Error::InvalidAddress { address: "/x".into(), reason: "too long" },
            Error::InvalidSocket { reason: "expected a, found b" },
            Error::InvalidOption { option: "max_lanes", value: 0, reason: "allow one" },
            Error::Full { what: "mailboxes", max: 1024 },
            Error::ChunksHeld { held: 4096, cap: 8192, is_unknown: true },
            Error::FileTooLarge { asked: 8192, limit: 4096 },
        ]
    }

    #[test]
    fn errno_of_each_variant_is_unique() {
        let mut seen = std::collections::BTreeMap::new();
        for error in each() {
            assert!(error.errno() > 0, "{error:?}");
            if let Some(other) = seen.insert(error.errno(), error.clone()) {
                panic!("{other:?} and {error:?} have the same number");
            }
        }
        assert_eq!(Error::system("mmap", Errno::NOMEM).errno(), libc::ENOMEM);
    }

    #[test]
    fn error_text_names_peer_and_remedy() {
        let texts: Vec<String> = each().iter().map(Error::to_string).collect();
        let expected = [
            "pid 4711 (uid 1000) died; take the unread messages back, or connect to its successor",
            "pid 4711 (uid 1000) has closed its mailbox or this lane, and accepts no more \
             messages; take the unread ones back",
            "pid 4711 (uid 1000) could not reach the receiver's host; take the unread messages \
             back, or connect again",
            "position 12 is not the end of a record from 8 to 16; use a position that a record \
             reported",
            "the call would block; wait for the descriptor, or use the blocking call",
            "the timeout expired and nothing was sent or received; retry, or allow more time",
            "a signal handler ran while the call slept; call again, or stop",
            "a message of 70 bytes exceeds the lane's maximum of 64 bytes, a cap set by this end; \
             split the message, or raise that cap (the other end's counts too)",
            "this handle belongs to the process that forked this one; make a new one in the child \
             (first of all its life, by Life::register)",
            "/run/a is in use by pid 4711; wait until its owner ends, or choose another address",
            "its lock file at /run/a was removed or replaced; close the mailbox and bind it again",
            "no process listens at @a; start the receiver, or retry until it has started",
            "pid 4711 (uid 1000) was refused: expected uid 0; if the connection is intended, \
             allow its uid",
            "the receiver refused the lane: No space left on device (os error 28); its process is \
             short of this resource at present: connect again later",
            "expected protocol version 1, found version 2 at the peer; build both programs from \
             releases with the same version",
            "pid 4711 (uid 1000) violated the protocol: expected a, found b; its lane is closed",
            "this thread cannot hold the process's life: made by a bare clone",
            "/x is not a valid address: too long",
            "this socket cannot carry a lane: expected a, found b",
            "option max_lanes cannot be 0 (0o0): allow one",
            "this process has reached its limit of 1024 mailboxes; free some first",
            "4096 bytes of a lane with a cap of 8192 are still in use: their release cannot be \
             observed; mount /proc, raise fs.inotify.max_user_instances, or raise lane_cap",
            "a memory file of 8192 bytes exceeds this process's limit of 4096 bytes for a file; \
             raise the limit (RLIMIT_FSIZE, `ulimit -f`), or send smaller messages",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn error_text_includes_optional_parts() {
        let text = Error::AddrInUse { address: "/run/a".into(), holder: None }.to_string();
        assert!(text.starts_with("/run/a is in use by a process whose id is not known"), "{text}");
        let text = Error::TooLarge { len: 70, max: 64, set_by: Some(PEER) }.to_string();
        assert!(text.contains("a cap set by pid 4711 (uid 1000); split"), "{text}");
        let max = LONGEST_MESSAGE;
        let text = Error::TooLarge { len: max + 1, max, set_by: None }.to_string();
        assert!(text.ends_with("the longest that any lane carries; split the message"), "{text}");
        let text = Error::ChunksHeld { held: 1, cap: 2, is_unknown: false }.to_string();
        assert!(text.contains("a process maps them; end the processes"), "{text}");
        let text = Error::NoMailbox { address: "/a\u{1b}[2J\n".into() }.to_string();
        assert!(text.starts_with("no process listens at /a\\u{1b}[2J\\n; "), "{text}");
        let text = Error::Denied { peer: PEER, allowed: vec![0, 7] }.to_string();
        assert!(text.contains("refused: expected uid 0 or 7;"), "{text}");
        let text = Error::Denied { peer: PEER, allowed: vec![1000] }.to_string();
        assert!(text.contains("refused: this uid stands for every user"), "{text}");
        let text = Error::Denied { peer: PEER, allowed: vec![] }.to_string();
        assert!(text.contains("refused by the other end, which allows other users"), "{text}");
        assert_eq!(Peer { pid: None, uid: 7 }.to_string(), "a process of uid 7");
        assert_eq!(Peer::UNKNOWN.to_string(), "an unidentified process");
        let error = Error::system("chmod", Errno::PERM).at("/run/a");
        let text = "chmod failed at /run/a: Operation not permitted (os error 1)";
        assert_eq!((error.to_string().as_str(), error.errno()), (text, libc::EPERM));
    }

    #[test]
    fn io_error_keeps_kind_text_and_source() {
        use io::ErrorKind;
        let kinds = [
            (Error::Closed { peer: PEER }, ErrorKind::BrokenPipe),
            (Error::WouldBlock, ErrorKind::WouldBlock),
            (Error::TimedOut, ErrorKind::TimedOut),
            (Error::Interrupted, ErrorKind::Interrupted),
            (Error::AddrInUse { address: "@a".into(), holder: None }, ErrorKind::AddrInUse),
            (Error::NoMailbox { address: "@a".into() }, ErrorKind::ConnectionRefused),
            (Error::Denied { peer: PEER, allowed: vec![] }, ErrorKind::PermissionDenied),
            (Error::Refused { errno: libc::ENOSPC }, ErrorKind::ConnectionAborted),
            (Error::InvalidAddress { address: "/x".into(), reason: "" }, ErrorKind::InvalidInput),
            (Error::system("mmap", Errno::NOMEM), ErrorKind::OutOfMemory),
            (Error::system("bind", Errno::NOENT).at("/run/a"), ErrorKind::NotFound),
        ];
        for (error, kind) in kinds {
            assert_eq!(io::Error::from(error.clone()).kind(), kind, "{error:?}");
        }
        for error in each() {
            let converted = io::Error::from(error.clone());
            assert_eq!(converted.to_string(), error.to_string());
            assert_eq!(converted.kind(), io::Error::from_raw_os_error(error.errno()).kind());
            assert_eq!(converted.downcast::<Error>().ok(), Some(error));
        }
    }

    #[test]
    fn shortage_error_differs_from_final_refusal() {
        for (errno, lack) in [(libc::EMFILE, true), (libc::ENOMEM, true), (libc::ENOBUFS, false)] {
            let refused = Error::Refused { errno };
            let text = refused.to_string();
            assert_eq!(text.contains("connect again later"), lack, "{text}");
            assert_eq!(text.contains("raise its limits"), !lack, "{text}");
            assert_eq!(refused.is_refusal_for_now(), lack);
            let here = Error::system("mmap", Errno::from_raw_os_error(errno));
            assert_eq!(here.is_shortage(), lack, "{here}");
        }
        assert!(!Error::WouldBlock.is_shortage() && !Error::WouldBlock.is_refusal_for_now());
    }
}

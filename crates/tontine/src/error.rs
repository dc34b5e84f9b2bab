//! What can go wrong, and who is to blame: [`Error`], [`Peer`].
//!
//! Each variant corresponds to one error number, so that a caller in C can be told the same by
//! [`Error::errno`]. [`Error::System`] passes on what a system call answered. Neighbours: every
//! module of the crate returns these; none keeps an error of its own, except for what a region of a
//! peer's lacks, which becomes [`Error::Protocol`] where the peer is known.

use std::fmt;

use rustix::io::Errno;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The process at the other end, as far as the kernel vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Its process id in *this* process's PID namespace; none where it cannot be seen from here.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
}

impl Peer {
    /// Nothing is known of it yet.
    pub(crate) const UNKNOWN: Self = Self { pid: None, uid: u32::MAX };
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid} (uid {})", self.uid),
            None if *self == Self::UNKNOWN => write!(f, "a process that had not said who it is"),
            None => write!(f, "a process of uid {}", self.uid),
        }
    }
}

/// Why an operation was not done. [`Error::errno`] gives each variant's number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other end died. What it had not acknowledged is still the sender's.
    #[error("{peer} died; take the unread messages back, or connect to its successor")]
    OwnerDied {
        /// Who died.
        peer: Peer,
    },

    /// The other end closed the mailbox or the connection, alive and on purpose.
    #[error("{peer} has closed its mailbox and takes no more messages; take the unread ones back")]
    Closed {
        /// Who closed it.
        peer: Peer,
    },

    /// Nothing to receive, or no room to send, and the caller does not want to wait.
    #[error("would have to wait; wait for the descriptor, or use the call that waits")]
    WouldBlock,

    /// The caller's deadline passed first. Nothing was sent, nothing was received.
    #[error("the deadline passed first; nothing was sent or received")]
    TimedOut,

    /// A message that can never fit.
    #[error(
        "a message of {len} bytes was to be sent and the lane takes {most} at most, by the cap {}; \
         split it, or raise that cap (the other end's counts too)",
        SetBy(*.set_by)
    )]
    TooLarge {
        /// The message's bytes.
        len: u64,
        /// The most that the lane will ever take.
        most: u64,
        /// Whose cap it is that counts: the receiver's, or none for this program's own.
        set_by: Option<Peer>,
    },

    /// The handle was made by the process that forked this one, and stays that one's.
    #[error(
        "this handle belongs to the process that forked this one; \
         make a new one in the child (and let it join by Life::join first)"
    )]
    Forked,

    /// The address has a living owner.
    #[error(
        "{address} is in use{}; wait for its owner's end, or choose another address",
        HeldBy(*.holder)
    )]
    InUse {
        /// The address.
        address: String,
        /// Who holds it, where the kernel tells.
        holder: Option<u32>,
    },

    /// Nobody listens at the address.
    #[error("nobody has a mailbox at {address}; start its owner, or wait for one")]
    NoMailbox {
        /// The address.
        address: String,
    },

    /// The other end runs as a user that is not allowed, or does not allow this process's.
    #[error("{peer} was refused{}", Allowed(.allowed))]
    Denied {
        /// The process that was refused.
        peer: Peer,
        /// The users whose processes are allowed; empty if the other end refused and named none.
        allowed: Vec<u32>,
    },

    /// The receiver did not take the lane: for good, or because its process lacks something for now
    /// (descriptors, memory), and then the error says so.
    #[error(
        "the mailbox refused the lane: {}{}",
        std::io::Error::from_raw_os_error(*.errno),
        if is_lack(*.errno) { "; it lacks that for now, connect again later" } else { "" }
    )]
    Refused {
        /// The error number that it gave.
        errno: i32,
    },

    /// The other end speaks another version of the protocol.
    #[error(
        "the peer speaks version {theirs} of the protocol and this program version {ours}; \
         build both from releases with the same version"
    )]
    Version {
        /// This program's.
        ours: u32,
        /// The other's.
        theirs: u32,
    },

    /// The other end broke the protocol, by mistake or on purpose. Only its own lane is closed.
    #[error("{peer} broke the protocol: {what}; its lane is closed")]
    Protocol {
        /// Who broke it.
        peer: Peer,
        /// What was expected, and what was found.
        what: &'static str,
    },

    /// [`Life::join`](crate::life::Life::join) was called on another thread than the main one.
    #[error(
        "Life::join was called off the main thread, and a life ends with the thread that holds \
         it; call Life::with_anchor_thread for one that lasts as long as the process, \
         or Life::join_thread for one that ends with this thread"
    )]
    NotMainThread,

    /// The kernel would never mark the death of this thread.
    #[error("this thread cannot hold a life: {why}")]
    NoLife {
        /// What is wrong with it, and what to do.
        why: &'static str,
    },

    /// An address that no mailbox can have.
    #[error("{address} cannot be an address: {why}")]
    BadAddress {
        /// The address.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },

    /// A socket that cannot carry a lane.
    #[error("this socket cannot carry a lane: {why}")]
    BadSocket {
        /// The kind that was expected, the one that was found, and the remedy.
        why: &'static str,
    },

    /// A setting that means nothing; the program's mistake.
    #[error("{option} cannot be {value} ({value:#o}): {why}")]
    BadOption {
        /// The setting.
        option: &'static str,
        /// What it was set to.
        value: u32,
        /// What is wrong with it, and what to do.
        why: &'static str,
    },

    /// A fixed number of something is used up in this process.
    #[error("all {most} {what} of this process are taken; give one back first")]
    Full {
        /// What there is a fixed number of.
        what: &'static str,
        /// How many.
        most: u64,
    },

    /// Shared memory would exceed the process's limit on the size of files. A memory file counts.
    #[error(
        "a memory file of {asked} bytes exceeds this process's limit of {limit} bytes for a file; \
         raise the limit (RLIMIT_FSIZE, `ulimit -f`), or send smaller messages"
    )]
    FileTooLarge {
        /// Bytes that the file would have.
        asked: u64,
        /// Bytes that it may have.
        limit: u64,
    },

    /// A system call failed for a reason of its own.
    #[error("{call} failed: {}", std::io::Error::from(*.errno))]
    System {
        /// The call.
        call: &'static str,
        /// What it answered.
        errno: Errno,
    },

    /// The same, where it is known which file or address the call was about.
    #[error("{call} failed at {address}: {}", std::io::Error::from(*.errno))]
    SystemAt {
        /// The call.
        call: &'static str,
        /// The file or the address.
        address: String,
        /// What it answered.
        errno: Errno,
    },
}

/// Whether this is a lack of something that may be there later: descriptors, memory. Not ENOBUFS:
/// by that a mailbox says that it has as many lanes as it was told to take.
fn is_lack(errno: i32) -> bool {
    use libc::{EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC, ETOOMANYREFS};
    [EMFILE, ENFILE, ENOMEM, ENOSPC, ETOOMANYREFS, EAGAIN].contains(&errno)
}

impl Error {
    /// A system call's error.
    pub fn system(call: &'static str, errno: Errno) -> Self {
        Self::System { call, errno }
    }

    /// The standard library's error as that of the system call `call`.
    pub(crate) fn io(call: &'static str, error: &std::io::Error) -> Self {
        Self::System { call, errno: Errno::from_io_error(error).unwrap_or(Errno::IO) }
    }

    /// The calling thread's `errno` as the error of the C library's function `call`.
    pub(crate) fn last(call: &'static str) -> Self {
        let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        Self::System { call, errno: Errno::from_raw_os_error(code) }
    }

    /// A system call's error, with the file or the address that the call was about.
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        match self {
            Self::System { call, errno } => {
                Self::SystemAt { call, address: place.to_string(), errno }
            }
            other => other,
        }
    }

    /// Whether this process lacks something for now, so that the same may succeed later.
    pub(crate) fn is_shortage(&self) -> bool {
        matches!(self, Self::System { .. } | Self::SystemAt { .. }) && is_lack(self.errno())
    }

    /// Whether a receiver refused for a lack of its own, and may take the lane later.
    pub(crate) fn is_refusal_for_now(&self) -> bool {
        matches!(self, Self::Refused { errno } if is_lack(*errno))
    }

    /// The error number: one for each variant; [`Error::System`] and [`Error::SystemAt`] have the
    /// call's.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OwnerDied { .. } => libc::EOWNERDEAD,
            Self::Closed { .. } => libc::EPIPE,
            Self::WouldBlock => libc::EAGAIN,
            Self::TimedOut => libc::ETIMEDOUT,
            Self::TooLarge { .. } => libc::EMSGSIZE,
            Self::Forked => libc::ESTALE,
            Self::InUse { .. } => libc::EADDRINUSE,
            Self::NoMailbox { .. } => libc::ECONNREFUSED,
            Self::Denied { .. } => libc::EACCES,
            Self::Refused { .. } => libc::ECONNABORTED,
            Self::Version { .. } => libc::EPROTONOSUPPORT,
            Self::Protocol { .. } => libc::EPROTO,
            Self::NotMainThread => libc::EPERM,
            Self::NoLife { .. } => libc::EOPNOTSUPP,
            Self::BadAddress { .. } => libc::EINVAL,
            Self::BadSocket { .. } => libc::EPROTOTYPE,
            Self::BadOption { .. } => libc::EDOM,
            Self::Full { .. } => libc::ENOBUFS,
            Self::FileTooLarge { .. } => libc::EFBIG,
            Self::System { errno, .. } | Self::SystemAt { errno, .. } => errno.raw_os_error(),
        }
    }
}

/// "by pid 4711", where that is known.
struct HeldBy(Option<u32>);

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, " by pid {pid}"),
            None => write!(f, " by a process that cannot be seen from here"),
        }
    }
}

/// "that pid 4711 (uid 1000) set", or that this program did.
struct SetBy(Option<Peer>);

impl fmt::Display for SetBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(peer) => write!(f, "that {peer} set"),
            None => f.write_str("that this end set"),
        }
    }
}

/// ": uid 0 or 1000 was expected", or that the other end named none.
struct Allowed<'a>(&'a [u32]);

impl fmt::Display for Allowed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(
                " by the other end, which allows other users; have it allow this uid, or connect \
                 as a user that it allows",
            );
        }
        for (place, uid) in self.0.iter().enumerate() {
            write!(f, "{}{uid}", if place == 0 { ": uid " } else { " or " })?;
        }
        f.write_str(" was expected; allow its uid where that is meant")
    }
}

// Errors travel through every hot function's return value.
const _: () = assert!(size_of::<Error>() <= 48);

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { pid: Some(4711), uid: 1000 };

    fn each() -> Vec<Error> {
        vec![
            Error::OwnerDied { peer: PEER },
            Error::Closed { peer: PEER },
            Error::WouldBlock,
            Error::TimedOut,
            Error::TooLarge { len: 70, most: 64, set_by: None },
            Error::Forked,
            Error::InUse { address: "/run/a".into(), holder: Some(4711) },
            Error::NoMailbox { address: "@a".into() },
            Error::Denied { peer: PEER, allowed: vec![0] },
            Error::Refused { errno: libc::ENOSPC },
            Error::Version { ours: 1, theirs: 2 },
            Error::Protocol { peer: PEER, what: "expected a, found b" },
            Error::NotMainThread,
            Error::NoLife { why: "made by a bare clone" },
            Error::BadAddress { address: "/x".into(), why: "too long" },
            Error::BadSocket { why: "expected a, found b" },
            Error::BadOption { option: "max_lanes", value: 0, why: "nobody comes in" },
            Error::Full { what: "desks", most: 62 },
            Error::FileTooLarge { asked: 8192, limit: 4096 },
        ]
    }

    #[test]
    fn no_two_variants_share_an_errno() {
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
    fn errors_name_the_culprit() {
        let texts: Vec<String> = each().iter().map(Error::to_string).collect();
        let expected = [
            "pid 4711 (uid 1000) died; take the unread messages back, or connect to its successor",
            "pid 4711 (uid 1000) has closed its mailbox and takes no more messages; take the \
             unread ones back",
            "would have to wait; wait for the descriptor, or use the call that waits",
            "the deadline passed first; nothing was sent or received",
            "a message of 70 bytes was to be sent and the lane takes 64 at most, by the cap that \
             this end set; split it, or raise that cap (the other end's counts too)",
            "this handle belongs to the process that forked this one; make a new one in the child \
             (and let it join by Life::join first)",
            "/run/a is in use by pid 4711; wait for its owner's end, or choose another address",
            "nobody has a mailbox at @a; start its owner, or wait for one",
            "pid 4711 (uid 1000) was refused: uid 0 was expected; allow its uid where that is \
             meant",
            "the mailbox refused the lane: No space left on device (os error 28); it lacks that \
             for now, connect again later",
            "the peer speaks version 2 of the protocol and this program version 1; build both from \
             releases with the same version",
            "pid 4711 (uid 1000) broke the protocol: expected a, found b; its lane is closed",
            "Life::join was called off the main thread, and a life ends with the thread that holds \
             it; call Life::with_anchor_thread for one that lasts as long as the process, or \
             Life::join_thread for one that ends with this thread",
            "this thread cannot hold a life: made by a bare clone",
            "/x cannot be an address: too long",
            "this socket cannot carry a lane: expected a, found b",
            "max_lanes cannot be 0 (0o0): nobody comes in",
            "all 62 desks of this process are taken; give one back first",
            "a memory file of 8192 bytes exceeds this process's limit of 4096 bytes for a file; \
             raise the limit (RLIMIT_FSIZE, `ulimit -f`), or send smaller messages",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn parts_of_errors_that_vary_are_told() {
        let text = Error::InUse { address: "/run/a".into(), holder: None }.to_string();
        assert!(text.starts_with("/run/a is in use by a process that cannot be seen"), "{text}");
        let text = Error::TooLarge { len: 70, most: 64, set_by: Some(PEER) }.to_string();
        assert!(text.contains("by the cap that pid 4711 (uid 1000) set; split it"), "{text}");
        let text = Error::Denied { peer: PEER, allowed: vec![0, 7] }.to_string();
        assert!(text.contains("refused: uid 0 or 7 was expected"), "{text}");
        let text = Error::Denied { peer: PEER, allowed: vec![] }.to_string();
        assert!(text.contains("refused by the other end, which allows other users"), "{text}");
        assert_eq!(Peer { pid: None, uid: 7 }.to_string(), "a process of uid 7");
        assert_eq!(Peer::UNKNOWN.to_string(), "a process that had not said who it is");
        let error = Error::system("chmod", Errno::PERM).at("/run/a");
        let text = "chmod failed at /run/a: Operation not permitted (os error 1)";
        assert_eq!((error.to_string().as_str(), error.errno()), (text, libc::EPERM));
    }

    #[test]
    fn a_lack_for_now_is_told_from_a_refusal_for_good() {
        for (errno, lack) in [(libc::EMFILE, true), (libc::ENOMEM, true), (libc::ENOBUFS, false)] {
            let refused = Error::Refused { errno };
            assert_eq!(refused.to_string().contains("later"), lack, "{refused}");
            assert_eq!(refused.is_refusal_for_now(), lack);
            let here = Error::system("mmap", Errno::from_raw_os_error(errno));
            assert_eq!(here.is_shortage(), lack, "{here}");
        }
        assert!(!Error::WouldBlock.is_shortage() && !Error::WouldBlock.is_refusal_for_now());
    }
}

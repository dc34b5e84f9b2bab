//! Parts of the texts of errors: each type displays one.

use std::fmt::{self, Write as _};

use super::{LONGEST_MESSAGE, Peer, is_lack};

/// Displays the owner of an address: "pid 4711", if the pid is known.
pub(super) struct HeldBy(pub(super) Option<u32>);

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "pid {pid}"),
            None => f.write_str("a process whose id is not known here"),
        }
    }
}

/// Displays an address, with control characters escaped, which could change a terminal.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|one| {
            if one.is_control() { write!(f, "{}", one.escape_default()) } else { f.write_char(one) }
        })
    }
}

/// Displays why a message may not be longer than this maximum, and what to do: the cap is a peer's,
/// or this end's.
pub(super) struct LengthRemedy(pub(super) u64, pub(super) Option<Peer>);

impl fmt::Display for LengthRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= LONGEST_MESSAGE {
            return f.write_str("the longest that any lane carries; split the message");
        }
        let set_by = self.1.map_or_else(|| "this end".into(), |peer| peer.to_string());
        write!(
            f,
            "a cap set by {set_by}; split the message, or raise that cap (the other end's counts \
             too)"
        )
    }
}

/// Displays why chunks still count against a cap, and what to do: their release cannot be observed,
/// or a process maps them.
pub(super) struct HeldChunks(pub(super) bool);

impl fmt::Display for HeldChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 {
            "their release cannot be observed; mount /proc, raise fs.inotify.max_user_instances, \
             or raise lane_cap"
        } else {
            "a process maps them; end the processes that the receiver forked, or raise lane_cap"
        })
    }
}

/// Displays the advice after a refusal with this error number.
pub(super) struct RefusalRemedy(pub(super) i32);

impl fmt::Display for RefusalRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            libc::ENOBUFS => f.write_str(
                "; the mailbox has all the lanes or all the memory that it may have: close other \
                 lanes, or raise its limits",
            ),
            errno if is_lack(errno) => f.write_str(
                "; its process is short of this resource at present: connect again later",
            ),
            _ => Ok(()),
        }
    }
}

/// Displays why a process with this uid was refused: ": expected uid 0 or 1000 or gid 27", or that
/// the other end did not name the users it allows, or that the uid is not one user's.
pub(super) struct ExpectedUsers<'a>(pub(super) u32, pub(super) &'a [u32], pub(super) &'a [u32]);

impl fmt::Display for ExpectedUsers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1.contains(&self.0) {
            return f.write_str(
                ": this uid stands for every user that this process's user namespace does not map; \
                 run as another user, or allow this uid",
            );
        }
        if self.1.is_empty() {
            return f.write_str(
                " by the other end, which allows other users; have it allow this uid, or connect \
                 as a user that it allows",
            );
        }
        for (place, uid) in self.1.iter().enumerate() {
            write!(f, "{}{uid}", if place == 0 { ": expected uid " } else { " or " })?;
        }
        self.2.iter().try_for_each(|gid| write!(f, " or gid {gid}"))?;
        f.write_str("; if the connection is intended, allow its uid")
    }
}

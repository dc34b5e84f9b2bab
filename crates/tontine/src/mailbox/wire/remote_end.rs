//! The end of a relayed lane's remote owner: [`RemoteEnd`], and its form in the control page.
//!
//! A [`Relay`](crate::mailbox::Relay) latches it ([`Relay::end`](crate::mailbox::Relay::end)); the
//! sender's calls return it as an error ([`crate::mailbox::sender::accepted_lane`]).

use crate::error::{Error, Peer};
use crate::lane::page::{REMOTE_CLOSED, REMOTE_DIED, REMOTE_REFUSED, UNREACHABLE};
use crate::mailbox::address::Address;

/// The end of a relayed lane's remote owner. The lane's sender gets the corresponding error, and
/// the lane is not handed over.
///
/// # Examples
/// ```
/// use tontine::mailbox::{Options, RemoteEnd, Sender};
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("jobs");
/// let mut relay = Options::new().bind_relay(&path)?;
/// let mut sender = Sender::connect(&path)?;
/// sender.send(b"hello")?;
/// relay.service()?;
/// let lane = relay.lanes().remove(0).sender;
/// relay.end(lane, RemoteEnd::Died);
/// let error = sender.send(b"more").unwrap_err();
/// assert!(matches!(error, tontine::Error::OwnerDied { .. }));
/// # Ok::<(), tontine::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemoteEnd {
    /// The remote owner has died: [`Error::OwnerDied`], whose process is not identified.
    Died,
    /// The remote owner has closed its mailbox: [`Error::Closed`], whose process is not identified.
    Closed,
    /// The remote host has not answered for too long: [`Error::Unreachable`].
    Unreachable,
    /// The remote host or owner refuses the lane: [`Error::NoMailbox`] if `errno` is ECONNREFUSED
    /// or ENOENT, [`Error::Denied`] if it is EACCES, otherwise [`Error::Refused`].
    Refused {
        /// The error number of the refusal.
        errno: i32,
    },
}

impl RemoteEnd {
    /// Returns the bit of the control page's `state`, and the value of its `errno`.
    pub(in crate::mailbox) fn encode(self) -> (u32, i32) {
        match self {
            Self::Died => (REMOTE_DIED, 0),
            Self::Closed => (REMOTE_CLOSED, 0),
            Self::Unreachable => (UNREACHABLE, 0),
            Self::Refused { errno } => (REMOTE_REFUSED, errno),
        }
    }

    /// Decodes the control page's `state`, with its `errno`. Returns `None` if the remote end has
    /// not ended.
    pub(in crate::mailbox) fn decode(state: u32, errno: i32) -> Option<Self> {
        match state {
            state if state & REMOTE_DIED != 0 => Some(Self::Died),
            state if state & REMOTE_CLOSED != 0 => Some(Self::Closed),
            state if state & UNREACHABLE != 0 => Some(Self::Unreachable),
            state if state & REMOTE_REFUSED != 0 => Some(Self::Refused { errno }),
            _ => None,
        }
    }

    /// Returns the error that the sender's calls return. `relay` is the relay that reported the
    /// end, for a lane to `address`.
    pub(in crate::mailbox) fn error(self, relay: Peer, address: Option<&Address>) -> Error {
        match self {
            // The relay lives; the process that ended has no identity on this host.
            Self::Died => Error::OwnerDied { peer: Peer::UNKNOWN },
            Self::Closed => Error::Closed { peer: Peer::UNKNOWN },
            Self::Unreachable => Error::Unreachable { peer: relay },
            Self::Refused { errno: libc::ECONNREFUSED | libc::ENOENT } => {
                let address = address.map_or("the remote host".into(), Address::to_string);
                Error::NoMailbox { address }
            }
            Self::Refused { errno: libc::EACCES } => refusal_of_this_user(),
            Self::Refused { errno } => Error::Refused { errno },
        }
    }
}

/// Returns the error of an end that does not allow the user of this process.
pub(in crate::mailbox) fn refusal_of_this_user() -> Error {
    let uid = rustix::process::geteuid().as_raw();
    let ours = Peer { pid: Some(std::process::id()), uid };
    Error::Denied { peer: ours, allowed: [].into(), allowed_groups: [].into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_end_decodes_to_encoded_value() {
        let refused = RemoteEnd::Refused { errno: libc::ENOBUFS };
        for end in [RemoteEnd::Died, RemoteEnd::Closed, RemoteEnd::Unreachable, refused] {
            let (bit, errno) = end.encode();
            assert_eq!(RemoteEnd::decode(bit | 3, errno), Some(end));
        }
        assert_eq!(RemoteEnd::decode(3, 7), None);
    }

    #[test]
    fn remote_refusal_error_depends_on_errno() {
        let error = |errno| RemoteEnd::Refused { errno }.error(Peer::UNKNOWN, None);
        assert!(matches!(error(libc::ENOENT), Error::NoMailbox { .. }));
        assert!(matches!(error(libc::EACCES), Error::Denied { .. }));
        assert_eq!(error(libc::ENOBUFS), Error::Refused { errno: libc::ENOBUFS });
    }
}

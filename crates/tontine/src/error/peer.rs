//! The process that an error names: [`Peer`].

use std::fmt;

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

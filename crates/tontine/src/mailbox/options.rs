//! How a mailbox or a sender behaves: [`Options`].
//!
//! Neighbours: [`super::receiver`] and [`super::sender`] have the functions that make either.

use std::time::Duration;

use crate::error::{Error, Peer, Result};

/// Settings of either end; each end has its own. What an end does not use it ignores.
///
/// ```no_run
/// use tontine::mailbox::{Options, Waiting};
///
/// # fn main() -> tontine::Result<()> {
/// let mailbox = Options::new()
///     .lane_cap(1 << 20)
///     .waiting(Waiting::Sleep)
///     .bind("/run/jobs")?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) lane_cap: u64,
    pub(crate) mailbox_cap: u64,
    pub(crate) max_lanes: usize,
    pub(crate) first_chunk: u64,
    pub(crate) waiting: Waiting,
    pub(crate) fences: Fences,
    pub(crate) on_death: OnDeath,
    pub(crate) mode: u32,
    pub(crate) allowed: Allowed,
    pub(crate) handshake_deadline: Duration,
    pub(crate) give_back_after: Duration,
}

/// How an end waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// Only by looking again and again: the shortest latency, a whole processor.
    Spin,
    /// Only in the kernel.
    Sleep,
    /// Looks for so long, then sleeps.
    SpinThenSleep(Duration),
}

/// How the two ends of a lane see each other's stores before one sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fences {
    /// No fence in `send`; whoever goes to sleep interrupts the other processors with
    /// `membarrier(2)`, 7 to 10 µs. Symmetric where the kernel or the peer cannot.
    Asymmetric,
    /// A full fence, about 5 ns, in each `send`; going to sleep costs nothing more.
    Symmetric,
}

/// What a sender does when its reader is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDeath {
    /// Says `EOWNERDEAD`; [`Sender::unread`](super::Sender::unread) gives back what was not
    /// read.
    Fail,
    /// Keeps what was not read for the next owner of the address, and hands it over. A reader that
    /// closes has left on purpose: [`Error::Closed`](crate::Error::Closed), as with `Fail`.
    WaitForSuccessor,
    /// The same, also where the reader closes its mailbox: for one that a service manager stops and
    /// starts again.
    WaitThroughRestarts,
}

impl OnDeath {
    /// Whether it ever waits for a successor.
    pub(super) fn waits(self) -> bool {
        self != Self::Fail
    }

    /// Whether it waits for a successor after this end.
    pub(super) fn outlives(self, end: &Error) -> bool {
        match end {
            Error::OwnerDied { .. } => self.waits(),
            Error::Closed { .. } => self == Self::WaitThroughRestarts,
            refused => refused.is_refusal_for_now() && self.waits(),
        }
    }
}

/// Whose processes a peer may belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Allowed {
    Users(Vec<u32>),
    Anyone,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane_cap: 64 << 20,
            mailbox_cap: 1 << 30,
            max_lanes: 1024,
            first_chunk: 4096,
            waiting: Waiting::SpinThenSleep(Duration::from_micros(20)),
            fences: Fences::Asymmetric,
            on_death: OnDeath::Fail,
            mode: 0o600,
            allowed: Allowed::Users(vec![rustix::process::geteuid().as_raw()]),
            handshake_deadline: Duration::from_secs(5),
            give_back_after: Duration::from_millis(50),
        }
    }
}

impl Options {
    /// The defaults: lanes of 4 KiB that grow to 64 MiB, 1 GiB a mailbox, 1,024 lanes; waits 20 µs
    /// by spinning, then sleeps; peers of the same user only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of chunks that one lane may have, 64 MiB. Of the two ends' caps the smaller counts. At
    /// least 4,096. The longest message is a little less than a quarter of the largest power of two
    /// that the cap holds. Chunks that the sender has left count until the receiver lets go of
    /// them.
    #[must_use]
    pub fn lane_cap(mut self, bytes: u64) -> Self {
        self.lane_cap = bytes.max(4096);
        self
    }

    /// Bytes of chunks that all lanes of a mailbox may have together, 1 GiB.
    #[must_use]
    pub fn mailbox_cap(mut self, bytes: u64) -> Self {
        self.mailbox_cap = bytes.max(4096);
        self
    }

    /// Senders that a mailbox takes at once, 1,024; at least 1. Each takes three descriptors.
    #[must_use]
    pub fn max_lanes(mut self, lanes: usize) -> Self {
        self.max_lanes = lanes;
        self
    }

    /// Bytes of a sender's first chunk, 4,096; rounded up to a power of two. A lane that has been
    /// empty for a while returns to it.
    #[must_use]
    pub fn first_chunk(mut self, bytes: u64) -> Self {
        self.first_chunk = bytes.clamp(4096, 1 << 30).next_power_of_two();
        self
    }

    /// How to wait.
    #[must_use]
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// Who fences.
    #[must_use]
    pub fn fences(mut self, fences: Fences) -> Self {
        self.fences = fences;
        self
    }

    /// What to do when the reader is dead, or has closed.
    #[must_use]
    pub fn on_death(mut self, on_death: OnDeath) -> Self {
        self.on_death = on_death;
        self
    }

    /// Permissions of the socket in the file system, `0o600`; `0o777` at most.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Takes peers of this user too. Without this, only those of the process's effective user when
    /// the options were made: `setuid` afterwards does not change them.
    #[must_use]
    pub fn allow_uid(mut self, uid: u32) -> Self {
        if let Allowed::Users(users) = &mut self.allowed {
            users.push(uid);
        }
        self
    }

    /// Takes peers of any user. Also where user namespaces make the numbers meaningless.
    #[must_use]
    pub fn allow_any_uid(mut self) -> Self {
        self.allowed = Allowed::Anyone;
        self
    }

    /// How long a peer that connects may take to say who it is, 5 s; and how long it waits while
    /// the receiver lacks a descriptor or memory to take it, before it is refused for now.
    #[must_use]
    pub fn handshake_deadline(mut self, deadline: Duration) -> Self {
        self.handshake_deadline = deadline;
        self
    }

    /// How long a lane must have been empty before its large chunk is given back, 50 ms.
    #[must_use]
    pub fn give_back_after(mut self, idle: Duration) -> Self {
        self.give_back_after = idle;
        self
    }

    /// Refuses what a mailbox cannot be.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(super) fn check(&self) -> Result<()> {
        let bad = |option, value, reason| Err(Error::InvalidOption { option, value, reason });
        if self.max_lanes == 0 {
            return bad("max_lanes", 0, "no sender could connect; allow at least 1");
        }
        if self.mode & !0o777 != 0 {
            let reason = "expected permission bits, found others; use at most 0o777";
            return bad("mode", self.mode, reason);
        }
        Ok(())
    }

    /// Refuses a peer whose user is not allowed.
    ///
    /// # Errors
    /// [`Error::Denied`], with the users that are allowed.
    pub(super) fn admit(&self, peer: Peer) -> Result<()> {
        match &self.allowed {
            Allowed::Users(users) if !users.contains(&peer.uid) => {
                Err(Error::Denied { peer, allowed: users.clone() })
            }
            _ => Ok(()),
        }
    }
}

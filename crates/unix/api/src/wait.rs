//! Waiting for children: [`Children`], [`WaitOptions`], [`WaitStatus`], [`WaitedChild`].

use std::fmt;
use std::time::Duration;

use bitflags::bitflags;

use crate::process::Pid;
use crate::signal::Signal;

/// The children that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// Any child: `waitpid` with −1.
    Any,
    /// A child.
    One(Pid),
    /// The children in a group: `waitpid` with a negative number.
    Group(Pid),
    /// The children in the caller's group: `waitpid` with 0.
    OwnGroup,
}

impl Children {
    /// Returns the children that the first argument of waitpid(2) denotes.
    pub const fn of(pid: i32) -> Self {
        match pid {
            -1 => Self::Any,
            0 => Self::OwnGroup,
            1.. => Self::One(Pid::number_only(pid)),
            _ => Self::Group(Pid::number_only(pid.wrapping_neg())),
        }
    }
}

impl From<Pid> for Children {
    fn from(pid: Pid) -> Self {
        Self::One(pid)
    }
}

bitflags! {
    /// The options of `waitid`; `waitpid` sets [`WaitOptions::EXITED`] itself.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct WaitOptions: u32 {
        /// `WNOHANG`: returns immediately if no child has changed state.
        const NOHANG = 1 << 0;
        /// `WEXITED`: children that terminated.
        const EXITED = 1 << 1;
        /// `WSTOPPED`, `WUNTRACED`: children that stopped.
        const STOPPED = 1 << 2;
        /// `WCONTINUED`: children that were continued.
        const CONTINUED = 1 << 3;
        /// `WNOWAIT`: leaves the child waitable, so that the next wait finds it again.
        const NOWAIT = 1 << 4;
    }
}

impl WaitOptions {
    /// Returns `true` if waitid(2) accepts the options: all are known, and at least one names a
    /// change to wait for.
    #[doc(hidden)]
    pub const fn are_valid(self) -> bool {
        let changes = Self::EXITED.union(Self::STOPPED).union(Self::CONTINUED);
        Self::all().contains(self) && self.intersects(changes)
    }
}

/// The status of a child that a wait reports.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitStatus {
    /// The child exited with this status, 0 to 255.
    Exited(i32),
    /// A signal terminated the child; the flag is `true` if the child would have dumped core.
    Signaled(Signal, bool),
    /// A signal stopped the child.
    Stopped(Signal),
    /// The child stopped for its tracer, with this signal.
    Trapped(Signal),
    /// The child was continued.
    Continued,
}

impl WaitStatus {
    /// Returns `true` if the child terminated.
    pub const fn is_terminated(self) -> bool {
        matches!(self, Self::Exited(_) | Self::Signaled(..))
    }

    /// Returns the exit status, if the child exited.
    pub const fn exited(self) -> Option<i32> {
        if let Self::Exited(status) = self { Some(status) } else { None }
    }

    /// Returns the signal that terminated the child, if one did.
    pub const fn signaled(self) -> Option<Signal> {
        if let Self::Signaled(signal, _) = self { Some(signal) } else { None }
    }
}

impl fmt::Display for WaitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited {status}"),
            Self::Signaled(signal, false) => write!(f, "killed by {signal}"),
            Self::Signaled(signal, true) => write!(f, "killed by {signal} (core)"),
            Self::Stopped(signal) => write!(f, "stopped by {signal}"),
            Self::Trapped(signal) => write!(f, "trapped by {signal}"),
            Self::Continued => f.write_str("continued"),
        }
    }
}

impl fmt::Debug for WaitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A child that a wait found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitedChild {
    /// The child.
    pub pid: Pid,
    /// The child's user.
    pub uid: u32,
    /// The status of the child.
    pub status: WaitStatus,
    /// Processor time used by the child and by the children that it waited for, as `wait3` and
    /// `wait4` report it.
    pub usage: Usage,
}

/// Processor time, as in `struct rusage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Time in user mode.
    pub user: Duration,
    /// Time in system calls.
    pub system: Duration,
}

//! What a parent waits for and learns: [`Children`], [`WaitOptions`], [`WaitStatus`], [`WaitedChild`].

use std::fmt;
use std::time::Duration;

use bitflags::bitflags;

use crate::process::Pid;
use crate::signal::Signal;

/// For which children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// Any: `waitpid` with −1.
    Any,
    /// This one.
    One(Pid),
    /// Those in this group: `waitpid` with a negative number.
    Group(Pid),
    /// Those in the caller's group: `waitpid` with 0.
    OwnGroup,
}

impl Children {
    /// What the first argument of waitpid(2) means.
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
        /// `WNOHANG`: never sleep.
        const NOHANG = 1 << 0;
        /// `WEXITED`: children that ended.
        const EXITED = 1 << 1;
        /// `WSTOPPED`, `WUNTRACED`: children that stopped.
        const STOPPED = 1 << 2;
        /// `WCONTINUED`: children that went on.
        const CONTINUED = 1 << 3;
        /// `WNOWAIT`: look only; the next one to wait finds it too.
        const NOWAIT = 1 << 4;
    }
}

impl WaitOptions {
    /// Whether waitid(2) takes them: it knows all, and some name a change to wait for.
    #[doc(hidden)]
    pub const fn are_valid(self) -> bool {
        let changes = Self::EXITED.union(Self::STOPPED).union(Self::CONTINUED);
        Self::all().contains(self) && self.intersects(changes)
    }
}

/// How a child is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitStatus {
    /// It exited with this status, 0 to 255.
    Exited(i32),
    /// A signal ended it; whether it would have left a core.
    Signaled(Signal, bool),
    /// A signal stopped it.
    Stopped(Signal),
    /// It stopped for the one who traces it, with this signal.
    Trapped(Signal),
    /// It went on.
    Continued,
}

impl WaitStatus {
    /// Whether it ended.
    pub const fn is_terminated(self) -> bool {
        matches!(self, Self::Exited(_) | Self::Signaled(..))
    }

    /// The exit status, if it exited.
    pub const fn exited(self) -> Option<i32> {
        if let Self::Exited(status) = self { Some(status) } else { None }
    }

    /// The signal that ended it, if one did.
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

/// What `wait` found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitedChild {
    /// Who.
    pub pid: Pid,
    /// The child's user.
    pub uid: u32,
    /// How.
    pub status: WaitStatus,
    /// What it and those that it waited for used, as `wait3` and `wait4` tell.
    pub usage: Usage,
}

/// Time that was used, as `struct rusage` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// In user mode.
    pub user: Duration,
    /// In system calls.
    pub system: Duration,
}

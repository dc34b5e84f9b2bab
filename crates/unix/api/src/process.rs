//! Identifiers of processes and threads, and requests to start a program: [`Pid`], [`Tid`],
//! [`SignalTarget`], [`SpawnRequest`].

use std::fmt;

use crate::signal::{SigSet, Signal};
use crate::terminal::Fd;

/// A handle of a process, or of the group or session that it leads.
///
/// [`Sys::fork_boxed`](crate::Sys::fork_boxed) and [`Sys::waitid`](crate::Sys::waitid) return
/// handles. Once the process is reaped, a call with its handle returns `ESRCH`, even if another
/// process now has the number. [`Pid::number_only`] makes a handle from a bare number, which
/// denotes the process that has the number at the time of the call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    number: i32,
    /// Ordinal of the process among all processes of its system; 0 if only the number is known.
    birth: u32,
}

impl Pid {
    /// Returns the handle of the process with this number and with ordinal `birth`.
    #[doc(hidden)]
    pub const fn handle(number: i32, birth: u32) -> Self {
        Self { number, birth }
    }

    /// Returns a handle of the process that has this number at the time of each call. Any integer
    /// is accepted, because a program may pass any integer to a system call.
    pub const fn number_only(number: i32) -> Self {
        Self { number, birth: 0 }
    }

    /// Returns the process number.
    pub const fn number(self) -> i32 {
        self.number
    }

    /// Returns the ordinal that distinguishes the process from others with the same number; `None`
    /// for a bare number.
    #[doc(hidden)]
    pub const fn birth(self) -> Option<u32> {
        if self.birth == 0 { None } else { Some(self.birth) }
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pid({})", self.number)
    }
}

/// A thread's number. The first thread of a process has the number of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tid(pub i32);

/// The processes that [`Sys::kill`](crate::Sys::kill) signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// A process.
    Process(Pid),
    /// A process group: `kill` with a negative number, `killpg`.
    Group(Pid),
    /// The caller's own group: `kill` with 0.
    OwnGroup,
    /// All processes that the caller may signal, except process 1 and the caller: `kill` with −1.
    Everyone,
}

impl SignalTarget {
    /// Returns the target that the first argument of kill(2) denotes.
    pub const fn of(pid: i32) -> Self {
        match pid {
            -1 => Self::Everyone,
            0 => Self::OwnGroup,
            1.. => Self::Process(Pid::number_only(pid)),
            _ => Self::Group(Pid::number_only(pid.wrapping_neg())),
        }
    }
}

impl From<Pid> for SignalTarget {
    fn from(pid: Pid) -> Self {
        Self::Process(pid)
    }
}

/// A request to start a program: path, arguments, and the attributes and file actions of
/// posix_spawn(3).
#[derive(Debug, Clone, Default)]
pub struct SpawnRequest {
    /// The program: a path on `Linux`, a registered name on `Virtual`.
    pub path: String,
    /// The arguments; by convention the first is the name of the program.
    pub arguments: Vec<String>,
    /// The process group of the child.
    pub group: SpawnGroup,
    /// `true` if the child leads a new session.
    pub session: bool,
    /// The signal mask of the child; `None` for the parent's.
    pub mask: Option<SigSet>,
    /// The signals that the child resets to their default disposition.
    pub defaults: SigSet,
    /// Descriptors of the parent, each with its number in the child.
    pub descriptors: Vec<(Fd, Fd)>,
}

/// The group of a spawned process; `G` is the type that names a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpawnGroup<G = Pid> {
    /// The parent's group.
    #[default]
    Parents,
    /// A new group, which the child leads.
    Own,
    /// An existing group of the same session.
    Of(G),
}

impl SpawnRequest {
    /// Creates a request for a program with these arguments, the first of which is its name. The
    /// child inherits everything else.
    pub fn new(path: &str, arguments: &[&str]) -> Self {
        Self {
            path: path.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// The processes whose priority [`Sys::getpriority`](crate::Sys::getpriority) reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityScope {
    /// A process; number 0 is the caller.
    Process(Pid),
    /// All members of a group; number 0 is the caller's group.
    Group(Pid),
    /// All processes of a user; 0 is the caller's user, as in setpriority(2).
    User(u32),
}

/// An alternate signal stack, as 4.3BSD's `struct sigstack` describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SigStack {
    /// Size of the alternate stack in bytes; 0 for none.
    pub size: usize,
    /// `true` while a handler runs on the alternate stack.
    pub on_stack: bool,
}

/// The signals that [`Sys::fault`](crate::Sys::fault) accepts: the signals that a thread's own
/// instructions cause.
pub const FAULTS: SigSet =
    SigSet::of(&[Signal::ILL, Signal::TRAP, Signal::BUS, Signal::FPE, Signal::SEGV, Signal::SYS]);

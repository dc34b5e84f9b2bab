//! Who is who, and how a program is started: [`Pid`], [`Tid`], [`SignalTarget`], [`SpawnRequest`].

use std::fmt;

use crate::signal::{SigSet, Signal};
use crate::terminal::Fd;

/// A process, or the group or session that it leads: its number, and which of all that ever had
/// that number it is.
///
/// What [`Sys::fork_boxed`](crate::Sys::fork_boxed) and [`Sys::waitid`](crate::Sys::waitid) return
/// is such a handle: after the process was reaped it answers `ESRCH`, also when another process has
/// the number. [`Pid::number_only`] makes one of a bare number; that means whoever has it at the
/// time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid {
    number: i32,
    /// Counts the processes of a system; 0 where only the number is known.
    birth: u32,
}

impl Pid {
    /// The handle of the `birth`th process, which has this number.
    #[doc(hidden)]
    pub const fn handle(number: i32, birth: u32) -> Self {
        Self { number, birth }
    }

    /// Whoever has this number. Any integer, as a program may pass any to a system call.
    pub const fn number_only(number: i32) -> Self {
        Self { number, birth: 0 }
    }

    /// The number.
    pub const fn number(self) -> i32 {
        self.number
    }

    /// Which of those that had the number; `None` if it means whoever has it.
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

/// A thread's number. The first thread of a process has the process's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tid(pub i32);

/// Whom [`Sys::kill`](crate::Sys::kill) signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// One process.
    Process(Pid),
    /// A process group: `kill` with a negative number, `killpg`.
    Group(Pid),
    /// The caller's own group: `kill` with 0.
    OwnGroup,
    /// Everyone whom the caller may signal but the first process and itself: `kill` with −1.
    Everyone,
}

impl SignalTarget {
    /// What the first argument of kill(2) means.
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

/// How a program is started: path, arguments, and what posix_spawn(3) calls attributes and file
/// actions.
#[derive(Debug, Clone, Default)]
pub struct SpawnRequest {
    /// Which program: a path on `Linux`, a registered name on `Virtual`.
    pub path: String,
    /// Its arguments; the first is by custom its name.
    pub arguments: Vec<String>,
    /// Into which group.
    pub group: SpawnGroup,
    /// Whether it leads a session of its own.
    pub session: bool,
    /// The mask it begins with; `None` the parent's.
    pub mask: Option<SigSet>,
    /// Signals that get their default disposition.
    pub defaults: SigSet,
    /// Descriptors of the parent and the numbers under which the child has them.
    pub descriptors: Vec<(Fd, Fd)>,
}

/// The group that a spawned process is in; `G` names one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpawnGroup<G = Pid> {
    /// Its parent's.
    #[default]
    Parents,
    /// A new one, which it leads.
    Own,
    /// This one, of the same session.
    Of(G),
}

impl SpawnRequest {
    /// This program with these arguments, its name included, and everything else inherited.
    pub fn new(path: &str, arguments: &[&str]) -> Self {
        Self {
            path: path.to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            ..Self::default()
        }
    }
}

/// Whose priority [`Sys::getpriority`](crate::Sys::getpriority) asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityScope {
    /// A process's; number 0 is the caller.
    Process(Pid),
    /// That of all members of a group; number 0 is the caller's.
    Group(Pid),
    /// That of all processes of a user; 0 is the caller's, as setpriority(2) has it.
    User(u32),
}

/// What 4.3BSD's `struct sigstack` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SigStack {
    /// Bytes of the alternate stack; 0 for none.
    pub size: usize,
    /// Whether a handler runs on it now.
    pub on_stack: bool,
}

/// A signal for [`Sys::fault`](crate::Sys::fault): one that a thread's own execution causes.
pub const FAULTS: SigSet =
    SigSet::of(&[Signal::ILL, Signal::TRAP, Signal::BUS, Signal::FPE, Signal::SEGV, Signal::SYS]);

//! The calls of a scenario: [`SystemCall`], with one variant for each kind of argument list.
//!
//! A value names the call and its arguments; `perform.rs` makes the call on a
//! [`Sys`](tontine_unix::Sys). Handlers are statements (`ast.rs`), because they have a body.

use std::time::Duration;

use tontine_unix::{ActionFlags, Modes, SigSet, Signal, SpawnGroup, WaitOptions};

use super::term::Term;
use super::word::{
    LimitedResource, PlainCall, SetCall, SignalCall, SimpleAction, TwoValueCall, ValueCall,
    WaitCall,
};

/// A system call and its arguments.
#[derive(Debug, Clone, PartialEq)]
pub enum SystemCall {
    /// A call without arguments: `getpid`.
    Plain(PlainCall),
    /// A call with one value: `getsid child`.
    Value(ValueCall, Term),
    /// A call with two values: `setpgid child 0`.
    Values(TwoValueCall, Term, Term),
    /// A call with a set of signals: `block {INT QUIT}`.
    Set(SetCall, SigSet),
    /// A call with a signal: `raise USR1`.
    Signal(SignalCall, Signal),
    /// `ignore SIGNAL [FLAGS]`, `default SIGNAL [FLAGS]`.
    Action(SimpleAction, Signal, ActionFlags),
    /// `fork NAME`: forks a child that runs the block `process NAME`.
    Fork(String),
    /// `thread NAME`: a thread that runs this block.
    Thread(String),
    /// `exec NAME`: replaces the caller's program with the statements of a process. All variables
    /// start at 0.
    Exec(ExecTarget),
    /// `spawn NAME …`: forks and calls exec in one step.
    Spawn(Spawning),
    /// `wait`, `waitid`, `wait3`, `wait4`.
    Wait(WaitCall, WaitTarget, WaitOptions),
    /// `kill TARGET SIGNAL`; `None` is signal 0.
    Kill(KillTarget, Option<Signal>),
    /// `killpg GROUP SIGNAL`.
    Killpg(Term, Option<Signal>),
    /// `tgkill PROCESS THREAD SIGNAL`.
    Tgkill(Term, Term, Option<Signal>),
    /// `sigqueue PROCESS SIGNAL VALUE`.
    Sigqueue(Term, Option<Signal>, Term),
    /// `sigtimedwait SET DURATION`.
    Sigtimedwait(SigSet, Duration),
    /// `sleep DURATION`.
    Sleep(Duration),
    /// `compute DURATION`: polls until the process has used this much processor time.
    Compute(Duration),
    /// `pipe R W`: sets both variables.
    Pipe(String, String),
    /// `openpty USER TERMINAL`: sets both variables.
    Openpty(String, String),
    /// `read DESCRIPTOR [BYTES]`.
    Read(Term, Option<Term>),
    /// `write DESCRIPTOR TEXT`, or `type` for input that a user types at a terminal.
    Write {
        /// `true` if the call is written `type`.
        typed: bool,
        /// The descriptor.
        descriptor: Term,
        /// The text.
        text: String,
    },
    /// `tcsetattr TERMINAL +MODE -MODE …`.
    Tcsetattr {
        /// The terminal.
        terminal: Term,
        /// The modes to set.
        on: Modes,
        /// The modes to clear.
        off: Modes,
    },
    /// `getrlimit RESOURCE`.
    Getrlimit(LimitedResource),
    /// `setrlimit RESOURCE soft N hard N`.
    Setrlimit(LimitedResource, Bounds),
    /// `getpriority WHOSE`.
    Getpriority(PriorityTarget),
    /// `setpriority WHOSE NICE`.
    Setpriority(PriorityTarget, Term),
    /// `place any`, `place PROCESSOR`.
    Place(Option<Term>),
    /// `sigstack`, `sigstack BYTES`.
    Sigstack(Option<Term>),
    /// `ptrace …`.
    Ptrace(Tracing),
}

/// The program that `exec` or `spawn` starts.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecTarget {
    /// A process of the scenario.
    Process(String),
    /// Another program, by its path, which does not exist and serves to test the error.
    Other(String),
}

impl ExecTarget {
    /// Returns the process's name, or the path.
    pub fn name(&self) -> &str {
        match self {
            Self::Process(name) | Self::Other(name) => name,
        }
    }
}

/// The arguments of `spawn`.
#[derive(Debug, Clone, PartialEq)]
pub struct Spawning {
    /// The program.
    pub path: ExecTarget,
    /// `group new`, `group VALUE`; the parent's group by default.
    pub group: SpawnGroup<Term>,
    /// `session`.
    pub session: bool,
    /// `mask SET`; the parent's mask by default.
    pub mask: Option<SigSet>,
    /// `defaults SET`.
    pub defaults: SigSet,
    /// `descriptor FROM as TO`, any number of times.
    pub descriptors: Vec<(Term, Term)>,
}

/// The children that `wait` waits for.
#[derive(Debug, Clone, PartialEq)]
pub enum WaitTarget {
    /// `any`, which is the default.
    Any,
    /// `VALUE`: this child.
    One(Term),
    /// `group VALUE`.
    Group(Term),
    /// `own-group`.
    OwnGroup,
}

/// The processes that `kill` signals.
#[derive(Debug, Clone, PartialEq)]
pub enum KillTarget {
    /// `VALUE`: this process.
    One(Term),
    /// `group VALUE`.
    Group(Term),
    /// `own-group`.
    OwnGroup,
    /// `everyone`.
    Everyone,
}

/// `soft N hard N`, where N may be `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The limit in force; `None` is unlimited.
    pub soft: Option<u32>,
    /// The maximum of `soft`; `None` is unlimited.
    pub hard: Option<u32>,
}

/// The processes whose priority a call reads or sets.
#[derive(Debug, Clone, PartialEq)]
pub enum PriorityTarget {
    /// `process VALUE`.
    Process(Term),
    /// `group VALUE`.
    Group(Term),
    /// `user VALUE`.
    User(Term),
}

/// A request of `ptrace`.
#[derive(Debug, Clone, PartialEq)]
pub enum Tracing {
    /// `traceme`.
    TraceMe,
    /// `attach VALUE`.
    Attach(Term),
    /// `continue VALUE [SIGNAL]`.
    Continue(Term, Option<Signal>),
    /// `kill VALUE`.
    Kill(Term),
    /// `detach VALUE [SIGNAL]`.
    Detach(Term, Option<Signal>),
}

impl SystemCall {
    /// The words that start a call and are not in the families of `word.rs`.
    pub const WORDS: &'static [&'static str] = &[
        "fork",
        "thread",
        "exec",
        "spawn",
        "kill",
        "killpg",
        "tgkill",
        "sigqueue",
        "sigtimedwait",
        "sleep",
        "compute",
        "pipe",
        "openpty",
        "read",
        "write",
        "type",
        "tcsetattr",
        "getrlimit",
        "setrlimit",
        "getpriority",
        "setpriority",
        "place",
        "sigstack",
        "ptrace",
    ];

    /// Returns every word that starts a call.
    pub fn words() -> impl Iterator<Item = &'static str> {
        let families = [
            PlainCall::WORDS,
            ValueCall::WORDS,
            TwoValueCall::WORDS,
            SetCall::WORDS,
            SignalCall::WORDS,
        ];
        families
            .into_iter()
            .chain([SimpleAction::WORDS, WaitCall::WORDS, Self::WORDS])
            .flatten()
            .copied()
    }

    /// Returns `true` if a handler may make the call: the call allocates nothing and is
    /// async-signal-safe by signal-safety(7).
    pub const fn is_for_handlers(&self) -> bool {
        match self {
            Self::Plain(plain) => !matches!(plain, PlainCall::Opentty | PlainCall::Getrusage),
            Self::Value(call, _) => {
                !matches!(call, ValueCall::Join | ValueCall::Profil | ValueCall::Counts)
            }
            Self::Values(..) | Self::Set(..) | Self::Signal(..) | Self::Wait(..) => true,
            Self::Action(..) => true,
            Self::Kill(..) | Self::Killpg(..) | Self::Tgkill(..) | Self::Sigqueue(..) => true,
            Self::Sleep(_) | Self::Write { .. } => true,
            _ => false,
        }
    }
}

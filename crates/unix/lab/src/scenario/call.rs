//! The calls of a scenario: a [`SystemCall`] is a [`CallName`] with its arguments.
//!
//! One table defines the words of all calls and the kinds of their arguments. The parser reads
//! arguments of these kinds, the printer writes them, and `perform.rs` makes the call on a
//! [`Sys`](tontine_unix::Sys). Handlers are statements (`ast.rs`), because they have a body.

use std::time::Duration;

use tontine_unix::{ActionFlags, Modes, SigSet, Signal, SpawnGroup, WaitOptions};

use super::term::Term;
use super::word::{LimitedResource, TargetKind, TraceRequest};

/// Defines the calls, each with its word and the kinds of its arguments.
macro_rules! calls {
    ($($Name:ident $word:literal [$($Kind:ident)*],)*) => {
        /// The name of a call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CallName {
            $($Name,)*
        }

        impl CallName {
            /// All calls.
            pub const ALL: &'static [Self] = &[$(Self::$Name,)*];

            /// Returns the word that starts the call.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$Name => $word,)*
                }
            }

            /// Returns the kinds of the arguments.
            pub const fn kinds(self) -> &'static [ArgumentKind] {
                match self {
                    $(Self::$Name => &[$(ArgumentKind::$Kind,)*],)*
                }
            }
        }
    };
}

calls! {
    Getpid "getpid" [],
    Getppid "getppid" [],
    Gettid "gettid" [],
    Getpgrp "getpgrp" [],
    Setsid "setsid" [],
    Sigpending "sigpending" [],
    Getmask "getmask" [],
    Pause "pause" [],
    Opentty "opentty" [],
    Yield "yield" [],
    Poll "poll" [],
    Processor "processor" [],
    Now "now" [],
    Getuid "getuid" [],
    Geteuid "geteuid" [],
    Getrusage "getrusage" [],
    Exit "exit" [Status],
    Alarm "alarm" [Value],
    Getpgid "getpgid" [Value],
    Getsid "getsid" [Value],
    Join "join" [Value],
    Close "close" [Value],
    Controlling "controlling" [Value],
    Tcgetpgrp "tcgetpgrp" [Value],
    Tcgetsid "tcgetsid" [Value],
    Tcgetattr "tcgetattr" [Value],
    Setuid "setuid" [Value],
    Mark "mark" [Value],
    Counts "counts" [Value],
    Profil "profil" [Value],
    Subreaper "subreaper" [Value],
    Setpgid "setpgid" [Value Value],
    Tcsetpgrp "tcsetpgrp" [Value Value],
    Dup2 "dup2" [Value Value],
    Block "block" [Set],
    Unblock "unblock" [Set],
    Setmask "setmask" [Set],
    Sigsuspend "sigsuspend" [Set],
    Sigwait "sigwait" [Set],
    Sigwaitinfo "sigwaitinfo" [Set],
    Sigblock "sigblock" [Set],
    Sigsetmask "sigsetmask" [Set],
    Sigpause "sigpause" [Set],
    Raise "raise" [Signal],
    Fault "fault" [Signal],
    Sigaction "sigaction" [Signal],
    Ignore "ignore" [Signal Flags],
    Default "default" [Signal Flags],
    Wait "wait" [Children Options],
    Waitid "waitid" [Children Options],
    Wait3 "wait3" [Options],
    Wait4 "wait4" [Children Options],
    Fork "fork" [Process],
    Thread "thread" [Thread],
    Exec "exec" [Path],
    Spawn "spawn" [Path Spawning],
    Kill "kill" [Receivers MaybeSignal],
    Killpg "killpg" [Value MaybeSignal],
    Tgkill "tgkill" [Value Value MaybeSignal],
    Sigqueue "sigqueue" [Value MaybeSignal Value],
    Sigtimedwait "sigtimedwait" [Set Duration],
    Sleep "sleep" [Duration],
    Compute "compute" [Duration],
    Pipe "pipe" [Variable Variable],
    Openpty "openpty" [Variable Variable],
    Read "read" [Value MaybeValue],
    Write "write" [Value Text],
    Type "type" [Value Text],
    Tcsetattr "tcsetattr" [Value ModeChanges],
    Getrlimit "getrlimit" [Resource],
    Setrlimit "setrlimit" [Resource Bounds],
    Getpriority "getpriority" [Owner],
    Setpriority "setpriority" [Owner Value],
    Place "place" [AnyOrValue],
    Sigstack "sigstack" [MaybeValue],
    Ptrace "ptrace" [Request],
}

/// The kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A number or a process.
    Value,
    /// A value that a process can exit with.
    Status,
    MaybeValue,
    /// `any` or a value.
    AnyOrValue,
    Set,
    Signal,
    /// A signal, or 0 for none.
    MaybeSignal,
    /// Flags of `sigaction`.
    Flags,
    /// The children that a call waits for: `any`, which is the default, `VALUE`, `group VALUE` or
    /// `own-group`.
    Children,
    /// Options of `wait`.
    Options,
    /// The processes that receive a signal: `VALUE`, `group VALUE`, `own-group` or `everyone`.
    Receivers,
    /// The processes whose priority is meant: `process VALUE`, `group VALUE` or `user VALUE`.
    Owner,
    /// The name of a process of the scenario.
    Process,
    /// The name of a thread of the scenario.
    Thread,
    /// The program that a call starts.
    Path,
    Spawning,
    Duration,
    /// A variable that the call sets.
    Variable,
    Text,
    /// `+MODE -MODE …`.
    ModeChanges,
    Resource,
    /// `soft N hard N`.
    Bounds,
    /// A request of `ptrace`.
    Request,
}

/// A system call and its arguments, one for each of its [`CallName::kinds`].
#[derive(Debug, Clone, PartialEq)]
pub struct SystemCall {
    pub name: CallName,
    pub arguments: Vec<Argument>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    Value(Term),
    MaybeValue(Option<Term>),
    /// `None` is `any`.
    AnyOrValue(Option<Term>),
    Set(SigSet),
    Signal(Signal),
    /// `None` is signal 0.
    MaybeSignal(Option<Signal>),
    Flags(ActionFlags),
    Options(WaitOptions),
    /// A target and its value, if this kind of target has one.
    Target(TargetKind, Option<Term>),
    /// The block that a new process or thread runs.
    Block(String),
    Path(ExecTarget),
    Spawning(Spawning),
    Duration(Duration),
    Variable(String),
    Text(String),
    /// The modes to set, and the modes to clear.
    ModeChanges(Modes, Modes),
    Resource(LimitedResource),
    Bounds(Bounds),
    Request(TraceRequest, Option<Term>, Option<Signal>),
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

/// The arguments of `spawn` after the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Spawning {
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

/// `soft N hard N`, where N may be `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The limit in force; `None` is unlimited.
    pub soft: Option<u32>,
    /// The maximum of `soft`; `None` is unlimited.
    pub hard: Option<u32>,
}

impl CallName {
    /// Returns the call that a word starts.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.word() == word)
    }

    /// Returns every word that starts a call.
    pub fn words() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|name| name.word())
    }

    /// Returns `true` if a handler may make the call: the call allocates nothing and is
    /// async-signal-safe by signal-safety(7).
    pub const fn is_for_handlers(self) -> bool {
        use CallName::*;
        !matches!(
            self,
            Opentty
                | Getrusage
                | Join
                | Profil
                | Counts
                | Fork
                | Thread
                | Exec
                | Spawn
                | Sigtimedwait
                | Compute
                | Pipe
                | Openpty
                | Read
                | Tcsetattr
                | Getrlimit
                | Setrlimit
                | Getpriority
                | Setpriority
                | Place
                | Sigstack
                | Ptrace
        )
    }
}

impl SystemCall {
    /// Returns `true` if the call runs a process of the scenario as a program.
    pub fn executes(&self) -> bool {
        matches!(self.arguments.first(), Some(Argument::Path(ExecTarget::Process(_))))
    }
}

//! The keywords that stand for one value each: [`PlainCall`], [`ValueCall`], [`TwoValueCall`],
//! [`SetCall`], [`SignalCall`] and smaller families. Each keyword is defined once, in this file,
//! for the parser, the printer and the tests of the documentation. Calls with further arguments are
//! in `call.rs`.

/// Defines an enumeration whose members are keywords.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $Name:ident { $($Member:ident $word:literal $doc:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name {
            $(#[doc = concat!("`", $word, "`: ", $doc, ".")] $Member,)*
        }

        impl $Name {
            /// All members.
            pub const ALL: &'static [Self] = &[$(Self::$Member,)*];
            /// The words of all members, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word,)*];

            /// Returns the word.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$Member => $word,)*
                }
            }

            /// Returns the member with this word.
            pub fn of(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|member| member.word() == word)
            }
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// A call without arguments.
    pub enum PlainCall {
        Getpid "getpid" "returns the caller's process",
        Getppid "getppid" "returns the parent of the caller's process",
        Gettid "gettid" "returns the calling thread",
        Getpgrp "getpgrp" "returns the caller's group",
        Setsid "setsid" "starts a session",
        Sigpending "sigpending" "returns the signals that are pending and blocked",
        Getmask "getmask" "returns the blocked signals",
        Pause "pause" "waits for a handler",
        Opentty "opentty" "opens the controlling terminal",
        Yield "yield" "yields the processor to other threads",
        Poll "poll" "lets signals interrupt the caller",
        Processor "processor" "returns the processor on which the caller runs",
        Now "now" "returns the milliseconds since the run began",
        Getuid "getuid" "returns the real user",
        Geteuid "geteuid" "returns the effective user",
        Getrusage "getrusage" "returns the milliseconds of processor time that the process used",
    }
}

words! {
    /// A call with one value.
    pub enum ValueCall {
        Exit "exit" "terminates the process with this status",
        Alarm "alarm" "requests SIGALRM after some seconds; returns the seconds left before",
        Getpgid "getpgid" "returns the group of a process",
        Getsid "getsid" "returns the session of a process",
        Join "join" "waits for the end of a thread",
        Close "close" "closes a descriptor",
        Controlling "controlling" "makes a terminal the session's controlling terminal",
        Tcgetpgrp "tcgetpgrp" "returns the foreground group of a terminal",
        Tcgetsid "tcgetsid" "returns the session of a terminal",
        Tcgetattr "tcgetattr" "returns the modes of a terminal",
        Setuid "setuid" "sets the user",
        Mark "mark" "sets the mark at which `profil` counts",
        Counts "counts" "returns the ticks that `profil` counted at a mark",
        Profil "profil" "starts to count ticks at this number of marks, or stops with 0",
        Subreaper "subreaper" "sets the caller's subreaper role with 1, and clears it with 0",
    }
}

words! {
    /// A call with two values.
    pub enum TwoValueCall {
        Setpgid "setpgid" "puts a process into a group",
        Tcsetpgrp "tcsetpgrp" "makes a group the foreground group of a terminal",
        Dup2 "dup2" "copies a descriptor to a number",
    }
}

words! {
    /// A call with a set of signals.
    pub enum SetCall {
        Block "block" "adds these signals to the mask",
        Unblock "unblock" "removes these signals from the mask",
        Setmask "setmask" "replaces the mask with these signals",
        Sigsuspend "sigsuspend" "waits for a handler with this mask",
        Sigwait "sigwait" "takes one of these signals without a handler",
        Sigwaitinfo "sigwaitinfo" "takes one of these signals, and returns its information",
        Sigblock "sigblock" "adds signals to the mask, like 4.3BSD's call",
        Sigsetmask "sigsetmask" "replaces the mask, like 4.3BSD's call",
        Sigpause "sigpause" "waits for a handler with this mask, like 4.3BSD's call",
    }
}

words! {
    /// A call with one signal.
    pub enum SignalCall {
        Raise "raise" "sends a signal to the calling thread",
        Fault "fault" "raises a signal that the thread's own execution causes",
        Sigaction "sigaction" "returns the action for a signal",
    }
}

words! {
    /// An action for a signal without a handler.
    pub enum SimpleAction {
        Ignore "ignore" "discards the signal",
        Default "default" "restores the default action",
    }
}

words! {
    /// A call that waits for children.
    pub enum WaitCall {
        Wait "wait" "waits like `waitpid`, for ended children and the changes in the options",
        Waitid "waitid" "waits for exactly the changes in the options",
        Wait3 "wait3" "waits for any child, like 4.3BSD's call",
        Wait4 "wait4" "waits for the given children, like 4.3BSD's call",
    }
}

words! {
    /// A value that every process can name without a variable.
    pub enum BuiltinValue {
        Itself "self" "the process",
        Parent "parent" "its parent",
        Init "init" "the process that began the run and adopts orphans",
    }
}

words! {
    /// A field of the signal that a handler runs for.
    pub enum SignalField {
        Signal "signal" "the signal",
        Sender "sender" "the sender, or the child that changed",
        Value "value" "the value that `sigqueue` sent",
        Status "status" "the child's exit status or signal",
        Code "code" "the cause",
    }
}

words! {
    /// A relation between two numbers.
    pub enum Relation {
        Equal "==" "equal",
        Differs "!=" "not equal",
        Less "<" "less than",
        LessEqual "<=" "less than or equal",
        Greater ">" "greater than",
        GreaterEqual ">=" "greater than or equal",
    }
}

impl Relation {
    /// Returns `true` if the relation holds.
    pub const fn holds(self, left: i32, right: i32) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Differs => left != right,
            Self::Less => left < right,
            Self::LessEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterEqual => left >= right,
        }
    }
}

words! {
    /// A resource with a limit.
    pub enum LimitedResource {
        Cpu "cpu" "seconds of processor time",
        Processes "processes" "processes and threads of the user",
        PendingSignals "pending-signals" "queued signals of the user",
        Descriptors "descriptors" "one more than the highest descriptor",
    }
}

words! {
    /// The action for a signal, as `sigaction` returns it.
    pub enum ActionKind {
        Default "by-default" "the default action",
        Ignored "ignored" "the signal is discarded",
        Handled "handled" "a handler runs",
    }
}

words! {
    /// The cause of a signal.
    pub enum SignalCause {
        User "user" "by `kill`",
        Queue "queue" "by `sigqueue`",
        Tkill "tkill" "by `tgkill` or `raise`",
        Kernel "kernel" "by the system",
        Fault "by-fault" "by the thread's own execution",
        Exited "child-exited" "a child exited",
        Killed "child-killed" "a signal terminated a child",
        Dumped "child-dumped" "a signal terminated a child, with a core dump",
        Trapped "child-trapped" "a traced child stopped",
        Stopped "child-stopped" "a child stopped",
        Continued "child-continued" "a child was continued",
    }
}

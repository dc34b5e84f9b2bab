//! Words of the language that stand for one value each: [`PlainCall`], [`ValueCall`],
//! [`TwoValueCall`], [`SetCall`], [`SignalCall`] and smaller families. Each is written once, here;
//! the parser, the printer and the tests of the documentation read it. What a call takes beside a
//! word stands in `call.rs`.

/// An enumeration whose members are words.
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
        Getpid "getpid" "the caller's process",
        Getppid "getppid" "its parent",
        Gettid "gettid" "the calling thread",
        Getpgrp "getpgrp" "the caller's group",
        Setsid "setsid" "makes a session",
        Sigpending "sigpending" "what was sent and is blocked",
        Getmask "getmask" "what is blocked",
        Pause "pause" "waits for a handler",
        Opentty "opentty" "opens the controlling terminal",
        Yield "yield" "lets others run",
        Poll "poll" "a place to be interrupted",
        Processor "processor" "where the caller runs",
        Now "now" "milliseconds since the run began",
        Getuid "getuid" "the real user",
        Geteuid "geteuid" "the effective user",
        Getrusage "getrusage" "milliseconds of processor time that the process used",
    }
}

words! {
    /// A call with one value.
    pub enum ValueCall {
        Exit "exit" "ends the process with this status",
        Alarm "alarm" "SIGALRM after so many seconds; the seconds left before",
        Getpgid "getpgid" "a process's group",
        Getsid "getsid" "a process's session",
        Join "join" "waits for a thread's end",
        Close "close" "closes a descriptor",
        Controlling "controlling" "makes a terminal the session's",
        Tcgetpgrp "tcgetpgrp" "a terminal's foreground group",
        Tcgetsid "tcgetsid" "a terminal's session",
        Tcgetattr "tcgetattr" "a terminal's modes",
        Setuid "setuid" "becomes a user",
        Mark "mark" "says where the program is, for `profil`",
        Counts "counts" "ticks that `profil` counted at a mark",
        Profil "profil" "counts ticks at so many marks, 0 to end it",
        Subreaper "subreaper" "whether orphaned descendants become the caller's: 1 or 0",
    }
}

words! {
    /// A call with two values.
    pub enum TwoValueCall {
        Setpgid "setpgid" "puts a process into a group",
        Tcsetpgrp "tcsetpgrp" "puts a group into a terminal's foreground",
        Dup2 "dup2" "another name of a descriptor",
    }
}

words! {
    /// A call with a set of signals.
    pub enum SetCall {
        Block "block" "blocks these too",
        Unblock "unblock" "blocks these no longer",
        Setmask "setmask" "blocks these and no others",
        Sigsuspend "sigsuspend" "waits for a handler with this mask",
        Sigwait "sigwait" "takes one of these without a handler",
        Sigwaitinfo "sigwaitinfo" "the same, and tells what is known of it",
        Sigblock "sigblock" "4.3BSD's `block`",
        Sigsetmask "sigsetmask" "4.3BSD's `setmask`",
        Sigpause "sigpause" "4.3BSD's `sigsuspend`",
    }
}

words! {
    /// A call with one signal.
    pub enum SignalCall {
        Raise "raise" "sends the calling thread a signal",
        Fault "fault" "raises what the thread's own execution causes",
        Sigaction "sigaction" "what is done about a signal",
    }
}

words! {
    /// An action for a signal without a handler.
    pub enum SimpleAction {
        Ignore "ignore" "throws it away",
        Default "default" "does what the system does",
    }
}

words! {
    /// A call that waits for children.
    pub enum WaitCall {
        Wait "wait" "`waitpid`: ended children, and what the options add",
        Waitid "waitid" "exactly what the options name",
        Wait3 "wait3" "4.3BSD's, of any child",
        Wait4 "wait4" "4.3BSD's, of those named",
    }
}

words! {
    /// A value that every process knows without a variable.
    pub enum BuiltinValue {
        Itself "self" "the process",
        Parent "parent" "its parent",
        Init "init" "the process that began the run and adopts orphans",
    }
}

words! {
    /// A value that a handler knows of its signal.
    pub enum SignalField {
        Signal "signal" "which",
        Sender "sender" "who sent it, or the child that it is about",
        Value "value" "what `sigqueue` was given",
        Status "status" "the child's exit status or signal",
        Code "code" "why it was sent",
    }
}

words! {
    /// A relation of two numbers.
    pub enum Relation {
        Equal "==" "equal",
        Differs "!=" "not equal",
        Less "<" "less",
        LessEqual "<=" "less or equal",
        Greater ">" "greater",
        GreaterEqual ">=" "greater or equal",
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
        Default "by-default" "what the system does",
        Ignored "ignored" "nothing",
        Handled "handled" "a handler runs",
    }
}

words! {
    /// Why a signal was sent.
    pub enum SignalCause {
        User "user" "by `kill`",
        Queue "queue" "by `sigqueue`",
        Tkill "tkill" "by `tgkill` or `raise`",
        Kernel "kernel" "by the system",
        Fault "by-fault" "by the thread's own execution",
        Exited "child-exited" "a child exited",
        Killed "child-killed" "a signal ended a child",
        Dumped "child-dumped" "a signal ended a child, with a core",
        Trapped "child-trapped" "a traced child stopped",
        Stopped "child-stopped" "a child stopped",
        Continued "child-continued" "a child went on",
    }
}

//! The keywords that stand for one value each. Each is defined once, here or (for calls) in
//! `call.rs`, for the parser, the printer and the tests of the documentation.

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
    /// The target of a call, before its value, if it has one.
    pub enum TargetKind {
        Any "any" "any child",
        OwnGroup "own-group" "the caller's group",
        Everyone "everyone" "all processes",
        One "" "a process",
        Group "group" "a group",
        Process "process" "a process whose priority is meant",
        User "user" "the processes of a user",
    }
}

words! {
    /// A request of `ptrace`.
    pub enum TraceRequest {
        TraceMe "traceme" "lets the parent trace the caller",
        Attach "attach" "starts to trace a process",
        Continue "continue" "continues a tracee, with a signal",
        Kill "kill" "kills a tracee",
        Detach "detach" "ends the tracing, with a signal",
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

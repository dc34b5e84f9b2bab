//! The expected result of a call: [`Expected`], a list of alternative [`Pattern`]s.
//!
//! `outcome.rs` compares the patterns with the result.

use tontine_unix::{Errno, Modes, SigSet, Signal, WaitStatus};

use super::call::Bounds;
use super::term::Term;
use super::word::{ActionKind, SignalCause};

/// `-> A or B`: at least one pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected(pub Vec<Pattern>);

/// A pattern for the result of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Pattern {
    /// `anything`, errors included.
    Anything,
    /// `ok`: no error.
    Ok,
    /// `nothing`: `wait nohang` found no child.
    Nothing,
    /// `ECHILD`.
    Errno(Errno),
    /// A number or a process.
    Value(Term),
    /// The bytes that were read.
    Text(String),
    /// `{INT USR1}` or `all`.
    Set(SigSet),
    /// `[VALUE] STATUS`: a child and its status.
    Status(Option<Term>, StatusPattern),
    /// `SIGNAL [from VALUE] [value VALUE] [code CODE]`: a signal that was taken.
    Taken(TakenPattern),
    /// `by-default`, `ignored`, `handled`: the action for a signal.
    Done(ActionKind),
    /// `soft N hard N`.
    Limit(Bounds),
    /// `modes M M …`: exactly these modes are set.
    Modes(Modes),
}

/// A pattern for a signal that `sigwait` or `sigtimedwait` takes.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenPattern {
    pub signal: Signal,
    /// The sender; `None` means any.
    pub from: Option<Term>,
    /// The value; `None` means any.
    pub value: Option<Term>,
    /// The cause; `None` means any.
    pub code: Option<SignalCause>,
}

/// A pattern for the status of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusPattern {
    /// `exited N`, `exited`.
    Exited(Option<i32>),
    /// `killed SIGNAL`, with or without a core dump; `killed SIGNAL core`, with one.
    Killed(Signal, bool),
    /// `stopped SIGNAL`.
    Stopped(Signal),
    /// `trapped SIGNAL`.
    Trapped(Signal),
    /// `continued`.
    Continued,
}

impl StatusPattern {
    /// The words that start a pattern.
    pub const WORDS: &'static [&'static str] =
        &["exited", "killed", "stopped", "trapped", "continued"];

    /// Returns `true` if `status` matches.
    pub fn fits(self, status: WaitStatus) -> bool {
        match (self, status) {
            (Self::Exited(wanted), WaitStatus::Exited(found)) => wanted.is_none_or(|n| n == found),
            (Self::Killed(wanted, core), WaitStatus::Signaled(found, dumped)) => {
                wanted == found && (dumped || !core)
            }
            (Self::Stopped(wanted), WaitStatus::Stopped(found))
            | (Self::Trapped(wanted), WaitStatus::Trapped(found)) => wanted == found,
            (Self::Continued, WaitStatus::Continued) => true,
            _ => false,
        }
    }
}

//! Which system calls something makes: [`events`], [`system_calls`]; and those of a C
//! `pthread_create` and of a `fork`: [`pthread_create`], [`fork`].
//!
//! What is asked about runs in a forked child under `ptrace`, with every thread and process that it
//! makes. [`TraceEvent`] is what is seen, in order; its text is what strace would print. [`clone`]
//! explains each flag and field of a creation, [`signal`] each field of a signal's `siginfo`.
//!
//! [`tracer`] leads the child from stop to stop, [`requests`] are the `ptrace` requests, [`decode`]
//! makes arguments readable, [`names`] knows the numbers. What it does not do: time anything (a
//! traced call takes a hundred times as long), or follow 32-bit programs.

pub mod clone;
mod decode;
mod names;
mod requests;
pub mod signal;
mod specimen;
mod tracer;
mod words;

use std::fmt;

use crate::trouble::Result;
use clone::Creation;
use signal::Arrived;
pub use specimen::{fork, pthread_create};

/// One event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceEvent {
    /// A system call.
    Call(Call),
    /// A signal, just before it is delivered.
    Signal(Who, Arrived),
    /// The end of a thread or process.
    Ended(Who, ExitKind),
}

/// Whose event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// The thread that was asked about.
    Caller,
    /// Another thread of its process.
    Thread(i32),
    /// Another process.
    Process(i32),
}

/// The end of a thread or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// By itself, with a status.
    Exited(i32),
    /// By a signal.
    Killed(i32),
}

/// One system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Who made it.
    pub who: Who,
    /// Its number on this processor.
    pub number: u64,
    /// Its name, where the number has one here.
    pub name: Option<&'static str>,
    /// Its arguments as text.
    pub arguments: Vec<String>,
    /// What it returned; `None` where it never did.
    pub returned: Option<i64>,
    /// Of a creation: what was asked for.
    pub creates: Option<Creation>,
}

impl Call {
    /// Its name, or its number.
    pub fn title(&self) -> String {
        self.name.map_or_else(|| format!("syscall_{}", self.number), str::to_owned)
    }
}

impl TraceEvent {
    /// Whose it is.
    pub fn who(&self) -> Who {
        match self {
            Self::Call(call) => call.who,
            Self::Signal(who, _) | Self::Ended(who, _) => *who,
        }
    }

    /// The call, if it is one.
    pub fn call(&self) -> Option<&Call> {
        match self {
            Self::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// Runs `of` in a forked, traced child, and says what it and everybody that it made did until it
/// returned; an end that was under way by then is waited for.
///
/// # Errors
/// Skipped, where the system refuses `ptrace` (Yama, a filter, a tracer that is there already);
/// failed, where `of` panics or takes more than ten seconds.
pub fn events(of: impl FnOnce() + Send) -> Result<Vec<TraceEvent>> {
    tracer::trace(of)
}

/// The system calls alone.
///
/// # Errors
/// As [`events`].
pub fn system_calls(of: impl FnOnce() + Send) -> Result<Vec<Call>> {
    let calls = events(of)?.into_iter().filter_map(|event| match event {
        TraceEvent::Call(call) => Some(call),
        _ => None,
    });
    Ok(calls.collect())
}

/// Names alone, caller and others apart: `mmap, clone3, futex; the new one: rseq, exit`.
pub fn in_short(events: &[TraceEvent]) -> String {
    let names = |callers: bool| -> Vec<String> {
        let calls = events.iter().filter_map(TraceEvent::call);
        calls.filter(|call| (call.who == Who::Caller) == callers).map(Call::title).collect()
    };
    let (caller, others) = (names(true), names(false));
    let mut text = caller.join(", ");
    if !others.is_empty() {
        text += &format!("; the new one: {}", others.join(", "));
    }
    text
}

/// Whether a word is the name of a system call here.
pub fn is_a_call(word: &str) -> bool {
    names::is_name(word)
}

/// What a trace means: every event a line, then each flag and field of each creation, and each
/// field of each signal, with its meaning.
pub fn explained(events: &[TraceEvent]) -> String {
    let mut text = String::new();
    for event in events {
        text += &format!("{event}\n");
    }
    for event in events {
        match event {
            TraceEvent::Call(Call { creates: Some(creation), .. }) => text += &creation.explained(),
            TraceEvent::Signal(_, arrived) => text += &arrived.explained(),
            _ => {}
        }
    }
    text
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caller => Ok(()),
            Self::Thread(id) => write!(f, "[thread {id}] "),
            Self::Process(id) => write!(f, "[process {id}] "),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = format!("{}({})", self.title(), self.arguments.join(", "));
        write!(f, "{}{head:39} = {}", self.who, words::returned(self.name, self.returned))
    }
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => call.fmt(f),
            Self::Signal(who, arrived) => write!(f, "{who}--- {arrived} ---"),
            Self::Ended(who, ExitKind::Exited(status)) => {
                write!(f, "{who}+++ exited with {status} +++")
            }
            Self::Ended(who, ExitKind::Killed(signal)) => {
                write!(f, "{who}+++ killed by {} +++", words::signal(*signal))
            }
        }
    }
}

#[cfg(test)]
mod tests;

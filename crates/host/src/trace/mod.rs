//! Traces of the system calls of a function ([`events`], [`system_calls`]), of a C `pthread_create`
//! ([`pthread_create`]) and of a C `fork` ([`fork`]).
//!
//! The traced function runs in a forked child under `ptrace`, as does every thread and process that
//! it creates. Each [`TraceEvent`] is one observation; the events are in order, and their text is
//! what strace would print. [`clone`] explains each flag and field of a creation, [`signal`] each
//! field of a signal's `siginfo`.
//!
//! [`tracer`] resumes the child from stop to stop, [`requests`] contains the `ptrace` requests,
//! [`decode`] formats arguments, and [`names`] maps numbers to names. The module does not measure
//! time, because a traced call takes a hundred times as long, and does not follow 32-bit programs.

pub mod clone;
mod decode;
mod names;
mod requests;
pub mod signal;
mod specimen;
mod tracer;
mod words;

use std::fmt;

use crate::error::Result;
use clone::Creation;
use signal::Arrived;
pub use specimen::{fork, pthread_create};

/// One event of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceEvent {
    /// A system call.
    Call(Call),
    /// A signal, recorded just before its delivery.
    Signal(Who, Arrived),
    /// The end of a thread or process.
    Ended(Who, ExitKind),
}

/// The thread or process of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Who {
    /// The traced function's thread.
    Caller,
    /// Another thread of the same process.
    Thread(i32),
    /// Another process.
    Process(i32),
}

/// The end of a thread or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// Exited, with a status.
    Exited(i32),
    /// Killed by a signal.
    Killed(i32),
}

/// One system call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Thread that made the call.
    pub who: Who,
    /// Number of the call on this processor.
    pub number: u64,
    /// Name of the call, if the number is known here.
    pub name: Option<&'static str>,
    /// Arguments as text.
    pub arguments: Vec<String>,
    /// Returned value; `None` if the call did not return.
    pub returned: Option<i64>,
    /// Arguments of a creation, if the call is one.
    pub creates: Option<Creation>,
}

impl Call {
    /// Returns the name of the call, or its number.
    pub fn title(&self) -> String {
        self.name.map_or_else(|| format!("syscall_{}", self.number), str::to_owned)
    }
}

impl TraceEvent {
    /// Returns the thread or process of the event.
    pub fn who(&self) -> Who {
        match self {
            Self::Call(call) => call.who,
            Self::Signal(who, _) | Self::Ended(who, _) => *who,
        }
    }

    /// Returns the call, if the event is one.
    pub fn call(&self) -> Option<&Call> {
        match self {
            Self::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// Runs `of` in a forked, traced child. Returns the events of the child, and of all tasks that it
/// created, until `of` returns. Waits for a thread that is already exiting by then.
///
/// # Errors
/// Returns `Skipped` if the system refuses `ptrace` (Yama, a filter, another tracer), `Failed` if
/// `of` panics or takes more than ten seconds.
pub fn events(of: impl FnOnce() + Send) -> Result<Vec<TraceEvent>> {
    tracer::trace(of)
}

/// Returns only the system calls.
///
/// # Errors
/// Like [`events`].
pub fn system_calls(of: impl FnOnce() + Send) -> Result<Vec<Call>> {
    let calls = events(of)?.into_iter().filter_map(|event| match event {
        TraceEvent::Call(call) => Some(call),
        _ => None,
    });
    Ok(calls.collect())
}

/// Returns only the names of the calls, beginning with the caller's:
/// `mmap, clone3, futex; the new task: rseq, exit`.
pub fn in_short(events: &[TraceEvent]) -> String {
    let names = |callers: bool| -> Vec<String> {
        let calls = events.iter().filter_map(TraceEvent::call);
        calls.filter(|call| (call.who == Who::Caller) == callers).map(Call::title).collect()
    };
    let (caller, others) = (names(true), names(false));
    let mut text = caller.join(", ");
    if !others.is_empty() {
        text += &format!("; the new task: {}", others.join(", "));
    }
    text
}

/// Returns `true` if `word` is the name of a system call on this processor.
pub fn is_a_call(word: &str) -> bool {
    names::is_name(word)
}

/// Explains a trace: every event on its own line, then each flag and field of each creation and
/// each field of each signal, with its meaning.
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

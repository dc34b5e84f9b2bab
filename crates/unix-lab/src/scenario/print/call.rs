//! Displays calls and their arguments.

use std::fmt::{self, Display, Formatter};

use tontine_unix::{ActionFlags, SpawnGroup, WaitOptions};

use super::piece::{OrZero, Quoted, Set, SignalName, Time};
use crate::scenario::call::{
    Bounds, ExecTarget, KillTarget, PriorityTarget, Spawning, SystemCall, Tracing, WaitTarget,
};
use crate::scenario::flags::{ACTION_FLAGS, MODES, WAIT_OPTIONS};

impl Display for SystemCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(call) => call.fmt(f),
            Self::Value(call, value) => write!(f, "{call} {value}"),
            Self::Values(call, first, second) => write!(f, "{call} {first} {second}"),
            Self::Set(call, set) => write!(f, "{call} {}", Set(*set)),
            Self::Signal(call, signal) => write!(f, "{call} {}", SignalName(*signal)),
            Self::Action(call, signal, flags) => {
                write!(f, "{call} {}", SignalName(*signal))?;
                action_flags(f, *flags)
            }
            Self::Fork(name) => write!(f, "fork {name}"),
            Self::Thread(name) => write!(f, "thread {name}"),
            Self::Exec(path) => write!(f, "exec {path}"),
            Self::Spawn(spawning) => spawning.fmt(f),
            Self::Wait(call, whom, options) => {
                write!(f, "{call}{whom}")?;
                wait_options(f, *options)
            }
            Self::Kill(aim, signal) => write!(f, "kill {aim} {}", OrZero(*signal)),
            Self::Killpg(group, signal) => write!(f, "killpg {group} {}", OrZero(*signal)),
            Self::Tgkill(process, thread, signal) => {
                write!(f, "tgkill {process} {thread} {}", OrZero(*signal))
            }
            Self::Sigqueue(process, signal, value) => {
                write!(f, "sigqueue {process} {} {value}", OrZero(*signal))
            }
            Self::Sigtimedwait(set, timeout) => {
                write!(f, "sigtimedwait {} {}", Set(*set), Time(*timeout))
            }
            Self::Sleep(duration) => write!(f, "sleep {}", Time(*duration)),
            Self::Compute(duration) => write!(f, "compute {}", Time(*duration)),
            Self::Pipe(reader, writer) => write!(f, "pipe {reader} {writer}"),
            Self::Openpty(user, terminal) => write!(f, "openpty {user} {terminal}"),
            Self::Read(descriptor, most) => {
                write!(f, "read {descriptor}")?;
                most.as_ref().map_or(Ok(()), |most| write!(f, " {most}"))
            }
            Self::Write { typed, descriptor, text } => {
                let word = if *typed { "type" } else { "write" };
                write!(f, "{word} {descriptor} {}", Quoted(text))
            }
            Self::Tcsetattr { terminal, on, off } => {
                write!(f, "tcsetattr {terminal}")?;
                for (sign, modes) in [('+', on), ('-', off)] {
                    for (word, _) in MODES.iter().filter(|(_, mode)| modes.contains(*mode)) {
                        write!(f, " {sign}{word}")?;
                    }
                }
                Ok(())
            }
            Self::Getrlimit(limited) => write!(f, "getrlimit {limited}"),
            Self::Setrlimit(limited, bounds) => write!(f, "setrlimit {limited} {bounds}"),
            Self::Getpriority(owner) => write!(f, "getpriority {owner}"),
            Self::Setpriority(owner, nice) => write!(f, "setpriority {owner} {nice}"),
            Self::Place(None) => f.write_str("place any"),
            Self::Place(Some(processor)) => write!(f, "place {processor}"),
            Self::Sigstack(None) => f.write_str("sigstack"),
            Self::Sigstack(Some(size)) => write!(f, "sigstack {size}"),
            Self::Ptrace(tracing) => write!(f, "ptrace {tracing}"),
        }
    }
}

/// Writes flags, each after a space.
pub(super) fn action_flags(f: &mut Formatter<'_>, flags: ActionFlags) -> fmt::Result {
    let set = ACTION_FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
    set.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
}

fn wait_options(f: &mut Formatter<'_>, options: WaitOptions) -> fmt::Result {
    let set = WAIT_OPTIONS.iter().filter(|(_, option)| options.contains(*option));
    set.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
}

impl Display for ExecTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(name) => f.write_str(name),
            Self::Other(path) => Quoted(path).fmt(f),
        }
    }
}

impl Display for Spawning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "spawn {}", self.path)?;
        match &self.group {
            SpawnGroup::Parents => {}
            SpawnGroup::Own => f.write_str(" group new")?,
            SpawnGroup::Of(group) => write!(f, " group {group}")?,
        }
        if self.session {
            f.write_str(" session")?;
        }
        if let Some(mask) = self.mask {
            write!(f, " mask {}", Set(mask))?;
        }
        if !self.defaults.is_empty() {
            write!(f, " defaults {}", Set(self.defaults))?;
        }
        self.descriptors.iter().try_for_each(|(from, to)| write!(f, " descriptor {from} as {to}"))
    }
}

/// Displays the children after a space; writes nothing for any child.
impl Display for WaitTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::One(child) => write!(f, " {child}"),
            Self::Group(group) => write!(f, " group {group}"),
            Self::OwnGroup => f.write_str(" own-group"),
        }
    }
}

impl Display for KillTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(process) => process.fmt(f),
            Self::Group(group) => write!(f, "group {group}"),
            Self::OwnGroup => f.write_str("own-group"),
            Self::Everyone => f.write_str("everyone"),
        }
    }
}

impl Display for Bounds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (word, bound) in [("soft", self.soft), (" hard", self.hard)] {
            match bound {
                Some(bound) => write!(f, "{word} {bound}")?,
                None => write!(f, "{word} unlimited")?,
            }
        }
        Ok(())
    }
}

impl Display for PriorityTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(process) => write!(f, "process {process}"),
            Self::Group(group) => write!(f, "group {group}"),
            Self::User(user) => write!(f, "user {user}"),
        }
    }
}

impl Display for Tracing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (word, process, signal) = match self {
            Self::TraceMe => return f.write_str("traceme"),
            Self::Attach(process) => ("attach", process, None),
            Self::Continue(process, signal) => ("continue", process, *signal),
            Self::Kill(process) => ("kill", process, None),
            Self::Detach(process, signal) => ("detach", process, *signal),
        };
        write!(f, "{word} {process}")?;
        signal.map_or(Ok(()), |signal| write!(f, " {}", SignalName(signal)))
    }
}

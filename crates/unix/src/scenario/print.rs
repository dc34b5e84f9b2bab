//! Text of a scenario: what [`std::fmt::Display`] writes, the parser reads as the same scenario.
//!
//! Bodies are always indented blocks; comments and layout are not kept. Nothing here allocates: a
//! log may print a call from within a handler.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use super::ast::{
    Block, BlockKind, Condition, Count, Expectation, Expression, HandlerStep, Part, Scenario,
    Statement, Step, Term, Whole,
};
use super::call::{Aim, Bounds, Call, Owner, Path, Spawning, Tracing, Whom};
use super::expected::{Expected, Pattern, StatusPattern, TakenPattern};
use super::flags::{ACTION_FLAGS, MODES, WAIT_OPTIONS};
use super::token::UNITS;
use crate::action::ActionFlags;
use crate::signal::{SigSet, Signal};
use crate::wait::WaitOptions;

impl Display for Scenario {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, block) in self.blocks.iter().enumerate() {
            if index > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{block}")?;
        }
        if !self.expectations.is_empty() {
            f.write_char('\n')?;
        }
        self.expectations.iter().try_for_each(|expectation| writeln!(f, "{expectation}"))
    }
}

impl Display for Block {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BlockKind::Process => "process",
            BlockKind::Thread => "thread",
        };
        writeln!(f, "{kind} {}", self.name)?;
        body(f, 1, &self.body)
    }
}

/// Statements, each on a line of its own.
fn body(f: &mut Formatter<'_>, depth: usize, statements: &[Statement]) -> fmt::Result {
    for Statement { step, .. } in statements {
        writeln!(f, "{:1$}{step}", "", depth * 2)?;
        match step {
            Step::Handler(HandlerStep { body: inner, .. })
            | Step::Repeat(_, inner)
            | Step::While(_, inner) => body(f, depth + 1, inner)?,
            Step::Call(_) | Step::Note(_) | Step::Set(..) | Step::Check(_) => {}
        }
    }
    Ok(())
}

/// Without the body, where it has one.
impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(step) => {
                if let Some(into) = &step.into {
                    write!(f, "{into} = ")?;
                }
                write!(f, "{}", step.call)?;
                arrow(f, step.expected.as_ref())
            }
            Self::Handler(step) => {
                write!(f, "{step}")?;
                arrow(f, step.expected.as_ref())
            }
            Self::Note(parts) => {
                f.write_str("note \"")?;
                for part in parts {
                    match part {
                        Part::Text(text) => escaped(f, text, true)?,
                        Part::Value(term) => write!(f, "{{{term}}}")?,
                    }
                }
                f.write_char('"')
            }
            Self::Set(name, expression) => write!(f, "{name} = {expression}"),
            Self::Check(condition) => write!(f, "check {condition}"),
            Self::Repeat(times, _) => write!(f, "repeat {times}"),
            Self::While(condition, _) => write!(f, "while {condition}"),
        }
    }
}

/// Without what is expected, and without the body.
impl Display for HandlerStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.bsd { "sigvec" } else { "on" }, Name(self.signal))?;
        action_flags(f, self.flags)?;
        if self.mask.is_empty() { Ok(()) } else { write!(f, " mask {}", Set(self.mask)) }
    }
}

fn arrow(f: &mut Formatter<'_>, expected: Option<&Expected>) -> fmt::Result {
    expected.map_or(Ok(()), |expected| write!(f, " -> {expected}"))
}

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Variable(name) => f.write_str(name),
            Self::Own(own) => own.fmt(f),
            Self::Info(info) => info.fmt(f),
        }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Term(term) => term.fmt(f),
            Self::Sum(left, right) => write!(f, "{left} + {right}"),
            Self::Difference(left, right) => write!(f, "{left} - {right}"),
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.left, self.relation, self.right)
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(call) => call.fmt(f),
            Self::Value(call, value) => write!(f, "{call} {value}"),
            Self::Values(call, first, second) => write!(f, "{call} {first} {second}"),
            Self::Set(call, set) => write!(f, "{call} {}", Set(*set)),
            Self::Signal(call, signal) => write!(f, "{call} {}", Name(*signal)),
            Self::Action(call, signal, flags) => {
                write!(f, "{call} {}", Name(*signal))?;
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

fn action_flags(f: &mut Formatter<'_>, flags: ActionFlags) -> fmt::Result {
    let set = ACTION_FLAGS.iter().filter(|(_, flag)| flags.contains(*flag));
    set.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
}

fn wait_options(f: &mut Formatter<'_>, options: WaitOptions) -> fmt::Result {
    let set = WAIT_OPTIONS.iter().filter(|(_, option)| options.contains(*option));
    set.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
}

impl Display for Path {
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
            None => {}
            Some(None) => f.write_str(" group new")?,
            Some(Some(group)) => write!(f, " group {group}")?,
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

/// With a space before it, or nothing for any child.
impl Display for Whom {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Ok(()),
            Self::One(child) => write!(f, " {child}"),
            Self::Group(group) => write!(f, " group {group}"),
            Self::OwnGroup => f.write_str(" own-group"),
        }
    }
}

impl Display for Aim {
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

impl Display for Owner {
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
        signal.map_or(Ok(()), |signal| write!(f, " {}", Name(signal)))
    }
}

impl Display for Expected {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        alternatives(f, &self.0)
    }
}

fn alternatives<T: Display>(f: &mut Formatter<'_>, all: &[T]) -> fmt::Result {
    for (index, one) in all.iter().enumerate() {
        if index > 0 {
            f.write_str(" or ")?;
        }
        one.fmt(f)?;
    }
    Ok(())
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("anything"),
            Self::Ok => f.write_str("ok"),
            Self::Nothing => f.write_str("nothing"),
            Self::Errno(errno) => f.write_str(errno.name().unwrap_or("E?")),
            Self::Value(term) => term.fmt(f),
            Self::Text(text) => Quoted(text).fmt(f),
            Self::Set(set) => Braced(*set).fmt(f),
            Self::Status(who, status) => {
                who.as_ref().map_or(Ok(()), |who| write!(f, "{who} "))?;
                status.fmt(f)
            }
            Self::Taken(taken) => taken.fmt(f),
            Self::Done(done) => done.fmt(f),
            Self::Limit(bounds) => bounds.fmt(f),
            Self::Modes(modes) => {
                f.write_str("modes")?;
                let on = MODES.iter().filter(|(_, mode)| modes.contains(*mode));
                on.into_iter().try_for_each(|(word, _)| write!(f, " {word}"))
            }
        }
    }
}

impl Display for TakenPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Name(self.signal).fmt(f)?;
        for (word, term) in [("from", &self.from), ("value", &self.value)] {
            term.as_ref().map_or(Ok(()), |term| write!(f, " {word} {term}"))?;
        }
        self.code.map_or(Ok(()), |code| write!(f, " code {code}"))
    }
}

impl Display for StatusPattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(None) => f.write_str("exited"),
            Self::Exited(Some(status)) => write!(f, "exited {status}"),
            Self::Killed(signal, core) => {
                write!(f, "killed {}{}", Name(*signal), if *core { " core" } else { "" })
            }
            Self::Stopped(signal) => write!(f, "stopped {}", Name(*signal)),
            Self::Trapped(signal) => write!(f, "trapped {}", Name(*signal)),
            Self::Continued => f.write_str("continued"),
        }
    }
}

impl Display for Expectation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("expect ")?;
        self.what.fmt(f)
    }
}

impl Display for Whole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let of = |f: &mut Formatter<'_>, name: &Option<String>| {
            name.as_ref().map_or(Ok(()), |name| write!(f, " of {name}"))
        };
        match self {
            Self::Ended { count, name, ways } => {
                count.map_or(Ok(()), |count| write!(f, "{count} of "))?;
                write!(f, "{name} ")?;
                alternatives(f, ways)
            }
            Self::Note { text, of: name, count } => {
                write!(f, "note {}", Quoted(text))?;
                of(f, name)?;
                if *count == Count::ONE { Ok(()) } else { write!(f, " {count} times") }
            }
            Self::Notes { of: name, ordered, sequences } => {
                f.write_str("notes")?;
                of(f, name)?;
                if !ordered {
                    f.write_str(" in any order")?;
                }
                for (index, sequence) in sequences.iter().enumerate() {
                    f.write_str(if index > 0 { " or" } else { "" })?;
                    if sequence.is_empty() {
                        f.write_str(" none")?;
                    }
                    for (at, text) in sequence.iter().enumerate() {
                        write!(f, "{} {}", if at > 0 { "," } else { "" }, Quoted(text))?;
                    }
                }
                Ok(())
            }
            Self::Before(first, then) => write!(f, "{} before {}", Quoted(first), Quoted(then)),
        }
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.least)?;
        if self.least == self.most { Ok(()) } else { write!(f, "..{}", self.most) }
    }
}

/// A signal as scenarios write it: without `SIG`.
pub(super) struct Name(pub(super) Signal);

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Without { rest: 3, f }, "{}", self.0)
    }
}

/// Leaves out the first bytes, all ASCII.
struct Without<'f, 'g> {
    rest: usize,
    f: &'f mut Formatter<'g>,
}

impl Write for Without<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let skipped = self.rest.min(text.len());
        self.rest -= skipped;
        self.f.write_str(&text[skipped..])
    }
}

/// A signal, or 0.
struct OrZero(Option<Signal>);

impl Display for OrZero {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_char('0'),
            Some(signal) => Name(signal).fmt(f),
        }
    }
}

/// A set of signals as an argument: one signal needs no braces.
struct Set(SigSet);

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut signals = self.0.iter();
        match (signals.next(), signals.next()) {
            (Some(only), None) if self.0 != SigSet::ALL => Name(only).fmt(f),
            _ => Braced(self.0).fmt(f),
        }
    }
}

/// A set of signals in braces.
pub(super) struct Braced(pub(super) SigSet);

impl Display for Braced {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == SigSet::ALL {
            return f.write_str("all");
        }
        f.write_char('{')?;
        for (index, signal) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            Name(signal).fmt(f)?;
        }
        f.write_char('}')
    }
}

/// A duration in the largest unit that divides it.
struct Time(Duration);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let unit =
            UNITS.iter().rev().find(|(_, unit)| nanoseconds.is_multiple_of(u128::from(*unit)));
        let (name, unit) = unit.expect("1 ns divides it");
        write!(f, "{}{name}", nanoseconds / u128::from(*unit))
    }
}

/// A text in quotes.
pub(super) struct Quoted<'t>(pub(super) &'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        escaped(f, self.0, false)?;
        f.write_char('"')
    }
}

/// The inside of a text; of a note braces are doubled.
fn escaped(f: &mut Formatter<'_>, text: &str, note: bool) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            '\\' => f.write_str("\\\\")?,
            '"' => f.write_str("\\\"")?,
            '{' | '}' if note => write!(f, "{c}{c}")?,
            c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    Ok(())
}

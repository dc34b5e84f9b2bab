//! Displays the expected results of calls and the expectations of the whole run.

use std::fmt::{self, Display, Formatter};

use super::piece::{Braced, Quoted, SignalName};
use crate::scenario::ast::{Count, Expectation, RunExpectation};
use crate::scenario::expected::{Expected, Pattern, StatusPattern, TakenPattern};
use crate::scenario::flags::MODES;

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
        SignalName(self.signal).fmt(f)?;
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
                write!(f, "killed {}{}", SignalName(*signal), if *core { " core" } else { "" })
            }
            Self::Stopped(signal) => write!(f, "stopped {}", SignalName(*signal)),
            Self::Trapped(signal) => write!(f, "trapped {}", SignalName(*signal)),
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

impl Display for RunExpectation {
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
        write!(f, "{}", self.min)?;
        if self.min == self.max { Ok(()) } else { write!(f, "..{}", self.max) }
    }
}

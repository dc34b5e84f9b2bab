//! The result of a call, [`CallResult`], and its comparison with the expected one.

use std::fmt::{self, Display, Formatter, Write};

use tontine_unix::{
    Disposition, Errno, Modes, Pid, Result, Rlimit, SigCode, SigInfo, SigSet, Signal, WaitStatus,
    WaitedChild,
};

use super::call::Bounds;
use super::expected::{Expected, Pattern, TakenPattern};
use super::print::{Braced, SignalName};
use super::term::Term;
use super::word::{ActionKind, SignalCause};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallResult {
    /// Success without a value.
    Ok,
    /// A number, or a process.
    Value(Pid),
    /// Bytes that were read.
    Bytes(Vec<u8>),
    Set(SigSet),
    /// A child that changed state.
    Waited(WaitedChild),
    /// No child has changed state.
    Nothing,
    /// A signal that was taken without a handler, with its information if the call returns it.
    Taken(Signal, Option<SigInfo>),
    /// The current or previous action for a signal.
    Done(ActionKind),
    Limit(Rlimit),
    /// The modes of a terminal.
    Modes(Modes),
    /// The call failed.
    Error(Errno),
}

impl CallResult {
    /// Returns a number as a result.
    pub(super) fn number(number: impl TryInto<i32>) -> Self {
        Self::Value(Pid::number_only(number.try_into().unwrap_or(i32::MAX)))
    }

    /// Returns the value for a variable: the number or process; −1 for an error, else 0.
    pub(super) fn value(&self) -> Pid {
        match self {
            Self::Value(value) => *value,
            Self::Waited(waited) => waited.pid,
            Self::Taken(signal, _) => Pid::number_only(signal.number()),
            Self::Error(_) => Pid::number_only(-1),
            _ => Pid::number_only(0),
        }
    }

    /// Returns `true` if one of the patterns matches; `value` evaluates a term.
    pub(super) fn is(&self, expected: &Expected, value: impl Fn(&Term) -> i32) -> bool {
        expected.0.iter().any(|pattern| self.fits(pattern, &value))
    }

    fn fits(&self, pattern: &Pattern, value: &impl Fn(&Term) -> i32) -> bool {
        match (pattern, self) {
            (Pattern::Anything, _) => true,
            (Pattern::Errno(wanted), found) => *found == Self::Error(*wanted),
            (_, Self::Error(_)) => false,
            (Pattern::Ok, _) | (Pattern::Nothing, Self::Nothing) => true,
            (Pattern::Value(term), Self::Value(_) | Self::Waited(_)) => {
                value(term) == self.value().number()
            }
            (Pattern::Text(wanted), Self::Bytes(found)) => wanted.as_bytes() == found,
            (Pattern::Set(wanted), Self::Set(found)) => same(*wanted, *found),
            (Pattern::Status(who, wanted), Self::Waited(found)) => {
                let is_meant = who.as_ref().is_none_or(|who| value(who) == found.pid.number());
                is_meant && wanted.fits(found.status)
            }
            (Pattern::Taken(wanted), Self::Taken(signal, info)) => {
                wanted.signal == *signal && known(wanted, info.as_ref(), value)
            }
            (Pattern::Done(wanted), Self::Done(found)) => wanted == found,
            (Pattern::Limit(wanted), Self::Limit(found)) => limit(*wanted) == *found,
            (Pattern::Modes(wanted), Self::Modes(found)) => wanted == found,
            _ => false,
        }
    }
}

/// Returns `true` if two sets have the same signals. `all` also includes bits that are not signals,
/// and signals that cannot be blocked.
fn same(wanted: SigSet, found: SigSet) -> bool {
    if wanted == SigSet::ALL {
        let all: SigSet = Signal::all().collect();
        return all.difference(found).difference(SigSet::UNBLOCKABLE).is_empty();
    }
    wanted.iter().eq(found.iter())
}

/// Returns `true` if the information about a signal matches the pattern.
fn known(wanted: &TakenPattern, info: Option<&SigInfo>, value: impl Fn(&Term) -> i32) -> bool {
    let says_more = wanted.from.is_some() || wanted.value.is_some() || wanted.code.is_some();
    let Some(info) = info else { return !says_more };
    wanted.from.as_ref().is_none_or(|from| value(from) == info.pid)
        && wanted.value.as_ref().is_none_or(|term| value(term) == info.value)
        && wanted.code.is_none_or(|code| code == cause(info.code))
}

/// Returns the word for a code.
pub(super) const fn cause(code: SigCode) -> SignalCause {
    match code {
        SigCode::User => SignalCause::User,
        SigCode::Queue => SignalCause::Queue,
        SigCode::Tkill => SignalCause::Tkill,
        SigCode::Kernel => SignalCause::Kernel,
        SigCode::Fault => SignalCause::Fault,
        SigCode::Exited => SignalCause::Exited,
        SigCode::Killed => SignalCause::Killed,
        SigCode::Dumped => SignalCause::Dumped,
        SigCode::Trapped => SignalCause::Trapped,
        SigCode::Stopped => SignalCause::Stopped,
        SigCode::Continued => SignalCause::Continued,
    }
}

/// Returns the word for a disposition.
pub(super) const fn done(disposition: &Disposition) -> ActionKind {
    match disposition {
        Disposition::Default => ActionKind::Default,
        Disposition::Ignore => ActionKind::Ignored,
        Disposition::Handler(_) => ActionKind::Handled,
    }
}

/// Converts bounds to a limit.
pub(super) fn limit(bounds: Bounds) -> Rlimit {
    let of = |bound: Option<u32>| bound.map_or(u64::MAX, u64::from);
    Rlimit { soft: of(bounds.soft), hard: of(bounds.hard) }
}

impl From<Result<()>> for CallResult {
    fn from(result: Result<()>) -> Self {
        result.map_or_else(Self::Error, |()| Self::Ok)
    }
}

impl From<Result<Pid>> for CallResult {
    fn from(result: Result<Pid>) -> Self {
        result.map_or_else(Self::Error, Self::Value)
    }
}

impl From<Result<Option<WaitedChild>>> for CallResult {
    fn from(result: Result<Option<WaitedChild>>) -> Self {
        match result {
            Ok(Some(waited)) => Self::Waited(waited),
            Ok(None) => Self::Nothing,
            Err(errno) => Self::Error(errno),
        }
    }
}

/// Displays a result in the syntax of an expectation.
impl Display for CallResult {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Value(value) => value.fmt(f),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Set(set) => Braced(*set).fmt(f),
            Self::Waited(waited) => write!(f, "{} {}", waited.pid, StatusName(waited.status)),
            Self::Nothing => f.write_str("nothing"),
            Self::Taken(signal, None) => SignalName(*signal).fmt(f),
            Self::Taken(_, Some(info)) => KnownSignal(info).fmt(f),
            Self::Done(done) => done.fmt(f),
            Self::Limit(limit) => {
                for (word, bound) in [("soft", limit.soft), (" hard", limit.hard)] {
                    match bound {
                        u64::MAX => write!(f, "{word} unlimited")?,
                        bound => write!(f, "{word} {bound}")?,
                    }
                }
                Ok(())
            }
            Self::Modes(modes) => Pattern::Modes(*modes).fmt(f),
            Self::Error(errno) => match errno.name() {
                Some(name) => f.write_str(name),
                None => errno.fmt(f),
            },
        }
    }
}

/// Displays a status in the syntax of an expectation.
pub(super) struct StatusName(pub(super) WaitStatus);

impl Display for StatusName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            WaitStatus::Exited(status) => write!(f, "exited {status}"),
            WaitStatus::Signaled(signal, core) => {
                write!(f, "killed {}{}", SignalName(signal), if core { " core" } else { "" })
            }
            WaitStatus::Stopped(signal) => write!(f, "stopped {}", SignalName(signal)),
            WaitStatus::Trapped(signal) => write!(f, "trapped {}", SignalName(signal)),
            WaitStatus::Continued => f.write_str("continued"),
        }
    }
}

/// Displays the information about a signal in the syntax of an expectation.
pub(super) struct KnownSignal<'i>(pub(super) &'i SigInfo);

impl Display for KnownSignal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let SigInfo { signal, code, pid, value, .. } = *self.0;
        write!(f, "{} from {pid}", SignalName(signal))?;
        if code == SigCode::Queue {
            write!(f, " value {value}")?;
        }
        f.write_char(' ')?;
        write!(f, "code {}", cause(code))
    }
}

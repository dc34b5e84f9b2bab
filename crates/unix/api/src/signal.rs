//! Signals and sets of them: [`Signal`], [`SigSet`].

use std::fmt;
use std::str::FromStr;

/// A signal, identified by its number on Linux for x86-64 and AArch64.
///
/// The C library reserves the numbers 32 and 33, so no `Signal` has these numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(u8);

macro_rules! signals {
    ($($name:ident $number:literal $text:literal,)*) => {
        impl Signal {
            $(#[doc = concat!("`SIG", stringify!($name), "`: ", $text, ".")]
            pub const $name: Self = Self($number);)*

            const NAMES: &[(u8, &str)] = &[$(($number, concat!("SIG", stringify!($name))),)*];
        }
    };
}

signals! {
    HUP 1 "the terminal hung up",
    INT 2 "interrupt from the terminal",
    QUIT 3 "quit from the terminal, with a core",
    ILL 4 "illegal instruction",
    TRAP 5 "trap, for a debugger",
    ABRT 6 "abort",
    BUS 7 "bus error",
    FPE 8 "arithmetic exception",
    KILL 9 "kill; neither caught nor blocked",
    USR1 10 "free to use",
    SEGV 11 "invalid memory reference",
    USR2 12 "free to use",
    PIPE 13 "write to a pipe without a reader",
    ALRM 14 "the alarm clock",
    TERM 15 "terminate",
    STKFLT 16 "stack fault; unused",
    CHLD 17 "a child stopped, continued or ended",
    CONT 18 "continue",
    STOP 19 "stop; neither caught nor blocked",
    TSTP 20 "stop from the terminal",
    TTIN 21 "reading from the terminal in the background",
    TTOU 22 "writing to the terminal in the background",
    URG 23 "urgent data at a socket",
    XCPU 24 "limit of processor time exceeded",
    XFSZ 25 "limit of file size exceeded",
    VTALRM 26 "clock of time in user mode",
    PROF 27 "clock of time used",
    WINCH 28 "the terminal's size changed",
    IO 29 "input or output possible",
    PWR 30 "power failure",
    SYS 31 "bad system call",
}

impl Signal {
    /// The first real-time signal.
    pub const RTMIN: Self = Self(34);
    /// The last real-time signal.
    pub const RTMAX: Self = Self(64);

    /// Returns the signal with this number (1 to 31, 34 to 64), or `None` for any other number.
    pub const fn new(number: i32) -> Option<Self> {
        match number {
            1..=31 | 34..=64 => Some(Self(number as u8)),
            _ => None,
        }
    }

    /// Returns the signal `SIGRTMIN` + `n`, or `None` if the number exceeds `SIGRTMAX`.
    pub const fn realtime(n: u8) -> Option<Self> {
        if n <= Self::RTMAX.0 - Self::RTMIN.0 { Some(Self(Self::RTMIN.0 + n)) } else { None }
    }

    /// Returns the signal number.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// Returns `true` for a real-time signal. Real-time signals are queued, each with a value.
    pub const fn is_realtime(self) -> bool {
        self.0 >= Self::RTMIN.0
    }

    /// Returns the default action of the signal.
    pub const fn default_action(self) -> DefaultAction {
        match self {
            Self::CHLD | Self::URG | Self::WINCH => DefaultAction::Ignore,
            Self::CONT => DefaultAction::Continue,
            Self::STOP | Self::TSTP | Self::TTIN | Self::TTOU => DefaultAction::Stop,
            Self::QUIT | Self::ILL | Self::TRAP | Self::ABRT | Self::BUS => DefaultAction::Core,
            Self::FPE | Self::SEGV | Self::XCPU | Self::XFSZ | Self::SYS => DefaultAction::Core,
            _ => DefaultAction::Terminate,
        }
    }

    /// Returns an iterator over all signals, in ascending order.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=64).filter_map(Self::new)
    }
}

/// The effect of a signal that is neither caught nor ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultAction {
    /// The process terminates.
    Terminate,
    /// The process terminates with a core dump.
    Core,
    /// The process stops.
    Stop,
    /// A stopped process continues.
    Continue,
    /// The signal has no effect.
    Ignore,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => f.write_str(name),
            None if *self == Self::RTMIN => f.write_str("SIGRTMIN"),
            None => write!(f, "SIGRTMIN+{}", self.0 - Self::RTMIN.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error returned if a string does not name a signal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown signal `{0}`: expected a name (`USR1`, `SIGUSR1`, `RTMIN+2`) or a number \
     (1 to 31, 34 to 64)"
)]
pub struct ParseSignalError(String);

impl FromStr for Signal {
    type Err = ParseSignalError;

    /// Parses `USR1`, `SIGUSR1`, `RTMIN+2` or `10`, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, ParseSignalError> {
        let wrong = || ParseSignalError(text.to_owned());
        if let Ok(number) = text.parse() {
            return Self::new(number).ok_or_else(wrong);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some(behind) = name.strip_prefix("RTMIN") {
            let n = if behind.is_empty() {
                Some(0)
            } else {
                behind.strip_prefix('+').and_then(|n| n.parse().ok())
            };
            return n.and_then(Self::realtime).ok_or_else(wrong);
        }
        if name == "RTMAX" {
            return Ok(Self::RTMAX);
        }
        let found = Self::NAMES.iter().find(|(_, known)| &known[3..] == name);
        found.map(|(number, _)| Self(*number)).ok_or_else(wrong)
    }
}

/// A set of signals. Bit n−1 is signal n.
///
/// ```
/// use tontine_unix::{SigSet, Signal};
///
/// let set = SigSet::of(&[Signal::INT, Signal::USR1]);
/// assert!(set.contains(Signal::INT) && !set.contains(Signal::TERM));
/// assert_eq!(set.to_string(), "{SIGINT SIGUSR1}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SigSet(u64);

impl SigSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// The set with all 64 bits set, as by `sigfillset`. Bits 31 and 32 (numbers 32 and 33) are not
    /// signals.
    pub const ALL: Self = Self(u64::MAX);
    /// The signals that cannot be blocked: SIGKILL and SIGSTOP.
    pub const UNBLOCKABLE: Self = Self(Self::bit(Signal::KILL) | Self::bit(Signal::STOP));
    /// The signals that stop a process by default.
    pub const STOPS: Self = Self(
        Self::bit(Signal::STOP)
            | Self::bit(Signal::TSTP)
            | Self::bit(Signal::TTIN)
            | Self::bit(Signal::TTOU),
    );

    const fn bit(signal: Signal) -> u64 {
        1 << (signal.0 - 1)
    }

    /// Returns the set of these signals.
    pub const fn of(signals: &[Signal]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < signals.len() {
            bits |= Self::bit(signals[at]);
            at += 1;
        }
        Self(bits)
    }

    /// Creates a set from its bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits of the set.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns `true` if the set contains `signal`.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & Self::bit(signal) != 0
    }

    /// Returns `true` if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the set with `signal` added.
    #[must_use]
    pub const fn with(self, signal: Signal) -> Self {
        Self(self.0 | Self::bit(signal))
    }

    /// Returns the set with `signal` removed.
    #[must_use]
    pub const fn without(self, signal: Signal) -> Self {
        Self(self.0 & !Self::bit(signal))
    }

    /// Returns the signals that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the signals that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the signals that are in this set and not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the lowest signal of the set, or `None` if the set is empty.
    pub const fn first(self) -> Option<Signal> {
        if self.0 == 0 { None } else { Signal::new(self.0.trailing_zeros() as i32 + 1) }
    }

    /// Returns an iterator over the signals of the set, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Signal> {
        Signal::all().filter(move |signal| self.contains(*signal))
    }
}

impl FromIterator<Signal> for SigSet {
    fn from_iter<I: IntoIterator<Item = Signal>>(signals: I) -> Self {
        signals.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Display for SigSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("{all}");
        }
        let names: Vec<_> = self.iter().map(|signal| signal.to_string()).collect();
        write!(f, "{{{}}}", names.join(" "))
    }
}

impl fmt::Debug for SigSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

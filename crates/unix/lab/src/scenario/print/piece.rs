//! Displays signals, signal sets, durations and quoted texts.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use tontine_unix::{SigSet, Signal};

use crate::scenario::token::UNITS;

/// Displays a signal as scenarios write it, without `SIG`.
pub(in crate::scenario) struct SignalName(pub(in crate::scenario) Signal);

impl Display for SignalName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(SkipPrefix { rest: 3, f }, "{}", self.0)
    }
}

/// Skips the first bytes, which are ASCII.
struct SkipPrefix<'f, 'g> {
    rest: usize,
    f: &'f mut Formatter<'g>,
}

impl Write for SkipPrefix<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let skipped = self.rest.min(text.len());
        self.rest -= skipped;
        self.f.write_str(&text[skipped..])
    }
}

/// Displays a signal, or 0 for none.
pub(super) struct OrZero(pub(super) Option<Signal>);

impl Display for OrZero {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_char('0'),
            Some(signal) => SignalName(signal).fmt(f),
        }
    }
}

/// Displays a set of signals as an argument: a single signal needs no braces.
pub(super) struct Set(pub(super) SigSet);

impl Display for Set {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut signals = self.0.iter();
        match (signals.next(), signals.next()) {
            (Some(only), None) if self.0 != SigSet::ALL => SignalName(only).fmt(f),
            _ => Braced(self.0).fmt(f),
        }
    }
}

/// Displays a set of signals in braces.
pub(in crate::scenario) struct Braced(pub(in crate::scenario) SigSet);

impl Display for Braced {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == SigSet::ALL {
            return f.write_str("all");
        }
        f.write_char('{')?;
        for (index, signal) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            SignalName(signal).fmt(f)?;
        }
        f.write_char('}')
    }
}

/// Displays a duration in the largest unit that divides it.
pub(super) struct Time(pub(super) Duration);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let unit =
            UNITS.iter().rev().find(|(_, unit)| nanoseconds.is_multiple_of(u128::from(*unit)));
        let (name, unit) = unit.expect("1 ns divides it");
        write!(f, "{}{name}", nanoseconds / u128::from(*unit))
    }
}

/// Displays a text in quotes.
pub(super) struct Quoted<'t>(pub(super) &'t str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        escaped(f, self.0, false)?;
        f.write_char('"')
    }
}

/// Writes the inside of a quoted text. In a note, braces are doubled.
pub(super) fn escaped(f: &mut Formatter<'_>, text: &str, note: bool) -> fmt::Result {
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

//! A set of signals: [`Set`].

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

use super::Signal;

/// A set of signals: a bit each, as `/proc` prints them.
///
/// ```
/// use tontine::signal::{Set, Signal};
///
/// let set = Set::from([Signal::INT, Signal::TERM]).with(Signal::HUP);
/// assert!(set.contains(Signal::TERM));
/// assert_eq!(set.to_string(), "SIGHUP, SIGINT, SIGTERM");
/// ```
///
/// Source: `sigsetops(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Set(u64);

impl Set {
    /// A set without any.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The same, with one more.
    #[must_use]
    pub fn with(self, signal: Signal) -> Self {
        Self(self.0 | bit(signal))
    }

    /// Whether it has this one.
    pub fn contains(self, signal: Signal) -> bool {
        self.0 & bit(signal) != 0
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Its signals, by number.
    pub fn iter(self) -> impl Iterator<Item = Signal> {
        let all = (1..=super::number::MOST).filter_map(Signal::from_raw);
        all.filter(move |&signal| self.contains(signal))
    }

    /// Those that do not queue.
    pub(super) fn standard(self) -> Self {
        self.iter().filter(|signal| !signal.is_realtime()).collect()
    }

    /// Signal n in bit n − 1.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

impl From<Signal> for Set {
    fn from(signal: Signal) -> Self {
        Self(bit(signal))
    }
}

impl<const N: usize> From<[Signal; N]> for Set {
    fn from(signals: [Signal; N]) -> Self {
        signals.into_iter().collect()
    }
}

impl FromIterator<Signal> for Set {
    fn from_iter<I: IntoIterator<Item = Signal>>(signals: I) -> Self {
        signals.into_iter().fold(Self::new(), Self::with)
    }
}

impl BitOr for Set {
    type Output = Self;

    /// What is in either.
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Set {
    type Output = Self;

    /// What is in both.
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Set {
    type Output = Self;

    /// What is in this one and not in the other.
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, signal) in self.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{signal}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_what_their_bits_say() {
        let set = Set::from([Signal::HUP, Signal::TERM]);
        assert_eq!(set, Set::from_bits(0x4001));
        assert_eq!(set - Set::from(Signal::HUP), Set::from(Signal::TERM));
        assert_eq!(set & Set::from([Signal::HUP, Signal::INT]), Set::from(Signal::HUP));
        let last = Signal::from_raw(64).expect("the last one");
        assert_eq!((set | Set::from(last)).iter().count(), 3);
        assert_eq!(set.with(last).standard(), set);
        assert!(Set::new().is_empty() && Set::new().to_string().is_empty());
    }
}

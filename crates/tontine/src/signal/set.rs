//! A set of signals: [`SignalSet`].

use std::fmt;
use std::ops::{BitAnd, BitOr, Sub};

use super::Signal;

/// A set of signals, one bit for each.
///
/// A set prints as the names of its signals. `|` is the union of two sets, `&` is the intersection,
/// and `-` is the difference.
///
/// # Examples
/// ```
/// use tontine::signal::{Signal, SignalSet};
///
/// let set = SignalSet::from([Signal::INT, Signal::TERM]).with(Signal::HUP);
/// assert!(set.contains(Signal::TERM));
/// assert_eq!(set.to_string(), "SIGHUP, SIGINT, SIGTERM");
/// assert_eq!(set - SignalSet::from(Signal::HUP), [Signal::INT, Signal::TERM].into());
/// ```
///
/// Source: `sigsetops(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SignalSet(u64);

impl SignalSet {
    /// Returns the empty set.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Returns this set with `signal` added.
    #[must_use]
    pub fn with(self, signal: Signal) -> Self {
        Self(self.0 | bit(signal))
    }

    /// Returns `true` if the set contains `signal`.
    pub fn contains(self, signal: Signal) -> bool {
        self.0 & bit(signal) != 0
    }

    /// Returns `true` if the set contains no signal.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns an iterator over the signals of the set, in the order of their numbers.
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::{Signal, SignalSet};
    ///
    /// let set = SignalSet::from([Signal::TERM, Signal::HUP]);
    /// assert!(set.iter().eq([Signal::HUP, Signal::TERM]));
    /// ```
    pub fn iter(self) -> impl Iterator<Item = Signal> {
        let all = (1..=super::number::MAX_SIGNAL).filter_map(Signal::from_raw);
        all.filter(move |&signal| self.contains(signal))
    }

    /// Returns the standard signals of the set, which do not queue.
    pub(super) fn standard(self) -> Self {
        self.iter().filter(|signal| !signal.is_realtime()).collect()
    }

    /// Returns the set that contains signal n for each bit n − 1, which is the form of `/proc`.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

impl From<Signal> for SignalSet {
    fn from(signal: Signal) -> Self {
        Self(bit(signal))
    }
}

impl<const N: usize> From<[Signal; N]> for SignalSet {
    fn from(signals: [Signal; N]) -> Self {
        signals.into_iter().collect()
    }
}

impl FromIterator<Signal> for SignalSet {
    fn from_iter<I: IntoIterator<Item = Signal>>(signals: I) -> Self {
        signals.into_iter().fold(Self::new(), Self::with)
    }
}

impl BitOr for SignalSet {
    type Output = Self;

    /// Returns the signals that either set contains.
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for SignalSet {
    type Output = Self;

    /// Returns the signals that both sets contain.
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for SignalSet {
    type Output = Self;

    /// Returns the signals of this set that `other` lacks.
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for SignalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, signal) in self.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{signal}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SignalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operators_match_bitwise_operators() {
        let set = SignalSet::from([Signal::HUP, Signal::TERM]);
        assert_eq!(set, SignalSet::from_bits(0x4001));
        assert_eq!(set - SignalSet::from(Signal::HUP), SignalSet::from(Signal::TERM));
        assert_eq!(set & SignalSet::from([Signal::HUP, Signal::INT]), SignalSet::from(Signal::HUP));
        let last = Signal::from_raw(64).expect("the last one");
        assert_eq!((set | SignalSet::from(last)).iter().count(), 3);
        assert_eq!(set.with(last).standard(), set);
        assert!(SignalSet::new().is_empty() && SignalSet::new().to_string().is_empty());
    }
}

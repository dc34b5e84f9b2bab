//! Signals that were generated and not yet delivered: [`Pending`].
//!
//! A standard signal that is pending already is merged with what comes; a real-time one queues. What is
//! queued beyond the limit of the user is the caller's to refuse.

use crate::action::SignalInfo;
use crate::signal::{SigSet, Signal};

/// The pending signals of a process or of a thread.
#[derive(Debug, Default)]
pub(super) struct Pending {
    set: SigSet,
    /// In the order in which they came.
    queue: Vec<SignalInfo>,
}

/// What became of a signal that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// It is one more.
    Queued,
    /// It was pending already.
    Merged,
}

impl Pending {
    /// Which signals are pending.
    pub(super) fn set(&self) -> SigSet {
        self.set
    }

    /// Adds a signal.
    pub(super) fn add(&mut self, info: SignalInfo) -> Added {
        if !info.signal.is_realtime() && self.set.contains(info.signal) {
            return Added::Merged;
        }
        self.set = self.set.with(info.signal);
        self.queue.push(info);
        Added::Queued
    }

    /// Takes the signal of `wanted` that comes first: faults of the thread itself before all
    /// others, then the lowest number, then the one that waits longest.
    pub(super) fn take(&mut self, wanted: SigSet) -> Option<SignalInfo> {
        let candidates = self.set.intersection(wanted);
        let faults = candidates.intersection(crate::process::FAULTS);
        let signal = faults.first().or_else(|| candidates.first())?;
        let at = self.queue.iter().position(|info| info.signal == signal)?;
        let info = self.queue.remove(at);
        if !signal.is_realtime() || !self.queue.iter().any(|info| info.signal == signal) {
            self.set = self.set.without(signal);
        }
        Some(info)
    }

    /// Throws signals away, and says how many.
    pub(super) fn discard(&mut self, signals: SigSet) -> usize {
        if self.set.intersection(signals).is_empty() {
            return 0;
        }
        let before = self.queue.len();
        self.queue.retain(|info| !signals.contains(info.signal));
        self.set = self.set.difference(signals);
        before - self.queue.len()
    }

    /// How many are queued.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_value(signal: Signal, value: i32) -> SignalInfo {
        SignalInfo { value, ..SignalInfo::kernel(signal) }
    }

    #[test]
    fn a_standard_signal_merges_and_keeps_what_came_first() {
        let mut pending = Pending::default();
        assert_eq!(pending.add(with_value(Signal::USR1, 1)), Added::Queued);
        assert_eq!(pending.add(with_value(Signal::USR1, 2)), Added::Merged);
        assert_eq!(pending.take(SigSet::ALL).map(|info| info.value), Some(1));
        assert_eq!(pending.take(SigSet::ALL), None);
    }

    #[test]
    fn real_time_signals_queue_in_order_and_behind_lower_numbers() {
        let (low, high) = (Signal::RTMIN, Signal::RTMAX);
        let mut pending = Pending::default();
        for (signal, value) in [(high, 1), (low, 2), (low, 3), (Signal::USR2, 4)] {
            pending.add(with_value(signal, value));
        }
        let order: Vec<_> =
            std::iter::from_fn(|| pending.take(SigSet::ALL)).map(|info| info.value).collect();
        assert_eq!(order, [4, 2, 3, 1]);
        assert!(pending.set().is_empty());
    }

    #[test]
    fn a_fault_comes_before_lower_numbers() {
        let mut pending = Pending::default();
        pending.add(SignalInfo::kernel(Signal::HUP));
        pending.add(SignalInfo::kernel(Signal::SEGV));
        assert_eq!(pending.take(SigSet::ALL).map(|info| info.signal), Some(Signal::SEGV));
    }

    #[test]
    fn what_is_discarded_is_gone_and_the_rest_is_not() {
        let mut pending = Pending::default();
        pending.add(SignalInfo::kernel(Signal::TSTP));
        pending.add(SignalInfo::kernel(Signal::TTIN));
        pending.add(SignalInfo::kernel(Signal::USR1));
        assert_eq!(pending.discard(SigSet::STOPS), 2);
        assert_eq!(pending.set(), SigSet::of(&[Signal::USR1]));
        assert_eq!(pending.take(SigSet::STOPS), None);
    }
}

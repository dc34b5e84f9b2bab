//! Signals that were generated but not yet delivered (§2.1.1): [`Pending`], of a process or of a
//! thread (§3.1).
//!
//! The caller decides whether a new signal is merged with a pending one, and which signals are
//! queued in excess of the user's limit.

use smallvec::SmallVec;
use tontine_unix::{SigCode, SigInfo, SigSet, Signal};

/// The pending signals of a process or of a thread.
#[derive(Default)]
pub(super) struct Pending {
    set: SigSet,
    /// The queue, in the order of arrival. A single signal needs no allocation.
    queue: SmallVec<[SigInfo; 1]>,
}

impl Pending {
    /// Returns the set of pending signals.
    pub(super) fn set(&self) -> SigSet {
        self.set
    }

    /// Adds a signal.
    pub(super) fn add(&mut self, info: SigInfo) {
        self.set = self.set.with(info.signal);
        self.queue.push(info);
    }

    /// Adds a signal without its information, because there is no space for it.
    pub(super) fn add_without_info(&mut self, signal: Signal) {
        self.set = self.set.with(signal);
    }

    /// Takes the first signal of `wanted`: SIGKILL and then faults before all others, then the
    /// lowest number, then the oldest. Also returns whether it was queued.
    pub(super) fn take(&mut self, wanted: SigSet) -> Option<(SigInfo, bool)> {
        let candidates = self.set.intersection(wanted);
        let lowest = candidates.first()?;
        let kill = candidates.intersection(SigSet::of(&[Signal::KILL])).first();
        let faults = candidates.intersection(tontine_unix::FAULTS);
        let signal = kill.or(faults.first()).unwrap_or(lowest);
        let of_it = |info: &SigInfo| info.signal == signal;
        let first = self.queue.iter().position(of_it);
        let info = first.map(|at| self.queue.remove(at));
        if !self.queue.iter().any(of_it) {
            self.set = self.set.without(signal);
        }
        let lost = SigInfo { code: SigCode::User, ..SigInfo::kernel(signal) };
        Some((info.unwrap_or(lost), info.is_some()))
    }

    /// Discards signals. Returns the number of discarded signals that were queued.
    pub(super) fn discard(&mut self, signals: SigSet) -> usize {
        let before = self.queue.len();
        self.queue.retain(|info| !signals.contains(info.signal));
        self.set = self.set.difference(signals);
        before - self.queue.len()
    }

    /// Returns the number of queued signals.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_value(signal: Signal, value: i32) -> SigInfo {
        SigInfo { value, ..SigInfo::kernel(signal) }
    }

    #[test]
    fn real_time_signals_queue_in_order_and_behind_lower_numbers() {
        let (low, high) = (Signal::RTMIN, Signal::RTMAX);
        let mut pending = Pending::default();
        for (signal, value) in [(high, 1), (low, 2), (low, 3), (Signal::USR2, 4)] {
            pending.add(with_value(signal, value));
        }
        let order: Vec<_> =
            std::iter::from_fn(|| pending.take(SigSet::ALL)).map(|(info, _)| info.value).collect();
        assert_eq!(order, [4, 2, 3, 1]);
        assert!(pending.set().is_empty());
    }

    #[test]
    fn pending_fault_precedes_lower_numbers() {
        let mut pending = Pending::default();
        pending.add(SigInfo::kernel(Signal::HUP));
        pending.add(SigInfo::kernel(Signal::SEGV));
        assert_eq!(pending.take(SigSet::ALL).map(|(info, _)| info.signal), Some(Signal::SEGV));
    }

    #[test]
    fn discard_removes_only_given_signals() {
        let mut pending = Pending::default();
        pending.add(SigInfo::kernel(Signal::TSTP));
        pending.add(SigInfo::kernel(Signal::TTIN));
        pending.add(SigInfo::kernel(Signal::USR1));
        assert_eq!(pending.discard(SigSet::STOPS), 2);
        assert_eq!(pending.set(), SigSet::of(&[Signal::USR1]));
        assert_eq!(pending.take(SigSet::STOPS), None);
    }
}

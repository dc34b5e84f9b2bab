//! Comparison of expected messages with received messages: [`ExpectedMessages`] and
//! [`KillVerdict`].
//!
//! A message is *acknowledged* when the `send` that carried it has returned. The message that the
//! victim was sending or receiving when it was killed may or may not have arrived, but must not
//! have arrived in part.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::message::MessageCheck;

/// The consequence of one kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KillVerdict {
    /// All other processes made progress.
    Passed,
    /// A survivor made no progress within the deadline, or a later process could not begin.
    Wedged,
    /// A message arrived that no process sent: half of one, or a mixture of two. For a heap: a live
    /// member's block was changed, freed or allocated again, or the heap is damaged.
    Torn,
    /// An acknowledged message was lost, arrived twice, or arrived before one sent earlier. For a
    /// heap: memory belongs to no member, and no member can allocate it.
    Lost,
}

/// A verdict and the observation that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) verdict: KillVerdict,
    pub(crate) detail: String,
}

/// Result of one kill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TrialResult {
    /// The kill took place at its point, with this verdict.
    Judged(Judged),
    /// No verdict: the run took another path than its recording, or the machine starved it.
    Unexplored(String),
}

impl TrialResult {
    pub(crate) fn wedged(detail: impl Into<String>) -> Self {
        Self::Judged(Judged::wedged(detail))
    }
}

impl Judged {
    pub(crate) fn wedged(detail: impl Into<String>) -> Self {
        Self { verdict: KillVerdict::Wedged, detail: detail.into() }
    }
}

/// Messages that must arrive, and messages that may.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExpectedMessages {
    /// Acknowledged messages that no live process has received.
    pub(crate) must: BTreeSet<u32>,
    /// Messages of the operation under test, each of which may or may not arrive.
    pub(crate) may: BTreeSet<u32>,
    /// Messages that survivors sent after the kill.
    pub(crate) fresh: BTreeSet<u32>,
}

impl ExpectedMessages {
    /// Records that a message of the operation under test arrived after all, or was reported as
    /// sent.
    pub(crate) fn acknowledge(&mut self, number: u32) {
        self.may.remove(&number);
        self.must.insert(number);
    }

    /// Compares the messages that arrived with the expected ones.
    pub(crate) fn judge(&self, seen: &[MessageCheck]) -> Judged {
        let judged = |verdict, detail| Judged { verdict, detail };
        let mut arrived = BTreeSet::new();
        for one in seen {
            let MessageCheck::Whole(number) = *one else {
                return judged(
                    KillVerdict::Torn,
                    "a message arrived that was never sent".to_owned(),
                );
            };
            let known = [&self.must, &self.may, &self.fresh];
            if !known.iter().any(|messages| messages.contains(&number)) {
                let text = format!("message {number} arrived again, although it had been received");
                return judged(KillVerdict::Lost, text);
            }
            if !arrived.insert(number) {
                return judged(KillVerdict::Lost, format!("message {number} arrived twice"));
            }
        }
        if let Some(fresh) = self.fresh.difference(&arrived).next() {
            return Judged::wedged(format!("message {fresh}, sent after the kill, did not arrive"));
        }
        match self.must.difference(&arrived).next() {
            Some(lost) => {
                let text = format!("message {lost}, whose send had returned, did not arrive");
                judged(KillVerdict::Lost, text)
            }
            None => judged(KillVerdict::Passed, String::new()),
        }
    }

    /// Like [`Self::judge`], but also requires that messages arrive in the order of their numbers.
    pub(crate) fn judge_in_order(&self, seen: &[MessageCheck]) -> Judged {
        let judged = self.judge(seen);
        if judged.verdict == KillVerdict::Passed && !seen.is_sorted() {
            let detail = format!("messages arrived out of order: {seen:?}");
            return Judged { verdict: KillVerdict::Lost, detail };
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_fault_yields_matching_verdict() {
        let ledger = ExpectedMessages { must: [1].into(), may: [2].into(), fresh: [3].into() };
        let of = |seen: &[MessageCheck]| ledger.judge(seen).verdict;
        let whole = |numbers: &[u32]| -> Vec<MessageCheck> {
            numbers.iter().map(|number| MessageCheck::Whole(*number)).collect()
        };
        assert_eq!(of(&whole(&[1, 3])), KillVerdict::Passed);
        assert_eq!(of(&whole(&[1, 2, 3])), KillVerdict::Passed);
        assert_eq!(of(&whole(&[1, 2])), KillVerdict::Wedged, "the fresh one is missing");
        assert_eq!(of(&whole(&[2, 3])), KillVerdict::Lost, "an acknowledged one is missing");
        assert_eq!(of(&whole(&[1, 1, 3])), KillVerdict::Lost, "twice");
        assert_eq!(of(&whole(&[0, 1, 3])), KillVerdict::Lost, "received long ago");
        assert_eq!(
            of(&[MessageCheck::Whole(1), MessageCheck::Torn, MessageCheck::Whole(3)]),
            KillVerdict::Torn
        );
        let in_order = |numbers: &[u32]| ledger.judge_in_order(&whole(numbers)).verdict;
        assert_eq!(of(&whole(&[1, 3, 2])), KillVerdict::Passed);
        assert_eq!(in_order(&[1, 3, 2]), KillVerdict::Lost, "in another order");
        assert_eq!(in_order(&[1, 2, 3]), KillVerdict::Passed);
    }
}

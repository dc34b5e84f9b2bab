//! The label of a message: [`Label`], stored in the message's first word and again in its last.

use crate::prelude::*;

pub(super) const BYTES: usize = size_of::<u64>();

/// Bit that is set in a sender's last message.
const LAST: u64 = 1 << 63;
/// Bit position of the sender's number, below [`LAST`].
const SENDER_AT: u32 = 48;
const NUMBER: u64 = (1 << SENDER_AT) - 1;

/// The sender of a message, the message's number among that sender's messages, and a flag for the
/// last message.
///
/// ```text
/// 63      62 … 48     47 … 0
/// last    sender      number
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) sender: usize,
    pub(super) number: u64,
    pub(super) last: bool,
}

impl Label {
    #[inline(always)]
    fn word(self) -> u64 {
        let last = if self.last { LAST } else { 0 };
        last | (self.sender as u64) << SENDER_AT | self.number & NUMBER
    }

    #[inline(always)]
    fn of(word: u64) -> Self {
        Self {
            sender: ((word & !LAST) >> SENDER_AT) as usize,
            number: word & NUMBER,
            last: word & LAST != 0,
        }
    }

    /// Writes the label into the first and the last word of a message, which may be the same word.
    #[inline(always)]
    pub(super) fn write(self, message: &mut [u8]) {
        let word = self.word().to_ne_bytes();
        let end = message.len() - BYTES;
        message[..BYTES].copy_from_slice(&word);
        message[end..].copy_from_slice(&word);
    }

    /// Reads the label of a message of `size` bytes. Fails if the message has a different size or
    /// is torn.
    #[inline(always)]
    pub(super) fn read(message: &[u8], size: usize) -> Result<Self> {
        let (Some(first), Some(last)) = (message.first_chunk(), message.last_chunk()) else {
            return Err(torn(message.len(), size));
        };
        let (first, last) = (u64::from_ne_bytes(*first), u64::from_ne_bytes(*last));
        if message.len() != size || first != last {
            return Err(torn(message.len(), size));
        }
        Ok(Self::of(first))
    }
}

#[cold]
fn torn(found: usize, size: usize) -> MeasureError {
    MeasureError::fail(format!(
        "a message arrived torn: expected {size} bytes with one label at both ends, found {found} \
         bytes or two labels"
    ))
}

/// The messages received from each sender so far.
#[derive(Debug)]
pub(super) struct SenderTotals {
    /// The next expected number of each sender.
    next: Vec<u64>,
    open: usize,
}

impl SenderTotals {
    pub(super) fn new(senders: usize) -> Self {
        Self { next: vec![0; senders], open: senders }
    }

    /// Records a message. Fails if an earlier message is missing, or the message is a duplicate.
    #[inline(always)]
    pub(super) fn enter(&mut self, label: Label) -> Result<()> {
        match self.next.get_mut(label.sender) {
            Some(next) if *next == label.number => {
                *next += 1;
                self.open -= usize::from(label.last);
                Ok(())
            }
            expected => Err(gap(label, expected.copied())),
        }
    }

    /// Returns `true` if a sender's last message has not yet arrived.
    pub(super) fn is_open(&self) -> bool {
        self.open > 0
    }
}

#[cold]
fn gap(found: Label, expected: Option<u64>) -> MeasureError {
    let Label { sender, number, .. } = found;
    MeasureError::fail(match expected {
        Some(expected) if expected < number => {
            format!("lost messages {expected} to {} of sender {sender}", number - 1)
        }
        Some(_) => format!("message {number} of sender {sender} arrived twice"),
        None => format!("a message of sender {sender}, which was not started"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_round_trips_at_any_length_and_detects_tearing() {
        let label = Label { sender: 3, number: 1 << 40, last: true };
        for size in [8, 16, 64] {
            let mut message = vec![0; size];
            label.write(&mut message);
            assert_eq!(Label::read(&message, size), Ok(label));
            assert!(Label::read(&message, size + 8).is_err(), "another size");
        }
        let mut message = [0; 16];
        label.write(&mut message);
        message[15] ^= 1;
        assert!(Label::read(&message, 16).is_err());
        assert!(Label::read(&message[..4], 4).is_err());
    }

    #[test]
    fn totals_name_gaps_duplicates_and_unknown_senders() {
        let from = |sender, number| Label { sender, number, last: false };
        let mut totals = SenderTotals::new(2);
        totals.enter(from(1, 0)).expect("the first of the second");
        totals.enter(from(0, 0)).expect("the first of the first");
        let why = |found: Result<()>| found.expect_err("refused").to_string();
        assert!(why(totals.enter(from(0, 4))).contains("lost messages 1 to 3 of sender 0"));
        assert!(why(totals.enter(from(1, 0))).contains("arrived twice"));
        assert!(why(totals.enter(from(2, 0))).contains("was not started"));
        totals.enter(Label { last: true, ..from(1, 1) }).expect("its last");
        assert!(totals.is_open());
        totals.enter(Label { last: true, ..from(0, 1) }).expect("the other's last");
        assert!(!totals.is_open());
    }
}

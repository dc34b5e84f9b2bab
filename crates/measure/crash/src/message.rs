//! Numbered messages, every byte of which can be checked: [`TrialMessage`], [`MessageCheck`].
//!
//! A message consists of eight words, each derived from the number. A message in which some words
//! are old, zero or from another message is detected as *torn*. Boost's worker creates the same
//! messages.

use std::fmt;
use std::str::FromStr;

pub const LENGTH: usize = tontine_mechanisms::driver::NAMED_BYTES;

pub type TrialMessage = [u8; LENGTH];

const WORD: usize = size_of::<u64>();

/// Factor between consecutive words: odd, so that all words differ and none is zero.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

pub fn numbered(number: u32) -> TrialMessage {
    let mut message = [0; LENGTH];
    let mut word = u64::from(number) + 1;
    for place in message.chunks_exact_mut(WORD) {
        place.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(FACTOR);
    }
    message
}

/// Content of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageCheck {
    /// The complete message with this number.
    Whole(u32),
    /// Bytes that no process ever sent.
    Torn,
}

impl MessageCheck {
    /// Checks every byte of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let first = bytes.first_chunk::<WORD>().map(|first| u64::from_le_bytes(*first));
        let number = first.and_then(|first| u32::try_from(first.checked_sub(1)?).ok());
        match number {
            Some(number) if numbered(number) == bytes => Self::Whole(number),
            _ => Self::Torn,
        }
    }

    /// Checks consecutive messages in `bytes`, which must all be equal.
    pub fn of_all(bytes: &[u8]) -> Self {
        let first = Self::of(&bytes[..LENGTH.min(bytes.len())]);
        let alike = |one: &[u8]| one == &bytes[..LENGTH];
        if bytes.chunks(LENGTH).all(alike) { first } else { Self::Torn }
    }
}

/// Fills `block` with repetitions of the message with this number.
pub fn fill(block: &mut [u8], number: u32) {
    let message = numbered(number);
    for place in block.chunks_mut(LENGTH) {
        place.copy_from_slice(&message[..place.len()]);
    }
}

impl fmt::Display for MessageCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Torn => f.write_str("torn"),
        }
    }
}

impl FromStr for MessageCheck {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "torn" { Ok(Self::Torn) } else { text.parse().map(Self::Whole) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_word_makes_message_torn() {
        for number in [0, 1, 77, u32::MAX] {
            let whole = numbered(number);
            assert_eq!(MessageCheck::of(&whole), MessageCheck::Whole(number));
            assert_eq!(MessageCheck::of(&whole[..LENGTH - 1]), MessageCheck::Torn);
            let other = numbered(number ^ 1);
            for at in (0..LENGTH).step_by(WORD) {
                let mut torn = whole;
                torn[at..at + WORD].copy_from_slice(&other[at..at + WORD]);
                assert_eq!(
                    MessageCheck::of(&torn),
                    MessageCheck::Torn,
                    "word at {at} is another's"
                );
                torn[at..at + WORD].fill(0);
                assert_eq!(MessageCheck::of(&torn), MessageCheck::Torn, "word at {at} is missing");
            }
        }
        assert_eq!(MessageCheck::of(&[]), MessageCheck::Torn);
        let mut block = [0; 4 * LENGTH];
        fill(&mut block, 7);
        assert_eq!(MessageCheck::of_all(&block), MessageCheck::Whole(7));
        block[200] ^= 1;
        assert_eq!(MessageCheck::of_all(&block), MessageCheck::Torn);
        assert_eq!(MessageCheck::of_all(&[]), MessageCheck::Torn);
    }
}

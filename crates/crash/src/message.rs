//! Numbered messages, of which every part can be checked: [`TrialMessage`], [`Seen`].
//!
//! A message is eight words, each derived from the number, so that a message of which some words
//! are old, zero or another message's is *torn* and shows it. Boost's actor makes the
//! same ones.

use std::fmt;
use std::str::FromStr;

/// Bytes of a message.
pub const LENGTH: usize = tontine_mechanisms::driver::NAMED_BYTES;

/// A message of a trial.
pub type TrialMessage = [u8; LENGTH];

const WORD: usize = size_of::<u64>();

/// Each word is the one before it times this odd number, so all differ and none is zero.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The message with this number.
pub fn numbered(number: u32) -> TrialMessage {
    let mut message = [0; LENGTH];
    let mut word = u64::from(number) + 1;
    for place in message.chunks_exact_mut(WORD) {
        place.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(FACTOR);
    }
    message
}

/// What a receiver got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// The whole of the message with this number.
    Whole(u32),
    /// Something that nobody ever sent.
    Torn,
}

impl Seen {
    /// Checks every byte.
    pub fn of(bytes: &[u8]) -> Self {
        let first = bytes.first_chunk::<WORD>().map(|first| u64::from_le_bytes(*first));
        let number = first.and_then(|first| u32::try_from(first.checked_sub(1)?).ok());
        match number {
            Some(number) if numbered(number) == bytes => Self::Whole(number),
            _ => Self::Torn,
        }
    }

    /// The same of many, one behind the other, which have to be alike.
    pub fn of_all(bytes: &[u8]) -> Self {
        let first = Self::of(&bytes[..LENGTH.min(bytes.len())]);
        let alike = |one: &[u8]| one == &bytes[..LENGTH];
        if bytes.chunks(LENGTH).all(alike) { first } else { Self::Torn }
    }
}

/// Fills a block with the message of this number, again and again.
pub fn fill(block: &mut [u8], number: u32) {
    let message = numbered(number);
    for place in block.chunks_mut(LENGTH) {
        place.copy_from_slice(&message[..place.len()]);
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Torn => f.write_str("torn"),
        }
    }
}

impl FromStr for Seen {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "torn" { Ok(Self::Torn) } else { text.parse().map(Self::Whole) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_message_is_known_and_any_changed_word_shows() {
        for number in [0, 1, 77, u32::MAX] {
            let whole = numbered(number);
            assert_eq!(Seen::of(&whole), Seen::Whole(number));
            assert_eq!(Seen::of(&whole[..LENGTH - 1]), Seen::Torn);
            let other = numbered(number ^ 1);
            for at in (0..LENGTH).step_by(WORD) {
                let mut torn = whole;
                torn[at..at + WORD].copy_from_slice(&other[at..at + WORD]);
                assert_eq!(Seen::of(&torn), Seen::Torn, "word at {at} is another's");
                torn[at..at + WORD].fill(0);
                assert_eq!(Seen::of(&torn), Seen::Torn, "word at {at} is missing");
            }
        }
        assert_eq!(Seen::of(&[]), Seen::Torn);
        let mut block = [0; 4 * LENGTH];
        fill(&mut block, 7);
        assert_eq!(Seen::of_all(&block), Seen::Whole(7));
        block[200] ^= 1;
        assert_eq!(Seen::of_all(&block), Seen::Torn);
        assert_eq!(Seen::of_all(&[]), Seen::Torn);
    }
}

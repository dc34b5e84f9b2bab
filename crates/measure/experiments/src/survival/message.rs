//! The messages: [`NumberedMessage`], 32 bytes that show whether the message is whole.

use tontine_mechanisms::about::Carries;

pub(super) const BYTES: usize = 32;

/// The bytes of a message: its number and the number's complement, twice.
pub(super) type NumberedMessage = [u8; BYTES];

/// The contents of received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceivedContents {
    Whole(u64),
    /// A message whose bytes were never sent together.
    Torn,
    /// A message without contents: the mechanism reports messages but carries no bytes.
    Bare,
}

#[inline(always)]
pub(super) fn message(number: u64) -> NumberedMessage {
    let mut bytes = [0; BYTES];
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = if at % 2 == 0 { number } else { !number };
        word.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// Interprets received `bytes`, as far as the mechanism carries contents.
#[inline(always)]
pub(super) fn claim(bytes: &[u8], carries: Carries) -> ReceivedContents {
    if carries == Carries::Nothing {
        return ReceivedContents::Bare;
    }
    let Some(first) = bytes.first_chunk() else { return ReceivedContents::Torn };
    let number = u64::from_ne_bytes(*first);
    let whole = carries == Carries::Word || bytes == message(number);
    if whole { ReceivedContents::Whole(number) } else { ReceivedContents::Torn }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> ReceivedContents {
        claim(bytes, Carries::Messages)
    }

    #[test]
    fn cut_or_mixed_messages_are_torn() {
        let (one, two) = (message(41), message(42));
        assert_eq!(
            (whole(&one), whole(&two)),
            (ReceivedContents::Whole(41), ReceivedContents::Whole(42))
        );
        for cut in 0..BYTES {
            assert_eq!(whole(&one[..cut]), ReceivedContents::Torn, "cut at {cut}");
        }
        for cut in (8..BYTES).step_by(8) {
            let mixed = [&two[..cut], &one[cut..]].concat();
            assert_eq!(whole(&mixed), ReceivedContents::Torn, "mixed at {cut}");
        }
        assert_eq!(whole(&[0; BYTES]), ReceivedContents::Torn, "memory that was never written");
    }
}

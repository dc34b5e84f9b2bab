//! Numbered messages with a checksum over every byte: [`MessageHeader`].

use super::common::Random;

/// Length in bytes of a message without a body: sender, incarnation, number, checksum.
pub(super) const MIN_LEN: usize = 32;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageHeader {
    pub(super) sender: u64,
    pub(super) incarnation: u64,
    pub(super) number: u64,
}

impl MessageHeader {
    /// Returns a message of `len` bytes, at least [`MIN_LEN`].
    pub(super) fn encode(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(MIN_LEN)];
        let mut random = Random(self.number << 20 ^ self.sender ^ 0x5bd1_e995);
        for piece in bytes[MIN_LEN..].chunks_mut(8) {
            piece.copy_from_slice(&random.next().to_le_bytes()[..piece.len()]);
        }
        for (at, word) in [self.sender, self.incarnation, self.number].into_iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes[24..32].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Checks every byte and returns the header.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < MIN_LEN {
            return Err(format!("expected {MIN_LEN} bytes or more, found {}", bytes.len()));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let found = Self { sender: word(0), incarnation: word(8), number: word(16) };
        let (expected, sum) = (checksum(bytes), word(24));
        if sum != expected {
            let len = bytes.len();
            return Err(format!(
                "expected checksum {expected:#x}, found {sum:#x}: {found:?} of {len} bytes is torn"
            ));
        }
        Ok(found)
    }
}

/// Returns the checksum of the length and all bytes except the checksum itself.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = bytes.len() as u64;
    for (at, piece) in bytes.chunks(8).enumerate().filter(|(at, _)| *at != 3) {
        let mut word = [0; 8];
        word[..piece.len()].copy_from_slice(piece);
        sum = (sum ^ u64::from_le_bytes(word) ^ at as u64).wrapping_mul(0x0100_0000_01b3);
        sum ^= sum >> 29;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_detects_one_changed_byte_as_torn() {
        let message = MessageHeader { sender: 3, incarnation: 1, number: 77 };
        for len in [0, 33, 40, 100] {
            let bytes = message.encode(len);
            assert_eq!(MessageHeader::decode(&bytes), Ok(message));
            for at in 0..bytes.len() {
                let mut torn = bytes.clone();
                torn[at] ^= 1;
                assert!(MessageHeader::decode(&torn).is_err(), "byte {at} of {len}");
            }
            assert!(MessageHeader::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }
}

//! The header word of a record: [`RecordHeader`].
//!
//! ```text
//!  63            40 39    32 31                             0
//! +----------------+--------+--------------------------------+
//! |       0        |  kind  |             length             |
//! +----------------+--------+--------------------------------+
//! ```
//!
//! In a stamp, the bits outside of `kind` are the stamp: its low 32 bits, and above `kind` the
//! other 24.

/// Length in bytes of a header, and alignment of every record.
pub(crate) const HEADER: usize = 8;

/// Header of a record that is not published yet.
pub(crate) const NOTHING: u64 = 0;

const KIND_SHIFT: u32 = 32;
const LENGTH_MASK: u64 = 0xffff_ffff;
const MESSAGE: u64 = 1;
const PADDING: u64 = 2;
const NEXT: u64 = 3;
const STAMP: u64 = 4;
const KIND_MASK: u64 = 0xff;

/// Number of bits of a stamp.
pub(crate) const STAMP_BITS: u32 = 56;

/// A decoded header word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordHeader {
    /// A message of this many bytes follows.
    Message(usize),
    /// The receiver skips this many bytes after the header, up to the end of the ring.
    Padding(usize),
    /// The lane continues in the next chunk, whose size is two to this power bytes.
    Next(u32),
    /// The message that follows was sent at this time: the low [`STAMP_BITS`] bits of the clock.
    Stamp(u64),
}

impl RecordHeader {
    /// Encodes the header.
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        let (kind, length) = match self {
            Self::Message(length) => (MESSAGE, length as u64),
            Self::Padding(length) => (PADDING, length as u64),
            Self::Next(log2) => (NEXT, log2 as u64),
            Self::Stamp(time) => {
                return time >> 32 << 40 | STAMP << KIND_SHIFT | time & LENGTH_MASK;
            }
        };
        kind << KIND_SHIFT | length
    }

    /// Returns the length if a word from a peer, an untrusted value, is the header of a message.
    #[inline(always)]
    pub(crate) const fn message(word: u64) -> Option<usize> {
        if word >> KIND_SHIFT == MESSAGE { Some((word & LENGTH_MASK) as usize) } else { None }
    }

    /// Returns the stamp if a word from a peer, an untrusted value, is one.
    #[inline(always)]
    pub(crate) const fn stamp(word: u64) -> Option<u64> {
        let is_stamp = word >> KIND_SHIFT & KIND_MASK == STAMP;
        if is_stamp { Some(word >> 40 << 32 | word & LENGTH_MASK) } else { None }
    }

    /// Decodes a word from a peer: an untrusted value other than [`NOTHING`]. Returns `None` if no
    /// honest peer writes this value.
    #[inline(always)]
    pub(crate) const fn claimed(word: u64) -> Option<Self> {
        let length = word & LENGTH_MASK;
        match word >> KIND_SHIFT {
            MESSAGE => Some(Self::Message(length as usize)),
            PADDING => Some(Self::Padding(length as usize)),
            NEXT => Some(Self::Next(length as u32)),
            _ => match Self::stamp(word) {
                Some(stamp) => Some(Self::Stamp(stamp)),
                None => None,
            },
        }
    }
}

/// Returns the time from a stamp to `time`, which is later. `None` if it is not later: half of the
/// range of stamps, 139 days at 3 GHz, is the past.
#[inline(always)]
pub(crate) const fn stamp_age(time: u64, stamp: u64) -> Option<u64> {
    let age = time.wrapping_sub(stamp) & ((1 << STAMP_BITS) - 1);
    if age.wrapping_sub(1) < (1 << (STAMP_BITS - 1)) - 1 { Some(age) } else { None }
}

/// Returns the size in bytes of the record of a message of `length` bytes.
#[inline(always)]
pub(crate) const fn size_of_message(length: usize) -> usize {
    // The header and the payload, rounded up.
    (length + (2 * HEADER - 1)) & !(HEADER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_word_decodes_to_encoded_value() {
        let all = [
            RecordHeader::Message(0),
            RecordHeader::Message(u32::MAX as usize),
            RecordHeader::Padding(16),
            RecordHeader::Next(30),
            RecordHeader::Stamp(0),
            RecordHeader::Stamp((1 << STAMP_BITS) - 1),
            RecordHeader::Stamp(0x12_3456_789a_bcde),
        ];
        for header in all {
            assert_ne!(header.word(), NOTHING);
            assert_eq!(RecordHeader::claimed(header.word()), Some(header));
        }
    }

    #[test]
    fn invalid_header_word_is_refused() {
        for word in [5 << 32, 1 << 40 | 1 << 32, u64::MAX, 1 << 63, 7] {
            assert_eq!(RecordHeader::claimed(word), None, "{word:#x}");
        }
    }
}

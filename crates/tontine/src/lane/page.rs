//! Offsets, sizes and bits of control pages and chunks, as in `docs/internals/layout.md`.

/// Bytes of a control page.
pub(crate) const CONTROL_SIZE: usize = 4096;
/// First word of a control page.
pub(crate) const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"TONTLANE");
/// First word of a chunk.
pub(crate) const CHUNK_MAGIC: u64 = u64::from_le_bytes(*b"TONTCHNK");
/// Version of the layout and the protocol, in the low half of a region's second word.
pub(crate) const VERSION: u32 = 4;

/// `magic: u64` of both regions.
pub(crate) const MAGIC_AT: usize = 0;
/// `version: u32` of both regions.
pub(crate) const VERSION_AT: usize = 8;

/// `state: u32`.
pub(crate) const STATE_AT: usize = 64;
/// `granted: u64`.
pub(crate) const GRANTED_AT: usize = 72;
/// `most: u64`.
pub(crate) const MOST_AT: usize = 80;
/// `position: u64`, in its own cache line.
pub(crate) const POSITION_AT: usize = 128;

/// `space: u64`, in its own cache line.
pub(crate) const SPACE_AT: usize = 192;

/// `relay: u32`: 1 if the receiver is a relay.
pub(crate) const RELAY_AT: usize = 68;
/// `errno: u32`: the reason of `REMOTE_REFUSED`.
pub(crate) const ERRNO_AT: usize = 88;
/// `suspected: u32`: 1 while the remote host does not answer a relay.
pub(crate) const SUSPECTED_AT: usize = 92;
/// `sent: u64`, in its own cache line.
pub(crate) const SENT_AT: usize = 256;
/// `turn: u32`: 1 while the program may have the lane's first unread message.
pub(crate) const TURN_AT: usize = 264;

/// Bit of `state`: the receiver accepts no more messages.
pub(crate) const CLOSED: u32 = 1;
/// Bit of `state`: the sender must return its large chunk because the lane has been empty.
pub(crate) const GIVE_BACK: u32 = 2;
/// Bit of `state`, set by a relay: the remote owner has died.
pub(crate) const REMOTE_DIED: u32 = 4;
/// Bit of `state`, set by a relay: the remote owner has closed its mailbox.
pub(crate) const REMOTE_CLOSED: u32 = 8;
/// Bit of `state`, set by a relay: the remote host cannot be reached.
pub(crate) const UNREACHABLE: u32 = 16;
/// Bit of `state`, set by a relay: the remote host refuses the lane, for the reason in `errno`.
pub(crate) const REMOTE_REFUSED: u32 = 32;
/// Bit of `state`: the sender stamps each message.
pub(crate) const STAMPS: u32 = 64;
/// The bits of `state` that end a lane for good, at most one of which is set.
pub(crate) const REMOTE_ENDS: u32 = REMOTE_DIED | REMOTE_CLOSED | UNREACHABLE | REMOTE_REFUSED;

/// `log2_size: u32` of a chunk.
pub(crate) const LOG2_AT: usize = 12;
/// `sequence: u64`.
pub(crate) const SEQUENCE_AT: usize = 16;
/// `base: u64`.
pub(crate) const BASE_AT: usize = 24;
/// `lane: u128`: the lane's random identifier.
pub(crate) const LANE_AT: usize = 32;
/// `on_death: u32`: what the sender does when its receiver ends.
pub(crate) const ON_DEATH_AT: usize = 48;
/// `waiting: u32`.
pub(crate) const WAITING_AT: usize = 64;
/// `handover: u32`: the number of the valid `HELLO`.
pub(crate) const HANDOVER_AT: usize = 68;
/// `closed: u32` of a chunk: 1 once the sender was closed.
pub(crate) const CLOSED_AT: usize = 72;
/// `owners: u32` of a chunk: number of owners that may have received the records before `doubt`.
pub(crate) const OWNERS_AT: usize = 76;
/// `doubt: u64` of a chunk: earlier owners may have received the records that begin before it.
pub(crate) const DOUBT_AT: usize = 80;
/// Offset of the first record of a chunk.
pub(crate) const RING_AT: usize = 128;

/// Base-2 logarithm of the smallest chunk's size, which is a page.
pub(crate) const MIN_LOG2: u32 = 12;
/// Base-2 logarithm of the largest chunk's size, chosen so that lengths and offsets fit 32 bits.
pub(crate) const MAX_LOG2: u32 = 30;
/// Total chunk size, in bytes, up to which a sender may pass chunks without a grant, so that
/// messages can precede the acceptance of the lane. Chunks of 4 to 512 KiB, each twice as large as
/// the one before, fit into it.
pub(crate) const UNGRANTED: u64 = 1 << 20;

/// Returns the size in bytes of the ring in a chunk of `size` bytes.
pub(crate) const fn ring(size: usize) -> usize {
    size - RING_AT
}

/// Returns the length of the longest message for a chunk of `size` bytes.
///
/// The limit is half of the ring because a record must fit into an empty chunk wherever the last
/// record ended. A record never wraps, so almost as much padding may precede it. A stamp and the
/// message's own header take two words.
pub(crate) const fn longest_message(size: usize) -> usize {
    (ring(size) - 2 * super::record::HEADER) / 2 / 8 * 8 - 2 * super::record::HEADER
}

/// Returns the base-2 logarithm of the size of the smallest chunk for messages of `length` bytes;
/// `None` if the largest is too small.
pub(crate) fn log2_for(length: usize) -> Option<u32> {
    (MIN_LOG2..=MAX_LOG2).find(|&log2| longest_message(1 << log2) >= length)
}

// The models are compiled without the errors.
#[cfg(not(loom))]
const _: () = assert!(longest_message(1 << MAX_LOG2) as u64 == crate::error::LONGEST_MESSAGE);

const _: () = {
    assert!(WAITING_AT / 64 != RING_AT / 64, "waiting is polled, records are written");
    assert!(STATE_AT / 64 != POSITION_AT / 64, "state is loaded at each send");
    assert!(SPACE_AT / 64 != POSITION_AT / 64, "position is stored at each message, space polled");
    assert!(
        RING_AT.is_multiple_of(64) && GRANTED_AT.is_multiple_of(8) && MOST_AT.is_multiple_of(8)
    );
    assert!(LOG2_AT == VERSION_AT + 4, "version and size are written as one word");
    assert!(ring(1 << MIN_LOG2).is_multiple_of(8));
    assert!(SENT_AT / 64 != SPACE_AT / 64, "sent is stored at each pass of a relay, space polled");
    assert!(LANE_AT.is_multiple_of(8) && LANE_AT >= BASE_AT + 8 && ON_DEATH_AT >= LANE_AT + 16);
    assert!(ON_DEATH_AT + 4 <= WAITING_AT && SUSPECTED_AT + 4 <= POSITION_AT);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_message_fits_at_every_ring_offset() {
        for log2 in MIN_LOG2..=MAX_LOG2 {
            let size = 1 << log2;
            let record = 8 + super::super::record::size_of_message(longest_message(size));
            // The padding is shorter than the record and the header together. Otherwise, the record
            // would fit before the end of the ring.
            assert!((record + 8 - 8) + record + 8 <= ring(size), "2^{log2}");
        }
    }

    #[test]
    fn log2_for_length_returns_smallest_chunk() {
        assert_eq!(log2_for(0), Some(MIN_LOG2));
        assert_eq!(log2_for(longest_message(1 << 20)), Some(20));
        assert_eq!(log2_for(longest_message(1 << 20) + 1), Some(21));
        assert_eq!(log2_for(longest_message(1 << MAX_LOG2) + 1), None);
    }
}

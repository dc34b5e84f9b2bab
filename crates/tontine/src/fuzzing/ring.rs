//! Fuzz target: a receiver reads a chunk filled by a hostile sender.

use std::cell::OnceCell;
use std::os::fd::AsFd;

use super::input::FuzzInput;
use crate::lane::page::{MAX_LOG2, MIN_LOG2, RING_AT};
use crate::lane::region::LaneMemory;
use crate::lane::region::models::ModelRegion;
use crate::lane::{LaneReader, Peeked};
use crate::sync::Ordering;
use crate::sys::region::{OwnRegion, PeerRegion};

/// Number of chunk sizes that the target tries. Three sizes find as much as all 19.
const SIZES: u32 = 3;

/// Shared memory, with the mappings of its creator and of its receiver.
struct MappedRing {
    own: OwnRegion,
    peer: PeerRegion,
}

/// A mapping of each size. Each is created only once because creating it takes longer than a run.
type OfEachSize = [OnceCell<Option<MappedRing>>; SIZES as usize];

thread_local! {
    static MAPPED: OfEachSize = const { [const { OnceCell::new() }; SIZES as usize] };
}

impl MappedRing {
    fn new(log2: u32) -> Option<Self> {
        let (own, descriptor) = OwnRegion::new("fuzzed", 1 << log2).ok()?;
        let peer = PeerRegion::map(descriptor.as_fd(), 1 << log2).ok()?;
        Some(Self { own, peer })
    }
}

/// Reads through a chunk with these bytes, starting at a position that the sender chooses.
///
/// The target changes the header of each message after the reader has found the message, and the
/// reader must not read the header again. The first chunk is also in shared memory, and copies from
/// there must be the same.
pub fn ring(bytes: &[u8]) {
    let size = bytes.first().map_or(0, |&size| u32::from(size) % SIZES);
    MAPPED.with(|mapped| {
        let mapped = mapped[size as usize].get_or_init(|| MappedRing::new(MIN_LOG2 + size));
        if let Some(mapped) = mapped {
            go_through(bytes, mapped);
        }
    });
}

fn go_through(bytes: &[u8], mapped: &MappedRing) {
    let mut input = FuzzInput::new(bytes);
    let log2 = MIN_LOG2 + u32::from(input.u8()) % SIZES;
    let (base, ahead) = (input.u64(), input.u64());
    let position = if ahead & 1 == 0 { base.wrapping_add(ahead) } else { ahead };
    let change = input.u64();
    let chunk = ModelRegion::new(1 << log2);
    let all = input.bytes(1 << log2);
    let all = &all[..all.len().min((1 << log2) - RING_AT)];
    chunk.copy_in(RING_AT, all);
    mapped.own.copy_in(RING_AT, all);
    mapped.own.copy_in(RING_AT + all.len(), &vec![0; (1 << log2) - RING_AT - all.len()]);
    let Ok(mut reader) = LaneReader::new(chunk.clone(), log2, base, position) else { return };
    // The maximum number of records: one lap of empty messages, a padding, and another lap.
    let most = 2 * (1 << log2) / 8 + 2;
    let mut chunks = 0;
    for _ in 0..most {
        let before = reader.position();
        match reader.look() {
            Ok(Peeked::Nothing) | Err(_) => return,
            Ok(Peeked::Message(length)) => {
                let at = reader.payload_at();
                assert!(at.is_multiple_of(8) && at > RING_AT && at + length <= reader.size());
                let header = reader.region().word(at - 8);
                let changed = header.load(Ordering::Relaxed) ^ change;
                header.store(changed, Ordering::Relaxed);
                let mut copied = Vec::new();
                reader.region().copy_out(at, length, &mut copied);
                assert_eq!(copied.len(), length);
                if chunks == 0 {
                    mapped.own.word(at - 8).store(changed, Ordering::Relaxed);
                    let mut again = Vec::new();
                    mapped.peer.copy_out(at, length, &mut again);
                    assert!(copied == again, "{length} bytes at {at}");
                }
                reader.advance(length);
            }
            // A mailbox checks this size before it follows `next`.
            Ok(Peeked::Next(log2)) if (MIN_LOG2..=MAX_LOG2).contains(&log2) => {
                if chunks == 2 || log2 >= MIN_LOG2 + SIZES {
                    return;
                }
                chunks += 1;
                let next = ModelRegion::new(1 << log2);
                next.copy_in(RING_AT, input.bytes((1 << log2) - RING_AT));
                reader.follow(next, log2);
            }
            Ok(Peeked::Next(_)) => return,
        }
        assert!(reader.position() > before && reader.position().is_multiple_of(8));
    }
}

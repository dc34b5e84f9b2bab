//! Control messages on a lane's socket: [`ControlMessage`], with [`Hello`] and [`Welcome`].
//!
//! `docs/internals/layout.md` describes their bytes. Bytes from a peer are untrusted until [`read`]
//! has checked length, kind and version.
//!
//! What the two sides read from each other in shared memory: [`LaneIdentity`], [`RemoteEnd`]. A
//! lane's memory itself is in [`crate::lane`].

#[cfg_attr(not(feature = "relay"), allow(dead_code, reason = "only a relay reads it"))]
mod lane_identity;
#[cfg_attr(
    not(feature = "relay"),
    allow(dead_code, unreachable_pub, reason = "only the program of a relay names it")
)]
mod remote_end;

pub(super) use lane_identity::LaneIdentity;
#[cfg_attr(not(feature = "relay"), allow(unreachable_pub, reason = "as above"))]
pub use remote_end::RemoteEnd;
pub(super) use remote_end::refusal_of_this_user;

use crate::lane::page::{CONTROL_SIZE, MAX_LOG2, MIN_LOG2, VERSION};
use crate::life::PAGE_SIZE;
use crate::sys::socket::DescriptorKind;

/// Maximum length in bytes of a control message.
pub(crate) const LONGEST: usize = 72;

/// Maximum number of chunks in a handover. Each is at least as large as all earlier ones together,
/// so that the bytes of a lane bound its mappings in the receiver.
pub(crate) const MOST_CHUNKS: usize = 32;

/// Returns the maximum number of chunks with this many bytes that a sender may have passed and not
/// used. It is one more than in a handover: a lane that returns its large chunk continues in a
/// small one.
pub(crate) fn most_chunks_passed(bytes: u64) -> usize {
    (bytes >> MIN_LOG2).max(1).ilog2() as usize + 2
}

const HELLO: u32 = 1;
const WELCOME: u32 = 2;
const REFUSED: u32 = 3;
const CHUNK: u32 = 4;
const WANT: u32 = 5;
const SPACE: u32 = 6;
const RETURNED: u32 = 7;

/// The fences that make a lane's two ends see each other's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FenceMode {
    /// The end that is about to sleep executes the fence for both.
    Asymmetric,
    /// Each end executes its own fence.
    Symmetric,
}

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlMessage {
    /// A sender opens a lane, or hands one over.
    Hello(Hello),
    /// The receiver accepts the lane.
    Welcome(Welcome),
    /// The receiver refuses the lane, with this error number.
    Refused(i32),
    /// The sender passes a chunk: the base-2 logarithm of its size, and its sequence number.
    Chunk(u32, u64),
    /// The sender requests this total chunk size, in bytes.
    Want(u64),
    /// The lane has free space, or no unread message.
    Space,
    /// The sender has returned the memory that it was asked for, and keeps its newest chunk.
    Returned,
}

/// A sender's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The fence mode that the sender supports and requests.
    pub(crate) fences: FenceMode,
    /// Number of this `HELLO` on its lane. The `HELLO` is valid while the first chunk shows the
    /// same number.
    pub(crate) handover: u32,
    /// Maximum total chunk size, in bytes, that the sender accepts.
    pub(crate) cap: u64,
    /// Position from which the receiver continues to read.
    pub(crate) position: u64,
    /// Position of the first record of the first chunk.
    pub(crate) base: u64,
    /// Base-2 logarithm of the size of the chunk to which the lane returns when it has been idle;
    /// 0 means the size of the first chunk that is passed.
    pub(crate) returns_to: u16,
    /// Base-2 logarithms of the chunks' sizes; 0 after the last.
    pub(crate) chunks: [u8; MOST_CHUNKS],
}

impl Hello {
    /// Returns the sizes of the chunks, as powers of two.
    pub(crate) fn named(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().take_while(|&&log2| log2 != 0).map(|&log2| log2.into())
    }
}

/// A receiver's acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The fence mode of this lane.
    pub(crate) fences: FenceMode,
    /// Index of the mailbox slot in the process page that shows whether the receiver sleeps.
    pub(crate) desk: u32,
}

/// Reason why bytes are not a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The peer uses another version of the protocol.
    Version(u32),
    /// The message is malformed, as the text describes.
    Malformed(&'static str),
}

/// Decodes a message from a peer. `oversize` means a message longer than the received `bytes`.
///
/// # Errors
/// The errors of [`read`].
pub(crate) fn read_received(bytes: &[u8], oversize: bool) -> Result<ControlMessage, DecodeError> {
    match read(bytes) {
        Ok(_) if oversize => {
            Err(DecodeError::Malformed("a control message is longer than its kind allows"))
        }
        read => read,
    }
}

/// Returns the descriptors that a message should carry. Returns none if the bytes are not a
/// message, or if its chunks have more than `most` bytes together: such chunks are not mapped.
pub(crate) fn expected(bytes: &[u8], most: u64) -> Vec<DescriptorKind> {
    let (mut expected, chunks): (_, Vec<u32>) = match read(bytes) {
        Ok(ControlMessage::Hello(hello)) => {
            (vec![DescriptorKind::Memory(PAGE_SIZE)], hello.named().collect())
        }
        Ok(ControlMessage::Chunk(log2, _)) => (Vec::new(), vec![log2]),
        Ok(ControlMessage::Welcome(_)) => {
            let memory = [PAGE_SIZE, CONTROL_SIZE].map(DescriptorKind::Memory);
            return memory.into_iter().chain([DescriptorKind::Doorbell]).collect();
        }
        _ => return Vec::new(),
    };
    if chunks.iter().any(|log2| !(MIN_LOG2..=MAX_LOG2).contains(log2))
        || chunks.iter().map(|&log2| 1_u64 << log2).sum::<u64>() > most
    {
        return Vec::new();
    }
    expected.extend(chunks.into_iter().map(|log2| DescriptorKind::Memory(1 << log2)));
    expected
}

/// Encodes a control message.
pub(crate) fn write(note: ControlMessage) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LONGEST);
    let kind = match note {
        ControlMessage::Hello(_) => HELLO,
        ControlMessage::Welcome(_) => WELCOME,
        ControlMessage::Refused(_) => REFUSED,
        ControlMessage::Chunk(..) => CHUNK,
        ControlMessage::Want(_) => WANT,
        ControlMessage::Space => SPACE,
        ControlMessage::Returned => RETURNED,
    };
    let mut put = |piece: &[u8]| bytes.extend_from_slice(piece);
    put(&kind.to_le_bytes());
    put(&VERSION.to_le_bytes());
    match note {
        ControlMessage::Hello(hello) => {
            put(&fences_to_wire(hello.fences).to_le_bytes());
            put(&hello.returns_to.to_le_bytes());
            put(&hello.handover.to_le_bytes());
            put(&hello.cap.to_le_bytes());
            put(&hello.position.to_le_bytes());
            put(&hello.base.to_le_bytes());
            put(&hello.chunks[..hello.named().count()]);
        }
        ControlMessage::Welcome(welcome) => {
            put(&u32::from(fences_to_wire(welcome.fences)).to_le_bytes());
            put(&welcome.desk.to_le_bytes());
        }
        ControlMessage::Refused(errno) => put(&errno.to_le_bytes()),
        ControlMessage::Chunk(log2, sequence) => {
            put(&log2.to_le_bytes());
            put(&0_u32.to_le_bytes());
            put(&sequence.to_le_bytes());
        }
        ControlMessage::Want(wanted) => put(&wanted.to_le_bytes()),
        ControlMessage::Space | ControlMessage::Returned => {}
    }
    bytes
}

/// Decodes bytes from a peer.
///
/// # Errors
/// [`DecodeError`] if the bytes are of another version, or are not a message that an honest peer of
/// this version sends.
pub(crate) fn read(bytes: &[u8]) -> Result<ControlMessage, DecodeError> {
    let mut left = WireCursor(bytes);
    let (kind, version) = (left.u32()?, left.u32()?);
    if version != VERSION {
        return Err(DecodeError::Version(version));
    }
    let note = match kind {
        HELLO => ControlMessage::Hello(hello(&mut left)?),
        WELCOME => ControlMessage::Welcome(Welcome {
            fences: fences_from_wire(left.u32()?)?,
            desk: left.u32()?,
        }),
        REFUSED => ControlMessage::Refused(left.u32()?.cast_signed()),
        CHUNK => {
            let log2 = left.u32()?;
            left.u32()?;
            ControlMessage::Chunk(log2, left.u64()?)
        }
        WANT => ControlMessage::Want(left.u64()?),
        SPACE => ControlMessage::Space,
        RETURNED => ControlMessage::Returned,
        _ => return Err(DecodeError::Malformed("a control message has an unknown kind")),
    };
    if left.0.is_empty() {
        Ok(note)
    } else {
        Err(DecodeError::Malformed("a control message is longer than its kind allows"))
    }
}

fn hello(left: &mut WireCursor<'_>) -> Result<Hello, DecodeError> {
    let fences = fences_from_wire(left.u16()?.into())?;
    let returns_to = left.u16()?;
    let handover = left.u32()?;
    let (cap, position, base) = (left.u64()?, left.u64()?, left.u64()?);
    let named = std::mem::take(&mut left.0);
    if named.is_empty() || named.len() > MOST_CHUNKS || named.contains(&0) {
        return Err(DecodeError::Malformed("HELLO does not name 1 to 32 chunks"));
    }
    let mut before = 0_u64;
    for &log2 in named {
        let bytes = 1_u64.checked_shl(log2.into()).unwrap_or(u64::MAX);
        if bytes < before {
            let what = "HELLO names a chunk that is smaller than all chunks before it together";
            return Err(DecodeError::Malformed(what));
        }
        before = before.saturating_add(bytes);
    }
    let mut chunks = [0; MOST_CHUNKS];
    chunks[..named.len()].copy_from_slice(named);
    Ok(Hello { fences, handover, cap, position, base, returns_to, chunks })
}

fn fences_to_wire(fences: FenceMode) -> u16 {
    match fences {
        FenceMode::Asymmetric => 0,
        FenceMode::Symmetric => 1,
    }
}

fn fences_from_wire(word: u32) -> Result<FenceMode, DecodeError> {
    match word {
        0 => Ok(FenceMode::Asymmetric),
        1 => Ok(FenceMode::Symmetric),
        _ => {
            Err(DecodeError::Malformed("a fence mode is neither 0 (asymmetric) nor 1 (symmetric)"))
        }
    }
}

/// The bytes that are not decoded yet.
struct WireCursor<'a>(&'a [u8]);

impl WireCursor<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (first, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Malformed("a control message is shorter than its kind requires"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_message_decodes_to_encoded_value() {
        let mut chunks = [0; MOST_CHUNKS];
        chunks[..3].copy_from_slice(&[12, 13, 20]);
        let (fences, cap) = (FenceMode::Symmetric, 1 << 40);
        let (handover, position, base, returns_to) = (7, 24, 8, 12);
        let hello = Hello { fences, handover, cap, position, base, returns_to, chunks };
        let welcome = Welcome { fences: FenceMode::Asymmetric, desk: 1023 };
        let mut most = [0; MOST_CHUNKS];
        most[0] = 12;
        most.iter_mut().skip(1).zip(12..=30).for_each(|(place, log2)| *place = log2);
        let notes = [
            ControlMessage::Hello(hello),
            ControlMessage::Hello(Hello { chunks: most, ..hello }),
            ControlMessage::Welcome(welcome),
            ControlMessage::Refused(13),
            ControlMessage::Chunk(13, u64::MAX),
            ControlMessage::Want(1),
            ControlMessage::Space,
            ControlMessage::Returned,
        ];
        for note in notes {
            let bytes = write(note);
            assert!(bytes.len() <= LONGEST, "{note:?}: {} bytes", bytes.len());
            assert_eq!(read(&bytes), Ok(note));
            assert!(
                read(&bytes[..bytes.len() - 1]).is_err()
                    || matches!(note, ControlMessage::Hello(_))
            );
        }
    }

    #[test]
    fn decode_of_other_version_returns_version_number() {
        let mut bytes = write(ControlMessage::Space);
        bytes[4] = 9;
        assert_eq!(read(&bytes), Err(DecodeError::Version(9)));
    }
}

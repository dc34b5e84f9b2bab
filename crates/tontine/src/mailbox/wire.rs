//! The messages on a lane's socket: [`Hello`], [`Welcome`], [`Note`]; laid out in
//! `docs/layout.md`.
//!
//! What a peer sent is a claim until [`read`] has looked at its length, kind and version.

use crate::lane::page::{CONTROL_SIZE, LEAST_LOG2, MOST_LOG2, VERSION};
use crate::life::PAGE_SIZE;
use crate::sys::socket::Expected;

/// Longest message on the socket.
pub(crate) const LONGEST: usize = 72;

/// Most chunks that a hand-over may bring: each is at least as large as all before it.
pub(crate) const MOST_CHUNKS: usize = 32;

const HELLO: u32 = 1;
const WELCOME: u32 = 2;
const REFUSED: u32 = 3;
const CHUNK: u32 = 4;
const WANT: u32 = 5;
const ROOM: u32 = 6;
const RETURNED: u32 = 7;

/// How a lane's two ends see each other's stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FenceMode {
    /// The sleeper interrupts all others.
    Asymmetric,
    /// Both fence.
    Symmetric,
}

/// What a peer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    /// A sender begins a lane, or hands one over.
    Hello(Hello),
    /// The receiver takes it.
    Welcome(Welcome),
    /// The receiver does not, with this error number.
    Refused(i32),
    /// A chunk is passed: two to the power, sequence.
    Chunk(u32, u64),
    /// The sender would like so many bytes of chunks.
    Want(u64),
    /// There is room, or nothing left unread.
    Room,
    /// The sender keeps its newest chunk and has given back what it was asked for.
    Returned,
}

/// A sender's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    /// What the sender can.
    pub(crate) fences: FenceMode,
    /// Which of its lane's `HELLO`s this is: it counts as long as the first chunk says the same.
    pub(crate) handover: u32,
    /// Bytes of chunks that it wants at most.
    pub(crate) cap: u64,
    /// Where reading goes on.
    pub(crate) position: u64,
    /// Where the first chunk's first record stands.
    pub(crate) base: u64,
    /// Two to this power are the bytes of the chunk to which the lane returns when it has been idle
    /// for a while; 0: those of the first that it brings.
    pub(crate) returns_to: u16,
    /// Two to these powers are the chunks' bytes; 0 behind the last.
    pub(crate) chunks: [u8; MOST_CHUNKS],
}

impl Hello {
    /// The chunks that it names, as powers of two.
    pub(crate) fn named(&self) -> impl Iterator<Item = u32> {
        self.chunks.iter().take_while(|&&log2| log2 != 0).map(|&log2| log2.into())
    }
}

/// A receiver's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// What holds for this lane.
    pub(crate) fences: FenceMode,
    /// Where the process page says whether the receiver sleeps.
    pub(crate) desk: u32,
}

/// Why a message is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It speaks another version of the protocol.
    Version(u32),
    /// It is malformed; the text says how.
    Malformed(&'static str),
}

/// Decodes a message from a peer, of which `bytes` were received and perhaps not all.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_received(bytes: &[u8], oversize: bool) -> Result<Note, Unreadable> {
    match read(bytes) {
        Ok(_) if oversize => {
            Err(Unreadable::Malformed("a control message is longer than its kind allows"))
        }
        read => read,
    }
}

/// The descriptors that a message should carry. None where it is not a message, or where its chunks
/// have more than `most` bytes together: those are not mapped.
pub(crate) fn expected(bytes: &[u8], most: u64) -> Vec<Expected> {
    let (mut expected, chunks): (_, Vec<u32>) = match read(bytes) {
        Ok(Note::Hello(hello)) => (vec![Expected::Memory(PAGE_SIZE)], hello.named().collect()),
        Ok(Note::Chunk(log2, _)) => (Vec::new(), vec![log2]),
        Ok(Note::Welcome(_)) => {
            let memory = [PAGE_SIZE, CONTROL_SIZE].map(Expected::Memory);
            return memory.into_iter().chain([Expected::Doorbell]).collect();
        }
        _ => return Vec::new(),
    };
    if chunks.iter().any(|log2| !(LEAST_LOG2..=MOST_LOG2).contains(log2))
        || chunks.iter().map(|&log2| 1_u64 << log2).sum::<u64>() > most
    {
        return Vec::new();
    }
    expected.extend(chunks.into_iter().map(|log2| Expected::Memory(1 << log2)));
    expected
}

/// The bytes of a note.
pub(crate) fn write(note: Note) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LONGEST);
    let kind = match note {
        Note::Hello(_) => HELLO,
        Note::Welcome(_) => WELCOME,
        Note::Refused(_) => REFUSED,
        Note::Chunk(..) => CHUNK,
        Note::Want(_) => WANT,
        Note::Room => ROOM,
        Note::Returned => RETURNED,
    };
    let mut put = |piece: &[u8]| bytes.extend_from_slice(piece);
    put(&kind.to_le_bytes());
    put(&VERSION.to_le_bytes());
    match note {
        Note::Hello(hello) => {
            put(&fences_to_wire(hello.fences).to_le_bytes());
            put(&hello.returns_to.to_le_bytes());
            put(&hello.handover.to_le_bytes());
            put(&hello.cap.to_le_bytes());
            put(&hello.position.to_le_bytes());
            put(&hello.base.to_le_bytes());
            put(&hello.chunks[..hello.named().count()]);
        }
        Note::Welcome(welcome) => {
            put(&u32::from(fences_to_wire(welcome.fences)).to_le_bytes());
            put(&welcome.desk.to_le_bytes());
        }
        Note::Refused(errno) => put(&errno.to_le_bytes()),
        Note::Chunk(log2, sequence) => {
            put(&log2.to_le_bytes());
            put(&0_u32.to_le_bytes());
            put(&sequence.to_le_bytes());
        }
        Note::Want(wanted) => put(&wanted.to_le_bytes()),
        Note::Room | Note::Returned => {}
    }
    bytes
}

/// What bytes from a peer say.
///
/// # Errors
/// Another version, or nothing that an honest peer of this version sends.
pub(crate) fn read(bytes: &[u8]) -> Result<Note, Unreadable> {
    let mut left = Left(bytes);
    let (kind, version) = (left.u32()?, left.u32()?);
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let note = match kind {
        HELLO => Note::Hello(hello(&mut left)?),
        WELCOME => {
            Note::Welcome(Welcome { fences: fences_from_wire(left.u32()?)?, desk: left.u32()? })
        }
        REFUSED => Note::Refused(left.u32()?.cast_signed()),
        CHUNK => {
            let log2 = left.u32()?;
            left.u32()?;
            Note::Chunk(log2, left.u64()?)
        }
        WANT => Note::Want(left.u64()?),
        ROOM => Note::Room,
        RETURNED => Note::Returned,
        _ => return Err(Unreadable::Malformed("a control message has an unknown kind")),
    };
    if left.0.is_empty() {
        Ok(note)
    } else {
        Err(Unreadable::Malformed("a control message is longer than its kind allows"))
    }
}

fn hello(left: &mut Left<'_>) -> Result<Hello, Unreadable> {
    let fences = fences_from_wire(left.u16()?.into())?;
    let returns_to = left.u16()?;
    let handover = left.u32()?;
    let (cap, position, base) = (left.u64()?, left.u64()?, left.u64()?);
    let named = std::mem::take(&mut left.0);
    if named.is_empty() || named.len() > MOST_CHUNKS || named.contains(&0) {
        return Err(Unreadable::Malformed("HELLO does not name 1 to 32 chunks"));
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

fn fences_from_wire(word: u32) -> Result<FenceMode, Unreadable> {
    match word {
        0 => Ok(FenceMode::Asymmetric),
        1 => Ok(FenceMode::Symmetric),
        _ => Err(Unreadable::Malformed("a fence mode is neither 0 (asymmetric) nor 1 (symmetric)")),
    }
}

/// Bytes not read yet.
struct Left<'a>(&'a [u8]);

impl Left<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (first, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Unreadable::Malformed("a control message is shorter than its kind requires"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u16(&mut self) -> Result<u16, Unreadable> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, Unreadable> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, Unreadable> {
        Ok(u64::from_le_bytes(self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_comes_back_as_it_went() {
        let mut chunks = [0; MOST_CHUNKS];
        chunks[..3].copy_from_slice(&[12, 13, 20]);
        let (fences, cap) = (FenceMode::Symmetric, 1 << 40);
        let (handover, position, base, returns_to) = (7, 24, 8, 12);
        let hello = Hello { fences, handover, cap, position, base, returns_to, chunks };
        let welcome = Welcome { fences: FenceMode::Asymmetric, desk: 61 };
        let notes = [
            Note::Hello(hello),
            Note::Hello(Hello { chunks: [30; MOST_CHUNKS], ..hello }),
            Note::Welcome(welcome),
            Note::Refused(13),
            Note::Chunk(13, u64::MAX),
            Note::Want(1),
            Note::Room,
            Note::Returned,
        ];
        for note in notes {
            let bytes = write(note);
            assert!(bytes.len() <= LONGEST, "{note:?}: {} bytes", bytes.len());
            assert_eq!(read(&bytes), Ok(note));
            assert!(read(&bytes[..bytes.len() - 1]).is_err() || matches!(note, Note::Hello(_)));
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = write(Note::Room);
        bytes[4] = 9;
        assert_eq!(read(&bytes), Err(Unreadable::Version(9)));
    }
}

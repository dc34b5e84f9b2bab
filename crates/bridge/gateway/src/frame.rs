//! Frames between two gateways: [`Header`] and its 72 bytes.
//!
//! All integers are little-endian. A frame is a header and a payload of `length` bytes; its
//! checksum covers both.
//!
//! | offset | field | |
//! | --: | --- | --- |
//! | 0 | `version: u8` | 1 |
//! | 1 | `kind: u8` | [`FrameKind`] |
//! | 2 | `flags: u16` | a set of the constants below that the kind allows |
//! | 4 | `attempt: u32` | number of the lane's `HELLO` |
//! | 8 | `lane: u128` | the random number that the sender gave its lane |
//! | 24 | `owner: u128` | the mailbox's owner, 0 if not known |
//! | 40 | `a`, `b`, `c: u64` | see [`FrameKind`] |
//! | 64 | `length: u32` | bytes of payload |
//! | 68 | `crc: u32` | CRC-32 of everything else |

/// Version of the protocol between gateways.
pub const VERSION: u8 = 1;
/// Bytes of a header.
pub const HEADER: usize = 72;
/// Maximum number of bytes of a frame. Above 65,535 bytes, Zenoh fragments a message and its
/// throughput falls by a third.
pub const MAX_FRAME: usize = 60 << 10;
/// Maximum number of bytes of a payload.
pub const MAX_PAYLOAD: usize = MAX_FRAME - HEADER;

/// `HELLO`: the sender waits for a successor if the owner dies.
pub const WAITS: u16 = 1;
/// `HELLO`: the sender also waits for a successor if the owner closes its mailbox.
pub const WAITS_THROUGH_RESTARTS: u16 = 2;
/// `STATUS`: the owner closed its mailbox.
pub const CLOSED: u16 = 4;
/// `STATUS`: the owner died.
pub const OWNER_DIED: u16 = 8;
/// `STATUS`: the lane was refused. The payload is the error number, a `u32`.
pub const REFUSED: u16 = 16;
/// `STATUS`: this gateway does not know the lane.
pub const UNKNOWN: u16 = 32;
/// `STATUS`: frames after the accepted position were lost or dropped; send them again.
pub const REPEAT: u16 = 128;
/// `BYE`: the sending gateway has learned how the lane ended and expects nothing more.
pub const SETTLED: u16 = 64;
/// `BYE`: the sending gateway does not have the lane.
pub const ABSENT: u16 = 256;

/// The kinds of frames, with the meaning of `a`, `b` and `c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Sending gateway: offers a lane. `a` is the acknowledged position, at which the lane begins;
    /// `c` the length of the longest message. The payload is the name of the mailbox.
    Hello = 1,
    /// Sending gateway: records of a lane. `a` is the position of the first byte; `b` the number of
    /// bytes that belong to a record which an earlier frame began; `c` the acknowledged position.
    Data = 2,
    /// Receiving gateway: `a` is the position accepted, `b` the one acknowledged, `c` the one up to
    /// which the sending gateway may send.
    Status = 3,
    /// Both: `a` is a number to repeat. `lane` is the gateway's instance.
    Ping = 4,
    /// Both: answers a `PING`, with its `a`, and the answering gateway's instance.
    Pong = 5,
    /// Sending gateway: the sender has ended. `a` is the end of its last record.
    Bye = 6,
}

impl FrameKind {
    const ALL: [Self; 6] =
        [Self::Hello, Self::Data, Self::Status, Self::Ping, Self::Pong, Self::Bye];

    fn flags(self) -> u16 {
        match self {
            Self::Hello => WAITS | WAITS_THROUGH_RESTARTS,
            Self::Status => CLOSED | OWNER_DIED | REFUSED | UNKNOWN | REPEAT,
            Self::Bye => SETTLED | ABSENT,
            Self::Data | Self::Ping | Self::Pong => 0,
        }
    }
}

/// The header of a frame, without version, length and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Flags that the kind allows.
    pub flags: u16,
    /// Number of the lane's `HELLO`.
    pub attempt: u32,
    /// The lane, or the gateway's instance in `PING` and `PONG`.
    pub lane: u128,
    /// The owner, 0 if not known.
    pub owner: u128,
    /// See [`FrameKind`].
    pub a: u64,
    /// See [`FrameKind`].
    pub b: u64,
    /// See [`FrameKind`].
    pub c: u64,
}

/// The reason why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The peer speaks another version of the protocol.
    Version(u8),
    /// The bytes are damaged, or no gateway of this version writes them.
    Malformed(&'static str),
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(found) => write!(
                f,
                "expected version {VERSION} of the protocol between gateways, found {found}; run \
                 the same version of the gateway on both hosts"
            ),
            Self::Malformed(what) => f.write_str(what),
        }
    }
}

impl Header {
    /// Returns a header of this kind, with zeros elsewhere.
    pub fn new(kind: FrameKind, lane: u128, attempt: u32) -> Self {
        Self { kind, flags: 0, attempt, lane, owner: 0, a: 0, b: 0, c: 0 }
    }

    /// Replaces the contents of `frame` by the header, with space for the length and the checksum.
    /// Append the payload, then call [`seal`].
    pub fn begin(&self, frame: &mut Vec<u8>) {
        frame.clear();
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION;
        bytes[1] = self.kind as u8;
        bytes[2..4].copy_from_slice(&self.flags.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.attempt.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.lane.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.owner.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.a.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.b.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.c.to_le_bytes());
        frame.extend_from_slice(&bytes);
    }

    /// Replaces the contents of `frame` by a whole frame.
    pub fn write(&self, payload: &[u8], frame: &mut Vec<u8>) {
        self.begin(frame);
        frame.extend_from_slice(payload);
        seal(frame);
    }

    /// Checks the bytes of a frame, and returns its header and its payload.
    ///
    /// # Errors
    /// [`FrameError::Version`] if the peer speaks another version; [`FrameError::Malformed`] if the
    /// length, the checksum, the kind or a flag is invalid.
    pub fn read(frame: &[u8]) -> Result<(Self, &[u8]), FrameError> {
        let Some((header, payload)) = frame.split_first_chunk::<HEADER>() else {
            return Err(FrameError::Malformed("the frame is shorter than its header"));
        };
        if header[0] != VERSION {
            return Err(FrameError::Version(header[0]));
        }
        let word = |at: usize| u64::from_le_bytes(*header[at..].first_chunk().expect("inside"));
        let wide = |at: usize| u128::from(word(at)) | u128::from(word(at + 8)) << 64;
        if payload.len() != word(64) as u32 as usize {
            return Err(FrameError::Malformed("the frame has another length than it names"));
        }
        if checksum(frame) != (word(64) >> 32) as u32 {
            return Err(FrameError::Malformed("the frame's checksum is wrong"));
        }
        let Some(kind) = FrameKind::ALL.into_iter().find(|kind| *kind as u8 == header[1]) else {
            return Err(FrameError::Malformed("the frame is of an unknown kind"));
        };
        let flags = (word(0) >> 16) as u16;
        if flags & !kind.flags() != 0 {
            return Err(FrameError::Malformed("the frame has a flag that its kind does not allow"));
        }
        let attempt = (word(0) >> 32) as u32;
        let (lane, owner) = (wide(8), wide(24));
        Ok((
            Self { kind, flags, attempt, lane, owner, a: word(40), b: word(48), c: word(56) },
            payload,
        ))
    }
}

/// Completes a frame, whose payload was appended after [`Header::begin`].
///
/// # Panics
/// Panics if the frame is shorter than a header.
pub fn seal(frame: &mut [u8]) {
    let length = (frame.len() - HEADER) as u32;
    frame[64..68].copy_from_slice(&length.to_le_bytes());
    let crc = checksum(frame);
    frame[68..72].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(frame: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&frame[..68]);
    hasher.update(&frame[HEADER..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Header, Vec<u8>) {
        let mut header = Header::new(FrameKind::Data, 1 << 100 | 7, 3);
        (header.owner, header.a, header.b, header.c) = (u128::MAX - 1, 8, u64::MAX, 24);
        let mut frame = Vec::new();
        header.write(b"payload", &mut frame);
        (header, frame)
    }

    #[test]
    fn written_frame_is_read_again() {
        let (header, frame) = example();
        assert_eq!(Header::read(&frame), Ok((header, &b"payload"[..])));
    }

    #[test]
    fn every_flipped_bit_and_cut_is_refused() {
        let (_, frame) = example();
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::read(&flipped).is_err(), "bit {bit}");
        }
        for length in 0..frame.len() {
            assert!(Header::read(&frame[..length]).is_err(), "cut to {length}");
        }
    }

    #[test]
    fn other_version_kind_and_flag_are_named() {
        let (mut header, mut frame) = example();
        frame[0] = 2;
        assert_eq!(Header::read(&frame), Err(FrameError::Version(2)));
        frame[0] = VERSION;
        frame[1] = 7;
        seal(&mut frame);
        let unknown = FrameError::Malformed("the frame is of an unknown kind");
        assert_eq!(Header::read(&frame), Err(unknown));
        header.flags = CLOSED;
        header.write(b"", &mut frame);
        let flag = FrameError::Malformed("the frame has a flag that its kind does not allow");
        assert_eq!(Header::read(&frame), Err(flag));
    }
}

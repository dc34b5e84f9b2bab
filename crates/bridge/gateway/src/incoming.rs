//! The receiving gateway's end of a lane: [`IncomingLane`].
//!
//! It takes `DATA` at the accepted position only: it trims what came before and drops what comes
//! after a gap. Each record is delivered once, in order. Nothing here does input or output or
//! reads a clock: the caller delivers records to the owner, and reports what the owner acknowledged
//! and how it ended.
//!
//! Invariant: `acknowledged <= accepted <= granted`.

use std::cmp::Ordering;

use crate::frame::{self, FrameKind, Header};
use crate::outgoing::LaneEnd;

/// The receiving gateway's state of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IncomingLane {
    lane: u128,
    attempt: u32,
    owner: u128,
    accepted: u64,
    acknowledged: u64,
    grant: u64,
    longest: u64,
    /// The record that is not complete, or was not delivered yet.
    partial: Option<PartialRecord>,
    /// The end of the last record of a sender that has ended.
    end: Option<u64>,
    ended: Option<LaneEnd>,
    /// `true` if a gap was reported, and nothing was accepted since.
    reported: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PartialRecord {
    /// Position after the record.
    end: u64,
    length: usize,
    bytes: Vec<u8>,
}

/// `DATA` that no honest gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataViolation(pub &'static str);

/// The answer to a frame; of two answers, the greater one includes the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// Send nothing.
    Nothing,
    /// Send [`unknown`]: the lane was begun by an older `HELLO` than the frame's.
    Unknown,
    /// Replace the lane by [`IncomingLane::new`], with the present owner of the mailbox, and send
    /// its [`IncomingLane::status`]: the lane ended for another owner than the `HELLO` names.
    Begin,
    /// Send [`IncomingLane::status`].
    Status,
    /// Send [`IncomingLane::status`] with [`frame::REPEAT`].
    Repeat,
}

impl IncomingLane {
    /// Returns a lane that begins with this `HELLO`, and whose mailbox belongs to `owner`. If the
    /// lane belongs to an earlier owner, it has ended with that owner.
    pub fn new(hello: &Header, owner: u128, grant: u64) -> Self {
        let mut lane = Self {
            lane: hello.lane,
            attempt: hello.attempt,
            owner,
            accepted: hello.a,
            acknowledged: hello.a,
            grant,
            longest: hello.c,
            partial: None,
            end: None,
            ended: None,
            reported: false,
        };
        lane.check_owner(hello);
        lane
    }

    /// Returns a lane that is refused with an error number.
    pub fn refused(hello: &Header, errno: i32) -> Self {
        let mut lane = Self::new(hello, hello.owner, 0);
        lane.ended = Some(LaneEnd::Refused(errno));
        lane
    }

    fn names_other_owner(&self, hello: &Header) -> bool {
        hello.owner != 0 && hello.owner != self.owner
    }

    fn check_owner(&mut self, hello: &Header) {
        if self.names_other_owner(hello) {
            self.owner = hello.owner;
            self.accepted = hello.a;
            self.acknowledged = hello.a;
            self.partial = None;
            self.ended = Some(LaneEnd::OwnerDied);
        }
    }

    /// Returns how the lane ended.
    pub fn ended(&self) -> Option<LaneEnd> {
        self.ended
    }

    /// Returns `true` if the sender has ended.
    pub fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the number of the lane's `HELLO`.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the position before which the owner has acknowledged everything.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the position before which everything has arrived.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Processes a `HELLO` for a lane that exists.
    pub fn on_hello(&mut self, hello: &Header) -> Reply {
        if hello.attempt > self.attempt {
            // Old HELLOs began or ended the lane for another owner, or for none.
            if self.ended.is_some() && self.names_other_owner(hello) {
                return Reply::Begin;
            }
            self.attempt = hello.attempt;
            self.reported = false;
            // The lane began with an older HELLO. Its owner has acknowledged the records up to `a`.
            if hello.a > self.accepted {
                self.accepted = hello.a;
                self.acknowledged = hello.a;
                self.partial = None;
            }
            self.check_owner(hello);
        }
        Reply::Status
    }

    /// Processes `DATA`, and passes each complete record, with the position after it, to `deliver`,
    /// which returns `false` if the owner's lane is full: [`IncomingLane::deliver_waiting`] then
    /// delivers it later.
    ///
    /// # Errors
    /// The frame contains what no honest gateway sends. The lane has ended.
    pub fn on_data(
        &mut self,
        data: &Header,
        payload: &[u8],
        mut deliver: impl FnMut(&[u8], u64) -> bool,
    ) -> Result<Reply, DataViolation> {
        match data.attempt.cmp(&self.attempt) {
            // An earlier gateway of the sender's host used a higher number.
            Ordering::Less => return Ok(Reply::Status),
            Ordering::Greater => return Ok(Reply::Unknown),
            Ordering::Equal if self.ended.is_some() => return Ok(Reply::Status),
            Ordering::Equal => {}
        }
        // An earlier gateway of this host may have reported more.
        if data.c <= self.accepted {
            self.on_acked(data.c);
        }
        if data.a > self.accepted || self.is_full() {
            return Ok(self.gap());
        }
        let taken = self.take(data, payload, &mut deliver);
        if taken.is_err() {
            self.ended.get_or_insert(LaneEnd::Refused(EPROTO));
            self.partial = None;
        }
        taken.map(|()| Reply::Status)
    }

    fn gap(&mut self) -> Reply {
        if self.is_full() {
            return Reply::Nothing;
        }
        // Without an answer, a gateway that believed the STATUS of an earlier gateway of this host
        // would repeat its frames after the gap without end.
        let is_new = !std::mem::replace(&mut self.reported, true);
        if is_new { Reply::Repeat } else { Reply::Status }
    }

    fn take(
        &mut self,
        data: &Header,
        mut bytes: &[u8],
        deliver: &mut impl FnMut(&[u8], u64) -> bool,
    ) -> Result<(), DataViolation> {
        if !bytes.len().is_multiple_of(8) || !data.a.is_multiple_of(8) || !data.b.is_multiple_of(8)
        {
            return Err(DataViolation("a position or a length is not a multiple of 8"));
        }
        let mut position = data.a;
        let rest = usize::try_from(data.b).unwrap_or(usize::MAX).min(bytes.len());
        if rest > 0 {
            let (part, after) = bytes.split_at(rest);
            let end = data.a.checked_add(data.b).ok_or(OVERFLOW)?;
            position += rest as u64;
            self.take_part(position, end, part, deliver)?;
            bytes = after;
        }
        while let Some((header, after)) = bytes.split_first_chunk::<8>() {
            let word = u64::from_le_bytes(*header);
            let (length, gap) = (word as u32 as usize, (word >> 32) * 8);
            let padded = length.next_multiple_of(8);
            if length as u64 > self.longest {
                self.ended = Some(LaneEnd::Refused(EMSGSIZE));
                return Err(DataViolation("a record is longer than HELLO allows"));
            }
            let begin = position.checked_add(gap).ok_or(OVERFLOW)?;
            let end = begin.checked_add(8 + padded as u64).ok_or(OVERFLOW)?;
            let (part, after) = after.split_at(padded.min(after.len()));
            position = begin + 8 + part.len() as u64;
            bytes = after;
            if position <= self.accepted {
                continue;
            }
            if self.is_full() {
                return Ok(());
            }
            if position > self.acknowledged.saturating_add(self.grant) {
                return Err(DataViolation("a record exceeds the space that was granted"));
            }
            if self.partial.is_some() {
                self.take_part(position, end, part, deliver)?;
                continue;
            }
            if begin < self.accepted {
                return Err(DataViolation("a record begins inside another"));
            }
            self.accept(position);
            if part.len() < padded {
                let mut bytes = Vec::with_capacity(length);
                bytes.extend_from_slice(part);
                self.partial = Some(PartialRecord { end, length, bytes });
            } else if !deliver(&part[..length], end) {
                let bytes = part[..length].to_vec();
                self.partial = Some(PartialRecord { end, length, bytes });
            }
        }
        if bytes.is_empty() { Ok(()) } else { Err(DataViolation("a record's header is cut")) }
    }

    /// Takes `part`, which ends at `position`, of the record that ends at `end`.
    fn take_part(
        &mut self,
        position: u64,
        end: u64,
        part: &[u8],
        deliver: &mut impl FnMut(&[u8], u64) -> bool,
    ) -> Result<(), DataViolation> {
        if position <= self.accepted {
            return Ok(());
        }
        if position > self.acknowledged.saturating_add(self.grant) {
            return Err(DataViolation("a record exceeds the space that was granted"));
        }
        let new = (position - self.accepted) as usize;
        let Some(partial) = &mut self.partial else {
            return Err(DataViolation("a frame continues a record that did not begin"));
        };
        if partial.end != end || new > part.len() {
            return Err(DataViolation("a frame continues another record"));
        }
        let left = partial.length - partial.bytes.len();
        let part = &part[part.len() - new..];
        partial.bytes.extend_from_slice(&part[..part.len().min(left)]);
        self.accept(position);
        if position == end {
            self.deliver_waiting(deliver);
        }
        Ok(())
    }

    fn accept(&mut self, position: u64) {
        self.accepted = position;
        self.reported = false;
    }

    /// Returns `true` if a complete record waits for space in the owner's lane.
    pub fn is_full(&self) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.end == self.accepted)
    }

    /// Delivers the record that waits for space, if any. Returns [`Reply::Repeat`] if it was
    /// delivered, because later frames were dropped.
    pub fn deliver_waiting(&mut self, mut deliver: impl FnMut(&[u8], u64) -> bool) -> Reply {
        if !self.is_full() {
            return Reply::Nothing;
        }
        let delivered =
            self.partial.as_ref().is_some_and(|partial| deliver(&partial.bytes, partial.end));
        if !delivered {
            return Reply::Nothing;
        }
        self.partial = None;
        Reply::Repeat
    }

    /// Processes a `BYE` without [`frame::SETTLED`].
    pub fn on_bye(&mut self, bye: &Header) -> Reply {
        match bye.attempt.cmp(&self.attempt) {
            Ordering::Less => return Reply::Status,
            Ordering::Greater => return Reply::Unknown,
            Ordering::Equal => {}
        }
        if self.ended.is_none() {
            self.end = Some(bye.a);
            self.finish_if_acknowledged();
        }
        Reply::Status
    }

    /// Notes that the owner has acknowledged the records before `position`.
    pub fn on_acked(&mut self, position: u64) {
        self.acknowledged = self.acknowledged.max(position);
        self.finish_if_acknowledged();
    }

    /// Notes that the owner has ended, or refuses the lane. Call [`IncomingLane::on_acked`] with
    /// its last position first.
    pub fn on_owner_end(&mut self, end: LaneEnd) {
        if self.ended.is_none() {
            self.ended = Some(end);
            self.partial = None;
        }
    }

    fn finish_if_acknowledged(&mut self) {
        if self.ended.is_none() && self.end.is_some_and(|end| self.acknowledged >= end) {
            self.ended = Some(LaneEnd::Finished);
        }
    }

    /// Returns the lane's `STATUS`. If the lane was refused, its payload is the error number.
    pub fn status(&self, reply: Reply) -> Header {
        let flags = match self.ended {
            Some(LaneEnd::OwnerDied) => frame::OWNER_DIED,
            Some(LaneEnd::Closed) => frame::CLOSED,
            Some(LaneEnd::Refused(_)) => frame::REFUSED,
            Some(LaneEnd::Finished) => 0,
            None if reply == Reply::Repeat => frame::REPEAT,
            None => 0,
        };
        Header {
            flags,
            owner: self.owner,
            // What was accepted but not delivered to an owner that has ended has not been
            // processed.
            a: self.accepted.max(self.acknowledged),
            b: self.acknowledged,
            c: self.acknowledged.saturating_add(self.grant),
            ..Header::new(FrameKind::Status, self.lane, self.attempt)
        }
    }
}

/// Returns the `STATUS` that answers a frame of a lane that this gateway does not know.
pub fn unknown(header: &Header) -> Header {
    let status = Header::new(FrameKind::Status, header.lane, header.attempt);
    Header { flags: frame::UNKNOWN, ..status }
}

const OVERFLOW: DataViolation = DataViolation("a position exceeds 64 bits");
const EPROTO: i32 = 71;
const EMSGSIZE: i32 = 90;

//! The sending gateway's end of a lane: [`OutgoingLane`], which decides, and [`FrameFiller`], which
//! packs records into frames.
//!
//! Nothing here does input or output or reads a clock: the caller passes frames in, asks for frames
//! to send, and calls [`OutgoingLane::on_timer`] when nothing has happened for some time.
//!
//! Invariant: `acknowledged <= accepted <= next <= sent`, all positions in the sender's lane.
//! Messages in `[acknowledged, sent)` are in doubt; later ones were never sent.

use crate::frame::{self, FrameKind, HEADER, Header, MAX_FRAME};

/// The way in which a lane ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneEnd {
    /// The sender ended, and the owner acknowledged everything.
    Finished,
    /// The owner died.
    OwnerDied,
    /// The owner closed its mailbox.
    Closed,
    /// The other gateway, or the owner, refused the lane with this error number.
    Refused(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LanePhase {
    /// `HELLO` is not answered yet.
    Greeting,
    Open,
    Ended(LaneEnd),
}

/// The sending gateway's state of one lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutgoingLane {
    lane: u128,
    attempt: u32,
    owner: u128,
    /// `HELLO`'s flags.
    waits: u16,
    longest: u64,
    acknowledged: u64,
    accepted: u64,
    /// The position at which the next frame begins.
    next: u64,
    sent: u64,
    granted: u64,
    /// The end of the last record of a sender that has ended.
    end: Option<u64>,
    /// `true` if `BYE` was not sent since the last change or timer.
    bye_due: bool,
    /// The position from which a `STATUS` made this gateway repeat frames, until the timer.
    repeated: Option<u64>,
    phase: LanePhase,
}

/// Changes that a `STATUS` or a timer caused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneProgress {
    /// Everything before this position is acknowledged now.
    pub acked: Option<u64>,
    /// Send `HELLO`.
    pub greet: bool,
    /// Read the lane again from [`OutgoingLane::acknowledged`].
    pub rewound: bool,
    /// The lane has ended.
    pub end: Option<LaneEnd>,
}

/// A `STATUS` that no honest gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusViolation(pub &'static str);

impl OutgoingLane {
    /// Returns a lane whose records before `first` are acknowledged. `waits` is a combination of
    /// [`frame::WAITS`] and [`frame::WAITS_THROUGH_RESTARTS`].
    pub fn new(lane: u128, first: u64, waits: u16, longest: u64) -> Self {
        Self {
            lane,
            attempt: 1,
            owner: 0,
            waits,
            longest,
            acknowledged: first,
            accepted: first,
            next: first,
            sent: first,
            granted: first,
            end: None,
            bye_due: false,
            repeated: None,
            phase: LanePhase::Greeting,
        }
    }

    /// Returns the position before which the owner's gateway has accepted everything.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number that the sender gave its lane.
    pub fn lane(&self) -> u128 {
        self.lane
    }

    /// Returns the position before which the owner has acknowledged everything.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the position up to which records may have left this host.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the owner to which the lane is bound, or 0 if it is not known yet.
    pub fn owner(&self) -> u128 {
        self.owner
    }

    /// Returns `true` if the positions are in order.
    pub fn is_consistent(&self) -> bool {
        self.acknowledged <= self.accepted && self.accepted <= self.next && self.next <= self.sent
    }

    /// Returns how the lane ended.
    pub fn ended(&self) -> Option<LaneEnd> {
        if let LanePhase::Ended(end) = self.phase { Some(end) } else { None }
    }

    /// Returns `true` if the sender has ended.
    pub fn is_ending(&self) -> bool {
        self.end.is_some()
    }

    /// Returns `true` once the other gateway has answered the current `HELLO`.
    pub fn is_open(&self) -> bool {
        self.phase == LanePhase::Open
    }

    /// Returns the position at which the next frame begins, and the one up to which the other
    /// gateway has space, if the lane may send.
    pub fn window(&self) -> Option<(u64, u64)> {
        (self.phase == LanePhase::Open && self.next < self.granted)
            .then_some((self.next, self.granted))
    }

    /// Returns the `HELLO` of this attempt. Its payload is the name of the mailbox.
    pub fn hello(&self) -> Header {
        Header {
            flags: self.waits,
            // A lane that waits for a successor belongs to any owner.
            owner: if self.waits == 0 { self.owner } else { 0 },
            a: self.acknowledged,
            c: self.longest,
            ..Header::new(FrameKind::Hello, self.lane, self.attempt)
        }
    }

    /// Returns a `DATA` without records, which asks for a `STATUS`.
    pub fn probe(&self) -> Header {
        self.data(self.next, 0)
    }

    fn data(&self, position: u64, rest: u64) -> Header {
        Header {
            owner: self.owner,
            a: position,
            b: rest,
            c: self.acknowledged,
            ..Header::new(FrameKind::Data, self.lane, self.attempt)
        }
    }

    /// Returns the `BYE` of a sender that has ended, once everything is sent; again after a timer.
    pub fn take_bye(&mut self) -> Option<Header> {
        let end = self.end?;
        let due = self.bye_due && self.phase == LanePhase::Open && self.next >= end;
        self.bye_due &= !due;
        due.then(|| Header { a: end, ..Header::new(FrameKind::Bye, self.lane, self.attempt) })
    }

    /// Returns the frame that releases the other gateway's memory of a lane that has ended.
    pub fn settled(&self) -> Header {
        let flags = frame::SETTLED;
        let bye = Header::new(FrameKind::Bye, self.lane, self.attempt);
        Header { flags, a: self.acknowledged, ..bye }
    }

    /// Notes that the sender has ended, and that its last record ends at `end`.
    pub fn end_at(&mut self, end: u64) -> LaneProgress {
        self.end = Some(end);
        self.bye_due = true;
        LaneProgress { end: self.finish_if_acknowledged(), ..LaneProgress::default() }
    }

    /// Notes that a frame with the records before `position` is about to be sent.
    pub fn on_sent(&mut self, position: u64) {
        self.next = position;
        self.sent = self.sent.max(position);
    }

    /// Processes a `STATUS`.
    ///
    /// # Errors
    /// The frame contradicts what this gateway has sent.
    pub fn on_status(
        &mut self,
        status: &Header,
        errno: i32,
    ) -> Result<LaneProgress, StatusViolation> {
        if self.ended().is_some() || status.attempt < self.attempt {
            return Ok(LaneProgress::default());
        }
        // An earlier gateway of this host used a higher number.
        if status.attempt > self.attempt {
            return Ok(self.greet_for_status(status.attempt));
        }
        if status.flags & frame::UNKNOWN != 0 {
            // The other gateway was restarted.
            let open = self.phase == LanePhase::Open;
            let attempt = self.attempt;
            return Ok(if open { self.greet_for_status(attempt) } else { LaneProgress::default() });
        }
        let (accepted, acknowledged) = (status.a, status.b);
        if acknowledged > accepted {
            return Err(StatusViolation("STATUS acknowledges more than it accepts"));
        }
        if [accepted, acknowledged, status.c].iter().any(|position| !position.is_multiple_of(8)) {
            return Err(StatusViolation("a position in STATUS is not a multiple of 8"));
        }
        let other_owner = self.waits == 0 && self.owner != 0 && status.owner != self.owner;
        // The other gateway holds a lane that an old HELLO began, or this is an old STATUS. A new
        // HELLO settles both.
        if accepted < self.accepted || other_owner {
            return Ok(self.greet_for_status(self.attempt));
        }
        // An earlier gateway of this host may have sent more. The caller checks what is
        // acknowledged against what it has read.
        self.sent = self.sent.max(accepted);
        self.phase = LanePhase::Open;
        self.owner = status.owner;
        self.granted = self.granted.max(status.c);
        self.accepted = accepted;
        let mut progress = LaneProgress::default();
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            progress.acked = Some(acknowledged);
        }
        self.next = self.next.max(self.accepted);
        let repeats = status.flags & frame::REPEAT != 0 && self.next > self.accepted;
        if repeats && self.may_repeat(accepted) {
            self.next = accepted;
            progress.rewound = true;
        }
        progress.end = match status.flags & (frame::OWNER_DIED | frame::CLOSED | frame::REFUSED) {
            0 => self.finish_if_acknowledged(),
            frame::OWNER_DIED => Some(LaneEnd::OwnerDied),
            frame::CLOSED => Some(LaneEnd::Closed),
            _ => Some(LaneEnd::Refused(errno)),
        };
        if let Some(end) = progress.end {
            self.phase = LanePhase::Ended(end);
        }
        Ok(progress)
    }

    fn finish_if_acknowledged(&mut self) -> Option<LaneEnd> {
        let finished = self.end.is_some_and(|end| self.acknowledged >= end);
        let finished = (finished && self.ended().is_none()).then_some(LaneEnd::Finished)?;
        self.phase = LanePhase::Ended(finished);
        Some(finished)
    }

    /// Returns `true` if a `STATUS` may cause frames from `position` to be sent again. A peer that
    /// accepts nothing new causes that once; then the timer repeats them.
    fn may_repeat(&mut self, position: u64) -> bool {
        let may = self.repeated.is_none_or(|repeated| repeated < position);
        if may {
            self.repeated = Some(position);
        }
        may
    }

    /// Like [`OutgoingLane::greet_again`], but if the peer has caused it before and accepted
    /// nothing since, the timer sends the `HELLO`.
    fn greet_for_status(&mut self, attempt: u32) -> LaneProgress {
        let greet = self.may_repeat(self.acknowledged);
        LaneProgress { greet, ..self.greet_again(attempt) }
    }

    /// Begins the lane again, from the acknowledged position, with a number above `attempt`.
    fn greet_again(&mut self, attempt: u32) -> LaneProgress {
        self.attempt = attempt.wrapping_add(1);
        self.phase = LanePhase::Greeting;
        self.accepted = self.acknowledged;
        self.next = self.acknowledged;
        self.granted = self.acknowledged;
        self.bye_due = true;
        LaneProgress { greet: true, rewound: true, ..LaneProgress::default() }
    }

    /// Begins the lane again, because the other gateway was restarted.
    pub fn on_restart(&mut self) -> LaneProgress {
        if self.ended().is_some() {
            LaneProgress::default()
        } else {
            self.greet_again(self.attempt)
        }
    }

    /// Returns `true` while the lane expects an answer: if none arrives, call
    /// [`OutgoingLane::on_timer`].
    pub fn is_waiting(&self) -> bool {
        match self.phase {
            LanePhase::Greeting => true,
            LanePhase::Open => self.acknowledged < self.sent || self.end.is_some(),
            LanePhase::Ended(_) => false,
        }
    }

    /// Returns `true` if a `STATUS` would show progress for which the owner is not needed: the
    /// other gateway has not answered, or not accepted everything.
    pub fn is_unanswered(&self) -> bool {
        self.phase == LanePhase::Greeting || self.accepted < self.next
    }

    /// Repeats what may be lost: the `HELLO`, or everything that was not accepted. If everything
    /// was, send a [probe](OutgoingLane::probe) and the [`BYE`](OutgoingLane::take_bye).
    pub fn on_timer(&mut self) -> LaneProgress {
        let greet = self.phase == LanePhase::Greeting;
        let rewound = self.phase == LanePhase::Open && self.accepted < self.next;
        if rewound {
            self.next = self.accepted;
        }
        self.bye_due = true;
        self.repeated = None;
        LaneProgress { greet, rewound, ..LaneProgress::default() }
    }
}

/// Packs records into one `DATA` frame.
///
/// A record is a header of 8 bytes (`length: u32`, then `gap: u32`, the number of bytes between the
/// record and the one before it, divided by 8) and its payload, padded to a multiple of 8 bytes.
/// The last record of a frame may continue in the next one.
pub struct FrameFiller<'a> {
    frame: &'a mut Vec<u8>,
    max_frame: usize,
    next: u64,
    until: u64,
}

impl<'a> FrameFiller<'a> {
    /// Begins a frame of at most [`MAX_FRAME`] bytes at the position of the lane's next frame.
    pub fn new(lane: &OutgoingLane, frame: &'a mut Vec<u8>) -> Self {
        Self::with_max_frame(lane, frame, MAX_FRAME)
    }

    /// Like [`FrameFiller::new`], but for a link whose frames have at most `max_frame` bytes.
    ///
    /// # Panics
    /// Panics if `max_frame` is less than a frame's header and 16 bytes.
    pub fn with_max_frame(lane: &OutgoingLane, frame: &'a mut Vec<u8>, max_frame: usize) -> Self {
        assert!(max_frame >= HEADER + 16, "no record fits into {max_frame} bytes");
        lane.data(lane.next, 0).begin(frame);
        Self { frame, max_frame, next: lane.next, until: lane.granted }
    }

    /// Adds the record at `position`, which ends at `end`, or the part of it that was not sent yet.
    /// `copy` appends a range of the payload. Returns `true` if the record is sent completely, and
    /// `false` if the frame is full.
    pub fn offer(
        &mut self,
        position: u64,
        end: u64,
        length: usize,
        copy: impl FnOnce(std::ops::Range<usize>, &mut Vec<u8>),
    ) -> bool {
        if end <= self.next {
            return true;
        }
        let padded = length.next_multiple_of(8);
        // A frame continues a record with 8 bytes at least, and begins one with its header, too.
        let least = if position < self.next { self.next } else { position + 8 };
        let least = least + padded.min(8) as u64;
        if least > self.until || self.max_frame - self.frame.len() < 16 {
            return false;
        }
        let done = if position < self.next {
            // Only the first record of a frame may have begun in an earlier one.
            self.frame[48..56].copy_from_slice(&(end - self.next).to_le_bytes());
            (self.next - position) as usize - 8
        } else {
            let gap = ((position - self.next) / 8) as u32;
            self.frame.extend_from_slice(&(length as u32).to_le_bytes());
            self.frame.extend_from_slice(&gap.to_le_bytes());
            0
        };
        let space = (self.max_frame - self.frame.len()) / 8 * 8;
        let granted = usize::try_from(self.until - position - 8).unwrap_or(usize::MAX);
        let part_end = padded.min(done + space).min(granted / 8 * 8);
        copy(done.min(length)..part_end.min(length), self.frame);
        self.frame.resize(self.frame.len().next_multiple_of(8), 0);
        self.next = position + 8 + part_end as u64;
        part_end == padded
    }

    /// Completes the frame. Returns the position after its last byte, or `None` if it has no
    /// record.
    pub fn finish(self) -> Option<u64> {
        if self.frame.len() == frame::HEADER {
            return None;
        }
        frame::seal(self.frame);
        Some(self.next)
    }
}

//! Space for a sender's messages, in its chunk or a new one: [`Growth`] decides, within the caps.
//!
//! `docs/internals/recovery.md` lists the steps: the sender first passes the new chunk, then
//! announces it in `next`. Neighbours: [`super::account`] counts chunks; [`super::outbound`] passes
//! them.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use super::accepted_lane::AcceptedLane;
use super::account::ChunkAccount;
use super::connection::DepartedReceiver;
use crate::error::{Error, Peer, Result};
use crate::lane::LaneWriter;
use crate::lane::page::{MAX_LOG2, MIN_LOG2, log2_for, longest_message};
use crate::mailbox::settings::Settings;
use crate::mailbox::wire::LaneIdentity;
use crate::mailbox::wire::MOST_CHUNKS;
use crate::sys::region::OwnRegion;

/// Base-2 logarithm of the minimum size (64 KiB) of a chunk that the sender fills before the lane
/// grows.
const COMFORTABLE_LOG2: u32 = 16;

/// Time without freed space after which an awake receiver is considered not to keep up.
const KEEPING_UP: Duration = Duration::from_micros(100);

/// Minimum length in bytes of a message for which the bound of large messages applies.
const LARGE: usize = 64 << 10;

/// Interval between requests for a larger grant.
const BETWEEN_WANTS: Duration = Duration::from_millis(10);

/// Size of a lane, and the limits of its growth.
pub(super) struct Growth {
    /// The chunks' share of the cap, with their descriptors if a successor may need them.
    chunks: ChunkAccount,
    /// The sender's own cap: the total chunk size in bytes.
    own_cap: u64,
    /// The total chunk size in bytes up to which the lane grows for large messages that fit.
    large_backlog: u64,
    /// Base-2 logarithm of the first chunk's size.
    first_log2: u32,
    /// `true` if a successor may need the chunks' descriptors.
    keeps_descriptors: bool,
    identity: LaneIdentity,
    /// The cap of the last receiver that accepted the lane and was replaced; before the first
    /// replacement, the sender's own cap.
    last_cap: u64,
    /// Time and size of the last request.
    wanted: Option<(Instant, u64)>,
    /// Time since which only released chunks leave no space for a message.
    held_since: Option<Instant>,
}

/// A message's search for space.
pub(super) struct SpaceRequest {
    pub(super) length: usize,
    /// `true` to grow immediately rather than wait for a receiver that keeps up.
    pub(super) at_once: bool,
    /// Time since which the chunk has been full, while the receiver may free space.
    full_since: Option<Instant>,
}

/// The next step when a chunk is too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrowthStep {
    /// Stay in the chunk: the caps allow no growth now.
    Stay,
    /// Continue in a chunk whose size in bytes has this base-2 logarithm.
    GoOnIn(u32),
    /// Request a total grant of this many bytes.
    AskFor(u64),
}

impl SpaceRequest {
    pub(super) fn new(length: usize, at_once: bool) -> Self {
        Self { length, at_once, full_since: None }
    }

    /// Returns `true` if waiting is better than growing: an active receiver frees space soon, and a
    /// chunk that stays in the cache is worth more than a chunk that never fills.
    pub(super) fn waits_for(
        &mut self,
        reader: &AcceptedLane,
        writer: &LaneWriter<OwnRegion>,
    ) -> bool {
        if self.at_once || writer.log2() < COMFORTABLE_LOG2 || reader.is_asleep() {
            return false;
        }
        let since = *self.full_since.get_or_insert_with(Instant::now);
        since.elapsed() < KEEPING_UP
    }
}

impl Growth {
    /// Makes a lane's first chunk. If the lane `has_address`, keeps its descriptor until it is
    /// known whether the lane may have a successor.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`], or [`Error::System`] if memory or a descriptor is not available.
    pub(super) fn begin(
        options: &Settings,
        has_address: bool,
    ) -> Result<(Self, LaneWriter<OwnRegion>)> {
        let first_log2 = options.first_chunk.min(options.lane_cap).ilog2();
        let identity = LaneIdentity::new(options.on_death)?;
        let (region, descriptor) = OwnRegion::new("tontine-chunk", 1 << first_log2)?;
        identity.write(&region);
        let growth = Self {
            chunks: ChunkAccount::new(first_log2, descriptor),
            own_cap: options.lane_cap,
            large_backlog: options.large_backlog,
            first_log2,
            keeps_descriptors: has_address,
            identity,
            last_cap: options.lane_cap,
            wanted: None,
            held_since: None,
        };
        Ok((growth, LaneWriter::new(region, first_log2)))
    }

    /// Returns the base-2 logarithm of the size of the lane's first chunk.
    pub(super) fn first_log2(&self) -> u32 {
        self.first_log2
    }

    /// Returns the descriptors of all chunks, or none if no successor needs them.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.chunks.descriptors()
    }

    /// Returns `true` if the receiver may still hold chunks that left the lane.
    pub(super) fn is_memory_held(&self) -> bool {
        self.chunks.held() > 0
    }

    /// Closes the descriptors after they were passed, if no successor will need them.
    pub(super) fn passed_on(&mut self) {
        if !self.keeps_descriptors {
            self.chunks.close_descriptors();
        }
    }

    /// Records whether the lane may have a successor, which then needs the chunks.
    pub(super) fn keep_for_successor(&mut self, keeps: bool) {
        if self.keeps_descriptors != keeps {
            self.keeps_descriptors = keeps;
            self.passed_on();
        }
    }

    /// Records that the oldest chunks have left the lane.
    pub(super) fn release(&mut self, writer: &LaneWriter<OwnRegion>) {
        self.chunks.release_until(writer.chunks());
    }

    /// Records that the lane was handed over: the ended receiver's cap is the best estimate of the
    /// next receiver's.
    pub(super) fn handed_over(&mut self, last: Option<&DepartedReceiver>) {
        if let Some(last) = last {
            self.last_cap = last.max_message().unwrap_or(self.own_cap);
        }
    }

    /// Returns the cap that applies (total chunk size, in bytes), and the receiver if the cap is
    /// the receiver's. The cap is the smaller of the sender's and, once known, the receiver's. The
    /// cap of a receiver that has ended does not bind its successor, which may accept more.
    pub(super) fn cap(&self, reader: Option<&AcceptedLane>) -> (u64, Option<Peer>) {
        match reader.and_then(|reader| Some((reader.max_message()?, reader.peer))) {
            Some((theirs, peer)) if theirs < self.own_cap => (theirs, Some(peer)),
            _ => (self.own_cap, None),
        }
    }

    /// Returns the base-2 logarithm of the size of the largest chunk that always fits into a cap:
    /// half of the cap, or the first chunk.
    pub(super) fn largest_log2(&self, cap: u64) -> u32 {
        let half = (cap.max(2).ilog2() - 1).clamp(MIN_LOG2, MAX_LOG2);
        half.max(self.first_log2)
    }

    /// Checks that a message can ever fit into the lane.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the message can never fit.
    pub(super) fn check_length(
        &self,
        length: usize,
        (cap, set_by): (u64, Option<Peer>),
        writer: &LaneWriter<OwnRegion>,
    ) -> Result<()> {
        // The current chunk may be larger than the rule allows; any message that fits into it is
        // sent.
        let largest = self.largest_log2(cap).max(writer.log2());
        let most = longest_message(1 << largest);
        if length <= most {
            return Ok(());
        }
        Err(Error::TooLarge { len: length as u64, max: most as u64, set_by })
    }

    /// Returns the total chunk size, in bytes, that a lane without a receiver may have. The next
    /// owner accepts the chunks that HELLO passes, and most likely has the same cap as the last
    /// owner.
    pub(super) fn expected_grant(
        &self,
        last: Option<&DepartedReceiver>,
        writer: &LaneWriter<OwnRegion>,
    ) -> u64 {
        let last_cap = last.and_then(DepartedReceiver::max_message).unwrap_or(self.last_cap);
        writer.bytes().max(last_cap)
    }

    /// Returns the next step to find space for a message of `length` bytes. `granted` is `None`
    /// while the grant is unknown or about to be lowered.
    pub(super) fn plan(
        &mut self,
        length: usize,
        cap: u64,
        granted: Option<u64>,
        writer: &LaneWriter<OwnRegion>,
    ) -> GrowthStep {
        let needed = log2_for(length).unwrap_or(MAX_LOG2);
        // A receiver refuses a smaller chunk.
        let least = writer.chain_bytes().next_power_of_two().ilog2();
        if writer.chunks() == MOST_CHUNKS || least > MAX_LOG2 {
            return GrowthStep::Stay;
        }
        let log2 = (writer.log2() + 1).max(needed).max(least).min(MAX_LOG2);
        let fits_here = needed <= writer.log2();
        if length >= LARGE && fits_here && writer.bytes() + (1 << log2) > self.large_backlog {
            return GrowthStep::Stay;
        }
        self.chunks.update();
        let fits = |log2: u32, cap: u64| writer.bytes() + (1 << log2) <= cap;
        // The new chunk need not be twice as large: the rest of the cap may have space for a
        // smaller one.
        let left = self.bytes_left(cap, writer).max(1).ilog2();
        let mut log2 = log2.min(left);
        if log2 < needed.max(least).max(MIN_LOG2) {
            return GrowthStep::Stay;
        }
        let largest = self.largest_log2(cap);
        if self.leaves_no_space_for_largest(log2, largest) {
            if fits_here {
                return GrowthStep::Stay;
            }
            if (least..=left).contains(&largest)
                && granted.is_some_and(|granted| fits(largest, granted))
            {
                log2 = largest;
            }
        }
        match granted {
            None => GrowthStep::Stay,
            Some(granted) if fits(log2, granted) => GrowthStep::GoOnIn(log2),
            // The lane requests no more, because other lanes may need the rest.
            Some(_) => GrowthStep::AskFor(writer.bytes() + (1 << log2)),
        }
    }

    /// Returns the total chunk size, in bytes, that the caps still allow. Released chunks that the
    /// receiver still holds also count against the sender's own cap, which allows one more small
    /// chunk, because a lane needs one to return a large chunk.
    fn bytes_left(&self, cap: u64, writer: &LaneWriter<OwnRegion>) -> u64 {
        let small = if self.is_memory_held() { 1 << self.first_log2 } else { 0 };
        let own = (self.own_cap + small).saturating_sub(self.chunks.bytes());
        own.min(cap.saturating_sub(writer.bytes()))
    }

    /// Checks whether a message of `length` bytes waits for released chunks alone, because
    /// everything in the lane is read.
    ///
    /// # Errors
    /// [`Error::ChunksHeld`]: at once if the kernel does not report the release of these chunks,
    /// otherwise if the wait has lasted for `limit`.
    pub(super) fn check_held(
        &mut self,
        length: usize,
        writer: &LaneWriter<OwnRegion>,
        limit: Duration,
    ) -> Result<()> {
        let needed = log2_for(length).unwrap_or(MAX_LOG2);
        let (held, unknown) = (self.chunks.held(), self.chunks.unknown());
        let fits_without = |freed: u64| {
            let bytes = self.chunks.bytes() - freed + (1 << needed);
            bytes <= self.own_cap + (1 << self.first_log2)
        };
        let waits_for_chunks = writer.is_read() && fits_without(held) && !fits_without(0);
        if !waits_for_chunks {
            self.held_since = None;
            return Ok(());
        }
        let is_unknown = !fits_without(held - unknown);
        let since = *self.held_since.get_or_insert_with(Instant::now);
        if is_unknown || since.elapsed() >= limit {
            return Err(Error::ChunksHeld { held, cap: self.own_cap, is_unknown });
        }
        Ok(())
    }

    /// Returns `true` if, after a chunk of this size, the lane could not grow to its largest chunk
    /// while the receiver holds released chunks, possibly until the sender ends.
    fn leaves_no_space_for_largest(&self, log2: u32, largest: u32) -> bool {
        self.is_memory_held()
            && log2 < largest
            && self.exceeds_cap_with((1 << log2) + (1 << largest))
    }

    /// Returns `true` if `bytes` more would exceed the sender's own cap plus one small chunk.
    fn exceeds_cap_with(&self, bytes: u64) -> bool {
        self.chunks.bytes() + bytes > self.own_cap + (1 << self.first_log2)
    }

    /// Returns `true` if it is time to request this many bytes. A request at every check for space
    /// would fill the socket's queue.
    pub(super) fn is_request_due(&mut self, bytes: u64) -> bool {
        let now = Instant::now();
        let is_due =
            self.wanted.is_none_or(|(at, before)| bytes > before || now - at >= BETWEEN_WANTS);
        if is_due {
            self.wanted = Some((now, bytes));
        }
        is_due
    }

    /// Records that memory was returned, which makes earlier requests invalid.
    pub(super) fn returned(&mut self) {
        self.wanted = None;
    }

    /// Returns the size of the small chunk in which a lane without unread messages continues, to
    /// return its large one; `None` if it stays in the large one.
    pub(super) fn smaller_log2(
        &mut self,
        cap: u64,
        granted: u64,
        writer: &LaneWriter<OwnRegion>,
    ) -> Option<u32> {
        let small = self.first_log2;
        let fits = writer.bytes() + (1 << small) <= granted;
        // While the receiver still holds chunks that were returned earlier, the sender returns no
        // more, because the lane must still be able to grow to its largest chunk.
        self.chunks.update();
        let largest = self.largest_log2(cap);
        let reaches = writer.log2() >= largest || !self.exceeds_cap_with(1 << largest);
        let still_reaches = self.chunks.bytes() + (1 << largest) <= self.own_cap;
        (writer.log2() > small && fits && (still_reaches || !reaches)).then_some(small)
    }

    /// Makes a chunk of two to the power `log2` bytes.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`], or [`Error::System`] if memory or a descriptor is not available.
    pub(super) fn make_chunk(&self, log2: u32) -> Result<(OwnRegion, OwnedFd)> {
        let made = OwnRegion::new("tontine-chunk", 1 << log2)?;
        self.identity.write(&made.0);
        Ok(made)
    }

    /// Records that the lane continues in a chunk of two to the power `log2` bytes.
    pub(super) fn goes_on_in(&mut self, log2: u32, descriptor: OwnedFd) {
        self.chunks.push(log2, descriptor);
        self.passed_on();
    }
}

//! Where a sender finds room: in its chunk, or in a new one.
//!
//! Every step is in `docs/recovery.md`: the new chunk is passed first and announced by `next` then.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::joined::Joined;
use super::options::Options;
use super::sender::Sender;
use super::wire::{self, MOST_CHUNKS, Note};
use crate::error::{Error, Peer, Result};
use crate::lane::Room;
use crate::lane::page::{LEAST_LOG2, MOST_LOG2, log2_for, longest_message};
use crate::sys::region::OwnRegion;
use crate::sys::socket::{self, Sent};

/// Chunks of this size or more fill before they grow: 64 KiB.
const COMFORTABLE_LOG2: u32 = 16;

/// An awake reader that makes no room for so long does not keep up.
const KEEPING_UP: Duration = Duration::from_micros(100);

/// More room is asked for this often at most.
const BETWEEN_WANTS: Duration = Duration::from_millis(10);

impl Sender {
    /// Whether a message of `length` bytes has room now, in this chunk or in a new one.
    pub(super) fn find_room(
        &mut self,
        length: usize,
        at_once: bool,
        thorough: bool,
    ) -> Result<bool> {
        self.check_length(length)?;
        if self.writer.fits(length) {
            return Ok(true);
        }
        if !thorough {
            self.refresh_room()?;
            return Ok(self.writer.make_room(length) == Room::Here);
        }
        self.refresh()?;
        match self.writer.make_room(length) {
            Room::Here => Ok(true),
            Room::Never => Ok(self.grow(length)? && self.writer.make_room(length) == Room::Here),
            Room::Later if !at_once && self.reader_keeps_up() => Ok(false),
            Room::Later => match self.grow(length) {
                // The message fits into this chunk once the reader has made room.
                Err(Error::FileTooLarge { .. }) => Ok(false),
                grown => Ok(grown? && self.writer.make_room(length) == Room::Here),
            },
        }
    }

    /// Refuses a message that will never fit, as soon as that is certain.
    pub(super) fn check_length(&self, length: usize) -> Result<()> {
        let (cap, set_by) = self.cap();
        // A chunk may be larger than the rule wants it, and what fits there is welcome.
        let largest = self.largest_log2(cap).max(self.writer.log2());
        let most = longest_message(1 << largest);
        if length <= most {
            return Ok(());
        }
        Err(Error::TooLarge { len: length as u64, most: most as u64, set_by })
    }

    /// The cap that counts in bytes of chunks, and who set it: ours, or the receiver's once it is
    /// known. What a receiver that is gone would have taken binds nobody: its successor may take
    /// more.
    pub(super) fn cap(&self) -> (u64, Option<Peer>) {
        let own = self.options.lane_cap;
        match self.connection.joined.as_ref().and_then(|joined| Some((joined.most()?, joined.peer)))
        {
            Some((theirs, peer)) if theirs < own => (theirs, Some(peer)),
            _ => (own, None),
        }
    }

    /// Two to this power are the bytes of the largest chunk that a cap always has room for: half of
    /// it, or the first.
    pub(super) fn largest_log2(&self, cap: u64) -> u32 {
        let half = (cap.max(2).ilog2() - 1).clamp(LEAST_LOG2, MOST_LOG2);
        half.max(first_log2(&self.options))
    }

    /// Whether the lane is better left as it is: a reader that is at work makes room soon, and a
    /// chunk that stays in the cache is worth more than one that never fills.
    pub(super) fn reader_keeps_up(&mut self) -> bool {
        let Some(joined) = &self.connection.joined else { return false };
        if self.writer.log2() < COMFORTABLE_LOG2 || joined.is_asleep() {
            return false;
        }
        let since = *self.full_since.get_or_insert_with(Instant::now);
        since.elapsed() < KEEPING_UP
    }

    /// Goes on in a larger chunk. `false` where caps or memory do not allow it now.
    pub(super) fn grow(&mut self, length: usize) -> Result<bool> {
        let needed = log2_for(length).unwrap_or(MOST_LOG2);
        let log2 = (self.writer.log2() + 1).max(needed).min(MOST_LOG2);
        let granted = match &mut self.connection.joined {
            // The next owner takes what it is brought, and most probably has the last one's cap.
            _ if self.ended.is_some() => {
                let most = self.connection.last().and_then(Joined::most);
                let most = most.unwrap_or(self.most_before);
                Some(self.writer.bytes().max(most))
            }
            Some(joined) => joined.granted(),
            // Nothing is granted yet but what it was brought.
            None => None,
        };
        if self.writer.chunks() == MOST_CHUNKS {
            return Ok(false);
        }
        self.chunks.update();
        let fits = |log2: u32, cap: u64| self.writer.bytes() + (1 << log2) <= cap;
        // Doubling is a habit, not a need: what is left of the cap may hold a smaller one.
        let left = self.bytes_left().max(1).ilog2();
        let mut log2 = log2.min(left);
        if log2 < needed.max(LEAST_LOG2) {
            return Ok(false);
        }
        if self.leaves_no_space_for_largest(log2) {
            if needed <= self.writer.log2() {
                return Ok(false);
            }
            let largest = self.largest_log2(self.cap().0);
            if largest <= left && granted.is_some_and(|granted| fits(largest, granted)) {
                log2 = largest;
            }
        }
        match granted {
            None => Ok(false),
            Some(granted) if fits(log2, granted) => self.go_on_in(log2),
            // No more than that: what nobody uses, others cannot have.
            Some(_) => self.ask_for(self.writer.bytes() + (1 << log2)).map(|()| false),
        }
    }

    /// Returns how many bytes of chunks the caps still allow. Our own counts what the receiver
    /// holds of released chunks, with a small chunk on top, which a lane needs to give a large one
    /// back.
    fn bytes_left(&self) -> u64 {
        let small = if self.chunks.held() > 0 { 1 << first_log2(&self.options) } else { 0 };
        let own = (self.options.lane_cap + small).saturating_sub(self.chunks.bytes());
        own.min(self.cap().0.saturating_sub(self.writer.bytes()))
    }

    /// Returns `true` if a chunk of this size would keep the lane from a larger one for as long as
    /// the receiver holds released chunks, which may be until the connection ends.
    fn leaves_no_space_for_largest(&self, log2: u32) -> bool {
        let largest = self.largest_log2(self.cap().0);
        self.chunks.held() > 0
            && log2 < largest
            && self.exceeds_cap_with((1 << log2) + (1 << largest))
    }

    /// Returns `true` if our own cap, and a small chunk on top, has no space for this much more.
    fn exceeds_cap_with(&self, bytes: u64) -> bool {
        let small = 1 << first_log2(&self.options);
        self.chunks.bytes() + bytes > self.options.lane_cap + small
    }

    /// Asks to be granted more; not at every look for room, or the queue would be full of it.
    fn ask_for(&mut self, bytes: u64) -> Result<()> {
        let now = Instant::now();
        if self.wanted.is_none_or(|(at, before)| bytes > before || now - at >= BETWEEN_WANTS) {
            self.wanted = Some((now, bytes));
            socket::send(&self.connection.socket, &wire::write(Note::Want(bytes)), &[])?;
        }
        Ok(())
    }

    /// Returns to a small chunk, if everything in the large one is read, and gives up what was
    /// granted besides.
    pub(super) fn give_back(&mut self) {
        let Some(granted) = self.connection.joined.as_mut().and_then(Joined::granted) else {
            return;
        };
        if self.refresh().is_err() || !self.writer.is_read() {
            return;
        }
        let small = first_log2(&self.options);
        let fits = self.writer.bytes() + (1 << small) <= granted;
        // A receiver that holds what was given back before gets no more of it: the lane must still
        // be able to grow to its largest chunk.
        self.chunks.update();
        let largest = self.largest_log2(self.cap().0);
        let reaches = self.writer.log2() >= largest || !self.exceeds_cap_with(1 << largest);
        let still_reaches = self.chunks.bytes() + (1 << largest) <= self.options.lane_cap;
        let fits = fits && (still_reaches || !reaches);
        // Should there be no memory for the small one, the large one stays.
        if self.writer.log2() > small && fits && self.go_on_in(small) == Ok(true) {
            self.writer.forget_old();
            self.chunks.release_until(self.writer.chunks());
        }
        self.connection.say_returned();
        // What was asked for before that counts no longer.
        self.wanted = None;
    }

    /// Passes a new chunk, then publishes that it is the next.
    pub(super) fn go_on_in(&mut self, log2: u32) -> Result<bool> {
        let (region, descriptor) = match OwnRegion::new("tontine-chunk", 1 << log2) {
            Ok(made) => made,
            // No memory, no descriptor: as if the cap were reached.
            Err(error) if is_shortage(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        // A dead reader takes no more chunks: its successor gets them all at once.
        if self.ended.is_none() {
            let note = wire::write(Note::Chunk(log2, self.writer.sequence()));
            match socket::send(&self.connection.socket, &note, &[descriptor.as_fd()])? {
                Sent::Yes => {}
                Sent::Full => return Ok(false),
                Sent::Gone => {
                    self.end(self.connection.end());
                    return Ok(false);
                }
            }
        }
        self.writer.go_on_in(region, log2);
        self.chunks.push(log2, descriptor);
        if !self.options.on_death.waits() {
            self.chunks.close_descriptors();
        }
        self.published();
        Ok(true)
    }
}

/// Two to this power are the bytes of a lane's first chunk.
pub(super) fn first_log2(options: &Options) -> u32 {
    options.first_chunk.min(options.lane_cap).ilog2()
}

fn is_shortage(error: &Error) -> bool {
    [libc::ENOMEM, libc::ENOSPC, libc::EMFILE, libc::ENFILE].contains(&error.errno())
}

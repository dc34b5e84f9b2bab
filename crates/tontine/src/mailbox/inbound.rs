//! One lane as its receiver keeps it: [`Inbound`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::wire::{FenceMode, MOST_CHUNKS, Note};
use super::{Message, SenderId, wire};
use crate::error::Peer;
use crate::lane::control::Control;
use crate::lane::mapped::half_of_peer;
use crate::lane::page::{LEAST_LOG2, MOST_LOG2, WAITING_AT};
use crate::lane::reader::Broken;
use crate::lane::region::Region;
use crate::lane::{Found, Reader};
use crate::life::Watch;
use crate::sync::{Ordering, fence};
use crate::sys::fork::Guard;
use crate::sys::membarrier;
use crate::sys::region::PeerRegion;
use crate::sys::socket::{self, Passed, Socket};

/// What a look found: at a lane, or at all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look<T> {
    /// A message.
    Message(T),
    /// Nothing; whoever sends from now on rings. Or the lane stands still for what we lack, and the
    /// descriptor tells when to try again.
    Nothing,
    /// Not all that stands there was looked at. Nobody rings for the rest: look again.
    Again,
}

impl<T> Look<T> {
    pub(super) fn message(self) -> Option<T> {
        if let Self::Message(found) = self { Some(found) } else { None }
    }
}

/// One lane, with everything that the receiver holds for it.
pub(super) struct Inbound {
    reader: Reader<PeerRegion>,
    control: Control,
    /// The position when the sender was last told of room.
    told_at: u64,
    symmetric: bool,
    /// Looks that found something; to tell busy lanes from idle ones.
    pub(super) found: u32,
    /// `found` when it was last looked at.
    pub(super) found_before: u32,
    /// The connection hung up, or the process ended: what is there is read, then the lane goes.
    pub(super) ended: bool,
    /// Chunks passed and not yet announced, the oldest first.
    passed: VecDeque<(PeerRegion, u32)>,
    /// Notes were left in the queue when they were last read.
    more_notes: bool,
    /// A note is there for which there were no descriptors, or no memory.
    unreceived: bool,
    /// The socket tells of that no longer.
    pub(super) put_off: bool,
    /// What was wrong with a chunk or its note.
    broken: Option<Broken>,
    /// Bytes of chunks that it would like to have in all, where it cannot have them yet; else 0.
    pub(super) wants: u64,
    /// Since when it has been empty, with a chunk larger than it began with.
    pub(super) idle_since: Option<Instant>,
    asked_back: bool,
    /// It has given back what it was asked for; the last of it once its newest chunk is reached.
    returned: bool,
    first_size: usize,
    /// Bytes that it may have beside its chunk without asking.
    spare: u64,
    /// Bytes of chunks that it may have.
    pub(super) granted: u64,
    /// What the sender would take at most.
    pub(super) cap: u64,
    pub(super) socket: Socket,
    pub(super) doorbell: Socket,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) watch: Watch,
    pub(super) peer: Peer,
    pub(super) id: SenderId,
}

/// What a lane begins with.
pub(super) struct Beginning {
    pub(super) position: u64,
    /// Bytes of the chunk to which it returns when it is idle.
    pub(super) returns_to: usize,
    pub(super) reader: Reader<PeerRegion>,
    pub(super) passed: VecDeque<(PeerRegion, u32)>,
    pub(super) control: Control,
    pub(super) fences: FenceMode,
    pub(super) granted: u64,
    pub(super) cap: u64,
    pub(super) doorbell: Socket,
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) watch: Watch,
    pub(super) peer: Peer,
    pub(super) id: SenderId,
}

impl Inbound {
    pub(super) fn new(beginning: Beginning, socket: Socket) -> Self {
        let first_size = beginning.returns_to;
        let brought = beginning.reader.size() as u64 + bytes_of(&beginning.passed);
        Self {
            reader: beginning.reader,
            control: beginning.control,
            told_at: beginning.position,
            symmetric: beginning.fences == FenceMode::Symmetric,
            found: 0,
            found_before: 0,
            ended: false,
            passed: beginning.passed,
            more_notes: false,
            unreceived: false,
            put_off: false,
            broken: None,
            wants: 0,
            idle_since: None,
            asked_back: false,
            returned: false,
            first_size,
            spare: beginning.granted.saturating_sub(brought),
            granted: beginning.granted,
            cap: beginning.cap,
            socket,
            doorbell: beginning.doorbell,
            pidfd: beginning.pidfd,
            watch: beginning.watch,
            peer: beginning.peer,
            id: beginning.id,
        }
    }

    pub(super) fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Whether a note, or the chunk that came with it, waits for descriptors or memory of ours.
    pub(super) fn is_short(&self) -> bool {
        self.unreceived
    }

    /// The next message, if it stands there and nothing else has to be done.
    #[inline(always)]
    pub(super) fn message(&mut self) -> Option<usize> {
        let Ok(Found::Message(length)) = self.reader.look() else { return None };
        self.reader.expect_more();
        self.found = self.found.wrapping_add(1);
        Some(length)
    }

    /// Looks at the next record, through one change of chunks at most.
    ///
    /// # Errors
    /// The sender broke the protocol.
    #[inline(always)]
    pub(super) fn look(&mut self) -> Result<Look<usize>, Broken> {
        match self.reader.look()? {
            Found::Message(length) => {
                self.found = self.found.wrapping_add(1);
                Ok(Look::Message(length))
            }
            Found::Nothing => {
                if self.reader.position() != self.told_at {
                    self.tell_of_room();
                }
                Ok(Look::Nothing)
            }
            Found::Next(log2) => self.follow(log2),
        }
    }

    /// Whether nothing stands there: for lanes that are probably idle.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Goes on in the chunk that `next` announced. The sender passed it before.
    #[cold]
    fn follow(&mut self, log2: u32) -> Result<Look<usize>, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let followed = self.follow_sound(log2);
        // A second look would not find the note again that was wrong.
        self.broken = followed.err();
        followed
    }

    fn follow_sound(&mut self, log2: u32) -> Result<Look<usize>, Broken> {
        if self.passed.is_empty() {
            self.read_notes()?;
        }
        let Some((region, passed)) = self.passed.pop_front() else {
            // It may be behind more notes than one look takes, or we lack what it takes to open it.
            return match (self.more_notes, self.is_short()) {
                (true, true) => Ok(Look::Nothing),
                (true, false) => Ok(Look::Again),
                (false, _) => {
                    Err(Broken("a record continues in a next chunk, but no chunk was passed"))
                }
            };
        };
        if passed != log2 {
            return Err(Broken(
                "a record names another size for the next chunk than the passed one has",
            ));
        }
        drop(self.reader.follow(region, log2));
        self.first_size = self.first_size.min(self.reader.size());
        self.idle_since = None;
        // What comes before is acknowledged: `look` is called only then. It frees the old chunk.
        self.acknowledge_position();
        self.lower_grant();
        match self.reader.look()? {
            Found::Message(length) => {
                self.found = self.found.wrapping_add(1);
                Ok(Look::Message(length))
            }
            // A chunk a look: a chain of empty ones takes as many. And where nothing stands in it,
            // the next look tells the sender so.
            Found::Nothing | Found::Next(_) => Ok(Look::Again),
        }
    }

    /// Copies the message just found.
    #[inline(always)]
    pub(super) fn copy(&self, length: usize, into: &mut Vec<u8>) {
        self.reader.region().copy_out(self.reader.payload_at(), length, into);
    }

    /// Where the message just found lies.
    pub(super) fn payload(&self) -> std::ptr::NonNull<u8> {
        self.reader.region().place(self.reader.payload_at())
    }

    /// Acknowledges the message just found.
    #[inline(always)]
    pub(super) fn acknowledge(&mut self, length: usize) {
        self.reader.advance(length);
        self.acknowledge_position();
        if self.reader.position() - self.told_at >= (self.reader.size() / 4) as u64 {
            self.tell_of_room();
        }
    }

    /// Gives the messages that stand there to `each`, at most `most`, and acknowledges each as it
    /// returns. Returns how many.
    #[inline(always)]
    pub(super) fn drain(
        &mut self,
        most: usize,
        copied: &mut Vec<u8>,
        guard: Guard,
        each: &mut impl FnMut(&Message<'_>),
    ) -> usize {
        for count in 0..most {
            let Some(length) = self.message() else { return count };
            copied.clear();
            self.copy(length, copied);
            each(&Message { bytes: copied, sender: self.id, peer: self.peer });
            // A child that `each` has forked has no page to acknowledge on.
            if guard.is_forked() {
                return count + 1;
            }
            self.acknowledge(length);
        }
        most
    }

    #[inline(always)]
    fn acknowledge_position(&mut self) {
        self.control.acknowledge(self.reader.position());
    }

    /// Wakes the sender if it waits for room, or for everything to be read.
    #[cold]
    fn tell_of_room(&mut self) {
        self.told_at = self.reader.position();
        // First: where it is padding that was passed, the exact position has not told of it, and a
        // sender that has seen the room would find us to have unread it.
        self.control.acknowledge(self.told_at);
        self.control.make_room(self.told_at);
        if self.sender_waits() {
            // A full queue already holds one; a sender that is gone needs none.
            let _ = socket::send(&self.socket, &wire::write(Note::Room), &[]);
        }
    }

    /// Wakes the sender if it waits and there is any news for it. [`Inbound::acknowledge`] lets
    /// news gather, since each piece costs a waking; a program that takes its time has the sender
    /// wait for longer than that.
    #[inline]
    pub(super) fn tell_if_waiting(&mut self) {
        if self.reader.position() != self.told_at && self.sender_waits() {
            self.tell_of_room();
        }
    }

    /// Whether the sender waits, after a store of our position.
    #[inline]
    fn sender_waits(&self) -> bool {
        // The mirror of the doorbell: our position is stored, now we load `waiting`; the sender
        // stores `waiting`, then looks at the position once more.
        // SYNC room-waiting: pairs with the barrier in `Joined::separate_heavily`.
        if self.symmetric {
            fence(Ordering::SeqCst);
        } else {
            membarrier::light();
        }
        half_of_peer(self.reader.region(), WAITING_AT).load(Ordering::Relaxed) != 0
    }

    /// Takes what the sender says on the socket; bounded, so that one sender cannot hold us.
    ///
    /// # Errors
    /// It said what no honest sender says.
    pub(super) fn read_notes(&mut self) -> Result<(), Broken> {
        let mut bytes = [0; wire::LONGEST];
        self.more_notes = true;
        self.unreceived = false;
        for _ in 0..2 * MOST_CHUNKS {
            let received = match socket::receive(&self.socket, &mut bytes) {
                Ok(Some(received)) => received,
                Ok(None) => {
                    self.more_notes = false;
                    return Ok(());
                }
                // No memory for what is there: later.
                Err(_) => {
                    self.unreceived = true;
                    return Ok(());
                }
            };
            if received.hung_up {
                self.more_notes = false;
                self.ended = true;
                return Ok(());
            }
            if received.has_descriptors {
                let left = self.chunk_bytes_left();
                let expected = move |bytes: &[u8]| wire::expected(bytes, left);
                match socket::receive_passed(&self.socket, wire::LONGEST, false, expected) {
                    Ok(Some(passed)) => self.pass(passed)?,
                    Ok(None) => {}
                    // It stays in the queue until there is what it takes.
                    Err(_) => {
                        self.unreceived = true;
                        return Ok(());
                    }
                }
                continue;
            }
            match wire::read_received(&bytes[..received.len], received.oversize) {
                Ok(Note::Want(bytes)) => {
                    self.cap = self.cap.max(bytes);
                    self.wants = bytes;
                }
                Ok(Note::Returned) if self.asked_back && !self.returned => {
                    self.returned = true;
                    self.wants = 0;
                    self.lower_grant();
                }
                _ => return Err(STRANGE_NOTE),
            }
        }
        Ok(())
    }

    /// Bytes of a chunk that the sender may still pass.
    fn chunk_bytes_left(&self) -> u64 {
        self.granted.saturating_sub(self.reader.size() as u64 + bytes_of(&self.passed))
    }

    /// Takes the chunk that a note passed.
    fn pass(&mut self, passed: Passed) -> Result<(), Broken> {
        let note = wire::read_received(&passed.bytes, passed.oversize);
        let (Ok(Note::Chunk(log2, _)), 1) = (note, passed.count) else { return Err(STRANGE_NOTE) };
        if self.passed.len() == MOST_CHUNKS {
            return Err(Broken("more than 32 chunks were passed and not used"));
        }
        if chunk_size(log2)? as u64 > self.chunk_bytes_left() {
            return Err(Broken("a chunk is larger than the bytes that were granted"));
        }
        let mut memory = passed.memory.map_err(|unfit| Broken(unfit.what()))?;
        self.passed.push_back((memory.pop().ok_or(STRANGE_NOTE)?, log2));
        Ok(())
    }

    /// Lets the sender have more.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.granted = bytes;
        self.control.grant(bytes);
        self.tell_of_room();
    }

    /// Takes back what the sender has given back. It grows no more until it sees `GIVE_BACK`
    /// cleared: so it never uses what it was granted before.
    fn lower_grant(&mut self) {
        if !self.returned || !self.passed.is_empty() {
            return;
        }
        let size = self.reader.size();
        // What it could not give back is not asked for again.
        self.first_size = self.first_size.max(size);
        self.asked_back = false;
        self.returned = false;
        let granted = self.granted.min(size as u64 + self.spare);
        self.control.grant(granted);
        self.control.give_back(false);
        self.granted = granted;
        self.tell_of_room();
    }

    /// Asks a lane that has been empty since `before` for a chunk that is larger than the first,
    /// and, where others want it, for what it was granted and does not use beyond a `share`.
    /// Returns whether there is still something to ask for, later.
    pub(super) fn ask_back(&mut self, now: Instant, before: Instant, share: Option<u64>) -> bool {
        if let Some(share) = share {
            self.spare = self.spare.min(share);
        }
        let unused = share.is_some() && self.granted > self.reader.size() as u64 + self.spare;
        let large = self.reader.size() > self.first_size;
        if self.asked_back || !(large || unused) || !self.is_empty() {
            self.idle_since = None;
            return false;
        }
        match self.idle_since {
            Some(since) if since <= before => {
                self.control.give_back(true);
                self.asked_back = true;
                self.idle_since = None;
                // It may be waiting for more, with what others wait for.
                self.tell_of_room();
                false
            }
            Some(_) => true,
            None => {
                self.idle_since = Some(now);
                true
            }
        }
    }

    /// Says that nothing more is taken.
    pub(super) fn close(&mut self) {
        self.control.close();
        let _ = socket::send(&self.socket, &wire::write(Note::Room), &[]);
    }
}

const STRANGE_NOTE: Broken =
    Broken("expected CHUNK, WANT or RETURNED in turn, found another message");

fn bytes_of(chunks: &VecDeque<(PeerRegion, u32)>) -> u64 {
    chunks.iter().map(|(_, log2)| 1_u64 << log2).sum()
}

/// Bytes of a chunk that a sender announced.
pub(super) fn chunk_size(log2: u32) -> Result<usize, Broken> {
    let possible = (LEAST_LOG2..=MOST_LOG2).contains(&log2);
    possible
        .then(|| 1 << log2)
        .ok_or(Broken("a chunk's size is not a power of two from 4 KiB to 1 GiB"))
}

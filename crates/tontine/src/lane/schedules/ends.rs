//! Models of the mailbox's two ends: [`ScheduledSender`] and [`ScheduledMailbox`]. Both run the
//! library's own `LaneWriter` and `LaneReader`. Between them are the socket and the control page
//! ([`LaneShared`]) and the address ([`HandoverSlot`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

use shuttle::thread;

use super::pace::{ChunkView, PacedThread};
use crate::lane::page::{CLOSED, GIVE_BACK};
use crate::lane::position;
use crate::lane::region::LaneMemory;
use crate::lane::region::models::ModelRegion;
use crate::lane::{FreeSpace, LaneReader, LaneWriter, Peeked};
use crate::sync::{AtomicU64, Ordering};

/// Base-2 logarithm of the first chunk's size.
const SMALL: u32 = 8;
/// Maximum number of bytes in all chunks of a lane.
const CAP: u64 = 1024 + 512 + 256;
/// Number of messages that each sender sends.
pub(super) const MESSAGES: u32 = 12;

/// State that both ends of a lane share besides its chunks: a socket and a control page.
#[derive(Default)]
struct LaneShared {
    passed: Mutex<VecDeque<(ModelRegion, u32)>>,
    position: AtomicU64,
    state: AtomicU32,
    receiver_died: AtomicBool,
}

/// Returns message `number` of `sender`, whose length depends on both.
pub(super) fn message(sender: u32, number: u32) -> Vec<u8> {
    let length = 8 + (number * 23 + sender * 11) as usize % 90;
    let mut bytes = vec![number as u8; length];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..8].copy_from_slice(&sender.to_le_bytes());
    bytes
}

/// The content of HELLO: the state from which a receiver begins or continues a lane.
struct HandOver {
    link: Arc<LaneShared>,
    chunks: VecDeque<(ModelRegion, u32)>,
    base: u64,
    position: u64,
}

/// The model of an address: the handovers that wait for a receiver.
#[derive(Default)]
pub(super) struct HandoverSlot {
    waiting: Mutex<VecDeque<HandOver>>,
    /// Number of senders that have ended.
    pub(super) ended: AtomicUsize,
}

/// A model of `mailbox::Sender`.
pub(super) struct ScheduledSender {
    name: u32,
    writer: LaneWriter<ChunkView>,
    link: Arc<LaneShared>,
    pace: PacedThread,
    door: Arc<HandoverSlot>,
    /// Number of messages whose `push` has returned.
    sent: Arc<AtomicU32>,
}

impl ScheduledSender {
    pub(super) fn connect(
        name: u32,
        pace: PacedThread,
        door: &Arc<HandoverSlot>,
        sent: Arc<AtomicU32>,
    ) -> Self {
        let chunk = ChunkView { heap: ModelRegion::new(1 << SMALL), pace: pace.clone() };
        let mut sender = Self {
            name,
            writer: LaneWriter::new(chunk, SMALL),
            link: Arc::default(),
            pace,
            door: door.clone(),
            sent,
        };
        sender.hand_over();
        sender
    }

    /// Sends `HELLO` to the first receiver or to a successor.
    fn hand_over(&mut self) {
        self.link = Arc::default();
        let position = self.writer.position();
        position::publish(&self.link.position, position);
        let chunks = self.writer.chain().map(|link| (link.region.heap.clone(), link.log2));
        let chunks = chunks.collect();
        let (base, link) = (self.writer.base(), self.link.clone());
        self.pace.step();
        let mut waiting = self.door.waiting.lock().expect("not poisoned");
        waiting.push_back(HandOver { link, chunks, base, position });
    }

    fn refresh(&mut self) {
        self.pace.step();
        let position = position::read(&self.link.position);
        self.writer.believe(position).expect("an honest receiver");
    }

    fn state(&self) -> u32 {
        self.pace.step();
        self.link.state.load(Ordering::Relaxed)
    }

    fn receiver_died(&self) -> bool {
        self.pace.step();
        self.link.receiver_died.load(Ordering::Relaxed)
    }

    fn go_on_in(&mut self, log2: u32) {
        let chunk = ChunkView { heap: ModelRegion::new(1 << log2), pace: self.pace.clone() };
        self.pace.step();
        let note = (chunk.heap.clone(), log2);
        self.link.passed.lock().expect("not poisoned").push_back(note);
        self.writer.go_on_in(chunk, log2);
    }

    /// Prepares the sender for the next message. Returns `false` if the receiver has closed.
    fn ready(&mut self) -> bool {
        if self.receiver_died() {
            self.refresh();
            self.hand_over();
        }
        let state = self.state();
        if state & GIVE_BACK != 0 {
            self.refresh();
            if self.writer.is_read() && self.writer.log2() > SMALL {
                self.go_on_in(SMALL);
                self.writer.forget_old();
            }
        }
        state & CLOSED == 0
    }

    /// Sends one message. Returns `false` if the receiver has closed.
    fn send(&mut self, number: u32) -> bool {
        let message = message(self.name, number);
        while self.ready() {
            let found = self.writer.fits(message.len()) || {
                self.refresh();
                self.writer.make_room(message.len()) == FreeSpace::Here
            };
            if found {
                if number.is_multiple_of(3) {
                    if !self.reserve_and_commit(&message) {
                        return false;
                    }
                } else {
                    self.writer.push(&message);
                }
                self.sent.store(number + 1, Ordering::Relaxed);
                return true;
            }
            let log2 = self.writer.log2() + 1;
            if self.writer.bytes() + (1 << log2) <= CAP {
                self.go_on_in(log2);
            } else {
                thread::yield_now();
            }
        }
        false
    }

    /// Writes a message in place, checks the receiver, and publishes the message. The receiver may
    /// have died or requested the chunk back in the meantime. Returns `false` if the receiver has
    /// closed.
    fn reserve_and_commit(&mut self, message: &[u8]) -> bool {
        let (place, at) = (self.writer.place(), self.writer.payload_at());
        self.writer.region().copy_in(at, message);
        if self.state() & CLOSED != 0 && !self.receiver_died() {
            return false;
        }
        self.writer.publish(place, message.len());
        true
    }

    /// Sends all messages, and hands the lane over until all messages are read. Returns the
    /// messages that were unread when the receiver closed.
    pub(super) fn run(&mut self) -> Vec<Vec<u8>> {
        let open = (0..MESSAGES).all(|number| self.send(number));
        while open && !self.writer.is_read() && self.ready() {
            self.refresh();
            thread::yield_now();
        }
        self.refresh();
        self.writer.take_back()
    }
}

/// A model of a mailbox's lane.
pub(super) struct ScheduledLane {
    reader: LaneReader<ChunkView>,
    link: Arc<LaneShared>,
    chunks: VecDeque<(ModelRegion, u32)>,
}

/// A model of `mailbox::Mailbox`.
pub(super) struct ScheduledMailbox {
    pub(super) lanes: Vec<ScheduledLane>,
    pace: PacedThread,
    door: Arc<HandoverSlot>,
    pub(super) taken: Arc<Mutex<MessageCounts>>,
}

/// The messages that one receiver took, for the checks at the end of a test.
#[derive(Default)]
pub(super) struct MessageCounts {
    /// The messages in the order of arrival; each contains its sender.
    pub(super) delivered: Vec<Vec<u8>>,
    pub(super) acknowledged: Vec<Vec<u8>>,
}

impl ScheduledMailbox {
    pub(super) fn new(pace: PacedThread, door: &Arc<HandoverSlot>) -> Self {
        Self { lanes: Vec::new(), pace, door: door.clone(), taken: Arc::default() }
    }

    pub(super) fn accept(&mut self) {
        self.pace.step();
        // From this point, `mark_dead` reaches these lanes.
        let come = std::mem::take(&mut *self.door.waiting.lock().expect("not poisoned"));
        for HandOver { link, mut chunks, base, position } in come {
            let (heap, log2) = chunks.pop_front().expect("the first chunk");
            let chunk = ChunkView { heap, pace: self.pace.clone() };
            let reader = LaneReader::new(chunk, log2, base, position).expect("an honest sender");
            self.lanes.push(ScheduledLane { reader, link, chunks });
        }
    }

    /// Checks each lane once. Returns `true` if any lane had a record.
    fn pass(&mut self) -> bool {
        let mut any = false;
        for lane in &mut self.lanes {
            match lane.reader.look().expect("an honest sender") {
                Peeked::Nothing => {
                    if lane.reader.size() > 1 << SMALL {
                        self.pace.step();
                        lane.link.state.fetch_or(GIVE_BACK, Ordering::Relaxed);
                    }
                    continue;
                }
                Peeked::Message(length) => {
                    let mut bytes = Vec::new();
                    let at = lane.reader.payload_at();
                    lane.reader.region().copy_out(at, length, &mut bytes);
                    self.taken.lock().expect("not poisoned").delivered.push(bytes.clone());
                    self.pace.step();
                    lane.reader.advance(length);
                    position::publish(&lane.link.position, lane.reader.position());
                    self.taken.lock().expect("not poisoned").acknowledged.push(bytes);
                }
                Peeked::Next(log2) => {
                    self.pace.step();
                    let mut passed = lane.link.passed.lock().expect("not poisoned");
                    let next = lane.chunks.pop_front().or_else(|| passed.pop_front());
                    drop(passed);
                    let (heap, announced) = next.expect("a chunk is passed before `next`");
                    assert_eq!(announced, log2);
                    lane.reader.follow(ChunkView { heap, pace: self.pace.clone() }, log2);
                    lane.link.state.fetch_and(!GIVE_BACK, Ordering::Relaxed);
                    self.pace.step();
                    position::publish(&lane.link.position, lane.reader.position());
                }
            }
            any = true;
        }
        any
    }

    /// Receives until `senders` senders have ended, or `most` messages have arrived.
    pub(super) fn run(&mut self, senders: usize, most: usize) {
        loop {
            // The counter is read before both checks because a sender that has already ended sends
            // nothing after them.
            self.pace.step();
            let all = self.door.ended.load(Ordering::Relaxed) == senders;
            self.accept();
            let any = self.pass();
            if !any && all || self.taken.lock().expect("not poisoned").delivered.len() >= most {
                return;
            }
            if !any {
                thread::yield_now();
            }
        }
    }

    pub(super) fn close(&self) {
        for lane in &self.lanes {
            self.pace.step();
            lane.link.state.fetch_or(CLOSED, Ordering::Relaxed);
        }
    }

    /// Marks this receiver as dead, as the kernel does, for the senders of its lanes.
    pub(super) fn mark_dead(&self) {
        for lane in &self.lanes {
            lane.link.receiver_died.store(true, Ordering::Relaxed);
        }
    }
}

//! The two ends as the mailbox makes them, over the library's own Writer and Reader: [`Sender`] and
//! [`Receiver`], and what stands between them, the socket, the control page ([`Link`]) and the
//! address ([`Door`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

use shuttle::thread;

use super::pace::{Chunk, Pace};
use crate::lane::page::{CLOSED, GIVE_BACK};
use crate::lane::position;
use crate::lane::region::Region;
use crate::lane::region::model::Heap;
use crate::lane::{Found, Reader, Room, Writer};
use crate::sync::{AtomicU64, Ordering};

const SMALL: u32 = 8;
/// Chunks of a lane have so many bytes in all.
const CAP: u64 = 1024 + 512 + 256;
/// That each sender has to send.
pub(super) const MESSAGES: u32 = 12;

/// What both ends of a lane share beside its chunks: a socket and a control page.
#[derive(Default)]
struct Link {
    passed: Mutex<VecDeque<(Heap, u32)>>,
    position: AtomicU64,
    state: AtomicU32,
    receiver_died: AtomicBool,
}

/// `number` of `sender`, of a length of its own.
pub(super) fn message(sender: u32, number: u32) -> Vec<u8> {
    let length = 8 + (number * 23 + sender * 11) as usize % 90;
    let mut bytes = vec![number as u8; length];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..8].copy_from_slice(&sender.to_le_bytes());
    bytes
}

/// What a receiver needs to begin, or to go on.
struct HandOver {
    link: Arc<Link>,
    chunks: VecDeque<(Heap, u32)>,
    base: u64,
    position: u64,
}

/// Where hand-overs wait for a receiver.
#[derive(Default)]
pub(super) struct Door {
    waiting: Mutex<VecDeque<HandOver>>,
    /// Senders that will not come again.
    pub(super) ended: AtomicUsize,
}

/// As `mailbox::Sender`.
pub(super) struct Sender {
    name: u32,
    writer: Writer<Chunk>,
    link: Arc<Link>,
    pace: Pace,
    door: Arc<Door>,
    /// Messages whose `push` has returned.
    sent: Arc<AtomicU32>,
}

impl Sender {
    pub(super) fn connect(name: u32, pace: Pace, door: &Arc<Door>, sent: Arc<AtomicU32>) -> Self {
        let chunk = Chunk { heap: Heap::new(1 << SMALL), pace: pace.clone() };
        let mut sender = Self {
            name,
            writer: Writer::new(chunk, SMALL),
            link: Arc::default(),
            pace,
            door: door.clone(),
            sent,
        };
        sender.hand_over();
        sender
    }

    /// `HELLO`, the first one or a successor's.
    fn hand_over(&mut self) {
        self.link = Arc::default();
        let position = self.writer.position();
        position::publish(&self.link.position, position);
        let chunks = self.writer.chain().map(|link| (link.region.heap.clone(), link.log2));
        let chunks = chunks.collect();
        let (base, link) = (self.writer.base(), self.link.clone());
        self.pace.step();
        let mut waiting = self.door.waiting.lock().expect("nobody dies with it");
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
        let chunk = Chunk { heap: Heap::new(1 << log2), pace: self.pace.clone() };
        self.pace.step();
        let note = (chunk.heap.clone(), log2);
        self.link.passed.lock().expect("nobody dies with it").push_back(note);
        self.writer.go_on_in(chunk, log2);
    }

    /// Does what is to be done before a message; `false` where the receiver has closed.
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

    /// Sends one message; `false` where the receiver has closed.
    fn send(&mut self, number: u32) -> bool {
        let message = message(self.name, number);
        while self.ready() {
            let found = self.writer.fits(message.len()) || {
                self.refresh();
                self.writer.make_room(message.len()) == Room::Here
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

    /// Writes it where it will stand, then looks at the receiver, which may have asked for the
    /// chunk or died since, and publishes it where it stands; `false` where the receiver has
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

    /// Sends all, and hands over until all is read; takes back what a closed receiver left.
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

/// As a mailbox's lane.
pub(super) struct Lane {
    reader: Reader<Chunk>,
    link: Arc<Link>,
    chunks: VecDeque<(Heap, u32)>,
}

/// As `mailbox::Mailbox`.
pub(super) struct Receiver {
    pub(super) lanes: Vec<Lane>,
    pace: Pace,
    door: Arc<Door>,
    pub(super) taken: Arc<Mutex<Taken>>,
}

/// What became of messages, for the end of the test.
#[derive(Default)]
pub(super) struct Taken {
    /// As they came, with each one's sender.
    pub(super) delivered: Vec<Vec<u8>>,
    pub(super) acknowledged: Vec<Vec<u8>>,
}

impl Receiver {
    pub(super) fn new(pace: Pace, door: &Arc<Door>) -> Self {
        Self { lanes: Vec::new(), pace, door: door.clone(), taken: Arc::default() }
    }

    pub(super) fn accept(&mut self) {
        self.pace.step();
        // Lanes are known from here on to whoever notes this one's death.
        let come = std::mem::take(&mut *self.door.waiting.lock().expect("nobody dies with it"));
        for HandOver { link, mut chunks, base, position } in come {
            let (heap, log2) = chunks.pop_front().expect("the first chunk");
            let chunk = Chunk { heap, pace: self.pace.clone() };
            let reader = Reader::new(chunk, log2, base, position).expect("an honest sender");
            self.lanes.push(Lane { reader, link, chunks });
        }
    }

    /// One look at each lane; whether there was anything.
    fn pass(&mut self) -> bool {
        let mut any = false;
        for lane in &mut self.lanes {
            match lane.reader.look().expect("an honest sender") {
                Found::Nothing => {
                    if lane.reader.size() > 1 << SMALL {
                        self.pace.step();
                        lane.link.state.fetch_or(GIVE_BACK, Ordering::Relaxed);
                    }
                    continue;
                }
                Found::Message(length) => {
                    let mut bytes = Vec::new();
                    let at = lane.reader.payload_at();
                    lane.reader.region().copy_out(at, length, &mut bytes);
                    self.taken.lock().expect("no death").delivered.push(bytes.clone());
                    self.pace.step();
                    lane.reader.advance(length);
                    position::publish(&lane.link.position, lane.reader.position());
                    self.taken.lock().expect("no death").acknowledged.push(bytes);
                }
                Found::Next(log2) => {
                    self.pace.step();
                    let mut passed = lane.link.passed.lock().expect("nobody dies with it");
                    let next = lane.chunks.pop_front().or_else(|| passed.pop_front());
                    drop(passed);
                    let (heap, announced) = next.expect("a chunk is passed before `next`");
                    assert_eq!(announced, log2);
                    lane.reader.follow(Chunk { heap, pace: self.pace.clone() }, log2);
                    lane.link.state.fetch_and(!GIVE_BACK, Ordering::Relaxed);
                    self.pace.step();
                    position::publish(&lane.link.position, lane.reader.position());
                }
            }
            any = true;
        }
        any
    }

    /// Receives until so many senders have ended, or so many messages have come.
    pub(super) fn run(&mut self, senders: usize, most: usize) {
        loop {
            // Before both looks: who has ended by now neither knocks nor writes after them.
            self.pace.step();
            let all = self.door.ended.load(Ordering::Relaxed) == senders;
            self.accept();
            let any = self.pass();
            if !any && all || self.taken.lock().expect("no death").delivered.len() >= most {
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

    /// The kernel's word of its death, to everybody who knows it or waits at its door.
    pub(super) fn mark_dead(&self) {
        for lane in &self.lanes {
            lane.link.receiver_died.store(true, Ordering::Relaxed);
        }
    }
}

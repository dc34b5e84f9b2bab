//! Whole protocols of the lane in many random schedules, with deaths in them.
//!
//! Senders and a receiver as the mailbox makes them, over the library's own Writer and Reader: they
//! grow, give back, close, die and hand over. What the operating system does is modelled: the
//! queue of the socket by a [`VecDeque`], the control page by a few words, the life word by a flag
//! that is set when a thread has stopped. Each access to anything shared is a point at which
//! shuttle may switch, and at which a thread may die ([`Pace`]). Weak memory is not shown here:
//! that is `models`.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::page::{CLOSED, GIVE_BACK};
use super::position;
use super::region::Region;
use super::region::model::Heap;
use super::{Found, Reader, Room, Writer};
use crate::sync::{AtomicU64, Ordering};

const SMALL: u32 = 8;
/// Chunks of a lane have so many bytes in all.
const CAP: u64 = 1024 + 512 + 256;
const MESSAGES: u32 = 12;

/// One thread's way through the protocol.
#[derive(Clone)]
struct Pace {
    switch: Arc<shuttle::sync::atomic::AtomicU32>,
    /// Dies at the step at which this is 0.
    left: Arc<AtomicU32>,
}

/// How a thread leaves that dies.
struct Died;

impl Pace {
    fn new(steps: u32) -> Self {
        let switch = Arc::new(shuttle::sync::atomic::AtomicU32::new(0));
        Self { switch, left: Arc::new(AtomicU32::new(steps)) }
    }

    fn immortal() -> Self {
        Self::new(u32::MAX)
    }

    /// Dies somewhere, or does not come so far.
    fn mortal() -> Self {
        Self::new(thread_rng().gen_range(0..400))
    }

    /// Before each access to what is shared.
    fn step(&self) {
        self.switch.load(Ordering::SeqCst);
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            // Past the panic hook: this is no failure.
            resume_unwind(Box::new(Died));
        }
        self.left.store(left - 1, Ordering::Relaxed);
    }
}

/// Runs what may die; tells whether it did.
fn lives<T>(body: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Died>() => None,
        Err(failure) => resume_unwind(failure),
    }
}

/// One end's view of a chunk.
#[derive(Clone)]
struct Chunk {
    heap: Heap,
    pace: Pace,
}

impl Region for Chunk {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.pace.step();
        self.heap.word(at)
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, piece) in bytes.chunks(8).enumerate() {
            self.pace.step();
            self.heap.copy_in(at + 8 * index, piece);
        }
    }

    fn copy_out(&self, at: usize, length: usize, into: &mut Vec<u8>) {
        for start in (0..length).step_by(8) {
            self.pace.step();
            self.heap.copy_out(at + start, (length - start).min(8), into);
        }
    }
}

/// What both ends of a lane share beside its chunks: a socket and a control page.
#[derive(Default)]
struct Link {
    passed: Mutex<VecDeque<(Heap, u32)>>,
    position: AtomicU64,
    state: AtomicU32,
    receiver_died: AtomicBool,
}

/// `number` of `sender`, of a length of its own.
fn message(sender: u32, number: u32) -> Vec<u8> {
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
struct Door {
    waiting: Mutex<VecDeque<HandOver>>,
    /// Senders that will not come again.
    ended: AtomicUsize,
}

/// As `mailbox::Sender`.
struct Sender {
    name: u32,
    writer: Writer<Chunk>,
    link: Arc<Link>,
    pace: Pace,
    door: Arc<Door>,
    /// Messages whose `push` has returned.
    sent: Arc<AtomicU32>,
}

impl Sender {
    fn connect(name: u32, pace: Pace, door: &Arc<Door>, sent: Arc<AtomicU32>) -> Self {
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

    /// Writes it where it will stand, then looks at the receiver, which may have asked for the chunk
    /// or died since, and publishes it where it stands; `false` where the receiver has closed.
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
    fn run(&mut self) -> Vec<Vec<u8>> {
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
struct Lane {
    reader: Reader<Chunk>,
    link: Arc<Link>,
    chunks: VecDeque<(Heap, u32)>,
}

/// As `mailbox::Mailbox`.
struct Receiver {
    lanes: Vec<Lane>,
    pace: Pace,
    door: Arc<Door>,
    taken: Arc<Mutex<Taken>>,
}

/// What became of messages, for the end of the test.
#[derive(Default)]
struct Taken {
    /// As they came, with each one's sender.
    delivered: Vec<Vec<u8>>,
    acknowledged: Vec<Vec<u8>>,
}

impl Receiver {
    fn new(pace: Pace, door: &Arc<Door>) -> Self {
        Self { lanes: Vec::new(), pace, door: door.clone(), taken: Arc::default() }
    }

    fn accept(&mut self) {
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
    fn run(&mut self, senders: usize, most: usize) {
        loop {
            self.accept();
            // Before the look: who has ended by now writes nothing after it.
            self.pace.step();
            let all = self.door.ended.load(Ordering::Relaxed) == senders;
            let any = self.pass();
            if !any && all || self.taken.lock().expect("no death").delivered.len() >= most {
                return;
            }
            if !any {
                thread::yield_now();
            }
        }
    }

    fn close(&self) {
        for lane in &self.lanes {
            self.pace.step();
            lane.link.state.fetch_or(CLOSED, Ordering::Relaxed);
        }
    }

    /// The kernel's word of its death, to everybody who knows it or waits at its door.
    fn mark_dead(&self) {
        for lane in &self.lanes {
            lane.link.receiver_died.store(true, Ordering::Relaxed);
        }
    }
}

/// Those of `messages` that are one sender's, by their numbers.
fn numbers(messages: &[Vec<u8>], sender: u32) -> Vec<u32> {
    let number = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let from = |bytes: &[u8]| u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let own = messages.iter().filter(|message| from(message) == sender);
    own.map(|bytes| {
        assert_eq!(*bytes, message(sender, number(bytes)), "a torn message");
        number(bytes)
    })
    .collect()
}

fn begin_senders(count: u32, pace: fn() -> Pace, door: &Arc<Door>) -> Vec<Sending> {
    (0..count)
        .map(|name| {
            let (pace, door) = (pace(), door.clone());
            let sent: Arc<AtomicU32> = Arc::default();
            let counted = sent.clone();
            let handle = thread::spawn(move || {
                let back = lives(|| Sender::connect(name, pace, &door, counted).run());
                door.ended.fetch_add(1, Ordering::Relaxed);
                back
            });
            Sending { sent, handle }
        })
        .collect()
}

struct Sending {
    sent: Arc<AtomicU32>,
    /// What it took back; nothing where it died.
    handle: thread::JoinHandle<Option<Vec<Vec<u8>>>>,
}

/// Two senders, one receiver that closes after so many messages.
fn growth_and_close() {
    let door = Arc::new(Door::default());
    let sending = begin_senders(2, Pace::immortal, &door);
    let most = thread_rng().gen_range(1..=2 * MESSAGES as usize);
    let mut receiver = Receiver::new(Pace::immortal(), &door);
    receiver.run(2, most);
    // Whoever knocks from here on finds a closed door.
    while receiver.lanes.len() < 2 {
        receiver.accept();
        thread::yield_now();
    }
    receiver.close();
    let acknowledged = receiver.taken.lock().expect("no panic").acknowledged.clone();
    for (name, one) in (0..).zip(sending) {
        let back = one.handle.join().expect("no panic").expect("immortal");
        let mut whole = numbers(&acknowledged, name);
        whole.extend(numbers(&back, name));
        let sent = one.sent.load(Ordering::Relaxed);
        assert_eq!(whole, (0..sent).collect::<Vec<_>>(), "lost or twice, of sender {name}");
    }
}

/// A receiver that dies, another that dies, and one that does not.
fn succession() {
    let door = Arc::new(Door::default());
    let sending = begin_senders(2, Pace::immortal, &door);
    let mut reigns = Vec::new();
    for pace in [Pace::mortal(), Pace::mortal(), Pace::immortal()] {
        let mut receiver = Receiver::new(pace, &door);
        // A reign ends by death; the last one when everything has come.
        let died = lives(|| receiver.run(2, usize::MAX)).is_none();
        receiver.mark_dead();
        reigns.push(receiver.taken);
        if !died {
            break;
        }
    }
    for (name, one) in (0..).zip(sending) {
        let back = one.handle.join().expect("no panic").expect("immortal");
        assert!(back.is_empty(), "all was received");
        let mut acknowledged = 0;
        for taken in &reigns {
            let taken = taken.lock().expect("no panic");
            let delivered = numbers(&taken.delivered, name);
            let count = delivered.len() as u32;
            // From the first that nobody acknowledged on, in order; one more than acknowledged at
            // most.
            assert_eq!(delivered, (acknowledged..acknowledged + count).collect::<Vec<_>>());
            let done = numbers(&taken.acknowledged, name).len() as u32;
            assert!(count - done <= 1, "{count} delivered, {done} acknowledged");
            acknowledged += done;
        }
        assert_eq!(acknowledged, MESSAGES);
    }
}

/// Two senders that die somewhere.
fn dying_senders() {
    let door = Arc::new(Door::default());
    let sending = begin_senders(2, Pace::mortal, &door);
    let mut receiver = Receiver::new(Pace::immortal(), &door);
    receiver.run(2, usize::MAX);
    let delivered = &receiver.taken.lock().expect("no panic").delivered;
    for (name, one) in (0..).zip(sending) {
        one.handle.join().expect("no panic");
        let sent = one.sent.load(Ordering::Relaxed);
        assert_eq!(numbers(delivered, name), (0..sent).collect::<Vec<_>>());
    }
}

/// Both schedulers: uniformly random switches, and few switches at bad moments.
fn explore(body: fn()) {
    shuttle::check_random(body, 150);
    shuttle::check_pct(body, 150, 3);
}

#[test]
fn closed_lanes_lose_nothing() {
    explore(growth_and_close);
}

#[test]
fn successors_read_on_where_the_dead_acknowledged() {
    explore(succession);
}

#[test]
fn dead_senders_leave_whole_messages() {
    explore(dying_senders);
}

//! What crosses: in order, whole, none twice, none overwritten.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::check;
use crate::lane::position;
use crate::lane::record::{Header, NOTHING};
use crate::lane::region::Region;
use crate::lane::region::model::Heap;
use crate::lane::{Found, Reader, Room, Writer};
use crate::sync::AtomicU64;
use crate::sync::weakened::Fault;

/// A chunk with a ring of 128 bytes.
const LOG2: u32 = 8;

/// The longest message for it; three do not fit.
const LONG: usize = 48;

/// The header of a message is stored without release.
const MESSAGE_RELAXED: Fault =
    Fault::StoreRelaxed(|word| matches!(Header::claimed(word), Some(Header::Message(_))));
/// The header of a padding is stored without release.
const PADDING_RELAXED: Fault =
    Fault::StoreRelaxed(|word| matches!(Header::claimed(word), Some(Header::Padding(_))));
/// The position is stored without release: no header is as small as the positions of a model.
const POSITION_RELAXED: Fault = Fault::StoreRelaxed(|word| Header::claimed(word).is_none());
/// The header that follows is not set to zero.
const NOTHING_KEPT: Fault = Fault::StoreOmitted(|word| word == NOTHING);

/// Message `number`, of `length` bytes, none of which it shares with another.
fn message(number: usize, length: usize) -> Vec<u8> {
    vec![number as u8 + 1; length]
}

/// Chunks that were passed over the socket and not taken yet.
type Passed = Mutex<Vec<(Heap, u32)>>;

/// What both ends see but the ring itself.
#[derive(Clone)]
struct Shared {
    position: Arc<AtomicU64>,
    passed: Arc<Passed>,
}

impl Shared {
    fn new() -> Self {
        Self { position: Arc::new(AtomicU64::new(0)), passed: Arc::new(Mutex::new(Vec::new())) }
    }
}

/// The receiving end, as a mailbox uses it.
struct Receiver {
    reader: Reader<Heap>,
    shared: Shared,
    taken: Vec<Vec<u8>>,
}

impl Receiver {
    fn new(ring: Heap, shared: &Shared) -> Self {
        let reader = Reader::new(ring, LOG2, 0, 0).expect("the beginning of a lane");
        Self { reader, shared: shared.clone(), taken: Vec::new() }
    }

    /// One look; whether there was anything.
    fn look(&mut self) -> bool {
        match self.reader.look().expect("an honest sender") {
            Found::Nothing => return false,
            Found::Message(length) => {
                let mut bytes = Vec::new();
                self.reader.region().copy_out(self.reader.payload_at(), length, &mut bytes);
                self.taken.push(bytes);
                self.reader.advance(length);
            }
            Found::Next(log2) => {
                let passed = self.shared.passed.lock().expect("nobody panics").pop();
                let (chunk, announced) = passed.expect("a chunk is passed before `next`");
                assert_eq!(log2, announced);
                self.reader.follow(chunk, log2);
            }
        }
        position::publish(&self.shared.position, self.reader.position());
        true
    }

    /// Takes the rest, once the sender has ended, and checks all: messages 0, 1, … of these
    /// lengths.
    fn finish(mut self, sent: &[usize]) {
        while self.look() {}
        let expected: Vec<_> = sent.iter().enumerate().map(|(n, &len)| message(n, len)).collect();
        assert_eq!(self.taken, expected);
    }
}

/// Sends from message `first` on, as long as there is room; returns how many are sent by now.
fn send(writer: &mut Writer<Heap>, shared: &Shared, first: usize, lengths: &[usize]) -> usize {
    for (number, &length) in lengths.iter().enumerate().skip(first) {
        if !writer.fits(length) {
            writer.believe(position::read(&shared.position)).expect("an honest receiver");
            if writer.make_room(length) != Room::Here {
                return number;
            }
        }
        writer.push(&message(number, length));
    }
    lengths.len()
}

/// Three messages into an empty ring, looked at meanwhile.
fn three_messages() {
    let lengths = [8, 0, 11];
    let (ring, shared) = (Heap::new(1 << LOG2), Shared::new());
    let mut receiver = Receiver::new(ring.clone(), &shared);
    let mut writer = Writer::new(ring, LOG2);
    let sending = thread::spawn(move || send(&mut writer, &shared, 0, &lengths));
    for _ in 0..lengths.len() {
        receiver.look();
    }
    assert_eq!(sending.join().expect("no panic"), lengths.len());
    receiver.finish(&lengths);
}

#[test]
fn messages_cross_whole_and_in_order() {
    check(Fault::None, three_messages);
}

#[test]
#[should_panic = "Causality violation"]
fn a_header_without_release_is_noticed() {
    check(MESSAGE_RELAXED, three_messages);
}

#[test]
#[should_panic = "Causality violation"]
fn a_look_without_acquire_is_noticed() {
    check(Fault::LoadsRelaxed, three_messages);
}

/// A full ring: what is sent next goes where the reader may still be reading, behind padding.
fn reused_ring() {
    let lengths = [LONG, LONG, LONG];
    let (ring, shared) = (Heap::new(1 << LOG2), Shared::new());
    let mut receiver = Receiver::new(ring.clone(), &shared);
    let mut writer = Writer::new(ring, LOG2);
    assert_eq!(send(&mut writer, &shared, 0, &lengths), 2, "the third has no room yet");
    let sending = thread::spawn(move || {
        let sent = send(&mut writer, &shared, 2, &lengths);
        send(&mut writer, &shared, sent, &lengths)
    });
    for _ in 0..lengths.len() {
        receiver.look();
    }
    let sent = sending.join().expect("no panic");
    receiver.finish(&lengths[..sent]);
}

#[test]
fn room_is_reused_only_once_it_is_read() {
    check(Fault::None, reused_ring);
}

#[test]
#[should_panic = "Causality violation"]
fn a_position_without_release_is_noticed() {
    check(POSITION_RELAXED, reused_ring);
}

#[test]
#[should_panic]
fn padding_without_release_is_noticed() {
    check(PADDING_RELAXED, reused_ring);
}

#[test]
#[should_panic]
fn a_header_of_an_earlier_lap_is_noticed() {
    check(NOTHING_KEPT, reused_ring);
}

/// A full ring, and a second chunk twice its size.
fn second_chunk() {
    let lengths = [LONG, LONG, LONG, 8];
    let (ring, shared) = (Heap::new(1 << LOG2), Shared::new());
    let mut receiver = Receiver::new(ring.clone(), &shared);
    let mut writer = Writer::new(ring, LOG2);
    let sent = send(&mut writer, &shared, 0, &lengths);
    let sending = thread::spawn(move || {
        let chunk = Heap::new(2 << LOG2);
        shared.passed.lock().expect("nobody panics").push((chunk.clone(), LOG2 + 1));
        writer.go_on_in(chunk, LOG2 + 1);
        let sent = send(&mut writer, &shared, sent, &lengths);
        assert_eq!(sent, lengths.len(), "the new chunk has room for all");
    });
    for _ in 0..=lengths.len() {
        receiver.look();
    }
    sending.join().expect("no panic");
    receiver.finish(&lengths);
}

#[test]
fn the_lane_goes_on_in_the_next_chunk() {
    check(Fault::None, second_chunk);
}

#[test]
#[should_panic = "Causality violation"]
fn a_header_without_release_in_the_next_chunk_is_noticed() {
    check(MESSAGE_RELAXED, second_chunk);
}

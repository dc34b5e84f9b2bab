//! Models of message transfer: messages arrive whole and in order, and no message is duplicated or
//! overwritten.
//!
//! An end that dies is an end that takes no further step, so a receiver that looks between any two
//! steps of a sender sees all that a dead sender can leave. What a dead receiver leaves to its
//! sender and to its successor is a model of its own.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::check;
use crate::lane::position;
use crate::lane::record::{NOTHING, RecordHeader};
use crate::lane::region::LaneMemory;
use crate::lane::region::models::ModelRegion;
use crate::lane::{FreeSpace, LaneReader, LaneWriter, Peeked};
use crate::sync::AtomicU64;
use crate::sync::weakened::{InjectedFault, models};

/// Base-2 logarithm of a chunk's size: its ring has 128 bytes.
const LOG2: u32 = 8;

/// Maximum length in bytes of a message in this chunk. The ring has no space for three of them.
const LONG: usize = 40;

/// A fault that stores the header of a message without release.
const MESSAGE_RELAXED: InjectedFault = InjectedFault::StoreRelaxed(|word| {
    matches!(RecordHeader::claimed(word), Some(RecordHeader::Message(_)))
});
/// A fault that stores the header of a padding record without release.
const PADDING_RELAXED: InjectedFault = InjectedFault::StoreRelaxed(|word| {
    matches!(RecordHeader::claimed(word), Some(RecordHeader::Padding(_)))
});
/// A fault that stores the position without release. It recognises a position by its value, because
/// the positions of a model are smaller than any header.
const POSITION_RELAXED: InjectedFault =
    InjectedFault::StoreRelaxed(|word| RecordHeader::claimed(word).is_none());
/// A fault that omits the store of zero to the following header.
const NOTHING_KEPT: InjectedFault = InjectedFault::StoreOmitted(|word| word == NOTHING);

/// Returns message `number`, of `length` bytes, none of which occurs in any other message.
fn message(number: usize, length: usize) -> Vec<u8> {
    vec![number as u8 + 1; length]
}

/// Chunks that were passed over the socket but not yet received.
type PassedChunks = Mutex<Vec<(ModelRegion, u32)>>;

/// State that both ends share besides the ring.
#[derive(Clone)]
struct ModelShared {
    position: Arc<AtomicU64>,
    passed: Arc<PassedChunks>,
}

impl ModelShared {
    fn new() -> Self {
        Self { position: Arc::new(AtomicU64::new(0)), passed: Arc::new(Mutex::new(Vec::new())) }
    }
}

/// The receiving end, driven as a mailbox drives it.
struct ModelReceiver {
    reader: LaneReader<ModelRegion>,
    shared: ModelShared,
    taken: Vec<Vec<u8>>,
}

impl ModelReceiver {
    fn new(ring: ModelRegion, shared: &ModelShared) -> Self {
        let reader = LaneReader::new(ring, LOG2, 0, 0).expect("a valid position");
        Self { reader, shared: shared.clone(), taken: Vec::new() }
    }

    /// Checks for a record once, acknowledges it, and returns `true` if it found one.
    fn look(&mut self) -> bool {
        let found = self.take();
        self.acknowledge();
        found
    }

    /// Acknowledges the record that [`ModelReceiver::take`] found.
    fn acknowledge(&self) {
        position::publish(&self.shared.position, self.reader.position());
    }

    /// Checks for a record once, and returns `true` if it found one.
    fn take(&mut self) -> bool {
        match self.reader.look().expect("an honest sender") {
            Peeked::Nothing => return false,
            Peeked::Message(length) => {
                let mut bytes = Vec::new();
                self.reader.region().copy_out(self.reader.payload_at(), length, &mut bytes);
                self.taken.push(bytes);
                self.reader.advance(length);
            }
            Peeked::Next(log2) => {
                let passed = self.shared.passed.lock().expect("not poisoned").pop();
                let (chunk, announced) = passed.expect("a chunk is passed before `next`");
                assert_eq!(log2, announced);
                self.reader.follow(chunk, log2);
            }
        }
        true
    }

    /// Takes the remaining messages after the sender has exited, and checks that the messages are
    /// 0, 1, … with these lengths.
    fn finish(mut self, sent: &[usize]) {
        while self.look() {}
        let expected: Vec<_> = sent.iter().enumerate().map(|(n, &len)| message(n, len)).collect();
        assert_eq!(self.taken, expected);
    }
}

/// Sends messages, starting with `first`, while the lane has space. Returns the number of messages
/// sent, including the messages before `first`.
fn send(
    writer: &mut LaneWriter<ModelRegion>,
    shared: &ModelShared,
    first: usize,
    lengths: &[usize],
) -> usize {
    for (number, &length) in lengths.iter().enumerate().skip(first) {
        if !writer.fits(length) {
            writer.believe(position::read(&shared.position)).expect("an honest receiver");
            if writer.make_space(length) != FreeSpace::Here {
                return number;
            }
        }
        writer.push(&message(number, length));
    }
    lengths.len()
}

/// Sends three messages into an empty ring while the receiver checks.
fn three_messages() {
    let lengths = [8, 0, 11];
    let (ring, shared) = (ModelRegion::new(1 << LOG2), ModelShared::new());
    let mut receiver = ModelReceiver::new(ring.clone(), &shared);
    let mut writer = LaneWriter::new(ring, LOG2);
    let sending = thread::spawn(move || send(&mut writer, &shared, 0, &lengths));
    for _ in 0..lengths.len() {
        receiver.look();
    }
    assert_eq!(sending.join().expect("no panic"), lengths.len());
    receiver.finish(&lengths);
}

models! {
    messages_in_one_ring_arrive_whole_and_in_order: check(InjectedFault::None, three_messages);
    header_store_without_release_is_detected:
        check(MESSAGE_RELAXED, three_messages) => "Causality violation";
    header_load_without_acquire_is_detected:
        check(InjectedFault::LoadsRelaxed, three_messages) => "Causality violation";
}

/// Fills a ring. After the padding, the next message is written where the receiver may still be
/// reading.
fn reused_ring() {
    let lengths = [LONG, LONG, LONG];
    let (ring, shared) = (ModelRegion::new(1 << LOG2), ModelShared::new());
    let mut receiver = ModelReceiver::new(ring.clone(), &shared);
    let mut writer = LaneWriter::new(ring, LOG2);
    assert_eq!(send(&mut writer, &shared, 0, &lengths), 2, "the third has no space yet");
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

models! {
    space_is_reused_only_after_acknowledgement: check(InjectedFault::None, reused_ring);
    position_store_without_release_is_detected:
        check(POSITION_RELAXED, reused_ring) => "Causality violation";
    padding_store_without_release_is_detected: check(PADDING_RELAXED, reused_ring) => "";
    header_of_earlier_lap_is_detected: check(NOTHING_KEPT, reused_ring) => "";
}

/// Fills a ring and continues in a second chunk of twice the size.
fn second_chunk() {
    let lengths = [LONG, LONG, LONG, 8];
    let (ring, shared) = (ModelRegion::new(1 << LOG2), ModelShared::new());
    let mut receiver = ModelReceiver::new(ring.clone(), &shared);
    let mut writer = LaneWriter::new(ring, LOG2);
    let sent = send(&mut writer, &shared, 0, &lengths);
    let sending = thread::spawn(move || {
        let chunk = ModelRegion::new(2 << LOG2);
        shared.passed.lock().expect("not poisoned").push((chunk.clone(), LOG2 + 1));
        writer.go_on_in(chunk, LOG2 + 1);
        let sent = send(&mut writer, &shared, sent, &lengths);
        assert_eq!(sent, lengths.len(), "the new chunk has space for all");
    });
    for _ in 0..=lengths.len() {
        receiver.look();
    }
    sending.join().expect("no panic");
    receiver.finish(&lengths);
}

models! {
    lane_continues_in_next_chunk: check(InjectedFault::None, second_chunk);
    header_in_next_chunk_without_release_is_detected:
        check(MESSAGE_RELAXED, second_chunk) => "Causality violation";
}

/// Runs a receiver that dies after `steps` steps, two for each record, while its sender continues
/// in a second chunk. Then a successor receives the lane, and the sender takes its messages back.
fn dead_receiver(steps: usize) {
    let lengths = [LONG, LONG, 8, 8];
    let (ring, shared) = (ModelRegion::new(1 << LOG2), ModelShared::new());
    let mut receiver = ModelReceiver::new(ring.clone(), &shared);
    let mut writer = LaneWriter::new(ring, LOG2);
    let sent = send(&mut writer, &shared, 0, &lengths);
    let sending = {
        let shared = shared.clone();
        thread::spawn(move || {
            let sent = send(&mut writer, &shared, sent, &lengths);
            let chunk = ModelRegion::new(2 << LOG2);
            shared.passed.lock().expect("not poisoned").push((chunk.clone(), LOG2 + 1));
            writer.go_on_in(chunk, LOG2 + 1);
            assert_eq!(send(&mut writer, &shared, sent, &lengths), lengths.len());
            writer
        })
    };
    for step in 0..steps {
        if step.is_multiple_of(2) {
            receiver.take();
        } else {
            receiver.acknowledge();
        }
    }
    let mut writer = sending.join().expect("no panic");
    writer.believe(position::read(&shared.position)).expect("an honest receiver");

    let mut chunks: Vec<_> = writer.chain().map(|link| (link.region.clone(), link.log2)).collect();
    let (first, log2) = chunks.remove(0);
    *shared.passed.lock().expect("not poisoned") = chunks;
    let reader = LaneReader::new(first, log2, writer.base(), writer.position());
    let reader = reader.expect("an honest sender");
    let mut successor = ModelReceiver { reader, shared, taken: Vec::new() };
    while successor.look() {}
    let all: Vec<_> = lengths.iter().enumerate().map(|(n, &len)| message(n, len)).collect();
    let acknowledged = all.len() - successor.taken.len();
    assert_eq!(successor.taken, all[acknowledged..]);
    assert_eq!(receiver.taken, all[..receiver.taken.len()]);
    assert!(receiver.taken.len() - acknowledged <= 1, "at most one message arrives twice");
    assert_eq!(writer.take_back(), successor.taken);
}

#[test]
fn successor_continues_at_last_acknowledgement() {
    for steps in 0..8 {
        check(InjectedFault::None, move || dead_receiver(steps));
    }
}

models! {
    successor_of_position_without_release_is_detected:
        check(POSITION_RELAXED, || dead_receiver(4)) => "";
}

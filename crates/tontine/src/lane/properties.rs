//! `LaneWriter` and `LaneReader` compared with a plain queue, over random sequences of calls.
//!
//! The tests drive [`super::writer`] and [`super::reader`] on a [`ModelRegion`] from one thread.
//! `models` covers concurrent ends.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::page::longest_message;
use super::position;
use super::region::LaneMemory;
use super::region::models::ModelRegion;
use super::{FreeSpace, LaneReader, LaneWriter, Peeked};
use crate::sync::AtomicU64;

/// Base-2 logarithm of the size of the smallest chunk of these lanes. The chunk is much smaller
/// than in real lanes so that rings wrap often.
const LEAST: u32 = 8;
/// Base-2 logarithm of the size of the largest chunk of these lanes.
const MOST: u32 = 12;

/// An operation on a lane.
#[derive(Debug, Clone)]
enum LaneOp {
    /// The sender sends a message whose length is this many thousandths of the maximum for the
    /// largest chunk.
    Send(usize),
    /// The sender sends a message that exceeds the maximum length for the chunk by this many bytes.
    SendLongest(usize),
    /// The receiver takes and acknowledges this many messages.
    Receive(usize),
    /// The sender accepts the receiver's position.
    Believe,
    /// The lane grows, even if it need not.
    Grow,
    /// The lane returns to its smallest chunk if everything is read.
    GiveBack,
    /// The receiver dies before it acknowledges a message. The sender takes the unread messages
    /// back and starts a new lane.
    TakeBack,
    /// The receiver dies before it acknowledges a message, and a successor continues.
    Succeed,
}

fn step() -> impl Strategy<Value = LaneOp> {
    prop_oneof![
        8 => prop_oneof![0..40_usize, 0..=1000_usize].prop_map(LaneOp::Send),
        2 => (0..2_usize).prop_map(LaneOp::SendLongest),
        8 => (0..12_usize).prop_map(LaneOp::Receive),
        1 => Just(LaneOp::Believe),
        1 => Just(LaneOp::Grow),
        2 => Just(LaneOp::GiveBack),
        1 => Just(LaneOp::TakeBack),
        1 => Just(LaneOp::Succeed),
    ]
}

struct LaneUnderTest {
    writer: LaneWriter<ModelRegion>,
    reader: LaneReader<ModelRegion>,
    passed: VecDeque<(ModelRegion, u32)>,
    position: AtomicU64,
    /// Messages that were sent but are not yet acknowledged.
    queue: VecDeque<Vec<u8>>,
    sent: u64,
}

impl LaneUnderTest {
    fn new() -> Self {
        let ring = ModelRegion::new(1 << LEAST);
        Self {
            writer: LaneWriter::new(ring.clone(), LEAST),
            reader: LaneReader::new(ring, LEAST, 0, 0).expect("a valid position"),
            passed: VecDeque::new(),
            position: AtomicU64::new(0),
            queue: VecDeque::new(),
            sent: 0,
        }
    }

    fn take(&mut self, step: &LaneOp) {
        match *step {
            LaneOp::Send(thousandths) => {
                self.send(longest_message(1 << MOST) * thousandths / 1000);
            }
            LaneOp::SendLongest(more) => {
                self.send(longest_message(1 << self.writer.log2()) + more);
            }
            LaneOp::Receive(count) => {
                for _ in 0..count {
                    self.receive();
                }
            }
            LaneOp::Believe => self.believe(),
            LaneOp::Grow => self.grow(),
            LaneOp::GiveBack => self.give_back(),
            LaneOp::TakeBack => {
                self.look();
                self.believe();
                assert_eq!(self.writer.take_back(), Vec::from(std::mem::take(&mut self.queue)));
                assert!(self.writer.is_read() && self.writer.take_back().is_empty());
                *self = Self::new();
            }
            LaneOp::Succeed => {
                self.look();
                self.believe();
                let (base, at) = (self.writer.base(), self.writer.position());
                self.passed =
                    self.writer.chain().map(|link| (link.region.clone(), link.log2)).collect();
                let (first, log2) = self.passed.pop_front().expect("a chunk");
                self.reader = LaneReader::new(first, log2, base, at).expect("a valid handover");
            }
        }
        // The sender may forget a returned chunk before the receiver has followed `next`.
        assert!(self.writer.position() <= self.reader.position() + 8);
        assert!(self.reader.position() <= self.writer.position() + self.writer.unread_bytes());
    }

    fn send(&mut self, length: usize) {
        let mut grown = 0;
        while !self.writer.fits(length) {
            self.believe();
            let most = longest_message(1 << self.writer.log2());
            match self.writer.make_space(length) {
                FreeSpace::Here => {
                    assert!(self.writer.fits(length));
                    break;
                }
                FreeSpace::Later => assert!(length <= most && !self.queue.is_empty()),
                FreeSpace::Never => assert!(length > most),
            }
            if self.writer.log2() == MOST {
                return;
            }
            self.grow();
            grown += 1;
            assert!(grown <= MOST - LEAST, "the largest chunk has space");
        }
        self.sent += 1;
        let message: Vec<u8> = (0..length as u64).map(|at| (self.sent * 31 + at) as u8).collect();
        self.writer.push(&message);
        self.queue.push_back(message);
    }

    fn look(&mut self) -> Option<usize> {
        loop {
            match self.reader.look().expect("an honest sender") {
                Peeked::Nothing => {
                    assert!(self.queue.is_empty() && self.passed.is_empty());
                    return None;
                }
                Peeked::Message(length) => {
                    let mut bytes = vec![7];
                    self.reader.region().copy_out(self.reader.payload_at(), length, &mut bytes);
                    let expected = self.queue.front().expect("no message arrives twice");
                    assert!(bytes[0] == 7 && bytes[1..] == **expected);
                    return Some(length);
                }
                Peeked::Next(log2) => {
                    let (chunk, passed) = self.passed.pop_front().expect("passed before");
                    assert_eq!(log2, passed);
                    self.reader.follow(chunk, log2);
                    position::publish(&self.position, self.reader.position());
                }
            }
        }
    }

    fn receive(&mut self) {
        let Some(length) = self.look() else { return };
        self.queue.pop_front();
        self.reader.advance(length);
        position::publish(&self.position, self.reader.position());
    }

    fn believe(&mut self) {
        self.writer.believe(position::read(&self.position)).expect("an honest receiver");
        assert_eq!(self.writer.is_read(), self.writer.unread_bytes() == 0);
    }

    fn grow(&mut self) {
        self.go_on_in((self.writer.log2() + 1).min(MOST));
    }

    fn give_back(&mut self) {
        self.believe();
        if self.writer.is_read() && self.writer.log2() > LEAST {
            self.go_on_in(LEAST);
            self.writer.forget_old();
            assert_eq!(self.writer.chunks(), 1);
        }
    }

    fn go_on_in(&mut self, log2: u32) {
        let chunk = ModelRegion::new(1 << log2);
        self.passed.push_back((chunk.clone(), log2));
        self.writer.go_on_in(chunk, log2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lane_behaves_like_queue(steps in prop::collection::vec(step(), 0..200)) {
        let mut lane = LaneUnderTest::new();
        for step in &steps {
            lane.take(step);
        }
        while !lane.queue.is_empty() {
            lane.receive();
        }
        lane.believe();
        assert_eq!(lane.look(), None, "no record follows");
    }
}

//! Fuzz target: a sender processes a hostile receiver's read position.

use std::collections::VecDeque;

use super::input::FuzzInput;
use crate::lane::page::{MAX_LOG2, MIN_LOG2, log2_for, longest_message};
use crate::lane::region::models::ModelRegion;
use crate::lane::{FreeSpace, LaneWriter};

/// Base-2 logarithm of the largest chunk's size.
const LARGEST_LOG2: u32 = MIN_LOG2 + 2;

/// Maximum number of chunks of the lane.
const MOST_CHUNKS: usize = 8;

/// Runs a sender whose receiver chooses the messages, as with an echo, and the positions.
pub fn position(bytes: &[u8]) {
    let mut input = FuzzInput::new(bytes);
    let mut sender =
        FuzzSender { writer: LaneWriter::new(ModelRegion::new(1 << MIN_LOG2), MIN_LOG2) };
    while !input.is_empty() {
        let writer = &mut sender.writer;
        match input.u8() % 8 {
            0 | 1 => {
                let length = input.u8().into();
                sender.send(input.bytes(length));
            }
            2 => {
                let (byte, length) = (input.u8(), input.u16());
                sender.send(&vec![byte; length.into()]);
            }
            3 => sender.accept_position(input.u64()),
            4 => {
                let position = writer.position().wrapping_add(input.u16().into());
                sender.accept_position(position);
            }
            5 => {
                let tail = writer.position() + writer.unread_bytes();
                sender.accept_position(tail.wrapping_sub(input.u8().into()));
            }
            6 => sender.grow(0),
            _ => sender.take_back(),
        }
        sender.sound();
    }
    sender.take_back();
}

struct FuzzSender {
    writer: LaneWriter<ModelRegion>,
}

impl FuzzSender {
    fn send(&mut self, message: &[u8]) {
        if !self.writer.fits(message.len()) {
            match self.writer.make_space(message.len()) {
                FreeSpace::Here => {}
                FreeSpace::Later => return,
                FreeSpace::Never => {
                    self.grow(message.len());
                    if self.writer.make_space(message.len()) != FreeSpace::Here {
                        return;
                    }
                }
            }
        }
        self.writer.push(message);
    }

    fn accept_position(&mut self, position: u64) {
        let (before, unread) = (self.writer.position(), self.writer.unread_bytes());
        if self.writer.believe(position).is_err() {
            assert_eq!((self.writer.position(), self.writer.unread_bytes()), (before, unread));
        }
    }

    fn grow(&mut self, length: usize) {
        let log2 = log2_for(length).unwrap_or(MAX_LOG2).max(self.writer.log2() + 1);
        if log2 <= LARGEST_LOG2 && self.writer.chunks() < MOST_CHUNKS {
            self.writer.go_on_in(ModelRegion::new(1 << log2), log2);
        } else if self.writer.is_read() && self.writer.log2() > MIN_LOG2 {
            self.writer.go_on_in(ModelRegion::new(1 << MIN_LOG2), MIN_LOG2);
            self.writer.forget_old();
        }
    }

    fn take_back(&mut self) {
        let unread = self.writer.unread_bytes();
        let back = self.writer.take_back();
        let bytes: usize = back.iter().map(|message| 8 + message.len()).sum();
        // Bytes that are mistaken for a message are at most as long as a ring.
        let most = unread + longest_message(2 << LARGEST_LOG2) as u64 + 8;
        assert!(bytes as u64 <= most, "{bytes} bytes out of {unread}");
        assert!(self.writer.is_read() && self.writer.chunks() == 1);
    }

    /// Checks the sender's invariants, which do not depend on the receiver's positions.
    fn sound(&self) {
        let sizes: VecDeque<u64> = self.writer.chain().map(|link| 1 << link.log2).collect();
        let here: u64 = sizes.iter().sum();
        // A returned chunk counts in `bytes` until the receiver's position has passed it.
        assert!(!sizes.is_empty() && self.writer.bytes() >= here);
        assert!(self.writer.unread_bytes() <= here);
        assert!(self.writer.base() <= self.writer.position() + self.writer.unread_bytes());
    }
}

//! A plain queue between two processes: [`SpscRing`], with one sender, one receiver and messages of
//! eight bytes.
//!
//! Each side writes one position. It reads the other side's position only when its own copy
//! indicates that the ring is full or empty. Both ends spin, so neither end is ever woken.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};

use crate::prelude::*;

const SLOTS: usize = 4096;

/// The shared part. Zeroed memory is an empty ring.
#[repr(C)]
pub(super) struct SpscRing {
    sent: PaddedPosition,
    received: PaddedPosition,
    slots: [AtomicU64; SLOTS],
}

/// A position on its own cache lines, so that the two ends share only the cache lines of messages.
#[repr(align(128))]
struct PaddedPosition(AtomicU64);

// SAFETY: all fields are atomics, for which zero is valid; equal positions mean an empty ring.
unsafe impl Shareable for SpscRing {}

/// The sending end, with its own copy of the receiver's position.
pub(super) struct SpscSender<'a> {
    ring: &'a SpscRing,
    sent: u64,
    received: u64,
}

impl SpscRing {
    /// Returns the sending end. There may be only one at a time.
    pub(super) fn sender(&self) -> SpscSender<'_> {
        let sent = self.sent.0.load(Ordering::Relaxed);
        // SYNC ring-space: pairs with the store of `drain`, which freed the slots.
        SpscSender { ring: self, sent, received: self.received.0.load(Ordering::Acquire) }
    }

    fn received(&self) -> u64 {
        // SYNC ring-space: pairs with the store of `drain`.
        self.received.0.load(Ordering::Acquire)
    }

    /// Takes all queued messages, adds them to `sum`, and returns their number.
    pub(super) fn drain(&self, sum: &mut u64) -> u64 {
        let from = self.received.0.load(Ordering::Relaxed);
        // SYNC ring-message: pairs with the store of `SpscSender::offer`; the slots up to that
        // position are written.
        let to = self.sent.0.load(Ordering::Acquire);
        for at in from..to {
            *sum = sum.wrapping_add(self.slots[at as usize % SLOTS].load(Ordering::Relaxed));
        }
        if to != from {
            // SYNC ring-space: pairs with the loads of the sender; the slots have been read.
            self.received.0.store(to, Ordering::Release);
        }
        to - from
    }
}

impl SpscSender<'_> {
    /// Enqueues a message. Returns `false` if the ring is full.
    #[inline(always)]
    pub(super) fn offer(&mut self, message: u64) -> bool {
        if self.sent - self.received == SLOTS as u64 {
            self.received = self.ring.received();
            if self.sent - self.received == SLOTS as u64 {
                return false;
            }
        }
        self.ring.slots[self.sent as usize % SLOTS].store(message, Ordering::Relaxed);
        self.sent += 1;
        // SYNC ring-message: pairs with the load of `drain`; publishes the slot.
        self.ring.sent.0.store(self.sent, Ordering::Release);
        true
    }

    pub(super) fn is_drained(&self) -> bool {
        self.ring.received() == self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_keeps_all_messages_and_refuses_when_full() {
        let ring = SharedMapping::<SpscRing>::anonymous().expect("memory");
        let mut sender = ring.sender();
        for round in 0..3_u64 {
            for message in 0..SLOTS as u64 {
                assert!(sender.offer(message), "round {round}");
            }
            assert!(!sender.offer(0), "full");
            let mut sum = 0;
            assert_eq!(ring.drain(&mut sum), SLOTS as u64);
            assert_eq!(sum, (0..SLOTS as u64).sum::<u64>());
            assert!(sender.is_drained());
        }
    }
}

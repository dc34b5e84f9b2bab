//! Entries in flight from one worker to another: [`WorkerRing`], with its write end [`Outbound`]
//! and its read end [`RingReader`].
//!
//! An entry is three opaque words. Both positions are in the ring, so that the successor of a
//! killed worker continues at its position. The successor overwrites entries that the dead worker
//! had not published, and does not read again those that it had read.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};

use tontine_host::os::shared::Shareable;

/// An element of a ring.
pub(super) type RingEntry = [u64; 3];

/// Maximum number of entries in flight.
pub(super) const PLACES: u64 = 1 << 10;

/// The entries from one worker to another.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WorkerRing {
    written: RingPosition,
    read: RingPosition,
    entries: [[AtomicU64; 3]; PLACES as usize],
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for WorkerRing {}

/// The position of one end, on its own cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
struct RingPosition(AtomicU64);

/// The write end.
#[derive(Debug)]
pub(super) struct Outbound<'r> {
    ring: &'r WorkerRing,
    position: u64,
    /// The position of the other end when last loaded.
    read: u64,
}

/// The read end.
#[derive(Debug)]
pub(super) struct RingReader<'r> {
    ring: &'r WorkerRing,
    position: u64,
    /// The position of the other end when last loaded.
    written: u64,
}

impl<'r> Outbound<'r> {
    /// Opens the write end at the position of its predecessor.
    pub(super) fn of(ring: &'r WorkerRing) -> Self {
        let position = ring.written.0.load(Ordering::Relaxed);
        // SYNC heaps-read: pairs with the store in `RingReader::take`.
        Self { ring, position, read: ring.read.0.load(Ordering::Acquire) }
    }

    /// Returns the number of the next entry, or `None` if the ring is full.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.position - self.read == PLACES {
            // SYNC heaps-read: pairs with the store in `RingReader::take`.
            self.read = self.ring.read.0.load(Ordering::Acquire);
        }
        (self.position - self.read < PLACES).then_some(self.position)
    }

    /// Writes the entry that [`Outbound::next`] has numbered. The reader sees it only after
    /// [`Outbound::publish`].
    #[inline(always)]
    pub(super) fn write(&mut self, entry: RingEntry) {
        debug_assert!(self.position - self.read < PLACES);
        let place = &self.ring.entries[(self.position % PLACES) as usize];
        place.iter().zip(entry).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.position += 1;
    }

    /// Publishes all written entries.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        // SYNC heaps-written: pairs with `RingReader::take`; the entries are stored before this
        // store.
        self.ring.written.0.store(self.position, Ordering::Release);
    }
}

impl<'r> RingReader<'r> {
    /// Opens the read end at the position of its predecessor.
    pub(super) fn of(ring: &'r WorkerRing) -> Self {
        let position = ring.read.0.load(Ordering::Relaxed);
        Self { ring, position, written: position }
    }

    /// Takes the next entry and its number. The entry then belongs to the caller alone: if the
    /// caller is killed, no other worker reads the entry.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<(u64, RingEntry)> {
        if self.position == self.written {
            // SYNC heaps-written: pairs with the store in `Outbound::publish`.
            self.written = self.ring.written.0.load(Ordering::Acquire);
            if self.position == self.written {
                return None;
            }
        }
        let number = self.position;
        let place = &self.ring.entries[(number % PLACES) as usize];
        let entry = [0, 1, 2].map(|at| place[at].load(Ordering::Relaxed));
        self.position += 1;
        // SYNC heaps-read: pairs with `Outbound::next`; the entry was copied before this store.
        self.ring.read.0.store(self.position, Ordering::Release);
        Some((number, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::shared::SharedMapping;

    #[test]
    fn ring_delivers_in_order_and_is_bounded() {
        let ring = SharedMapping::<WorkerRing>::anonymous().expect("memory");
        let (mut out, mut into) = (Outbound::of(&ring), RingReader::of(&ring));
        assert_eq!(into.take(), None);
        for number in 0..PLACES {
            assert_eq!(out.next(), Some(number));
            out.write([number, 2, 3]);
        }
        assert_eq!((out.next(), into.take()), (None, None), "full, and not published");
        out.publish();
        assert_eq!(into.take(), Some((0, [0, 2, 3])));
        assert_eq!(out.next(), Some(PLACES));
    }

    #[test]
    fn successors_continue_at_the_dead_workers_positions() {
        let ring = SharedMapping::<WorkerRing>::anonymous().expect("memory");
        let mut out = Outbound::of(&ring);
        out.write([1; 3]);
        out.publish();
        out.write([2; 3]);
        assert_eq!(RingReader::of(&ring).take(), Some((0, [1; 3])));
        // The second entry was never published.
        let mut out = Outbound::of(&ring);
        assert_eq!(out.next(), Some(1));
        out.write([4; 3]);
        out.publish();
        let mut into = RingReader::of(&ring);
        assert_eq!((into.take(), into.take()), (Some((1, [4; 3])), None));
    }
}

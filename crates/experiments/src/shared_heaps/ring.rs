//! Entries on their way from one worker to another: [`Ring`], with one who writes, [`Outbound`],
//! and one who reads, [`Inbound`].
//!
//! An entry is three words that mean nothing here. Both positions lie in the ring, so that whoever
//! takes the place of a killed worker goes on where that one stood: what it had not published was
//! never written, and what it had read is not read again.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU64, Ordering};

use tontine_host::os::shared::Shareable;

/// What goes through a ring.
pub(super) type Entry = [u64; 3];

/// Entries under way at most.
pub(super) const PLACES: u64 = 1 << 10;

/// One way, from one worker to one other.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ring {
    written: Position,
    read: Position,
    entries: [[AtomicU64; 3]; PLACES as usize],
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Ring {}

/// How far one end has come, on lines of its own.
#[derive(Debug)]
#[repr(C, align(128))]
struct Position(AtomicU64);

/// The end that writes.
#[derive(Debug)]
pub(super) struct Outbound<'r> {
    ring: &'r Ring,
    position: u64,
    /// How far the other end had come when it was last asked.
    read: u64,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Inbound<'r> {
    ring: &'r Ring,
    position: u64,
    /// How far the other end had come when it was last asked.
    written: u64,
}

impl<'r> Outbound<'r> {
    /// Where the last one who wrote stood.
    pub(super) fn of(ring: &'r Ring) -> Self {
        let position = ring.written.0.load(Ordering::Relaxed);
        // SYNC heaps-read: pairs with the store in `Inbound::take`.
        Self { ring, position, read: ring.read.0.load(Ordering::Acquire) }
    }

    /// The number of the next entry; `None` where there is no room for it.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.position - self.read == PLACES {
            // SYNC heaps-read: pairs with the store in `Inbound::take`.
            self.read = self.ring.read.0.load(Ordering::Acquire);
        }
        (self.position - self.read < PLACES).then_some(self.position)
    }

    /// Writes the entry that [`Outbound::next`] has numbered. Nobody sees it yet.
    #[inline(always)]
    pub(super) fn write(&mut self, entry: Entry) {
        debug_assert!(self.position - self.read < PLACES);
        let place = &self.ring.entries[(self.position % PLACES) as usize];
        place.iter().zip(entry).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.position += 1;
    }

    /// Shows all that was written.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        // SYNC heaps-written: pairs with `Inbound::take`; the entries come before.
        self.ring.written.0.store(self.position, Ordering::Release);
    }
}

impl<'r> Inbound<'r> {
    /// Where the last one who read stood.
    pub(super) fn of(ring: &'r Ring) -> Self {
        let position = ring.read.0.load(Ordering::Relaxed);
        Self { ring, position, written: position }
    }

    /// The next entry and its number. From now on it is the caller's alone: should it be killed,
    /// nobody reads it again.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<(u64, Entry)> {
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
        // SYNC heaps-read: pairs with `Outbound::next`; the entry was copied before.
        self.ring.read.0.store(self.position, Ordering::Release);
        Some((number, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::shared::Shared;

    #[test]
    fn entries_come_in_order_and_none_beyond_the_room() {
        let ring = Shared::<Ring>::anonymous().expect("memory");
        let (mut out, mut into) = (Outbound::of(&ring), Inbound::of(&ring));
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
    fn successors_go_on_where_the_dead_stood() {
        let ring = Shared::<Ring>::anonymous().expect("memory");
        let mut out = Outbound::of(&ring);
        out.write([1; 3]);
        out.publish();
        out.write([2; 3]);
        assert_eq!(Inbound::of(&ring).take(), Some((0, [1; 3])));
        // The second entry was never published.
        let mut out = Outbound::of(&ring);
        assert_eq!(out.next(), Some(1));
        out.write([4; 3]);
        out.publish();
        let mut into = Inbound::of(&ring);
        assert_eq!((into.take(), into.take()), (Some((1, [4; 3])), None));
    }
}

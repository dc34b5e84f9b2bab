//! What workers and their keeper tell each other: [`Board`], with a [`Seat`] for each worker and a
//! ring from each to each.
//!
//! It lies in shared memory, so that workers may be processes; a seat outlives who sits there.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::ring::{Inbound, Outbound, Ring};
use crate::os::shared::Shareable;

/// Workers at most.
pub(super) const SEATS: usize = 8;

/// How somebody can be handed a block; what it means is the heap's.
pub(super) type Address = [u64; 2];

/// The board.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Board {
    /// How many of the seats are taken.
    workers: AtomicU32,
    go: AtomicU32,
    stop: AtomicU32,
    /// How many have been killed.
    deaths: AtomicU32,
    seats: [Seat; SEATS],
    rings: [[Ring; SEATS]; SEATS],
}

/// One worker's.
#[derive(Debug)]
#[repr(C, align(128))]
struct Seat {
    /// Blocks that came to their end here.
    freed: AtomicU64,
    /// How many have sat here.
    sat: AtomicU32,
    ready: AtomicU32,
    /// It makes no more blocks and passes none.
    finished: AtomicU32,
    /// Odd while it is being written.
    version: AtomicU32,
    address: [AtomicU64; 2],
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Board {}

impl Board {
    /// Says how many work.
    pub(super) fn set_workers(&self, workers: usize) {
        self.workers.store(workers as u32, Ordering::Relaxed);
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed) as usize
    }

    /// Takes a seat; how many sat there before.
    pub(super) fn sit(&self, seat: usize, address: Address) -> u32 {
        let seat = &self.seats[seat];
        // One writer at a time: a successor sits down when the one before is reaped, which may have
        // been killed in here.
        let odd = seat.version.load(Ordering::Relaxed) | 1;
        seat.version.store(odd, Ordering::Relaxed);
        // SYNC heaps-address: pairs with the fence in `address`.
        std::sync::atomic::fence(Ordering::Release);
        seat.address.iter().zip(address).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
        // SYNC heaps-address: pairs with the first load in `address`.
        seat.version.store(odd.wrapping_add(1), Ordering::Release);
        let before = seat.sat.load(Ordering::Relaxed);
        seat.sat.store(before + 1, Ordering::Relaxed);
        // SYNC heaps-ready: pairs with `all_ready`; the address comes before.
        seat.ready.store(1, Ordering::Release);
        before
    }

    /// How to hand a block to who sits there; the one before, while somebody sits down.
    pub(super) fn address(&self, seat: usize, known: &mut (u32, Address)) -> Address {
        let seat = &self.seats[seat];
        // SYNC heaps-address: pairs with the last store in `sit`.
        let version = seat.version.load(Ordering::Acquire);
        if version != known.0 && version.is_multiple_of(2) {
            let address = [0, 1].map(|at| seat.address[at].load(Ordering::Relaxed));
            // SYNC heaps-address: pairs with the fence in `sit`.
            std::sync::atomic::fence(Ordering::Acquire);
            if seat.version.load(Ordering::Relaxed) == version {
                *known = (version, address);
            }
        }
        known.1
    }

    /// Whether all have sat down.
    pub(super) fn all_ready(&self) -> bool {
        let seats = &self.seats[..self.workers()];
        // SYNC heaps-ready: pairs with the store in `sit`.
        seats.iter().all(|seat| seat.ready.load(Ordering::Acquire) != 0)
    }

    /// Lets them begin.
    pub(super) fn go(&self) {
        // SYNC heaps-go: pairs with `may_go`.
        self.go.store(1, Ordering::Release);
    }

    pub(super) fn may_go(&self) -> bool {
        // SYNC heaps-go: pairs with `go`.
        self.go.load(Ordering::Acquire) != 0
    }

    /// Tells all to come to an end.
    pub(super) fn stop(&self) {
        self.stop.store(1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Somebody was killed, and reaped.
    pub(super) fn died(&self) {
        // SYNC heaps-deaths: pairs with `deaths`; the death comes before.
        self.deaths.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn deaths(&self) -> u32 {
        // SYNC heaps-deaths: pairs with `died`.
        self.deaths.load(Ordering::Acquire)
    }

    /// What has been freed at a seat so far.
    pub(super) fn freed_at(&self, seat: usize) -> u64 {
        self.seats[seat].freed.load(Ordering::Relaxed)
    }

    /// Only who sits there says it.
    #[inline(always)]
    pub(super) fn set_freed(&self, seat: usize, count: u64) {
        self.seats[seat].freed.store(count, Ordering::Relaxed);
    }

    /// What has been freed by all.
    pub(super) fn freed(&self) -> u64 {
        (0..self.workers()).map(|seat| self.freed_at(seat)).sum()
    }

    /// Nothing will be written into the rings that lead away from a seat any more.
    pub(super) fn finish(&self, seat: usize) {
        // SYNC heaps-finished: pairs with `all_finished`; the rings come before.
        self.seats[seat].finished.store(1, Ordering::Release);
    }

    pub(super) fn all_finished(&self) -> bool {
        let seats = &self.seats[..self.workers()];
        // SYNC heaps-finished: pairs with `finish`.
        seats.iter().all(|seat| seat.finished.load(Ordering::Acquire) != 0)
    }

    /// Both sides of a seat's rings: to each, and from each.
    pub(super) fn rings(&self, seat: usize) -> (Vec<Outbound<'_>>, Vec<Inbound<'_>>) {
        let all = 0..self.workers();
        let to = all.clone().map(|other| Outbound::of(&self.rings[seat][other])).collect();
        (to, all.map(|other| Inbound::of(&self.rings[other][seat])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::shared::Shared;

    #[test]
    fn a_seat_that_is_being_taken_keeps_the_address_before() {
        let board = Shared::<Board>::anonymous().expect("memory");
        board.set_workers(2);
        let mut known = (0, [0; 2]);
        assert_eq!((board.sit(1, [7, 8]), board.address(1, &mut known)), (0, [7, 8]));
        assert!(!board.all_ready());
        // Killed while it sat down.
        board.seats[1].version.fetch_or(1, Ordering::Relaxed);
        board.seats[1].address[0].store(9, Ordering::Relaxed);
        assert_eq!(board.address(1, &mut known), [7, 8]);
        assert_eq!((board.sit(1, [10, 11]), board.address(1, &mut known)), (1, [10, 11]));
        board.sit(0, [1, 1]);
        assert!(board.all_ready());
    }
}

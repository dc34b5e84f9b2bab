//! Shared state of the workers and the process that starts them: [`WorkerTable`], with a
//! [`WorkerSlot`] per worker and a ring from each worker to each worker.
//!
//! The table is in shared memory, so that workers may be processes. A slot outlives its worker: a
//! replacement for a killed worker takes over its index (`seat`).

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tontine_host::os::shared::Shareable;

use super::ring::{Outbound, RingReader, WorkerRing};

/// Maximum number of workers.
pub(super) const SEATS: usize = 8;

/// The address by which a worker receives a block. Each heap defines its meaning.
pub(super) type BlockAddress = u64;

/// The shared state.
#[derive(Debug)]
#[repr(C)]
pub(super) struct WorkerTable {
    /// Number of slots in use.
    workers: AtomicU32,
    go: AtomicU32,
    stop: AtomicU32,
    /// Number of killed workers.
    deaths: AtomicU32,
    seats: [WorkerSlot; SEATS],
    rings: [[WorkerRing; SEATS]; SEATS],
}

/// State of one worker.
#[derive(Debug)]
#[repr(C, align(128))]
struct WorkerSlot {
    /// Number of blocks that the slot's workers have freed.
    freed: AtomicU64,
    /// Number of workers that have used this slot.
    sat: AtomicU32,
    ready: AtomicU32,
    /// 1 if the worker neither allocates blocks nor passes blocks on any more.
    finished: AtomicU32,
    address: AtomicU64,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for WorkerTable {}

impl WorkerTable {
    /// Sets the number of workers.
    pub(super) fn set_workers(&self, workers: usize) {
        self.workers.store(workers as u32, Ordering::Relaxed);
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed) as usize
    }

    /// Occupies a slot. Returns the number of its previous workers.
    pub(super) fn sit(&self, seat: usize, address: BlockAddress) -> u32 {
        let seat = &self.seats[seat];
        seat.address.store(address, Ordering::Relaxed);
        let before = seat.sat.load(Ordering::Relaxed);
        seat.sat.store(before + 1, Ordering::Relaxed);
        // SYNC heaps-ready: pairs with `all_ready`; the address is already stored.
        seat.ready.store(1, Ordering::Release);
        before
    }

    /// Returns the address of the slot's current or last worker.
    #[inline(always)]
    pub(super) fn address(&self, seat: usize) -> BlockAddress {
        self.seats[seat].address.load(Ordering::Relaxed)
    }

    /// Returns `true` if all workers are ready.
    pub(super) fn all_ready(&self) -> bool {
        let seats = &self.seats[..self.workers()];
        // SYNC heaps-ready: pairs with the store in `sit`.
        seats.iter().all(|seat| seat.ready.load(Ordering::Acquire) != 0)
    }

    /// Starts the workers.
    pub(super) fn go(&self) {
        // SYNC heaps-go: pairs with `may_go`.
        self.go.store(1, Ordering::Release);
    }

    pub(super) fn may_go(&self) -> bool {
        // SYNC heaps-go: pairs with `go`.
        self.go.load(Ordering::Acquire) != 0
    }

    /// Stops all workers.
    pub(super) fn stop(&self) {
        self.stop.store(1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Records that a worker was killed and reaped.
    pub(super) fn died(&self) {
        // SYNC heaps-deaths: pairs with `deaths`; the death happens before this store.
        self.deaths.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn deaths(&self) -> u32 {
        // SYNC heaps-deaths: pairs with `died`.
        self.deaths.load(Ordering::Acquire)
    }

    /// Returns the number of blocks that a slot's workers have freed so far.
    pub(super) fn freed_at(&self, seat: usize) -> u64 {
        self.seats[seat].freed.load(Ordering::Relaxed)
    }

    /// Sets the number of freed blocks; only the slot's worker calls this method.
    #[inline(always)]
    pub(super) fn set_freed(&self, seat: usize, count: u64) {
        self.seats[seat].freed.store(count, Ordering::Relaxed);
    }

    /// Returns the number of blocks freed by all workers.
    pub(super) fn freed(&self) -> u64 {
        (0..self.workers()).map(|seat| self.freed_at(seat)).sum()
    }

    /// Records that the slot's worker writes nothing more into its rings.
    pub(super) fn finish(&self, seat: usize) {
        // SYNC heaps-finished: pairs with `all_finished`; the rings are already written.
        self.seats[seat].finished.store(1, Ordering::Release);
    }

    pub(super) fn all_finished(&self) -> bool {
        let seats = &self.seats[..self.workers()];
        // SYNC heaps-finished: pairs with `finish`.
        seats.iter().all(|seat| seat.finished.load(Ordering::Acquire) != 0)
    }

    /// Returns the rings of a slot: one to each worker, and one from each worker.
    pub(super) fn rings(&self, seat: usize) -> (Vec<Outbound<'_>>, Vec<RingReader<'_>>) {
        let all = 0..self.workers();
        let to = all.clone().map(|other| Outbound::of(&self.rings[seat][other])).collect();
        (to, all.map(|other| RingReader::of(&self.rings[other][seat])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::shared::SharedMapping;

    #[test]
    fn worker_table_is_ready_when_every_slot_is_taken() {
        let board = SharedMapping::<WorkerTable>::anonymous().expect("memory");
        board.set_workers(2);
        assert_eq!((board.sit(1, 7), board.address(1), board.all_ready()), (0, 7, false));
        assert_eq!((board.sit(1, 8), board.address(1), board.all_ready()), (1, 8, false));
        board.sit(0, 1);
        assert!(board.all_ready());
        board.set_freed(0, 3);
        board.set_freed(1, 4);
        assert_eq!(board.freed(), 7);
    }
}

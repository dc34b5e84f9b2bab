//! Shared state of the workers and the process that starts them: [`WorkerTable`], with a slot per
//! worker and a [`WorkerRing`] from each worker to each worker.
//!
//! The table is in shared memory, so that workers may be processes. A slot outlives its worker: a
//! replacement for a killed worker takes over its index, and continues its rings at their
//! positions. It overwrites entries that the dead worker had not published, and does not read again
//! those that it had read.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::prelude::*;

pub(super) const MAX_WORKERS: usize = 8;
/// Maximum number of entries in flight in a ring.
const ENTRIES: u64 = 1 << 10;

/// The address by which a worker receives a block. Each heap defines its meaning.
pub(super) type BlockAddress = u64;
/// An element of a ring: three opaque words.
pub(super) type RingEntry = [u64; 3];

#[derive(Debug)]
#[repr(C)]
pub(super) struct WorkerTable {
    workers: AtomicU32,
    go: AtomicU32,
    stop: AtomicU32,
    deaths: AtomicU32,
    slots: [WorkerSlot; MAX_WORKERS],
    rings: [[WorkerRing; MAX_WORKERS]; MAX_WORKERS],
}

#[derive(Debug)]
#[repr(C, align(128))]
struct WorkerSlot {
    /// Number of blocks that the slot's workers have freed.
    freed: AtomicU64,
    /// Number of workers that have used this slot.
    used: AtomicU32,
    ready: AtomicU32,
    /// 1 if the worker neither allocates blocks nor passes blocks on any more.
    finished: AtomicU32,
    address: AtomicU64,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for WorkerTable {}

impl WorkerTable {
    pub(super) fn set_workers(&self, workers: usize) {
        self.workers.store(workers as u32, Ordering::Relaxed);
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed) as usize
    }

    fn used_slots(&self) -> &[WorkerSlot] {
        &self.slots[..self.workers()]
    }

    /// Occupies a slot. Returns the number of its previous workers.
    pub(super) fn occupy(&self, slot: usize, address: BlockAddress) -> u32 {
        let slot = &self.slots[slot];
        slot.address.store(address, Ordering::Relaxed);
        let before = slot.used.load(Ordering::Relaxed);
        slot.used.store(before + 1, Ordering::Relaxed);
        // SYNC heaps-ready: pairs with `all_ready`; the address is already stored.
        slot.ready.store(1, Ordering::Release);
        before
    }

    /// Returns the address of the slot's current or last worker.
    #[inline(always)]
    pub(super) fn address(&self, slot: usize) -> BlockAddress {
        self.slots[slot].address.load(Ordering::Relaxed)
    }

    pub(super) fn all_ready(&self) -> bool {
        // SYNC heaps-ready: pairs with the store in `occupy`.
        self.used_slots().iter().all(|slot| slot.ready.load(Ordering::Acquire) != 0)
    }

    pub(super) fn go(&self) {
        // SYNC heaps-go: pairs with `may_go`.
        self.go.store(1, Ordering::Release);
    }

    pub(super) fn may_go(&self) -> bool {
        // SYNC heaps-go: pairs with `go`.
        self.go.load(Ordering::Acquire) != 0
    }

    pub(super) fn stop(&self) {
        self.stop.store(1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    /// Records that a worker was killed and reaped.
    pub(super) fn add_death(&self) {
        // SYNC heaps-deaths: pairs with `deaths`; the death happens before this store.
        self.deaths.fetch_add(1, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn deaths(&self) -> u32 {
        // SYNC heaps-deaths: pairs with `add_death`.
        self.deaths.load(Ordering::Acquire)
    }

    pub(super) fn freed_by(&self, slot: usize) -> u64 {
        self.slots[slot].freed.load(Ordering::Relaxed)
    }

    /// Sets the number of freed blocks; only the slot's worker calls this method.
    #[inline(always)]
    pub(super) fn set_freed(&self, slot: usize, count: u64) {
        self.slots[slot].freed.store(count, Ordering::Relaxed);
    }

    pub(super) fn freed(&self) -> u64 {
        self.used_slots().iter().map(|slot| slot.freed.load(Ordering::Relaxed)).sum()
    }

    /// Records that the slot's worker writes nothing more into its rings.
    pub(super) fn finish(&self, slot: usize) {
        // SYNC heaps-finished: pairs with `all_finished`; the rings are already written.
        self.slots[slot].finished.store(1, Ordering::Release);
    }

    pub(super) fn all_finished(&self) -> bool {
        // SYNC heaps-finished: pairs with `finish`.
        self.used_slots().iter().all(|slot| slot.finished.load(Ordering::Acquire) != 0)
    }

    /// Returns the rings of a slot: one to each worker, and one from each worker.
    pub(super) fn rings(&self, slot: usize) -> (Vec<RingWriter<'_>>, Vec<RingReader<'_>>) {
        let all = 0..self.workers();
        let to = all.clone().map(|other| RingWriter::of(&self.rings[slot][other])).collect();
        (to, all.map(|other| RingReader::of(&self.rings[other][slot])).collect())
    }
}

#[derive(Debug)]
#[repr(C)]
struct WorkerRing {
    written: RingPosition,
    read: RingPosition,
    entries: [[AtomicU64; 3]; ENTRIES as usize],
}

/// The position of one end, on its own cache lines.
#[derive(Debug)]
#[repr(C, align(128))]
struct RingPosition(AtomicU64);

#[derive(Debug)]
pub(super) struct RingWriter<'r> {
    ring: &'r WorkerRing,
    position: u64,
    /// The position of the other end when last loaded.
    read: u64,
}

#[derive(Debug)]
pub(super) struct RingReader<'r> {
    ring: &'r WorkerRing,
    position: u64,
    /// The position of the other end when last loaded.
    written: u64,
}

impl<'r> RingWriter<'r> {
    fn of(ring: &'r WorkerRing) -> Self {
        let position = ring.written.0.load(Ordering::Relaxed);
        // SYNC heaps-read: pairs with the store in `RingReader::take`.
        Self { ring, position, read: ring.read.0.load(Ordering::Acquire) }
    }

    /// Returns the number of the next entry, or `None` if the ring is full.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.position - self.read == ENTRIES {
            // SYNC heaps-read: pairs with the store in `RingReader::take`.
            self.read = self.ring.read.0.load(Ordering::Acquire);
        }
        (self.position - self.read < ENTRIES).then_some(self.position)
    }

    /// Writes the entry that [`RingWriter::next`] has numbered. The reader sees it only after
    /// [`RingWriter::publish`].
    #[inline(always)]
    pub(super) fn write(&mut self, entry: RingEntry) {
        debug_assert!(self.position - self.read < ENTRIES);
        let words = &self.ring.entries[(self.position % ENTRIES) as usize];
        words.iter().zip(entry).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        self.position += 1;
    }

    #[inline(always)]
    pub(super) fn publish(&mut self) {
        // SYNC heaps-written: pairs with `RingReader::take`; the entries are stored before this
        // store.
        self.ring.written.0.store(self.position, Ordering::Release);
    }
}

impl<'r> RingReader<'r> {
    fn of(ring: &'r WorkerRing) -> Self {
        let position = ring.read.0.load(Ordering::Relaxed);
        Self { ring, position, written: position }
    }

    /// Takes the next entry and its number. The entry then belongs to the caller alone: if the
    /// caller is killed, no other worker reads the entry.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<(u64, RingEntry)> {
        if self.position == self.written {
            // SYNC heaps-written: pairs with the store in `RingWriter::publish`.
            self.written = self.ring.written.0.load(Ordering::Acquire);
            if self.position == self.written {
                return None;
            }
        }
        let number = self.position;
        let words = &self.ring.entries[(number % ENTRIES) as usize];
        let entry = [0, 1, 2].map(|at| words[at].load(Ordering::Relaxed));
        self.position += 1;
        // SYNC heaps-read: pairs with `RingWriter::next`; the entry was copied before this store.
        self.ring.read.0.store(self.position, Ordering::Release);
        Some((number, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SharedMapping<WorkerTable> {
        SharedMapping::anonymous().expect("memory")
    }

    #[test]
    fn worker_table_is_ready_when_every_slot_is_taken() {
        let table = table();
        table.set_workers(2);
        assert_eq!((table.occupy(1, 7), table.address(1), table.all_ready()), (0, 7, false));
        assert_eq!((table.occupy(1, 8), table.address(1), table.all_ready()), (1, 8, false));
        table.occupy(0, 1);
        assert!(table.all_ready());
        table.set_freed(0, 3);
        table.set_freed(1, 4);
        assert_eq!(table.freed(), 7);
    }

    #[test]
    fn ring_delivers_in_order_and_is_bounded() {
        let table = table();
        let ring = &table.rings[0][1];
        let (mut out, mut into) = (RingWriter::of(ring), RingReader::of(ring));
        assert_eq!(into.take(), None);
        for number in 0..ENTRIES {
            assert_eq!(out.next(), Some(number));
            out.write([number, 2, 3]);
        }
        assert_eq!((out.next(), into.take()), (None, None), "full, and not published");
        out.publish();
        assert_eq!(into.take(), Some((0, [0, 2, 3])));
        assert_eq!(out.next(), Some(ENTRIES));
    }

    #[test]
    fn successors_continue_at_the_dead_workers_positions() {
        let table = table();
        let ring = &table.rings[0][1];
        let mut out = RingWriter::of(ring);
        out.write([1; 3]);
        out.publish();
        out.write([2; 3]);
        assert_eq!(RingReader::of(ring).take(), Some((0, [1; 3])));
        // The second entry was never published.
        let mut out = RingWriter::of(ring);
        assert_eq!(out.next(), Some(1));
        out.write([4; 3]);
        out.publish();
        let mut into = RingReader::of(ring);
        assert_eq!((into.take(), into.take()), (Some((1, [4; 3])), None));
    }
}

//! A worker that allocates, frees and passes on blocks: [`HeapWorker`]. Each of its blocks carries
//! a word that names its owner. The worker reads this word before it frees the block or passes it
//! on, and thereby detects a heap that returns the same memory twice.

#![allow(unsafe_code, reason = "reads and writes inside of blocks")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use std::ptr::NonNull;

use super::heaps::MeasuredHeap;
use super::table::{RingReader, RingWriter, WorkerTable};
use crate::allocators::worker_threads::BlockRng;
use crate::prelude::*;

const POLLS: u32 = 1 << 10;

// The first word of a block: its owner and slot, or its entry in a ring.
//
//  63   56 55   48 47       46        40 39      0
// +-------+-------+-----------+-----------+---------+
// | slot  | 0     | 0         | generation| place   |
// | to    | from  | in flight | 0         | number  |
// +-------+-------+-----------+-----------+---------+
//
// `slot` is the worker's index, `generation` the number of previous workers with that index, modulo
// 128.
const SLOT: u32 = 56;
const FROM: u32 = 48;
const IN_FLIGHT: u64 = 1 << 47;
const GENERATION: u32 = 40;
const GENERATION_MASK: u32 = 0x7f;
const PLACE: u64 = (1 << GENERATION) - 1;

pub(super) struct HeapWorker<'w, H: MeasuredHeap> {
    heap: &'w H,
    table: &'w WorkerTable,
    /// The worker's index in the [`WorkerTable`].
    pub(super) slot: usize,
    pub(super) workers: usize,
    pub(super) random: BlockRng,
    /// `true` if no other worker had this index earlier.
    pub(super) is_first: bool,
    owner: u64,
    freed: u64,
    deaths: u32,
    outbound: Vec<RingWriter<'w>>,
    inbound: Vec<RingReader<'w>>,
}

/// A block and the slot in which its worker keeps it.
pub(super) struct PlacedBlock<'w, H: MeasuredHeap + 'w> {
    block: H::Block<'w>,
    place: u64,
}

impl<'w, H: MeasuredHeap> HeapWorker<'w, H> {
    /// Occupies a slot of the table.
    pub(super) fn new(heap: &'w H, table: &'w WorkerTable, slot: usize) -> Self {
        let before = table.occupy(slot, heap.address());
        let workers = table.workers();
        let (outbound, inbound) = table.rings(slot);
        Self {
            heap,
            table,
            slot,
            workers,
            random: BlockRng::of(slot + before as usize * workers),
            is_first: before == 0,
            owner: ((slot as u64) << SLOT) | (u64::from(before & GENERATION_MASK) << GENERATION),
            freed: table.freed_by(slot),
            deaths: table.deaths(),
            outbound,
            inbound,
        }
    }

    pub(super) fn wait(&self) {
        let mut backoff = SpinThenYield::default();
        while !self.table.may_go() {
            backoff.wait();
        }
    }

    /// Returns `true` until the benchmark is stopped. Also recovers dead workers.
    #[inline(always)]
    pub(super) fn continues(&mut self) -> Result<bool> {
        let deaths = self.table.deaths();
        if deaths != self.deaths {
            self.deaths = deaths;
            self.heap.recover_and_trim()?;
        }
        Ok(!self.table.stopped())
    }

    #[inline(always)]
    pub(super) fn allocate(&self, size: usize, place: usize) -> Result<PlacedBlock<'w, H>> {
        debug_assert!(size >= size_of::<u64>());
        let block = self.heap.allocate(size)?;
        Ok(self.keep(block, place))
    }

    /// Checks a block's owner and frees it.
    #[inline(always)]
    pub(super) fn free(&mut self, held: PlacedBlock<'w, H>) -> Result<()> {
        self.heap.free(self.checked(held)?)?;
        self.freed += 1;
        self.table.set_freed(self.slot, self.freed);
        Ok(())
    }

    /// Passes a block on, or returns it if the ring is full. The receiver sees the block only after
    /// [`HeapWorker::publish`]. If the receiver is dead, the block is freed.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        held: PlacedBlock<'w, H>,
        to: usize,
    ) -> Result<Option<PlacedBlock<'w, H>>> {
        let Some(number) = self.outbound[to].next() else { return Ok(Some(held)) };
        let mut block = self.checked(held)?;
        write(self.heap.at(&mut block), in_flight(self.slot, to, number));
        if let Some(entry) = self.heap.give(block, self.table.address(to))? {
            self.outbound[to].write(entry);
        }
        Ok(None)
    }

    #[inline(always)]
    pub(super) fn publish(&mut self, to: usize) {
        self.outbound[to].publish();
    }

    /// Passes a block on and publishes it. Waits for space in the ring; if the work ends first,
    /// frees the block.
    #[inline(always)]
    pub(super) fn hand(&mut self, mut held: PlacedBlock<'w, H>, to: usize) -> Result<()> {
        let mut backoff = SpinThenYield::default();
        while let Some(back) = self.pass(held, to)? {
            held = back;
            backoff.wait();
            if !self.continues()? {
                return self.free(held);
            }
        }
        self.publish(to);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn receive(
        &mut self,
        from: usize,
        place: usize,
    ) -> Result<Option<PlacedBlock<'w, H>>> {
        while let Some((number, entry)) = self.inbound[from].take() {
            let Some(mut block) = self.heap.take(entry)? else {
                self.expect_dead_receiver()?;
                continue;
            };
            if read(self.heap.at(&mut block)) != in_flight(from, self.slot, number) {
                return Err(twice());
            }
            return Ok(Some(self.keep(block, place)));
        }
        Ok(None)
    }

    /// Returns word number `at` of a block's requested bytes, except the first word.
    #[inline(always)]
    pub(super) fn word<'b>(&self, held: &'b mut PlacedBlock<'w, H>, at: usize) -> &'b AtomicU64 {
        debug_assert!(at > 0);
        // SAFETY: the contract of `MeasuredHeap` allows the access while the block is held; a word
        // is aligned.
        unsafe { AtomicU64::from_ptr(self.heap.at(&mut held.block).as_ptr().add(at)) }
    }

    #[inline(always)]
    pub(super) fn write_often(&self, held: &mut PlacedBlock<'w, H>, times: u32) {
        let word = self.word(held, 1);
        for _ in 0..times {
            // Each iteration loads from and stores to memory; no other thread writes the word.
            word.store(word.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Ends the work: takes the remaining blocks until no worker passes on any more.
    pub(super) fn finish(mut self) -> Result<()> {
        (0..self.workers).for_each(|to| self.publish(to));
        self.table.finish(self.slot);
        let mut backoff = SpinThenYield::default();
        loop {
            let last = self.table.all_finished();
            for from in 0..self.workers {
                while let Some(held) = self.receive(from, 0)? {
                    self.heap.free(self.checked(held)?)?;
                }
            }
            if last {
                return Ok(());
            }
            backoff.wait();
            self.continues()?;
        }
    }

    #[cold]
    fn expect_dead_receiver(&self) -> Result<()> {
        if self.table.deaths() > 0 {
            return Ok(());
        }
        Err(MeasureError::fail("a block that was passed on did not arrive, and no worker had died"))
    }

    #[inline(always)]
    fn keep(&self, mut block: H::Block<'w>, place: usize) -> PlacedBlock<'w, H> {
        let place = place as u64 & PLACE;
        write(self.heap.at(&mut block), self.owner | place);
        PlacedBlock { block, place }
    }

    #[inline(always)]
    fn checked(&self, mut held: PlacedBlock<'w, H>) -> Result<H::Block<'w>> {
        let found = read(self.heap.at(&mut held.block));
        if found == self.owner | held.place { Ok(held.block) } else { Err(twice()) }
    }
}

/// Returns the first word of a block in flight.
#[inline(always)]
fn in_flight(from: usize, to: usize, number: u64) -> u64 {
    ((to as u64) << SLOT) | ((from as u64) << FROM) | IN_FLIGHT | (number & PLACE)
}

#[inline(always)]
fn write(at: NonNull<u64>, word: u64) {
    // SAFETY: the contract of `MeasuredHeap::at` allows the write; the word detects a heap that
    // breaks it.
    unsafe { at.write_volatile(word) };
}

#[inline(always)]
fn read(at: NonNull<u64>) -> u64 {
    // SAFETY: as in `write`.
    unsafe { at.read_volatile() }
}

#[cold]
fn twice() -> MeasureError {
    MeasureError::fail("the heap handed out one piece of memory twice")
}

/// A wait that polls many times, then yields.
#[derive(Debug, Default)]
pub(super) struct SpinThenYield(u32);

impl SpinThenYield {
    #[inline(always)]
    pub(super) fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(POLLS) {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

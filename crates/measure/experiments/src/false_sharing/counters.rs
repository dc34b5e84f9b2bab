//! Two counters, [`CounterPair`], placed by the source's heap or at a given distance, and the
//! counting loop, [`increment`].
//!
//! An increment loads the word, adds one and stores it, without atomicity: x86-64 compiles it to
//! one instruction, `inc` on memory without a lock prefix (a test checks the machine code), Arm to
//! three. No other thread writes the word, so no increment is lost; only the cache line moves
//! between the processors.

#![allow(unsafe_code, reason = "counts in a heap's blocks; a test reads the loop's machine code")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use std::ptr::NonNull;

use tontine_bench::peer::TellEnd;
use tontine_mechanisms::classic::{ClassicHeap, DEFAULT_SIZE, Fit, Map};

use crate::prelude::*;

/// Size of a cache line in bytes, on x86-64 and on most Arm processors.
pub(super) const LINE: usize = 64;

pub(super) const MAX_DISTANCE: usize = 256;

const WORD: usize = size_of::<u64>();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CounterLayout {
    /// In two blocks of this many bytes in the source's heap, after a block of 32 bytes.
    Blocks(usize),
    /// In two blocks of this many bytes in the source's heap, the first ones.
    FirstBlocks(usize),
    /// This many bytes apart, the first at a multiple of [`MAX_DISTANCE`].
    Apart(usize),
}

impl CounterLayout {
    pub(super) const ONE_LINE: Self = Self::Blocks(8);
    pub(super) const TWO_LINES: Self = Self::Blocks(64);
    /// Two blocks of 8 bytes without the source's unused block before them.
    pub(super) const NO_UNUSED: Self = Self::FirstBlocks(8);

    /// Returns a layout `distance` bytes apart, or `None` if the distance is 0, above
    /// [`MAX_DISTANCE`], or not a multiple of a word.
    pub(super) fn apart(distance: usize) -> Option<Self> {
        let fits = distance > 0 && distance <= MAX_DISTANCE && distance.is_multiple_of(WORD);
        fits.then_some(Self::Apart(distance))
    }
}

#[derive(Debug)]
pub(super) struct CounterPair {
    pair: [NonNull<AtomicU64>; 2],
    heap: ClassicHeap,
}

impl CounterPair {
    pub(super) fn at(places: CounterLayout) -> Result<Self> {
        let made = ClassicHeap::new(Fit::First, DEFAULT_SIZE).and_then(|mut heap| {
            let words = match places {
                CounterLayout::Blocks(size) => {
                    heap.malloc(32)?;
                    [heap.malloc(size)?, heap.malloc(size)?]
                }
                CounterLayout::FirstBlocks(size) => [heap.malloc(size)?, heap.malloc(size)?],
                CounterLayout::Apart(distance) => {
                    let block = heap.malloc(3 * MAX_DISTANCE)?;
                    let first = block.as_ptr().align_offset(MAX_DISTANCE);
                    // SAFETY: the first counter begins within the block's first third and the
                    // second within the next third, as `CounterLayout::apart` ensures.
                    [first, first + distance].map(|at| unsafe { block.add(at) })
                }
            };
            Ok((heap, words.map(NonNull::cast::<AtomicU64>)))
        });
        let (heap, pair) =
            made.map_err(|error| MeasureError::fail(format!("the source's heap: {error}")))?;
        for counter in pair {
            // SAFETY: the counter is a word, aligned to at least 8, of a block that no other code
            // uses.
            unsafe { counter.write(AtomicU64::new(0)) };
        }
        Ok(Self { pair, heap })
    }

    pub(super) fn map(&self) -> Result<Map> {
        self.heap.check().map_err(|error| MeasureError::fail(format!("the source's heap: {error}")))
    }

    fn pair(&self) -> [&AtomicU64; 2] {
        // SAFETY: the counters are in blocks that `self`'s heap never frees, and were initialised
        // at construction.
        self.pair.map(|counter| unsafe { counter.as_ref() })
    }

    /// Returns the distance between the two counters, and `true` if a single line of `line` bytes
    /// contains both.
    pub(super) fn lie(&self, line: usize) -> (usize, bool) {
        let [p, q] = self.pair.map(|counter| counter.as_ptr().addr());
        (q - p, p / line == q / line)
    }

    /// Increments one counter, then the other, on one processor. Returns the total time in ns.
    pub(super) fn serial(&self, cpu: usize, times: usize, clock: Clock) -> Result<f64> {
        let _pinned = Pinned::to(cpu)?;
        let [p, q] = self.pair();
        let before = self.sums();
        let from = clock.start();
        increment(p, times as u64);
        increment(q, times as u64);
        let ns = clock.ns_between(from, clock.stop());
        self.check(before, times)?;
        Ok(ns)
    }

    /// Increments both counters at the same time, each in its own thread. Returns the time in ns
    /// until both threads have finished.
    ///
    /// The other thread is already running on its processor when the clock is read.
    pub(super) fn at_once(&self, on: Placement, times: usize, clock: Clock) -> Result<f64> {
        let [p, q] = self.pair();
        let before = self.sums();
        let [ready, go, done] = [(); 3].map(|()| PaddedWord::default());
        let ended = AtomicBool::new(false);
        let ns = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _ends = TellEnd(&ended);
                let _pinned = Pinned::to(on.there)?;
                ready.set(1);
                // No timeout is needed, because the word is always set.
                spin_until(&[PeerHandle::Parent], true, || go.get() == 1)?;
                increment(q, times as u64);
                done.set(1);
                Ok(())
            });
            let pinned = Pinned::to(on.here);
            let others = PeerHandle::Thread(&ended);
            let met = spin_until(&[others], true, || ready.get() == 1);
            let from = clock.start();
            go.set(1);
            increment(p, times as u64);
            let met = met.and_then(|()| spin_until(&[others], true, || done.get() == 1));
            let ns = clock.ns_between(from, clock.stop());
            let ns = pinned.and(met).map(|()| ns);
            match other.join() {
                Ok(Ok(())) => ns,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(MeasureError::fail("the other counting thread panicked")),
            }
        })?;
        self.check(before, times)?;
        Ok(ns)
    }

    fn sums(&self) -> [u64; 2] {
        self.pair().map(|counter| counter.load(Ordering::Relaxed))
    }

    fn check(&self, before: [u64; 2], times: usize) -> Result<()> {
        let counted = [0, 1].map(|at| self.sums()[at] - before[at]);
        if counted == [times as u64; 2] {
            return Ok(());
        }
        Err(MeasureError::fail(format!(
            "expected {times} increments of each counter, found {counted:?}"
        )))
    }
}

/// A word on its own cache lines, so that waiting for it disturbs no counter.
#[derive(Debug, Default)]
#[repr(C, align(256))]
pub(super) struct PaddedWord(AtomicU64);

impl PaddedWord {
    pub(super) fn set(&self, value: u64) {
        // SYNC counters-word: pairs with `get`.
        self.0.store(value, Ordering::Release);
    }

    pub(super) fn get(&self) -> u64 {
        // SYNC counters-word: pairs with `set`.
        self.0.load(Ordering::Acquire)
    }
}

/// The timed loop: executes `++*val` `times` times; every increment accesses memory.
#[inline(never)]
pub(super) fn increment(counter: &AtomicU64, times: u64) {
    for _ in 0..times {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Returns the line size of the first-level data cache in bytes, if the system reports it.
pub(super) fn line_of_this_machine() -> Option<usize> {
    let text =
        std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    text.ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_increment_fails_the_row() {
        let counters = CounterPair::at(CounterLayout::ONE_LINE).expect("there is memory");
        increment(counters.pair()[0], 5);
        increment(counters.pair()[1], 4);
        let found = counters.check([0, 0], 5).expect_err("one is missing");
        assert!(found.why().contains("[5, 4]"), "{found}");
        increment(counters.pair()[1], 1);
        counters.check([0, 0], 5).expect("all are there");
    }

    /// Checks that the source's `++*val` is timed as memory accesses: one instruction that reads
    /// and writes the word, or a load and a store. An instruction that keeps the sum in a register
    /// or locks the bus is not allowed. Like all tests that read optimised code, this one exists
    /// in a release build only.
    #[cfg(all(target_arch = "x86_64", not(debug_assertions)))]
    #[test]
    fn increment_compiles_to_load_and_store_without_lock() {
        use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess};
        let start = increment as fn(&AtomicU64, u64) as *const u8;
        // SAFETY: the bytes belong to a function in the executable's text, which extends beyond
        // them.
        let code = unsafe { std::slice::from_raw_parts(start, 256) };
        let all: Vec<Instruction> =
            Decoder::with_ip(64, code, start as u64, DecoderOptions::NONE).into_iter().collect();
        let back = all
            .iter()
            .position(|one| {
                one.is_jcc_short_or_near()
                    && (start as u64..one.ip()).contains(&one.near_branch_target())
            })
            .expect("a loop within 256 bytes");
        let top = all[back].near_branch_target();
        let mut info = InstructionInfoFactory::new();
        let (mut loads, mut stores) = (0, 0);
        for one in all[..=back].iter().filter(|one| one.ip() >= top) {
            assert!(!one.has_lock_prefix(), "{one}");
            for used in info.info(one).used_memory() {
                match used.access() {
                    OpAccess::Read => loads += 1,
                    OpAccess::Write => stores += 1,
                    OpAccess::ReadWrite => {
                        loads += 1;
                        stores += 1;
                    }
                    _ => {}
                }
            }
        }
        assert!(loads > 0 && loads == stores, "{loads} loads, {stores} stores");
    }
}

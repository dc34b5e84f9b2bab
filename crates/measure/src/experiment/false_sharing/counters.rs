//! Two counters in one piece of memory, [`Counters`], and the loop that counts: [`increment`].
//!
//! An increment loads the word, adds one and stores it, plainly: x86-64 makes one instruction of
//! it, `inc` on memory without a lock prefix (a test reads it), Arm makes three. Nobody else
//! writes the word, so nothing is lost; what passes between the processors is the line.

#![allow(unsafe_code, reason = "a test reads the machine code of the loop")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::clock::Clock;
use crate::machine::topology::Placement;
use crate::mechanism::peer::{Peer, TellEnd, spin_until};
use crate::os::pin::Pinned;
use crate::trouble::{Result, Trouble};

/// Bytes of a cache line, on x86-64 and on most Arm processors.
pub(super) const LINE: usize = 64;

/// The farthest that two counters can lie apart.
pub(super) const FARTHEST: usize = 256;

const WORD: usize = size_of::<u64>();

/// Where the two counters lie, in bytes from an address that is a multiple of [`FARTHEST`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Places(pub(super) usize, pub(super) usize);

impl Places {
    /// The addresses that the source prints for two blocks of 8 bytes behind one of 32.
    pub(super) const ONE_LINE: Self = Self(0x50, 0x70);
    /// The same for two blocks of 64 bytes, which with header and footer take 80.
    pub(super) const TWO_LINES: Self = Self(0x50, 0xa0);

    /// The first at the start, the second so many bytes behind; `None` where no word lies there.
    pub(super) fn apart(distance: usize) -> Option<Self> {
        let fits = distance > 0 && distance <= FARTHEST && distance.is_multiple_of(WORD);
        fits.then_some(Self(0, distance))
    }
}

/// The memory, and which two words of it count.
#[derive(Debug)]
pub(super) struct Counters {
    memory: Box<Memory>,
    places: Places,
}

#[derive(Debug)]
#[repr(C, align(256))]
struct Memory([AtomicU64; 2 * FARTHEST / WORD]);

impl Counters {
    /// Two counters at their places, alone in their memory.
    pub(super) fn at(places: Places) -> Self {
        Self { memory: Box::new(Memory([const { AtomicU64::new(0) }; _])), places }
    }

    fn pair(&self) -> [&AtomicU64; 2] {
        [self.places.0, self.places.1].map(|place| &self.memory.0[place / WORD])
    }

    /// Increments one counter, then the other, on one processor; ns for both.
    ///
    /// # Errors
    /// Skipped, where the processor cannot be used; failed, where an increment was lost.
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

    /// Increments both at once, each by a thread of its own; ns until both have ended.
    ///
    /// The other thread stands ready, on its processor, before the clock is read.
    ///
    /// # Errors
    /// As [`Counters::serial`].
    pub(super) fn at_once(&self, on: Placement, times: usize, clock: Clock) -> Result<f64> {
        let [p, q] = self.pair();
        let before = self.sums();
        let (ready, go, done) = (Flag::default(), Flag::default(), Flag::default());
        let ended = AtomicBool::new(false);
        let ns = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let _told = TellEnd(&ended);
                let _pinned = Pinned::to(on.there)?;
                ready.raise();
                // It is raised in any case.
                spin_until(Peer::Parent, true, || go.is_raised())?;
                increment(q, times as u64);
                done.raise();
                Ok(())
            });
            let pinned = Pinned::to(on.here);
            let others = Peer::Thread(&ended);
            let met = spin_until(others, true, || ready.is_raised());
            let from = clock.start();
            go.raise();
            increment(p, times as u64);
            let met = met.and_then(|()| spin_until(others, true, || done.is_raised()));
            let ns = clock.ns_between(from, clock.stop());
            let ns = pinned.and(met).map(|()| ns);
            match other.join() {
                Ok(Ok(())) => ns,
                Ok(Err(trouble)) => Err(trouble),
                Err(_) => Err(Trouble::fail("the other counting thread panicked")),
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
        Err(Trouble::fail(format!(
            "expected {times} increments of each counter, found {counted:?}"
        )))
    }
}

/// A flag on lines of its own: waiting for it disturbs no counter.
#[derive(Debug, Default)]
#[repr(align(256))]
struct Flag(AtomicBool);

impl Flag {
    fn raise(&self) {
        // SYNC counters-flag: pairs with `is_raised`.
        self.0.store(true, Ordering::Release);
    }

    fn is_raised(&self) -> bool {
        // SYNC counters-flag: pairs with `raise`.
        self.0.load(Ordering::Acquire)
    }
}

/// The loop that is timed: `++*val`, so many times, each time in memory.
#[inline(never)]
pub(super) fn increment(counter: &AtomicU64, times: u64) {
    for _ in 0..times {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Bytes of a line of the first-level data cache, where the system says.
pub(super) fn line_of_this_machine() -> Option<usize> {
    let text =
        std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    text.ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_increment_is_a_failure() {
        let counters = Counters::at(Places::ONE_LINE);
        increment(counters.pair()[0], 5);
        increment(counters.pair()[1], 4);
        let found = counters.check([0, 0], 5).expect_err("one is missing");
        assert!(found.why().contains("[5, 4]"), "{found}");
        increment(counters.pair()[1], 1);
        counters.check([0, 0], 5).expect("all are there");
    }

    /// The seed's `++*val` is timed as memory sees it: one instruction that reads and writes it,
    /// or a load and a store, and never one that keeps the sum in a register or locks the bus.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_increment_is_a_load_and_a_store_without_a_lock() {
        use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess};
        let start = increment as fn(&AtomicU64, u64) as *const u8;
        // SAFETY: the bytes of a function in the executable's text, which is longer than that.
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

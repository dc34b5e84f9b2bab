//! The table of process numbers (§5): [`PidTable`].
//!
//! The table has one word per number. The word contains the slot that has the number, and flags for
//! other objects that prevent its reuse: a group, a session, a thread. Words are allocated and
//! released under `pid_lock`. A lookup reads a word without that lock, so its result must be
//! checked against the slot (see [`SlotTable`](super::slab::SlotTable)).

#![allow(unsafe_code, reason = "atomic words are created from zeroed memory")]

use std::sync::atomic::{AtomicU32, Ordering};

use tontine_unix::{Errno, Result};

use crate::executor::{self, Object};
use crate::lock::lock_order::PidLock;
use crate::lock::{Locks, SimpleLock};

/// ```text
/// 31     27 26      25       24     23                       0
/// ┌────────┬────────┬────────┬──────┬────────────────────────┐
/// │    –   │ thread │session │group │ slot + 1, or 0         │
/// └────────┴────────┴────────┴──────┴────────────────────────┘
/// ```
pub(super) struct PidTable {
    words: Box<[AtomicU32]>,
    allocation: SimpleLock<PidLock, Allocation>,
}

struct Allocation {
    /// The number to try first.
    next: usize,
    /// Count of the numbers in use.
    used: usize,
    /// Released slots, with the most recently released one on top.
    free: Vec<u32>,
    /// Number of slots that were ever allocated.
    slots: u32,
}

/// An object, other than a process, that keeps a number in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PidKeeper {
    Group = 1 << 24,
    Session = 1 << 25,
    Thread = 1 << 26,
}

const SLOT: u32 = (1 << 24) - 1;
/// Numbers below this are allocated only once, because they are reserved for the system.
const RESERVED: usize = 300;

impl PidTable {
    /// Creates a table for the numbers 1 to `most`.
    pub(super) fn new(most: usize) -> Self {
        let words = Box::into_raw(vec![0_u32; most + 1].into_boxed_slice());
        // SAFETY: an atomic word has the size, the alignment and the values of a plain one, and the
        // box was just released. The memory is zeroed on allocation, so it is mapped but not
        // written, and the pages of unused numbers are never touched.
        let words = unsafe { Box::from_raw(words as *mut [AtomicU32]) };
        let allocation = Allocation { next: 1, used: 0, free: Vec::new(), slots: 0 };
        Self { words, allocation: SimpleLock::new(0, allocation) }
    }

    /// Returns the slot that had this number when it was read.
    pub(super) fn slot(&self, number: i32) -> Option<u32> {
        executor::looks_at(Object::Number(number));
        let word = self.words.get(usize::try_from(number).ok()?)?;
        // SYNC pid-table: pairs with `PidTable::publish`.
        (word.load(Ordering::Acquire) & SLOT).checked_sub(1)
    }

    /// Returns `true` if an object of kind `keeper` keeps this number.
    pub(super) fn is_kept(&self, number: i32, keeper: PidKeeper) -> bool {
        executor::looks_at(Object::Number(number));
        let word = usize::try_from(number).ok().and_then(|number| self.words.get(number));
        word.is_some_and(|word| word.load(Ordering::Relaxed) & keeper as u32 != 0)
    }

    /// Sets the next number to try.
    pub(super) fn continue_at(&self, locks: &Locks, number: i32) {
        self.allocation.lock(locks).next = usize::try_from(number).unwrap_or(RESERVED);
    }

    /// Allocates a number and a slot for a process. Lookups find the process only after it is
    /// published. Fails with `EAGAIN` if every number is in use.
    pub(super) fn take(&self, locks: &Locks) -> Result<(i32, u32)> {
        let mut allocation = self.allocation.lock(locks);
        let number = self.number(&mut allocation, PidKeeper::Thread)?;
        let slot = allocation.free.pop().unwrap_or_else(|| {
            allocation.slots += 1;
            allocation.slots - 1
        });
        Ok((number, slot))
    }

    /// Allocates a number for a thread. Like [`PidTable::take`].
    pub(super) fn take_for_thread(&self, locks: &Locks) -> Result<i32> {
        let mut allocation = self.allocation.lock(locks);
        self.number(&mut allocation, PidKeeper::Thread)
    }

    fn number(&self, allocation: &mut Allocation, keeper: PidKeeper) -> Result<i32> {
        let most = self.words.len() - 1;
        if allocation.used >= most {
            return Err(Errno::EAGAIN);
        }
        let mut number = allocation.next;
        loop {
            if number > most {
                number = RESERVED.min(most);
            }
            let word = &self.words[number];
            if word.load(Ordering::Relaxed) == 0 {
                executor::changes(Object::Number(number as i32));
                word.store(keeper as u32, Ordering::Relaxed);
                allocation.used += 1;
                allocation.next = number + 1;
                return Ok(number as i32);
            }
            number += 1;
            if number == allocation.next {
                return Err(Errno::EAGAIN);
            }
        }
    }

    /// Returns the count of numbers in use.
    pub(super) fn used(&self, locks: &Locks) -> usize {
        self.allocation.lock(locks).used
    }

    /// Publishes an allocated number and slot, so that lookups find the process.
    pub(super) fn publish(&self, number: i32, slot: u32) {
        executor::changes(Object::Number(number));
        // No other thread changes the word of a number that was allocated and not published.
        // SYNC pid-table: pairs with `PidTable::slot`.
        self.words[number as usize].store(slot + 1, Ordering::Release);
    }

    /// Hides a number from lookups. The number is not reused before it is released.
    pub(super) fn hide(&self, number: i32) {
        executor::changes(Object::Number(number));
        let word = &self.words[number as usize];
        word.fetch_or(PidKeeper::Thread as u32, Ordering::Relaxed);
        word.fetch_and(!SLOT, Ordering::Relaxed);
    }

    /// Releases the number and the slot of a process. Other objects may still keep the number.
    pub(super) fn give_back(&self, locks: &Locks, number: i32, slot: u32) {
        let mut allocation = self.allocation.lock(locks);
        self.release(&mut allocation, number, SLOT | PidKeeper::Thread as u32);
        allocation.free.push(slot);
    }

    /// Keeps a number in use for an object of kind `keeper`. No lock is needed, because the number
    /// is in use and so cannot be reused at this moment.
    pub(super) fn keep(&self, number: i32, keeper: PidKeeper) {
        executor::changes(Object::Number(number));
        self.words[number as usize].fetch_or(keeper as u32, Ordering::Relaxed);
    }

    /// Removes one reason to keep a number.
    pub(super) fn drop_keeper(&self, locks: &Locks, number: i32, keeper: PidKeeper) {
        let mut allocation = self.allocation.lock(locks);
        self.release(&mut allocation, number, keeper as u32);
    }

    fn release(&self, allocation: &mut Allocation, number: i32, bits: u32) {
        executor::changes(Object::Number(number));
        let before = self.words[number as usize].fetch_and(!bits, Ordering::Relaxed);
        if before != 0 && before & !bits == 0 {
            allocation.used -= 1;
        }
    }
}

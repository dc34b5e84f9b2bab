//! The locks recorded for the current fiber, and its interrupt priority level: [`HeldLock`],
//! [`InterruptLevel`].
//!
//! The executor keeps a [`PerFiber`] for each fiber that does not run, and calls
//! [`assert_may_park`] before a fiber sleeps. Only the locks change this state; they also check the
//! order and the level of acquisitions.

use std::cell::Cell;
use std::panic::Location;
#[cfg(debug_assertions)]
use std::thread;

/// The set of interrupts that may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InterruptLevel {
    /// All interrupts.
    Base,
    /// No interrupts: ticks of the clock are deferred.
    High,
}

/// The interrupt level, and a flag that is set while the fiber handles a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TickState {
    pub(crate) level: InterruptLevel,
    pub(crate) in_tick: bool,
}

impl TickState {
    /// The state in which all interrupts may occur.
    const BASE: Self = Self { level: InterruptLevel::Base, in_tick: false };
}

impl Default for TickState {
    fn default() -> Self {
        Self::BASE
    }
}

thread_local! {
    // These cells are constant-initialised and have no destructor, because a signal handler may
    // read them.
    static STATE: Cell<TickState> = const { Cell::new(TickState::BASE) };
}

/// Returns the state of the current fiber.
#[inline]
pub(crate) fn state() -> TickState {
    STATE.get()
}

/// Sets the state of the current fiber, and returns the previous one.
#[inline]
pub(crate) fn replace_state(state: TickState) -> TickState {
    STATE.replace(state)
}

/// Maximum number of locks that a fiber may hold; exceeding it is a bug.
const DEPTH: usize = 16;

/// A lock that is held or waited for.
#[derive(Clone, Copy)]
pub(crate) struct HeldLock {
    /// The position of its class in the lock order.
    pub(crate) rank: u8,
    /// The name of its class.
    pub(crate) name: &'static str,
    /// The level at which its class is always acquired.
    #[cfg(debug_assertions)]
    pub(crate) spl: InterruptLevel,
    /// `true` if a fiber may sleep while it holds the lock.
    #[cfg(debug_assertions)]
    pub(crate) blocking: bool,
    /// The number of the lock within its class.
    pub(crate) instance: u32,
    /// The source location of the acquisition.
    pub(crate) at: &'static Location<'static>,
    /// `true` while the fiber waits for the lock.
    pub(crate) waits: bool,
}

/// The locks that one fiber holds. A tick that interrupts a change restores the length before it
/// returns.
struct HeldLocks {
    len: Cell<usize>,
    entries: [Cell<Option<HeldLock>>; DEPTH],
}

thread_local!(static HELD: HeldLocks = const { HeldLocks::new() });

impl HeldLocks {
    /// Returns an empty list.
    const fn new() -> Self {
        Self { len: Cell::new(0), entries: [const { Cell::new(None) }; DEPTH] }
    }

    fn iter(&self) -> impl Iterator<Item = HeldLock> {
        self.entries[..self.len.get()].iter().filter_map(Cell::get)
    }

    /// Returns a description of each lock.
    fn describe(&self) -> Vec<String> {
        let text = |HeldLock { name, instance, at, waits, .. }| {
            let verb = if waits { "waits for" } else { "has" };
            format!("{verb} {name} {instance} ({at})")
        };
        self.iter().map(text).collect()
    }

    fn push(&self, entry: HeldLock) -> usize {
        let slot = self.len.get();
        assert!(slot < DEPTH, "lock order: more than {DEPTH} locks held");
        self.entries[slot].set(Some(entry));
        self.len.set(slot + 1);
        slot
    }

    fn remove(&self, slot: usize) {
        self.entries[slot].set(None);
        while let Some(top) = self.len.get().checked_sub(1)
            && self.entries[top].get().is_none()
        {
            self.len.set(top);
        }
    }
}

/// Swaps the locks of the current fiber with those in `other`.
fn exchange(other: &mut Option<Box<HeldLocks>>) {
    HELD.with(|held| {
        if held.len.get() == 0 && other.as_ref().is_none_or(|other| other.len.get() == 0) {
            return;
        }
        let other = other.get_or_insert_with(|| Box::new(HeldLocks::new()));
        held.len.swap(&other.len);
        for (here, there) in held.entries.iter().zip(&other.entries) {
            here.swap(there);
        }
    });
}

/// Passes the recorded locks of the current fiber to `each`, in the order of their acquisition.
#[cfg(debug_assertions)]
pub(crate) fn each_noted(each: impl FnMut(HeldLock)) {
    HELD.with(|held| held.iter().for_each(each));
}

/// Records an acquisition, and returns its slot.
pub(crate) fn note(entry: HeldLock) -> usize {
    HELD.with(|held| held.push(entry))
}

/// Marks the lock in this slot as acquired.
pub(crate) fn have(slot: usize) {
    HELD.with(|held| {
        let entry = held.entries[slot].get();
        held.entries[slot].set(entry.map(|entry| HeldLock { waits: false, ..entry }));
    });
}

/// Removes the most recent record of a lock of this class and instance, because the lock was
/// released.
pub(crate) fn forget_last(rank: u8, instance: u32) {
    HELD.with(|held| {
        let is_it = |entry: &Cell<Option<HeldLock>>| {
            entry.get().is_some_and(|entry| (entry.rank, entry.instance) == (rank, instance))
        };
        if let Some(slot) = held.entries[..held.len.get()].iter().rposition(is_it) {
            held.remove(slot);
        }
    });
}

/// Removes the lock in this slot, because it was released.
#[cfg(debug_assertions)]
pub(crate) fn forget(slot: usize) {
    HELD.with(|held| held.remove(slot));
}

/// Checks that the current fiber may sleep: it holds no simple lock, and its spl is base. With
/// debug assertions, panics if the fiber may not sleep.
#[inline(always)]
#[track_caller]
pub(crate) fn assert_may_park() {
    #[cfg(debug_assertions)]
    {
        assert_eq!(state().level, InterruptLevel::Base, "spl: a fiber must not sleep at high spl");
        each_noted(|HeldLock { name, instance, at, blocking, .. }| {
            assert!(
                blocking,
                "a fiber must not sleep while it holds {name} {instance}, taken at {at}",
            );
        });
    }
}

/// Checks that the spl may be lowered to base: the fiber holds no lock that is acquired at high
/// spl. With debug assertions, panics if such a lock is held.
#[inline(always)]
pub(crate) fn assert_may_lower() {
    #[cfg(debug_assertions)]
    each_noted(|HeldLock { name, instance, at, spl, .. }| {
        assert!(
            spl == InterruptLevel::Base || thread::panicking(),
            "spl: back to base while {name} {instance} is held, taken at {at}",
        );
    });
}

/// The spl and the held locks of one fiber, stored while another fiber runs.
///
/// An executor keeps a `PerFiber` for each fiber, and calls [`PerFiber::exchange`] whenever that
/// fiber starts or stops running on a worker.
#[derive(Default)]
pub(crate) struct PerFiber {
    spl: TickState,
    /// Created on first use.
    held: Option<Box<HeldLocks>>,
}

impl PerFiber {
    /// Returns the state of a fiber at base spl that holds no lock.
    pub(crate) const fn new() -> Self {
        Self { spl: TickState::BASE, held: None }
    }

    /// Swaps the stored state with that of the current worker.
    #[inline]
    pub(crate) fn exchange(&mut self) {
        self.spl = replace_state(self.spl);
        exchange(&mut self.held);
    }

    /// Describes the locks that the fiber holds and the lock that it waits for. Must be called
    /// while the fiber is not running. Locks are recorded only in builds with debug assertions or
    /// if acquisitions are counted.
    pub(crate) fn describe(&self) -> Vec<String> {
        self.held.as_ref().map_or(Vec::new(), |held| held.describe())
    }
}

//! The locks that the fiber here has noted, and its interrupt priority level: [`Entry`], [`Level`].
//!
//! The executor keeps a [`PerFiber`] for each fiber that does not run, and checks before one sleeps
//! that it may: [`assert_may_park`]. Only the locks change anything here; in which order and at
//! which level they may be taken is for them to check.

use std::cell::Cell;
use std::panic::Location;
#[cfg(debug_assertions)]
use std::thread;

/// The interrupts that are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// All.
    Base,
    /// None: the clock is held back.
    High,
}

/// The level, and whether a tick is being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) level: Level,
    pub(crate) in_tick: bool,
}

impl State {
    /// Anything may interrupt.
    const BASE: Self = Self { level: Level::Base, in_tick: false };
}

impl Default for State {
    fn default() -> Self {
        Self::BASE
    }
}

thread_local! {
    // Constant, without a destructor: a signal handler may read them.
    static STATE: Cell<State> = const { Cell::new(State::BASE) };
}

/// Returns the state that is in force here.
#[inline]
pub(crate) fn state() -> State {
    STATE.get()
}

/// Puts `state` in force here, and returns the one before.
#[inline]
pub(crate) fn replace_state(state: State) -> State {
    STATE.replace(state)
}

/// Fibers that hold more locks than this are mistaken.
const DEPTH: usize = 16;

/// One lock that is held or waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// The place of its class in the lock order.
    pub(crate) rank: u8,
    /// The name of its class.
    pub(crate) name: &'static str,
    /// The level at which its class is always taken.
    #[cfg(debug_assertions)]
    pub(crate) spl: Level,
    /// `true` if a fiber may sleep while it holds the lock.
    #[cfg(debug_assertions)]
    pub(crate) blocking: bool,
    /// Number of the lock within its class.
    pub(crate) instance: u32,
    /// Source line that took it.
    pub(crate) at: &'static Location<'static>,
    /// `true` while it is waited for.
    pub(crate) waits: bool,
}

/// What one fiber holds. A tick that lands in the middle of a change leaves the length as it was.
#[derive(Debug)]
struct Held {
    len: Cell<usize>,
    entries: [Cell<Option<Entry>>; DEPTH],
}

thread_local!(static HELD: Held = const { Held::new() });

impl Held {
    /// Nothing is held.
    const fn new() -> Self {
        Self { len: Cell::new(0), entries: [const { Cell::new(None) }; DEPTH] }
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries[..self.len.get()].iter().filter_map(Cell::get)
    }

    /// In words.
    fn told(&self) -> Vec<String> {
        let tell = |Entry { name, instance, at, waits, .. }| {
            let verb = if waits { "waits for" } else { "has" };
            format!("{verb} {name} {instance} ({at})")
        };
        self.iter().map(tell).collect()
    }

    fn push(&self, entry: Entry) -> usize {
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

/// Puts `other` in force here, and what was in force into `other`.
fn exchange(other: &mut Option<Box<Held>>) {
    HELD.with(|held| {
        if held.len.get() == 0 && other.as_ref().is_none_or(|other| other.len.get() == 0) {
            return;
        }
        let other = other.get_or_insert_with(|| Box::new(Held::new()));
        held.len.swap(&other.len);
        for (here, there) in held.entries.iter().zip(&other.entries) {
            here.swap(there);
        }
    });
}

/// Passes the locks that are noted here to `each`, in the order in which they were.
#[cfg(debug_assertions)]
pub(crate) fn each_noted(each: impl FnMut(Entry)) {
    HELD.with(|held| held.iter().for_each(each));
}

/// Notes an acquisition, and returns its slot.
pub(crate) fn note(entry: Entry) -> usize {
    HELD.with(|held| held.push(entry))
}

/// The lock that was noted there has been taken.
pub(crate) fn have(slot: usize) {
    HELD.with(|held| {
        let entry = held.entries[slot].get();
        held.entries[slot].set(entry.map(|entry| Entry { waits: false, ..entry }));
    });
}

/// The lock of this class and instance that was noted last is no longer held.
pub(crate) fn forget_last(rank: u8, instance: u32) {
    HELD.with(|held| {
        let is_it = |entry: &Cell<Option<Entry>>| {
            entry.get().is_some_and(|entry| (entry.rank, entry.instance) == (rank, instance))
        };
        if let Some(slot) = held.entries[..held.len.get()].iter().rposition(is_it) {
            held.remove(slot);
        }
    });
}

/// The lock that was noted there is no longer held.
#[cfg(debug_assertions)]
pub(crate) fn forget(slot: usize) {
    HELD.with(|held| held.remove(slot));
}

/// Checks that the fiber here may sleep: it holds no simple lock and the spl is base.
///
/// # Panics
///
/// With debug assertions, otherwise.
#[inline(always)]
#[track_caller]
pub(crate) fn assert_may_park() {
    #[cfg(debug_assertions)]
    {
        assert_eq!(state().level, Level::Base, "spl: a fiber must not sleep at high spl");
        each_noted(|Entry { name, instance, at, blocking, .. }| {
            assert!(
                blocking,
                "a fiber must not sleep while it holds {name} {instance}, taken at {at}",
            );
        });
    }
}

/// Checks that the spl here may go back to base: no lock is held that is taken at high spl.
///
/// # Panics
///
/// With debug assertions, otherwise.
#[inline(always)]
pub(crate) fn assert_may_lower() {
    #[cfg(debug_assertions)]
    each_noted(|Entry { name, instance, at, spl, .. }| {
        assert!(
            spl == Level::Base || thread::panicking(),
            "spl: back to base while {name} {instance} is held, taken at {at}",
        );
    });
}

/// What the locks know of one fiber while another one runs: its spl and what it holds.
///
/// An executor keeps one for each fiber and calls [`PerFiber::exchange`] whenever that fiber begins
/// and ceases to run on a worker.
#[derive(Debug, Default)]
pub(crate) struct PerFiber {
    spl: State,
    /// Made when there is something to keep.
    held: Option<Box<Held>>,
}

impl PerFiber {
    /// A fiber at base spl that holds nothing.
    pub(crate) const fn new() -> Self {
        Self { spl: State::BASE, held: None }
    }

    /// Puts what is kept here in place of what was in force on this worker, and keeps that.
    #[inline]
    pub(crate) fn exchange(&mut self) {
        self.spl = replace_state(self.spl);
        exchange(&mut self.held);
    }

    /// The locks that the fiber has, and the one that it waits for, while it does not run; known in
    /// builds with debug assertions, and where locks are counted.
    pub(crate) fn told(&self) -> Vec<String> {
        self.held.as_ref().map_or(Vec::new(), |held| held.told())
    }
}

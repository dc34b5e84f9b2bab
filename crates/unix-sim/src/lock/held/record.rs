//! What a fiber holds, and whether it may take one more: [`Held`].

#[cfg(debug_assertions)]
use super::Manner;
use crate::lock::lock_order::ORDER;
#[cfg(debug_assertions)]
use crate::lock::{
    lock_order::Kind,
    spl::{self, Level},
};
use std::cell::Cell;
use std::panic::Location;
#[cfg(debug_assertions)]
use std::thread;

/// Fibers that hold more locks than this are mistaken.
const DEPTH: usize = 16;

/// One lock that is held.
#[derive(Debug, Clone, Copy)]
struct Entry {
    rank: u8,
    instance: u32,
    at: &'static Location<'static>,
    /// It is waited for.
    waits: bool,
}

/// What one fiber holds. A tick that lands in the middle of a change leaves the length as it was.
#[derive(Debug)]
pub(super) struct Held {
    len: Cell<usize>,
    entries: [Cell<Option<Entry>>; DEPTH],
}

thread_local!(static HELD: Held = const { Held::new() });

impl Held {
    /// Nothing is held.
    pub(super) const fn new() -> Self {
        Self { len: Cell::new(0), entries: [const { Cell::new(None) }; DEPTH] }
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries[..self.len.get()].iter().filter_map(Cell::get)
    }

    /// In words.
    pub(super) fn told(&self) -> Vec<String> {
        let tell = |Entry { rank, instance, at, waits }| {
            let (verb, name) = (if waits { "waits for" } else { "has" }, ORDER[rank as usize].name);
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
pub(super) fn exchange(other: &mut Option<Box<Held>>) {
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

/// Checks an acquisition against what is held.
#[cfg(debug_assertions)]
#[track_caller]
pub(super) fn check_order(rank: u8, instance: u32, manner: Manner) {
    let inner = Entry { rank, instance, at: Location::caller(), waits: true };
    HELD.with(|held| {
        for outer in held.iter().filter(|_| manner.is_ordered()) {
            check_pair(outer, inner, manner);
        }
    });
}

/// Notes an acquisition; says where.
#[track_caller]
pub(super) fn note(rank: u8, instance: u32) -> usize {
    let entry = Entry { rank, instance, at: Location::caller(), waits: true };
    HELD.with(|held| held.push(entry))
}

/// The lock that was noted there has been taken.
pub(super) fn have(slot: usize) {
    HELD.with(|held| {
        let entry = held.entries[slot].get();
        held.entries[slot].set(entry.map(|entry| Entry { waits: false, ..entry }));
    });
}

/// The lock of this class and instance that was noted last is no longer held.
pub(super) fn forget_last(rank: u8, instance: u32) {
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
pub(super) fn forget(slot: usize) {
    HELD.with(|held| held.remove(slot));
}

/// Panics unless the fiber here may sleep.
#[cfg(debug_assertions)]
#[track_caller]
pub(super) fn assert_may_park() {
    assert_eq!(spl::level(), Level::Base, "spl: a fiber must not sleep at high spl");
    HELD.with(|held| {
        for Entry { rank, instance, at, .. } in held.iter() {
            let row = &ORDER[rank as usize];
            assert!(
                row.kind == Kind::Blocking,
                "a fiber must not sleep while it holds {} {instance}, taken at {at}",
                row.name,
            );
        }
    });
}

/// Panics if a lock is held that is taken at high spl.
#[cfg(debug_assertions)]
pub(super) fn assert_may_lower() {
    HELD.with(|held| {
        for Entry { rank, instance, at, .. } in held.iter() {
            let row = &ORDER[rank as usize];
            assert!(
                row.spl == Level::Base || thread::panicking(),
                "spl: back to base while {} {instance} is held, taken at {at}",
                row.name,
            );
        }
    });
}

/// Panics unless a lock of this rank may be taken at the level that is in force (§6.1).
#[cfg(debug_assertions)]
#[track_caller]
pub(super) fn check_spl(rank: u8) {
    let row = &ORDER[rank as usize];
    assert!(
        row.spl == Level::Base || spl::level() == Level::High,
        "spl: {} is always taken at high spl, and this is base",
        row.name
    );
    assert!(
        row.spl == Level::High || !spl::in_tick(),
        "spl: {} is taken at base spl elsewhere, so a tick must not take it",
        row.name
    );
}

#[cfg(debug_assertions)]
#[track_caller]
fn check_pair(outer: Entry, inner: Entry, manner: Manner) {
    let same_rank = outer.rank == inner.rank;
    let ascends = same_rank && manner == Manner::Second && outer.instance < inner.instance;
    let hint = match (same_rank, outer.instance == inner.instance) {
        (true, true) => ": it is the same lock",
        (true, false) => ": two of a rank are taken by lock_both or write_both",
        (false, _) => "",
    };
    assert!(
        outer.rank < inner.rank || ascends,
        "lock order: {} {} (rank {}) must not be taken while {} {} (rank {}) is held, \
         taken at {}{hint}",
        ORDER[inner.rank as usize].name,
        inner.instance,
        inner.rank,
        ORDER[outer.rank as usize].name,
        outer.instance,
        outer.rank,
        outer.at,
    );
}

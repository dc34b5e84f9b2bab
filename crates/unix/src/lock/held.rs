//! The locks that each fiber holds, and whether it may take one more: builds with debug assertions
//! only. In others [`Taken`] is empty and nothing here runs.
//!
//! The checks come before the acquisition: a deadlock is reported and not entered. Where the record of
//! a fiber lives is decided by [`with`] alone.

use super::Class;
use super::lock_order::{Kind, ORDER};
use super::spl::{self, Level};
use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::Location;

/// Fibers that hold more locks than this are mistaken.
const DEPTH: usize = 16;

/// How an acquisition fits among those of its own rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Alone of its rank.
    Alone,
    /// The second of two that are taken together: a greater instance may follow a smaller one.
    Second,
    /// Without waiting, so in any order.
    Try,
}

/// One lock that is held.
#[derive(Debug, Clone, Copy)]
struct Entry {
    rank: u8,
    instance: u32,
    at: &'static Location<'static>,
}

/// What one fiber holds. A tick may land anywhere here: it leaves the length as it was, and finds
/// either a whole entry or none.
#[derive(Debug)]
pub(crate) struct Held {
    len: Cell<usize>,
    entries: [Cell<Option<Entry>>; DEPTH],
}

impl Held {
    /// Nothing is held.
    pub(crate) const fn new() -> Self {
        Self { len: Cell::new(0), entries: [const { Cell::new(None) }; DEPTH] }
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        self.entries[..self.len.get()].iter().filter_map(Cell::get)
    }

    fn push(&self, entry: Entry) -> usize {
        let slot = self.len.get();
        assert!(
            slot < DEPTH,
            "more than {DEPTH} locks held: {:?}",
            self.iter().collect::<Vec<_>>()
        );
        self.len.set(slot + 1);
        self.entries[slot].set(Some(entry));
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

/// What the fiber that runs here holds.
fn with<R>(look: impl FnOnce(&Held) -> R) -> R {
    thread_local!(static HELD: Held = const { Held::new() });
    HELD.with(look)
}

/// The record that a lock is held. It and the guard that has it stay on their worker.
#[derive(Debug)]
pub(super) struct Taken {
    #[cfg(debug_assertions)]
    slot: usize,
    here: PhantomData<*const ()>,
}

impl Taken {
    /// Checks that a lock of class `C` may be taken here, and notes that it is.
    ///
    /// # Panics
    ///
    /// With debug assertions: out of order, the same one twice, at the wrong spl.
    #[inline(always)]
    #[track_caller]
    pub(super) fn note<C: Class>(instance: u32, manner: Manner) -> Self {
        #[cfg(debug_assertions)]
        return Self { slot: checked(C::RANK, instance, manner), here: PhantomData };
        #[cfg(not(debug_assertions))]
        {
            let _ = (instance, manner);
            Self { here: PhantomData }
        }
    }

    /// Notes that it is no longer held.
    #[inline(always)]
    pub(super) fn forget(&self) {
        #[cfg(debug_assertions)]
        with(|held| held.remove(self.slot));
    }
}

#[cfg(debug_assertions)]
#[track_caller]
fn checked(rank: u8, instance: u32, manner: Manner) -> usize {
    check_spl(rank);
    let entry = Entry { rank, instance, at: Location::caller() };
    with(|held| {
        if manner != Manner::Try {
            held.iter().for_each(|outer| check_pair(outer, entry, manner));
        }
        held.push(entry)
    })
}

#[track_caller]
fn check_spl(rank: u8) {
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

#[track_caller]
fn check_pair(outer: Entry, inner: Entry, manner: Manner) {
    let in_order = outer.rank < inner.rank
        || (outer.rank == inner.rank
            && manner == Manner::Second
            && outer.instance < inner.instance);
    assert!(
        in_order,
        "lock order: {} {} (rank {}) must not be taken while {} {} (rank {}) is held, taken at {}{}",
        ORDER[inner.rank as usize].name,
        inner.instance,
        inner.rank,
        ORDER[outer.rank as usize].name,
        outer.instance,
        outer.rank,
        outer.at,
        match (outer.rank == inner.rank, outer.instance == inner.instance) {
            (true, true) => ": it is the same lock",
            (true, false) => ": two of one rank are taken together, by lock_both or write_both",
            _ => "",
        }
    );
}

/// Checks that the fiber here may switch away: it holds no simple lock and the spl is base.
///
/// # Panics
///
/// With debug assertions, otherwise.
#[track_caller]
pub(crate) fn assert_may_park() {
    if !cfg!(debug_assertions) {
        return;
    }
    assert_eq!(spl::level(), Level::Base, "spl: a fiber must not switch at high spl");
    with(|held| {
        for entry in held.iter() {
            let row = &ORDER[entry.rank as usize];
            assert!(
                row.kind == Kind::Blocking,
                "lock order: a fiber must not sleep while it holds {} {}, taken at {}",
                row.name,
                entry.instance,
                entry.at
            );
        }
    });
}

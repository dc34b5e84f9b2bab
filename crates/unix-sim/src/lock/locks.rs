//! Which classes of lock one virtual Unix has, and what it counts: [`Locks`].
//!
//! Every acquisition names the [`Locks`] that it belongs to and reads one byte of it: [`Presence`].
#![allow(unsafe_code, reason = "whoever leaves locks out promises that they are not needed")]

use super::Class;
use super::lock_order::{CLASSES, ORDER, PFamilyLock, PLock, PSiglock, PgLock, Standing};
use super::statistics::{Came, Counts, LockStatistics};
use crate::LockingMode;
use crate::executor::{self, At, Object};
use std::fmt;
use std::sync::Arc;

/// Exploration distinguishes the locks of these classes by their instances.
const _: () = {
    let [family, group, signal, process] = executor::LOCAL_RANKS;
    assert!(family == PFamilyLock::RANK && group == PgLock::RANK);
    assert!(signal == PSiglock::RANK && process == PLock::RANK);
};

/// Nanoseconds since some moment. A tick reads it too, so it must be async-signal-safe.
#[derive(Clone)]
pub(crate) struct HoldClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl HoldClock {
    /// The clock that `now` reads.
    pub(crate) fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl fmt::Debug for HoldClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HoldClock")
    }
}

/// What an acquisition has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Presence {
    /// Nothing but to note that the lock is held.
    Absent,
    /// To take it.
    Present,
    /// To take it, where another fiber may come before and after.
    Explored,
    /// The same, to note that and to count.
    Counted,
    /// To refuse: the mode has other locks in its place.
    Replaced,
}

/// What is built in beside what the mode needs.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Also the locks that the mode could do without, to debug.
    pub(crate) keep_all: bool,
    /// Whether acquisitions are counted.
    pub(crate) count: bool,
    /// Whether the executor is the simulated one, which may switch at each lock, or the modelled.
    pub(crate) explore: bool,
    /// Whether it is the modelled one: who switches there is another processor's, in each mode.
    pub(crate) model: bool,
    /// Measures how long locks are held; it needs [`Self::count`].
    pub(crate) hold_clock: Option<HoldClock>,
    /// How often a blocking lock is tried before the fiber parks.
    pub(crate) busy_turns: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_all: false,
            count: false,
            explore: true,
            model: false,
            hold_clock: None,
            busy_turns: 100,
        }
    }
}

/// The locks of one virtual Unix.
#[derive(Debug)]
pub(crate) struct Locks {
    presence: [Presence; CLASSES],
    mode: LockingMode,
    /// Whether another fiber may run inside of the kernel where nobody sleeps.
    preempts: bool,
    /// Whether the executor is the simulated one.
    explore: bool,
    busy_turns: u32,
    hold_clock: Option<HoldClock>,
    counts: Option<Counts>,
}

impl Locks {
    /// The locks that `mode` has, and what `options` add.
    ///
    /// # Safety
    ///
    /// A lock is used with one `Locks` all its life. Where `mode` leaves a class out
    /// ([`Standing::Absent`]), no two threads of the operating system take a lock of it at once,
    /// and one that takes it after another one sees what that one did:
    ///
    /// - `Uniprocessor`: one thread of the operating system runs the whole virtual Unix;
    /// - `Master`: only that of processor 0 takes such locks;
    /// - `Coarse`: only who holds `coarse_lock` does;
    /// - `Parallel` and `PerProcess` leave none out, nor does any mode with [`Options::keep_all`].
    ///
    /// While a virtual Unix is made and taken apart, by one thread that hands it to the next,
    /// nobody has to hold or be any of these.
    pub(crate) unsafe fn new(mode: LockingMode, options: Options) -> Self {
        let preempts =
            options.model || !matches!(mode, LockingMode::Uniprocessor | LockingMode::Master);
        let here = if options.count || options.keep_all {
            Presence::Counted
        } else if options.explore {
            Presence::Explored
        } else {
            Presence::Present
        };
        let presence = std::array::from_fn(|rank| match ORDER[rank].standing(mode) {
            Standing::Kept => here,
            Standing::Absent if options.keep_all => here,
            Standing::Absent => Presence::Absent,
            Standing::Replaced => Presence::Replaced,
        });
        let Options { hold_clock, busy_turns, explore, .. } = options;
        let counts = options.count.then(Counts::new);
        Self { presence, mode, preempts, explore, busy_turns, hold_clock, counts }
    }

    /// What an acquisition of a lock of class `C` has to do.
    #[inline]
    pub(crate) fn presence<C: Class>(&self) -> Presence {
        self.presence[C::RANK as usize]
    }

    /// Whether a lock of class `C` may be taken: other ones stand in its place otherwise.
    #[inline]
    pub(crate) fn has<C: Class>(&self) -> bool {
        self.presence::<C>() != Presence::Replaced
    }

    /// A place where the simulated executor may let another fiber run, in a mode whose kernel
    /// several processors are in; the modelled one, another processor.
    #[inline]
    pub(super) fn point(&self, at: At) {
        if self.preempts {
            executor::point(at);
        }
    }

    /// Notes for who explores that a lock of class `C` is wanted, though the mode leaves it out.
    #[inline]
    pub(super) fn reach_absent<C: Class>(&self, instance: u32, shared: bool) {
        if self.explore {
            Self::reach::<C>(instance, shared);
        }
    }

    /// Notes for who explores that a lock of class `C` is wanted, to read together with others or
    /// alone.
    #[inline]
    pub(super) fn reach<C: Class>(instance: u32, shared: bool) {
        let lock = Object::Lock(C::RANK, instance);
        if shared { executor::looks_at(lock) } else { executor::changes(lock) }
    }

    /// A point before a lock is taken: that takes time in the modelled executor. Who explores is
    /// told that the lock is wanted.
    #[inline]
    pub(super) fn point_at<C: Class>(&self, instance: u32, shared: bool) {
        executor::touch(C::RANK, instance);
        self.point(At::Lock(C::RANK, instance));
        Self::reach::<C>(instance, shared);
    }

    /// Checks that a lock which the mode leaves out may be taken here: in mode `Master` on
    /// processor 0 alone.
    ///
    /// # Panics
    ///
    /// With debug assertions, otherwise.
    #[inline]
    #[track_caller]
    pub(super) fn assert_alone_here(&self, name: &str) {
        debug_assert!(
            self.mode != LockingMode::Master || executor::processor() == 0,
            "{name} is taken on processor {}: in mode master only processor 0 does",
            executor::processor()
        );
    }

    /// What was counted so far; none unless it was asked for.
    pub(crate) fn statistics(&self) -> Option<LockStatistics> {
        self.counts.as_ref().map(Counts::snapshot)
    }

    /// How often a blocking lock is tried before the fiber parks.
    pub(super) fn busy_turns(&self) -> u32 {
        self.busy_turns
    }

    /// Counts an acquisition; says when it was, if holds are measured.
    #[cold]
    #[inline(never)]
    pub(super) fn acquired<C: Class>(&self, came: Came) -> u64 {
        if let Some(counts) = &self.counts {
            counts.acquired(C::RANK, came);
        }
        self.hold_clock.as_ref().map_or(0, |clock| (clock.0)())
    }

    /// Counts a hold that began at `since`.
    #[cold]
    #[inline(never)]
    pub(super) fn released<C: Class>(&self, since: u64) {
        if let (Some(counts), Some(clock)) = (&self.counts, &self.hold_clock) {
            counts.held(C::RANK, (clock.0)().saturating_sub(since));
        }
    }

    /// Refuses a class that the mode has replaced.
    #[cold]
    #[track_caller]
    pub(super) fn refuse<C: Class>(&self) -> ! {
        panic!("{} does not exist in mode {}: other locks stand in its place", C::NAME, self.mode)
    }

    /// Refuses a lock that the mode leaves out and that somebody holds.
    #[cold]
    #[track_caller]
    pub(super) fn held_twice<C: Class>(&self, instance: u32) -> ! {
        panic!(
            "{} {instance} is held, and taken again: mode {} leaves it out because that cannot be",
            C::NAME,
            self.mode
        )
    }
}

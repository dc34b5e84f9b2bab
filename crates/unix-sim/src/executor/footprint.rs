//! The objects that a fiber reaches between two points: [`Object`], [`Footprint`]; and the place of
//! a point: [`At`].
//!
//! Two steps of different fibers that reach nothing in common, or only read it, come to the same in
//! either order. Whoever goes through all schedules needs one of the two then. Locks say what they
//! are at each acquisition; words that are read without a lock are named where they are read and
//! written. To name too much costs schedules; to leave something out may hide one. A model charges
//! for the lines of such words when another processor has them.

use std::cell::Cell;

/// What several fibers reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// What programs share among each other.
    User,
    /// A lock, by rank and instance, and what it guards.
    Lock(u8, u32),
    /// What others read of a process or of its threads without a lock, by its slot.
    Process(u32),
    /// What others read of its relations without a lock, by its slot.
    Family(u32),
    /// Who has a number.
    Number(i32),
    /// What is the whole system's and under no lock.
    System,
    /// What users have, counted.
    Users,
    /// How many threads and service fibers there are, in mode `Master`.
    Desk,
    /// What is to happen at a time.
    Timers,
}

/// No process has so high a slot.
pub(super) const NO_SLOT: u32 = u32::MAX;
/// Objects of one kind that are told apart.
const APART: u32 = 8;

/// Ranks of the locks of which each process or group has one, in the order of the ranks. Those of
/// one rank have several bits. `lock` compares the ranks with its order.
pub(crate) const LOCAL_RANKS: [u8; 4] = [FAMILY, GROUP, SIGNAL, PROCESS];
const FAMILY: u8 = 3;
const GROUP: u8 = 4;
const SIGNAL: u8 = 7;
const PROCESS: u8 = 8;

impl Object {
    /// Its bit. Several objects may have one. Mostly known when this is compiled.
    #[inline(always)]
    pub(super) const fn bit(self) -> u64 {
        /// Kinds of which there are several objects, from the first bit on that a global one has
        /// not.
        const FIRST: u32 = 16;
        const fn of(kind: u32, instance: u32) -> u32 {
            FIRST + kind * APART + instance % APART
        }
        let place = match self {
            Self::User => 0,
            Self::System => 1,
            // The `LOCAL_RANKS` have bits of their own elsewhere.
            Self::Users => 5,
            Self::Desk => 6,
            Self::Timers => 9,
            Self::Process(slot) => of(0, slot),
            Self::Number(number) => of(1, number as u32),
            Self::Family(slot) => of(2, slot),
            Self::Lock(FAMILY, instance) => of(2, instance),
            Self::Lock(SIGNAL, instance) => of(3, instance),
            Self::Lock(PROCESS, instance) => of(4, instance),
            Self::Lock(GROUP, instance) => of(5, instance),
            // The global ones, and those that are rarely taken.
            Self::Lock(rank, _) => 2 + rank as u32 % (FIRST - 2),
        };
        1 << place
    }

    /// The process whose words these are, or [`NO_SLOT`].
    pub(super) const fn slot(self) -> u32 {
        match self {
            Self::Process(slot) => slot,
            _ => NO_SLOT,
        }
    }
}

/// What a step reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// Objects.
    reached: u64,
    /// Those of them that it changed, or may have.
    written: u64,
    /// Fibers that it put to sleep or woke.
    fibers: u64,
}

impl Footprint {
    /// Nothing at all.
    pub const NOTHING: Self = Self { reached: 0, written: 0, fibers: 0 };
    /// What must not change places with anything.
    pub const EVERYTHING: Self = Self { reached: u64::MAX, written: u64::MAX, fibers: u64::MAX };

    /// Whether the order matters in which the two happen.
    #[inline]
    pub fn conflicts(self, other: Self) -> bool {
        self.written & other.reached != 0
            || self.reached & other.written != 0
            || self.fibers & other.fibers != 0
    }

    /// Both together.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self {
            reached: self.reached | other.reached,
            written: self.written | other.written,
            fibers: self.fibers | other.fibers,
        }
    }

    /// As a number, for a digest.
    pub fn hash(self) -> u64 {
        let mixed = self.reached.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.written.rotate_left(29);
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.fibers.rotate_left(47)
    }
}

/// What the running fiber has reached since it went on: word by word, for the next point reads what
/// was just written.
#[derive(Debug)]
pub(super) struct Reaching {
    reached: Cell<u64>,
    written: Cell<u64>,
    fibers: Cell<u64>,
}

impl Reaching {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self { reached: Cell::new(0), written: Cell::new(0), fibers: Cell::new(0) }
    }

    /// Adds objects by their bits: those that are looked at, and those of them that are changed.
    #[inline]
    pub(super) fn add(&self, looked_at: u64, changed: u64) {
        self.reached.set(self.reached.get() | looked_at);
        self.written.set(self.written.get() | changed);
    }

    /// Adds the fiber with this number.
    #[inline]
    pub(super) fn add_fiber(&self, id: u32) {
        self.fibers.set(self.fibers.get() | 1 << (id % u64::BITS));
    }

    /// All of it; from now on nothing.
    #[inline]
    pub(super) fn take(&self) -> Footprint {
        Footprint {
            reached: self.reached.take(),
            written: self.written.take(),
            fibers: self.fibers.take(),
        }
    }
}

/// A point: a place where another fiber may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Where a fiber begins.
    Start,
    /// Before a system call.
    Call,
    /// After it.
    Return,
    /// Before a lock is taken, by rank and instance.
    Lock(u8, u32),
    /// After it was given back.
    Unlock(u8, u32),
    /// Where it would have slept, and was woken before.
    Awake,
    /// In the middle of a call.
    Within,
}

impl At {
    /// As a number, for a digest.
    pub fn hash(self) -> u64 {
        match self {
            Self::Start => 1,
            Self::Call => 2,
            Self::Return => 3,
            Self::Awake => 4,
            Self::Within => 5,
            Self::Lock(rank, instance) => 6 | u64::from(rank) << 8 | u64::from(instance) << 16,
            Self::Unlock(rank, instance) => 7 | u64::from(rank) << 8 | u64::from(instance) << 16,
        }
    }
}

//! The objects that a fiber reaches between two points: [`Object`], [`Footprint`]; and the kinds of
//! points: [`At`].
//!
//! If two steps of different fibers reach no common object, or only read their common objects, they
//! have the same effect in either order, so a search of all schedules needs only one of the two
//! orders. Locks report themselves at each acquisition; words that are read without a lock are
//! reported at each read and write. An object that is reported unnecessarily costs extra schedules;
//! one that is not reported may hide a schedule. The modelled executor charges for the cache lines
//! of such words when they are in another processor's cache.

use std::cell::Cell;

/// An object that several fibers can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// The data that programs share with each other.
    User,
    /// A lock, by rank and instance, and the data that it guards.
    Lock(u8, u32),
    /// The data of a process and its threads that others read without a lock, by the process's
    /// slot.
    Process(u32),
    /// The relations of a process that others read without a lock, by the process's slot.
    Family(u32),
    /// The owner of a process number.
    Number(i32),
    /// System-wide data that no lock guards.
    System,
    /// The counted resources of users.
    Users,
    /// The number of threads and service fibers, in mode `Master`.
    Desk,
    /// The timers.
    Timers,
}

/// The slot number that no process has.
pub(super) const NO_SLOT: u32 = u32::MAX;
/// Number of objects of one kind that each have a separate bit.
const APART: u32 = 8;

/// The ranks of the locks that exist once per process or group, in ascending order. The locks of
/// one rank share several bits. `lock` compares these ranks with its order.
pub(crate) const LOCAL_RANKS: [u8; 3] = [GROUP, SIGNAL, PROCESS];
const GROUP: u8 = 2;
const SIGNAL: u8 = 5;
const PROCESS: u8 = 6;

impl Object {
    /// Returns the bit of the object; several objects may share a bit. Mostly evaluated at compile
    /// time.
    #[inline(always)]
    pub(super) const fn bit(self) -> u64 {
        /// The first bit for the kinds with several objects; the bits below it are for global
        /// objects.
        const FIRST: u32 = 16;
        const fn of(kind: u32, instance: u32) -> u32 {
            FIRST + kind * APART + instance % APART
        }
        let place = match self {
            Self::User => 0,
            Self::System => 1,
            // The `LOCAL_RANKS` have separate bits, below, so the bits of their ranks are free.
            Self::Users => 4,
            Self::Desk => 7,
            Self::Timers => 8,
            Self::Process(slot) => of(0, slot),
            Self::Number(number) => of(1, number as u32),
            Self::Family(slot) => of(2, slot),
            Self::Lock(SIGNAL, instance) => of(3, instance),
            Self::Lock(PROCESS, instance) => of(4, instance),
            Self::Lock(GROUP, instance) => of(5, instance),
            // The global locks, and those that are rarely taken.
            Self::Lock(rank, _) => 2 + rank as u32 % (FIRST - 2),
        };
        1 << place
    }

    /// Returns the slot of the process that the object represents, or [`NO_SLOT`].
    pub(super) const fn slot(self) -> u32 {
        match self {
            Self::Process(slot) => slot,
            _ => NO_SLOT,
        }
    }
}

/// The objects that a step reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// The objects that the step reached.
    reached: u64,
    /// The objects that the step changed, or may have changed.
    written: u64,
    /// The fibers that the step put to sleep or woke.
    fibers: u64,
}

impl Footprint {
    /// The footprint of a step without effects.
    pub const NOTHING: Self = Self { reached: 0, written: 0, fibers: 0 };
    /// The footprint of a step that must not be reordered with any other.
    pub const EVERYTHING: Self = Self { reached: u64::MAX, written: u64::MAX, fibers: u64::MAX };

    /// Returns `true` if the order of the two steps matters.
    #[inline]
    pub fn conflicts(self, other: Self) -> bool {
        self.written & other.reached != 0
            || self.reached & other.written != 0
            || self.fibers & other.fibers != 0
    }

    /// Returns the union of both footprints.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self {
            reached: self.reached | other.reached,
            written: self.written | other.written,
            fibers: self.fibers | other.fibers,
        }
    }

    /// Returns a number for a digest.
    pub fn hash(self) -> u64 {
        let mixed = self.reached.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.written.rotate_left(29);
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ self.fibers.rotate_left(47)
    }
}

/// The objects that the running fiber has reached since it was resumed. The words are stored one by
/// one, because the next point reads what was just written.
pub(super) struct Reaching {
    reached: Cell<u64>,
    written: Cell<u64>,
    fibers: Cell<u64>,
}

impl Reaching {
    /// Returns an empty footprint.
    pub(super) const fn new() -> Self {
        Self { reached: Cell::new(0), written: Cell::new(0), fibers: Cell::new(0) }
    }

    /// Adds objects by their bits: `looked_at` are the objects that are read, `changed` the objects
    /// that are changed.
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

    /// Returns the footprint, and resets it to an empty one.
    #[inline]
    pub(super) fn take(&self) -> Footprint {
        Footprint {
            reached: self.reached.take(),
            written: self.written.take(),
            fibers: self.fibers.take(),
        }
    }
}

/// A point: a place at which another fiber may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The start of a fiber.
    Start,
    /// Before a system call.
    Call,
    /// After a system call.
    Return,
    /// Before a lock is taken, by rank and instance.
    Lock(u8, u32),
    /// After a lock was released.
    Unlock(u8, u32),
    /// A sleep that a fiber skips, because it has already been woken.
    Awake,
    /// Inside a call.
    Within,
}

impl At {
    /// Returns a number for a digest.
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

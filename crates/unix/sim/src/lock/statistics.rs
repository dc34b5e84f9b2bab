//! Statistics of each class of lock (§9): [`LockCounts`] during a run, [`LockStatistics`] after it.
//!
//! Each worker has its own counters on a separate cache line, so that counting one acquisition does
//! not delay another.

use super::lock_order::{CLASSES, ORDER};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Number of shards; if there are more workers, they share shards.
const SHARDS: usize = 16;

/// The way in which an acquisition succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acquisition {
    /// Immediately.
    AtOnce,
    /// After a busy wait.
    Waited,
    /// After a busy wait and a sleep.
    Blocked,
}

#[derive(Default)]
struct LockCounters {
    acquisitions: AtomicU64,
    waited: AtomicU64,
    blocked: AtomicU64,
    timed: AtomicU64,
    held_ns: AtomicU64,
    held_max_ns: AtomicU64,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard([LockCounters; CLASSES]);

/// The counters of one virtual Unix.
pub(super) struct LockCounts(Box<[Shard]>);

impl LockCounts {
    /// Creates counters with the value 0.
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }

    /// Counts one acquisition.
    pub(super) fn acquired(&self, rank: u8, acquisition: Acquisition) {
        let counters = self.counters(rank);
        counters.acquisitions.fetch_add(1, Relaxed);
        if acquisition != Acquisition::AtOnce {
            counters.waited.fetch_add(1, Relaxed);
        }
        if acquisition == Acquisition::Blocked {
            counters.blocked.fetch_add(1, Relaxed);
        }
    }

    /// Counts one hold of `ns` nanoseconds.
    pub(super) fn held(&self, rank: u8, ns: u64) {
        let counters = self.counters(rank);
        counters.timed.fetch_add(1, Relaxed);
        counters.held_ns.fetch_add(ns, Relaxed);
        counters.held_max_ns.fetch_max(ns, Relaxed);
    }

    /// Returns the current sums.
    pub(super) fn snapshot(&self) -> LockStatistics {
        let rows = ORDER.iter().enumerate().map(|(rank, row)| {
            let all = || self.0.iter().map(|shard| &shard.0[rank]);
            let sum = |field: fn(&LockCounters) -> &AtomicU64| {
                all().map(|counters| field(counters).load(Relaxed)).sum()
            };
            LockRow {
                name: row.name,
                acquisitions: sum(|c| &c.acquisitions),
                waited: sum(|c| &c.waited),
                blocked: sum(|c| &c.blocked),
                timed: sum(|c| &c.timed),
                held_ns: sum(|c| &c.held_ns),
                held_max_ns: all().map(|c| c.held_max_ns.load(Relaxed)).max().unwrap_or(0),
            }
        });
        LockStatistics { rows: rows.collect() }
    }

    fn counters(&self, rank: u8) -> &LockCounters {
        &self.0[worker() % SHARDS].0[rank as usize]
    }
}

/// Returns the number of this worker. Workers are numbered in the order in which they first
/// counted.
fn worker() -> usize {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static MINE: Cell<u32> = const { Cell::new(u32::MAX) });
    if MINE.get() == u32::MAX {
        MINE.set(NEXT.fetch_add(1, Relaxed));
    }
    MINE.get() as usize
}

/// Statistics of the locks of one virtual Unix, by class, as in section 9 of the paper.
///
/// `Display` prints a table without the classes that were never acquired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockStatistics {
    /// A row per class, in the lock order.
    pub rows: Vec<LockRow>,
}

/// Statistics of the locks of one class.
///
/// ```
/// let row = tontine_unix_sim::LockRow {
///     name: "proc_relation_lock",
///     acquisitions: 1_000,
///     waited: 20,
///     blocked: 2,
///     timed: 0,
///     held_ns: 0,
///     held_max_ns: 0,
/// };
/// assert_eq!(row.waited_percent(), Some(2.0));
/// assert_eq!(row.blocked_percent(), Some(10.0));
/// assert_eq!(row.held_mean_ns(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRow {
    /// The name of the class in the paper, such as `pg_lock`.
    pub name: &'static str,
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Number of acquisitions that had to wait.
    pub waited: u64,
    /// Number of acquisitions that slept after a short busy wait.
    pub blocked: u64,
    /// Number of holds whose duration was measured.
    pub timed: u64,
    /// Total duration of the measured holds, in nanoseconds.
    pub held_ns: u64,
    /// Duration of the longest measured hold, in nanoseconds.
    pub held_max_ns: u64,
}

impl LockRow {
    /// Returns the percentage of acquisitions that had to wait; `None` if there were no
    /// acquisitions.
    #[must_use]
    pub fn waited_percent(&self) -> Option<f64> {
        ratio(self.waited, self.acquisitions).map(|part| 100.0 * part)
    }

    /// Returns the percentage of waits that ended in a sleep; `None` if there were no waits.
    #[must_use]
    pub fn blocked_percent(&self) -> Option<f64> {
        ratio(self.blocked, self.waited).map(|part| 100.0 * part)
    }

    /// Returns the mean duration of a hold, in nanoseconds; `None` unless holds were measured.
    #[must_use]
    pub fn held_mean_ns(&self) -> Option<f64> {
        ratio(self.held_ns, self.timed)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| part as f64 / whole as f64)
}

impl fmt::Display for LockStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20}{:>14}{:>10}{:>12}{:>14}{:>14}",
            "lock", "acquisitions", "waited %", "blocked %", "mean hold ns", "max hold ns"
        )?;
        for row in self.rows.iter().filter(|row| row.acquisitions != 0) {
            let held_max = (row.timed != 0).then_some(row.held_max_ns as f64);
            writeln!(
                f,
                "{:<20}{:>14}{:>10}{:>12}{:>14}{:>14}",
                row.name,
                row.acquisitions,
                figure(row.waited_percent(), 2),
                figure(row.blocked_percent(), 2),
                figure(row.held_mean_ns(), 0),
                figure(held_max, 0),
            )?;
        }
        Ok(())
    }
}

/// Returns the figure as text, or a dash for `None`.
fn figure(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}

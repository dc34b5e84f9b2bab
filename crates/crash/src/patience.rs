//! How long a survivor may take for an answer: [`Patience`], measured on a [`Clock`] that runs only
//! while the machine lets everybody run who has to.
//!
//! On a loaded machine a survivor may be late because it waits for a processor, or asleep because
//! the one that is to wake it does. Both are slow, not stuck. So a slice of time counts only as far
//! as nobody of the scene spent it in a run queue, and no more of it than a watcher that runs on
//! time would have seen.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// Between two looks at a silent actor.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// A survivor that does run, or sleeps in short naps, has this many patiences to come to an end.
const BUSY_FACTOR: u32 = 3;

/// A machine that has not let everybody have their patience after so long is no place to judge.
const LONGEST: Duration = Duration::from_secs(90);

/// How long one may take for an answer, and who else has to run for it.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    length: Duration,
    others: Vec<Pid>,
}

impl Patience {
    /// For an answer that may depend on these others' work.
    pub(crate) fn with(length: Duration, others: &[Pid]) -> Self {
        Self { length, others: others.to_vec() }
    }

    /// For an answer that depends on nobody else's work.
    pub(crate) fn alone(length: Duration) -> Self {
        Self::with(length, &[])
    }
}

/// What a silent actor has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may still answer.
    Open,
    /// It slept without a break for all of its patience, though everybody could run.
    Asleep,
    /// It ran, and had several times its patience.
    Busy,
    /// The machine let somebody wait for so long that nothing can be said.
    Starved,
}

/// Measures one wait.
#[derive(Debug)]
pub(crate) struct Clock {
    length: Duration,
    began: Instant,
    last: Instant,
    /// The silent one first.
    watched: Vec<(Pid, Share)>,
    fair: Fair,
}

impl Clock {
    /// Starts, for the answer of `silent`.
    pub(crate) fn start(silent: Pid, patience: &Patience) -> Self {
        let now = Instant::now();
        let others = patience.others.iter().copied().filter(|other| *other != silent);
        let all = std::iter::once(silent).chain(others);
        let watched = all.map(|pid| (pid, Share::of(pid))).collect();
        Self { length: patience.length, began: now, last: now, watched, fair: Fair::default() }
    }

    /// Looks at everybody.
    pub(crate) fn look(&mut self) -> Standing {
        let now = Instant::now();
        let passed = now - self.last;
        self.last = now;
        let mut starved = Duration::ZERO;
        let mut ran = false;
        for (at, (pid, before)) in self.watched.iter_mut().enumerate() {
            let share = Share::of(*pid);
            starved = starved.max(share.starved_since(*before, passed));
            ran |= at == 0 && share.ran != before.ran;
            *before = share;
        }
        self.fair.count(passed, starved, ran);
        self.fair.standing(self.length, self.began.elapsed())
    }

    /// How long it has run by the clock on the wall.
    pub(crate) fn passed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Time that counts.
#[derive(Debug, Clone, Copy, Default)]
struct Fair {
    /// All of it.
    all: Duration,
    /// Since the silent one ran last.
    resting: Duration,
}

impl Fair {
    /// Counts a slice of which somebody spent `starved` in a run queue; `ran` says that the silent
    /// one had a processor in it.
    fn count(&mut self, passed: Duration, starved: Duration, ran: bool) {
        // A watcher that comes late was starved itself, and so was everybody else.
        let fair = passed.min(2 * LOOK).saturating_sub(starved);
        self.all += fair;
        self.resting = if ran { Duration::ZERO } else { self.resting + fair };
    }

    fn standing(&self, patience: Duration, passed: Duration) -> Standing {
        if self.resting >= patience {
            Standing::Asleep
        } else if self.all >= patience * BUSY_FACTOR {
            Standing::Busy
        } else if passed >= LONGEST + patience * BUSY_FACTOR {
            Standing::Starved
        } else {
            Standing::Open
        }
    }
}

/// What the threads of a process have got of the processors.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    /// Time on a processor.
    ran: Duration,
    /// Time in a run queue, entered when it ends.
    waited: Duration,
    /// Whether one of them has something to do now: it runs, waits for its turn or for a disk.
    runnable: bool,
}

impl Share {
    /// Nothing at all for one that is no more.
    fn of(pid: Pid) -> Self {
        let mut share = Self::default();
        let folder = format!("/proc/{}/task", pid.as_raw_nonzero());
        for thread in fs::read_dir(folder).into_iter().flatten().flatten() {
            share.add(&thread.path());
        }
        share
    }

    fn add(&mut self, thread: &Path) {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        self.ran += Duration::from_nanos(words.next().unwrap_or(0));
        self.waited += Duration::from_nanos(words.next().unwrap_or(0));
        self.runnable |= matches!(state(thread), Some('R' | 'D'));
    }

    /// How much of a slice it wanted a processor in vain.
    fn starved_since(self, before: Self, slice: Duration) -> Duration {
        let waited = self.waited.saturating_sub(before.waited);
        // A wait that lasts is not entered yet.
        let waits = self.runnable && self.ran == before.ran;
        if waits { slice } else { waited.min(slice) }
    }
}

/// The state that the kernel reports of a thread, by its folder in `/proc`: 'S' for asleep.
pub(crate) fn state(thread: &Path) -> Option<char> {
    // The name in parentheses may hold anything, parentheses included.
    fs::read_to_string(thread.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(600);

    /// Looks until something is decided; `slice` says what each brings.
    fn decided(slice: impl Fn(u32) -> (Duration, Duration, bool)) -> (Standing, Duration) {
        let (mut fair, mut passed) = (Fair::default(), Duration::ZERO);
        for at in 0.. {
            let (length, starved, ran) = slice(at);
            fair.count(length, starved, ran);
            passed += length;
            let standing = fair.standing(PATIENCE, passed);
            if standing != Standing::Open {
                return (standing, passed);
            }
        }
        unreachable!("every wait is bounded")
    }

    /// Three kills of a growing mailbox were called wedged on a machine with 25 runnable processes:
    /// the survivor slept until another one answered that had not been given a processor.
    #[test]
    fn only_time_in_which_everybody_could_run_counts() {
        let none = Duration::ZERO;
        assert_eq!(decided(|_| (LOOK, none, false)), (Standing::Asleep, PATIENCE));
        assert_eq!(decided(|_| (LOOK, none, true)), (Standing::Busy, 3 * PATIENCE), "it spins");
        // A twelfth of a processor: twelve times as long, and never called asleep.
        let eleven = LOOK * 11;
        let loaded = decided(|at| (LOOK, if at % 12 == 0 { none } else { LOOK }, true));
        assert_eq!(loaded.0, Standing::Busy);
        assert!(loaded.1 > 30 * PATIENCE, "{loaded:?}");
        // The watcher itself comes late.
        assert_eq!(decided(|_| (eleven, none, false)).1, eleven * 30);
        let never = decided(|_| (LOOK, LOOK, false));
        assert_eq!(never.0, Standing::Starved, "bounded, and not called wedged");
    }

    #[test]
    fn a_wait_for_a_processor_counts_while_it_lasts_and_when_it_is_over() {
        let share = |ran, waited, runnable| Share {
            ran: Duration::from_millis(ran),
            waited: Duration::from_millis(waited),
            runnable,
        };
        let starved = |now: Share| now.starved_since(share(5, 5, true), LOOK).as_millis();
        assert_eq!(starved(share(5, 5, true)), 10, "it waits");
        assert_eq!(starved(share(6, 9, true)), 4, "it waited, and runs");
        assert_eq!(starved(share(6, 300, false)), 10, "no more than the slice");
        assert_eq!(starved(share(5, 5, false)), 0, "it sleeps");
    }
}

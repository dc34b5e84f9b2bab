//! Timeouts for survivors' replies: [`FairTimeout`], measured on a [`WaitTimer`] that runs only
//! while every process that is ready to run has a processor.
//!
//! On a loaded machine a survivor may be late because it waits for a processor, or asleep because
//! the process that must wake it waits for a processor. In both cases it is slow, not stuck. So a
//! time slice counts only to the extent that no process of the trial spent it in a run queue, and
//! at most as much as a watcher that runs on time would have measured.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Pid;

/// Time between two checks of a silent worker.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// Factor by which the timeout of a survivor that runs, or sleeps only briefly, is multiplied.
const BUSY_FACTOR: u32 = 3;

/// Maximum time for which the machine may starve processes of a trial before the wait counts as
/// impossible to judge.
const LONGEST: Duration = Duration::from_secs(90);

/// The timeout for a reply, and the other processes that must run before the reply can arrive.
#[derive(Debug, Clone)]
pub(crate) struct FairTimeout {
    length: Duration,
    others: Vec<Pid>,
}

impl FairTimeout {
    /// Returns a timeout for a reply that may depend on the work of the processes `others`.
    pub(crate) fn with(length: Duration, others: &[Pid]) -> Self {
        Self { length, others: others.to_vec() }
    }

    /// Returns a timeout for a reply that depends on no other process.
    pub(crate) fn alone(length: Duration) -> Self {
        Self::with(length, &[])
    }
}

/// State of the wait for a silent worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitState {
    /// The worker may still reply.
    Open,
    /// The worker slept without interruption for its whole timeout, although every process could
    /// run.
    Asleep,
    /// The worker ran for several times its timeout.
    Busy,
    /// The machine starved a process too long for a judgement.
    Starved,
}

#[derive(Debug)]
pub(crate) struct WaitTimer {
    length: Duration,
    began: Instant,
    last: Instant,
    /// The watched processes, the silent worker first.
    watched: Vec<(Pid, Share)>,
    fair: Fair,
}

impl WaitTimer {
    /// Starts the wait for the reply of `silent`.
    pub(crate) fn start(silent: Pid, timeout: &FairTimeout) -> Self {
        let now = Instant::now();
        let others = timeout.others.iter().copied().filter(|other| *other != silent);
        let all = std::iter::once(silent).chain(others);
        let watched = all.map(|pid| (pid, Share::of(pid))).collect();
        Self { length: timeout.length, began: now, last: now, watched, fair: Fair::default() }
    }

    /// Samples all watched processes and returns the state of the wait.
    pub(crate) fn look(&mut self) -> WaitState {
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

    pub(crate) fn passed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Time that counts towards the timeout.
#[derive(Debug, Clone, Copy, Default)]
struct Fair {
    all: Duration,
    /// The part since the silent worker last ran.
    resting: Duration,
}

impl Fair {
    /// Counts a slice of which a process spent `starved` in a run queue; `ran` is true if the
    /// silent worker ran during the slice.
    fn count(&mut self, passed: Duration, starved: Duration, ran: bool) {
        // A watcher that is late was starved itself, like all other processes.
        let fair = passed.min(2 * LOOK).saturating_sub(starved);
        self.all += fair;
        self.resting = if ran { Duration::ZERO } else { self.resting + fair };
    }

    fn standing(&self, timeout: Duration, passed: Duration) -> WaitState {
        if self.resting >= timeout {
            WaitState::Asleep
        } else if self.all >= timeout * BUSY_FACTOR {
            WaitState::Busy
        } else if passed >= LONGEST + timeout * BUSY_FACTOR {
            WaitState::Starved
        } else {
            WaitState::Open
        }
    }
}

/// Processor time of a process's threads.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    ran: Duration,
    /// Time in a run queue, which the kernel adds only when the wait ends.
    waited: Duration,
    /// `true` if a thread is ready now: it runs, or waits for a processor or a disk.
    runnable: bool,
}

impl Share {
    /// Returns the share of a process; all zero if the process no longer exists.
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

    /// Returns the part of a slice during which the process waited for a processor.
    fn starved_since(self, before: Self, slice: Duration) -> Duration {
        let waited = self.waited.saturating_sub(before.waited);
        // The kernel does not count a wait until it ends.
        let waits = self.runnable && self.ran == before.ran;
        if waits { slice } else { waited.min(slice) }
    }
}

/// Returns the state of a thread according to its directory in `/proc`: 'S' for asleep.
pub(crate) fn state(thread: &Path) -> Option<char> {
    // The name in parentheses may contain anything, including parentheses.
    fs::read_to_string(thread.join("stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(600);

    /// Samples until the wait is decided; `slice` returns the content of each slice.
    fn decided(slice: impl Fn(u32) -> (Duration, Duration, bool)) -> (WaitState, Duration) {
        let (mut fair, mut passed) = (Fair::default(), Duration::ZERO);
        for at in 0.. {
            let (length, starved, ran) = slice(at);
            fair.count(length, starved, ran);
            passed += length;
            let standing = fair.standing(TIMEOUT, passed);
            if standing != WaitState::Open {
                return (standing, passed);
            }
        }
        unreachable!("every wait is bounded")
    }

    /// Regression: on a machine with 25 runnable processes, three kills of a growing mailbox were
    /// reported as wedged: the survivor slept until another process replied, but that process had
    /// not been given a processor.
    #[test]
    fn timeout_counts_only_time_without_starvation() {
        let none = Duration::ZERO;
        assert_eq!(decided(|_| (LOOK, none, false)), (WaitState::Asleep, TIMEOUT));
        assert_eq!(decided(|_| (LOOK, none, true)), (WaitState::Busy, 3 * TIMEOUT), "it spins");
        // With a twelfth of a processor the wait takes twelve times as long, and never counts as
        // asleep.
        let eleven = LOOK * 11;
        let loaded = decided(|at| (LOOK, if at % 12 == 0 { none } else { LOOK }, true));
        assert_eq!(loaded.0, WaitState::Busy);
        assert!(loaded.1 > 30 * TIMEOUT, "{loaded:?}");
        // The watcher itself is late.
        assert_eq!(decided(|_| (eleven, none, false)).1, eleven * 30);
        let never = decided(|_| (LOOK, LOOK, false));
        assert_eq!(never.0, WaitState::Starved, "bounded, and not called wedged");
    }

    #[test]
    fn run_queue_wait_counts_while_it_lasts_and_after_it_ends() {
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

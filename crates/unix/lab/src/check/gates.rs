//! The gates of real threads, which are words in shared memory: [`Gates`].
//!
//! A thread that reaches its gate records its arrival and sleeps on a futex, in user mode: its
//! handlers run there, and it can be stopped and killed as at any other point. The code that
//! handlers reach (the gate itself, the code after it, and the log) neither allocates nor locks.

#![allow(unsafe_code, reason = "futexes")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use tontine_unix::Sys;

use super::fibers::FARTHEST;
use super::region::{CheckRegion, MAX_THREADS, PendingTimer, ThreadWords, go, place};
use super::time::now_ns;
use super::{log, typing};
use crate::scenario::step_control::{
    NextCall, ProcessProgram, SpawnKind, StepControl, ThreadOrdinal,
};
use crate::scenario::wire::with_line;
use crate::scenario::{Log, LogEvent};

thread_local! {
    /// The ordinal of the calling thread.
    static ORDINAL: Cell<u32> = const { Cell::new(0) };
}

/// A timeout in seconds that no run reaches.
const LONG_S: i64 = 1 << 20;

/// Minimum number of spacings from an alarm to the next timer.
const BEHIND_ALARM: u64 = 16;
/// Length of a timer, on the run's clock, that corresponds to one spacing of the real timer.
const UNIT_NS: u64 = 3_000_000;
/// Number of additional spacings for a timer longer than [`FARTHEST`], for which the run does not
/// wait.
const FAR: u64 = 1_000;

/// The first argument of a process that a scenario's `exec` or `spawn` starts.
pub(super) const MARK: &str = "tontine-unix: a process of a scenario";
/// The program that a started process of a scenario runs: this program itself.
const ITSELF: &str = "/proc/self/exe";

/// The control of steps in each real thread (see the module documentation).
#[derive(Debug, Clone)]
pub(super) struct Gates(pub(super) Arc<CheckRegion>);

impl Gates {
    fn words(&self, ordinal: u32) -> &ThreadWords {
        &self.0.threads[ordinal as usize % MAX_THREADS]
    }

    /// Sets the time at which a call ends by itself. The call must end in its turn on the run's own
    /// clock, and after the steps that other threads can take before then. Timers are therefore at
    /// least one spacing apart, and longer timers are further apart. If the timer does not fit
    /// between the others, the run is late.
    fn set_end(&self, ends: &PendingTimer, duration: Duration) {
        let spacing = self.0.order.spacing_ns.load(SeqCst);
        let due = self.0.clock_ns.load(SeqCst) + nanoseconds(duration);
        let far = if duration > FARTHEST { FAR } else { 0 };
        let mut real = now_ns() + spacing * (1 + length(duration) + far);
        let mut next = u64::MAX;
        let threads = (self.0.threads_taken.load(SeqCst) as usize).min(MAX_THREADS);
        for ordinal in &self.0.threads[..threads] {
            // An alarm is delivered late if its process waits for the processor.
            for (timer, distance) in [(&ordinal.ends, 1), (&ordinal.alarm, BEHIND_ALARM)] {
                match (timer.real_ns.load(SeqCst), timer.due_ns.load(SeqCst)) {
                    (0, _) => {}
                    (other, before) if before <= due => real = real.max(other + distance * spacing),
                    (other, _) => next = next.min(other),
                }
            }
        }
        if real + spacing / 2 > next {
            self.0.late.store(1, SeqCst);
        }
        ends.due_ns.store(due, SeqCst);
        ends.real_ns.store(real, SeqCst);
    }

    /// Records that the caller is at its gate. If one of the caller's handlers passes a gate
    /// between this call and the caller's sleep, the handler sets a mark, and the caller records
    /// its place again.
    fn come(&self, words: &ThreadWords, due: &NextCall<'_>) {
        let _ = words.go.compare_exchange(go::PASSED, go::CLOSED, SeqCst, SeqCst);
        words.line.store(due.line, Relaxed);
        words.call.put(due.what);
        words.place.store(place::AT_GATE, SeqCst);
        self.0.arrivals.fetch_add(1, SeqCst);
    }

    /// Returns the ordinal of the first thread in a thread's process.
    fn process_of(&self, mut ordinal: u32) -> u32 {
        while self.words(ordinal).is_thread.load(Relaxed) != 0 {
            ordinal = self.words(ordinal).maker.load(Relaxed);
        }
        ordinal
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

fn clear(timer: &PendingTimer) {
    timer.real_ns.store(0, SeqCst);
    timer.due_ns.store(0, SeqCst);
}

/// Returns the number of spacings for a timer: up to 16, proportional to its length; above 16, one
/// more for each doubling.
fn length(duration: Duration) -> u64 {
    let units = nanoseconds(duration) / UNIT_NS;
    units.min(16) + u64::from((units / 16).max(1).ilog2())
}

/// Returns the time until a timer expires, at least 1 µs.
fn until(timer: &PendingTimer) -> Duration {
    Duration::from_nanos(timer.real_ns.load(SeqCst).saturating_sub(now_ns()).max(1_000))
}

/// Sets the process's alarm, or cancels it if `duration` is zero. Returns `true` if an alarm had
/// already been set.
fn set_alarm(duration: Duration) -> bool {
    let (tv_sec, tv_usec) = (duration.as_secs() as i64, i64::from(duration.subsec_micros()));
    let never = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let new = libc::itimerval { it_interval: never, it_value: libc::timeval { tv_sec, tv_usec } };
    let mut old = libc::itimerval { it_interval: never, it_value: never };
    // SAFETY: both structures outlive the call.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const new, &raw mut old) };
    old.it_value.tv_sec != 0 || old.it_value.tv_usec != 0
}

/// Rounds to seconds like alarm(2), which never returns 0 for an alarm that is set.
fn seconds_left(left_ns: u64) -> u32 {
    let seconds = Duration::from_nanos(left_ns) + Duration::from_millis(500);
    u32::try_from(seconds.as_secs().max(1)).unwrap_or(u32::MAX)
}

/// Sleeps until the gate is open, and passes through. Returns `false` if the caller must record its
/// place again.
fn goes_through(words: &ThreadWords) -> bool {
    futex_wait(&words.go);
    words.go.swap(go::PASSED, SeqCst) == go::OPEN
}

/// Sleeps while the gate is closed. May return spuriously, and always returns after a handler has
/// run. The wait has a timeout, because a wait without a timeout would restart after a handler with
/// `SA_RESTART`, and that handler may itself have passed gates.
fn futex_wait(word: &AtomicU32) {
    let long = libc::timespec { tv_sec: LONG_S, tv_nsec: 0 };
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            go::CLOSED,
            &raw const long,
        );
    }
}

/// Wakes the threads that sleep on the word.
pub(super) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the call takes an address and integers.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

// All accesses to the words are SeqCst: the init process draws conclusions from two inspections of
// several words of several threads, which is sound only if all accesses have one total order. The
// cost is small compared with the cost of the system calls.
impl StepControl for Gates {
    fn gate(&self, _: &dyn Sys, due: &NextCall<'_>) {
        let words = self.words(ORDINAL.get());
        self.come(words, due);
        while !goes_through(words) {
            self.come(words, due);
        }
        clear(&words.ends);
        if due.writes.is_some() {
            // The write is recorded before the call, because the call may terminate the caller.
            self.0.wrote.store(1, SeqCst);
        }
        if let Some(descriptor) = due.reads.filter(|descriptor| typing::is_terminal(*descriptor)) {
            words.reads.store(typing::to_word(descriptor), SeqCst);
        }
        let place = match due.timeout {
            None => place::THROUGH,
            // The kernel sleeps briefly even for a zero duration.
            Some(Duration::ZERO) => place::SETTLES,
            Some(duration) => {
                self.set_end(&words.ends, duration);
                place::THROUGH
            }
        };
        words.place.store(place, SeqCst);
    }

    fn lasting(&self, duration: Duration) -> Duration {
        let ends = &self.words(ORDINAL.get()).ends;
        if ends.real_ns.load(SeqCst) == 0 { duration } else { until(ends) }
    }

    /// Sets an alarm on the run's clock, by a kernel timer that expires in its turn.
    fn alarm(&self, _: &dyn Sys, seconds: u32) -> u32 {
        let alarm = &self.words(self.process_of(ORDINAL.get())).alarm;
        let due = alarm.due_ns.load(SeqCst);
        let left = due.saturating_sub(self.0.clock_ns.load(SeqCst));
        if self.0.has_come_early(alarm) {
            self.0.late.store(1, SeqCst);
        }
        clear(alarm);
        let mut ends = Duration::ZERO;
        if seconds != 0 {
            self.set_end(alarm, Duration::from_secs(seconds.into()));
            ends = until(alarm);
        }
        if set_alarm(ends) { seconds_left(left) } else { 0 }
    }

    fn passed(&self, due: &NextCall<'_>) {
        let words = self.words(ORDINAL.get());
        let ends = &words.ends;
        if self.0.has_come_early(ends) {
            self.0.late.store(1, SeqCst);
        }
        clear(ends);
        // Handlers do not read, so this store does not clear a descriptor that an interrupted call
        // of the thread has set.
        if due.reads.is_some() {
            words.reads.store(0, SeqCst);
        }
        words.place.store(place::THROUGH, SeqCst);
        self.0.arrivals.fetch_add(1, SeqCst);
        if let Some(descriptor) = due.writes {
            typing::settle(&self.0, words, descriptor);
        }
    }

    fn expect(&self, _: &dyn Sys, kind: SpawnKind) -> ThreadOrdinal {
        let ordinal = self.0.threads_taken.fetch_add(1, SeqCst);
        if ordinal as usize >= MAX_THREADS {
            // The init process will cut off the run.
            return ThreadOrdinal(MAX_THREADS as u32 - 1);
        }
        let words = self.words(ordinal);
        words.maker.store(ORDINAL.get(), SeqCst);
        words.is_thread.store(u32::from(kind == SpawnKind::Thread), SeqCst);
        words.place.store(place::EXPECTED, SeqCst);
        ThreadOrdinal(ordinal)
    }

    fn made(&self, ThreadOrdinal(ordinal): ThreadOrdinal, number: Option<i32>) {
        let words = self.words(ordinal);
        match number {
            Some(number) => {
                let is_thread = words.is_thread.load(SeqCst) != 0;
                let own = self.words(ORDINAL.get()).pid.load(SeqCst);
                words.pid.store(if is_thread { own } else { number }, SeqCst);
                words.tid.store(number, SeqCst);
            }
            None => words.place.store(place::REFUSED, SeqCst),
        }
        self.0.arrivals.fetch_add(1, SeqCst);
    }

    fn image(&self, _: &str) -> ProcessProgram {
        ProcessProgram { path: ITSELF.to_owned(), mark: Some(MARK) }
    }

    fn executes(&self, _: &dyn Sys) -> ThreadOrdinal {
        let ordinal = self.process_of(ORDINAL.get());
        self.words(ordinal).executes.store(1, SeqCst);
        ThreadOrdinal(ordinal)
    }

    fn exec_failed(&self, ThreadOrdinal(ordinal): ThreadOrdinal) {
        self.words(ordinal).executes.store(0, SeqCst);
    }

    fn take_ordinal(&self, sys: &dyn Sys, ThreadOrdinal(ordinal): ThreadOrdinal) {
        ORDINAL.set(ordinal);
        let words = self.words(ordinal);
        // Another thread may have called exec while the first thread slept.
        clear(&words.ends);
        words.reads.store(0, SeqCst);
        words.pid.store(sys.getpid().number(), SeqCst);
        words.tid.store(sys.gettid().0, SeqCst);
        words.place.store(place::THROUGH, SeqCst);
        words.executes.store(0, SeqCst);
        self.0.arrivals.fetch_add(1, SeqCst);
    }
}

impl Log for Gates {
    fn record(&self, event: &LogEvent<'_>) {
        with_line(event, |line| log::write(&self.0, self.0.step.load(SeqCst), ORDINAL.get(), line));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::scenario::SourceLine;
    use tontine_unix::Linux;

    fn due(line: u32) -> NextCall<'static> {
        NextCall::simple(SourceLine { line }, &"pause")
    }

    /// Regression: a signal arrived after its thread had recorded that it was at its gate and
    /// before the thread slept there, and the handler passed a gate. The thread then slept at a
    /// gate that the record did not show. The sleep looked like a sleep within a call, and the run
    /// counted as deadlocked.
    #[test]
    fn signal_before_gate_sleep_records_gate_again() {
        let (region, _memory) = CheckRegion::new().expect("memory");
        let gates = Gates(Arc::new(region));
        ORDINAL.set(1);
        let linux = Linux::new().expect("pidfds");
        let words = gates.words(1);
        gates.come(words, &due(7));
        words.go.store(go::OPEN, SeqCst);
        gates.gate(&linux, &due(8));
        assert_eq!(words.place.load(SeqCst), place::THROUGH);
        let opener = Gates(Arc::clone(&gates.0));
        thread::scope(|scope| {
            scope.spawn(move || {
                let until = now_ns() + 2_000_000_000;
                let words = opener.words(1);
                while words.place.load(SeqCst) != place::AT_GATE && now_ns() < until {
                    thread::yield_now();
                }
                words.go.store(go::OPEN, SeqCst);
                futex_wake(&words.go);
            });
            assert!(!goes_through(words), "it slept at a gate that the record does not show");
            gates.come(words, &due(7));
            assert!(goes_through(words));
        });
        assert_eq!(words.line.load(SeqCst), 7);
    }
}

//! The stepper of real processes, which runs in the init process: [`LinuxStepper`].
//!
//! It releases one thread from its gate, inspects all threads until the system is quiescent, and
//! releases the next. The system is *quiescent* if two consecutive inspections, between which no
//! thread has reached a gate or written to the log, find each thread at the same place and no
//! thread running. One inspection does not suffice, because it is not instantaneous: a thread that
//! was found asleep may be woken by a thread that is inspected later. The second inspection then
//! finds the woken thread running, or finds a word that has changed.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::fibers::FARTHEST;
use super::gates::futex_wake;
use super::region::{LOG, MAX_THREADS, PendingTimer, RegionShared, STEPS, ThreadWords, go, place};
use super::tasks::{CheckedThread, TaskStatus};
use super::time::{nap, now_ns};
use super::trace::RawEnding;
use super::typing;
use tontine_unix_sim::internal::SplitMix;

/// Maximum wait for a thread whose timer has expired.
const LATE_NS: u64 = 50_000_000;
/// If a timer expires within this time, it may expire before the step that is about to start.
const MARGIN_NS: u64 = 300_000;
/// Maximum time until the expiry of a timer for which the run waits.
const FARTHEST_NS: u64 = FARTHEST.as_nanos() as u64;
/// Maximum length of one sleep while time passes or a thread settles.
const NAP_NS: u64 = 1_000_000;
/// Maximum wait for a requested thread whose creator has ended.
const BIRTH_NS: u64 = 50_000_000;
/// Time for which all threads must be quiescent after a write, if the stepper cannot see whether
/// the terminal has received the bytes.
const BLIND_NS: u64 = 2_000_000;
/// Maximum time for which a thread may sleep in a read of a terminal that is readable.
const WAKES_NS: u64 = 50_000_000;
/// Time between two inspections if an immediate one would be useless.
const BETWEEN_LOOKS_NS: u64 = 40_000;
/// Maximum number of yields to a released thread before the first inspection.
const YIELDS: u32 = 4;
/// Number of unsuccessful inspections after which the stepper checks whether threads that seem to
/// run have ended.
const QUICK_LOOKS: u32 = 6;
/// Number of unsuccessful inspections after which the stepper sleeps between inspections, because
/// the running thread may be on another processor.
const EAGER_LOOKS: u32 = 200;

/// The reason why a run has no ending to report.
#[derive(Debug)]
pub(super) enum RunError {
    /// A failure, described in words.
    Words(String),
    /// A timer expired out of turn, because steps took too long.
    Late,
}

/// The stepper's record of a thread.
#[derive(Debug, Default)]
struct KnownThread {
    task: Option<CheckedThread>,
    has_ended: bool,
    /// `true` if the thread was found to have ended while other threads of its process had not.
    is_zombie: bool,
}

/// The place at which a thread was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadLocation {
    AtGate,
    InCall,
    Stopped,
    Ended,
}

/// The state of the delivery of bytes that were written to terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Carried {
    /// No thread sleeps in a read of a terminal.
    Nothing,
    /// All bytes have arrived.
    All,
    /// A thread sleeps although its terminal is readable: the kernel is about to wake it.
    Some,
    /// The stepper cannot inspect a terminal.
    Unknown,
}

struct LinuxStepper<'s> {
    shared: &'s RegionShared,
    known: Vec<KnownThread>,
    /// The results of the last two inspections.
    found: Vec<ThreadLocation>,
    before: Vec<ThreadLocation>,
    /// The thread that was released last.
    last: usize,
    deadline_ns: u64,
    /// Timers up to this time have expired in their turn.
    passed_ns: u64,
}

/// Steps through a run whose first process has been created.
pub(super) fn run_steps(shared: &RegionShared) -> Result<RawEnding, RunError> {
    let timeout = Duration::from_millis(u64::from(shared.order.timeout_ms.load(SeqCst)));
    let mut stepper = LinuxStepper {
        shared,
        known: Vec::new(),
        found: Vec::new(),
        before: Vec::new(),
        last: 0,
        deadline_ns: now_ns() + u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX / 2),
        passed_ns: 0,
    };
    let max_steps = shared.order.max_steps.load(SeqCst).min(STEPS as u32);
    let mut choice = SplitMix::new(shared.order.seed.load(SeqCst));
    loop {
        stepper.await_rest()?;
        if shared.late.load(SeqCst) != 0 {
            return Err(RunError::Late);
        }
        if stepper.found.first() == Some(&ThreadLocation::Ended) {
            return Ok(RawEnding::Finished);
        }
        let full = shared.log_length.load(SeqCst) as usize > LOG
            || shared.threads_taken.load(SeqCst) as usize >= MAX_THREADS;
        let waiting: Vec<usize> = (0..stepper.found.len())
            .filter(|at| stepper.found[*at] == ThreadLocation::AtGate)
            .collect();
        if waiting.is_empty() {
            if stepper.let_time_pass() {
                stepper.in_time()?;
                continue;
            }
            stepper.report_blocked_threads();
            return Ok(RawEnding::Deadlocked);
        }
        if stepper.is_late() {
            return Err(RunError::Late);
        }
        let step = shared.step.load(SeqCst);
        if full || step >= max_steps {
            return Ok(RawEnding::Cut);
        }
        let chosen = waiting[choice.index(waiting.len())];
        let words = &shared.threads[chosen];
        let line = words.line.load(SeqCst);
        shared.steps[step as usize].store((chosen as u64) << 32 | u64::from(line), SeqCst);
        shared.step.store(step + 1, SeqCst);
        // Timers of equal length that are set in different steps expire in the order of the steps.
        shared.clock_ns.fetch_add(1, SeqCst);
        stepper.last = chosen;
        // The thread has left its gate, although it has not run yet.
        words.place.store(place::THROUGH, SeqCst);
        words.go.store(go::OPEN, SeqCst);
        futex_wake(&words.go);
        LinuxStepper::make_way(words);
    }
}

impl LinuxStepper<'_> {
    /// Yields the processor to the released thread, unless it has already run. Most calls return
    /// immediately, and then no inspection is needed before the thread is at its next gate.
    fn make_way(words: &ThreadWords) {
        for _ in 0..YIELDS {
            rustix::thread::sched_yield();
            if words.place.load(SeqCst) == place::AT_GATE {
                break;
            }
        }
    }

    /// Inspects the threads until they are quiescent.
    fn await_rest(&mut self) -> Result<(), RunError> {
        let mut is_first = true;
        let mut looks = 0;
        let mut not_before = 0;
        let mut wakes_until = 0;
        let mut mark = self.mark();
        loop {
            self.push_typed();
            let is_at_rest = self.look(looks > QUICK_LOOKS)?;
            let now = self.mark();
            if is_at_rest && !is_first && now == mark && self.found == self.before {
                let wrote = self.shared.wrote.swap(0, SeqCst) != 0;
                match if wrote { self.carry_to_readers() } else { Carried::Nothing } {
                    Carried::Nothing if now_ns() >= not_before => return Ok(()),
                    Carried::Nothing => {}
                    Carried::All => {
                        is_first = true;
                        continue;
                    }
                    Carried::Some if wakes_until == 0 || now_ns() < wakes_until => {
                        if wakes_until == 0 {
                            wakes_until = now_ns() + WAKES_NS;
                        }
                        self.shared.wrote.store(1, SeqCst);
                        nap(BETWEEN_LOOKS_NS);
                        is_first = true;
                        continue;
                    }
                    Carried::Some => {}
                    Carried::Unknown => not_before = now_ns() + BLIND_NS,
                }
            }
            self.in_time()?;
            (is_first, mark) = (!is_at_rest, now);
            std::mem::swap(&mut self.found, &mut self.before);
            if is_at_rest {
                if not_before != 0 {
                    nap(BETWEEN_LOOKS_NS);
                }
                continue;
            }
            looks += 1;
            // The thread may have been killed in the meantime, which a closer inspection shows.
            if self.shared.threads[self.last].place.load(SeqCst) == place::SETTLES {
                nap(NAP_NS);
                continue;
            }
            if looks < EAGER_LOOKS {
                rustix::thread::sched_yield();
            } else {
                nap(BETWEEN_LOOKS_NS);
            }
        }
    }

    /// Returns an error once the run has taken too long: in a step, over many steps, or while time
    /// passes.
    fn in_time(&self) -> Result<(), RunError> {
        if now_ns() <= self.deadline_ns {
            Ok(())
        } else {
            Err(RunError::Words(self.describe_running_threads()))
        }
    }

    /// Makes the kernel deliver typed bytes to the terminals whose writers wait for the delivery.
    fn push_typed(&self) {
        if self.shared.settling.swap(0, SeqCst) == 0 {
            return;
        }
        let threads = (self.shared.threads_taken.load(SeqCst) as usize).min(MAX_THREADS);
        for words in &self.shared.threads[..threads] {
            let word = words.typed.load(SeqCst);
            if word != 0 {
                if typing::push(words.pid.load(SeqCst), word).is_none() {
                    nap(BLIND_NS);
                }
                words.typed.store(0, SeqCst);
            }
        }
    }

    /// Makes the kernel deliver written bytes to the threads that sleep in a read of a terminal.
    fn carry_to_readers(&self) -> Carried {
        let mut carried = Carried::Nothing;
        // Bytes that arrive at one end may be echoed to the other.
        for _ in 0..2 {
            for (ordinal, found) in self.found.iter().enumerate() {
                let words = &self.shared.threads[ordinal];
                let word = words.reads.load(SeqCst);
                if *found == ThreadLocation::InCall && word != 0 {
                    let one = match typing::carry(words.pid.load(SeqCst), word) {
                        None => Carried::Unknown,
                        Some(false) => Carried::All,
                        Some(true) => Carried::Some,
                    };
                    carried = carried.max(one);
                }
            }
        }
        carried
    }

    /// Returns counters of which at least one changes when a thread continues in user mode.
    fn mark(&self) -> (u32, u32, u32) {
        let RegionShared { arrivals, log_length, threads_taken, .. } = self.shared;
        (arrivals.load(SeqCst), log_length.load(SeqCst), threads_taken.load(SeqCst))
    }

    /// Inspects all threads. Returns `false` if a thread runs. With `closely`, also checks whether
    /// threads that seem to run have ended.
    fn look(&mut self, closely: bool) -> Result<bool, RunError> {
        let threads = (self.shared.threads_taken.load(SeqCst) as usize).min(MAX_THREADS);
        self.known.resize_with(threads, KnownThread::default);
        self.found.clear();
        self.found.resize(threads, ThreadLocation::Ended);
        // The released thread is the most likely to run.
        if self.last < threads && !self.look_at(self.last, closely)? {
            return Ok(false);
        }
        for ordinal in 0..threads {
            if ordinal != self.last && !self.look_at(ordinal, closely)? {
                return Ok(false);
            }
        }
        Ok(threads > 0)
    }

    /// Inspects one thread. Returns `false` if it runs.
    fn look_at(&mut self, ordinal: usize, closely: bool) -> Result<bool, RunError> {
        let known = &mut self.known[ordinal];
        let words = &self.shared.threads[ordinal];
        if known.has_ended {
            return Ok(true);
        }
        let place = words.place.load(SeqCst);
        if place == place::REFUSED {
            known.has_ended = true;
            return Ok(true);
        }
        let (pid, tid) = (words.pid.load(SeqCst), words.tid.load(SeqCst));
        if tid == 0 {
            return Ok(self.was_never_born(ordinal));
        }
        if known.task.is_none() {
            known.task = CheckedThread::open(pid, tid).map_err(proc_fails)?;
        }
        let state = known
            .task
            .as_ref()
            .map_or(Ok(TaskStatus::Gone), |task| task.state(closely || known.is_zombie))
            .map_err(proc_fails)?;
        let executes = words.executes.load(SeqCst) != 0;
        self.found[ordinal] = match (state, place) {
            // The thread's words describe the previous program.
            (TaskStatus::Sleeps, _) if executes => return Ok(false),
            // The thread is inspected again, because the end of the last other thread frees this
            // thread's number if the parent ignores SIGCHLD.
            (TaskStatus::Zombie, _) if self.has_other_threads(ordinal, pid) => {
                self.known[ordinal].is_zombie = true;
                ThreadLocation::Ended
            }
            // A thread that has ended is treated the same whether or not it has been reaped.
            (TaskStatus::Gone | TaskStatus::Zombie, _) => {
                if self.shared.has_come_early(&words.alarm) {
                    // The alarm may have expired before the process ended.
                    self.shared.late.store(1, SeqCst);
                }
                let known = &mut self.known[ordinal];
                (known.has_ended, known.task) = (true, None);
                ThreadLocation::Ended
            }
            (TaskStatus::Stopped, _) => ThreadLocation::Stopped,
            (TaskStatus::Sleeps, place::AT_GATE) => ThreadLocation::AtGate,
            (TaskStatus::Sleeps, place::THROUGH) => ThreadLocation::InCall,
            _ => return Ok(false),
        };
        Ok(true)
    }

    /// Returns `true` if another thread of this process is not known to have ended.
    fn has_other_threads(&self, ordinal: usize, pid: i32) -> bool {
        let is_of_it = |other: usize| self.shared.threads[other].pid.load(SeqCst) == pid;
        let mut others = self.known.iter().enumerate().filter(|(other, _)| *other != ordinal);
        others.any(|(other, known)| !known.has_ended && is_of_it(other))
    }

    /// Returns `true` if a requested thread will never exist, because its creator was killed before
    /// it created the thread.
    fn was_never_born(&mut self, ordinal: usize) -> bool {
        let maker = self.shared.threads[ordinal].maker.load(SeqCst) as usize;
        let is_orphan = self.known.get(maker).is_some_and(|maker| maker.has_ended);
        if is_orphan {
            nap(BIRTH_NS);
            self.known[ordinal].has_ended = self.shared.threads[ordinal].tid.load(SeqCst) == 0;
        }
        self.known[ordinal].has_ended
    }

    /// Returns the timers of living threads, each as its real end and its due time on the run's
    /// clock.
    fn timers(&self) -> impl Iterator<Item = (u64, u64)> {
        self.found.iter().enumerate().flat_map(|(ordinal, found)| {
            let words = &self.shared.threads[ordinal];
            let lives = *found != ThreadLocation::Ended;
            let ends = Some(&words.ends).filter(|_| *found == ThreadLocation::InCall);
            let timers = [ends, Some(&words.alarm).filter(|_| lives)];
            timers.into_iter().flatten().filter_map(|PendingTimer { real_ns, due_ns }| {
                let real = real_ns.load(SeqCst);
                (real != 0).then(|| (real, due_ns.load(SeqCst)))
            })
        })
    }

    /// Returns `true` if a timer has expired before its turn, or is about to.
    fn is_late(&self) -> bool {
        let soon = now_ns() + MARGIN_NS;
        let mut timers = self.timers();
        timers.any(|(real, _)| self.passed_ns < real && real < soon)
    }

    /// Sleeps for a while if a timer will wake a thread. Returns `true` if the stepper slept.
    fn let_time_pass(&mut self) -> bool {
        let now = now_ns();
        let to_come = self.timers().filter(|(real, _)| now < real.saturating_add(LATE_NS));
        let Some((real, due)) = to_come.min() else { return false };
        if due.saturating_sub(self.shared.clock_ns.load(SeqCst)) > FARTHEST_NS {
            return false;
        }
        // Stored before the sleep, because a thread that the timer wakes immediately checks whether
        // the timer's turn had come.
        self.passed_ns = self.passed_ns.max(real);
        self.shared.clock_ns.fetch_max(due, SeqCst);
        self.shared.passed_due_ns.fetch_max(due, SeqCst);
        if now < real {
            nap((real - now).min(NAP_NS));
        } else {
            // The timer has expired. Its thread is about to wake, or keeps sleeping because the
            // signal is blocked.
            nap(BETWEEN_LOOKS_NS);
        }
        true
    }

    /// Reports the threads that are blocked, one per line.
    fn report_blocked_threads(&self) {
        let mut words = String::new();
        for (ordinal, found) in self.found.iter().enumerate().skip(1) {
            let letter = match found {
                ThreadLocation::InCall => 'S',
                ThreadLocation::Stopped => 'T',
                ThreadLocation::AtGate | ThreadLocation::Ended => continue,
            };
            let ThreadWords { line, call, .. } = &self.shared.threads[ordinal];
            let line = line.load(SeqCst);
            words.push_str(&format!("{ordinal}\t{letter}\t{line}\t{}\n", call.get()));
        }
        self.shared.put_words(&words);
    }

    /// Describes why the run has not ended.
    fn describe_running_threads(&self) -> String {
        let mut words = "expected an end within the timeout, found".to_owned();
        for (ordinal, known) in self.known.iter().enumerate().filter(|(_, known)| !known.has_ended)
        {
            let one = &self.shared.threads[ordinal];
            let state = known.task.as_ref().and_then(|task| task.state(true).ok());
            let state = state.unwrap_or(TaskStatus::Runs);
            let (line, place) = (one.line.load(SeqCst), one.place.load(SeqCst));
            words.push_str(&format!(
                " [thread {ordinal}: {state:?}, place {place}, line {line}: {}]",
                one.call.get()
            ));
        }
        words
    }
}

fn proc_fails(error: std::io::Error) -> RunError {
    RunError::Words(error.to_string())
}

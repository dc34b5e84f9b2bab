//! The conductor of real processes: [`conduct`], in the keeper.
//!
//! It lets one thread through its gate, then looks until the whole system is at rest, and goes on.
//! *At rest* is: two looks in a row, between which nobody came anywhere or told anything, found
//! each thread in the same place, and none that runs. One look is not enough, for it is not one
//! moment: a thread that was seen asleep may have been woken by one that was seen later. Whatever
//! it does then shows in the second look, as a thread that runs or as a word that has changed.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::choice::Choice;
use super::gates::{futex_wake, now_ns};
use super::region::{LOG, SEATS, STEPS, SeatWords, Shared, place};
use super::tasks::{State, Task};
use super::trace::RawEnding;

/// So long a timer that is due is waited for.
const LATE_NS: u64 = 50_000_000;
/// The longest nap while time passes.
const NAP_NS: u64 = 1_000_000;
/// So long a thread that was asked for is waited for if who asked has ended.
const BIRTH_NS: u64 = 50_000_000;
/// Looks that find the system at rest after a terminal was written to, and the time between them:
/// what a program wrote is carried to the other end by a worker of the kernel.
const LOOKS_FOR_TYPING: u32 = 5;
const BETWEEN_LOOKS_NS: u64 = 40_000;
/// Fruitless looks after which it naps between them: whoever runs may be on another processor.
const EAGER_LOOKS: u32 = 200;

/// Why a run came to no ending.
#[derive(Debug)]
pub(super) struct Lost(pub(super) String);

/// What is known of a seat.
#[derive(Debug, Default)]
struct Known {
    task: Option<Task>,
    has_ended: bool,
}

/// Where a thread was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    AtGate,
    InCall,
    Stopped,
    Zombie,
    Ended,
}

struct Conductor<'s> {
    shared: &'s Shared,
    known: Vec<Known>,
    /// The last look, and the one before.
    found: Vec<Found>,
    before: Vec<Found>,
    /// The seat that was let through last.
    last: usize,
    deadline_ns: u64,
}

/// Conducts a run whose first process has been made.
pub(super) fn conduct(shared: &Shared) -> Result<RawEnding, Lost> {
    let patience = Duration::from_millis(u64::from(shared.order.patience_ms.load(SeqCst)));
    let mut conductor = Conductor {
        shared,
        known: Vec::new(),
        found: Vec::new(),
        before: Vec::new(),
        last: 0,
        deadline_ns: now_ns() + u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 2),
    };
    let most_steps = shared.order.most_steps.load(SeqCst).min(STEPS as u32);
    let mut choice = Choice::new(shared.order.seed.load(SeqCst));
    loop {
        conductor.await_rest()?;
        if matches!(conductor.found.first(), Some(Found::Zombie | Found::Ended)) {
            return Ok(RawEnding::Finished);
        }
        let full = shared.log_length.load(SeqCst) as usize > LOG
            || shared.seats_taken.load(SeqCst) as usize >= SEATS;
        let waiting: Vec<usize> =
            (0..conductor.found.len()).filter(|at| conductor.found[*at] == Found::AtGate).collect();
        if waiting.is_empty() {
            if conductor.let_time_pass() {
                continue;
            }
            conductor.say_who_waits();
            return Ok(RawEnding::Stuck);
        }
        let step = shared.step.load(SeqCst);
        if full || step >= most_steps {
            return Ok(RawEnding::Cut);
        }
        let chosen = waiting[choice.among(waiting.len())];
        let words = &shared.seats[chosen];
        let line = words.line.load(SeqCst);
        shared.steps[step as usize].store((chosen as u64) << 32 | u64::from(line), SeqCst);
        shared.step.store(step + 1, SeqCst);
        conductor.last = chosen;
        words.go.store(1, SeqCst);
        futex_wake(&words.go);
    }
}

impl Conductor<'_> {
    /// Looks until everybody is at rest.
    fn await_rest(&mut self) -> Result<(), Lost> {
        let mut is_first = true;
        let mut looks = 0;
        let mut to_come = 1;
        let mut mark = self.mark();
        loop {
            let is_at_rest = self.look(!is_first)?;
            let now = self.mark();
            if is_at_rest && !is_first && now == mark && self.found == self.before {
                to_come -= 1;
                if to_come == 0 {
                    return Ok(());
                }
            } else if self.shared.typed.swap(0, SeqCst) != 0 {
                to_come = LOOKS_FOR_TYPING;
            }
            (is_first, mark) = (!is_at_rest, now);
            std::mem::swap(&mut self.found, &mut self.before);
            if is_at_rest {
                if to_come > 1 {
                    nap(BETWEEN_LOOKS_NS);
                }
                continue;
            }
            looks += 1;
            if looks < EAGER_LOOKS {
                rustix::thread::sched_yield();
            } else {
                nap(BETWEEN_LOOKS_NS);
            }
            if looks % 64 == 0 && now_ns() > self.deadline_ns {
                return Err(Lost(self.who_runs()));
            }
        }
    }

    /// What changes whenever somebody goes on in user mode.
    fn mark(&self) -> (u32, u32, u32) {
        let Shared { arrivals, log_length, seats_taken, .. } = self.shared;
        (arrivals.load(SeqCst), log_length.load(SeqCst), seats_taken.load(SeqCst))
    }

    /// Where everybody is; false if somebody runs. `closely`: who is marked as asleep has left its
    /// processor, too.
    fn look(&mut self, closely: bool) -> Result<bool, Lost> {
        let seats = (self.shared.seats_taken.load(SeqCst) as usize).min(SEATS);
        self.known.resize_with(seats, Known::default);
        self.found.clear();
        self.found.resize(seats, Found::Ended);
        // Who was let through is most likely to run.
        if self.last < seats && !self.look_at(self.last, closely)? {
            return Ok(false);
        }
        for seat in 0..seats {
            if seat != self.last && !self.look_at(seat, closely)? {
                return Ok(false);
            }
        }
        Ok(seats > 0)
    }

    /// Where one thread is; false if it runs.
    fn look_at(&mut self, seat: usize, closely: bool) -> Result<bool, Lost> {
        let known = &mut self.known[seat];
        let words = &self.shared.seats[seat];
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
            return Ok(self.was_never_born(seat));
        }
        if known.task.is_none() {
            known.task = Task::open(pid, tid).map_err(|error| Lost(format!("/proc: {error}")))?;
        }
        let state = known.task.as_ref().map_or(State::Gone, |task| task.state(closely));
        self.found[seat] = match (state, place) {
            (State::Gone, _) => {
                (known.has_ended, known.task) = (true, None);
                Found::Ended
            }
            (State::Zombie, _) => Found::Zombie,
            (State::Stopped, _) => Found::Stopped,
            (State::Sleeps, place::AT_GATE) => Found::AtGate,
            (State::Sleeps, place::THROUGH) => Found::InCall,
            _ => return Ok(false),
        };
        Ok(true)
    }

    /// Whether a thread that was asked for will not come: who asked was killed before it was made.
    fn was_never_born(&mut self, seat: usize) -> bool {
        let maker = self.shared.seats[seat].maker.load(SeqCst) as usize;
        let is_orphan = self.known.get(maker).is_some_and(|maker| maker.has_ended);
        if is_orphan {
            nap(BIRTH_NS);
            self.known[seat].has_ended = self.shared.seats[seat].tid.load(SeqCst) == 0;
        }
        self.known[seat].has_ended
    }

    /// Naps if somebody will be woken by the clock; whether it did.
    fn let_time_pass(&self) -> bool {
        let now = now_ns();
        let is_to_come = |ns: &u64| *ns != 0 && now < ns.saturating_add(LATE_NS);
        let timers = self.found.iter().enumerate().flat_map(|(seat, found)| {
            let words = &self.shared.seats[seat];
            let sleeps = *found == Found::InCall;
            let lives = !matches!(found, Found::Ended | Found::Zombie);
            [
                words.ends_ns.load(SeqCst) * u64::from(sleeps),
                words.alarm_ns.load(SeqCst) * u64::from(lives),
            ]
        });
        let Some(first) = timers.filter(is_to_come).min() else { return false };
        nap(first.saturating_sub(now).clamp(BETWEEN_LOOKS_NS, NAP_NS));
        now < self.deadline_ns
    }

    /// Who waits for ever, a line each.
    fn say_who_waits(&self) {
        let mut words = String::new();
        for (seat, found) in self.found.iter().enumerate().skip(1) {
            let letter = match found {
                Found::InCall => 'S',
                Found::Stopped => 'T',
                Found::AtGate | Found::Zombie | Found::Ended => continue,
            };
            let SeatWords { line, call, .. } = &self.shared.seats[seat];
            let line = line.load(SeqCst);
            words.push_str(&format!("{seat}\t{letter}\t{line}\t{}\n", call.get()));
        }
        self.shared.put_words(&words);
    }

    /// Why there is no end.
    fn who_runs(&self) -> String {
        let mut words = "expected everybody to come to rest in time, found".to_owned();
        for (seat, known) in self.known.iter().enumerate().filter(|(_, known)| !known.has_ended) {
            let one = &self.shared.seats[seat];
            let state = known.task.as_ref().map_or(State::Runs, |task| task.state(false));
            let (line, place) = (one.line.load(SeqCst), one.place.load(SeqCst));
            words.push_str(&format!(
                " [seat {seat}: {state:?}, place {place}, line {line}: {}]",
                one.call.get()
            ));
        }
        words
    }
}

fn nap(ns: u64) {
    let duration = rustix::time::Timespec { tv_sec: 0, tv_nsec: ns as i64 };
    let _ = rustix::thread::nanosleep(&duration);
}

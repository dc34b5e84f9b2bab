//! The stepper of the virtual Unix, [`run`], which implements [`Conductor`].
//!
//! At a gate the fiber is parked in user mode: the thread is in no system call, and no signal
//! interrupts it there. When no fiber can continue, the simulated executor calls the conductor.
//! First, the conductor lets all threads at a gate that have a signal, a stop or an end to handle
//! do so, which corresponds to an interrupt of a real thread in user mode. Then it releases one of
//! the threads at a gate.

#![allow(unsafe_code, reason = "a parked fiber is identified by its context")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::rolls::Rolls;
use super::trace::{RawEnding, RawTrace, ThreadFacts, Trace};
use crate::scenario::step_control::{NextCall, SpawnKind, StepControl, ThreadOrdinal};
use crate::scenario::{BlockKind, Log, LogEvent, Record, Scenario, conducted, conducted_program};
use tontine_unix::Sys;
use tontine_unix_sim::internal::{
    self, Conductor, Fiber, Reused, SignalStack, SplitMix, is_wanted, waits_in_user_mode,
};
use tontine_unix_sim::{BuildError, Builder, EndReason, Stopper};

/// The number of the first process, far from the numbers that occur in scenarios.
pub(super) const FIRST_NUMBER: i32 = 10_001;
/// Maximum time until the expiry of a timer for which a run waits. If every timer is further off,
/// the run counts as deadlocked.
pub(super) const FARTHEST: Duration = Duration::from_secs(10);
/// Maximum number of points of a run, which also ends a run that makes no calls.
const MOST_POINTS: u64 = 5_000_000;
/// Maximum number of events that are kept.
const MOST_RECORDS: usize = 100_000;

thread_local! {
    /// The stacks that consecutive runs reuse.
    static REUSED: RefCell<Reused> = RefCell::new(Reused::default());
}

/// Runs a scenario on the virtual Unix.
pub(super) fn run(
    scenario: &Scenario,
    builder: Builder,
    seed: u64,
    max_steps: u32,
    rolls: Rolls,
) -> Result<Trace, BuildError> {
    let stopper = Stopper::new();
    let table = Arc::new(GateTable {
        inner: Mutex::new(GateTableState {
            raw: RawTrace::default(),
            gates: Vec::new(),
            by_thread: BTreeMap::new(),
            choice: SplitMix::new(seed),
            step: 0,
        }),
        stopper: stopper.clone(),
        max_steps,
        random: AtomicU64::new(rolls.of(0)),
        rolls,
    });
    let control: Arc<dyn StepControl> = Arc::<GateTable>::clone(&table);
    let conductor: Arc<dyn Conductor> = Arc::<GateTable>::clone(&table);
    let processes = scenario.blocks.iter().filter(|block| block.kind == BlockKind::Process);
    let builder = processes.fold(builder, |builder, block| {
        let control = Arc::clone(&control);
        builder.program(&block.name, conducted_program(scenario, &block.name, control))
    });
    let builder = builder.stopper(&stopper).stop_at(MOST_POINTS).pids(32_768).conducted(
        conductor,
        FIRST_NUMBER,
        REUSED.with_borrow(Reused::clone),
    );
    let unix = builder.build()?;
    let report = {
        let _signal_stack = SignalStack::install();
        unix.run(conducted(scenario, control))
    };
    if report.abandoned > 0 {
        REUSED.set(Reused::default());
    }
    let mut inner = table.inner();
    let ending = match report.ending {
        EndReason::Finished => RawEnding::Finished,
        EndReason::Deadlocked => RawEnding::Deadlocked,
        EndReason::Stopped => RawEnding::Cut,
    };
    let mut raw = std::mem::take(&mut inner.raw);
    if let (RawEnding::Deadlocked, Some(state)) = (ending, &report.state) {
        let stopped = |tid: i32| {
            let mut processes = state.processes.iter();
            let found = processes.find(|process| process.threads.iter().any(|t| t.tid == tid));
            found.map(|process| matches!(process.letter, 'T' | 't'))
        };
        for (ordinal, entry) in inner.gates.iter().enumerate().skip(1) {
            if let Some(is_stopped) = stopped(raw.threads[ordinal].number) {
                let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
                raw.waiting.push((ordinal, entry.line, entry.call.clone(), is_stopped));
            }
        }
    }
    Ok(Trace::new(raw, ending))
}

/// The gates of a run's threads, indexed by their ordinals.
struct GateTable {
    inner: Mutex<GateTableState>,
    stopper: Stopper,
    max_steps: u32,
    /// The random seed of the current step.
    random: AtomicU64,
    rolls: Rolls,
}

struct GateTableState {
    raw: RawTrace,
    gates: Vec<GateEntry>,
    by_thread: BTreeMap<i32, u32>,
    choice: SplitMix,
    step: u32,
}

/// The state of a thread at its gate.
#[derive(Default)]
struct GateEntry {
    /// While the thread is at its gate, its fiber and the context by which the kernel knows it.
    at_gate: Option<(Fiber, usize)>,
    /// `true` if the thread was released.
    may_go: bool,
    line: u32,
    call: String,
}

impl GateTable {
    fn inner(&self) -> MutexGuard<'_, GateTableState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GateTableState {
    /// Returns the ordinal of the calling thread.
    fn ordinal(&self, sys: &dyn Sys) -> usize {
        let number = sys.gettid().0;
        self.by_thread.get(&number).map_or(0, |ordinal| *ordinal as usize)
    }
}

/// Returns `true` if the calling thread has a signal, a stop or an end to handle.
fn is_wanted_here() -> bool {
    // SAFETY: the caller's fiber is running.
    unsafe { is_wanted(internal::context()) }
}

/// Removes a thread from its gate on drop, even if the thread unwinds at the gate.
struct Leaving<'h>(&'h GateTable, usize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.inner().gates[self.1].at_gate = None;
    }
}

impl StepControl for GateTable {
    fn gate(&self, sys: &dyn Sys, due: &NextCall<'_>) {
        let call = due.what.to_string();
        let ordinal = self.inner().ordinal(sys);
        let _leaving = Leaving(self, ordinal);
        loop {
            {
                let mut inner = self.inner();
                let entry = &mut inner.gates[ordinal];
                if std::mem::take(&mut entry.may_go) {
                    return;
                }
                // A handler that ran in the meantime has used the same entry.
                entry.at_gate = Some((internal::current(), internal::context()));
                entry.line = due.line;
                entry.call.clone_from(&call);
            }
            // A signal wakes the thread immediately, and the thread handles the signal before or
            // after the sender's next action.
            internal::enter_kernel();
            waits_in_user_mode(true);
            if !is_wanted_here() {
                internal::park();
            }
            waits_in_user_mode(false);
            internal::leave_kernel();
            let is_called = {
                let mut inner = self.inner();
                let entry = &mut inner.gates[ordinal];
                entry.at_gate = None;
                !entry.may_go
            };
            // Handles the signal, stop or end for which the thread was woken; a stop lasts until
            // the process is continued.
            if is_called {
                sys.poll();
            }
        }
    }

    fn passed(&self, _: &NextCall<'_>) {}

    fn expect(&self, sys: &dyn Sys, kind: SpawnKind) -> ThreadOrdinal {
        let mut inner = self.inner();
        let maker = u32::try_from(inner.ordinal(sys)).unwrap_or(0);
        let ordinal = u32::try_from(inner.gates.len()).unwrap_or(u32::MAX);
        inner.raw.threads.push(ThreadFacts { maker, kind, number: 0 });
        inner.gates.push(GateEntry::default());
        ThreadOrdinal(ordinal)
    }

    fn made(&self, ThreadOrdinal(ordinal): ThreadOrdinal, number: Option<i32>) {
        let mut inner = self.inner();
        if let Some(number) = number {
            inner.raw.threads[ordinal as usize].number = number;
            inner.by_thread.insert(number, ordinal);
        }
    }

    fn executes(&self, sys: &dyn Sys) -> ThreadOrdinal {
        let ordinal = self.inner().by_thread.get(&sys.getpid().number()).copied();
        ThreadOrdinal(ordinal.unwrap_or(0))
    }

    fn take_ordinal(&self, sys: &dyn Sys, ordinal: ThreadOrdinal) {
        if ordinal == ThreadOrdinal::INIT {
            self.expect(sys, SpawnKind::Process);
        }
        self.made(ordinal, Some(sys.gettid().0));
    }
}

impl Log for GateTable {
    fn record(&self, event: &LogEvent<'_>) {
        let record = Record::from(event);
        let mut inner = self.inner();
        if inner.raw.records.len() >= MOST_RECORDS {
            drop(inner);
            return self.stopper.stop("more events than the maximum");
        }
        let ordinal = inner.by_thread.get(&event.tid).copied().unwrap_or(0);
        let step = inner.step;
        inner.raw.records.push((step, ordinal, record));
    }
}

impl Conductor for GateTable {
    fn at_rest(&self) -> bool {
        let mut inner = self.inner();
        let mut is_any_woken = false;
        for entry in &inner.gates {
            let Some((fiber, context)) = &entry.at_gate else { continue };
            // SAFETY: a fiber at a gate has not ended, because it leaves the gate before it ends.
            if unsafe { is_wanted(*context) } {
                fiber.unpark();
                is_any_woken = true;
            }
        }
        if is_any_woken {
            return true;
        }
        let at_gate = |entry: &GateEntry| entry.at_gate.is_some();
        let waiting: Vec<usize> =
            (0..inner.gates.len()).filter(|ordinal| at_gate(&inner.gates[*ordinal])).collect();
        if waiting.is_empty() {
            return false;
        }
        if inner.step >= self.max_steps {
            drop(inner);
            self.stopper.stop("more steps than the maximum");
            return true;
        }
        let chosen = waiting[inner.choice.index(waiting.len())];
        inner.step += 1;
        self.random.store(self.rolls.of(inner.step), Relaxed);
        let entry = &mut inner.gates[chosen];
        entry.may_go = true;
        let line = entry.line;
        if let Some((fiber, _)) = &entry.at_gate {
            fiber.unpark();
        }
        inner.raw.steps.push((u32::try_from(chosen).unwrap_or(u32::MAX), line));
        true
    }

    fn farthest(&self) -> Duration {
        FARTHEST
    }

    fn random(&self) -> u64 {
        self.random.load(Relaxed)
    }
}

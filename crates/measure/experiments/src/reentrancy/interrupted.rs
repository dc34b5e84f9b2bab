//! A child that signals interrupt at random moments: [`interrupt`].
//!
//! The child repeats one operation of an [`InterruptedWork`]. If the child's handler interrupts an
//! operation, the handler runs the same operation once more. The child's work between two
//! operations, such as searching a file for a line, takes longer than an operation. The next signal
//! is sent only after that work. If a signal still arrives between operations, the handler does
//! nothing and the signal is not counted. The child is expendable: it may crash or hang
//! indefinitely. The parent only reads counters. It waits until a deadline for the interrupted
//! operation to end, and kills a child that is still asleep at that time.

#![allow(unsafe_code, reason = "a signal handler reaches the child's counters")]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use std::sync::atomic::compiler_fence;

use tontine_bench::os::signal::handle;

use crate::prelude::*;

/// Maximum number of verdicts of one child.
const MOST: usize = 4_096;
/// Time for which an interrupted child must be found asleep at every check before it counts as
/// deadlocked.
const DEADLINE: Duration = Duration::from_millis(1);
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
/// Timeout for a child that neither continues nor sleeps.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum pause before a signal, measured from the moment when the child is at work. The pause is
/// uniformly distributed, so that signals hit every phase of an operation.
const PAUSE_NS: u64 = 4_000;
/// Maximum number of signals between operations per wanted signal. If there are more, the row
/// fails.
const MAX_BETWEEN: usize = 100;

/// The work of a child. State that the handler needs is in a static of the implementing module.
pub(super) trait InterruptedWork {
    fn prepare(&mut self) -> bool;
    /// Runs one operation and calls `midway` in its middle. Returns `true` if the result was right.
    fn operation(&mut self, midway: &mut dyn FnMut()) -> bool;
    /// Runs the handler's part inside an operation. Returns `true` if it found consistent data.
    fn in_handler() -> bool;
    /// Called after each operation. Returns `true` if the operation's effect outside the process is
    /// right, as far as that can be checked; the result is used for interrupted operations only.
    fn settle(&mut self, _interrupted: bool) -> bool {
        true
    }
    /// `true` if the handler's verdict counts, `false` if that of the interrupted operation counts.
    const HANDLER_JUDGES: bool;
    /// `true` if each operation raises the signal itself, at a moment of its choice, so that the
    /// parent sends no signal.
    const RAISES: bool = false;
    /// `true` if no handler runs, because the library's thread takes the signal and does the
    /// handler's part.
    const TAKEN: bool = false;
}

#[derive(Debug)]
#[repr(C)]
struct HandlerCounters {
    ready: AtomicU32,
    stop: AtomicU32,
    /// `true` during an operation: the child's own flag, which its handler reads.
    at_work: AtomicBool,
    /// Number of handlers that began, then number of handlers that interrupted an operation.
    begun: AtomicU32,
    inside: AtomicU32,
    /// Number of handlers after which the child has reached its next operation, with all work in
    /// between complete.
    settled: AtomicU32,
    /// Number of verdicts; a verdict is 1 for right, 2 for wrong.
    judged: AtomicU32,
    verdicts: [AtomicU32; MOST],
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for HandlerCounters {}

impl HandlerCounters {
    fn judge(&self, right: bool) {
        let at = self.judged.load(Ordering::Relaxed) as usize;
        if let Some(verdict) = self.verdicts.get(at) {
            verdict.store(if right { 1 } else { 2 }, Ordering::Relaxed);
            // SYNC reentrancy-judged: pairs with `corrupted`; the verdict is already stored.
            self.judged.store(at as u32 + 1, Ordering::Release);
        }
    }

    /// Runs the handler's part if it interrupts an operation.
    fn interrupt<V: InterruptedWork>(&self) {
        if !self.at_work.load(Ordering::Relaxed) {
            return;
        }
        self.inside.fetch_add(1, Ordering::Relaxed);
        let right = V::in_handler();
        if V::HANDLER_JUDGES {
            self.judge(right);
        }
    }

    fn corrupted(&self) -> impl Iterator<Item = bool> {
        // SYNC reentrancy-judged: pairs with `judge`.
        let judged = (self.judged.load(Ordering::Acquire) as usize).min(MOST);
        self.verdicts[..judged].iter().map(|verdict| verdict.load(Ordering::Relaxed) != 1)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InterruptCounts {
    /// For each verdict, `true` if it was "wrong".
    pub(super) corrupted: Vec<bool>,
    /// For each signal that interrupted an operation, `true` if its handler, or the operation after
    /// it, slept indefinitely.
    pub(super) deadlocked: Vec<bool>,
    pub(super) stray: usize,
    /// Children ended by a signal other than ours.
    pub(super) crashed: usize,
}

/// Interrupts children that work on `victim` until `wanted` signals have interrupted an operation
/// and their results are known. If a child deadlocks, it is killed and a new child replaces it.
pub(super) fn interrupt<V: InterruptedWork + Clone>(
    victim: &V,
    placement: Placement,
    wanted: usize,
) -> Result<InterruptCounts> {
    let mut outcome = InterruptCounts::default();
    while outcome.deadlocked.len() < wanted {
        let counters = SharedMapping::<HandlerCounters>::anonymous()?;
        let child = ReportingChild::fork(|| work(victim.clone(), placement.there, &counters))?;
        let pinned = Pinned::to(placement.here)?;
        let mut parent = Parent { child, counters: &counters, placement };
        parent.bombard(!V::RAISES, wanted.min(MOST), &mut outcome)?;
        drop(pinned);
        outcome.corrupted.extend(counters.corrupted());
    }
    Ok(outcome)
}

enum SignalResult {
    Handled,
    Stray,
    Deadlocked,
    Crashed,
}

struct Parent<'a> {
    child: ReportingChild,
    counters: &'a HandlerCounters,
    placement: Placement,
}

impl Parent<'_> {
    /// Follows signals, sent by the parent or raised by the child, to their result, until there are
    /// enough signals or the child is lost.
    fn bombard(&mut self, sends: bool, wanted: usize, outcome: &mut InterruptCounts) -> Result<()> {
        let counters = self.counters;
        self.child.until(Pass::Yield, "the child to begin its work", || {
            // SYNC reentrancy-ready: pairs with `work`; the handler is already installed.
            counters.ready.load(Ordering::Acquire) != 0
        })?;
        let pid = self.child.child.raw_pid();
        let state = ProcStatFile::of(pid, pid)?;
        let (mut seen, mut inside) = (0, 0);
        while outcome.deadlocked.len() < wanted {
            if outcome.stray > MAX_BETWEEN * wanted {
                bail!(
                    "expected signals to interrupt operations; {} arrived between them, {} \
                     interrupted one",
                    outcome.stray,
                    outcome.deadlocked.len()
                );
            }
            if sends {
                pause();
                self.child.child.signal(Signal::USR1).during("kill")?;
            }
            seen += 1;
            match self.end_of(seen, &mut inside, &state)? {
                SignalResult::Handled => outcome.deadlocked.push(false),
                SignalResult::Stray => outcome.stray += 1,
                SignalResult::Deadlocked => {
                    outcome.deadlocked.push(true);
                    return self.child.child.kill().map(drop);
                }
                SignalResult::Crashed => {
                    outcome.deadlocked.push(false);
                    outcome.corrupted.push(true);
                    outcome.crashed += 1;
                    return self.child.child.wait().map(drop);
                }
            }
        }
        counters.stop.store(1, Ordering::Relaxed);
        self.child.until(Pass::Yield, "the child to end its work", || {
            counters.ready.load(Ordering::Relaxed) == 2
        })
    }

    /// Waits until the child is at work again after handler number `number`. `inside` counts the
    /// handlers that interrupted an operation.
    fn end_of(&self, number: u32, inside: &mut u32, state: &ProcStatFile) -> Result<SignalResult> {
        let since = Instant::now();
        let mut asleep_since: Option<Instant> = None;
        loop {
            for _ in 0..256 {
                // SYNC reentrancy-settled: pairs with `work`; the handler's counters are stored
                // before `settled`.
                if self.counters.settled.load(Ordering::Acquire) >= number {
                    let met = self.counters.inside.load(Ordering::Relaxed) > *inside;
                    *inside += u32::from(met);
                    return Ok(if met { SignalResult::Handled } else { SignalResult::Stray });
                }
                std::hint::spin_loop();
            }
            if self.placement.here == self.placement.there {
                std::thread::yield_now();
            }
            if since.elapsed() < BETWEEN_LOOKS {
                continue;
            }
            let begun = self.counters.begun.load(Ordering::Relaxed) >= number;
            if begun && state.asleep() {
                let asleep_for = asleep_since.get_or_insert_with(Instant::now).elapsed();
                if asleep_for > DEADLINE {
                    return Ok(SignalResult::Deadlocked);
                }
            } else {
                asleep_since = None;
            }
            if self.child.peer().check().is_err() {
                return Ok(SignalResult::Crashed);
            }
            if since.elapsed() > TIMEOUT {
                bail!(
                    "expected an interrupted child to continue or to sleep within {TIMEOUT:?}, \
                     found neither: is the machine overloaded?"
                );
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

fn pause() {
    let pause = Duration::from_nanos(rand::random::<u64>() % PAUSE_NS);
    let since = Instant::now();
    while since.elapsed() < pause {
        std::hint::spin_loop();
    }
}

static COUNTERS: AtomicPtr<HandlerCounters> = AtomicPtr::new(std::ptr::null_mut());

fn counters() -> &'static HandlerCounters {
    // SAFETY: `work` stored the address before any signal is taken; the mapping lives as long as
    // this process.
    unsafe { &*COUNTERS.load(Ordering::Relaxed) }
}

extern "C" fn on_signal<V: InterruptedWork>(_: libc::c_int) {
    let counters = counters();
    counters.begun.fetch_add(1, Ordering::Relaxed);
    counters.interrupt::<V>();
}

/// Has the library's thread take the signal and do the handler's part, for the lifetime of the
/// process. The thread increments `begun` last: if it never does, the row fails, because the
/// sleeping thread is not the child's main thread.
fn take<V: InterruptedWork>() -> Result<()> {
    library_takes(libc::SIGUSR1, || {
        counters().interrupt::<V>();
        // SYNC reentrancy-begun: pairs with the load in `work`; the counters are already stored.
        counters().begun.fetch_add(1, Ordering::Release);
    })
}

/// Runs the child: works until the parent stops it, a signal kills it, or it hangs.
fn work<V: InterruptedWork>(
    mut victim: V,
    processor: usize,
    counters: &HandlerCounters,
) -> Result<()> {
    let only = Only::signal();
    // The signal is blocked before `prepare`, which may start a thread: that thread keeps it
    // blocked.
    only.block();
    COUNTERS.store(std::ptr::from_ref(counters).cast_mut(), Ordering::Relaxed);
    pin::pin_to(processor)?;
    ensure!(victim.prepare(), "the work could not be prepared");
    if V::TAKEN {
        take::<V>()?;
    } else {
        handle(on_signal::<V>).during("sigaction")?;
        only.unblock();
    }
    // SYNC reentrancy-ready: pairs with `Parent::bombard`.
    counters.ready.store(1, Ordering::Release);
    while counters.stop.load(Ordering::Relaxed) == 0 {
        // A handler that begins between this load and the operation is reported next time.
        // SYNC reentrancy-begun: pairs with the addition by the library's thread in `take`.
        let begun = counters.begun.load(Ordering::Acquire);
        // SYNC reentrancy-settled: pairs with the load in `Parent::end_of`.
        counters.settled.store(begun, Ordering::Release);
        let before = counters.inside.load(Ordering::Relaxed);
        counters.at_work.store(true, Ordering::Relaxed);
        // The handler runs in this thread, so only the compiler must keep the order.
        compiler_fence(Ordering::SeqCst);
        let right = victim.operation(&mut || ());
        compiler_fence(Ordering::SeqCst);
        counters.at_work.store(false, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let interrupted = counters.inside.load(Ordering::Relaxed) != before;
        let whole = victim.settle(interrupted);
        if interrupted && !V::HANDLER_JUDGES {
            counters.judge(right && whole);
        }
    }
    counters.ready.store(2, Ordering::Relaxed);
    Ok(())
}

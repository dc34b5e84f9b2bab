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

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tontine_bench::machine::topology::Placement;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin::{self, Pinned};
use tontine_host::os::shared::{Shareable, SharedMapping};
use tontine_host::os::signal::{Only, handle};
use tontine_host::os::state::ProcStatFile;

use crate::signal_delivery::patience::{Pass, has_ended, wait_until};

/// Maximum number of verdicts of one child.
pub(super) const MOST: usize = 4_096;
/// Time for which an interrupted child must be found asleep at every check before it counts as
/// deadlocked.
const DEADLINE: Duration = Duration::from_millis(1);
/// Time between two such checks.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
/// Timeout for a child that neither continues nor sleeps.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum pause before a signal, measured from the moment when the child is at work. The pause is
/// uniformly distributed, so that signals hit every phase of an operation.
const PAUSE_NS: u64 = 4_000;
/// Maximum number of signals between operations per wanted signal. If there are more, the row
/// fails.
const MAX_BETWEEN: usize = 100;
/// Status of a child that could not set itself up.
const NO_SET_UP: i32 = 5;

/// The work of a child. State that the handler needs is in a static of the implementing module.
pub(super) trait InterruptedWork {
    /// Prepares the work, before the handler is installed.
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

/// Memory shared by parent and child.
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
    told: AtomicU32,
    verdicts: [AtomicU32; MOST],
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for HandlerCounters {}

impl HandlerCounters {
    fn tell(&self, right: bool) {
        let at = self.told.load(Ordering::Relaxed) as usize;
        if let Some(verdict) = self.verdicts.get(at) {
            verdict.store(if right { 1 } else { 2 }, Ordering::Relaxed);
            // SYNC reentrancy-told: pairs with `HandlerCounters::told`; the verdict is stored
            // before this store.
            self.told.store(at as u32 + 1, Ordering::Release);
        }
    }

    fn told(&self) -> usize {
        // SYNC reentrancy-told: pairs with `HandlerCounters::tell`.
        (self.told.load(Ordering::Acquire) as usize).min(MOST)
    }

    fn corrupted(&self) -> impl Iterator<Item = bool> {
        self.verdicts[..self.told()].iter().map(|verdict| verdict.load(Ordering::Relaxed) != 1)
    }
}

/// Results of all signals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InterruptCounts {
    /// For each verdict, `true` if it was "wrong".
    pub(super) corrupted: Vec<bool>,
    /// For each signal that interrupted an operation, `true` if its handler, or the operation after
    /// it, slept indefinitely.
    pub(super) deadlocked: Vec<bool>,
    /// Signals that arrived between operations.
    pub(super) stray: usize,
    /// Children ended by a signal other than ours.
    pub(super) crashed: usize,
}

/// Interrupts children that work on `victim` until `wanted` signals have interrupted an operation
/// and their results are known. If a child deadlocks, it is killed and a new child replaces it.
///
/// # Errors
/// Returns `Skipped` if the system refuses a requirement, and `Failed` if a child neither continues
/// nor sleeps for five seconds, or if hardly any signal interrupts an operation.
pub(super) fn interrupt<V: InterruptedWork + Clone>(
    victim: &V,
    placement: Placement,
    wanted: usize,
) -> Result<InterruptCounts> {
    let mut outcome = InterruptCounts::default();
    let mut rng = PauseRng(u64::from(std::process::id()) | 1 << 40);
    while outcome.deadlocked.len() < wanted {
        let desk = SharedMapping::<HandlerCounters>::anonymous()?;
        let mut child = Child::fork(|| work(victim.clone(), placement.there, &desk))?;
        let pinned = Pinned::to(placement.here)?;
        let mut parent = Parent { child: &mut child, desk: &desk, placement, rng: &mut rng };
        parent.bombard(!V::RAISES, wanted.min(MOST), &mut outcome)?;
        drop(pinned);
        outcome.corrupted.extend(desk.corrupted());
    }
    Ok(outcome)
}

/// Result of one signal.
enum SignalResult {
    /// The signal interrupted an operation, which then ended.
    Handled,
    /// The signal arrived between operations.
    Stray,
    Deadlocked,
    Crashed,
}

/// The parent's side of one child.
struct Parent<'a> {
    child: &'a mut Child,
    desk: &'a HandlerCounters,
    placement: Placement,
    rng: &'a mut PauseRng,
}

impl Parent<'_> {
    /// Follows signals, sent by the parent or raised by the child, to their result, until there are
    /// enough signals or the child is lost.
    fn bombard(&mut self, sends: bool, wanted: usize, outcome: &mut InterruptCounts) -> Result<()> {
        let desk = self.desk;
        wait_until(self.child, Pass::Yield, "the child to begin its work", || {
            // SYNC reentrancy-ready: pairs with `work`; the handler is already installed.
            desk.ready.load(Ordering::Acquire) != 0
        })?;
        let pid = self.child.pid().as_raw_nonzero().get().cast_unsigned();
        let state = ProcStatFile::of(pid, pid)?;
        let (mut seen, mut inside) = (0, 0);
        while outcome.deadlocked.len() < wanted {
            if outcome.stray > MAX_BETWEEN * wanted {
                return Err(MeasureError::fail(format!(
                    "expected signals to interrupt operations; {} arrived between them, {} \
                     interrupted one",
                    outcome.stray,
                    outcome.deadlocked.len()
                )));
            }
            if sends {
                self.rng.pause();
                self.child.signal(Signal::USR1).during("kill")?;
            }
            seen += 1;
            match self.end_of(seen, &mut inside, &state)? {
                SignalResult::Handled => outcome.deadlocked.push(false),
                SignalResult::Stray => outcome.stray += 1,
                SignalResult::Deadlocked => {
                    outcome.deadlocked.push(true);
                    return self.child.kill().map(drop);
                }
                SignalResult::Crashed => {
                    outcome.deadlocked.push(false);
                    outcome.corrupted.push(true);
                    outcome.crashed += 1;
                    return self.child.wait().map(drop);
                }
            }
        }
        desk.stop.store(1, Ordering::Relaxed);
        wait_until(self.child, Pass::Yield, "the child to end its work", || {
            desk.ready.load(Ordering::Relaxed) == 2
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
                if self.desk.settled.load(Ordering::Acquire) >= number {
                    let met = self.desk.inside.load(Ordering::Relaxed) > *inside;
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
            let begun = self.desk.begun.load(Ordering::Relaxed) >= number;
            if begun && state.asleep() {
                let asleep_for = asleep_since.get_or_insert_with(Instant::now).elapsed();
                if asleep_for > DEADLINE {
                    return Ok(SignalResult::Deadlocked);
                }
            } else {
                asleep_since = None;
            }
            if has_ended(self.child) {
                return Ok(SignalResult::Crashed);
            }
            if since.elapsed() > PATIENCE {
                return Err(MeasureError::fail(format!(
                    "expected an interrupted child to continue or to sleep within {PATIENCE:?}, \
                     found neither: is the machine overloaded?"
                )));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// A generator of pauses of random length (xorshift).
struct PauseRng(u64);

impl PauseRng {
    fn pause(&mut self) {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let pause = Duration::from_nanos(self.0 % PAUSE_NS);
        let since = Instant::now();
        while since.elapsed() < pause {
            std::hint::spin_loop();
        }
    }
}

/// The counters for the handler.
static DESK: AtomicPtr<HandlerCounters> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn on_signal<V: InterruptedWork>(_: libc::c_int) {
    // SAFETY: `work` stored the address before it installed this handler; the mapping lives as long
    // as this process.
    let desk = unsafe { &*DESK.load(Ordering::Relaxed) };
    desk.begun.fetch_add(1, Ordering::Relaxed);
    // Relaxed is enough, because this thread wrote the flag.
    if !desk.at_work.load(Ordering::Relaxed) {
        return;
    }
    desk.inside.fetch_add(1, Ordering::Relaxed);
    let right = V::in_handler();
    if V::HANDLER_JUDGES {
        desk.tell(right);
    }
}

/// Does the handler's part in the library's thread. Increments `begun` at its end: if the thread
/// never reaches that point, the row fails, because the sleeping thread is not the child's main
/// thread.
fn on_value<V: InterruptedWork>(desk: &HandlerCounters) {
    if desk.at_work.load(Ordering::Relaxed) {
        desk.inside.fetch_add(1, Ordering::Relaxed);
        let right = V::in_handler();
        if V::HANDLER_JUDGES {
            desk.tell(right);
        }
    }
    // SYNC reentrancy-begun: pairs with the load in `work`; everything above happens before this
    // store.
    desk.begun.fetch_add(1, Ordering::Release);
}

/// Has the library take the signal, for the lifetime of the process.
fn take<V: InterruptedWork>() -> Result<(), tontine::signal::SignalError> {
    let blocked = tontine::signal::Blocked::new(tontine::signal::Signal::USR1)?;
    let blocked = Box::leak(Box::new(blocked));
    // SAFETY: `work` stored the address before; the mapping lives as long as this process.
    let deliver = |_| on_value::<V>(unsafe { &*DESK.load(Ordering::Relaxed) });
    std::mem::forget(blocked.thread(deliver)?);
    Ok(())
}

/// Runs the child: works until the parent stops it, a signal kills it, or it hangs.
fn work<V: InterruptedWork>(mut victim: V, processor: usize, desk: &HandlerCounters) -> i32 {
    let only = Only::signal();
    // The signal is blocked before `prepare`, which may start a thread: that thread keeps it
    // blocked.
    only.block();
    DESK.store(std::ptr::from_ref(desk).cast_mut(), Ordering::Relaxed);
    if pin::pin_to(processor).is_err() || !victim.prepare() {
        return NO_SET_UP;
    }
    let ready = if V::TAKEN { take::<V>().is_ok() } else { handle(on_signal::<V>).is_ok() };
    if !ready {
        return NO_SET_UP;
    }
    if !V::TAKEN {
        only.unblock();
    }
    // SYNC reentrancy-ready: pairs with `Parent::bombard`.
    desk.ready.store(1, Ordering::Release);
    while desk.stop.load(Ordering::Relaxed) == 0 {
        // SYNC reentrancy-settled: pairs with `Parent::end_of`. A handler that begins between this
        // load and the operation is reported next time.
        // SYNC reentrancy-begun: pairs with the library's thread.
        desk.settled.store(desk.begun.load(Ordering::Acquire), Ordering::Release);
        let before = desk.inside.load(Ordering::Relaxed);
        desk.at_work.store(true, Ordering::Relaxed);
        // The handler runs in this thread, so only the compiler must keep the order.
        compiler_fence(Ordering::SeqCst);
        let right = victim.operation(&mut || ());
        compiler_fence(Ordering::SeqCst);
        desk.at_work.store(false, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let interrupted = desk.inside.load(Ordering::Relaxed) != before;
        let whole = victim.settle(interrupted);
        if interrupted && !V::HANDLER_JUDGES {
            desk.tell(right && whole);
        }
    }
    desk.ready.store(2, Ordering::Relaxed);
    0
}

//! A child that works while signals interrupt it at random moments: [`interrupt`].
//!
//! The child repeats one operation of a [`Victim`]; its handler, where it interrupts one, does the
//! same thing once more. What the child does between two operations, such as looking for a line in
//! a file, takes longer than an operation: the next signal is not sent before that is over, and a
//! signal that comes between operations all the same finds a handler that does nothing, and is not
//! counted. The child is expendable: it may break, or stop for ever. The parent reads counters
//! alone, waits no longer than a deadline for the interrupted operation to be over, and kills a
//! child that sleeps past it.

#![allow(unsafe_code, reason = "a signal handler finds what the child works on")]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, compiler_fence};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tontine_bench::machine::topology::Placement;
use tontine_host::os::child::Child;
use tontine_host::os::pin::{self, Pinned};
use tontine_host::os::shared::{Shareable, Shared};
use tontine_host::os::signal::{Only, handle};
use tontine_host::os::state::State;
use tontine_host::trouble::{During, Result, Trouble};

use crate::signal_delivery::patience::{Pass, has_ended, wait_until};

/// Most verdicts that one child leaves.
pub(super) const MOST: usize = 4_096;
/// How long a child that was interrupted must be seen asleep, at every look, to count as
/// deadlocked.
const DEADLINE: Duration = Duration::from_millis(1);
/// Time between two such looks.
const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
/// Longest wait for a child that neither goes on nor sleeps.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest pause before a signal, from when the child is at work; shorter ones are as likely, so
/// that no phase of an operation is spared.
const PAUSE_NS: u64 = 4_000;
/// Signals that come between operations, for each that is wanted, before something is wrong.
const MOST_BESIDE: usize = 100;
/// Status of a child that could not set itself up.
const NO_SET_UP: i32 = 5;

/// What a child works on. Whatever its handler needs is a static of its module.
pub(super) trait Victim {
    /// Makes everything ready, before the handler is installed.
    fn prepare(&mut self) -> bool;
    /// One operation; `midway` is called in its middle. Whether it came out right.
    fn operation(&mut self, midway: &mut dyn FnMut()) -> bool;
    /// What the handler does inside of an operation. Whether what it found was right.
    fn in_handler() -> bool;
    /// After each operation. Whether what it left outside the process is right, where that can be
    /// told; asked of interrupted ones.
    fn settle(&mut self, _interrupted: bool) -> bool {
        true
    }
    /// Whose verdict counts: the handler's, or the interrupted operation's.
    const HANDLER_JUDGES: bool;
    /// Whether each operation raises the signal itself, at the moment that it chooses, so that the
    /// parent sends none.
    const RAISES: bool = false;
    /// Whether no handler runs: the library's thread takes the signal and does what one would.
    const TAKEN: bool = false;
}

/// What parent and child share.
#[derive(Debug)]
#[repr(C)]
struct Desk {
    ready: AtomicU32,
    stop: AtomicU32,
    /// Whether an operation is being done: the child's own flag, which its handler reads.
    at_work: AtomicBool,
    /// Handlers that began, and those among them that interrupted an operation.
    begun: AtomicU32,
    inside: AtomicU32,
    /// Handlers after which the child has come to its next operation: all between is over.
    settled: AtomicU32,
    /// Verdicts told: 1 right, 2 wrong.
    told: AtomicU32,
    verdicts: [AtomicU32; MOST],
}

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for Desk {}

impl Desk {
    fn tell(&self, right: bool) {
        let at = self.told.load(Ordering::Relaxed) as usize;
        if let Some(verdict) = self.verdicts.get(at) {
            verdict.store(if right { 1 } else { 2 }, Ordering::Relaxed);
            // SYNC reentrancy-told: pairs with `Desk::told`; the verdict comes before.
            self.told.store(at as u32 + 1, Ordering::Release);
        }
    }

    fn told(&self) -> usize {
        // SYNC reentrancy-told: pairs with `Desk::tell`.
        (self.told.load(Ordering::Acquire) as usize).min(MOST)
    }

    fn corrupted(&self) -> impl Iterator<Item = bool> {
        self.verdicts[..self.told()].iter().map(|verdict| verdict.load(Ordering::Relaxed) != 1)
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Of each verdict, whether it was "wrong".
    pub(super) corrupted: Vec<bool>,
    /// Of each signal that interrupted an operation, whether its handler slept for ever, or the
    /// operation after it.
    pub(super) deadlocked: Vec<bool>,
    /// Signals that came between operations.
    pub(super) beside: usize,
    /// Children that a signal other than ours ended.
    pub(super) crashed: usize,
}

/// Interrupts children that work on `victim` until `wanted` signals have interrupted an operation
/// and their ends are known. A child that deadlocks is killed, and the next one takes its place.
///
/// # Errors
/// Skipped, where the system refuses a part of it; failed, where a child neither goes on nor sleeps
/// for five seconds, or where hardly a signal meets an operation.
pub(super) fn interrupt<V: Victim + Clone>(
    victim: &V,
    placement: Placement,
    wanted: usize,
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut dice = Dice(u64::from(std::process::id()) | 1 << 40);
    while outcome.deadlocked.len() < wanted {
        let desk = Shared::<Desk>::anonymous()?;
        let mut child = Child::fork(|| work(victim.clone(), placement.there, &desk))?;
        let pinned = Pinned::to(placement.here)?;
        let mut parent = Parent { child: &mut child, desk: &desk, placement, dice: &mut dice };
        parent.bombard(!V::RAISES, wanted.min(MOST), &mut outcome)?;
        drop(pinned);
        outcome.corrupted.extend(desk.corrupted());
    }
    Ok(outcome)
}

/// How a signal ended.
enum End {
    /// It interrupted an operation, which was over in the end.
    Handled,
    /// It came between operations.
    Beside,
    Deadlocked,
    Crashed,
}

/// The parent's side of one child.
struct Parent<'a> {
    child: &'a mut Child,
    desk: &'a Desk,
    placement: Placement,
    dice: &'a mut Dice,
}

impl Parent<'_> {
    /// Sees signals, which it sends or leaves to the child, to their end, until there are enough or
    /// the child is lost.
    fn bombard(&mut self, sends: bool, wanted: usize, outcome: &mut Outcome) -> Result<()> {
        let desk = self.desk;
        wait_until(self.child, Pass::Yield, "the child to begin its work", || {
            // SYNC reentrancy-ready: pairs with `work`; the handler is installed by now.
            desk.ready.load(Ordering::Acquire) != 0
        })?;
        let pid = self.child.pid().as_raw_nonzero().get().cast_unsigned();
        let state = State::of(pid, pid)?;
        let (mut seen, mut inside) = (0, 0);
        while outcome.deadlocked.len() < wanted {
            if outcome.beside > MOST_BESIDE * wanted {
                return Err(Trouble::fail(format!(
                    "expected signals to interrupt operations; {} came between them, {} met one",
                    outcome.beside,
                    outcome.deadlocked.len()
                )));
            }
            if sends {
                self.dice.pause();
                self.child.signal(Signal::USR1).during("kill")?;
            }
            seen += 1;
            match self.end_of(seen, &mut inside, &state)? {
                End::Handled => outcome.deadlocked.push(false),
                End::Beside => outcome.beside += 1,
                End::Deadlocked => {
                    outcome.deadlocked.push(true);
                    return self.child.kill().map(drop);
                }
                End::Crashed => {
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

    /// Waits until the child is at work again after handler number `number`; `inside` counts the
    /// handlers that interrupted an operation.
    fn end_of(&self, number: u32, inside: &mut u32, state: &State) -> Result<End> {
        let since = Instant::now();
        let mut asleep_since: Option<Instant> = None;
        loop {
            for _ in 0..256 {
                // SYNC reentrancy-settled: pairs with `work`; where the handler was is told before.
                if self.desk.settled.load(Ordering::Acquire) >= number {
                    let met = self.desk.inside.load(Ordering::Relaxed) > *inside;
                    *inside += u32::from(met);
                    return Ok(if met { End::Handled } else { End::Beside });
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
                    return Ok(End::Deadlocked);
                }
            } else {
                asleep_since = None;
            }
            if has_ended(self.child) {
                return Ok(End::Crashed);
            }
            if since.elapsed() > PATIENCE {
                return Err(Trouble::fail(format!(
                    "expected an interrupted child to go on or to sleep within {PATIENCE:?}; it \
                     did neither: is the machine overloaded?"
                )));
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// Pauses of random length (xorshift).
struct Dice(u64);

impl Dice {
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

/// Where the handler counts.
static DESK: AtomicPtr<Desk> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn on_signal<V: Victim>(_: libc::c_int) {
    // SAFETY: `work` stored the address before it installed this handler; the mapping lives as long
    // as this process.
    let desk = unsafe { &*DESK.load(Ordering::Relaxed) };
    desk.begun.fetch_add(1, Ordering::Relaxed);
    // Relaxed is enough: it is this thread that wrote the flag.
    if !desk.at_work.load(Ordering::Relaxed) {
        return;
    }
    desk.inside.fetch_add(1, Ordering::Relaxed);
    let right = V::in_handler();
    if V::HANDLER_JUDGES {
        desk.tell(right);
    }
}

/// The same in the library's thread. That has begun when it is over: one that never is fails the
/// row, for it is not the child's main thread that sleeps then.
fn on_value<V: Victim>(desk: &Desk) {
    if desk.at_work.load(Ordering::Relaxed) {
        desk.inside.fetch_add(1, Ordering::Relaxed);
        let right = V::in_handler();
        if V::HANDLER_JUDGES {
            desk.tell(right);
        }
    }
    // SYNC reentrancy-begun: pairs with the load in `work`; all of it comes before.
    desk.begun.fetch_add(1, Ordering::Release);
}

/// Lets the library take the signal, for as long as the process lives.
fn take<V: Victim>() -> Result<(), tontine::signal::SignalError> {
    let blocked = tontine::signal::Blocked::new(tontine::signal::Signal::USR1)?;
    let blocked = Box::leak(Box::new(blocked));
    // SAFETY: `work` stored the address before; the mapping lives as long as this process.
    let deliver = |_| on_value::<V>(unsafe { &*DESK.load(Ordering::Relaxed) });
    std::mem::forget(blocked.thread(deliver)?);
    Ok(())
}

/// The child's part: works until it is told to stop, killed, or stuck.
fn work<V: Victim>(mut victim: V, processor: usize, desk: &Desk) -> i32 {
    let only = Only::signal();
    // Before `prepare`, which may start a thread: that one keeps the signal blocked.
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
        // load and the operation is told next time.
        // SYNC reentrancy-begun: pairs with the library's thread.
        desk.settled.store(desk.begun.load(Ordering::Acquire), Ordering::Release);
        let before = desk.inside.load(Ordering::Relaxed);
        desk.at_work.store(true, Ordering::Relaxed);
        // The handler runs in this thread: only the compiler must keep the order.
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

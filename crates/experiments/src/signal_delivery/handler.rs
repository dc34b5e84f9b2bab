//! Signals that the receiver handles, timed from just before `kill` to the handler's first
//! instruction.
//!
//! One child serves all deliveries. Each delivery starts only when the child is known to wait
//! again. A spinning child shows this by a counter that advances. A sleeping child is checked in
//! `/proc`; it has therefore slept for the duration of that check, a few microseconds, when the
//! signal arrives.

#![allow(unsafe_code, reason = "installs a signal handler")]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::process::Signal;
use tontine_bench::machine::topology::Placement;
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin;
use tontine_host::os::shared::SharedMapping;
use tontine_host::os::state::ProcStatFile;

use super::death::default_and_unblocked;
use super::patience::{Pass, wait_until};
use super::sender::{PreparedCall, SendCall};
use super::tally::{DeliveryStamps, DeliveryTally};

/// State of the receiver when the signal arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiverActivity {
    /// The receiver counts.
    Spinning,
    /// The receiver sleeps in `sigsuspend`; the signal is blocked at all other times.
    Sleeping,
}

/// Memory shared by the two processes: two words, two cache lines (and their prefetched neighbours)
/// apart.
type HandlerWords = [AtomicU64; 32];
/// Stamp of the handler's entry; the parent resets it to 0.
const ENTERED: usize = 0;
/// A counter that the receiver increments whenever it is about to wait, or while it spins.
const BEAT: usize = 16;

/// Status of a receiver that could not pin itself.
const NOT_PINNED: i32 = 3;
/// Status of a receiver whose handler was refused.
const NO_HANDLER: i32 = 5;

/// Makes `deliveries` deliveries to one receiver that waits in the given way.
///
/// # Errors
/// Returns `Skipped` if `kill` is refused. Returns `Failed` if the receiver ends, or its handler
/// does not run within five seconds.
pub(super) fn serve(
    waiting: ReceiverActivity,
    signal: Signal,
    placement: Placement,
    clock: Clock,
    deliveries: usize,
    tally: &mut DeliveryTally,
) -> Result<()> {
    SendCall::Kill.probe()?;
    let words = SharedMapping::<HandlerWords>::anonymous()?;
    let site = HandlerArgs { clock, entered: &raw const words[ENTERED] };
    let mut child = Child::fork(|| receive(waiting, signal, placement.there, &site, &words[BEAT]))?;
    let sender = PreparedCall::to(&child, SendCall::Kill)?;
    let pid = child.pid().as_raw_nonzero().get().cast_unsigned();
    let state = ProcStatFile::of(pid, pid)?;
    let pass = if placement.here == placement.there { Pass::Yield } else { Pass::Spin };

    for delivery in 0..deliveries as u64 {
        let mut beats = Beats::from(&words[BEAT]);
        wait_until(&mut child, pass, "the receiver to wait for a signal", || match waiting {
            ReceiverActivity::Spinning => beats.moved(),
            ReceiverActivity::Sleeping => beats.now() > delivery && state.asleep(),
        })?;
        words[ENTERED].store(0, Ordering::Relaxed);
        let before = clock.start();
        let sent = sender.send(signal);
        let returned = clock.stop();
        sent.during(sender.name())?;
        let mut last = 0;
        wait_until(&mut child, pass, "the receiver's handler to run", || {
            last = words[ENTERED].load(Ordering::Relaxed);
            last != 0
        })?;
        tally.add(DeliveryStamps { before, returned, last });
    }
    child.kill().map(drop)
}

/// Detects whether the receiver spins: its counter must have advanced twice since the first poll.
/// One advance is not enough, because a store from before the handler may become visible late.
struct Beats<'a> {
    word: &'a AtomicU64,
    seen: u64,
    moves: u32,
}

impl<'a> Beats<'a> {
    fn from(word: &'a AtomicU64) -> Self {
        Self { word, seen: word.load(Ordering::Relaxed), moves: 0 }
    }

    fn now(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    fn moved(&mut self) -> bool {
        let now = self.now();
        self.moves += u32::from(now != self.seen);
        self.seen = now;
        self.moves >= 2
    }
}

/// Data for the handler.
struct HandlerArgs {
    clock: Clock,
    entered: *const AtomicU64,
}

/// The handler's [`HandlerArgs`], set before the handler is installed.
static SITE: AtomicPtr<HandlerArgs> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: `receive` stored the address before it installed this handler, in the same thread,
    // and never returns while the handler is installed; `entered` points into a mapping that lives
    // as long as this process.
    unsafe {
        let site = &*SITE.load(Ordering::Relaxed);
        (*site.entered).store(site.clock.start(), Ordering::Relaxed);
    }
}

/// Runs the child, which waits until it is killed. Allocates no memory.
fn receive(
    waiting: ReceiverActivity,
    signal: Signal,
    processor: usize,
    site: &HandlerArgs,
    beat: &AtomicU64,
) -> i32 {
    if pin::pin_to(processor).is_err() {
        return NOT_PINNED;
    }
    default_and_unblocked(signal);
    SITE.store(std::ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
    // SAFETY: both structures are zeroed, which is valid (plain integers and a null restorer), and
    // then filled in. `on_signal` is async-signal-safe: it reads a counter and stores to memory.
    let outside = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as libc::sighandler_t;
        libc::sigemptyset(&mut action.sa_mask);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal.as_raw());
        let mut outside: libc::sigset_t = std::mem::zeroed();
        if waiting == ReceiverActivity::Sleeping {
            libc::sigprocmask(libc::SIG_BLOCK, &set, &mut outside);
        }
        if libc::sigaction(signal.as_raw(), &action, std::ptr::null_mut()) != 0 {
            return NO_HANDLER;
        }
        outside
    };
    // The loop ends with the parent's SIGKILL, or with the kernel's when the parent dies.
    for beats in 1.. {
        beat.store(beats, Ordering::Relaxed);
        if waiting == ReceiverActivity::Sleeping {
            // SAFETY: sigprocmask filled `outside` with the previous mask, which does not contain
            // the signal.
            unsafe { libc::sigsuspend(&outside) };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::error::MeasureError;

    #[test]
    fn unhandleable_signal_is_reported() {
        let only = pin::allowed().expect("affinity")[0];
        let placement = Placement { name: "same-core", here: only, there: only };
        let mut tally = DeliveryTally::with_capacity(1);
        let clock = Clock::monotonic();
        let trouble =
            serve(ReceiverActivity::Sleeping, Signal::KILL, placement, clock, 1, &mut tally)
                .expect_err("no handler for SIGKILL");
        assert!(matches!(trouble, MeasureError::Failed(_)));
        assert!(trouble.why().contains("exited with status 5"), "{trouble}");
    }
}

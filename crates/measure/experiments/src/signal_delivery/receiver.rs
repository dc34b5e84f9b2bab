//! Receivers that outlive their signals: [`SignalChild`], a child that handles a signal or whose
//! second thread takes it as a value, by one of five [`TakeMethod`]s.
//!
//! The child stamps as the first thing in the handler, or when the thread has the value. The next
//! signal is sent only when the child is known to wait again. A spinning child shows this by a
//! counter that advances. A sleeping thread is checked in `/proc`; it has therefore slept for the
//! duration of that check, a few microseconds, when the signal arrives.

#![allow(unsafe_code, reason = "waits for signals, and reaches a word from a handler")]

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;

use tontine_bench::os::signal::handle_signal;
use tontine_bench::os::state::{self};

use super::death::default_and_unblocked;
use super::sender::{PreparedCall, SendCall};
use super::tally::DeliveryStamps;
use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeMethod {
    /// A handler; meanwhile the child counts.
    Spinning,
    /// A handler; meanwhile the child sleeps in `sigsuspend`. The signal is blocked at all other
    /// times.
    Sleeping,
    Library,
    Sigwait,
    /// signal-hook's iterator: a handler that writes to a socket, and a thread that reads it.
    Hook,
}

impl TakeMethod {
    /// The methods of the `value` variants, which are compared with the first of them.
    pub(super) const VALUES: [Self; 3] = [Self::Library, Self::Sigwait, Self::Hook];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Spinning => "handler-spinning",
            Self::Sleeping => "handler-sleeping",
            Self::Library => "value-tontine",
            Self::Sigwait => "value-sigwait",
            Self::Hook => "value-signal-hook",
        }
    }

    pub(super) fn of(variant: &str) -> Option<Self> {
        let all = [Self::Spinning, Self::Sleeping].into_iter().chain(Self::VALUES);
        all.into_iter().find(|way| way.name() == variant)
    }

    pub(super) fn is_value(self) -> bool {
        Self::VALUES.contains(&self)
    }
}

/// Memory shared by the two processes: two words, two cache lines (and their prefetched neighbours)
/// apart.
type Words = [AtomicU64; 32];
/// Stamp of the signal's arrival; the parent resets it to 0.
const ARRIVED: usize = 0;
/// A counter that the child increments whenever its main thread is about to wait, or while that
/// thread spins.
const BEAT: usize = 16;

/// Makes `deliveries` deliveries to one child per method, in turn, after `warm_up` deliveries that
/// are not counted. The order of the methods rotates, so that a disturbance affects all methods and
/// cancels out in their ratio.
pub(super) fn in_turn(
    ways: &[TakeMethod],
    signal: Signal,
    placement: Placement,
    clock: Clock,
    warm_up: usize,
    deliveries: usize,
) -> Result<Vec<Vec<DeliveryStamps>>> {
    SendCall::Kill.probe()?;
    let pass = Pass::between(placement.here, placement.there);
    let start = |&way| SignalChild::start(way, signal, placement.there, clock);
    let mut children = ways.iter().map(start).collect::<Result<Vec<SignalChild>>>()?;
    let mut all = vec![Vec::with_capacity(deliveries); ways.len()];
    for delivery in 0..warm_up + deliveries {
        for turn in 0..ways.len() {
            let at = (delivery + turn) % ways.len();
            let stamps = children[at].deliver(clock, pass)?;
            if delivery >= warm_up {
                all[at].push(stamps);
            }
        }
    }
    Ok(all)
}

struct SignalChild {
    way: TakeMethod,
    signal: Signal,
    words: SharedMapping<Words>,
    child: ReportingChild,
    sender: PreparedCall,
    thread: ProcStatFile,
    delivered: u64,
}

impl SignalChild {
    fn start(way: TakeMethod, signal: Signal, processor: usize, clock: Clock) -> Result<Self> {
        let words = SharedMapping::<Words>::anonymous()?;
        let site = StampSite { clock, arrived: &raw const words[ARRIVED] };
        let child = ReportingChild::fork(|| receive(way, signal, processor, &site, &words[BEAT]))?;
        let sender = PreparedCall::to(&child.child, SendCall::Kill)?;
        child.until(Pass::Yield, "the receiver to be ready", || {
            // SYNC delivery-ready: pairs with the child's store.
            words[BEAT].load(Ordering::Acquire) != 0
        })?;
        let pid = child.child.raw_pid();
        let thread = if way.is_value() { state::second_thread(pid)? } else { pid };
        let thread = ProcStatFile::of(pid, thread)?;
        Ok(Self { way, signal, words, child, sender, thread, delivered: 0 })
    }

    fn deliver(&mut self, clock: Clock, pass: Pass) -> Result<DeliveryStamps> {
        let beat = || self.words[BEAT].load(Ordering::Relaxed);
        let (mut seen, mut moves) = (beat(), 0);
        self.child.until(pass, "the receiver to wait for a signal", || match self.way {
            TakeMethod::Spinning => {
                // One advance is not enough, because a store from before the handler may become
                // visible late.
                let now = beat();
                moves += u32::from(now != seen);
                seen = now;
                moves >= 2
            }
            TakeMethod::Sleeping => beat() > self.delivered && self.thread.asleep(),
            _ => self.thread.asleep(),
        })?;
        self.words[ARRIVED].store(0, Ordering::Relaxed);
        let before = clock.start();
        let sent = self.sender.send(self.signal);
        let returned = clock.stop();
        sent.during("kill")?;
        let mut last = 0;
        self.child.until(pass, "the receiver to take the signal", || {
            last = self.words[ARRIVED].load(Ordering::Relaxed);
            last != 0
        })?;
        self.delivered += 1;
        Ok(DeliveryStamps { before, returned, last })
    }
}

/// Clock and word of the child's stamps.
struct StampSite {
    clock: Clock,
    arrived: *const AtomicU64,
}

static SITE: AtomicPtr<StampSite> = AtomicPtr::new(std::ptr::null_mut());

#[inline(always)]
fn stamp() {
    // SAFETY: `receive` stored the address before it set up the method, and never returns after
    // that; `arrived` points into a mapping that lives as long as this process.
    unsafe {
        let site = &*SITE.load(Ordering::Relaxed);
        (*site.arrived).store(site.clock.start(), Ordering::Relaxed);
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    stamp();
}

/// Runs the child, which is single-threaded at the start and waits until it is killed. With a
/// handler it allocates no memory.
fn receive(
    way: TakeMethod,
    signal: Signal,
    processor: usize,
    site: &StampSite,
    beat: &AtomicU64,
) -> Result<()> {
    pin::pin_to(processor)?;
    default_and_unblocked(signal);
    SITE.store(std::ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
    let only = Only::of(&[signal.as_raw()]);
    set_up(way, signal, only)?;
    let outside = only.unblocked_mask();
    for beats in 1.. {
        // SYNC delivery-ready: pairs with `SignalChild::start`; the method is set up.
        beat.store(beats, Ordering::Release);
        match way {
            TakeMethod::Spinning => {}
            // SAFETY: the mask is initialised and does not contain the signal.
            TakeMethod::Sleeping => _ = unsafe { libc::sigsuspend(&outside) },
            // SAFETY: the call takes no arguments.
            _ => _ = unsafe { libc::pause() },
        }
    }
    Ok(())
}

fn set_up(way: TakeMethod, signal: Signal, only: Only) -> Result<()> {
    let handled = || handle_signal(signal.as_raw(), on_signal).during("sigaction");
    match way {
        TakeMethod::Spinning => handled()?,
        TakeMethod::Sleeping => {
            only.block();
            handled()?;
        }
        TakeMethod::Library => library_takes(signal.as_raw(), stamp)?,
        TakeMethod::Sigwait => {
            only.block();
            let body = move || {
                let mut signal = 0;
                // SAFETY: the set is initialised; `signal` is a live local.
                while unsafe { libc::sigwait(only.set(), &mut signal) } == 0 {
                    stamp();
                }
            };
            thread::Builder::new().spawn(body).setting_up("clone")?;
        }
        TakeMethod::Hook => {
            let signals = signal_hook::iterator::Signals::new([signal.as_raw()]);
            let mut signals = signals.setting_up("signal-hook")?;
            let body = move || signals.forever().for_each(|_| stamp());
            thread::Builder::new().spawn(body).setting_up("clone")?;
            // The signal is blocked here, so that the handler runs in that thread and no other
            // thread is woken first.
            only.block();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unhandleable_signal_is_reported() {
        let only = pin::allowed().expect("affinity")[0];
        let placement = Placement { name: "same-core", here: only, there: only };
        let ways = [TakeMethod::Sleeping];
        let error = in_turn(&ways, Signal::KILL, placement, Clock::monotonic(), 0, 1)
            .expect_err("no handler for SIGKILL");
        assert!(matches!(error, MeasureError::Failed(_)));
        assert!(error.why().contains("sigaction"), "{error}");
    }
}

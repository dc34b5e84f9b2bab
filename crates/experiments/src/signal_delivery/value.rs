//! Signals that a thread takes as values, timed from just before `kill` until the thread has the
//! value.
//!
//! The receiver's main thread sleeps; a second thread takes SIGUSR1 by one of three
//! [`TakeMethod`]s, stamps, and waits for the next signal. The sender sends only while it observes
//! that thread asleep. [`compared`] runs one receiver per method and sends to them in turn,
//! starting with each equally often: a disturbance affects all methods and cancels out in their
//! ratio.

#![allow(unsafe_code, reason = "sigwait and pause")]

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use tontine_bench::machine::topology::Placement;
use tontine_bench::observe::{Observed, PairedRatio, Series};
use tontine_bench::stats::order;
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::pin;
use tontine_host::os::shared::SharedMapping;
use tontine_host::os::signal::Only;
use tontine_host::os::state::{self, ProcStatFile};

use super::death::default_and_unblocked;
use super::patience::{Pass, wait_until};
use super::sender::{PreparedCall, SendCall};

/// Method by which the thread takes signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeMethod {
    /// `tontine::signal`'s thread.
    Library,
    /// A plain loop over `sigwait`.
    Sigwait,
    /// signal-hook's iterator: a handler that writes to a socket, and a thread that reads it.
    Hook,
}

impl TakeMethod {
    const ALL: [Self; 3] = [Self::Library, Self::Sigwait, Self::Hook];

    /// Returns the variant's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Library => "value-tontine",
            Self::Sigwait => "value-sigwait",
            Self::Hook => "value-signal-hook",
        }
    }

    /// Returns the method of a variant.
    pub(super) fn of(variant: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == variant)
    }
}

/// Two words, two cache lines apart.
type ValueWords = [AtomicU64; 32];
/// Stamp of the value's arrival; the parent resets it to 0.
const TAKEN: usize = 0;
/// 1 once the receiver is set up.
const READY: usize = 16;

/// Number of warm-up deliveries.
const WARM_UP: usize = 10;
/// Status of a receiver that could not pin itself.
const NOT_PINNED: i32 = 3;
/// Status of a receiver that could not set itself up.
const NO_SET_UP: i32 = 5;

/// Ticks of one delivery: until the value arrives, and until `kill` returns.
#[derive(Debug, Clone, Copy)]
struct DeliveryTicks {
    receive: i64,
    send: i64,
}

/// Times `deliveries` deliveries to one receiver.
///
/// # Errors
/// Returns `Skipped` if `kill` is refused or there is no `/proc`, and `Failed` if the receiver
/// ends, or takes nothing within five seconds.
pub(super) fn serve(
    way: TakeMethod,
    placement: Placement,
    clock: Clock,
    deliveries: usize,
) -> Result<Observed> {
    let mut taken = in_turn(&[way], placement, clock, deliveries)?;
    Ok(observed(clock, &taken.pop().unwrap_or_default()))
}

/// Times `deliveries` deliveries to one receiver per method, in turn. Returns the library's times,
/// and their ratios to the other methods' times.
///
/// # Errors
/// Returns the errors of [`serve`].
pub(super) fn compared(placement: Placement, clock: Clock, deliveries: usize) -> Result<Observed> {
    let all = in_turn(&TakeMethod::ALL, placement, clock, deliveries)?;
    let median = |ticks: &[DeliveryTicks]| {
        let receive: Vec<f64> = ticks.iter().map(|one| one.receive as f64).collect();
        order::median(&receive).ok_or_else(|| MeasureError::fail("no delivery to take a ratio of"))
    };
    let mut seen = observed(clock, &all[0]);
    let own = median(&all[0])?;
    for (way, ticks) in TakeMethod::ALL.into_iter().zip(&all).skip(1) {
        let name = format!("{} / {}", TakeMethod::Library.name(), way.name());
        seen.ratios.push(PairedRatio { name, value: own / median(ticks)? });
    }
    Ok(seen)
}

fn observed(clock: Clock, ticks: &[DeliveryTicks]) -> Observed {
    let series = |metric: &str, of: fn(&DeliveryTicks) -> i64| {
        Series::ns(metric, ticks.iter().map(|one| clock.ns(of(one))).collect())
    };
    let series = vec![series("receive", |one| one.receive), series("send", |one| one.send)];
    Observed { series, ..Observed::default() }
}

/// Returns the deliveries of each method; the order of the methods rotates by one each time.
fn in_turn(
    ways: &[TakeMethod],
    placement: Placement,
    clock: Clock,
    deliveries: usize,
) -> Result<Vec<Vec<DeliveryTicks>>> {
    SendCall::Kill.probe()?;
    let pass = if placement.here == placement.there { Pass::Yield } else { Pass::Spin };
    let receivers = ways.iter().map(|&way| SignalChild::start(way, placement.there, clock));
    let mut receivers = receivers.collect::<Result<Vec<SignalChild>>>()?;
    let mut all = vec![Vec::with_capacity(deliveries); ways.len()];
    for delivery in 0..WARM_UP + deliveries {
        for turn in 0..ways.len() {
            let at = (delivery + turn) % ways.len();
            let ticks = receivers[at].deliver(clock, pass)?;
            if delivery >= WARM_UP {
                all[at].push(ticks);
            }
        }
    }
    Ok(all)
}

/// A child whose second thread takes signals.
struct SignalChild {
    words: SharedMapping<ValueWords>,
    child: Child,
    sender: PreparedCall,
    /// State of the thread that takes signals.
    thread: ProcStatFile,
}

impl SignalChild {
    fn start(way: TakeMethod, processor: usize, clock: Clock) -> Result<Self> {
        let words = SharedMapping::<ValueWords>::anonymous()?;
        let mut child = Child::fork(|| receive(way, processor, clock, &words))?;
        let sender = PreparedCall::to(&child, SendCall::Kill)?;
        wait_until(&mut child, Pass::Yield, "the receiver's second thread to start", || {
            // SYNC value-ready: pairs with the receiver's store.
            words[READY].load(Ordering::Acquire) != 0
        })?;
        let pid = child.pid().as_raw_nonzero().get().cast_unsigned();
        let thread = ProcStatFile::of(pid, state::second_thread(pid)?)?;
        Ok(Self { words, child, sender, thread })
    }

    fn deliver(&mut self, clock: Clock, pass: Pass) -> Result<DeliveryTicks> {
        let Self { words, child, sender, thread } = self;
        wait_until(child, pass, "the receiver to wait for a signal", || thread.asleep())?;
        words[TAKEN].store(0, Ordering::Relaxed);
        let before = clock.start();
        let sent = sender.send(Signal::USR1);
        let returned = clock.stop();
        sent.during(sender.name())?;
        let mut taken = 0;
        wait_until(child, pass, "the receiver to take the signal", || {
            taken = words[TAKEN].load(Ordering::Relaxed);
            taken != 0
        })?;
        let since = |stamp: u64| stamp.wrapping_sub(before).cast_signed();
        Ok(DeliveryTicks { receive: since(taken), send: since(returned) })
    }
}

/// Runs the child until it is killed. The process is single-threaded at the start.
fn receive(
    way: TakeMethod,
    processor: usize,
    clock: Clock,
    words: &SharedMapping<ValueWords>,
) -> i32 {
    if pin::pin_to(processor).is_err() {
        return NOT_PINNED;
    }
    default_and_unblocked(Signal::USR1);
    let taken = TakenStamps(&raw const words[TAKEN]);
    let stamp = move || taken.stamp(clock);
    match set_up(way, stamp) {
        Ok(()) => {}
        Err(_) => return NO_SET_UP,
    }
    // SYNC value-ready: pairs with `SignalChild::start`; the second thread already exists.
    words[READY].store(1, Ordering::Release);
    loop {
        // SAFETY: the call takes no arguments.
        unsafe { libc::pause() };
    }
}

/// The word into which the thread stamps.
struct TakenStamps(*const AtomicU64);

// SAFETY: the pointer refers to an atomic in a mapping that lives as long as the child. The child
// never returns from `receive` while one of its threads runs.
unsafe impl Send for TakenStamps {}

impl TakenStamps {
    #[inline(always)]
    fn stamp(&self, clock: Clock) {
        // SAFETY: the atomic is valid for the reason given at `Send`.
        unsafe { &*self.0 }.store(clock.start(), Ordering::Relaxed);
    }
}

/// Starts the thread, which stamps each signal and ends only with the process.
fn set_up(
    way: TakeMethod,
    stamp: impl Fn() + Send + 'static,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    match way {
        TakeMethod::Library => {
            let blocked = tontine::signal::Blocked::new(tontine::signal::Signal::USR1)?;
            let blocked = Box::leak(Box::new(blocked));
            std::mem::forget(blocked.thread(move |_| stamp())?);
        }
        TakeMethod::Sigwait => {
            let only = Only::signal();
            only.block();
            std::thread::Builder::new().spawn(move || {
                let mut signal = 0;
                // SAFETY: the set is initialised; `signal` is a live local.
                while unsafe { libc::sigwait(only.set(), &mut signal) } == 0 {
                    stamp();
                }
            })?;
        }
        TakeMethod::Hook => {
            let mut signals = signal_hook::iterator::Signals::new([libc::SIGUSR1])?;
            std::thread::Builder::new().spawn(move || signals.forever().for_each(|_| stamp()))?;
            // The signal is blocked here, so that the handler runs in that thread and no other
            // thread is woken first.
            Only::signal().block();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    /// Returns a placement of both ends on one processor, which is possible on every machine.
    fn same_core() -> Placement {
        let only = pin::allowed().expect("affinity")[0];
        Placement { name: "same-core", here: only, there: only }
    }

    #[test]
    fn library_is_compared_with_sigwait_and_signal_hook() {
        in_a_process_of_its_own(|| {
            let seen = compared(same_core(), Clock::monotonic(), 20);
            let seen = seen.map_err(|trouble| trouble.to_string())?;
            let names: Vec<&str> = seen.ratios.iter().map(|ratio| ratio.name.as_str()).collect();
            let sane = seen.ratios.iter().all(|ratio| ratio.value > 0.0)
                && seen.series.iter().all(|series| series.samples.len() == 20)
                && names == ["value-tontine / value-sigwait", "value-tontine / value-signal-hook"];
            if sane { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }

    #[test]
    fn each_method_takes_signals_after_they_are_sent() {
        in_a_process_of_its_own(|| {
            for way in TakeMethod::ALL {
                let seen = serve(way, same_core(), Clock::monotonic(), 20);
                let seen = seen.map_err(|trouble| format!("{way:?}: {trouble}"))?;
                let receive = &seen.series[0];
                if receive.samples.len() != 20 || receive.samples.iter().any(|&ns| ns <= 0.0) {
                    return Err(format!("{way:?}: {seen:?}"));
                }
            }
            Ok(())
        });
    }
}

//! The receiving process, [`receive`]: its first thread blocks the signals and sleeps; its second
//! thread waits for the signals by one of five [`WaitMethod`]s and reports each signal.
//!
//! The process is the source's program, except that it writes the signal's number, one byte, into a
//! pipe instead of printing. The second thread also maintains [`SeenSignals`], which show the
//! sender the fate of a signal that was never announced.

#![allow(unsafe_code, reason = "pause, sigsuspend, sigwait and signalfd")]

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use tontine_host::clock::Clock;
use tontine_host::os::pin;
use tontine_host::os::shared::Shareable;
use tontine_host::os::signal::{Only, handle_signal};
use tontine_host::os::state::second_thread;

/// The wait method of the second thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitMethod {
    /// A handler and `pause`, with the signal unblocked.
    Pause,
    /// A handler and `sigsuspend`; the signal is blocked at all other times.
    Sigsuspend,
    /// `sigwait`; the signal is always blocked.
    Sigwait,
    /// A read of a signalfd; the signal is always blocked.
    Signalfd,
    /// `tontine::signal`'s thread.
    Library,
}

impl WaitMethod {
    /// Returns the wait method of a variant.
    pub(super) fn of(variant: &str) -> Option<Self> {
        match variant {
            "handler-pause" => Some(Self::Pause),
            "handler-sigsuspend" => Some(Self::Sigsuspend),
            "sigwait-thread" => Some(Self::Sigwait),
            "signalfd" => Some(Self::Signalfd),
            "library" => Some(Self::Library),
            _ => None,
        }
    }
}

/// Counts of the thread, in shared memory. The sender uses them only while the thread sleeps.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SeenSignals {
    /// The thread's id; 0 until the thread is about to wait for the first time.
    pub(super) thread: AtomicU32,
    /// Signals that reached the thread: runs of the handler, or returns with a signal.
    pub(super) reached: AtomicU32,
    /// Value of `reached` at the loop's last check.
    pub(super) looked: AtomicU32,
    /// Number of iterations of the loop, which the source's program prints.
    pub(super) announced: AtomicU32,
    /// Number of the last signal that reached the thread.
    last: AtomicU32,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for SeenSignals {}

/// Status of a receiver that could not pin itself.
const NOT_PINNED: i32 = 3;
/// Status of a receiver that could not set itself up.
const NO_SET_UP: i32 = 5;

/// The counts for the handler.
static COUNTS: AtomicPtr<SeenSignals> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn on_signal(signal: libc::c_int) {
    // SAFETY: `receive` stored the address before it installed this handler; the mapping lives as
    // long as this process.
    let counts = unsafe { &*COUNTS.load(Ordering::Relaxed) };
    counts.reach(signal);
}

impl SeenSignals {
    #[inline(always)]
    fn reach(&self, signal: libc::c_int) {
        self.last.store(signal.cast_unsigned(), Ordering::Relaxed);
        self.reached.fetch_add(1, Ordering::Relaxed);
    }
}

/// Parameters of a receiver.
#[derive(Clone, Copy)]
pub(super) struct Orders<'a> {
    pub(super) way: WaitMethod,
    /// The signals to receive, which may be equal; the library receives the first.
    pub(super) signals: [libc::c_int; 2],
    pub(super) processor: usize,
    /// Nanoseconds of work after reporting a signal, before waiting again.
    pub(super) window_ns: f64,
    pub(super) clock: Clock,
    pub(super) counts: &'a SeenSignals,
    /// The pipe that receives one byte per return of the wait.
    pub(super) says: BorrowedFd<'a>,
}

/// Runs the child until it is killed. Call it in a fresh single-threaded process.
pub(super) fn receive(orders: Orders<'_>) -> i32 {
    if pin::pin_to(orders.processor).is_err() {
        return NOT_PINNED;
    }
    if orders.way == WaitMethod::Library {
        return take(orders).map_or(NO_SET_UP, |()| sleep());
    }
    let only = Only::of(&orders.signals);
    only.block();
    let outside = only.unblocked_mask();
    COUNTS.store(std::ptr::from_ref(orders.counts).cast_mut(), Ordering::Relaxed);
    // The other methods keep the default action, which ends the process if it is ever carried out.
    if matches!(orders.way, WaitMethod::Pause | WaitMethod::Sigsuspend)
        && orders.signals.iter().any(|&signal| handle_signal(signal, on_signal).is_err())
    {
        return NO_SET_UP;
    }
    let waiter = match PreparedWait::new(orders.way, only, outside) {
        Ok(waiter) => waiter,
        Err(_) => return NO_SET_UP,
    };
    std::thread::scope(|scope| {
        let spawned = std::thread::Builder::new().spawn_scoped(scope, || announce(orders, &waiter));
        if spawned.is_err() {
            return NO_SET_UP;
        }
        sleep()
    })
}

/// Runs the first thread.
fn sleep() -> i32 {
    loop {
        // SAFETY: the call takes no arguments. The signal is blocked in this thread.
        unsafe { libc::pause() };
    }
}

/// Has the library's thread take the signals.
fn take(orders: Orders<'_>) -> std::result::Result<(), Box<dyn std::error::Error>> {
    // SAFETY: the thread ends with this process, which waits in `sleep` indefinitely; all borrows
    // of `orders` are from frames below that.
    let orders = unsafe { std::mem::transmute::<Orders<'_>, Orders<'static>>(orders) };
    let [number, _] = orders.signals;
    let signal = tontine::signal::Signal::from_raw(number).ok_or("no such signal")?;
    let blocked = Box::leak(Box::new(tontine::signal::Blocked::new(signal)?));
    std::mem::forget(blocked.thread(move |_| {
        orders.counts.reach(number);
        // A write fails only if no process reads any more, which means that this process is about
        // to be killed.
        let _ = say(orders);
    })?);
    let thread = second_thread(std::process::id())?;
    // SYNC lost-signals-ready: pairs with `BurstReceiver::new`; the signal is already blocked.
    orders.counts.thread.store(thread, Ordering::Release);
    Ok(())
}

/// Runs the second thread: waits, counts and reports indefinitely.
fn announce(orders: Orders<'_>, waiter: &PreparedWait) {
    let counts = orders.counts;
    if orders.way == WaitMethod::Pause {
        waiter.only.unblock();
    }
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    // SYNC lost-signals-ready: pairs with `BurstReceiver::new`; mask and handler are already
    // installed.
    counts.thread.store(thread, Ordering::Release);
    loop {
        if waiter.wait(counts).is_err() {
            return;
        }
        if say(orders).is_err() {
            return;
        }
    }
}

/// Counts and reports after each return of the wait.
#[inline(always)]
fn say(orders: Orders<'_>) -> std::io::Result<()> {
    let Orders { counts, clock, window_ns, .. } = orders;
    counts.looked.store(counts.reached.load(Ordering::Relaxed), Ordering::Relaxed);
    counts.announced.fetch_add(1, Ordering::Relaxed);
    let signal = counts.last.load(Ordering::Relaxed) as u8;
    rustix::io::retry_on_intr(|| rustix::io::write(orders.says, &[signal]))?;
    if window_ns > 0.0 {
        let since = clock.start();
        while clock.ns_between(since, clock.stop()) < window_ns {}
    }
    Ok(())
}

/// A prepared wait method.
struct PreparedWait {
    way: WaitMethod,
    only: Only,
    /// The mask in which `sigsuspend` waits.
    outside: libc::sigset_t,
    /// The signalfd, if the wait method uses one.
    descriptor: Option<OwnedFd>,
}

impl PreparedWait {
    fn new(way: WaitMethod, only: Only, outside: libc::sigset_t) -> std::io::Result<Self> {
        let descriptor = match way {
            WaitMethod::Signalfd => {
                // SAFETY: the set is initialised; −1 requests a new descriptor, which is ours.
                let made = unsafe { libc::signalfd(-1, only.set(), libc::SFD_CLOEXEC) };
                let made = tontine_host::os::checked(made)?;
                // SAFETY: the descriptor was just created and has no other owner.
                Some(unsafe { OwnedFd::from_raw_fd(made) })
            }
            _ => None,
        };
        Ok(Self { way, only, outside, descriptor })
    }

    /// Waits once. The handlers count the signals that reach them; this function counts those of
    /// `sigwait` and the signalfd.
    #[inline(always)]
    fn wait(&self, counts: &SeenSignals) -> std::io::Result<()> {
        match self.way {
            WaitMethod::Pause => {
                // SAFETY: the call takes no arguments and returns when a handler has run.
                unsafe { libc::pause() };
            }
            WaitMethod::Sigsuspend => {
                // SAFETY: the mask is initialised; the call returns when a handler has run.
                unsafe { libc::sigsuspend(&self.outside) };
            }
            WaitMethod::Sigwait => {
                let mut taken = 0;
                // SAFETY: the set is initialised; `taken` is a live local.
                let error = unsafe { libc::sigwait(self.only.set(), &mut taken) };
                tontine_mechanisms::monitor::error(error)?;
                counts.reach(taken);
            }
            WaitMethod::Signalfd => {
                let mut taken = [0; size_of::<libc::signalfd_siginfo>()];
                let descriptor = self.descriptor.as_ref().ok_or(std::io::ErrorKind::NotFound)?;
                rustix::io::retry_on_intr(|| rustix::io::read(descriptor, &mut taken))?;
                // The structure begins with the signal's number, four bytes.
                counts.reach(libc::c_int::from_ne_bytes([taken[0], taken[1], taken[2], taken[3]]));
            }
            WaitMethod::Library => unreachable!("the library waits for itself"),
        }
        Ok(())
    }
}

//! The receiving process, [`receive`]: its first thread blocks the signals and sleeps; its second
//! thread waits for the signals by one of five [`WaitMethod`]s and reports each signal.
//!
//! The process is the source's program, except that it writes the signal's number, one byte, into a
//! pipe instead of printing. The second thread also maintains [`SeenSignals`], which show the
//! sender the fate of a signal that was never announced.

#![allow(unsafe_code, reason = "pause, sigsuspend, sigwait and signalfd")]

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::thread;

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use tontine_bench::os::signal::handle_signal;
use tontine_bench::os::state::second_thread;

use crate::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitMethod {
    /// A handler and `pause`, with the signal unblocked.
    Pause,
    /// A handler and `sigsuspend`; the signal is blocked at all other times.
    Sigsuspend,
    Sigwait,
    /// A read of a signalfd; the signal is always blocked.
    Signalfd,
    Library,
}

impl WaitMethod {
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
    last: AtomicU32,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for SeenSignals {}

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

#[derive(Debug, Clone, Copy)]
pub(super) struct BurstPlan {
    pub(super) way: WaitMethod,
    pub(super) placement: Placement,
    /// Nanoseconds of work after reporting a signal, before waiting again.
    pub(super) window_ns: f64,
    pub(super) clock: Clock,
    /// The signals to send in turn, which may be equal; the library receives the first.
    pub(super) signals: [libc::c_int; 2],
}

#[derive(Clone, Copy)]
pub(super) struct Announcer<'a> {
    pub(super) plan: BurstPlan,
    pub(super) counts: &'a SeenSignals,
    /// The pipe that receives one byte per return of the wait.
    pub(super) reports: BorrowedFd<'a>,
}

pub(super) fn receive(announcer: Announcer<'_>) -> Result<()> {
    let BurstPlan { way, placement, signals, .. } = announcer.plan;
    pin::pin_to(placement.there)?;
    if way == WaitMethod::Library {
        take(announcer)?;
        return sleep();
    }
    let only = Only::of(&signals);
    only.block();
    COUNTS.store(std::ptr::from_ref(announcer.counts).cast_mut(), Ordering::Relaxed);
    // The other methods keep the default action, which ends the process if it is ever carried out.
    if matches!(way, WaitMethod::Pause | WaitMethod::Sigsuspend) {
        for signal in signals {
            handle_signal(signal, on_signal).during("sigaction")?;
        }
    }
    let waiter = PreparedWait::new(way, only).setting_up("signalfd")?;
    thread::scope(|scope| {
        let body = || announce(announcer, &waiter);
        thread::Builder::new().spawn_scoped(scope, body).setting_up("clone")?;
        sleep()
    })
}

fn sleep() -> Result<()> {
    loop {
        // SAFETY: the call takes no arguments. The signal is blocked in this thread.
        unsafe { libc::pause() };
    }
}

fn take(announcer: Announcer<'_>) -> Result<()> {
    // SAFETY: the thread ends with this process, which waits in `sleep` indefinitely; all borrows
    // of `announcer` are from frames below that.
    let announcer = unsafe { std::mem::transmute::<Announcer<'_>, Announcer<'static>>(announcer) };
    let [number, _] = announcer.plan.signals;
    library_takes(number, move || {
        announcer.counts.reach(number);
        // A write fails only if no process reads any more, which means that this process is about
        // to be killed.
        let _ = report(announcer);
    })?;
    let thread = second_thread(std::process::id())?;
    // SYNC lost-signals-ready: pairs with `BurstReceiver::new`; the signal is already blocked.
    announcer.counts.thread.store(thread, Ordering::Release);
    Ok(())
}

fn announce(announcer: Announcer<'_>, waiter: &PreparedWait) {
    let counts = announcer.counts;
    if announcer.plan.way == WaitMethod::Pause {
        waiter.only.unblock();
    }
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    // SYNC lost-signals-ready: pairs with `BurstReceiver::new`; mask and handler are already
    // installed.
    counts.thread.store(thread, Ordering::Release);
    while waiter.wait(counts).is_ok() && report(announcer).is_ok() {}
}

/// Counts and reports after each return of the wait.
#[inline(always)]
fn report(announcer: Announcer<'_>) -> std::io::Result<()> {
    let Announcer { counts, plan: BurstPlan { clock, window_ns, .. }, .. } = announcer;
    counts.looked.store(counts.reached.load(Ordering::Relaxed), Ordering::Relaxed);
    counts.announced.fetch_add(1, Ordering::Relaxed);
    let signal = counts.last.load(Ordering::Relaxed) as u8;
    rustix::io::retry_on_intr(|| rustix::io::write(announcer.reports, &[signal]))?;
    if window_ns > 0.0 {
        let since = clock.start();
        while clock.ns_between(since, clock.stop()) < window_ns {}
    }
    Ok(())
}

struct PreparedWait {
    way: WaitMethod,
    only: Only,
    /// The mask in which `sigsuspend` waits.
    outside: libc::sigset_t,
    descriptor: Option<OwnedFd>,
}

impl PreparedWait {
    fn new(way: WaitMethod, only: Only) -> std::io::Result<Self> {
        let mut descriptor = None;
        if way == WaitMethod::Signalfd {
            // SAFETY: the set is initialised; −1 requests a new descriptor, which is ours.
            let made = unsafe { libc::signalfd(-1, only.set(), libc::SFD_CLOEXEC) };
            // SAFETY: the descriptor was just created and has no other owner.
            descriptor = Some(unsafe { OwnedFd::from_raw_fd(checked(made)?) });
        }
        Ok(Self { way, only, outside: only.unblocked_mask(), descriptor })
    }

    /// Waits once. The handlers count the signals that reach them; this function counts those of
    /// `sigwait` and the signalfd.
    #[inline(always)]
    fn wait(&self, counts: &SeenSignals) -> std::io::Result<()> {
        match self.way {
            // SAFETY: the call takes no arguments and returns when a handler has run.
            WaitMethod::Pause => _ = unsafe { libc::pause() },
            // SAFETY: the mask is initialised; the call returns when a handler has run.
            WaitMethod::Sigsuspend => _ = unsafe { libc::sigsuspend(&self.outside) },
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

//! Both ends of a pair, each in its own process: [`receive`] and [`send`].

#![allow(unsafe_code, reason = "installs a signal handler and waits in sigsuspend")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, Result};
use tontine_host::os::checked;
use tontine_host::os::pin;
use tontine_host::os::shared::Shareable;
use tontine_mechanisms::start_barrier::StartBarrier;

/// The counters of a pair. Only one end writes each half; the halves are two cache lines apart.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct PairCounters {
    /// Ticks from just before the receiver's first `sigsuspend` to its last receipt.
    pub(super) ticks: AtomicU64,
    /// Number of signals that the receiver's handler had counted at that time.
    pub(super) received: AtomicU64,
    /// Number of signals that had been sent at that time.
    pub(super) sent_by_then: AtomicU64,
    sender: SentCount,
}

#[derive(Debug)]
#[repr(C, align(128))]
struct SentCount(AtomicU64);

// SAFETY: only atomics; zero is valid.
unsafe impl Shareable for PairCounters {}

/// Number of signals that this process's handler has seen. A forked process has its own count.
static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SEEN.fetch_add(1, Ordering::Relaxed);
}

/// Receives: takes `signals` signals, then returns. SIGUSR1 is blocked outside `sigsuspend`, so
/// that each call takes exactly one signal and none arrives between the check of the count and the
/// sleep.
pub(super) fn receive(
    processor: usize,
    start: &StartBarrier,
    desk: &PairCounters,
    clock: Clock,
    signals: usize,
) -> Result<()> {
    pin::pin_to(processor)?;
    let open = handled()?;
    SEEN.store(0, Ordering::Relaxed);
    start.arrive();
    start.pass();
    let began = clock.start();
    while (SEEN.load(Ordering::Relaxed) as usize) < signals {
        // SAFETY: `handled` initialised the set.
        unsafe { libc::sigsuspend(&open) };
    }
    let ended = clock.stop();
    desk.sent_by_then.store(desk.sender.0.load(Ordering::Relaxed), Ordering::Relaxed);
    desk.received.store(SEEN.load(Ordering::Relaxed).into(), Ordering::Relaxed);
    desk.ticks.store(ended.wrapping_sub(began), Ordering::Relaxed);
    Ok(())
}

/// Blocks SIGUSR1 and installs its handler. Returns a mask without SIGUSR1, for `sigsuspend`.
fn handled() -> Result<libc::sigset_t> {
    // SAFETY: plain C structures, which are zeroed (a valid value) and then filled in by the first
    // calls that take them. `count` is async-signal-safe: it changes an atomic.
    unsafe {
        let mut usr1: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut usr1);
        libc::sigaddset(&mut usr1, libc::SIGUSR1);
        let mut open: libc::sigset_t = std::mem::zeroed();
        checked(libc::sigprocmask(libc::SIG_BLOCK, &usr1, &mut open)).setting_up("sigprocmask")?;
        libc::sigdelset(&mut open, libc::SIGUSR1);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        libc::sigemptyset(&mut action.sa_mask);
        checked(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()))
            .setting_up("sigaction")?;
        Ok(open)
    }
}

/// Sends until the receiver has been reaped. Until this function returns, the kernel assigns the
/// receiver's id to no other process: see [`super::round`].
pub(super) fn send(
    processor: usize,
    start: &StartBarrier,
    desk: &PairCounters,
    to: Pid,
) -> Result<()> {
    pin::pin_to(processor)?;
    start.arrive();
    start.pass();
    let mut sent = 0;
    loop {
        match kill_process(to, Signal::USR1) {
            Ok(()) => {
                sent += 1;
                desk.sender.0.store(sent, Ordering::Relaxed);
            }
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error).setting_up("kill"),
        }
    }
}

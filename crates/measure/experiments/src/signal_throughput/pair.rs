//! Both ends of a pair, each in its own process: [`receive`] and [`send`].

#![allow(unsafe_code, reason = "waits in sigsuspend")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use rustix::process::kill_process;
use tontine_bench::os::signal::handle;
use tontine_mechanisms::start_barrier::StartBarrier;

use crate::prelude::*;

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
    counters: &PairCounters,
    clock: Clock,
    signals: usize,
) -> Result<()> {
    pin::pin_to(processor)?;
    let only = Only::signal();
    only.block();
    let open = only.unblocked_mask();
    handle(count).setting_up("sigaction")?;
    SEEN.store(0, Ordering::Relaxed);
    start.arrive();
    start.pass();
    let began = clock.start();
    while (SEEN.load(Ordering::Relaxed) as usize) < signals {
        // SAFETY: the mask is initialised.
        unsafe { libc::sigsuspend(&open) };
    }
    let ended = clock.stop();
    counters.sent_by_then.store(counters.sender.0.load(Ordering::Relaxed), Ordering::Relaxed);
    counters.received.store(SEEN.load(Ordering::Relaxed).into(), Ordering::Relaxed);
    counters.ticks.store(ended.wrapping_sub(began), Ordering::Relaxed);
    Ok(())
}

/// Sends until the receiver has been reaped. Until this function returns, the kernel assigns the
/// receiver's id to no other process: see [`super::round`].
pub(super) fn send(
    processor: usize,
    start: &StartBarrier,
    counters: &PairCounters,
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
                counters.sender.0.store(sent, Ordering::Relaxed);
            }
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error).setting_up("kill"),
        }
    }
}

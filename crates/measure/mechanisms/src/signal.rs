//! SIGUSR1, which is blocked, sent to the other process's thread and received by `sigwaitinfo`:
//! `signal`. It carries no data.
//!
//! The signal is sent by `tgkill`, not `kill`. Both cost the same, but in a multithreaded process
//! `kill` could hit a thread that does not block the signal, and terminate the process. A signal to
//! a process that is dead and reaped fails with ESRCH, which notifies the sender unless the number
//! has been reused. A survivor that waits for a signal is not notified.

#![allow(unsafe_code, reason = "signal masks, sigwaitinfo and tgkill")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tontine_bench::error::{ErrorContext, Result};
use tontine_bench::os::checked;
use tontine_bench::os::shared::{Shareable, SharedMapping};
use tontine_bench::os::signal::BlockedSignal;

use crate::about::{AfterKill, Carries, Death, Listing, Mechanism, RowKind};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Inlet, Outlet, Peers, Transfer, TransferError, TwoWay, check};
use crate::region::Common;

/// Interval between checks that the other end is ready.
const LOOK: Duration = Duration::from_micros(50);

pub struct Usr1;

pub const MECHANISM: Mechanism = Mechanism {
    carries: Carries::Nothing,
    ..Mechanism::new(
        "signal",
        Death::LeavesOne { row: "signal", survivor: AfterKill::Either },
        &[
            Listing::new(RowKind::RoundTrip, "SIGUSR1, blocked, taken by sigwaitinfo"),
            Listing::new(RowKind::Survival, "SIGUSR1, which carries nothing, taken by sigwaitinfo"),
            Listing::new(RowKind::WakeUp, "SIGUSR1, blocked, taken by sigwaitinfo"),
        ],
    )
};

/// Process and thread that receive at an end; zero until the thread has blocked the signal.
#[derive(Debug, Default)]
#[repr(C)]
pub struct SignalReceiver {
    thread: AtomicU32,
    process: AtomicU32,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for SignalReceiver {}

/// An end before it is opened: both receivers, and the end's own number.
type SignalHalf = (Common<[SignalReceiver; 2]>, usize);

impl PairDriver for Usr1 {
    type Half = SignalHalf;
    type End<const BYTES: usize> = SignalEnd;

    fn pair(_: usize) -> Result<PairHalves<SignalHalf>> {
        let (one, two) = Common::two(SharedMapping::anonymous()?);
        Ok(PairHalves::of(((one, 0), (two, 1))))
    }

    /// Blocks the signal in the calling thread, and waits for the other end to do so.
    fn open<const BYTES: usize>(
        (receivers, side): SignalHalf,
        peers: Peers<'_>,
    ) -> Result<SignalEnd> {
        let blocked = BlockedSignal::new(libc::SIGUSR1)?;
        let [own, other] = [side, 1 - side].map(|side| &receivers[side]);
        own.process.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the call only returns a number.
        let thread = unsafe { libc::gettid() };
        // SYNC signal-receiver: pairs with the other end's load; the signal is already blocked.
        own.thread.store(thread.cast_unsigned(), Ordering::Release);
        // SYNC signal-receiver: pairs with the other end's store.
        while other.thread.load(Ordering::Acquire) == 0 {
            check(peers)?;
            std::thread::sleep(LOOK);
        }
        let [process, thread] = [&other.process, &other.thread]
            .map(|number| number.load(Ordering::Relaxed).cast_signed());
        let end = SignalEnd { process, thread, blocked };
        // Signal 0 only checks that the call is permitted.
        end.tgkill(0).setting_up("tgkill")?;
        Ok(end)
    }
}

pub struct SignalEnd {
    /// Process and thread at the other end.
    process: libc::pid_t,
    thread: libc::pid_t,
    blocked: BlockedSignal,
}

impl SignalEnd {
    #[inline(always)]
    fn tgkill(&self, signal: libc::c_int) -> std::io::Result<()> {
        // SAFETY: the call takes three numbers. The opener of this end ensures that the numbers
        // have not been reused: a child that is not reaped keeps its number, and a parent outlives
        // its child.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, signal) };
        checked(sent as libc::c_int).map(|_| ())
    }
}

impl Outlet for SignalEnd {
    #[inline(always)]
    fn send(&mut self, _: &[u8], _: Peers<'_>) -> Transfer<()> {
        match self.tgkill(libc::SIGUSR1) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(TransferError::Gone),
            Err(error) => Err(error).during("tgkill").map_err(TransferError::from),
        }
    }
}

impl Inlet for SignalEnd {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        // SAFETY: the set is initialised; the pointer for the signal's information may be null.
        while unsafe { libc::sigwaitinfo(self.blocked.set(), std::ptr::null_mut()) } < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error).during("sigwaitinfo").map_err(TransferError::from);
            }
            check(peers)?;
        }
        Ok(look(&[]))
    }
}

impl TwoWay for SignalEnd {}

//! SIGUSR1, blocked, sent to the other process's thread and taken by `sigwaitinfo`.
//!
//! It is sent by `tgkill`, not `kill`: the two cost alike, and in a process with more threads
//! another one, in which the signal is not blocked, would otherwise die of it.

#![allow(unsafe_code, reason = "signal masks and sigwaitinfo")]

use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::os::checked;
use tontine_host::os::shared::Shared;
use tontine_host::peer::{Peer, spin_until};
use tontine_host::trouble::{During, Result};

use super::harness::{self, End, Plan, Timed};

/// Times it between two processes.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let blocked = Blocked::sigusr1()?;
    // The child's pid, which is its only thread's id too.
    let child = Shared::<AtomicU32>::anonymous()?;
    // SAFETY: these two calls only return numbers.
    let (parent, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    // Signal 0 only asks whether the call would be let through.
    // SAFETY: takes three numbers.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, parent, thread, 0) };
    checked(asked as libc::c_int).setting_up("tgkill")?;
    harness::between_processes(
        plan,
        |peer| {
            // SYNC signal-child: pairs with the child's store; it is ready then.
            spin_until(peer, true, || child.load(Ordering::Acquire) != 0)?;
            let pid = child.load(Ordering::Relaxed).cast_signed();
            let to = (pid, pid);
            harness::time(plan, &mut Signals { to, blocked: &blocked, peer })
        },
        |peer| {
            // SYNC signal-child: pairs with the parent's load.
            child.store(std::process::id(), Ordering::Release);
            let to = (parent, thread);
            harness::answer(plan, &mut Signals { to, blocked: &blocked, peer })
        },
    )
}

/// SIGUSR1 blocked in the calling thread; dropped, what is pending is taken and the mask restored.
struct Blocked {
    only: libc::sigset_t,
    before: libc::sigset_t,
}

impl Blocked {
    fn sigusr1() -> Result<Self> {
        // SAFETY: plain structures, initialised by the calls that take them first.
        unsafe {
            let mut sets: Self = std::mem::zeroed();
            libc::sigemptyset(&mut sets.only);
            libc::sigaddset(&mut sets.only, libc::SIGUSR1);
            checked(-libc::pthread_sigmask(libc::SIG_BLOCK, &sets.only, &mut sets.before))
                .setting_up("pthread_sigmask")?;
            Ok(sets)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both sets are initialised; SIGUSR1 is not queued, so at most one is pending.
        unsafe {
            libc::sigtimedwait(&self.only, std::ptr::null_mut(), &at_once);
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

struct Signals<'a> {
    /// Process and thread at the other end.
    to: (libc::pid_t, libc::pid_t),
    blocked: &'a Blocked,
    peer: Peer<'a>,
}

impl End for Signals<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        // SAFETY: takes three numbers. The child is not reaped while this runs, and the parent
        // outlives the child, so the numbers are nobody else's.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, self.to.0, self.to.1, libc::SIGUSR1) };
        checked(sent as libc::c_int).during("tgkill")?;
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        // SAFETY: the set is initialised; no information is asked for.
        while unsafe { libc::sigwaitinfo(&self.blocked.only, std::ptr::null_mut()) } < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error).during("sigwaitinfo");
            }
            self.peer.check()?;
        }
        Ok(())
    }
}

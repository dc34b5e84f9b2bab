//! SIGUSR1, blocked, sent by `tgkill` and taken by `sigwaitinfo`. It carries nothing, so that a
//! message is known only to have come.
//!
//! A signal to a process that is dead and reaped fails with ESRCH: that is a notice, if the number
//! is not somebody else's by then; a survivor that waits for a signal gets none.

#![allow(unsafe_code, reason = "signal masks, sigwaitinfo and tgkill")]

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tontine_host::os::checked;
use tontine_host::os::shared::Shared;
use tontine_host::trouble::{During, Result, Trouble};

use super::message::{Claim, Message};
use super::player::{End, Ended};

/// How often an end looks whether the other one is ready.
const LOOK: Duration = Duration::from_micros(50);

/// Both ends.
pub(super) fn pair() -> Result<(Signals, Signals)> {
    let pids = Rc::new(Shared::anonymous()?);
    Ok((Signals::new(Rc::clone(&pids), 0), Signals::new(pids, 1)))
}

pub(super) struct Signals {
    /// Their process ids, once each has blocked the signal.
    pids: Rc<Shared<[AtomicU32; 2]>>,
    side: usize,
    only: libc::sigset_t,
    to: libc::pid_t,
}

impl Signals {
    fn new(pids: Rc<Shared<[AtomicU32; 2]>>, side: usize) -> Self {
        // SAFETY: a plain structure, initialised by `sigemptyset`; both calls only write to it.
        let only = unsafe {
            let mut only: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut only);
            libc::sigaddset(&mut only, libc::SIGUSR1);
            only
        };
        Self { pids, side, only, to: 0 }
    }
}

impl End for Signals {
    /// Blocks the signal in this process, whose only thread calls, and waits for the other one to
    /// do so. Both are children of one process, which reaps neither before both have begun.
    fn open(&mut self) -> std::result::Result<(), Trouble> {
        // SAFETY: the set is initialised; no old mask is asked for.
        checked(-unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &self.only, std::ptr::null_mut())
        })
        .setting_up("pthread_sigmask")?;
        let [own, other] = [self.side, 1 - self.side].map(|side| &self.pids[side]);
        // SYNC survival-pids: pairs with the other end's load: the signal is blocked by now.
        own.store(std::process::id(), Ordering::Release);
        // SYNC survival-pids: pairs with the other end's store.
        while other.load(Ordering::Acquire) == 0 {
            std::thread::sleep(LOOK);
        }
        self.to = other.load(Ordering::Relaxed).cast_signed();
        Ok(())
    }

    fn send(&mut self, _: u64, _: &Message) -> std::result::Result<(), Ended> {
        // SAFETY: takes three numbers. A process and its only thread have one number; that it may
        // be a stranger's after a death is the mechanism's own weakness, and the referee's reaping
        // is too recent for that.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, self.to, self.to, libc::SIGUSR1) };
        match checked(sent as libc::c_int) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(Ended::Gone),
            Err(error) => Err(error).during("tgkill").map_err(Ended::from),
        }
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        // SAFETY: the set is initialised; no information is asked for.
        while unsafe { libc::sigwaitinfo(&self.only, std::ptr::null_mut()) } < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error).during("sigwaitinfo").map_err(Ended::from);
            }
        }
        Ok(Claim::Bare)
    }
}

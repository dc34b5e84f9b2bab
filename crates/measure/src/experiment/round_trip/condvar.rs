//! A process-shared pthread mutex and condition variable around a word that says whose turn it is.
//!
//! Neither call returns when a signal arrives, so both have a deadline, the same for many rounds;
//! when it passes, the peer is asked for and the deadline moves on.

#![allow(unsafe_code, reason = "process-shared pthread objects")]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

use super::harness::{self, End, Plan, Timed};
use super::peer::Peer;
use crate::os::shared::{Shareable, Shared};
use crate::trouble::{During, Result};

unsafe extern "C" {
    // POSIX; the libc crate leaves it out on Linux.
    fn pthread_mutex_timedlock(
        mutex: *mut libc::pthread_mutex_t,
        deadline: *const libc::timespec,
    ) -> libc::c_int;
}

#[repr(C)]
struct Monitor {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    turned: UnsafeCell<libc::pthread_cond_t>,
    /// Whose turn it is; written under the mutex.
    turn: AtomicU32,
}

// SAFETY: mutex and condition variable are made for concurrent use.
unsafe impl Sync for Monitor {}
// SAFETY: zero bytes are valid for all fields; `run` initialises the first two before their use.
unsafe impl Shareable for Monitor {}

/// Times it between two processes.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let monitor = Shared::<Monitor>::anonymous()?;
    monitor.initialise()?;
    harness::between_processes(
        plan,
        |peer| harness::time(plan, &mut Turn::new(&monitor, 0, peer)),
        |peer| harness::answer(plan, &mut Turn::new(&monitor, 1, peer)),
    )
}

impl Monitor {
    fn initialise(&self) -> Result<()> {
        // SAFETY: the attribute objects are initialised before they are used and destroyed after;
        // the memory of mutex and condition variable is mapped and nobody uses them yet.
        unsafe {
            let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut attributes);
            let shared = libc::PTHREAD_PROCESS_SHARED;
            error(libc::pthread_mutexattr_setpshared(&mut attributes, shared))
                .setting_up("pthread_mutexattr_setpshared")?;
            error(libc::pthread_mutex_init(self.mutex.get(), &attributes))
                .setting_up("pthread_mutex_init")?;
            libc::pthread_mutexattr_destroy(&mut attributes);
            let mut attributes: libc::pthread_condattr_t = std::mem::zeroed();
            libc::pthread_condattr_init(&mut attributes);
            error(libc::pthread_condattr_setpshared(&mut attributes, shared))
                .setting_up("pthread_condattr_setpshared")?;
            error(libc::pthread_cond_init(self.turned.get(), &attributes))
                .setting_up("pthread_cond_init")?;
            libc::pthread_condattr_destroy(&mut attributes);
        }
        Ok(())
    }
}

struct Turn<'a> {
    monitor: &'a Monitor,
    mine: u32,
    deadline: libc::timespec,
    peer: Peer<'a>,
}

impl<'a> Turn<'a> {
    fn new(monitor: &'a Monitor, mine: u32, peer: Peer<'a>) -> Self {
        let deadline = a_second_from_now();
        Self { monitor, mine, deadline, peer }
    }

    #[inline(always)]
    fn lock(&mut self) -> Result<()> {
        loop {
            // SAFETY: initialised before the fork, mapped as long as it is borrowed.
            match unsafe { pthread_mutex_timedlock(self.monitor.mutex.get(), &self.deadline) } {
                0 => return Ok(()),
                libc::ETIMEDOUT => self.look()?,
                other => error(other).during("pthread_mutex_timedlock")?,
            }
        }
    }

    #[inline(always)]
    fn unlock(&self) -> Result<()> {
        // SAFETY: as in `lock`, whose success is the only way here.
        error(unsafe { libc::pthread_mutex_unlock(self.monitor.mutex.get()) })
            .during("pthread_mutex_unlock")
    }

    #[cold]
    fn look(&mut self) -> Result<()> {
        self.deadline = a_second_from_now();
        self.peer.check()
    }
}

impl End for Turn<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        self.lock()?;
        self.monitor.turn.store(1 - self.mine, Ordering::Relaxed);
        // SAFETY: initialised before the fork, mapped as long as it is borrowed.
        error(unsafe { libc::pthread_cond_signal(self.monitor.turned.get()) })
            .during("pthread_cond_signal")?;
        self.unlock()
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        self.lock()?;
        while self.monitor.turn.load(Ordering::Relaxed) != self.mine {
            let (turned, mutex) = (self.monitor.turned.get(), self.monitor.mutex.get());
            // SAFETY: as in `send`; the mutex is held.
            match unsafe { libc::pthread_cond_timedwait(turned, mutex, &self.deadline) } {
                0 => {}
                libc::ETIMEDOUT => self.look()?,
                other => error(other).during("pthread_cond_timedwait")?,
            }
        }
        self.unlock()
    }
}

/// A second from now by `CLOCK_REALTIME`, the only clock that both calls take.
fn a_second_from_now() -> libc::timespec {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    libc::timespec { tv_sec: now.tv_sec + 1, tv_nsec: now.tv_nsec }
}

/// What a pthread call returned, as a result.
fn error(returned: libc::c_int) -> std::io::Result<()> {
    match returned {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}

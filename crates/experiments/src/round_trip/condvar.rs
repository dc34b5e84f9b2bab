//! A process-shared pthread mutex and condition variable around a word that says whose turn it is.
//!
//! Neither call returns when a signal arrives, so both have a deadline, the same for many rounds;
//! when it passes, the peer is asked for and the deadline moves on.

use std::sync::atomic::{AtomicU32, Ordering};

use tontine_host::os::shared::Shared;
use tontine_host::peer::Peer;
use tontine_host::trouble::Result;
use tontine_mechanisms::monitor::{Monitor, Waited};

use super::harness::{self, End, Plan, Timed};

/// Times it between two processes.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let monitor = Shared::<Monitor<AtomicU32>>::anonymous()?;
    monitor.initialise()?;
    harness::between_processes(
        plan,
        |peer| harness::time(plan, &mut Turn::new(&monitor, 0, peer)),
        |peer| harness::answer(plan, &mut Turn::new(&monitor, 1, peer)),
    )
}

struct Turn<'a> {
    /// Guards the number of the end whose turn it is.
    monitor: &'a Monitor<AtomicU32>,
    mine: u32,
    deadline: libc::timespec,
    peer: Peer<'a>,
}

impl<'a> Turn<'a> {
    fn new(monitor: &'a Monitor<AtomicU32>, mine: u32, peer: Peer<'a>) -> Self {
        let deadline = a_second_from_now();
        Self { monitor, mine, deadline, peer }
    }

    #[inline(always)]
    fn lock(&mut self) -> Result<()> {
        while self.monitor.lock_until(&self.deadline)? == Waited::TimedOut {
            self.look()?;
        }
        Ok(())
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
        self.monitor.guarded.store(1 - self.mine, Ordering::Relaxed);
        self.monitor.signal()?;
        self.monitor.unlock()
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        self.lock()?;
        while self.monitor.guarded.load(Ordering::Relaxed) != self.mine {
            if self.monitor.wait_until(&self.deadline)? == Waited::TimedOut {
                self.look()?;
            }
        }
        self.monitor.unlock()
    }

    #[inline(always)]
    fn forget(&mut self) -> Result<()> {
        self.lock()?;
        self.monitor.guarded.store(1 - self.mine, Ordering::Relaxed);
        self.monitor.unlock()
    }
}

/// A second from now by `CLOCK_REALTIME`, the only clock that both calls take.
fn a_second_from_now() -> libc::timespec {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    libc::timespec { tv_sec: now.tv_sec + 1, tv_nsec: now.tv_nsec }
}

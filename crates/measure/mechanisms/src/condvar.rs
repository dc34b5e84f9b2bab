//! A slot under a process-shared pthread mutex, and a condition variable that signals the change of
//! turns: `condvar`. The mutex is not robust.
//!
//! A signal does not interrupt either call. An end with peers to monitor therefore sets a deadline,
//! which it uses for many messages. When the deadline passes, the end checks its peers and sets the
//! next deadline.

#![allow(unsafe_code, reason = "declares its layout shareable")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tontine_bench::error::Result;
use tontine_bench::os::shared::{Shareable, SharedMapping};

use crate::about::{AfterKill, Death, Listing, Mechanism, RowKind};
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Inlet, Outlet, Peers, Transfer, TwoWay, check, deadline_in};
use crate::monitor::{Monitor, Waited};
use crate::region::Common;
use crate::slot::{CAPACITY, MessageWords};

/// Interval between two checks of the peers.
const LOOK: Duration = Duration::from_secs(1);

/// `condvar`, and also one of its ends.
pub struct Guest {
    monitor: Common<Monitor<CondvarShared>>,
    mine: u32,
    bytes: usize,
    deadline: libc::timespec,
}

pub const MECHANISM: Mechanism = Mechanism::new(
    "condvar",
    Death::LeavesOne { row: "condvar", survivor: AfterKill::Wedged },
    &[
        Listing::new(RowKind::RoundTrip, "a process-shared pthread mutex and condition variable"),
        Listing::new(
            RowKind::Survival,
            "a slot under a pthread mutex, not robust, with a condition variable",
        ),
        Listing::new(RowKind::WakeUp, "a process-shared pthread mutex and condition variable"),
    ],
);

#[derive(Debug)]
#[repr(C)]
struct CondvarShared {
    /// Number of the end that sends next.
    turn: AtomicU32,
    slot: MessageWords,
}

// SAFETY: all fields are atomics, and zero is a valid value.
unsafe impl Shareable for CondvarShared {}

impl PairDriver for Guest {
    type Half = Self;
    type End<const BYTES: usize> = Self;

    fn pair(bytes: usize) -> Result<PairHalves<Self>> {
        let monitor = SharedMapping::<Monitor<CondvarShared>>::anonymous()?;
        monitor.initialise()?;
        let (one, two) = Common::two(monitor);
        let end = |monitor, mine| Self { monitor, mine, bytes, deadline: deadline_in(LOOK) };
        Ok(PairHalves::of((end(one, 0), end(two, 1))))
    }

    fn open<const BYTES: usize>(half: Self, _: Peers<'_>) -> Result<Self> {
        Ok(half)
    }
}

impl Guest {
    #[inline(always)]
    fn lock(&mut self, peers: Peers<'_>) -> Result<()> {
        if peers.is_empty() {
            return self.monitor.lock();
        }
        while self.monitor.lock_until(&self.deadline)? == Waited::TimedOut {
            self.look(peers)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self, peers: Peers<'_>) -> Result<()> {
        if peers.is_empty() {
            return self.monitor.wait();
        }
        if self.monitor.wait_until(&self.deadline)? == Waited::TimedOut {
            self.look(peers)?;
        }
        Ok(())
    }

    #[cold]
    fn look(&mut self, peers: Peers<'_>) -> Result<()> {
        self.deadline = deadline_in(LOOK);
        check(peers)
    }

    #[inline(always)]
    fn turn(&self) -> &AtomicU32 {
        &self.monitor.guarded.turn
    }
}

impl Outlet for Guest {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
        self.lock(peers)?;
        self.monitor.guarded.slot.write(message);
        self.turn().store(1 - self.mine, Ordering::Relaxed);
        self.monitor.signal()?;
        Ok(self.monitor.unlock()?)
    }
}

impl Inlet for Guest {
    #[inline(always)]
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
        self.lock(peers)?;
        while self.turn().load(Ordering::Relaxed) != self.mine {
            self.wait(peers)?;
        }
        let seen = look(self.monitor.guarded.slot.read(self.bytes, &mut [0; CAPACITY]));
        self.monitor.unlock()?;
        Ok(seen)
    }
}

impl TwoWay for Guest {
    /// No other process holds the lock for long, because the other end waits for a receipt.
    #[inline(always)]
    fn forget(&mut self) -> Result<()> {
        self.monitor.lock()?;
        self.turn().store(1 - self.mine, Ordering::Relaxed);
        self.monitor.unlock()
    }
}

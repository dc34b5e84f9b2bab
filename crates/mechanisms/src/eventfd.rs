//! Two eventfds: `eventfd`. An eventfd has no separate ends: both processes hold both descriptors,
//! and neither is notified of the other's death.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tontine_host::error::{ErrorContext, Result};
use tontine_host::peer::PeerHandle;

use crate::about::{AfterKill, Asked, Carries, Death, Listing, Mechanism};
use crate::descriptor::again;
use crate::driver::{Couple, Driver, PairDriver, PairUser};
use crate::end::{Inlet, Outlet, TransferError, TwoWay, check};

/// `eventfd`.
pub struct Eventfd;

impl Driver for Eventfd {
    const MECHANISM: Mechanism = Mechanism {
        carries: Carries::Word,
        ..Mechanism::new(
            "eventfd",
            Death::LeavesOne { row: "eventfd", survivor: AfterKill::Wedged },
            &[
                Listing::new(Asked::RoundTrip, "two eventfds"),
                Listing::new(
                    Asked::Survival,
                    "two eventfds that carry the message's number; both ends hold both",
                ),
                Listing::new(Asked::WakeUp, "an eventfd"),
            ],
        )
    };

    fn pairs<U: PairUser>(user: U) -> Option<U::Out> {
        Some(user.processes::<Self, WORD>())
    }
}

const WORD: usize = size_of::<u64>();

impl PairDriver for Eventfd {
    type Half = Counter;
    type End<const BYTES: usize> = Counter;

    fn pair(_: usize) -> Result<Couple<Counter>> {
        let make = || eventfd(0, EventfdFlags::CLOEXEC).setting_up("eventfd2");
        let (ask, answer) = (make()?, make()?);
        let two = Counter { read: again(&ask)?, write: again(&answer)? };
        Ok(Couple::of((Counter { read: answer, write: ask }, two)))
    }

    fn open<const BYTES: usize>(half: Counter, _: &[PeerHandle<'_>]) -> Result<Counter> {
        Ok(half)
    }
}

/// One end of two eventfds, whose value is a message's first word.
#[derive(Debug)]
pub struct Counter {
    read: OwnedFd,
    write: OwnedFd,
}

impl Outlet for Counter {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        let word = &message[..WORD.min(message.len())];
        loop {
            match rustix::io::write(&self.write, word) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => check(peers)?,
                Err(error) => {
                    return Err(error).during("write to an eventfd").map_err(TransferError::from);
                }
            }
        }
    }
}

impl Inlet for Counter {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        let mut word = [0; WORD];
        loop {
            match rustix::io::read(&self.read, &mut word) {
                Ok(_) => return Ok(look(&word)),
                Err(Errno::INTR) => check(peers)?,
                Err(error) => {
                    return Err(error).during("read of an eventfd").map_err(TransferError::from);
                }
            }
        }
    }
}

impl TwoWay for Counter {}

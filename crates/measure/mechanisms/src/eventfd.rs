//! Two eventfds: `eventfd`. An eventfd has no separate ends: both processes hold both descriptors,
//! and neither is notified of the other's death.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use tontine_bench::error::{ErrorContext, Result};

use crate::about::{AfterKill, Carries, Death, Listing, Mechanism, RowKind};
use crate::descriptor::again;
use crate::driver::{PairDriver, PairHalves};
use crate::end::{Inlet, Outlet, Peers, Transfer, TransferError, TwoWay, check};

pub struct Eventfd;

pub const MECHANISM: Mechanism = Mechanism {
    carries: Carries::Word,
    ..Mechanism::new(
        "eventfd",
        Death::LeavesOne { row: "eventfd", survivor: AfterKill::Wedged },
        &[
            Listing::new(RowKind::RoundTrip, "two eventfds"),
            Listing::new(
                RowKind::Survival,
                "two eventfds that carry the message's number; both ends hold both",
            ),
            Listing::new(RowKind::WakeUp, "an eventfd"),
        ],
    )
};

const WORD: usize = size_of::<u64>();

impl PairDriver for Eventfd {
    type Half = Counter;
    type End<const BYTES: usize> = Counter;

    fn pair(_: usize) -> Result<PairHalves<Counter>> {
        let make = || eventfd(0, EventfdFlags::CLOEXEC).setting_up("eventfd2");
        let (ask, answer) = (make()?, make()?);
        let two = Counter { read: again(&ask)?, write: again(&answer)? };
        Ok(PairHalves::of((Counter { read: answer, write: ask }, two)))
    }

    fn open<const BYTES: usize>(half: Counter, _: Peers<'_>) -> Result<Counter> {
        Ok(half)
    }
}

/// An end of two eventfds, whose value is a message's first word.
#[derive(Debug)]
pub struct Counter {
    read: OwnedFd,
    write: OwnedFd,
}

impl Outlet for Counter {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: Peers<'_>) -> Transfer<()> {
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
    fn receive<R>(&mut self, peers: Peers<'_>, look: impl FnOnce(&[u8]) -> R) -> Transfer<R> {
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

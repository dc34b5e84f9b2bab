//! A POSIX message queue that all senders share.

use std::io;
use std::os::fd::OwnedFd;

use tontine_host::peer::Peer;
use tontine_host::trouble::{During, Result};
use tontine_mechanisms::descriptor::again;
use tontine_mechanisms::queue::{self, nameless};

use super::harness::{self, Batches, Inlet, Outlet, Plan, check};

/// Messages that the queue holds: what every system allows (`msg_max`).
const DEPTH: usize = 10;

/// Times it between processes.
pub(super) fn run(plan: &Plan) -> Result<Batches> {
    let queue = nameless(DEPTH, plan.bytes)?;
    harness::from_processes(
        plan,
        |_| again(&queue).map(Entry),
        |_| again(&queue).map(|queue| Exit { queue, buffer: vec![0; plan.bytes] }),
    )
}

struct Entry(OwnedFd);

impl Outlet for Entry {
    #[inline(always)]
    fn send(&mut self, message: &[u8], receiver: Peer<'_>) -> Result<()> {
        loop {
            match queue::send(&self.0, message) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => receiver.check()?,
                Err(error) => return Err(error).during("mq_send"),
            }
        }
    }
}

struct Exit {
    queue: OwnedFd,
    buffer: Vec<u8>,
}

impl Inlet for Exit {
    #[inline(always)]
    fn receive<R>(&mut self, senders: &[Peer<'_>], look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        loop {
            match queue::receive(&self.queue, &mut self.buffer) {
                Ok(got) => return Ok(look(&self.buffer[..got])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => check(senders)?,
                Err(error) => return Err(error).during("mq_receive"),
            }
        }
    }
}

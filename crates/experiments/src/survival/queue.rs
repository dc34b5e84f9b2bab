//! Two POSIX message queues.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;

use tontine_host::trouble::{During, Result};
use tontine_mechanisms::descriptor::again;
use tontine_mechanisms::queue::{self, nameless};

use super::message::{BYTES, Claim, Message, claim};
use super::player::{End, Ended};

/// Both ends.
pub(super) fn pair() -> Result<(Queues, Queues)> {
    let (ask, answer) = (nameless(1, BYTES)?, nameless(1, BYTES)?);
    let other = Queues { read: again(&ask)?, write: again(&answer)? };
    Ok((Queues { read: answer, write: ask }, other))
}

pub(super) struct Queues {
    read: OwnedFd,
    write: OwnedFd,
}

impl End for Queues {
    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        loop {
            match queue::send(&self.write, message) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).during("mq_send").map_err(Ended::from),
            }
        }
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let mut message = [0; BYTES];
        loop {
            match queue::receive(&self.read, &mut message) {
                Ok(got) => return Ok(claim(&message[..got])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).during("mq_receive").map_err(Ended::from),
            }
        }
    }
}

//! Two POSIX message queues, one byte a message. Their names are gone before the first one is sent.

use std::io;
use std::os::fd::OwnedFd;

use tontine_host::peer::Peer;
use tontine_host::trouble::{During, Result};
use tontine_mechanisms::queue::{self, nameless};

use super::harness::{self, End, Plan, Timed};

/// Times it between two processes.
pub(super) fn run(plan: &Plan) -> Result<Timed> {
    let (ask, answer) = (nameless(1, 1)?, nameless(1, 1)?);
    harness::between_processes(
        plan,
        |peer| harness::time(plan, &mut Queues { read: &answer, write: &ask, peer }),
        |peer| harness::answer(plan, &mut Queues { read: &ask, write: &answer, peer }),
    )
}

struct Queues<'a> {
    read: &'a OwnedFd,
    write: &'a OwnedFd,
    peer: Peer<'a>,
}

impl Queues<'_> {
    /// After a failed call: asks for the peer where it was only interrupted.
    #[cold]
    fn interrupted(&self, call: &str, error: io::Error) -> Result<()> {
        if error.kind() == io::ErrorKind::Interrupted {
            self.peer.check()
        } else {
            Err(error).during(call)
        }
    }
}

impl End for Queues<'_> {
    #[inline(always)]
    fn send(&mut self) -> Result<()> {
        while let Err(error) = queue::send(self.write, &[1]) {
            self.interrupted("mq_send", error)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn wait(&mut self) -> Result<()> {
        let mut message = [0; 1];
        while let Err(error) = queue::receive(self.read, &mut message) {
            self.interrupted("mq_receive", error)?;
        }
        Ok(())
    }
}

//! A stream whose sender checks before each message that the receiver lives: [`CheckedFlow`].

use rustix::process::{Pid, getpid, test_kill_process};
use tontine_host::error::{MeasureError, Result};
use tontine_host::peer::PeerHandle;
use tontine_mechanisms::driver::{StreamDriver, StreamUser};
use tontine_mechanisms::end::{Outlet, TransferError};

use super::harness::{self, Batches, StreamPlan};

/// A stream that follows a plan, with `kill(pid, 0)` before each message.
pub(super) struct CheckedFlow<'p>(pub(super) &'p StreamPlan);

impl StreamUser for CheckedFlow<'_> {
    type Out = Result<Batches>;

    fn threads<S: StreamDriver<Out: Send>>(self) -> Self::Out {
        Err(MeasureError::fail("a receiving thread has no process id of its own"))
    }

    fn processes<S: StreamDriver>(self) -> Self::Out {
        let bed = S::lay(self.0.traffic())?;
        let receiver = getpid();
        harness::from_processes(
            self.0,
            |sender| Ok(CheckedOutlet { outlet: S::outlet(&bed, sender)?, receiver }),
            |senders| S::inlet(&bed, senders),
        )
    }
}

/// A sender's end that does not send to a dead receiver.
struct CheckedOutlet<O> {
    outlet: O,
    receiver: Pid,
}

impl<O: Outlet> Outlet for CheckedOutlet<O> {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        if test_kill_process(self.receiver).is_err() {
            return Err(TransferError::Gone);
        }
        self.outlet.send(message, peers)
    }
}

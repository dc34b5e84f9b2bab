//! Senders of a mailbox whose receiver dies: one sender sleeps, and another one sends.
//!
//! For comparison, a raw poll for the end of the same receiver is timed. This receiver has more
//! resources to release than the small processes of the other variants, so its death takes longer
//! for any observer.
//!
//! The dying process leaves a message unread, so that the sender has a reason to wait. A *receiver*
//! would not be notified of a sender's death: `recv` waits for the next message of any sender.

use std::cell::Cell;
use std::time::Duration;

use rustix::net::SocketType;
use tontine::Error;
use tontine::mailbox::{Options, Sender, WaitStrategy};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{announced, failed, until_announced, until_welcome};

use super::blocked::until_ended;
use super::dying_process::{DeathPlan, DyingProcess};
use crate::liveness_check::monitored::Means;
use crate::prelude::*;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the lane in bytes: more than a sender can fill while its receiver dies.
const LANE: u64 = 16 << 20;

pub(super) fn until_woken(plan: &DeathPlan) -> Result<f64> {
    let options = Options::new().wait_strategy(WaitStrategy::Sleep);
    until(plan, &options, |sender, _| match sender.wait_acked(Some(TIMEOUT)) {
        Err(Error::OwnerDied { .. }) => Ok(()),
        other => Err(unexpected(&other)),
    })
}

/// Returns the nanoseconds from the same kind of death to the end of a poll of the receiver's
/// pidfd: the part that does not depend on the library.
pub(super) fn until_reader_ended(plan: &DeathPlan) -> Result<f64> {
    let options = Options::new().wait_strategy(WaitStrategy::Sleep);
    until(plan, &options, |_, dying| until_ended(dying.pidfd()))
}

pub(super) fn until_send_fails(plan: &DeathPlan) -> Result<f64> {
    let options = Options::new().lane_cap(2 * LANE);
    until(plan, &options, |sender, _| {
        loop {
            match sender.try_send(&[1; 8]) {
                Ok(()) | Err(Error::WouldBlock) => std::hint::spin_loop(),
                Err(Error::OwnerDied { .. }) => return Ok(()),
                other => return Err(unexpected(&other)),
            }
        }
    })
}

fn unexpected(found: &tontine::Result<()>) -> MeasureError {
    MeasureError::fail(format!("expected EOWNERDEAD, found {found:?}"))
}

fn until(
    plan: &DeathPlan,
    options: &Options,
    wait: impl FnOnce(&mut Sender, &DyingProcess) -> Result<()>,
) -> Result<f64> {
    let (ours, theirs) = unix_pair(SocketType::SEQPACKET)?;
    let ours = Cell::new(Some(ours));
    let dying = DyingProcess::start_with(plan, Means::Life, || {
        drop(ours.take());
        let reader = options.unbound().map_err(failed("a mailbox")).and_then(|mut mailbox| {
            mailbox.adopt(theirs).map_err(failed("adopt"))?;
            until_announced(&mut mailbox, &[])?;
            Ok(mailbox)
        });
        // The end of the connection notifies the other side.
        reader.unwrap_or_else(|_| exit_at_once(1))
    })?;
    let ours = ours.take().ok_or_else(|| MeasureError::fail("the socket was taken twice"))?;
    let mut sender = announced(&options.clone().first_chunk(LANE), ours)?;
    until_welcome(&mut sender, PeerHandle::Parent)?;
    sender.send(&[1; 8]).map_err(failed("send"))?;
    let _pinned = Pinned::to(plan.here)?;
    dying.die(plan, || wait(&mut sender, &dying))
}

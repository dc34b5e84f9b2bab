//! A mailbox's senders, whose reader dies: one that sleeps, one that sends.
//!
//! A raw poll for the end of the same reader is timed beside them: it has more to give back than
//! the other experiments' small processes, so that its death takes longer, whoever waits for it.
//!
//! The dying process leaves a message unread, so that there is something to wait for. That a
//! *receiver* learns of a sender's death is no part of `recv`: it waits for whoever sends next.

use std::cell::Cell;
use std::time::Duration;

use rustix::net::SocketType;
use tontine::Error;
use tontine::mailbox::{Options, Sender, WaitStrategy};
use tontine_host::os::child::exit_at_once;
use tontine_host::os::pin::Pinned;
use tontine_host::peer::PeerHandle;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{announced, failed, until_announced, until_welcome};

use super::doomed::{Doomed, Scene};
use super::notice::until_ended;
use crate::liveness_check::monitored::Means;

/// How long a notice may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the lane: more than a sender can fill while its reader dies.
const LANE: u64 = 16 << 20;

/// Nanoseconds from one death to the end of a sender's sleep.
///
/// # Errors
/// Skipped, where the system refuses what a mailbox needs; failed, where the sender is not told.
pub(super) fn until_woken(scene: &Scene) -> Result<f64> {
    let options = Options::new().wait_strategy(WaitStrategy::Sleep);
    told(scene, &options, |sender, _| match sender.wait_acked(Some(PATIENCE)) {
        Err(Error::OwnerDied { .. }) => Ok(()),
        other => Err(untold(&other)),
    })
}

/// Nanoseconds from the same death to the end of a poll of the reader's pidfd: what is raw in it.
///
/// # Errors
/// As [`until_woken`].
pub(super) fn until_reader_ended(scene: &Scene) -> Result<f64> {
    let options = Options::new().wait_strategy(WaitStrategy::Sleep);
    told(scene, &options, |_, doomed| until_ended(doomed.pidfd()))
}

/// Nanoseconds from one death to the first `send` that says so.
///
/// # Errors
/// As [`until_woken`].
pub(super) fn until_send_fails(scene: &Scene) -> Result<f64> {
    let options = Options::new().first_chunk(LANE).lane_cap(2 * LANE);
    told(scene, &options, |sender, _| {
        loop {
            match sender.try_send(&[1; 8]) {
                Ok(()) | Err(Error::WouldBlock) => std::hint::spin_loop(),
                Err(Error::OwnerDied { .. }) => return Ok(()),
                other => return Err(untold(&other)),
            }
        }
    })
}

fn untold(said: &tontine::Result<()>) -> Trouble {
    Trouble::fail(format!("expected EOWNERDEAD, found {said:?}"))
}

fn told(
    scene: &Scene,
    options: &Options,
    wait: impl FnOnce(&mut Sender, &Doomed) -> Result<()>,
) -> Result<f64> {
    let (ours, theirs) = unix_pair(SocketType::SEQPACKET)?;
    let ours = Cell::new(Some(ours));
    let doomed = Doomed::start_with(scene, Means::Life, || {
        drop(ours.take());
        let reader = options.unbound().map_err(failed("a mailbox")).and_then(|mut mailbox| {
            mailbox.adopt(theirs).map_err(failed("adopt"))?;
            until_announced(&mut mailbox, &[])?;
            Ok(mailbox)
        });
        // The end of the connection tells the other side.
        reader.unwrap_or_else(|_| exit_at_once(1))
    })?;
    let ours = ours.take().ok_or_else(|| Trouble::fail("the socket was taken twice"))?;
    let mut sender = announced(options, ours)?;
    until_welcome(&mut sender, PeerHandle::Parent)?;
    sender.send(&[1; 8]).map_err(failed("send"))?;
    let _pinned = Pinned::to(scene.here)?;
    doomed.die(scene, || wait(&mut sender, &doomed))
}

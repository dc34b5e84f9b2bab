//! One round, which creates all pairs, starts them at the same time and follows them to their ends:
//! [`run`].
//!
//! A receiver that has ended stays a zombie until it is reaped, and `kill` to a zombie succeeds.
//! The parent therefore sleeps on the pidfds of all processes and reaps each process as soon as it
//! ends. Reaping a receiver ends its sender.
//!
//! After that, a new process could receive the receiver's id, and the sender's next signal would
//! hit the new process. To prevent that, each pair is its own process group, led by the receiver.
//! The kernel assigns no id that a group still uses, and the sender is a member of the group for as
//! long as it can send.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open, setpgid};
use tontine_host::clock::Clock;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::start_barrier::StartBarrier;

use super::pair::{self, PairCounters};
use super::seats::PairProcessors;

/// Timeout for a round: ten pairs on one slow processor need less than a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Result of one receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReceiverResult {
    /// Time from just before the first `sigsuspend` to the last receipt.
    pub(super) seconds: f64,
    /// Signals that the receiver's handler saw.
    pub(super) received: u64,
    /// Number of signals that were sent to the receiver in that time.
    pub(super) sent: u64,
}

/// A process that is followed to its end.
struct FollowedProcess {
    child: Child,
    pidfd: OwnedFd,
    /// Index of the pair. The field `receives` marks the pair's receiver, which must end first.
    pair: usize,
    receives: bool,
}

/// Runs one round, in which each receiver takes `signals` signals.
///
/// # Errors
/// Returns `Skipped` if the system refuses a process or a signal, and `Failed` if an end violates
/// the protocol.
pub(super) fn run(
    seats: &[PairProcessors],
    clock: Clock,
    signals: usize,
) -> Result<Vec<ReceiverResult>> {
    let (start, words) = (StartBarrier::new()?, ChildError::new()?);
    let desks = seats
        .iter()
        .map(|_| SharedMapping::<PairCounters>::anonymous())
        .collect::<Result<Vec<SharedMapping<PairCounters>>>>()?;
    let status = |done: Result<()>| match done {
        Ok(()) => 0,
        Err(trouble) => {
            words.say(&trouble);
            1
        }
    };
    let mut ends = Vec::with_capacity(2 * seats.len());
    for (pair, (seat, desk)) in seats.iter().zip(&desks).enumerate() {
        let receiver =
            Child::fork(|| status(pair::receive(seat.receiver, &start, desk, clock, signals)))?;
        let group = receiver.pid();
        setpgid(Some(group), Some(group)).setting_up("setpgid")?;
        ends.push(FollowedProcess::of(receiver, pair, true)?);
        let sender = Child::fork(|| status(pair::send(seat.sender, &start, desk, group)))?;
        setpgid(Some(sender.pid()), Some(group)).setting_up("setpgid")?;
        ends.push(FollowedProcess::of(sender, pair, false)?);
    }
    let followed = start
        .until(ends.len(), || {
            ends.iter().try_for_each(|end| PeerHandle::Child(end.child.pid()).check())
        })
        .and_then(|()| {
            start.open();
            follow(&mut ends)
        });
    followed.map_err(|ours| words.heard().unwrap_or(ours))?;
    desks.iter().map(|desk| read(desk, clock, signals)).collect()
}

impl FollowedProcess {
    fn of(child: Child, pair: usize, receives: bool) -> Result<Self> {
        let pidfd = pidfd_open(child.pid(), PidfdFlags::empty()).setting_up("pidfd_open")?;
        Ok(Self { child, pidfd, pair, receives })
    }
}

/// Reaps every process as soon as it ends, until no process is left.
fn follow(ends: &mut Vec<FollowedProcess>) -> Result<()> {
    let began = Instant::now();
    while !ends.is_empty() {
        let mut waits: Vec<PollFd<'_>> =
            ends.iter().map(|end| PollFd::new(&end.pidfd, PollFlags::IN)).collect();
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        match poll(&mut waits, Some(&second)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).during("poll"),
        }
        let ended: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        // Iterates from the end, so that earlier indices stay valid.
        for at in (0..ends.len()).rev().filter(|&at| ended[at]) {
            let waited_for = ends.iter().any(|other| other.receives && other.pair == ends[at].pair);
            reap(&mut ends[at], waited_for)?;
            ends.remove(at);
        }
        if began.elapsed() > PATIENCE {
            let left = ends.len();
            return Err(MeasureError::fail(format!(
                "{left} processes still ran after {PATIENCE:?}"
            )));
        }
    }
    Ok(())
}

/// Reaps a process. If the receiver of its pair is not yet reaped, `receiver_lives` is `true`.
fn reap(end: &mut FollowedProcess, receiver_lives: bool) -> Result<()> {
    let who = if end.receives { "a receiver" } else { "a sender" };
    let status = end.child.wait()?;
    if status.exit_status() != Some(0) {
        return Err(MeasureError::fail(format!("expected {who} to exit with 0, found {status:?}")));
    }
    if !end.receives && receiver_lives {
        return Err(MeasureError::fail("kill returned ESRCH for a receiver that was not reaped"));
    }
    Ok(())
}

/// Returns a pair's figures. Both ends must have been reaped, so that their stores are visible.
fn read(desk: &PairCounters, clock: Clock, signals: usize) -> Result<ReceiverResult> {
    let received = desk.received.load(Ordering::Relaxed);
    let sent = desk.sent_by_then.load(Ordering::Relaxed);
    let ns = clock.ns(desk.ticks.load(Ordering::Relaxed).cast_signed());
    // The sender counts after the call, so the last signal may arrive before it is counted.
    if received != signals as u64 || sent + 1 < received || ns <= 0.0 {
        return Err(MeasureError::fail(format!(
            "expected {signals} signals to be received, of at least as many sent: found {received} \
             of {sent} in {ns} ns"
        )));
    }
    Ok(ReceiverResult { seconds: ns / 1e9, received, sent: sent.max(received) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::os::pin;
    use tontine_host::peer::in_a_process_of_its_own;

    fn two_pairs() -> Vec<PairProcessors> {
        let only = pin::allowed().expect("affinity")[0];
        vec![PairProcessors { receiver: only, sender: only }; 2]
    }

    #[test]
    fn round_accounts_for_every_signal_and_ends_every_sender() {
        in_a_process_of_its_own(|| {
            let found = run(&two_pairs(), Clock::calibrated(), 1_000);
            let found = found.map_err(|trouble| trouble.to_string())?;
            let sane = found.len() == 2
                && found.iter().all(|one| one.received == 1_000 && one.sent >= 1_000);
            if sane { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }

    #[test]
    fn sender_ending_before_receiver_fails_and_both_are_reaped() {
        in_a_process_of_its_own(|| {
            let sleeper = || {
                Child::fork(|| {
                    std::thread::sleep(Duration::from_secs(60));
                    0
                })
            };
            let both = || -> Result<Vec<FollowedProcess>> {
                Ok(vec![
                    FollowedProcess::of(sleeper()?, 0, true)?,
                    FollowedProcess::of(Child::fork(|| 0)?, 0, false)?,
                ])
            };
            let mut ends = both().map_err(|trouble| trouble.to_string())?;
            let found = follow(&mut ends);
            drop(ends);
            match (found, rustix::process::wait(rustix::process::WaitOptions::NOHANG)) {
                (Err(MeasureError::Failed(why)), Err(Errno::CHILD)) if why.contains("ESRCH") => {
                    Ok(())
                }
                other => Err(format!("{other:?}")),
            }
        });
    }

    #[test]
    fn process_group_reserves_the_number_of_its_leader() {
        in_a_process_of_its_own(|| {
            let body = || -> Result<bool> {
                let mut leader = Child::fork(|| 0)?;
                let group = leader.pid();
                setpgid(Some(group), Some(group)).during("setpgid")?;
                let muster = StartBarrier::new()?;
                let mut member = Child::fork(|| {
                    muster.pass();
                    0
                })?;
                setpgid(Some(member.pid()), Some(group)).during("setpgid")?;
                leader.wait()?;
                // No process has that id any more, but the group still uses it.
                let gone = rustix::process::test_kill_process(group) == Err(Errno::SRCH);
                let kept = rustix::process::test_kill_process_group(group).is_ok();
                muster.open();
                member.wait()?;
                Ok(gone && kept)
            };
            match body() {
                Ok(true) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }
}

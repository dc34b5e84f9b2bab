//! A round, which creates all pairs, starts them at the same time and follows them to their ends:
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

use rustix::io::Errno;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open, setpgid};
use tontine_mechanisms::start_barrier::StartBarrier;

use super::pair::{self, PairCounters};
use super::placement::PairProcessors;
use crate::prelude::*;

/// Timeout for a round: ten pairs on one slow processor need less than a second.
const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ReceiverResult {
    /// Time from just before the first `sigsuspend` to the last receipt.
    pub(super) seconds: f64,
    pub(super) received: u64,
    /// Number of signals that were sent to the receiver in that time.
    pub(super) sent: u64,
}

struct FollowedProcess {
    child: Child,
    pidfd: OwnedFd,
    /// Index of the pair. The field `receives` marks the pair's receiver, which must end first.
    pair: usize,
    receives: bool,
}

pub(super) fn run(
    pairs: &[PairProcessors],
    clock: Clock,
    signals: usize,
) -> Result<Vec<ReceiverResult>> {
    let (start, words) = (StartBarrier::new()?, ChildError::new()?);
    let all_counters = pairs
        .iter()
        .map(|_| SharedMapping::<PairCounters>::anonymous())
        .collect::<Result<Vec<SharedMapping<PairCounters>>>>()?;
    let mut ends = Vec::with_capacity(2 * pairs.len());
    for (pair, (on, counters)) in pairs.iter().zip(&all_counters).enumerate() {
        let receiver = Child::fork(|| {
            words.status(pair::receive(on.receiver, &start, counters, clock, signals))
        })?;
        let group = receiver.pid();
        setpgid(Some(group), Some(group)).setting_up("setpgid")?;
        ends.push(FollowedProcess::of(receiver, pair, true)?);
        let sender = Child::fork(|| words.status(pair::send(on.sender, &start, counters, group)))?;
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
    all_counters.iter().map(|counters| read(counters, clock, signals)).collect()
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
        if began.elapsed() > TIMEOUT {
            let left = ends.len();
            bail!("{left} processes still ran after {TIMEOUT:?}");
        }
    }
    Ok(())
}

/// Reaps a process. If the receiver of its pair is not yet reaped, `receiver_lives` is `true`.
fn reap(end: &mut FollowedProcess, receiver_lives: bool) -> Result<()> {
    end.child.expect_success(if end.receives { "a receiver" } else { "a sender" })?;
    if !end.receives && receiver_lives {
        bail!("kill returned ESRCH for a receiver that was not reaped");
    }
    Ok(())
}

/// Returns a pair's figures. Both ends must have been reaped, so that their stores are visible.
fn read(counters: &PairCounters, clock: Clock, signals: usize) -> Result<ReceiverResult> {
    let received = counters.received.load(Ordering::Relaxed);
    let sent = counters.sent_by_then.load(Ordering::Relaxed);
    let ns = clock.ns(counters.ticks.load(Ordering::Relaxed).cast_signed());
    // The sender counts after the call, so the last signal may arrive before it is counted.
    if received != signals as u64 || sent + 1 < received || ns <= 0.0 {
        bail!(
            "expected {signals} signals to be received, of at least as many sent: found {received} \
             of {sent} in {ns} ns"
        );
    }
    Ok(ReceiverResult { seconds: ns / 1e9, received, sent: sent.max(received) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_pairs() -> Vec<PairProcessors> {
        let only = pin::allowed().expect("affinity")[0];
        vec![PairProcessors { receiver: only, sender: only }; 2]
    }

    #[test]
    fn round_accounts_for_every_signal_and_ends_every_sender() {
        in_a_process_of_its_own(|| {
            let found = run(&two_pairs(), Clock::calibrated(), 1_000).expect("a round");
            assert_eq!(found.len(), 2);
            let whole = |one: &ReceiverResult| one.received == 1_000 && one.sent >= 1_000;
            assert!(found.iter().all(whole), "{found:?}");
        });
    }

    #[test]
    fn sender_ending_before_receiver_fails_and_both_are_reaped() {
        in_a_process_of_its_own(|| {
            let sleeper = Child::fork(|| {
                std::thread::sleep(Duration::from_secs(60));
                0
            });
            let ended = Child::fork(|| 0).expect("fork");
            let mut ends = vec![
                FollowedProcess::of(sleeper.expect("fork"), 0, true).expect("a pidfd"),
                FollowedProcess::of(ended, 0, false).expect("a pidfd"),
            ];
            let why = follow(&mut ends).expect_err("it ended first").to_string();
            drop(ends);
            assert!(why.contains("ESRCH"), "{why}");
            no_child_is_left();
        });
    }

    #[test]
    fn process_group_reserves_the_number_of_its_leader() {
        in_a_process_of_its_own(|| -> Result<()> {
            let mut leader = Child::fork(|| 0)?;
            let group = leader.pid();
            setpgid(Some(group), Some(group)).during("setpgid")?;
            let barrier = StartBarrier::new()?;
            let mut member = Child::fork(|| {
                barrier.pass();
                0
            })?;
            setpgid(Some(member.pid()), Some(group)).during("setpgid")?;
            leader.wait()?;
            // No process has that id any more, but the group still uses it.
            assert_eq!(rustix::process::test_kill_process(group), Err(Errno::SRCH));
            assert_eq!(rustix::process::test_kill_process_group(group), Ok(()));
            barrier.open();
            member.wait().map(drop)
        });
    }
}

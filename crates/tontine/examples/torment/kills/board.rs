//! Memory shared by the processes of a round: [`KillBoard`].
//!
//! Every lane has a slot. The slot holds the number of messages that the sender has certainly sent,
//! the number that a receiver expects next, and the number of messages that are certainly
//! acknowledged. A receiver writes the expected number after it has received, and the acknowledged
//! number after the library has acknowledged, so the numbers are lower bounds after a kill between
//! the two.

use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::super::slice::MAX_PAUSE;
use super::super::worker::{self, SharedWords};
use super::Round;

/// Number of the sender whose only message wakes the last receiver.
pub(super) const FLUSHER: u64 = u64::MAX;

const MAX_LANES: usize = 8192;
const MAX_PROCESSES: usize = 4096;

/// A command that a worker carries out between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerOrder {
    Exec = 1,
    Exit,
    Close,
    Panic,
    Fork,
}

/// Number of words per lane.
const LANE_WORDS: usize = 8;
const SENT: usize = 0;
const TAKEN: usize = 1;
const ACKNOWLEDGED: usize = 2;
const RECEIVER: usize = 3;
const NEXT: usize = 4;
const FINISHED: usize = 5;
const KILLED_UNDER: usize = 6;

/// Number of words per process.
const PROCESS_WORDS: usize = 8;
const PID: usize = 0;
const CLOSED: usize = 1;
const PROGRESS: usize = 2;
const ORDER: usize = 3;
const IDLE: usize = 4;
const EXECUTED: usize = 5;
const LANE: usize = 6;

/// The memory that all processes of a round share.
#[derive(Debug, Clone, Copy)]
pub(super) struct KillBoard {
    /// The counts of lanes and processes, and the stop flag.
    counts: SharedWords,
    lanes: SharedWords,
    processes: SharedWords,
}

impl KillBoard {
    pub(super) fn new() -> Self {
        Self {
            counts: worker::shared(4),
            lanes: worker::shared(MAX_LANES * LANE_WORDS),
            processes: worker::shared(MAX_PROCESSES * PROCESS_WORDS),
        }
    }

    /// Returns `true` if another process or lane might not find a slot.
    pub(super) fn is_full(&self) -> bool {
        worker::get(&self.counts[0]) as usize + 64 > MAX_LANES
            || worker::get(&self.counts[1]) as usize + 64 > MAX_PROCESSES
    }

    pub(super) fn stop(&self) {
        worker::set(&self.counts[2], 1);
    }

    pub(super) fn is_stopped(&self) -> bool {
        worker::get(&self.counts[2]) != 0
    }

    pub(super) fn next_process(&self) -> usize {
        worker::add(&self.counts[1], 1) as usize
    }

    /// Begins a lane of a sender.
    pub(super) fn next_lane(&self, process: usize) -> usize {
        let lane = worker::add(&self.counts[0], 1) as usize;
        worker::set(self.process(process, LANE), lane as u64 + 1);
        lane
    }

    fn process(&self, process: usize, word: usize) -> &'static AtomicU64 {
        &self.processes[process * PROCESS_WORDS + word]
    }

    fn lane(&self, lane: usize, word: usize) -> &'static AtomicU64 {
        &self.lanes[lane * LANE_WORDS + word]
    }

    pub(super) fn order(&self, process: usize) -> &'static AtomicU64 {
        self.process(process, ORDER)
    }

    /// Takes the order that a process was given.
    pub(super) fn take_order(&self, process: usize) -> Option<WorkerOrder> {
        let orders = [
            WorkerOrder::Exec,
            WorkerOrder::Exit,
            WorkerOrder::Close,
            WorkerOrder::Panic,
            WorkerOrder::Fork,
        ];
        let word = self.order(process);
        let order = orders.into_iter().find(|order| *order as u64 == worker::get(word))?;
        worker::set(word, 0);
        Some(order)
    }

    pub(super) fn progress(&self, process: usize) -> &'static AtomicU64 {
        self.process(process, PROGRESS)
    }

    pub(super) fn idle(&self, process: usize) -> &'static AtomicU64 {
        self.process(process, IDLE)
    }

    pub(super) fn note_pid(&self, process: usize, pid: u32) {
        worker::set(self.process(process, PID), pid.into());
    }

    pub(super) fn note_closed(&self, process: usize) {
        worker::set(self.process(process, CLOSED), 1);
    }

    pub(super) fn note_executed(&self, process: usize) {
        worker::set(self.process(process, EXECUTED), 1);
    }

    pub(super) fn has_executed(&self, process: usize) -> bool {
        worker::get(self.process(process, EXECUTED)) != 0
    }

    /// Returns `true` if a receiver with this pid has closed its mailbox, or its connections by
    /// `exec`.
    pub(super) fn has_closed(&self, pid: u32) -> bool {
        let count = worker::get(&self.counts[1]) as usize;
        (0..count).any(|process| {
            worker::get(self.process(process, PID)) == u64::from(pid)
                && (worker::get(self.process(process, CLOSED)) != 0 || self.has_executed(process))
        })
    }

    /// Records the receiver that was present when a sender was found dead.
    pub(super) fn note_death(&self, sender: usize, receiver: usize) {
        let lane = worker::get(self.process(sender, LANE));
        if lane > 0 {
            worker::set(self.lane(lane as usize - 1, KILLED_UNDER), receiver as u64 + 1);
        }
    }

    pub(super) fn note_sent(&self, lane: usize, count: u64) {
        worker::set(self.lane(lane, SENT), count);
    }

    pub(super) fn note_finished(&self, lane: usize) {
        worker::set(self.lane(lane, FINISHED), 1);
    }

    pub(super) fn sent(&self, lane: usize) -> u64 {
        worker::get(self.lane(lane, SENT))
    }

    pub(super) fn taken(&self, lane: usize) -> u64 {
        worker::get(self.lane(lane, TAKEN))
    }

    pub(super) fn acknowledged(&self, lane: usize) -> u64 {
        worker::get(self.lane(lane, ACKNOWLEDGED))
    }

    /// Checks the number of a received message and records it.
    pub(super) fn take(&self, receiver: usize, lane: u64, number: u64) -> Result<(), String> {
        if lane >= worker::get(&self.counts[0]) {
            return Err(format!("expected a message of a lane that began, found lane {lane}"));
        }
        let lane = lane as usize;
        let (taken, acknowledged) = (self.taken(lane), self.acknowledged(lane));
        let same = worker::get(self.lane(lane, RECEIVER)) == receiver as u64 + 1;
        let (first, last) = if same {
            let next = worker::get(self.lane(lane, NEXT));
            (next, next)
        } else {
            (acknowledged, taken)
        };
        if !(first..=last).contains(&number) {
            return Err(format!(
                "expected message {first} to {last} of lane {lane}, found {number}; taken {taken}, \
                 acknowledged {acknowledged}, receiver {receiver} {} the lane before",
                if same { "had" } else { "did not have" }
            ));
        }
        worker::set(self.lane(lane, TAKEN), taken.max(number + 1));
        worker::set(self.lane(lane, NEXT), number + 1);
        worker::set(self.lane(lane, RECEIVER), receiver as u64 + 1);
        Ok(())
    }

    /// Records that a receiver requeued a message.
    pub(super) fn put_back(&self, lane: u64, number: u64) {
        worker::set(self.lane(lane as usize, NEXT), number);
    }

    /// Records that the library has acknowledged a message.
    pub(super) fn acknowledge(&self, lane: u64, number: u64) {
        worker::raise(self.lane(lane as usize, ACKNOWLEDGED), number + 1);
    }

    /// Returns the number of received messages.
    pub(super) fn received(&self) -> u64 {
        let count = worker::get(&self.counts[0]) as usize;
        (0..count).map(|lane| self.taken(lane)).sum()
    }

    /// Checks that every message that must be received was received.
    pub(super) fn account(&self, round: &Round<'_>, last_receiver: usize) {
        for lane in 0..worker::get(&self.counts[0]) as usize {
            let (sent, taken) = (self.sent(lane), self.taken(lane));
            let [finished, receiver, under] =
                [FINISHED, RECEIVER, KILLED_UNDER].map(|word| worker::get(self.lane(lane, word)));
            // A sender may be killed after it has sent a message and before it counts the message.
            round.check(taken <= sent + 1, || {
                format!("expected at most {sent} messages of lane {lane}, found {taken}")
            });
            round.check(finished == 0 || taken == sent, || {
                format!("expected all {sent} messages of lane {lane} at its end, found {taken}")
            });
            let same = under == last_receiver as u64 + 1 && receiver == under;
            round.check(!same || taken >= sent, || {
                format!(
                    "expected all {sent} messages of lane {lane}, whose sender was killed and \
                     whose receiver lives; found {taken}"
                )
            });
        }
    }
}

/// Observes whether the receivers of a round still receive.
pub(super) struct ReceivingProgress {
    received: u64,
    since: Instant,
}

impl ReceivingProgress {
    pub(super) fn new() -> Self {
        Self { received: 0, since: Instant::now() }
    }

    /// Returns `true` if no message was received in the last [`MAX_PAUSE`].
    pub(super) fn has_paused(&mut self, board: KillBoard) -> bool {
        let received = board.received();
        if received != self.received {
            (self.received, self.since) = (received, Instant::now());
        }
        self.since.elapsed() >= MAX_PAUSE
    }
}

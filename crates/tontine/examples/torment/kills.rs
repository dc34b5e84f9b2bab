//! Random kills of senders and receivers of one mailbox: [`run`].
//!
//! All processes are forks of the slice's process and share a [`KillBoard`]. Receivers succeed each
//! other at one path, and each immediately checks received messages against the board
//! ([`receiver`]). Senders check the results of their calls ([`sender`]). This module kills, stops
//! and replaces these processes.

mod board;
mod receiver;
mod sender;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tontine::life::Life;
use tontine::mailbox::{Fences, Options, WaitStrategy};

use super::common::{Random, connect};
use super::message::MessageHeader;
use super::slice::{MAX_PAUSE, Slice, SliceCounter};
use super::wire;
use super::worker::{self, ForkedWorker};
use board::{FLUSHER, KillBoard, ReceivingProgress, WorkerOrder};

/// Maximum duration of a round.
const ROUND: Duration = Duration::from_secs(4);
/// Number of concurrent senders.
const MAX_SENDERS: u64 = 6;

/// State that the processes of one round share.
struct Round<'a> {
    slice: &'a Slice,
    case: u64,
    path: PathBuf,
    cap: u64,
    board: KillBoard,
}

impl Round<'_> {
    /// Reports a violation of this round.
    fn violate(&self, text: &str) {
        self.slice.violate(self.case, text);
    }

    /// Reports a violation of this round unless `holds`.
    fn check(&self, holds: bool, text: impl FnOnce() -> String) {
        self.slice.check(self.case, holds, text);
    }

    /// Returns options for one end, with a random wait strategy.
    fn options(&self, random: &mut Random) -> Options {
        let spins = [
            WaitStrategy::Sleep,
            WaitStrategy::Sleep,
            WaitStrategy::Adaptive,
            WaitStrategy::SpinThenSleep(Duration::from_millis(1)),
            WaitStrategy::Spin,
        ];
        Options::new()
            .lane_cap(self.cap)
            .wait_strategy(wire::pick(random, &spins))
            .fences(wire::pick(random, &[Fences::Asymmetric, Fences::Symmetric]))
    }
}

/// Runs rounds until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        let case = slice.next_case();
        let mut random = slice.random(case);
        let folder = slice.folder.join(format!("case-{case}"));
        std::fs::create_dir(&folder).expect("a folder");
        let cap = 1 << (12 + random.below(9));
        let path = folder.join("mailbox");
        let round = Round { slice, case, path, cap, board: KillBoard::new() };
        play(&round, &mut random);
        slice.add(SliceCounter::Rounds, 1);
        slice.add(SliceCounter::Messages, round.board.received());
    }
}

/// A process of the round, and the state of the actions on it.
struct RoundProcess {
    worker: ForkedWorker,
    kind: WorkerKind,
    progress: (u64, Instant),
    /// Time at which a stopped process continues.
    stopped: Option<Instant>,
    /// `true` if the process was asked to end, so that its end is expected.
    ordered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerKind {
    Sender(usize),
    Receiver(usize),
}

fn play(round: &Round<'_>, random: &mut Random) {
    let end = Instant::now() + ROUND.min(round.slice.left());
    let count = 1 + random.below(MAX_SENDERS) as usize;
    let mut processes = vec![start_receiver(round, random)];
    for _ in 0..count {
        processes.push(start_sender(round, random));
    }
    while Instant::now() < end && round.slice.violations() == 0 {
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        let at = random.below(processes.len() as u64) as usize;
        disturb(round, &mut processes[at], random);
        replace_ended(round, &mut processes, random);
        if round.board.is_full() {
            break;
        }
    }
    for process in &mut processes {
        process.worker.signal(libc::SIGCONT);
        process.stopped = None;
    }
    finish(round, processes, random);
}

/// Kills or stops one process, or sends it a command.
fn disturb(round: &Round<'_>, process: &mut RoundProcess, random: &mut Random) {
    let word = round.board.order(process_index(process.kind));
    match random.below(20) {
        0..7 => {
            process.worker.signal(libc::SIGKILL);
            process.ordered = true;
        }
        7..10 if process.stopped.is_none() => {
            process.worker.signal(libc::SIGSTOP);
            let pause = Duration::from_millis(random.below(200));
            process.stopped = Some(Instant::now() + pause);
        }
        10..14 => {
            let orders =
                [WorkerOrder::Exec, WorkerOrder::Exit, WorkerOrder::Close, WorkerOrder::Panic];
            worker::set(word, wire::pick(random, &orders) as u64);
            process.ordered = true;
        }
        14..16 => worker::set(word, WorkerOrder::Fork as u64),
        _ => {}
    }
}

fn process_index(kind: WorkerKind) -> usize {
    match kind {
        WorkerKind::Sender(index) | WorkerKind::Receiver(index) => index,
    }
}

/// Checks the processes that have ended, and starts replacements.
fn replace_ended(round: &Round<'_>, processes: &mut [RoundProcess], random: &mut Random) {
    let receiver = processes.iter().find_map(|process| match process.kind {
        WorkerKind::Receiver(index) => Some(index),
        WorkerKind::Sender(_) => None,
    });
    for process in processes {
        if process.stopped.is_some_and(|until| Instant::now() >= until) {
            process.worker.signal(libc::SIGCONT);
            process.stopped = None;
            process.progress.1 = Instant::now();
        }
        let index = process_index(process.kind);
        // The worker has called exec, and the new program only sleeps, so the other processes must
        // treat the worker as dead.
        if round.board.has_executed(index) && process.worker.ended().is_none() && process.ordered {
            process.worker.signal(libc::SIGKILL);
        }
        match process.worker.ended() {
            None => check_progress(round, process),
            Some(status) => {
                round.check(process.ordered || status == 0, || {
                    let name = &process.worker.name;
                    format!("expected {name} to run, found {}", worker::describe(Some(status)))
                });
                round.slice.add(SliceCounter::Deaths, 1);
                if let WorkerKind::Sender(index) = process.kind {
                    round.board.note_death(index, receiver.unwrap_or(0));
                }
                *process = match process.kind {
                    WorkerKind::Sender(_) => start_sender(round, random),
                    WorkerKind::Receiver(_) => start_receiver(round, random),
                };
            }
        }
    }
}

fn check_progress(round: &Round<'_>, process: &mut RoundProcess) {
    let now = worker::get(round.board.progress(process_index(process.kind)));
    if now != process.progress.0 || process.stopped.is_some() {
        process.progress = (now, Instant::now());
    }
    round.check(process.progress.1.elapsed() < MAX_PAUSE, || {
        let stacks = worker::stacks(process.worker.pid);
        format!("{} made no progress in {MAX_PAUSE:?}:\n{stacks}", process.worker.name)
    });
}

fn start_sender(round: &Round<'_>, random: &mut Random) -> RoundProcess {
    let (index, seed) = (round.board.next_process(), random.next());
    let worker = ForkedWorker::start(format!("sender {index}"), || sender::run(round, index, seed));
    let progress = (0, Instant::now());
    RoundProcess {
        worker,
        kind: WorkerKind::Sender(index),
        progress,
        stopped: None,
        ordered: false,
    }
}

fn start_receiver(round: &Round<'_>, random: &mut Random) -> RoundProcess {
    let (index, seed) = (round.board.next_process(), random.next());
    let worker =
        ForkedWorker::start(format!("receiver {index}"), || receiver::run(round, index, seed));
    let progress = (0, Instant::now());
    RoundProcess {
        worker,
        kind: WorkerKind::Receiver(index),
        progress,
        stopped: None,
        ordered: false,
    }
}

/// Lets the senders finish while a receiver lives, and accounts for every message.
fn finish(round: &Round<'_>, mut processes: Vec<RoundProcess>, random: &mut Random) {
    round.board.stop();
    // The senders end later on a slow machine, so only a pause in the receiving ends this wait.
    let mut progress = ReceivingProgress::new();
    while !progress.has_paused(round.board) && round.slice.violations() == 0 {
        // Receivers that were asked to end do so and are replaced; senders are not replaced.
        for process in &mut processes {
            if process.worker.ended().is_some() && matches!(process.kind, WorkerKind::Receiver(_)) {
                *process = start_receiver(round, random);
            }
            let executed = round.board.has_executed(process_index(process.kind));
            if executed && process.worker.ended().is_none() {
                process.worker.signal(libc::SIGKILL);
            }
        }
        let sends = |process: &mut RoundProcess| matches!(process.kind, WorkerKind::Sender(_));
        let is_running = |process: &mut RoundProcess| process.worker.ended().is_none();
        if !processes.iter_mut().any(|process| sends(process) && is_running(process)) {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let pids: Vec<_> = processes.iter().map(|process| process.worker.pid).collect();
    for process in &mut processes {
        let WorkerKind::Sender(_) = process.kind else { continue };
        let status = process.worker.ended();
        let fits = status.is_some_and(|status| status == 0 || process.ordered);
        round.check(fits, || {
            let stacks: String = pids.iter().map(|pid| worker::stacks(*pid)).collect();
            let found = worker::describe(status);
            format!("expected {} to finish, found {found}\n{stacks}", process.worker.name)
        });
    }
    let receiver = processes.iter_mut().find(|one| matches!(one.kind, WorkerKind::Receiver(_)));
    let receiver = receiver.expect("a receiver at all times");
    while round.slice.violations() == 0 && !flush(round, receiver) {
        // The process had been asked to end.
        *receiver = start_receiver(round, random);
    }
    if round.slice.violations() == 0 {
        round.board.account(round, process_index(receiver.kind));
    }
    receiver.worker.kill();
}

/// Wakes a receiver that waits without a timeout, and waits until it has read all messages. Returns
/// `false` if the receiver ended on request.
fn flush(round: &Round<'_>, receiver: &mut RoundProcess) -> bool {
    let mut flusher = ForkedWorker::start("flusher", || wake(&round.path));
    let idle = round.board.idle(process_index(receiver.kind));
    let mut progress = ReceivingProgress::new();
    while worker::get(idle) == 0 && !progress.has_paused(round.board) {
        let executed = round.board.has_executed(process_index(receiver.kind));
        if let Some(status) = receiver.worker.ended().or(executed.then_some(0)) {
            round.check(receiver.ordered, || {
                format!(
                    "expected the last receiver to run, found {}",
                    worker::describe(Some(status))
                )
            });
            receiver.worker.kill();
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    round.check(worker::get(idle) > 0, || {
        let stacks = worker::stacks(receiver.worker.pid);
        format!("expected the last receiver to read everything, found a pause\n{stacks}")
    });
    flusher.wait(MAX_PAUSE);
    true
}

fn wake(path: &Path) {
    Life::register().expect("the main thread");
    let mut sender = connect(&Options::new(), path);
    let message = MessageHeader { sender: FLUSHER, incarnation: 0, number: 0 };
    let _ = sender.send_timeout(&message.encode(0), MAX_PAUSE);
    let _ = sender.wait_acked(Some(MAX_PAUSE));
}

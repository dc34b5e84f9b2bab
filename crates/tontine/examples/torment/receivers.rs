//! Hostile receivers against honest senders: [`run`].
//!
//! A sender and a raw receiver ([`hostile`]) are two processes that run the same cases in step. In
//! an *exact* case the receiver acknowledges like an honest receiver and then ends; the sender must
//! take back exactly the unacknowledged messages. In the other cases the receiver misbehaves. The
//! slice's own process is the third process that no message may reach ([`bystander`]).

mod bystander;
mod hostile;

use std::path::Path;
use std::time::{Duration, Instant};

use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::{Fences, OnDeath, Options, Sender, WaitStrategy};

use self::bystander::Bystander;
use super::common::Random;
use super::message::MessageHeader;
use super::raw::fuse::Mount;
use super::slice::{MAX_CALL, MAX_PAUSE, Slice, SliceCounter};
use super::wire;
use super::worker::{self, ForkedWorker, SharedWords, Stopwatch};

/// Timeout of calls that take a timeout.
const TIMEOUT: Duration = Duration::from_millis(20);
/// Handshake timeout of the sender.
const HANDSHAKE: Duration = Duration::from_millis(200);
/// Maximum time that the sender spends on one case.
const CASE: Duration = Duration::from_millis(250);
/// Number of cases per pair of processes.
const CASES: u64 = 200;

/// Shared words of a pair.
const CURRENT: usize = 0;
const SENDER_DONE: usize = 1;
const RECEIVER_DONE: usize = 2;
const ACKNOWLEDGED: usize = 3;
const STOP: usize = 4;
const FINISHED: usize = 5;

/// The behaviour of a case's receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiverMode {
    /// Acknowledges at the ends of messages, then ends in one of the documented ways.
    Exact(ReceiverEnd),
    /// Acknowledges everything, keeps every chunk, and repeatedly requests memory back.
    Hoard,
    /// Passes a descriptor that leads to a third process as its doorbell, and shows that it sleeps.
    Deputy,
    /// Takes arbitrary actions.
    Wild,
}

/// The end of an exact receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiverEnd {
    /// The liveness word is marked, and the connection is closed.
    Dead,
    /// The liveness word is marked, and the connection stays open.
    DeadConnected,
    /// The mailbox is closed, and the control page records it.
    Closed,
    /// The connection is closed.
    HungUp,
}

/// A random case, which both processes generate identically.
struct Case {
    number: u64,
    mode: ReceiverMode,
    cap: u64,
    random: Random,
}

impl Case {
    fn new(slice: &Slice, number: u64) -> Self {
        let mut random = slice.random(number);
        let ends = [
            ReceiverEnd::Dead,
            ReceiverEnd::DeadConnected,
            ReceiverEnd::Closed,
            ReceiverEnd::HungUp,
        ];
        let mode = match random.below(10) {
            0..4 => ReceiverMode::Exact(wire::pick(&mut random, &ends)),
            4 | 5 => ReceiverMode::Hoard,
            6 => ReceiverMode::Deputy,
            _ => ReceiverMode::Wild,
        };
        let cap = 1 << (12 + random.below(8));
        Self { number, mode, cap, random }
    }
}

/// Runs pairs until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        let board = worker::shared(8);
        let path = slice.folder.join(format!("mailbox-{}", slice.latest_case()));
        let first = slice.next_case();
        worker::set(&board[CURRENT], first);
        let mount = Mount::new(&slice.folder.join("fuse"));
        if let Err(why) = &mount {
            slice.note_skipped(why);
        }
        let mut bystander = Bystander::new(&slice.folder, first);
        let mut receiver = ForkedWorker::start("hostile receiver", || {
            let file = mount.as_ref().ok().and_then(|mount| mount.open().ok());
            hostile::play(slice, &path, board, &bystander, file.as_ref());
        });
        let mut sender = ForkedWorker::start("honest sender", || send(slice, &path, board));
        let end = Instant::now() + slice.left();
        let mut progress = (first, Instant::now());
        while sender.ended().is_none() && worker::get(&board[FINISHED]) == 0 {
            std::thread::sleep(Duration::from_millis(10));
            let case = worker::get(&board[CURRENT]);
            if let Some(found) = bystander.take_arrived() {
                slice.violate(case, &format!("expected no message at a third process, {found}"));
            }
            if case != progress.0 {
                progress = (case, Instant::now());
            }
            if progress.1.elapsed() > MAX_PAUSE {
                let stacks = [sender.pid, receiver.pid].map(worker::stacks).concat();
                slice.violate(case, &format!("a call of the sender hangs:\n{stacks}"));
                break;
            }
            if Instant::now() >= end || case - first >= CASES || slice.violations() > 0 {
                worker::set(&board[STOP], 1);
            }
        }
        // The mount is dropped first: when the sender ends, the kernel closes its files, which
        // would block while the mount exists.
        if let Ok(mount) = mount {
            drop(mount);
        }
        if slice.violations() == 0 {
            let status = sender.wait(MAX_PAUSE);
            slice.check_exit(worker::get(&board[CURRENT]), status, "the sender");
        }
        receiver.kill();
        slice.add(SliceCounter::Rounds, 1);
    }
}

/// Runs the sender of one case after the other.
fn send(slice: &Slice, path: &Path, board: SharedWords) {
    Life::register().expect("the main thread");
    while worker::get(&board[STOP]) == 0 {
        let number = worker::get(&board[CURRENT]);
        let mut case = Case::new(slice, number);
        if let Some(mut sender) = open(slice, &mut case, path) {
            let mut lane = CaseSender {
                slice,
                board,
                watch: Stopwatch::new(),
                sent: Vec::new(),
                next: 0,
                ended: None,
                fails: false,
            };
            lane.fails = sender.1 == OnDeath::Fail;
            lane.play(&mut case, &mut sender.0);
            let ((), took) = lane.watch.time(|| drop(sender));
            lane.bounded(&case, "drop", took, Duration::ZERO);
            slice.add(SliceCounter::Messages, lane.sent.len() as u64);
        }
        worker::set(&board[SENDER_DONE], number + 1);
        let until = Instant::now() + MAX_PAUSE;
        while worker::get(&board[RECEIVER_DONE]) <= number && Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
        if worker::get(&board[STOP]) == 0 {
            worker::set(&board[CURRENT], slice.next_case());
        }
    }
    worker::set(&board[FINISHED], 1);
}

fn open(slice: &Slice, case: &mut Case, path: &Path) -> Option<(Sender, OnDeath)> {
    let random = &mut case.random;
    let modes = [OnDeath::Fail, OnDeath::Fail, OnDeath::Fail, OnDeath::WaitForSuccessor];
    let mode =
        if case.mode == ReceiverMode::Wild { wire::pick(random, &modes) } else { OnDeath::Fail };
    let options = Options::new()
        .lane_cap(case.cap)
        .on_death(mode)
        .handshake_timeout(HANDSHAKE)
        .wait_strategy(wire::pick(random, &[WaitStrategy::Sleep, WaitStrategy::Adaptive]))
        .fences(wire::pick(random, &[Fences::Asymmetric, Fences::Symmetric]));
    let until = Instant::now() + MAX_CALL;
    let watch = Stopwatch::new();
    loop {
        let (result, took) = watch.time(|| options.connect(path));
        slice.took(took);
        slice.check(case.number, took < HANDSHAKE + MAX_CALL, || {
            format!("expected connect to end in {:?}, found {took:?}", HANDSHAKE + MAX_CALL)
        });
        match result {
            Ok(sender) => return Some((sender, mode)),
            Err(Error::NoMailbox { .. } | Error::TimedOut) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) => {
                slice.check(case.number, is_documented(&error), || {
                    format!("expected a documented error of connect, found {error}")
                });
                return None;
            }
        }
    }
}

/// Returns `true` for the errors that a receiver may cause in its sender.
fn is_documented(error: &Error) -> bool {
    matches!(
        error,
        Error::OwnerDied { .. }
            | Error::Closed { .. }
            | Error::WouldBlock
            | Error::TimedOut
            | Error::TooLarge { .. }
            | Error::NoMailbox { .. }
            | Error::Denied { .. }
            | Error::Refused { .. }
            | Error::VersionMismatch { .. }
            | Error::Protocol { .. }
    )
}

/// The sender of one case.
struct CaseSender<'a> {
    slice: &'a Slice,
    board: SharedWords,
    watch: Stopwatch,
    /// Numbers of the messages that were sent.
    sent: Vec<u64>,
    next: u64,
    /// The error that ended the lane.
    ended: Option<Error>,
    /// `true` if the sender's options make it fail when its receiver ends.
    fails: bool,
}

/// Maximum number of threads that files of one user can block.
const MAX_HELD: usize = 8;

/// Returns the number of threads of this process that receive or close descriptors.
fn held_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| name(task).ok()).filter(|name| name.trim() == "tontine-fds").count()
}

impl CaseSender<'_> {
    fn play(&mut self, case: &mut Case, sender: &mut Sender) {
        let end = Instant::now() + CASE;
        while Instant::now() < end && self.ended.is_none() {
            let call = case.random.below(12);
            self.call(case, sender, call);
        }
        let must_end = matches!(case.mode, ReceiverMode::Exact(_) | ReceiverMode::Deputy);
        if must_end && self.ended.is_none() {
            // The receiver ends the lane after a delay of its own.
            let until = Instant::now() + MAX_CALL;
            while self.ended.is_none() && Instant::now() < until {
                self.call(case, sender, 11);
                std::thread::sleep(Duration::from_micros(200));
            }
            // While files that never reply block all threads, the sender cannot receive WELCOME.
            let found = self.ended.is_some() || held_threads() >= MAX_HELD;
            self.slice.check(case.number, found, || {
                format!("expected the end of the lane ({:?}), found none", case.mode)
            });
        }
        if let Some(ended) = self.ended.clone() {
            self.check_end(case, sender, &ended);
        }
    }

    /// Makes one call, and checks its duration and its error.
    fn call(&mut self, case: &mut Case, sender: &mut Sender, call: u64) {
        let most =
            wire::pick(&mut case.random, &[64, 64, 1_000, 20_000]).min(sender.max_message_len());
        let len = case.random.below(most as u64 + 1) as usize;
        let message = MessageHeader { sender: case.number, incarnation: 0, number: self.next };
        let bytes = message.encode(len);
        let (name, sends, (result, took)) = match call {
            0..6 => {
                ("send_timeout", true, self.watch.time(|| sender.send_timeout(&bytes, TIMEOUT)))
            }
            6 | 7 => ("try_send", true, self.watch.time(|| sender.try_send(&bytes))),
            8 => {
                let reserve = || {
                    let mut space = sender.try_reserve(bytes.len())?;
                    space.copy_from_slice(&bytes);
                    space.commit()
                };
                ("commit", true, self.watch.time(reserve))
            }
            9 => ("wait_acked", false, self.watch.time(|| sender.wait_acked(Some(TIMEOUT)))),
            10 => ("arm", false, self.watch.time(|| sender.arm(bytes.len()).map(drop))),
            _ => ("service", false, self.watch.time(|| sender.service())),
        };
        self.bounded(case, name, took, TIMEOUT);
        match result {
            Ok(()) if sends => {
                self.sent.push(self.next);
                self.next += 1;
            }
            Ok(()) | Err(Error::WouldBlock | Error::TimedOut | Error::TooLarge { .. }) => {}
            Err(error) => {
                self.slice.check(case.number, is_documented(&error), || {
                    format!("expected a documented error of {name}, found {error}")
                });
                self.ended = Some(error);
            }
        }
    }

    fn bounded(&self, case: &Case, name: &str, took: Duration, timeout: Duration) {
        self.slice.took(took.saturating_sub(timeout));
        self.slice.check(case.number, took < timeout + MAX_CALL, || {
            format!("expected {name} to end in {:?}, found {took:?}", timeout + MAX_CALL)
        });
    }

    /// Checks the state of an ended lane.
    fn check_end(&mut self, case: &mut Case, sender: &mut Sender, ended: &Error) {
        let ReceiverMode::Exact(end) = case.mode else {
            let is_refused = matches!(ended, Error::Protocol { .. });
            self.slice.check(case.number, case.mode != ReceiverMode::Deputy || is_refused, || {
                format!("expected the lane to end with a protocol error, found {ended}")
            });
            return self.check_wild_end(case, sender);
        };
        let expected = match end {
            ReceiverEnd::Dead | ReceiverEnd::DeadConnected => Some(libc::EOWNERDEAD),
            ReceiverEnd::Closed => Some(libc::EPIPE),
            ReceiverEnd::HungUp => None,
        };
        let found = ended.errno();
        let fits = |errno: i32| expected.is_none_or(|expected| expected == errno);
        self.slice.check(case.number, fits(found), || {
            format!("expected the lane to end with {expected:?} ({end:?}), found {ended}")
        });
        self.refuses(case, sender, found, "after its end was reported");
        let unread = match self.watch.time(|| sender.take_unread()) {
            (Ok(unread), took) => {
                self.bounded(case, "unread", took, Duration::ZERO);
                unread
            }
            (Err(error), _) => {
                let text = format!("expected the unread messages, found the error {error}");
                return self.slice.violate(case.number, &text);
            }
        };
        let acknowledged = worker::get(&self.board[ACKNOWLEDGED]);
        let numbers: Result<Vec<u64>, String> = unread
            .iter()
            .map(|bytes| MessageHeader::decode(bytes).map(|found| found.number))
            .collect();
        let expected: Vec<u64> =
            self.sent.iter().copied().filter(|number| *number >= acknowledged).collect();
        self.slice.check(case.number, numbers.as_ref() == Ok(&expected), || {
            format!(
                "expected unread to return messages {acknowledged} to {}, found {} ({numbers:?})",
                self.next,
                unread.len()
            )
        });
        self.refuses(case, sender, found, "after unread");
    }

    /// Checks that no further message can be sent.
    fn refuses(&mut self, case: &Case, sender: &mut Sender, errno: i32, when: &str) {
        for _ in 0..3 {
            let again = sender.try_send(b"late");
            let fits = again.as_ref().is_err_and(|error| error.errno() == errno);
            self.slice.check(case.number, fits, || {
                let name = std::io::Error::from_raw_os_error(errno);
                format!("expected send to fail with \"{name}\" {when}, found {again:?}")
            });
            if !fits {
                return;
            }
        }
    }

    fn check_wild_end(&mut self, case: &mut Case, sender: &mut Sender) {
        if self.fails {
            let again = sender.try_send(b"late");
            let refused = matches!(&again, Err(error) if is_documented(error));
            self.slice.check(case.number, refused, || {
                format!("expected send to fail after the end was reported, found {again:?}")
            });
        }
        let (unread, took) = self.watch.time(|| sender.take_unread());
        self.bounded(case, "unread", took, Duration::ZERO);
        if let Ok(unread) = unread {
            self.slice.check(case.number, unread.len() as u64 <= self.next.max(1) * 4_000, || {
                format!("expected at most the {} messages sent, found {}", self.next, unread.len())
            });
        }
    }
}

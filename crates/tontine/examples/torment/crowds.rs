//! Many honest senders of one receiver, whose soft limits of descriptors are low: [`run`].
//!
//! The kernel also bounds the descriptors that an ordinary user has in flight by the soft limit of
//! the process that passes them. Both limits may be raised up to the hard limit, so every message
//! must arrive, and no call may wait for a descriptor.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tontine::life::Life;
use tontine::mailbox::{Mailbox, Options, Sender};

use super::message::MessageHeader;
use super::senders::MIN_FDS;
use super::slice::{MAX_CALL, MAX_PAUSE, Slice, SliceCounter};
use super::wire;
use super::worker::{self, ForkedWorker, SharedWords, Stopwatch};

/// Maximum number of sending processes.
const MAX_PROCESSES: u64 = 4;
/// Maximum number of senders of a process.
const MAX_SENDERS: u64 = 128;
/// Maximum number of messages of a sender.
const MAX_MESSAGES: u64 = 4;
/// Maximum number of descriptors that a lane costs a process: its socket, doorbell and pidfd, and
/// those that are needed while it is made.
const FDS_PER_LANE: u64 = 8;
/// Timeout of calls that wait for a message or for space.
const TIMEOUT: Duration = Duration::from_millis(20);
/// First uid of the ordinary users. No process of another program has these users, whose
/// descriptors in flight would count too.
const FIRST_USER: u32 = 3_000_000;

/// Shared words of a case.
const BOUND: usize = 0;
/// Number of sending processes that have connected all senders and sent a message over each.
const CONNECTED: usize = 1;
/// Number of sending processes whose messages are all acknowledged.
const ACKNOWLEDGED: usize = 2;
/// The receiver has counted its lanes.
const COUNTED: usize = 3;

/// A random case.
struct Crowd<'a> {
    slice: &'a Slice,
    number: u64,
    path: PathBuf,
    board: SharedWords,
    /// Number of senders of each sending process.
    senders: Vec<u64>,
    /// Number of messages of each sender.
    messages: u64,
    receiver: Limits,
    /// Limits of the sending processes.
    sender: Limits,
    /// `true` if the receiver receives nothing until all senders have connected.
    is_late: bool,
}

/// The user and the soft limit of descriptors of a process.
#[derive(Debug, Clone, Copy)]
struct Limits {
    user: Option<u32>,
    descriptors: u64,
}

/// Runs cases until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        let crowd = Crowd::new(slice, slice.next_case());
        crowd.play();
        slice.add(SliceCounter::Rounds, 1);
    }
}

impl<'a> Crowd<'a> {
    fn new(slice: &'a Slice, number: u64) -> Self {
        let folder = slice.folder.join(format!("case-{number}"));
        std::fs::create_dir(&folder).expect("a folder");
        // An ordinary user binds and connects there.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder, open).expect("set");
        let mut random = slice.random(number);
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let most = MAX_SENDERS.min(hard / FDS_PER_LANE / MAX_PROCESSES).max(1);
        let processes = 1 + random.below(MAX_PROCESSES);
        let first = FIRST_USER + 2 * std::process::id();
        let users: &[Option<u32>] = if rustix::process::geteuid().is_root() {
            &[None, Some(first), Some(first + 1)]
        } else {
            slice.note_skipped("only root can run other users' processes");
            &[None]
        };
        let mut limits = || {
            let few = MIN_FDS + random.below(41);
            let descriptors = wire::pick(&mut random, &[few, few, 256, 1024]).min(hard);
            Limits { user: wire::pick(&mut random, users), descriptors }
        };
        Self {
            receiver: limits(),
            sender: limits(),
            senders: (0..processes).map(|_| 1 + random.below(most)).collect(),
            messages: 1 + random.below(MAX_MESSAGES),
            is_late: random.below(2) == 0,
            slice,
            number,
            path: folder.join("mailbox"),
            board: worker::shared(4),
        }
    }

    /// Runs the processes until all have ended or one has reported a violation.
    fn play(&self) {
        let mut workers = vec![ForkedWorker::start("receiver", || self.receive())];
        for process in 0..self.senders.len() {
            workers.push(ForkedWorker::start("senders", || self.send(process)));
        }
        let deadline = Instant::now() + 2 * MAX_PAUSE;
        while workers.iter_mut().any(|worker| worker.ended().is_none())
            && self.slice.violations() == 0
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        for worker in workers.iter_mut().filter(|_| self.slice.violations() == 0) {
            let status = worker.ended();
            self.check(status == Some(0), || {
                let found = worker::describe(status);
                let stacks = worker::stacks(worker.pid);
                format!("expected the {} to exit with 0, found {found}\n{stacks}", worker.name)
            });
        }
        let count: u64 = self.senders.iter().sum();
        self.slice.add(SliceCounter::Messages, count * self.messages);
    }

    fn check(&self, holds: bool, text: impl FnOnce() -> String) {
        self.slice.check(self.number, holds, || {
            let Self { receiver, sender, senders, .. } = self;
            format!("{} (receiver {receiver:?}, {senders:?} senders {sender:?})", text())
        });
    }

    /// Makes a call, and checks that it ends soon after its timeout.
    fn timed<T>(&self, watch: &Stopwatch, name: &str, call: impl FnOnce() -> T) -> T {
        let (result, took) = watch.time(call);
        self.slice.took(took.saturating_sub(TIMEOUT));
        self.check(took < TIMEOUT + MAX_CALL, || {
            format!("expected {name} to end in {:?}, found {took:?}", TIMEOUT + MAX_CALL)
        });
        result
    }

    /// Repeats a call until it neither times out nor reports that it would block.
    fn repeat<T>(
        &self,
        watch: &Stopwatch,
        name: &str,
        mut call: impl FnMut() -> tontine::Result<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + MAX_PAUSE;
        loop {
            match self.timed(watch, name, &mut call) {
                Ok(done) => return Some(done),
                Err(tontine::Error::TimedOut) if Instant::now() < deadline => {}
                Err(error) => {
                    // A violation ends the other processes, which causes errors too.
                    self.check(self.slice.violations() > 0, || {
                        format!("expected {name} to succeed in {MAX_PAUSE:?}, found {error}")
                    });
                    return None;
                }
            }
        }
    }

    /// Waits until a word of the board has this value, or the case has failed.
    fn wait(&self, word: usize, value: u64) {
        while worker::get(&self.board[word]) < value && self.slice.violations() == 0 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    /// Receives all messages, and checks each one.
    fn receive(&self) {
        let watch = self.receiver.begin();
        let options = options().max_lanes((MAX_PROCESSES * MAX_SENDERS) as usize).mode(0o666);
        let mut mailbox = options.bind(&self.path).expect("binds");
        worker::set(&self.board[BOUND], 1);
        if self.is_late {
            self.wait(CONNECTED, self.senders.len() as u64);
        }
        let total = self.messages * self.senders.iter().sum::<u64>();
        let mut expected = vec![0; self.senders.iter().sum::<u64>() as usize];
        for _ in 0..total {
            if self.receive_one(&watch, &mut mailbox, &mut expected).is_none() {
                return;
            }
        }
        mailbox.ack();
        let (lanes, errors) = (mailbox.sender_count(), mailbox.take_errors());
        self.check(lanes == expected.len() && errors.is_empty(), || {
            format!("expected {} lanes and no error, found {lanes} and {errors:?}", expected.len())
        });
        worker::set(&self.board[COUNTED], 1);
        self.wait(ACKNOWLEDGED, self.senders.len() as u64);
    }

    fn receive_one(
        &self,
        watch: &Stopwatch,
        mailbox: &mut Mailbox,
        expected: &mut [u64],
    ) -> Option<()> {
        let bytes = self
            .repeat(watch, "recv_timeout", || mailbox.recv_timeout(TIMEOUT).map(|it| it.to_vec()));
        let found = MessageHeader::decode(&bytes?);
        let fits = found.as_ref().is_ok_and(|found| {
            expected.get(found.sender as usize).is_some_and(|next| *next == found.number)
        });
        self.check(fits, || format!("expected the next message of a sender, found {found:?}"));
        *expected.get_mut(found.ok()?.sender as usize)? += 1;
        Some(())
    }

    /// Connects the senders of one process, and sends their messages in turn.
    fn send(&self, process: usize) {
        self.wait(BOUND, 1);
        let watch = self.sender.begin();
        let first: u64 = self.senders[..process].iter().sum();
        let mut senders = Vec::new();
        for sender in first..first + self.senders[process] {
            let connected = self.repeat(&watch, "connect", || options().connect(&self.path));
            let Some(connected) = connected else { return };
            senders.push((sender, connected));
            let (sender, connected) = senders.last_mut().expect("a sender");
            // It fits in the first chunk, so that no receiver is needed.
            self.send_one(&watch, *sender, connected, 0, 64);
        }
        worker::add(&self.board[CONNECTED], 1);
        let mut random = self.slice.random(self.number + first);
        for number in 1..self.messages {
            for (sender, connected) in &mut senders {
                let most = wire::pick(&mut random, &[64, 500, 20_000]);
                self.send_one(&watch, *sender, connected, number, random.below(most));
            }
        }
        for (_, connected) in &mut senders {
            self.repeat(&watch, "wait_acked", || connected.wait_acked(Some(TIMEOUT)));
        }
        worker::add(&self.board[ACKNOWLEDGED], 1);
        self.wait(COUNTED, 1);
    }

    fn send_one(
        &self,
        watch: &Stopwatch,
        sender: u64,
        connected: &mut Sender,
        number: u64,
        len: u64,
    ) {
        let bytes = MessageHeader { sender, incarnation: 0, number }.encode(len as usize);
        self.repeat(watch, "send_timeout", || connected.send_timeout(&bytes, TIMEOUT));
    }
}

fn options() -> Options {
    Options::new().allow_any_uid().handshake_timeout(MAX_PAUSE)
}

impl Limits {
    /// Applies the limits to this process, and registers its life.
    fn begin(self) -> Stopwatch {
        if let Some(user) = self.user {
            worker::become_user(user);
        }
        worker::limit_descriptors(self.descriptors, None);
        Life::register().expect("the main thread");
        Stopwatch::new()
    }
}

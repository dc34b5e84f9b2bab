//! Hostile senders against an honest receiver that also has an honest sender: [`run`].
//!
//! The receiver and the honest sender are separate processes; each hostile sender runs one
//! generated case after the other through raw sockets ([`hostile`]).

#![allow(unsafe_code, reason = "record locks")]

mod hostile;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tontine::life::Life;
use tontine::mailbox::{Fences, Mailbox, Options, WaitStrategy};

use super::common::{Random, connect, is_readable};
use super::message::MessageHeader;
use super::raw::PROCESS_PAGE;
use super::raw::fuse::Mount;
use super::slice::{MAX_CALL, MAX_PAUSE, Slice, SliceCounter};
use super::wire;
use super::worker::{self, ForkedWorker, SharedWords, Stopwatch};

/// Maximum duration of a round.
const ROUND: Duration = Duration::from_secs(4);
/// Number of lanes of the receiver, one of which is the honest sender's.
const MAX_LANES: usize = 24;
const LANE_CAP: u64 = 1 << 20;
const MAILBOX_CAP: u64 = 16 << 20;
/// Maximum number of threads of the receiver: the main thread, eight that files of one user can
/// block, four that close connections, and one for each lane that passed such a file.
const MAX_THREADS: usize = 1 + 8 + 4 + MAX_LANES;
/// Maximum number of descriptors of the receiver in addition to its lanes: pending connections and
/// its own descriptors.
const MAX_OTHER_FDS: usize = 160;
/// Size in bytes of a control page.
const CONTROL_PAGE: u64 = 4096;
/// Hard limit of descriptors of the receiver in a third of the rounds. With this limit, passed
/// descriptors may exceed the limit.
const FEW_FDS: u64 = 400;
/// Smallest soft limit of descriptors of a receiver that may raise the limit.
pub(super) const MIN_FDS: u64 = 24;
/// Maximum time without progress of an honest end that a FUSE server may block.
const MAX_STALL: Duration = Duration::from_secs(10);
/// Uid of a user that the receiver does not admit.
pub(super) const STRANGER: u32 = 65534;

/// Shared words of a round.
const STOP: usize = 0;
const LAST: usize = 1;
const SENT: usize = 2;
const CALLS: usize = 3;
const FINAL: usize = 4;
const BOUND: usize = 5;
const RECEIVED: usize = 6;

/// Runs rounds until the slice is over.
pub(super) fn run(slice: &Slice) {
    while !slice.is_over() {
        play(slice, slice.next_case());
        slice.add(SliceCounter::Rounds, 1);
    }
}

/// Files on which the receiver holds record locks.
struct Victims {
    socket: PathBuf,
    lock: PathBuf,
    database: PathBuf,
}

fn play(slice: &Slice, case: u64) {
    let folder = slice.folder.join(format!("case-{case}"));
    std::fs::create_dir(&folder).expect("a folder");
    let victims = Victims {
        socket: folder.join("mailbox"),
        lock: folder.join("mailbox.lock"),
        database: folder.join("database"),
    };
    std::fs::write(&victims.database, b"rows").expect("a file");
    let (board, mut random) = (worker::shared(8), slice.random(case));
    let seed = random.next();
    let mut receiver = ForkedWorker::start("receiver", || receive(slice, &victims, board, seed));
    while worker::get(&board[BOUND]) == 0 && receiver.ended().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut honest =
        ForkedWorker::start("honest sender", || send(slice, &victims.socket, board, seed));
    let mount = Mount::new(&folder.join("fuse"));
    if let Err(why) = &mount {
        slice.note_skipped(why);
    }
    let mut peers = Vec::new();
    for peer in ["hostile sender", "hostile sender with FUSE", "stranger"] {
        let mount = mount.as_ref().ok().filter(|_| peer.ends_with("FUSE"));
        let stranger = peer == "stranger";
        if stranger && !rustix::process::geteuid().is_root() {
            slice.note_skipped("a stranger needs root");
            continue;
        }
        peers.push(ForkedWorker::start(peer, || {
            if stranger {
                worker::become_user(STRANGER);
            }
            let file = mount.and_then(|mount| mount.open().ok());
            hostile::play(slice, &victims, file.as_ref(), &board[STOP]);
            // The file is leaked, because closing it would block.
            std::mem::forget(file);
        }));
    }
    watch(slice, &victims, board, [&mut receiver, &mut honest]);
    worker::set(&board[STOP], 1);
    peers.iter().for_each(|peer| peer.signal(libc::SIGKILL));
    // The mount must be dropped before any wait for a process that closes one of its files.
    if let Ok(mount) = mount {
        drop(mount);
    }
    drop(peers);
    worker::set(&board[LAST], 1);
    finish(slice, board, &mut honest, &mut receiver);
}

/// Checks locks and progress until the round is over.
fn watch(slice: &Slice, victims: &Victims, board: SharedWords, honest: [&mut ForkedWorker; 2]) {
    let end = Instant::now() + ROUND.min(slice.left());
    let mut progress = [(0, Instant::now()); 2];
    // A round does not end while an honest end is stalled, because the end of the round would
    // release it.
    let is_stalled = |last: &(u64, Instant)| last.1.elapsed() > Duration::from_secs(1);
    while (Instant::now() < end || progress.iter().any(is_stalled)) && slice.violations() == 0 {
        std::thread::sleep(Duration::from_millis(20));
        for path in [&victims.lock, &victims.database] {
            let holder = holder(path);
            slice.check(slice.latest_case(), holder == Some(honest[0].pid), || {
                let path = path.display();
                format!("expected the receiver's record lock on {path}, found {holder:?}")
            });
        }
        for ((worker, word), last) in honest.iter().zip([CALLS, SENT]).zip(&mut progress) {
            let now = worker::get(&board[word]);
            if now != last.0 {
                *last = (now, Instant::now());
            }
            slice.check(slice.latest_case(), last.1.elapsed() < MAX_STALL, || {
                let stacks = worker::stacks(worker.pid);
                format!("the {} made no progress in {MAX_STALL:?}:\n{stacks}", worker.name)
            });
        }
    }
}

/// Lets both honest ends finish and checks that nothing was lost.
fn finish(
    slice: &Slice,
    board: SharedWords,
    honest: &mut ForkedWorker,
    receiver: &mut ForkedWorker,
) {
    for worker in [honest, receiver] {
        let status = worker.wait(MAX_PAUSE);
        slice.check_worker(slice.latest_case(), status, worker);
    }
    let [sent, received] = [SENT, RECEIVED].map(|word| worker::get(&board[word]));
    slice.check(slice.latest_case(), sent == received, || {
        format!("expected all {sent} messages of the honest sender, found {received}")
    });
    slice.add(SliceCounter::Messages, received);
}

/// Returns the process that holds a record lock on the file.
fn holder(path: &Path) -> Option<i32> {
    let file = File::options().read(true).write(true).open(path).ok()?;
    // SAFETY: the structure contains only integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    // SAFETY: the descriptor is open, and the structure has the size that the call expects.
    let result = unsafe { libc::fcntl(fd, libc::F_GETLK, &raw mut lock) };
    (result == 0 && lock.l_type != libc::F_UNLCK as i16).then_some(lock.l_pid)
}

/// Takes a record lock, as a database would.
fn lock(path: &Path) -> File {
    let file = File::options().read(true).write(true).open(path).expect("the database");
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("a record lock");
    file
}

/// Receives messages by all receiving calls, and checks time, order and resources.
fn receive(slice: &Slice, victims: &Victims, board: SharedWords, seed: u64) {
    Life::register().expect("the main thread");
    let _database = lock(&victims.database);
    let mut random = Random(seed);
    let waiting = [WaitStrategy::Sleep, WaitStrategy::Adaptive];
    let options = Options::new()
        .max_lanes(MAX_LANES)
        .lane_cap(LANE_CAP)
        .mailbox_cap(MAILBOX_CAP)
        .mode(0o666)
        .wait_strategy(wire::pick(&mut random, &waiting))
        .fences(wire::pick(&mut random, &[Fences::Asymmetric, Fences::Symmetric]))
        .handshake_timeout(Duration::from_millis(300));
    match random.below(3) {
        0 => worker::limit_descriptors(FEW_FDS, Some(FEW_FDS)),
        1 => worker::limit_descriptors(MIN_FDS + random.below(64), None),
        _ => {}
    }
    let mut mailbox = options.bind(&victims.socket).expect("binds");
    worker::set(&board[BOUND], 1);
    let watch = Stopwatch::new();
    let mut next_check = Instant::now();
    let mut expected = 0;
    loop {
        let final_count = worker::get(&board[FINAL]);
        if final_count > 0 && worker::get(&board[RECEIVED]) + 1 >= final_count {
            break;
        }
        let call = random.below(8);
        let timeout = Duration::from_millis(random.below(20));
        let (found, took) = watch.time(|| receive_once(&mut mailbox, call, timeout));
        slice.took(took.saturating_sub(timeout));
        worker::add(&board[CALLS], 1);
        slice.check(slice.latest_case(), took < timeout + MAX_CALL, || {
            format!("expected a receiving call ({call}) to end in {MAX_CALL:?}, found {took:?}")
        });
        if let Err(text) = found.and_then(|found| judge(found, board, &mut expected)) {
            slice.violate(slice.latest_case(), &text);
        }
        if Instant::now() >= next_check {
            next_check = Instant::now() + Duration::from_millis(100);
            drop(mailbox.take_errors());
            if let Err(text) = within_bounds() {
                slice.violate(slice.latest_case(), &text);
            }
        }
    }
    let ((), took) = watch.time(|| drop(mailbox));
    slice.took(took);
    slice.check(slice.latest_case(), took < MAX_CALL, || {
        format!("expected the mailbox to close in {MAX_CALL:?}, found {took:?}")
    });
}

/// A received message: uid and pid of the sender, and the bytes.
type ReceivedMessage = (u32, Option<u32>, Vec<u8>);

fn receive_once(
    mailbox: &mut Mailbox,
    call: u64,
    timeout: Duration,
) -> Result<Option<ReceivedMessage>, String> {
    let result = match call {
        0..4 => mailbox.recv_timeout(timeout),
        4 | 5 => mailbox.try_recv(),
        6 => {
            if mailbox.arm().map_err(|error| error.to_string())? {
                is_readable(&mailbox, timeout);
            }
            mailbox.try_recv()
        }
        _ => {
            mailbox.ack();
            mailbox.try_recv()
        }
    };
    match result {
        Ok(message) => {
            let peer = message.peer();
            Ok(Some((peer.uid, peer.pid, message.to_vec())))
        }
        Err(tontine::Error::TimedOut | tontine::Error::WouldBlock) => Ok(None),
        Err(error) => Err(format!("expected a message or none, found the error {error}")),
    }
}

/// Checks one received message. Messages of the honest sender must be whole and in order, and no
/// message may be from a refused user.
fn judge(
    found: Option<ReceivedMessage>,
    board: SharedWords,
    expected: &mut u64,
) -> Result<(), String> {
    let Some((uid, pid, bytes)) = found else { return Ok(()) };
    if uid == STRANGER {
        return Err(format!("expected no message of uid {uid}, found {} bytes", bytes.len()));
    }
    if pid.map(u64::from) != Some(worker::get(&board[HONEST_PID])) {
        return Ok(());
    }
    let message = MessageHeader::decode(&bytes)?;
    if message.number != *expected {
        return Err(format!("expected message {expected} of the honest sender, found {message:?}"));
    }
    *expected += 1;
    worker::set(&board[RECEIVED], *expected);
    Ok(())
}

/// Shared word: pid of the honest sender.
const HONEST_PID: usize = 7;

/// Checks this process's threads, descriptors and mapped memory files.
fn within_bounds() -> Result<(), String> {
    let count = |path: &str| std::fs::read_dir(path).map_or(0, Iterator::count);
    let (fds, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    let max_fds = 3 * MAX_LANES + MAX_OTHER_FDS;
    if fds > max_fds {
        return Err(format!("expected at most {max_fds} descriptors, found {fds}"));
    }
    if threads > MAX_THREADS {
        return Err(format!("expected at most {MAX_THREADS} threads, found {threads}"));
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let size = |line: &str| {
        let (begin, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(begin, 16).ok()?)
    };
    let sizes: Vec<u64> =
        maps.lines().filter(|line| line.contains("/memfd:")).filter_map(size).collect();
    let mapped: u64 = sizes.iter().sum();
    if mapped > 2 * MAILBOX_CAP {
        return Err(format!("expected at most {} mapped bytes, found {mapped}", 2 * MAILBOX_CAP));
    }
    let (max_mappings, mappings) = (max_mappings(&sizes), sizes.len() as u64);
    if mappings > max_mappings {
        let text = format!("expected at most {max_mappings} mappings, found {mappings}: {sizes:?}");
        return Err(text);
    }
    Ok(())
}

/// Returns the maximum number of mappings that a receiver with mappings of these sizes may have.
///
/// A lane maps two pages, the chunk that it reads, and at most log₂ n + 2 further chunks that have
/// n × 4 KiB together (`most_chunks_passed`). The sum over the lanes is greatest if all have the
/// same number of bytes.
fn max_mappings(sizes: &[u64]) -> u64 {
    // No chunk has the size of a process page, which is not a power of two.
    let lanes = sizes.iter().filter(|size| **size == PROCESS_PAGE as u64).count() as u64;
    let chunks: u64 = sizes.iter().filter(|size| **size != PROCESS_PAGE as u64).sum();
    let each = chunks / lanes.max(1) / CONTROL_PAGE;
    // The logarithm is rounded up.
    lanes * (2 + 1 + 2 + u64::from(each.max(1).ilog2()) + 1)
}

/// Sends numbered messages until asked to stop, then waits until all are acknowledged.
fn send(slice: &Slice, path: &Path, board: SharedWords, seed: u64) {
    Life::register().expect("the main thread");
    worker::set(&board[HONEST_PID], u64::from(std::process::id()));
    let mut random = Random(seed ^ 0x5555);
    let mut sender = connect(&Options::new().lane_cap(LANE_CAP), path);
    let mut number = 0;
    while worker::get(&board[LAST]) == 0 {
        let most = wire::pick(&mut random, &[64, 64, 500, 5_000, 60_000]);
        let len = random.below(most);
        let message = MessageHeader { sender: 0, incarnation: 0, number }.encode(len as usize);
        if let Err(error) = sender.send_timeout(&message, MAX_PAUSE) {
            let text = format!("expected message {number} to be sent, found the error {error}");
            return slice.violate(slice.latest_case(), &text);
        }
        number += 1;
        worker::set(&board[SENT], number);
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
    }
    if let Err(error) = sender.wait_acked(Some(MAX_PAUSE)) {
        let text = format!("expected all {number} messages to be read, found the error {error}");
        slice.violate(slice.latest_case(), &text);
    }
    worker::set(&board[FINAL], number + 1);
}

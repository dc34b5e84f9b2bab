//! Real processes, killed at random: senders that wait for successors, and receivers that succeed
//! one another. Every message is accounted for.
//!
//! `TONTINE_SOAK_SECONDS` sets the duration. `TONTINE_SEED` repeats the test's random choices, but
//! not the kernel's.

#![allow(unsafe_code, reason = "fork, and memory shared with forked processes")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{AMPLE, Random, connect, ended, fork, kill, place, until};
use rustix::mm::{MapFlags, ProtFlags};
use tontine::Error;
use tontine::mailbox::{OnDeath, Options};

const AT_ONCE: usize = 8;
const MOST_SENDERS: usize = 4096;
const DEFAULT_SECONDS: u64 = 20;

const TAKEN: u32 = 1;
const ACKNOWLEDGED: u32 = 2;
const IDLE: u32 = 3;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Returns the number of messages that each sender knows to have sent, in memory shared with forked
/// processes.
fn counters() -> &'static [AtomicU64] {
    let bytes = MOST_SENDERS * size_of::<AtomicU64>();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the mapping is new, filled with zeros, page-aligned and never unmapped.
    unsafe {
        let memory =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED);
        std::slice::from_raw_parts(memory.expect("mmap").cast(), MOST_SENDERS)
    }
}

/// A log entry of a receiver: kind, receiver, sender, number.
type Entry = [u32; 4];

fn log(file: &mut &File, entry: Entry) {
    let bytes: Vec<u8> = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.write_all(&bytes).expect("logged");
}

fn entries(path: &Path) -> Vec<Entry> {
    let bytes = std::fs::read(path).expect("the log");
    let word = |piece: &[u8]| u32::from_le_bytes(piece.try_into().expect("four bytes"));
    let entries = bytes.chunks_exact(16);
    entries.map(|entry| [0, 4, 8, 12].map(|at| word(&entry[at..at + 4]))).collect()
}

fn read(path: &Path, mut file: &File, reader: u32) -> ! {
    let until = Instant::now() + AMPLE;
    let mut mailbox = loop {
        match Options::new().bind(path) {
            Ok(mailbox) => break mailbox,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    loop {
        match mailbox.recv_timeout(Duration::from_millis(200)) {
            Ok(message) => {
                let word = |at: usize| {
                    u32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes"))
                };
                let (sender, number) = (word(0), word(4));
                let rest = &message[8..];
                assert!(rest.iter().all(|&byte| byte == number as u8), "torn: {sender} {number}");
                log(&mut file, [TAKEN, reader, sender, number]);
                mailbox.ack();
                log(&mut file, [ACKNOWLEDGED, reader, sender, number]);
            }
            Err(error) => {
                assert_eq!(error, Error::TimedOut);
                if mailbox.sender_count() == 0 {
                    log(&mut file, [IDLE, reader, 0, 0]);
                }
            }
        }
        assert_eq!(mailbox.take_errors(), []);
    }
}

fn send(path: &Path, sender: u32, random: &mut Random, sent: &AtomicU64) {
    let options = Options::new().on_death(OnDeath::WaitForSuccessor).lane_cap(1 << 18);
    let mut lane = connect(&options, path);
    let count = 100 + random.below(3000) as u32;
    for number in 0..count {
        let mut message = [sender.to_le_bytes(), number.to_le_bytes()].concat();
        message.resize(8 + random.below(500) as usize, number as u8);
        lane.send(&message).expect("sent, or kept for a successor");
        sent.store(u64::from(number) + 1, Ordering::Relaxed);
        if random.below(40) == 0 {
            thread::sleep(Duration::from_micros(random.below(4000)));
        }
    }
    lane.wait_acked(Some(Duration::from_secs(60))).expect("read eventually");
}

/// The fate of a sender, as far as the test knows it.
#[derive(Default)]
struct Fate {
    /// The receiver that was alive when the sender was killed.
    killed_under: Option<u32>,
    ended: bool,
}

#[test]
#[ignore = "takes long: a soak of 20 seconds"]
fn soak_accounts_for_every_message() {
    alone!();
    let place = place();
    let seconds = number("TONTINE_SOAK_SECONDS").unwrap_or(DEFAULT_SECONDS);
    let seed = number("TONTINE_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20 | 1);
    println!("seed {seed}, {seconds} s");
    let mut random = Random(seed.max(1));
    let path = place.path.clone();
    let log_path = path.with_extension("log");
    let file = File::options().create(true).append(true).open(&log_path).expect("a log");
    let sent = counters();

    let start_reader = |number: u32| fork(|| read(&path, &file, number));
    let mut reader_number = 0;
    let mut reader = start_reader(0);
    let mut living: Vec<(i32, usize)> = Vec::new();
    let mut fates: Vec<Fate> = Vec::new();
    let end = Instant::now() + Duration::from_secs(seconds);
    let deadline = end + 3 * AMPLE;
    loop {
        assert!(Instant::now() < deadline, "{} senders do not end", living.len());
        // Senders that have ended by themselves are removed.
        living.retain(|&(pid, sender)| match ended(pid) {
            None => true,
            Some(status) => {
                assert_eq!(status, 0, "sender {sender} failed, seed {seed}");
                fates[sender].ended = true;
                false
            }
        });
        assert_eq!(ended(reader), None, "reader {reader_number} failed, seed {seed}");
        let over = Instant::now() >= end || fates.len() >= MOST_SENDERS;
        if over && living.is_empty() {
            break;
        }
        while !over && living.len() < AT_ONCE {
            let sender = fates.len();
            fates.push(Fate::default());
            let mut own = Random(random.below(u64::MAX) | 1);
            let pid = fork(|| send(&path, sender as u32, &mut own, &sent[sender]));
            living.push((pid, sender));
        }
        thread::sleep(Duration::from_millis(1 + random.below(40)));
        if over {
            continue;
        }
        match random.below(10) {
            0..5 => {
                let (pid, sender) = living.swap_remove(random.below(living.len() as u64) as usize);
                // The sender may have just ended; a child that was not reaped can still be killed.
                kill(pid);
                fates[sender].killed_under = Some(reader_number);
            }
            5 | 6 => {
                kill(reader);
                thread::sleep(Duration::from_millis(random.below(20)));
                reader_number += 1;
                reader = start_reader(reader_number);
            }
            _ => {}
        }
    }
    let last = [IDLE, reader_number, 0, 0];
    until("the last reader has nothing left", || entries(&log_path).ends_with(&[last]));
    kill(reader);
    account(&entries(&log_path), &fates, sent, reader_number, seed);
}

fn account(log: &[Entry], fates: &[Fate], sent: &[AtomicU64], readers: u32, seed: u64) {
    // Each sender's next expected number, and the messages taken under the last receiver.
    let mut next: BTreeMap<u32, u32> = BTreeMap::new();
    let mut known_to_last = std::collections::BTreeSet::new();
    let mut acknowledged = std::collections::BTreeSet::new();
    let mut last_taken: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    let mut twice = 0;
    for &[kind, reader, sender, number] in log {
        let what = format!("sender {sender}, message {number}, reader {reader}, seed {seed}");
        match kind {
            TAKEN => {
                assert!(
                    !acknowledged.contains(&(sender, number)),
                    "received again after the acknowledgement: {what}"
                );
                let expected = next.entry(sender).or_default();
                if number + 1 == *expected {
                    // Only the message that the previous receiver held when it died may arrive
                    // twice.
                    let dead = last_taken.range(..reader).next_back();
                    let in_hands = last_taken.values().any(|&taken| taken == (sender, number));
                    assert!(dead.is_some() && in_hands, "twice: {what}");
                    twice += 1;
                } else {
                    assert_eq!(number, *expected, "lost or out of order: {what}");
                    *expected += 1;
                }
                last_taken.insert(reader, (sender, number));
                if reader == readers {
                    known_to_last.insert(sender);
                }
            }
            ACKNOWLEDGED => {
                acknowledged.insert((sender, number));
            }
            _ => {}
        }
    }
    let mut lost = 0;
    for (sender, fate) in fates.iter().enumerate() {
        let known = sent[sender].load(Ordering::Relaxed);
        let got = u64::from(next.get(&(sender as u32)).copied().unwrap_or(0));
        let what = format!("sender {sender}: {known} sent, {got} received, seed {seed}");
        // A sender may be killed after a message is sent and before it is counted.
        assert!(got <= known + 1, "never sent: {what}");
        if fate.ended {
            assert_eq!(got, known, "lost although its sender saw it acknowledged: {what}");
        }
        let seen = known_to_last.contains(&(sender as u32));
        if fate.killed_under == Some(readers) && seen {
            assert!(got >= known, "lost although its reader lived: {what}");
        }
        lost += known.saturating_sub(got);
    }
    assert!(u64::from(readers) >= twice, "{twice} twice, by {readers} deaths of readers");
    let messages: u64 = next.values().map(|&next| u64::from(next)).sum();
    let killed = fates.iter().filter(|fate| !fate.ended).count();
    println!(
        "{messages} messages of {} senders, {killed} of them killed, to {} readers: {twice} came \
         twice, {lost} died with their senders",
        fates.len(),
        readers + 1
    );
}

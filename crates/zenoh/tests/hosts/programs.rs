//! The programs at the two ends, each in a process of its own: a sender and a receiver of numbered
//! messages. Each writes what it knows to a file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tontine::Error;
use tontine::mailbox::{Mailbox, Sender};

/// The facts that a sender knows at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SenderReport {
    /// Messages that `send` took.
    pub(crate) sent: u64,
    pub(crate) in_doubt: Vec<u64>,
    pub(crate) unsent: Vec<u64>,
    /// Number of the error that ended the lane, or 0.
    pub(crate) errno: i32,
    /// Milliseconds since the epoch at which the error was seen.
    pub(crate) noticed: u128,
    /// Milliseconds since the epoch at which the peer was first seen suspected, or 0.
    pub(crate) suspected: u128,
}

pub(crate) fn now() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after the epoch").as_millis()
}

fn number(message: &[u8]) -> u64 {
    u64::from_le_bytes(*message.first_chunk().expect("8 bytes at least"))
}

/// Returns the file that lets the sender of a report send its last message.
pub(crate) fn release_of(report: &Path) -> PathBuf {
    report.with_extension("release")
}

/// Returns the file that the sender of a report makes when it first sees its peer suspected.
pub(crate) fn suspicion_of(report: &Path) -> PathBuf {
    report.with_extension("suspicion")
}

/// Sends `count` messages of `size` bytes with a pause between two, the last one once it may, then
/// waits until all are acknowledged or the lane ends.
pub(crate) fn send(path: &Path, report: &Path, count: u64, size: usize, pause: Duration) {
    let began = Instant::now();
    let mut sender = loop {
        match Sender::connect(path) {
            Ok(sender) => break sender,
            Err(Error::NoMailbox { .. }) if began.elapsed() < Duration::from_secs(40) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("cannot connect: {error}"),
        }
    };
    let mut seen = SenderReport::default();
    let mut message = vec![0x5a; size.max(8)];
    let step = Duration::from_millis(20);
    let mut error = None;
    while seen.sent < count && error.is_none() {
        if seen.sent + 1 == count && !release_of(report).exists() {
            error = sender.service().err();
            seen.look(&sender, report);
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        message[..8].copy_from_slice(&seen.sent.to_le_bytes());
        match sender.send_timeout(&message, step) {
            Ok(()) => seen.sent += 1,
            Err(Error::TimedOut) => {}
            Err(other) => error = Some(other),
        }
        seen.look(&sender, report);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    while error.is_none() {
        match sender.wait_acked(Some(step)) {
            Ok(()) => break,
            Err(Error::TimedOut) => seen.look(&sender, report),
            Err(other) => error = Some(other),
        }
    }
    if let Some(error) = error {
        seen.noticed = now();
        seen.errno = error.errno();
        let unread = sender.take_unread_parts().expect("the lane has ended");
        seen.in_doubt = unread.in_doubt.iter().map(|message| number(message)).collect();
        seen.unsent = unread.unsent.iter().map(|message| number(message)).collect();
    }
    seen.write(report);
}

impl SenderReport {
    fn look(&mut self, sender: &Sender, report: &Path) {
        if self.suspected == 0 && sender.is_suspected() {
            self.suspected = now();
            fs::write(suspicion_of(report), "").expect("written");
        }
    }

    fn write(&self, path: &Path) {
        let list =
            |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
        let (in_doubt, unsent) = (list(&self.in_doubt), list(&self.unsent));
        let (sent, errno) = (self.sent, self.errno);
        let (noticed, suspected) = (self.noticed, self.suspected);
        let text = format!("{sent}\n{errno}\n{noticed}\n{suspected}\n{in_doubt}\n{unsent}\n");
        let new = path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, path)).expect("written");
    }

    /// Reads a report, if the sender has ended.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = fs::read_to_string(path).ok()?;
        let mut lines = text.lines();
        let mut line = || lines.next().expect("a line");
        let list = |text: &str| -> Vec<u64> {
            text.split_whitespace().map(|word| word.parse().expect("a number")).collect()
        };
        Some(Self {
            sent: line().parse().expect("a number"),
            errno: line().parse().expect("a number"),
            noticed: line().parse().expect("a number"),
            suspected: line().parse().expect("a number"),
            in_doubt: list(line()),
            unsent: list(line()),
        })
    }
}

/// Receives until it is killed. Writes each message's number to the file before the message is
/// acknowledged.
pub(crate) fn receive(path: &Path, log: &Path, pause: Duration) {
    let mut mailbox = Mailbox::bind(path).expect("a mailbox");
    let mut log = File::options().append(true).create(true).open(log).expect("a log");
    loop {
        let message = mailbox.recv().expect("a message");
        assert!(message[8..].iter().all(|byte| *byte == 0x5a), "a message was changed");
        log.write_all(&message[..8]).expect("logged");
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
}

/// Returns the numbers of the messages that receivers have logged.
pub(crate) fn received(log: &Path) -> Vec<u64> {
    let bytes = fs::read(log).unwrap_or_default();
    bytes.chunks_exact(8).map(number).collect()
}

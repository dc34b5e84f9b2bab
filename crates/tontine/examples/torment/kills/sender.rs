//! A sender of a round: [`run`].

#![allow(unsafe_code, reason = "exec and _exit")]

use std::time::{Duration, Instant};

use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::{OnDeath, Sender};

use super::super::common::{Random, connect, is_readable};
use super::super::message::MessageHeader;
use super::super::slice::MAX_PAUSE;
use super::super::{wire, worker};
use super::Round;
use super::board::{ReceivingProgress, WorkerOrder};

/// Maximum number of messages per lane.
const MAX_MESSAGES: u64 = 20_000;

/// Sends over one lane after the other until it is asked to end.
pub(super) fn run(round: &Round<'_>, index: usize, seed: u64) {
    Life::register().expect("the main thread");
    let mut random = Random(seed | 1);
    while !round.board.is_stopped() && !round.board.is_full() {
        let modes = [OnDeath::Fail, OnDeath::WaitForSuccessor, OnDeath::WaitThroughRestarts];
        let on_death = wire::pick(&mut random, &modes);
        let first = 1 << (12 + random.below(4));
        let options =
            round.options(&mut random).on_death(on_death).first_chunk(first.min(round.cap));
        let sender = connect(&options, &round.path);
        let lane = round.board.next_lane(index);
        let mut lane_sender = SenderWorker {
            round,
            index,
            lane,
            on_death,
            sender,
            random: Random(random.next() | 1),
            sent: 0,
        };
        if lane_sender.play() {
            return;
        }
    }
}

/// Replaces the program of this process with `sleep`.
pub(super) fn exec_sleep() {
    let arguments = [c"sleep".as_ptr(), c"20".as_ptr(), std::ptr::null()];
    // SAFETY: the list and its strings are terminated.
    unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
    panic!("exec failed: {}", std::io::Error::last_os_error());
}

struct SenderWorker<'a> {
    round: &'a Round<'a>,
    index: usize,
    lane: usize,
    on_death: OnDeath,
    sender: Sender,
    random: Random,
    sent: u64,
}

impl SenderWorker<'_> {
    /// Runs one lane. Returns `true` if the process was asked to end.
    fn play(&mut self) -> bool {
        let count = self.random.below(MAX_MESSAGES);
        let mut last = Instant::now();
        while self.sent < count && !self.round.board.is_stopped() {
            if let Some(order) = self.round.board.take_order(self.index) {
                if self.obey(order) {
                    return true;
                }
                continue;
            }
            match self.step() {
                Ok(()) => last = Instant::now(),
                Err(Error::WouldBlock | Error::TimedOut) if last.elapsed() < MAX_PAUSE => {}
                Err(Error::WouldBlock | Error::TimedOut) => {
                    let lane = self.lane;
                    let text = format!("lane {lane} had no free space in {MAX_PAUSE:?}");
                    self.round.violate(&text);
                    return true;
                }
                Err(error) => {
                    self.take_back(&error);
                    return false;
                }
            }
            worker::add(self.round.board.progress(self.index), 1);
        }
        let mut progress = ReceivingProgress::new();
        let read = loop {
            let read = self.sender.wait_acked(Some(Duration::from_secs(1)));
            if read != Err(Error::TimedOut) || progress.has_paused(self.round.board) {
                break read;
            }
        };
        match read {
            Ok(()) => self.round.board.note_finished(self.lane),
            Err(Error::TimedOut) => {
                let (lane, sent) = (self.lane, self.sent);
                let text = format!(
                    "expected all {sent} messages of lane {lane} to be read, found a pause"
                );
                self.round.violate(&text);
            }
            Err(error) => self.take_back(&error),
        }
        worker::add(self.round.board.progress(self.index), 1);
        false
    }

    /// Makes one call.
    fn step(&mut self) -> tontine::Result<()> {
        let most = self.sender.max_message_len();
        let most = match self.random.below(20) {
            0 => most,
            1..4 => most.min(4_000),
            _ => most.min(300),
        };
        let len = self.random.below(most as u64 + 1) as usize;
        let message = MessageHeader { sender: self.lane as u64, incarnation: 0, number: self.sent }
            .encode(len);
        let timeout = Duration::from_millis(self.random.below(100));
        match self.random.below(40) {
            0..20 => self.sender.send_timeout(&message, timeout)?,
            20..26 => self.sender.try_send(&message)?,
            // The call waits without a timeout, and returns when a receiver reads or ends.
            26..29 => self.sender.send(&message)?,
            29..34 => {
                let mut space = self.sender.try_reserve(message.len())?;
                space.copy_from_slice(&message);
                space.commit()?;
            }
            34 => {
                // A reservation that is dropped sends nothing.
                return self.sender.try_reserve(message.len()).map(|_| ());
            }
            35 => return self.sender.service(),
            36 => {
                if self.sender.arm(message.len())? {
                    is_readable(&self.sender, timeout);
                }
                return self.sender.try_send(&message).map(|()| self.count());
            }
            37 => {
                // The sleep is long enough for the receiver to request memory back from the lane.
                std::thread::sleep(Duration::from_millis(self.random.below(30)));
                return self.sender.service();
            }
            _ => {
                std::thread::sleep(Duration::from_micros(self.random.below(3_000)));
                return Ok(());
            }
        }
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        self.sent += 1;
        self.round.board.note_sent(self.lane, self.sent);
    }

    /// Checks the error that ended the lane, and takes back the unacknowledged messages.
    fn take_back(&mut self, error: &Error) {
        let (board, lane) = (self.round.board, self.lane);
        let allowed = match error {
            Error::OwnerDied { .. } => self.on_death == OnDeath::Fail,
            Error::Closed { peer } => {
                let closed = peer.pid.is_none_or(|pid| board.has_closed(pid));
                closed && self.on_death != OnDeath::WaitThroughRestarts
            }
            _ => false,
        };
        self.round.check(allowed, || {
            format!("expected no such end of lane {lane} ({:?}), found {error}", self.on_death)
        });
        let again = self.sender.try_send(b"late").err().map(|error| error.errno());
        self.round.check(again == Some(error.errno()), || {
            format!("expected send to fail again with {error}, found {again:?}")
        });
        let unread = match self.sender.take_unread() {
            Ok(unread) => unread,
            Err(error) => {
                let text = format!("expected the unread messages of lane {lane}, found {error}");
                return self.round.violate(&text);
            }
        };
        let first = self.sent.saturating_sub(unread.len() as u64);
        let decode = |bytes: &Vec<u8>| MessageHeader::decode(bytes).map(|found| found.number);
        let numbers: Result<Vec<u64>, String> = unread.iter().map(decode).collect();
        let expected: Vec<u64> = (first..self.sent).collect();
        self.round.check(numbers.as_ref() == Ok(&expected), || {
            format!(
                "expected unread messages up to {} of lane {lane}, found {numbers:?}",
                self.sent
            )
        });
        let (taken, acknowledged) = (board.taken(lane), board.acknowledged(lane));
        self.round.check((acknowledged..=taken).contains(&first), || {
            format!(
                "expected unread of lane {lane} to begin between {acknowledged} and {taken}, \
                 found {first}"
            )
        });
    }

    /// Carries out a command. Returns `true` if the process must end.
    fn obey(&mut self, order: WorkerOrder) -> bool {
        match order {
            WorkerOrder::Exec => {
                self.round.board.note_executed(self.index);
                exec_sleep();
            }
            // SAFETY: the call terminates this process without dropping values.
            WorkerOrder::Exit => unsafe { libc::_exit(0) },
            WorkerOrder::Close | WorkerOrder::Panic => {}
            WorkerOrder::Fork => {
                if self.random.below(2) == 0 {
                    worker::leave_child(Duration::from_millis(300));
                    return false;
                }
                let child = worker::fork(|| {
                    let found = self.sender.try_send(b"from a child");
                    self.round.check(found == Err(Error::Forked), || {
                        format!("expected a forked child to get Error::Forked, found {found:?}")
                    });
                });
                let status = worker::reap(child, MAX_PAUSE);
                let what = "a sender's forked child";
                self.round.slice.check_exit(self.round.case, status, what);
                return false;
            }
        }
        true
    }
}

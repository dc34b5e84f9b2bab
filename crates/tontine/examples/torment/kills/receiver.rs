//! A receiver of a round: [`run`].

#![allow(unsafe_code, reason = "_exit, and messages read in place")]

use std::time::{Duration, Instant};

use tontine::Error;
use tontine::life::Life;
use tontine::mailbox::Mailbox;

use super::super::common::{Random, is_readable};
use super::super::message::MessageHeader;
use super::super::slice::MAX_PAUSE;
use super::super::worker;
use super::Round;
use super::board::{FLUSHER, WorkerOrder};

/// Binds the path, as the successor of its last owner, and receives until it is asked to end.
pub(super) fn run(round: &Round<'_>, index: usize, seed: u64) {
    Life::register().expect("the main thread");
    round.board.note_pid(index, std::process::id());
    let mut random = Random(seed | 1);
    let options = round
        .options(&mut random)
        .mailbox_cap(round.cap * 64)
        .shrink_after(Duration::from_millis(random.below(20)));
    let until = Instant::now() + MAX_PAUSE;
    let mailbox = loop {
        match options.bind(&round.path) {
            Ok(mailbox) => break mailbox,
            // The previous process may still be dying.
            Err(Error::AddrInUse { .. }) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(200));
            }
            Err(error) => {
                return round.violate(&format!("expected the next owner to bind, found {error}"));
            }
        }
        worker::add(round.board.progress(index), 1);
    };
    let mut receiver = ReceiverWorker { round, index, mailbox, random, pending: None };
    loop {
        worker::add(round.board.progress(index), 1);
        if let Some(end) = receiver.obey() {
            return receiver.end(end);
        }
        receiver.receive();
    }
}

/// Lane and number of a message.
type MessageName = (u64, u64);

struct ReceiverWorker<'a> {
    round: &'a Round<'a>,
    index: usize,
    mailbox: Mailbox,
    random: Random,
    /// The message that the next call acknowledges.
    pending: Option<MessageName>,
}

impl ReceiverWorker<'_> {
    /// Carries out the pending command, or returns it if it requests the end.
    fn obey(&mut self) -> Option<WorkerOrder> {
        let order = self.round.board.take_order(self.index)?;
        if order != WorkerOrder::Fork {
            return Some(order);
        }
        let touches = self.random.below(2) == 0;
        if !touches {
            worker::leave_child(Duration::from_millis(300));
            return None;
        }
        let child = worker::fork(|| {
            let found = self.mailbox.try_recv().map(drop);
            self.round.check(found == Err(Error::Forked), || {
                format!("expected a forked child to get Error::Forked, found {found:?}")
            });
            self.mailbox.ack();
        });
        let status = worker::reap(child, MAX_PAUSE);
        self.round.slice.check_exit(self.round.case, status, "a receiver's forked child");
        None
    }

    fn end(mut self, order: WorkerOrder) {
        match order {
            WorkerOrder::Exec => {
                self.round.board.note_executed(self.index);
                super::sender::exec_sleep();
            }
            WorkerOrder::Panic => {
                self.round.board.note_closed(self.index);
                // The panic unwinds without the panic hook, because it is not a violation.
                let mailbox = self.mailbox;
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _mailbox = mailbox;
                    std::panic::resume_unwind(Box::new("planned"));
                }));
            }
            WorkerOrder::Close => {
                self.round.board.note_closed(self.index);
                if self.random.below(2) == 0 {
                    self.mailbox.requeue();
                    self.pending = None;
                }
                drop(self.mailbox);
                if let Some((lane, number)) = self.pending {
                    self.round.board.acknowledge(lane, number);
                }
            }
            WorkerOrder::Exit | WorkerOrder::Fork => {
                // SAFETY: the call terminates this process without dropping values.
                unsafe { libc::_exit(0) }
            }
        }
    }

    fn receive(&mut self) {
        let stopped = self.round.board.is_stopped();
        let timeout = Duration::from_millis(1 + self.random.below(50));
        let result = match self.random.below(if stopped { 4 } else { 12 }) {
            0..4 => self.mailbox.recv_timeout(timeout).map(|message| decode(&message)),
            4..6 => self.mailbox.try_recv().map(|message| decode(&message)),
            6 => self.arm_and_wait(timeout),
            7 => self.mailbox.recv().map(|message| decode(&message)),
            8 | 9 => {
                // SAFETY: the senders of a round use the library.
                unsafe { self.mailbox.recv_in_place() }.map(|message| decode(&message))
            }
            _ => return self.receive_batch(),
        };
        match result {
            Ok(message) => self.note(message),
            Err(Error::TimedOut | Error::WouldBlock) => {
                self.note_acknowledged();
                if stopped && self.mailbox.sender_count() == 0 {
                    worker::set(self.round.board.idle(self.index), 1);
                }
            }
            Err(error) => self.round.violate(&format!("expected a message, found {error}")),
        }
        if self.random.below(20) == 0
            && let Some((lane, number)) = self.pending.take()
        {
            if self.random.below(2) == 0 {
                self.mailbox.requeue();
                self.round.board.put_back(lane, number);
            } else {
                self.mailbox.ack();
                self.round.board.acknowledge(lane, number);
            }
        }
        for fault in self.mailbox.take_errors() {
            self.round.violate(&format!("expected no fault of honest senders, found {fault}"));
        }
        if self.random.below(100) == 0 {
            std::thread::sleep(Duration::from_micros(self.random.below(4_000)));
        }
    }

    fn arm_and_wait(
        &mut self,
        timeout: Duration,
    ) -> tontine::Result<Result<MessageHeader, String>> {
        if self.mailbox.arm()? {
            is_readable(&self.mailbox, timeout);
        }
        self.mailbox.try_recv().map(|message| decode(&message))
    }

    fn receive_batch(&mut self) {
        let (round, index) = (self.round, self.index);
        let pending = self.pending.take();
        let mut seen = Vec::new();
        let most = 1 + self.random.below(40) as usize;
        let count = self.mailbox.recv_batch(most, |message| {
            // This closure is called after the previous message was acknowledged.
            if let Some((lane, number)) = pending.filter(|_| seen.is_empty()) {
                round.board.acknowledge(lane, number);
            }
            match decode(message) {
                Ok(message) if message.sender != FLUSHER => {
                    match round.board.take(index, message.sender, message.number) {
                        Ok(()) => seen.push((message.sender, message.number)),
                        Err(text) => round.violate(&text),
                    }
                }
                Ok(_) => {}
                Err(text) => round.violate(&text),
            }
        });
        round.check(count.is_ok(), || format!("expected a batch, found {count:?}"));
        for (lane, number) in seen {
            round.board.acknowledge(lane, number);
        }
    }

    /// Records that the call acknowledged the previous message.
    fn note_acknowledged(&mut self) {
        if let Some((lane, number)) = self.pending.take() {
            self.round.board.acknowledge(lane, number);
        }
    }

    fn note(&mut self, message: Result<MessageHeader, String>) {
        self.note_acknowledged();
        match message {
            Ok(MessageHeader { sender: FLUSHER, .. }) => {}
            Ok(message) => {
                // The sleep simulates work. A kill during the sleep must leave the message
                // unacknowledged.
                if self.random.below(30) == 0 {
                    std::thread::sleep(Duration::from_micros(self.random.below(3_000)));
                }
                match self.round.board.take(self.index, message.sender, message.number) {
                    Ok(()) => self.pending = Some((message.sender, message.number)),
                    Err(text) => self.round.violate(&text),
                }
            }
            Err(text) => self.round.violate(&text),
        }
    }
}

fn decode(bytes: &[u8]) -> Result<MessageHeader, String> {
    MessageHeader::decode(bytes)
}

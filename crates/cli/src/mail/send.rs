//! `tontine send`: sends the messages of standard input.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tontine::Error;
use tontine::mailbox::{Address, OnDeath, Options, Sender};
use tontine_command::{CommandFailure, print};

use super::framing::{DefectKind, InputDefect, MessageBuffer, NextMessage, append};
use super::{POLL_INTERVAL, address, refuse};
use crate::args::{Framing, Send};

/// Interval between two checks of the receiver while there are unread messages, if no notification
/// of its end arrives.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Sends all messages, then waits until they are acknowledged.
pub(crate) fn send(args: &Send) -> Result<ExitCode, CommandFailure> {
    let address = address(&args.address)?;
    let &Send { wait, timeout, .. } = args;
    let sender = connect(&address, wait, timeout)?;
    let framing = args.framing.get();
    let mut input = MessageBuffer::new(framing, sender.max_message_len());
    let at_hand = VecDeque::new();
    let mut lane = ReconnectingSender { sender, address, wait, timeout, at_hand };
    let done = lane.send_all(&mut input).and_then(|()| lane.finish());
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(SendFailure::Gone(error)) => Err(lane.give_up(args, &error, input)?),
        Err(SendFailure::Defect(defect)) => Err(lane.refuse_input(framing, &defect)),
        Err(SendFailure::Input(errno)) => Err(CommandFailure::failed(format!(
            "cannot read standard input: {errno}; the rest was not sent"
        ))),
        Err(SendFailure::Other(refusal)) => Err(refusal),
    }
}

/// The reason why not all messages were sent.
enum SendFailure {
    /// The receiver has died or has closed its mailbox, or a gateway does not reach a mailbox.
    Gone(Error),
    Defect(InputDefect),
    Input(Errno),
    Other(CommandFailure),
}

/// A sender that connects to the next receiver when a receiver has ended, if `--wait` was given.
struct ReconnectingSender {
    sender: Sender,
    address: Address,
    wait: bool,
    timeout: Option<Duration>,
    /// Messages, from standard input or taken back from a receiver, that are not sent yet.
    at_hand: VecDeque<Vec<u8>>,
}

impl ReconnectingSender {
    fn send_all(&mut self, input: &mut MessageBuffer) -> Result<(), SendFailure> {
        loop {
            match input.next().map_err(SendFailure::Defect)? {
                NextMessage::Message(message) => {
                    if let Err(error) = send_one(&mut self.sender, message, self.timeout) {
                        self.at_hand.push_back(message.to_vec());
                        self.outlive(error)?;
                    }
                }
                NextMessage::More => {
                    self.attend()?;
                    input.read(io::stdin()).map_err(SendFailure::Input)?;
                }
                NextMessage::End => return Ok(()),
            }
        }
    }

    /// Waits for standard input, and serves the lane during the wait.
    fn attend(&mut self) -> Result<(), SendFailure> {
        loop {
            if let Err(error) = self.sender.service() {
                if !is_absent(&error) && is_gone(&error) && self.nothing_is_left()? {
                    // If no message follows, the receiver has finished its work.
                    return wait_for(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], None);
                }
                self.outlive(error)?;
            }
            let longest = (self.sender.unread_bytes() > 0).then_some(RECHECK_INTERVAL);
            let stdin = io::stdin();
            let mut polled =
                [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.sender, PollFlags::IN)];
            wait_for(&mut polled, longest)?;
            if !polled[0].revents().is_empty() {
                return Ok(());
            }
            if polled[1].revents().contains(PollFlags::HUP) {
                // After the hang-up the socket stays readable. Until a successor starts, only the
                // input can change.
                wait_for(&mut polled[..1], Some(POLL_INTERVAL))?;
            }
        }
    }

    /// Waits until the receiver has acknowledged every message.
    fn finish(&mut self) -> Result<(), SendFailure> {
        loop {
            match self.sender.wait_acked(self.timeout) {
                Ok(()) => return Ok(()),
                Err(error) if is_gone(&error) && self.nothing_is_left()? => return Ok(()),
                Err(error) => self.outlive(error)?,
            }
        }
    }

    /// Returns `true` if the receiver read all messages before it ended, which is not an error.
    fn nothing_is_left(&mut self) -> Result<bool, SendFailure> {
        let unread = self.sender.take_unread().map_err(|error| self.failed(error))?;
        self.at_hand.extend(unread);
        Ok(self.at_hand.is_empty())
    }

    /// Connects to the next receiver with all unread messages, if `--wait` was given.
    fn outlive(&mut self, mut error: Error) -> Result<(), SendFailure> {
        loop {
            // Gateways wait for the receiver of an exported mailbox. If they refuse a sender with
            // `--wait`, the mailbox is not exported, and another attempt fails like this one.
            if !self.wait || !is_gone(&error) || is_absent(&error) {
                return Err(self.failed(error));
            }
            let unread = self.sender.take_unread().map_err(|error| self.failed(error))?;
            for message in unread.into_iter().rev() {
                self.at_hand.push_front(message);
            }
            self.sender = connect(&self.address, true, self.timeout).map_err(SendFailure::Other)?;
            match self.send_at_hand() {
                Ok(()) => return Ok(()),
                Err(another) => error = another,
            }
        }
    }

    fn send_at_hand(&mut self) -> Result<(), Error> {
        while let Some(message) = self.at_hand.front() {
            send_one(&mut self.sender, message, self.timeout)?;
            self.at_hand.pop_front();
        }
        Ok(())
    }

    /// Reports the fate of the messages that no receiver acknowledged, and for which the sender
    /// does not wait.
    fn give_up(
        &mut self,
        args: &Send,
        gone: &Error,
        mut input: MessageBuffer,
    ) -> io::Result<CommandFailure> {
        let who = match gone {
            Error::OwnerDied { peer } => format!("{peer} died"),
            Error::Closed { peer } => format!("{peer} closed its mailbox"),
            Error::NoMailbox { .. } => format!(
                "no receiver runs behind {}, or the other host has no export of that name",
                self.address
            ),
            other => other.to_string(),
        };
        let mut left: VecDeque<Vec<u8>> = self.sender.take_unread().unwrap_or_default().into();
        left.append(&mut self.at_hand);
        // These messages were already read from standard input.
        while let Ok(NextMessage::Message(message)) = input.next() {
            left.push_back(message.to_vec());
        }
        let absent = is_absent(gone);
        if left.is_empty() {
            let remedy = match absent {
                true => "start the receiver there, or add it to [exports]",
                false => "start a receiver, or use --wait",
            };
            return Ok(CommandFailure::failed(format!(
                "{who}; the rest of standard input was not sent; {remedy}"
            )));
        }
        let count = messages(left.len());
        if !args.unread {
            return Ok(CommandFailure::failed(match absent {
                true => format!(
                    "{who}; no receiver got {count}: start the receiver there, or add it to \
                     [exports], and send again"
                ),
                false => format!(
                    "{who}; it did not acknowledge {count}; with --wait the next receiver gets \
                     them, --unread prints them"
                ),
            }));
        }
        let mut text = Vec::new();
        for message in &left {
            append(args.framing.get(), message, &mut text);
        }
        print(&text)?;
        Ok(CommandFailure::failed(format!(
            "{who}; see standard output for {count} that no receiver acknowledged"
        )))
    }

    /// Returns the error for messages that were not acknowledged within the timeout. The owner of
    /// the mailbox lives, but may be a gateway, whose receiver may have ended.
    fn timed_out(&self, timeout: Duration) -> CommandFailure {
        let address = &self.address;
        let owner = match self.sender.owner() {
            Some(owner) => owner.to_string(),
            None => "another process".into(),
        };
        CommandFailure::failed(if self.sender.is_suspected() {
            format!(
                "the receiver behind {address} has not acknowledged everything within \
                 {timeout:?}; its host does not answer the gateway ({owner}), which passes the \
                 rest on when it does: raise --timeout, or see the peer in tontine bridge status"
            )
        } else {
            format!(
                "the receiver at {address} has not acknowledged everything within {timeout:?}; \
                 {owner} owns the mailbox, as the receiver or as a gateway to one, and the rest \
                 may still arrive: raise --timeout, or see what the receiver is doing"
            )
        })
    }

    /// Returns the error for input that is not sent.
    fn refuse_input(&self, framing: Framing, defect: &InputDefect) -> CommandFailure {
        let what = if framing == Framing::Line { "line" } else { "message" };
        let address = &self.address;
        let reason = match &defect.kind {
            DefectKind::TooLong { length, longest } => format!(
                "expected at most {longest} bytes, the maximum of a message to {address}, found \
                 {}; it and the rest were not sent: shorten it{}",
                length.map_or("more".into(), |length| length.to_string()),
                match framing {
                    Framing::Length => ", or check that each message begins with its length",
                    _ => "",
                }
            ),
            DefectKind::NoLength { found } => format!(
                "expected its length in 4 bytes, found {found} and then the end; it was not sent: \
                 check the program that writes it"
            ),
            DefectKind::Truncated { expected, found } => format!(
                "expected {expected} bytes, found {found} and then the end; it was not sent: check \
                 the program that writes it"
            ),
        };
        CommandFailure::failed(format!("{what} {} of standard input: {reason}", defect.number))
    }

    fn failed(&self, error: Error) -> SendFailure {
        match (&error, self.timeout) {
            (Error::TimedOut, Some(timeout)) => SendFailure::Other(self.timed_out(timeout)),
            _ if is_gone(&error) => SendFailure::Gone(error),
            _ => SendFailure::Other(refuse(&self.address, &error)),
        }
    }
}

/// Sends a message; with a timeout, waits at most that long for space.
fn send_one(sender: &mut Sender, message: &[u8], timeout: Option<Duration>) -> Result<(), Error> {
    match timeout {
        Some(timeout) => sender.send_timeout(message, timeout),
        None => sender.send(message),
    }
}

/// Returns "1 message" or "3 messages".
fn messages(count: usize) -> String {
    format!("{count} message{}", if count == 1 { "" } else { "s" })
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::OwnerDied { .. } | Error::Closed { .. }) || is_absent(error)
}

/// Returns `true` if a gateway has refused the sender because it reaches no mailbox.
fn is_absent(error: &Error) -> bool {
    matches!(error, Error::NoMailbox { .. })
}

/// Connects to the receiver at the address. With `wait`, waits for a receiver if there is none, at
/// most for the timeout.
fn connect(to: &Address, wait: bool, timeout: Option<Duration>) -> Result<Sender, CommandFailure> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let on_death = if wait { OnDeath::WaitForSuccessor } else { OnDeath::Fail };
    let options = Options::new().on_death(on_death);
    loop {
        match options.connect(to) {
            Ok(sender) => return Ok(sender),
            Err(Error::NoMailbox { .. }) if is_something_else(to) => {
                return Err(CommandFailure::failed(format!(
                    "expected a mailbox at {to}, found another file; name another path"
                )));
            }
            Err(Error::NoMailbox { .. })
                if wait && deadline.is_none_or(|deadline| Instant::now() < deadline) =>
            {
                thread::sleep(POLL_INTERVAL);
            }
            Err(error) => return Err(refuse(to, &error)),
        }
    }
}

/// Returns `true` if the address is a path to a file that no mailbox replaces.
fn is_something_else(address: &Address) -> bool {
    let path = address.to_string();
    std::fs::metadata(path).is_ok_and(|there| !there.file_type().is_socket())
}

fn wait_for(polled: &mut [PollFd<'_>], longest: Option<Duration>) -> Result<(), SendFailure> {
    let timeout = longest.map(|longest| Timespec {
        tv_sec: longest.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    });
    match poll(polled, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(SendFailure::Input(errno)),
    }
}

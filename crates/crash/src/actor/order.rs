//! The protocol between the explorer and its workers, one line per [`WorkerCommand`] or
//! [`WorkerReply`].

use std::fmt;
use std::str::FromStr;

use crate::message::MessageCheck;
use crate::subject::QueueEnd;

/// A command from the explorer to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerCommand {
    /// `true` if marks frame the command.
    pub marked: bool,
    /// The action to carry out.
    pub act: CommandKind,
}

/// An action of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// Create the resources that both ends need.
    Create,
    /// Open this end.
    Open(QueueEnd),
    /// Send the message with this number.
    Send(u32),
    /// Receive one message, without a timeout.
    Receive,
    /// Receive until a given message has arrived, and then until no other message arrives.
    Drain {
        /// Number of that message.
        until: u32,
        /// Length of a pause without a message that ends the command.
        quiet_ms: u64,
    },
    /// Take back the messages that a dead receiver did not read.
    Unread,
    /// Look for the successor of a dead receiver, and hand over to it.
    LookForSuccessor,
    /// Close this worker's end, or leave the heap.
    Close,
    /// An action on a heap.
    Heap(HeapAct),
}

/// An action on a heap. A block is identified by the number that it is filled with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapAct {
    /// Join the heap.
    Join,
    /// Allocate a block, and fill it.
    Allocate {
        /// Number to fill the block with.
        number: u32,
        /// Length of the block.
        bytes: usize,
    },
    /// Allocate and fill blocks until the heap is full.
    Fill {
        /// Number of the first block.
        first: u32,
        /// Length of each block.
        bytes: usize,
    },
    /// Free the block with this number.
    Free(u32),
    /// Free all blocks.
    Empty,
    /// Learn how to reach the member with this process id.
    Meet(u32),
    /// Hand a block over to another member.
    HandOver {
        /// Number of the block.
        number: u32,
        /// Process id of the receiving member.
        to: u32,
    },
    /// Accept a block that was handed over.
    Accept,
    /// Accept all blocks that were handed over.
    AcceptAll,
    /// Free blocks that were in flight to or from dead members.
    Settle,
    /// Recover dead members.
    Tend,
    /// Check every block that this member has.
    Look,
    /// Check the whole heap; report the bytes in use and the bytes that could be returned.
    Check,
}

impl HeapAct {
    /// Returns the command for this action, without marks.
    pub fn plain(self) -> WorkerCommand {
        CommandKind::Heap(self).plain()
    }
}

impl fmt::Display for HeapAct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Join => f.write_str("join"),
            Self::Allocate { number, bytes } => write!(f, "allocate {number} {bytes}"),
            Self::Fill { first, bytes } => write!(f, "fill {first} {bytes}"),
            Self::Free(number) => write!(f, "free {number}"),
            Self::Empty => f.write_str("empty"),
            Self::Meet(pid) => write!(f, "meet {pid}"),
            Self::HandOver { number, to } => write!(f, "hand-over {number} {to}"),
            Self::Accept => f.write_str("accept"),
            Self::AcceptAll => f.write_str("accept-all"),
            Self::Settle => f.write_str("settle"),
            Self::Tend => f.write_str("tend"),
            Self::Look => f.write_str("look"),
            Self::Check => f.write_str("check"),
        }
    }
}

impl FromStr for HeapAct {
    type Err = InvalidLine;

    fn from_str(text: &str) -> Result<Self, InvalidLine> {
        let garbled = || InvalidLine(text.to_owned());
        let number = |word: &str| word.parse().map_err(|_| garbled());
        let bytes = |word: &str| word.parse().map_err(|_| garbled());
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["join"] => Self::Join,
            ["allocate", of, long] => Self::Allocate { number: number(of)?, bytes: bytes(long)? },
            ["fill", first, long] => Self::Fill { first: number(first)?, bytes: bytes(long)? },
            ["free", of] => Self::Free(number(of)?),
            ["empty"] => Self::Empty,
            ["meet", pid] => Self::Meet(number(pid)?),
            ["hand-over", of, to] => Self::HandOver { number: number(of)?, to: number(to)? },
            ["accept"] => Self::Accept,
            ["accept-all"] => Self::AcceptAll,
            ["settle"] => Self::Settle,
            ["tend"] => Self::Tend,
            ["look"] => Self::Look,
            ["check"] => Self::Check,
            _ => return Err(garbled()),
        })
    }
}

impl CommandKind {
    /// Returns the command for this action, without marks.
    pub fn plain(self) -> WorkerCommand {
        WorkerCommand { marked: false, act: self }
    }

    /// Returns the command for this action, between marks.
    pub fn marked(self) -> WorkerCommand {
        WorkerCommand { marked: true, act: self }
    }
}

impl fmt::Display for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.marked {
            f.write_str(MARKED)?;
        }
        match self.act {
            CommandKind::Create => f.write_str("create"),
            CommandKind::Open(end) => write!(f, "open {end}"),
            CommandKind::Send(number) => write!(f, "send {number}"),
            CommandKind::Receive => f.write_str("receive"),
            CommandKind::Drain { until, quiet_ms } => write!(f, "drain {until} {quiet_ms}"),
            CommandKind::Unread => f.write_str("unread"),
            CommandKind::LookForSuccessor => f.write_str("look-for-successor"),
            CommandKind::Close => f.write_str("close"),
            CommandKind::Heap(act) => act.fmt(f),
        }
    }
}

const MARKED: &str = "marked ";

/// A line that is neither a command nor a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a command or a reply, found '{0}'")]
pub struct InvalidLine(String);

impl FromStr for WorkerCommand {
    type Err = InvalidLine;

    fn from_str(line: &str) -> Result<Self, InvalidLine> {
        let garbled = || InvalidLine(line.to_owned());
        let plain = line.strip_prefix(MARKED);
        let words: Vec<&str> = plain.unwrap_or(line).split_whitespace().collect();
        let act = match words[..] {
            ["create"] => CommandKind::Create,
            ["open", "sender"] => CommandKind::Open(QueueEnd::Sender),
            ["open", "receiver"] => CommandKind::Open(QueueEnd::Receiver),
            ["send", number] => CommandKind::Send(number.parse().map_err(|_| garbled())?),
            ["receive"] => CommandKind::Receive,
            ["drain", until, quiet_ms] => CommandKind::Drain {
                until: until.parse().map_err(|_| garbled())?,
                quiet_ms: quiet_ms.parse().map_err(|_| garbled())?,
            },
            ["unread"] => CommandKind::Unread,
            ["look-for-successor"] => CommandKind::LookForSuccessor,
            ["close"] => CommandKind::Close,
            _ => CommandKind::Heap(plain.unwrap_or(line).parse()?),
        };
        Ok(Self { marked: plain.is_some(), act })
    }
}

/// The reply of a worker to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerReply {
    /// The command succeeded. Contains the messages if the command receives.
    Done(Vec<MessageCheck>),
    /// The mechanism returned an error.
    Refused(String),
    /// The machine lacks something that the mechanism needs.
    Lacking(String),
    /// The command succeeded, but the check found a fault.
    Faulty(String),
}

impl fmt::Display for WorkerReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(seen) => {
                f.write_str("done")?;
                seen.iter().try_for_each(|one| write!(f, " {one}"))
            }
            Self::Refused(why) => write!(f, "refused {}", why.replace('\n', "; ")),
            Self::Lacking(why) => write!(f, "lacking {}", why.replace('\n', "; ")),
            Self::Faulty(what) => write!(f, "faulty {}", what.replace('\n', "; ")),
        }
    }
}

impl FromStr for WorkerReply {
    type Err = InvalidLine;

    fn from_str(line: &str) -> Result<Self, InvalidLine> {
        let garbled = || InvalidLine(line.to_owned());
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "done" => {
                let seen = rest.split_whitespace().map(str::parse);
                seen.collect::<Result<_, _>>().map(Self::Done).map_err(|_| garbled())
            }
            "refused" => Ok(Self::Refused(rest.to_owned())),
            "lacking" => Ok(Self::Lacking(rest.to_owned())),
            "faulty" => Ok(Self::Faulty(rest.to_owned())),
            _ => Err(garbled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_command_and_reply_round_trip_through_text() {
        for act in [
            CommandKind::Create,
            CommandKind::Open(QueueEnd::Sender),
            CommandKind::Open(QueueEnd::Receiver),
            CommandKind::Send(7),
            CommandKind::Receive,
            CommandKind::Drain { until: 3, quiet_ms: 10 },
            CommandKind::Unread,
            CommandKind::LookForSuccessor,
            CommandKind::Close,
            CommandKind::Heap(HeapAct::Join),
            CommandKind::Heap(HeapAct::Allocate { number: 3, bytes: 4_096 }),
            CommandKind::Heap(HeapAct::Fill { first: 3, bytes: 4_096 }),
            CommandKind::Heap(HeapAct::Free(3)),
            CommandKind::Heap(HeapAct::Empty),
            CommandKind::Heap(HeapAct::Meet(77)),
            CommandKind::Heap(HeapAct::HandOver { number: 3, to: 77 }),
            CommandKind::Heap(HeapAct::Accept),
            CommandKind::Heap(HeapAct::AcceptAll),
            CommandKind::Heap(HeapAct::Settle),
            CommandKind::Heap(HeapAct::Tend),
            CommandKind::Heap(HeapAct::Look),
            CommandKind::Heap(HeapAct::Check),
        ] {
            for order in [act.plain(), act.marked()] {
                assert_eq!(order.to_string().parse(), Ok(order));
            }
        }
        for reply in [
            WorkerReply::Done(Vec::new()),
            WorkerReply::Done(vec![MessageCheck::Whole(1), MessageCheck::Torn]),
            WorkerReply::Refused("Broken pipe (os error 32)".into()),
            WorkerReply::Lacking("Function not implemented (os error 38)".into()),
            WorkerReply::Faulty("a slab is part of a block that is not there".into()),
        ] {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
        assert!("sends 3".parse::<WorkerCommand>().is_err());
        assert!("done 1 two".parse::<WorkerReply>().is_err());
    }
}

//! The protocol between the explorer and its workers, one line per [`WorkerCommand`] or
//! [`WorkerReply`]. Boost's workers read and write the same lines.

use std::fmt;
use std::str::FromStr;

use crate::message::MessageCheck;
use crate::subject::QueueEnd;

/// A command from the explorer to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerCommand {
    /// `true` if marks frame the command.
    pub marked: bool,
    pub act: CommandKind,
}

/// Defines commands: each with its word, which its arguments follow in the line. A line without
/// such a word is parsed as the type of the last variant.
macro_rules! commands {
    (
        $(#[$about:meta])*
        $name:ident {
            $(
                $(#[$doc:meta])*
                $word:literal: $command:ident
                    $(($only:ident: $kind:ty))? $({ $($field:ident: $type:ty),* })?,
            )*
        }
        $($rest:ident($other:ty))?
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $command $(($kind))? $({ $($field: $type),* })?,)*
            $($rest($other),)?
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$command $(($only))? $({ $($field),* })? => {
                        f.write_str($word)?;
                        $(write!(f, " {}", $only)?;)?
                        $($(write!(f, " {}", $field)?;)*)?
                        Ok(())
                    })*
                    $(Self::$rest(other) => <$other as fmt::Display>::fmt(other, f),)?
                }
            }
        }

        impl FromStr for $name {
            type Err = InvalidLine;

            fn from_str(line: &str) -> Result<Self, InvalidLine> {
                let words: Vec<&str> = line.split_whitespace().collect();
                match words[..] {
                    $([$word $(, $only)? $($(, $field)*)?] => Ok(Self::$command
                        $((parsed($only, line)?))? $({ $($field: parsed($field, line)?),* })?),)*
                    $(_ => line.parse::<$other>().map(Self::$rest),)?
                    #[allow(unreachable_patterns, reason = "the last variant parses the rest")]
                    _ => Err(InvalidLine(line.to_owned())),
                }
            }
        }
    };
}

/// Parses a word of `line`.
fn parsed<T: FromStr>(word: &str, line: &str) -> Result<T, InvalidLine> {
    word.parse().map_err(|_| InvalidLine(line.to_owned()))
}

/// A line that is neither a command nor a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a command or a reply, found '{0}'")]
pub struct InvalidLine(String);

commands! {
    CommandKind {
        /// Create the resources that both ends need.
        "create": Create,
        "open": Open(end: QueueEnd),
        /// Send the message with this number.
        "send": Send(number: u32),
        /// Receive one message, without a timeout.
        "receive": Receive,
        /// Receive until the message `until` has arrived, and then until no other message arrives
        /// for `quiet_ms` milliseconds.
        "drain": Drain { until: u32, quiet_ms: u64 },
        /// Take back the messages that a dead receiver did not read.
        "unread": Unread,
        /// Look for the successor of a dead receiver, and hand over to it.
        "look-for-successor": LookForSuccessor,
        /// Close this worker's end, or leave the heap.
        "close": Close,
    }
    Heap(HeapAct)
}

commands! {
    /// An action on a heap. A block is identified by the number that it is filled with.
    HeapAct {
        "join": Join,
        /// Allocate a block, and fill it.
        "allocate": Allocate { number: u32, bytes: usize },
        /// Allocate and fill blocks until the heap is full.
        "fill": Fill { first: u32, bytes: usize },
        /// Free the block with this number.
        "free": Free(number: u32),
        "empty": Empty,
        /// Learn how to reach the member with this process id.
        "meet": Meet(pid: u32),
        /// Hand a block over to another member.
        "hand-over": HandOver { number: u32, to: u32 },
        /// Accept a block that was handed over.
        "accept": Accept,
        /// Accept all blocks that were handed over.
        "accept-all": AcceptAll,
        /// Free blocks that were in flight to or from dead members.
        "settle": Settle,
        "tend": Tend,
        /// Check every block that this member has.
        "look": Look,
        /// Check the whole heap; report the bytes in use and the bytes that could be returned.
        "check": Check,
    }
}

impl HeapAct {
    /// Returns the command for this action, without marks.
    pub fn plain(self) -> WorkerCommand {
        CommandKind::Heap(self).plain()
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

const MARKED: &str = "marked ";

impl fmt::Display for WorkerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.marked { MARKED } else { "" }, self.act)
    }
}

impl FromStr for WorkerCommand {
    type Err = InvalidLine;

    fn from_str(line: &str) -> Result<Self, InvalidLine> {
        let plain = line.strip_prefix(MARKED);
        Ok(Self { marked: plain.is_some(), act: plain.unwrap_or(line).parse()? })
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
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "done" => {
                let seen = rest.split_whitespace().map(|word| parsed(word, line));
                seen.collect::<Result<_, _>>().map(Self::Done)
            }
            "refused" => Ok(Self::Refused(rest.to_owned())),
            "lacking" => Ok(Self::Lacking(rest.to_owned())),
            "faulty" => Ok(Self::Faulty(rest.to_owned())),
            _ => Err(InvalidLine(line.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_command_and_reply_round_trip_through_text() {
        for (act, line) in [
            (CommandKind::Create, "create"),
            (CommandKind::Open(QueueEnd::Sender), "open sender"),
            (CommandKind::Open(QueueEnd::Receiver), "open receiver"),
            (CommandKind::Drain { until: 3, quiet_ms: 10 }, "drain 3 10"),
            (CommandKind::Heap(HeapAct::Join), "join"),
            (CommandKind::Heap(HeapAct::Free(3)), "free 3"),
            (CommandKind::Heap(HeapAct::HandOver { number: 3, to: 77 }), "hand-over 3 77"),
        ] {
            assert_eq!((act.plain().to_string(), line.parse()), (line.into(), Ok(act.plain())));
            let marked = format!("marked {line}");
            assert_eq!((act.marked().to_string(), marked.parse()), (marked, Ok(act.marked())));
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

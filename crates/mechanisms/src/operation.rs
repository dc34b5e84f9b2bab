//! The operations at one end of a mechanism during which the explorer kills: [`Operation`],
//! [`QueueEnd`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of the two ends of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueEnd {
    /// The end that sends.
    Sender,
    /// The end that receives.
    Receiver,
}

impl fmt::Display for QueueEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

/// An operation during which a process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A receiver opens its end.
    Bind,
    /// A sender opens its end.
    Connect,
    /// A sender sends while there is free space.
    Send,
    /// A sender sends to a receiver that sleeps until a message arrives.
    SendWaking,
    /// A sender sends into a full queue, which grows.
    Grow,
    /// A sender sends into a full queue, waits, and continues when there is free space.
    SendFull,
    /// A receiver receives while a message is present.
    Receive,
    /// A receiver receives from a full queue while a sender sleeps until there is free space.
    ReceiveWaking,
    /// A receiver receives from an empty queue, waits, and continues when a message arrives.
    ReceiveEmpty,
    /// A sender closes its end.
    Close,
    /// A process joins a heap.
    Join,
    /// A member allocates a block while a free block of this size is available.
    Allocate,
    /// A member allocates the first block of a size.
    AllocateSlab,
    /// A member allocates a block for which one slab is too small.
    AllocateLarge,
    /// A member frees a block that it has allocated.
    Free,
    /// A member frees a block that another member has allocated.
    FreeRemote,
    /// A member returns empty memory to the system.
    GiveBack,
    /// A member hands a block over to another member.
    HandOver,
    /// A member accepts a block that another member has handed over.
    Accept,
    /// A member recovers a dead member.
    Recover,
    /// A member leaves.
    Leave,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 21] = [
        Self::Bind,
        Self::Connect,
        Self::Send,
        Self::SendWaking,
        Self::Grow,
        Self::SendFull,
        Self::Receive,
        Self::ReceiveWaking,
        Self::ReceiveEmpty,
        Self::Close,
        Self::Join,
        Self::Allocate,
        Self::AllocateSlab,
        Self::AllocateLarge,
        Self::Free,
        Self::FreeRemote,
        Self::GiveBack,
        Self::HandOver,
        Self::Accept,
        Self::Recover,
        Self::Leave,
    ];

    /// The operations on a ring that both ends have mapped.
    pub const OF_A_RING: [Self; 7] = [
        Self::Send,
        Self::SendWaking,
        Self::SendFull,
        Self::Receive,
        Self::ReceiveWaking,
        Self::ReceiveEmpty,
        Self::Close,
    ];

    /// The operations on a queue of fixed size that is opened by name.
    pub const OF_A_BOUNDED_QUEUE: [Self; 8] = [
        Self::Connect,
        Self::Send,
        Self::SendWaking,
        Self::SendFull,
        Self::Receive,
        Self::ReceiveWaking,
        Self::ReceiveEmpty,
        Self::Close,
    ];

    /// The operations on a heap whose members hand blocks over and recover dead members.
    pub const OF_A_HEAP: [Self; 11] = [
        Self::Join,
        Self::Allocate,
        Self::AllocateSlab,
        Self::AllocateLarge,
        Self::Free,
        Self::FreeRemote,
        Self::GiveBack,
        Self::HandOver,
        Self::Accept,
        Self::Recover,
        Self::Leave,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Connect => "connect",
            Self::Send => "send",
            Self::SendWaking => "send-waking",
            Self::Grow => "grow",
            Self::SendFull => "send-full",
            Self::Receive => "receive",
            Self::ReceiveWaking => "receive-waking",
            Self::ReceiveEmpty => "receive-empty",
            Self::Close => "close",
            Self::Join => "join",
            Self::Allocate => "allocate",
            Self::AllocateSlab => "allocate-slab",
            Self::AllocateLarge => "allocate-large",
            Self::Free => "free",
            Self::FreeRemote => "free-remote",
            Self::GiveBack => "give-back",
            Self::HandOver => "hand-over",
            Self::Accept => "accept",
            Self::Recover => "recover",
            Self::Leave => "leave",
        }
    }

    /// Returns the victim's end of a queue, or `None` for a heap.
    pub fn end(self) -> Option<QueueEnd> {
        match self {
            Self::Bind | Self::Receive | Self::ReceiveWaking | Self::ReceiveEmpty => {
                Some(QueueEnd::Receiver)
            }
            Self::Connect
            | Self::Send
            | Self::SendWaking
            | Self::Grow
            | Self::SendFull
            | Self::Close => Some(QueueEnd::Sender),
            _ => None,
        }
    }
}

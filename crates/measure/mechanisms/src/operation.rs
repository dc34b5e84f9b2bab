//! The operations at one end of a mechanism during which the explorer kills: [`Operation`],
//! [`QueueEnd`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueEnd {
    Sender,
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

impl FromStr for QueueEnd {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        let mut both = [Self::Sender, Self::Receiver].into_iter();
        both.find(|end| end.to_string() == word).ok_or(())
    }
}

/// Defines the operations: each with its name, and the victim's end of a queue or `None` for a
/// heap.
macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident: $name:literal, $end:expr;)*) => {
        /// An operation during which a process is killed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Operation {
            $($(#[$doc])* $operation,)*
        }

        impl Operation {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$operation),*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$operation => $name,)*
                }
            }

            /// Returns the victim's end of a queue, or `None` for a heap.
            pub fn end(self) -> Option<QueueEnd> {
                match self {
                    $(Self::$operation => $end,)*
                }
            }
        }
    };
}

const SENDER: Option<QueueEnd> = Some(QueueEnd::Sender);
const RECEIVER: Option<QueueEnd> = Some(QueueEnd::Receiver);

operations! {
    Bind: "bind", RECEIVER;
    Connect: "connect", SENDER;
    /// A sender sends while there is free space.
    Send: "send", SENDER;
    /// A sender sends to a receiver that sleeps until a message arrives.
    SendWaking: "send-waking", SENDER;
    /// A sender sends into a full queue, which grows.
    Grow: "grow", SENDER;
    /// A sender sends into a full queue, waits, and continues when there is free space.
    SendFull: "send-full", SENDER;
    /// A receiver receives while a message is present.
    Receive: "receive", RECEIVER;
    /// A receiver receives from a full queue while a sender sleeps until there is free space.
    ReceiveWaking: "receive-waking", RECEIVER;
    /// A receiver receives from an empty queue, waits, and continues when a message arrives.
    ReceiveEmpty: "receive-empty", RECEIVER;
    /// A sender closes its end.
    Close: "close", SENDER;
    Join: "join", None;
    /// A member allocates a block while a free block of this size is available.
    Allocate: "allocate", None;
    /// A member allocates the first block of a size.
    AllocateSlab: "allocate-slab", None;
    /// A member allocates a block for which one slab is too small.
    AllocateLarge: "allocate-large", None;
    /// A member frees a block that it has allocated.
    Free: "free", None;
    /// A member frees a block that another member has allocated.
    FreeRemote: "free-remote", None;
    /// A member returns empty memory to the system.
    GiveBack: "give-back", None;
    /// A member hands a block over to another member.
    HandOver: "hand-over", None;
    /// A member accepts a block that another member has handed over.
    Accept: "accept", None;
    /// A member recovers a dead member.
    Recover: "recover", None;
    Leave: "leave", None;
}

impl Operation {
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
}

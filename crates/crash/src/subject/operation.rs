//! What the victim is killed in: [`Operation`].

use serde::{Deserialize, Serialize};

use super::End;

/// What the victim is killed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A receiver opens its end.
    Bind,
    /// A sender opens its end.
    Connect,
    /// A sender sends; there is room.
    Send,
    /// A sender sends; the receiver sleeps until something comes.
    SendWaking,
    /// A sender sends into a full queue, which grows.
    Grow,
    /// A sender sends into a full queue, waits, and goes on when there is room.
    SendFull,
    /// A receiver receives; a message is there.
    Receive,
    /// A receiver receives from a full queue; a sender sleeps until there is room.
    ReceiveWaking,
    /// A receiver receives from an empty queue, waits, and goes on when a message comes.
    ReceiveEmpty,
    /// A sender closes its end.
    Close,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 10] = [
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
    ];

    /// What can happen at a ring that both ends have mapped.
    pub const OF_A_RING: [Self; 7] = [
        Self::Send,
        Self::SendWaking,
        Self::SendFull,
        Self::Receive,
        Self::ReceiveWaking,
        Self::ReceiveEmpty,
        Self::Close,
    ];

    /// What can happen at a queue of fixed size that has a name to be opened by.
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

    /// Its name on the command line.
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
        }
    }

    /// The end at which the victim is.
    pub fn end(self) -> End {
        match self {
            Self::Bind | Self::Receive | Self::ReceiveWaking | Self::ReceiveEmpty => End::Receiver,
            Self::Connect
            | Self::Send
            | Self::SendWaking
            | Self::Grow
            | Self::SendFull
            | Self::Close => End::Sender,
        }
    }
}

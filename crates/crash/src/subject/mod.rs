//! The mechanisms that come under the knife: [`Subject`], and the registry ([`all`], [`find`]).
//!
//! A subject knows how to make and to open the two ends of one mechanism; it knows nothing of
//! tracing, scripts and verdicts ([`crate::explore`]). Three roles: Tontine's own mailbox, whose
//! failure is ours; *peers*, whose failure is a finding; *controls*, broken on purpose, which show
//! that the explorer finds what is there. Controls run only where they are named.

mod boost;
mod controls;
#[cfg(feature = "peers")]
mod iceoryx;
mod mailbox;
mod pipe;
mod posix_mq;
mod region;
mod ring;
mod robust_ring;
mod semaphore_ring;
#[cfg(feature = "peers")]
mod zeromq;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::Message;
use crate::place::Place;
use crate::trouble::Result;

/// One mechanism that carries messages from a sender to a receiver.
pub trait Subject: Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it is, in one line.
    fn summary(&self) -> &'static str;

    /// What its failure means.
    fn role(&self) -> Role {
        Role::Peer
    }

    /// What has to be known to read its row fairly: what it never promised. Empty where nothing.
    fn caveat(&self) -> &'static str {
        ""
    }

    /// What comes under the knife, in the order of the report.
    fn operations(&self) -> &'static [Operation];

    /// What the process that takes over from the victim of `operation` does first, and may die in.
    fn succession(&self, operation: Operation) -> Option<Operation> {
        let _ = operation;
        None
    }

    /// Whether killing the successor, too, in all its classes takes longer than everything else, so
    /// that it is left out unless `operation` is asked for by name.
    fn is_long_succession(&self, operation: Operation) -> bool {
        let _ = operation;
        false
    }

    /// Messages that an empty queue takes before the next `send` waits, or grows the queue.
    fn capacity(&self) -> u32;

    /// Messages that have to be taken out of a full queue before a waiting `send` goes on.
    fn makes_room(&self) -> u32 {
        1
    }

    /// How long a survivor may take for one answer: longer where the mechanism has time-outs of its
    /// own, after which it does get on.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// How long threads of its own may take to come to rest once nothing is asked of it any more.
    fn settles(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a message may come again that a dead receiver had received: at least once.
    fn delivers_again(&self) -> bool {
        false
    }

    /// Whether a sender outlives its receiver and hands what is unread over to the next one, for
    /// which it looks when asked to.
    fn hands_over(&self) -> bool {
        false
    }

    /// Makes ready what all runs share, once, in the explorer.
    ///
    /// # Errors
    /// Skipped, where the machine lacks something.
    fn prepare(&self) -> Result<Prepared> {
        Ok(Prepared::default())
    }

    /// Makes what both ends need, once a run, in an actor.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn create(&self, place: &Place) -> io::Result<()> {
        let _ = place;
        Ok(())
    }

    /// Opens one end, in an actor.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn open(&self, place: &Place, end: End) -> io::Result<Box<dyn Endpoint>>;
}

/// Many thousand times what an operation takes.
const PATIENCE: Duration = Duration::from_millis(600);

/// An open end. Dropped, it is closed.
pub trait Endpoint {
    /// Sends; waits for room.
    ///
    /// # Errors
    /// Those of the mechanism, such as a reader that is gone.
    fn send(&mut self, message: &Message) -> io::Result<()>;

    /// Receives one message and returns its length; `None` where none came in time.
    ///
    /// # Errors
    /// Those of the mechanism.
    fn receive(&mut self, into: &mut Message, wait: Wait) -> io::Result<Option<usize>>;

    /// Takes back what a dead reader did not read, where the mechanism can.
    fn unread(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Looks whether somebody has taken a dead reader's place, and hands over to it.
    ///
    /// # Errors
    /// Those of the mechanism; that there is nobody yet is none.
    fn look_for_successor(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long to wait for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Until one comes.
    Ever,
    /// No longer than this.
    AtMost(Duration),
}

impl Wait {
    /// Its end as POSIX wants it: on the real-time clock; `None` where it has none.
    fn deadline(self) -> Option<libc::timespec> {
        let Self::AtMost(wait) = self else {
            return None;
        };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or(0));
        let end = now + wait;
        Some(libc::timespec {
            tv_sec: end.as_secs().cast_signed(),
            tv_nsec: libc::c_long::from(end.subsec_nanos()),
        })
    }
}

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The one that sends.
    Sender,
    /// The one that receives.
    Receiver,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        })
    }
}

/// What a subject's failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Tontine's own: it must not happen.
    Own,
    /// A finding.
    Peer,
    /// The explorer works.
    Control,
}

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

/// What [`Subject::prepare`] made; it goes when dropped.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The program that serves as this subject's actor, in place of the explorer's own.
    pub program: Option<PathBuf>,
    /// Where that program lies.
    pub folder: Option<tempfile::TempDir>,
}

/// All subjects, in the order of the report.
pub fn all() -> &'static [&'static dyn Subject] {
    &[
        &mailbox::FAILING,
        &mailbox::WAITING,
        &pipe::Pipe,
        &posix_mq::PosixMq,
        &semaphore_ring::SemaphoreRing,
        &robust_ring::RobustRing,
        &boost::MessageQueue,
        #[cfg(feature = "peers")]
        &zeromq::PushPull,
        #[cfg(feature = "peers")]
        &iceoryx::PublishSubscribe,
        &controls::LockWord,
        &controls::PublishedFirst,
        &controls::Cleared,
    ]
}

/// The subject with this name.
pub fn find(name: &str) -> Option<&'static dyn Subject> {
    all().iter().copied().find(|subject| subject.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_subject_has_operations() {
        for (at, subject) in all().iter().enumerate() {
            assert!(all()[..at].iter().all(|other| other.name() != subject.name()));
            assert!(!subject.operations().is_empty() && subject.capacity() > 3);
            assert!(!subject.summary().is_empty());
        }
    }
}

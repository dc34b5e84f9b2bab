//! Messages from many processes to one that survive `kill -9`: [`Mailbox`] receives, [`Sender`]
//! sends.
//!
//! Each sender appends its messages to memory that it alone may write, and the receiver
//! acknowledges them in memory that it alone may write. The two share no lock that a killed process
//! could hold; and if the receiver dies, the messages that it did not acknowledge are still in the
//! sender's memory. To check whether its receiver is alive, a sender loads one word, which the
//! kernel marks when the receiver ends.
//!
//! # Examples
//! ```
//! use tontine::mailbox::{Mailbox, Sender};
//!
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("jobs");
//! let mut mailbox = Mailbox::bind(&path)?;
//! let mut sender = Sender::connect(&path)?; // from this or any other process
//! sender.send(b"hello")?;
//! let message = mailbox.recv()?;
//! assert_eq!(&*message, b"hello");
//! # Ok::<(), tontine::Error>(())
//! ```
//!
//! # Terms
//! - A *lane* is the one-way connection of one sender to a mailbox: memory for messages, which only
//!   the sender may write; a page for acknowledgements, which only the receiver may write; and a
//!   Unix socket. Each [`Sender`] has one lane; a mailbox has one per sender.
//! - A *chunk* is a piece of a lane's memory, a memory file of 4 KiB to 1 GiB. A lane begins with
//!   one chunk, continues in a larger one if it needs more space, and returns to a small one when
//!   it has been idle.
//! - A *record* is a message in a chunk: a header of 8 bytes, then the message, padded to a
//!   multiple of 8 bytes.
//! - A message is *unread* until it is *acknowledged*, by the receiving call after the one that
//!   returned it or by [`Mailbox::ack`]. Until then it belongs to its sender.
//! - A *cap* is the maximum total chunk size, in bytes, of one lane ([`Options::lane_cap`]; the
//!   smaller of the two ends' caps applies) or of all lanes of a mailbox
//!   ([`Options::mailbox_cap`]); both methods say what may exceed it.
//! - A *life* is the registration that shows other processes whether a process lives
//!   ([`Life`](crate::life::Life)). Opening an end of a lane registers the process.
//!
//! # Guarantees
//! - Sending to a receiver that is alive and awake makes no system call, and takes no lock.
//! - If the receiver has died, [`Sender::send`] returns
//!   [`Error::OwnerDied`](crate::Error::OwnerDied), and the unread messages are not lost:
//!   [`Sender::take_unread`] returns them, or the next owner of the address receives them
//!   ([`OnDeath`]).
//! - If a sender is dropped, or its process ends, a live receiver still receives everything that
//!   the sender had sent.
//! - A process killed at any instruction blocks no other process, and leaves each message whole or
//!   absent.
//! - The messages of one sender arrive in order; while both ends live, none is lost or delivered
//!   twice. Across a death of the receiver, delivery is *at least once*.
//! - A hostile sender cannot crash or hang the receiver, nor destroy other senders' messages. A
//!   hostile receiver cannot crash a sender, nor hang a sender whose calls have a timeout.
//!
//! # Other machines
//! With the feature `relay`, a `Relay` receives for a mailbox on another host: it reads messages
//! ahead of their acknowledgement, its program passes them on, and acknowledges them once the
//! remote owner has. Senders use it like a mailbox, and learn how the remote owner ended.
//!
//! The [mailbox guide](crate::guide::mailbox) describes the details: each kind of death, limits,
//! permissions, event loops, and how to reply.

mod address;
mod options;
mod receiver;
mod sender;
mod settings;
mod spin;
#[cfg(feature = "tokio")]
mod watched;
pub(crate) mod wire;

pub use address::Address;
pub use options::{
    AnyEnd, MailboxOptions, Options, Receives, ReceivingEnd, SenderOptions, SendingEnd, Sends,
};
#[cfg(feature = "tokio")]
pub use receiver::AsyncMailbox;
pub use receiver::{
    ActivatedSocket, HeldMessage, HoldingMailbox, InPlace, Mailbox, MailboxSet, Message, SenderId,
    Waker, activated_sockets,
};
#[cfg(feature = "relay")]
pub use receiver::{AheadRecord, Relay, RelayLane};
#[cfg(feature = "tokio")]
pub use sender::AsyncSender;
pub use sender::{Reservation, Sender, Unread, UnreadIter};
#[doc(hidden)]
pub use settings::ListenerCheck;
pub use settings::{Fences, OnDeath, Order, WaitStrategy};
#[cfg(feature = "relay")]
pub use wire::RemoteEnd;

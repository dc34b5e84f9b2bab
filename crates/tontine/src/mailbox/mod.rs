//! Messages from many processes to one that survive `kill -9`: [`Mailbox`] receives, [`Sender`]
//! sends.
//!
//! Each sender has a *lane* to the receiver: it appends messages to memory that only the sender may
//! write, and the receiver acknowledges them in memory that only the receiver may write. The two
//! share no lock, so a process that is killed holds none. A sender checks whether its receiver is
//! alive by one load of a word that the kernel marks when the receiver ends.
//!
//! # Examples
//! ```
//! use tontine::mailbox::{Mailbox, Sender};
//!
//! # fn main() -> tontine::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("jobs");
//! let mut mailbox = Mailbox::bind(&path)?;
//! let mut sender = Sender::connect(&path)?; // from this or any other process
//! sender.send(b"hello")?;
//! let message = mailbox.recv()?;
//! assert_eq!(&*message, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! - Sending to a receiver that is alive and awake makes no system call, and takes no lock.
//! - If the receiver has died, [`Sender::send`] returns
//!   [`Error::OwnerDied`](crate::Error::OwnerDied), and the messages that it did not acknowledge
//!   are still there: [`Sender::take_unread`] returns them, or the next owner of the address gets
//!   them ([`OnDeath`]).
//! - A process killed at any instruction blocks no other, and leaves each message whole or absent.
//! - The messages of one sender arrive in order; none is lost and none comes twice while both ends
//!   live. Across a death of the receiver, delivery is *at least once*.
//! - A hostile sender cannot crash or hang the receiver, nor lose other senders' messages. A
//!   hostile receiver cannot crash a sender, nor hang one whose calls have a timeout.
//!
//! The mailbox guide has the details: each kind of death, limits, permissions and event loops.

mod account;
mod address;
#[cfg(feature = "tokio")]
mod asynchronous;
mod connection;
mod door;
mod fast_path;
mod growth;
mod inbound;
mod joined;
mod lanes;
mod message;
mod options;
mod outbound;
mod pace;
mod patience;
mod receiver;
mod reservation;
mod sender;
mod service;
mod succession;
mod waiting;
mod welcome;
pub(crate) mod wire;

pub use address::Address;
#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncMailbox, AsyncSender};
pub use message::{InPlace, Message, SenderId};
pub use options::{Fences, OnDeath, Options, WaitStrategy};
pub use receiver::Mailbox;
pub use reservation::Reservation;
pub use sender::Sender;

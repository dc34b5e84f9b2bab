//! Messages from many processes to one, which survive `kill -9`: [`Mailbox`], [`Sender`].
//!
//! A sender appends to memory that it alone may write; the receiver reads it and writes down how
//! far it has come in memory that *it* alone may write. No lock is shared, so nobody who is killed
//! holds one. One load of a word that the kernel marks when a process ends shows
//! whether the receiver lives.
//!
//! ```
//! use tontine::mailbox::{Mailbox, Sender};
//!
//! # fn main() -> tontine::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("jobs");
//! let mut mailbox = Mailbox::bind(&path)?;
//! let mut sender = Sender::connect(&path)?; // from here or from any other process
//! sender.send(b"hello")?;
//! let message = mailbox.recv()?;
//! assert_eq!(&*message, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! The guarantees, in plain words, are in `docs/mailbox.md`; the shared bytes in `docs/layout.md`;
//! what is left after each death in `docs/recovery.md`. Source: seed 002, which set out to build
//! such a queue.

mod account;
mod address;
#[cfg(feature = "tokio")]
mod asynchronous;
mod connection;
mod door;
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
pub use options::{Fences, OnDeath, Options, Waiting};
pub use receiver::Mailbox;
pub use reservation::Reservation;
pub use sender::Sender;

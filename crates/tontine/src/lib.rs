//! Communication between the processes of one Linux machine: messages, shared memory and signals
//! that survive `kill -9` of any process at any instruction.
//!
//! ```
//! use tontine::mailbox::{Mailbox, Sender};
//!
//! # fn main() -> tontine::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("jobs");
//! // The receiver:
//! let mut mailbox = Mailbox::bind(&path)?;
//!
//! // Any other process (here: another thread):
//! # let address = path.clone();
//! let other = std::thread::spawn(move || {
//!     let mut sender = Sender::connect(address)?;
//!     sender.send(b"hello")
//! });
//!
//! let message = mailbox.recv()?;
//! assert_eq!(&*message, b"hello");
//! # drop(message);
//! # other.join().expect("no panic")?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`mailbox`]: messages from many processes to one, through shared memory. If the receiver dies,
//!   the next `send` fails, and the sender takes its unread messages back or hands them to the
//!   receiver's successor. Neither end trusts the other.
//! - [`heap`]: memory by the block that several processes share. A block can be freed in another
//!   process than the one that allocated it, and the blocks of a dead process are recovered. The
//!   processes of one heap trust each other.
//! - [`life`]: liveness of processes. The kernel marks a word of shared memory when its owner ends;
//!   reading it costs one load.
//! - [`signal`]: signals as values, blocked in every thread and taken in one place.
//! - [`Error`], [`Peer`]: what can fail, and which process caused it.
//!
//! Requires Linux 5.10 or later on a 64-bit machine. Two processes that talk to each other use the
//! same version of the shared layout; the handshake checks it.
//!
//! The feature `tokio` adds `mailbox::AsyncMailbox`, `mailbox::AsyncSender` and
//! `signal::SignalStream`.
//!
//! Floors, from the bottom up: `error`, `sync`; `sys`; `lane`, `life`; `mailbox`; `heap`, `signal`;
//! `layout`, `fuzzing`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "models need no more than words and lanes")
)]

#[cfg(not(loom))]
mod error;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(loom))]
pub mod heap;
/// Of the heap, what its models need.
#[cfg(loom)]
mod heap {
    mod shared {
        #[cfg(test)]
        mod models;
        mod word;
    }
}
mod lane;
#[cfg(all(test, not(loom)))]
mod layout;
#[cfg(not(loom))]
pub mod life;
#[cfg(not(loom))]
pub mod mailbox;
#[cfg(not(loom))]
pub mod signal;
mod sync;
#[cfg(not(loom))]
mod sys;

#[cfg(not(loom))]
pub use error::{Error, Peer, Result};

/// The programs in the guides compile.
#[cfg(all(doctest, not(loom)))]
mod guides {
    #[doc = include_str!("../../../docs/mailbox.md")]
    mod mailbox {}
    #[doc = include_str!("../../../docs/heap.md")]
    mod heap {}
    #[doc = include_str!("../../../docs/signal.md")]
    mod signal {}
    #[doc = include_str!("../../../docs/coming-from.md")]
    mod coming_from {}
}

//! Communication between the processes of one Linux machine: messages, shared memory and signals
//! that survive `kill -9` of any process at any instruction.
//!
//! - [`mailbox`]: messages from many processes to one, through shared memory. If the receiver dies,
//!   the next `send` fails, and the sender takes its unread messages back or hands them over to the
//!   receiver's successor. Neither end trusts the other.
//! - [`heap`]: memory that several processes share, allocated in blocks. Any process of the heap
//!   can free a block that another process allocated, and the blocks of a dead process are
//!   recovered. The processes of one heap trust each other.
//! - [`life`]: liveness of processes. A process registers its *life*, one word of shared memory
//!   that the kernel marks when the process ends; another process reads it with one load.
//! - [`signal`]: signals as values, blocked in every thread and received in one place.
//! - [`Error`], [`Peer`]: the possible failures, and the process that caused one.
//!
//! # Examples
//! ```
//! use tontine::mailbox::{Mailbox, Sender};
//!
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
//! # Ok::<(), tontine::Error>(())
//! ```
//!
//! Guides, with tables, limits and programs to start from, are in [`guide`]: the
//! [mailbox](guide::mailbox), the [heap](guide::heap), [signals](guide::signal), and a page for
//! users of [ZeroMQ, iceoryx2, Boost.Interprocess or Cloudtoid Interprocess](guide::coming_from).
//!
//! # Requirements
//! Linux 5.10 or later on a 64-bit machine. Two processes that communicate must use the same
//! version of the shared layout; the handshake checks the version.
//!
//! # Features
//! - `tokio` adds `mailbox::AsyncMailbox`, `mailbox::AsyncSender` and `signal::SignalStream`.
//! - `relay` adds `mailbox::Relay`, a receiver for gateways to other hosts.

// Floors, from the bottom up: `error`, `sync`; `sys`; `lane`, `life`; `mailbox`; `heap`, `signal`;
// `layout`, `fuzzing`, `guide`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    loom,
    allow(dead_code, unused_imports, reason = "loom models use only words and lanes")
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!(
    "tontine needs Linux on a 64-bit machine: it is built on robust futexes, epoll and memfd; \
     if only a part of your program needs it, depend on it under \
     `[target.'cfg(all(target_os = \"linux\", target_pointer_width = \"64\"))'.dependencies]`"
);

#[cfg(not(loom))]
mod error;
#[cfg(all(any(test, fuzzing), not(loom)))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(all(any(doc, doctest), not(loom)))]
pub mod guide;
#[cfg(not(loom))]
pub mod heap;
/// The parts of the heap that its loom models use.
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
mod layout_tests;
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

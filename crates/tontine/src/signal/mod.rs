//! Signals as values: blocked in every thread, taken in one place.
//!
//! A signal that interrupts a program may find it anywhere, with a lock in its hand. A signal that
//! a program *takes*, when it wants to, is a value like any other.
//!
//! - [`interrupted()`]: what most programs want.
//! - [`Blocked`]: blocks a [`Set`] of [`Signal`]s in this thread and in all that start later, and
//!   refuses where another thread runs with one unblocked. From there: [`Blocked::wait`] takes one
//!   here, [`Blocked::descriptor`] is readable when there is one, [`Blocked::thread`] calls a
//!   function for each, [`Blocked::channel`] queues them, [`Blocked::mailbox`] sends them to
//!   another process, and `Blocked::stream` (feature `tokio`) is awaited.
//! - [`Received`]: one signal, who sent it, with what value, and how many were merged into it.
//! - [`handler`]: for who must have a handler, with the list of what is allowed in one.
//!
//! ```
//! use tontine::signal::{Blocked, Signal};
//!
//! // First of all, in `main`: threads inherit what is blocked.
//! let blocked = Blocked::new([Signal::TERM, Signal::USR1])?;
//! let signals = blocked.channel(64)?;
//! # unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
//! let one = signals.recv()?;
//! println!("{} of pid {:?}", one.signal(), one.pid());
//! # assert_eq!(one.signal(), Signal::USR1);
//! # Ok::<(), tontine::signal::Error>(())
//! ```
//!
//! Source: seed 003 (a thread that waits by `sigwait`); `signal(7)`, `signal-safety(7)`,
//! `sigtimedwait(2)`, `signalfd(2)`, `pthread_sigmask(3)`. The guide is `docs/signal.md`.
//!
//! Neighbours: `kernel` asks the kernel, `census` looks at the other threads, `worker` is the
//! designated thread. Of the rest of the crate this uses [`crate::mailbox`], to deliver, alone.

mod blocked;
mod census;
mod channel;
mod descriptor;
mod disposition;
mod error;
pub mod handler;
mod interrupted;
mod kernel;
mod mail;
mod number;
mod parse;
mod received;
mod set;
#[cfg(feature = "tokio")]
mod stream;
mod worker;

pub use blocked::Blocked;
pub use channel::Channel;
pub use descriptor::Descriptor;
pub use error::{Error, Result};
pub use interrupted::{Interrupted, interrupted};
pub use number::Signal;
pub use received::{Child, Received};
pub use set::Set;
#[cfg(feature = "tokio")]
pub use stream::Stream;
pub use worker::Thread;

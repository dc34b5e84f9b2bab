//! Signals as values: every thread blocks them, one place takes them. [`Blocked`] is the key type.
//!
//! A signal handler may interrupt a program between any two instructions, for example while a
//! thread holds a lock. A signal that the program *takes*, at a point of its choice, is an ordinary
//! value.
//!
//! - [`interrupted()`] is what most programs need: has the program been asked to end?
//! - [`Blocked`] blocks a [`SignalSet`] of [`Signal`]s in this thread and in all that start later,
//!   and fails if another thread runs with one of them unblocked. It has six ways to take them:
//!   [`Blocked::wait`] in the calling thread, [`Blocked::signal_fd`] through a descriptor,
//!   [`Blocked::thread`] by a function, [`Blocked::channel`] through a queue, [`Blocked::mailbox`]
//!   in another process, and `Blocked::stream` (feature `tokio`) in an async task.
//! - [`SignalInfo`] is one signal that was taken: its sender, the sender's value, and how many more
//!   signals it stands for.
//! - [`handler`] is for programs that must have a handler, with the list of what one may do.
//! - [`SignalError`] is the error of all of these.
//!
//! ```
//! use tontine::signal::{Blocked, Signal};
//!
//! // First in `main`: threads inherit the signal mask.
//! let blocked = Blocked::new([Signal::TERM, Signal::USR1])?;
//! let signals = blocked.channel(64)?;
//! # unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
//! let info = signals.recv()?;
//! println!("{} of pid {:?}", info.signal(), info.pid());
//! # assert_eq!(info.signal(), Signal::USR1);
//! # Ok::<(), tontine::signal::SignalError>(())
//! ```
//!
//! Sources: `signal(7)`, `signal-safety(7)`, `pthread_sigmask(3)`, `sigwait(3)` (a thread that
//! waits for signals), `sigtimedwait(2)`, `signalfd(2)`.
//!
//! Neighbours: `kernel` makes the system calls, `thread_masks` reads the masks of the other
//! threads, `thread` is the thread that takes signals. Of the rest of the crate this module uses
//! [`crate::mailbox`] alone, to deliver.

mod blocked;
mod channel;
mod disposition;
mod error;
mod fd;
pub mod handler;
mod info;
mod interrupted;
mod kernel;
mod mail;
mod number;
mod parse;
mod set;
#[cfg(feature = "tokio")]
mod stream;
mod thread;
mod thread_masks;

pub use blocked::Blocked;
pub use channel::SignalChannel;
pub use error::SignalError;
pub use fd::SignalFd;
pub use info::{ChildStatus, SignalInfo};
pub use interrupted::{Interrupted, interrupted};
pub use number::Signal;
pub use set::SignalSet;
#[cfg(feature = "tokio")]
pub use stream::SignalStream;
pub use thread::SignalThread;

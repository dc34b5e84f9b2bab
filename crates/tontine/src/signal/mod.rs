//! Signals as values: every thread blocks them, and one place takes them. The key type is
//! [`Blocked`].
//!
//! A signal handler may interrupt a program between any two instructions, for example while a
//! thread holds a lock. A signal that every thread *blocks* stays pending instead, and the program
//! *takes* it, at a point of its choice, as an ordinary value.
//!
//! - [`interrupted()`] suffices for most programs: it reports whether SIGINT or SIGTERM has
//!   requested the program's termination.
//! - [`Blocked`] blocks a [`SignalSet`] of [`Signal`]s in this thread and in all threads that start
//!   later, and fails if another thread runs with one of the signals unblocked. There are six ways
//!   to take the signals: [`Blocked::wait`] in the calling thread, [`Blocked::signal_fd`] through a
//!   descriptor, [`Blocked::thread`] in a callback, [`Blocked::channel`] through a queue,
//!   [`Blocked::mailbox`] in another process, and `Blocked::stream` (feature `tokio`) in an async
//!   task.
//! - [`SignalInfo`] is one signal that was taken: its sender, the sender's value, and how many more
//!   signals it represents.
//! - [`handler`] is for programs that must install a handler. It lists what a handler may do.
//! - [`SignalError`] is the error type of this module.
//!
//! # Examples
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
//! # Terms
//! - A *standard* signal (1 to 31, such as SIGTERM) is pending at most once: if it is sent again
//!   before it is taken, the kernel *coalesces* the two.
//! - A *real-time* signal (`SIGRTMIN` and above, [`Signal::realtime`]) is queued each time it is
//!   sent.
//! - The *disposition* of a signal determines what the kernel does when it delivers the signal. The
//!   kernel takes the default action, such as terminating the process, does nothing, or calls the
//!   program's handler.

// `kernel` makes the system calls, `thread_masks` reads the masks of the other threads, and
// `thread` runs the thread that takes signals. The only other part of the crate that this module
// uses is `crate::mailbox`, to deliver signals.
//
// Sources: `signal(7)`, `signal-safety(7)`, `pthread_sigmask(3)`, `sigwait(3)` (a thread that waits
// for signals), `sigtimedwait(2)`, `signalfd(2)`.

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

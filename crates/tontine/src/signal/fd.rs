//! Signals through a descriptor, for an event loop: [`SignalFd`].

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::error::SignalError;
use super::kernel::{self, RawSet};
use super::{SignalInfo, SignalSet};

/// A signalfd: a descriptor that is readable while a signal of the set is pending.
/// [`Blocked::signal_fd`](super::Blocked::signal_fd) returns it, close-on-exec and nonblocking.
///
/// A read returns signals pending for the reading thread or its process, so a forked child reads
/// its own signals. An `epoll` set reports the signals of the process that registered the
/// descriptor.
///
/// # Examples
/// ```no_run
/// use rustix::event::{PollFd, PollFlags, poll};
/// use tontine::signal::{Blocked, Signal};
///
/// let blocked = Blocked::new([Signal::TERM, Signal::CHLD])?;
/// let signals = blocked.signal_fd()?;
/// poll(&mut [PollFd::new(&signals, PollFlags::IN)], None)?;
/// while let Some(info) = signals.read_signal()? {
///     println!("{}", info.signal());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: `signalfd(2)`.
#[derive(Debug)]
pub struct SignalFd<'a> {
    fd: OwnedFd,
    /// Borrows the [`Blocked`](super::Blocked): the signals must stay blocked.
    _blocked: PhantomData<&'a ()>,
}

impl SignalFd<'_> {
    pub(super) fn new(set: SignalSet) -> Result<Self, SignalError> {
        Ok(Self { fd: RawSet::of(set).signal_fd()?, _blocked: PhantomData })
    }

    /// Takes one pending signal, without blocking. Returns `None` if none is pending.
    ///
    /// # Errors
    /// [`SignalError::System`] if `read(2)` fails.
    ///
    /// # Examples
    /// ```
    /// use tontine::signal::{Blocked, Signal};
    ///
    /// let blocked = Blocked::new(Signal::USR1)?;
    /// let signals = blocked.signal_fd()?;
    /// assert_eq!(signals.read_signal()?, None);
    /// # unsafe { libc::raise(libc::SIGUSR1) };
    /// // … another process sends SIGUSR1 …
    /// assert!(signals.read_signal()?.is_some_and(|info| info.signal() == Signal::USR1));
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn read_signal(&self) -> Result<Option<SignalInfo>, SignalError> {
        kernel::read_signal(self.fd.as_fd())
    }
}

/// Returns the descriptor, readable while a signal of the set is pending.
impl AsFd for SignalFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for SignalFd<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

//! Signals as a descriptor, for a loop that waits for descriptors: [`Descriptor`].

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use super::error::Result;
use super::kernel::{self, Raw};
use super::{Received, Set};

/// A signalfd: readable while a signal of the set is pending. Close-on-exec and nonblocking.
///
/// It reads for whoever reads: a thread its own signals and the process's, and a forked child that
/// child's. One that waits for it by `epoll` is told of signals of the process that registered it.
///
/// ```no_run
/// use rustix::event::{PollFd, PollFlags, poll};
/// use tontine::signal::{Blocked, Signal};
///
/// let blocked = Blocked::new([Signal::TERM, Signal::CHLD])?;
/// let signals = blocked.descriptor()?;
/// poll(&mut [PollFd::new(&signals, PollFlags::IN)], None)?;
/// while let Some(one) = signals.take()? {
///     println!("{}", one.signal());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Source: `signalfd(2)`.
#[derive(Debug)]
pub struct Descriptor<'a> {
    descriptor: OwnedFd,
    /// Its signals must stay blocked.
    _blocked: PhantomData<&'a ()>,
}

impl Descriptor<'_> {
    pub(super) fn new(set: Set) -> Result<Self> {
        Ok(Self { descriptor: Raw::of(set).descriptor()?, _blocked: PhantomData })
    }

    /// Takes one, without waiting; none where none is pending.
    ///
    /// # Errors
    /// [`Error::System`](super::Error::System).
    pub fn take(&self) -> Result<Option<Received>> {
        kernel::read(self.descriptor.as_fd())
    }
}

impl AsFd for Descriptor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Descriptor<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

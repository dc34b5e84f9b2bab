//! Ending a run early and cleanly: [`Stop`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A wish to stop, and a descriptor that becomes readable when it comes.
#[derive(Debug)]
pub struct Stop {
    readable: UnixStream,
    /// What the handlers write to; held here so that `readable` never reports a hang-up.
    writer: UnixStream,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// A wish that never comes.
    ///
    /// # Errors
    /// Where the system has no descriptor left.
    pub fn never() -> io::Result<Self> {
        let (readable, writer) = UnixStream::pair()?;
        Ok(Self { readable, writer, signal: Arc::new(AtomicUsize::new(0)) })
    }

    /// A wish that comes with SIGINT, SIGTERM or SIGHUP.
    ///
    /// # Errors
    /// Where the system has no descriptor left or refuses a handler.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::never()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The flag comes first: whoever is woken by the pipe must find it set.
            let number = usize::try_from(signal).expect("signal numbers are positive");
            signal_hook::flag::register_usize(signal, Arc::clone(&stop.signal), number)?;
            signal_hook::low_level::pipe::register(signal, stop.writer.try_clone()?)?;
        }
        Ok(stop)
    }

    /// Whether the wish has come.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that brought it.
    pub fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

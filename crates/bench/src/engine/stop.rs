//! Ending a run early and cleanly: [`Stop`].
#![allow(unsafe_code, reason = "asks the system whether a signal is ignored")]

use std::io;
use std::mem::MaybeUninit;
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

    /// The signals that ask for an end: SIGINT, SIGTERM, and SIGHUP unless it is ignored, as under
    /// nohup(1): that says that the program is to outlive its terminal.
    pub fn signals() -> impl Iterator<Item = i32> {
        let hangs_up = !is_ignored(SIGHUP);
        [SIGINT, SIGTERM].into_iter().chain(hangs_up.then_some(SIGHUP))
    }

    /// A wish that comes with one of [`Stop::signals`].
    ///
    /// # Errors
    /// Where the system has no descriptor left or refuses a handler.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::never()?;
        for signal in Self::signals() {
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

fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null pointer changes nothing; the other is valid for one `sigaction`.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: a call that succeeds has filled it in.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

//! A clean early end of a run: [`StopRequest`].
#![allow(unsafe_code, reason = "queries whether a signal is ignored")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use tontine::signal::handler::{SelfPipe, SignalFlag};
use tontine::signal::{Signal, SignalError};

/// A request to stop, and a descriptor that becomes readable when the request arrives.
///
/// Dropping it restores the previous dispositions.
#[derive(Debug)]
pub struct StopRequest {
    /// Readable if the pipe of one of `awaited` is readable. It must be dropped before the pipes,
    /// because their numbers are reused.
    readable: OwnedFd,
    awaited: Vec<AwaitedSignal>,
}

/// A signal that requests the stop.
#[derive(Debug)]
struct AwaitedSignal {
    signal: Signal,
    /// The pipe is never read, so that the descriptor stays readable.
    wake: SelfPipe,
    /// Faster to check than `wake`, but installed later, so a signal may have arrived in between.
    flag: SignalFlag,
}

impl StopRequest {
    /// Creates a request that never arrives.
    ///
    /// # Errors
    /// Returns an error if the system has no descriptor left.
    pub fn never() -> io::Result<Self> {
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { readable, awaited: Vec::new() })
    }

    /// Creates a request that arrives with SIGINT, SIGTERM or SIGHUP. A signal that is ignored
    /// stays ignored: under nohup(1) the program should outlive its terminal, and a shell ignores
    /// SIGINT for the programs that a script starts in the background.
    ///
    /// # Errors
    /// Returns an error if the system has no descriptor left or refuses a handler.
    pub fn on_signals() -> io::Result<Self> {
        let mut stop = Self::never()?;
        let signals = [Signal::INT, Signal::TERM, Signal::HUP];
        for signal in signals.into_iter().filter(|&signal| !is_ignored(signal)) {
            let awaited = AwaitedSignal::new(signal)?;
            let event = epoll::EventData::new_u64(0);
            epoll::add(&stop.readable, &awaited.wake, event, epoll::EventFlags::IN)?;
            stop.awaited.push(awaited);
        }
        Ok(stop)
    }

    /// Returns `true` if the request has arrived.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }

    /// Returns the signal that caused the request. If there are several, returns the first of
    /// SIGINT, SIGTERM, SIGHUP.
    pub fn signal(&self) -> Option<i32> {
        let flagged = self.awaited.iter().find(|awaited| awaited.flag.is_set());
        // One poll covers all signals, because a signal without a flag is rare.
        let came = flagged.or_else(|| {
            let mut awaited = self.awaited.iter();
            is_readable(&self.readable).then(|| awaited.find(|it| is_readable(&it.wake)))?
        });
        came.map(|awaited| awaited.signal.as_raw())
    }
}

impl AwaitedSignal {
    fn new(signal: Signal) -> Result<Self, SignalError> {
        let wake = SelfPipe::install(signal)?;
        let flag = SignalFlag::install(signal)?;
        Ok(Self { signal, wake, flag })
    }
}

fn is_readable(descriptor: &impl AsFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the null pointer changes nothing; the other pointer is valid for one `sigaction`.
    let result = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: a successful call has filled in the structure.
    result == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

impl AsFd for StopRequest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

//! Ending a run early and cleanly: [`Stop`].
#![allow(unsafe_code, reason = "asks the system whether a signal is ignored")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use tontine::signal::Signal;
use tontine::signal::handler::{Flag, Wake};

/// A wish to stop, and a descriptor that becomes readable when it comes.
///
/// Dropped, the signals do again what they did before.
#[derive(Debug)]
pub struct Stop {
    /// Readable if the pipe of one of `awaited` is.
    readable: OwnedFd,
    awaited: Vec<AwaitedSignal>,
}

/// One signal that brings the wish.
#[derive(Debug)]
struct AwaitedSignal {
    signal: Signal,
    /// Never taken: the descriptor stays readable.
    wake: Wake,
    /// Installed after `wake`, and so set before that is readable.
    flag: Flag,
    /// The signal came before there was a flag.
    came_early: bool,
}

impl Stop {
    /// A wish that never comes.
    ///
    /// # Errors
    /// Where the system has no descriptor left.
    pub fn never() -> io::Result<Self> {
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { readable, awaited: Vec::new() })
    }

    /// A wish that comes with SIGINT, SIGTERM, or SIGHUP unless that is ignored, as under nohup(1):
    /// it says that the program is to outlive its terminal.
    ///
    /// # Errors
    /// Where the system has no descriptor left or refuses a handler.
    pub fn on_signals() -> io::Result<Self> {
        let mut stop = Self::never()?;
        let hangs_up = !is_ignored(Signal::HUP);
        let signals =
            [Signal::INT, Signal::TERM].into_iter().chain(hangs_up.then_some(Signal::HUP));
        for signal in signals {
            let awaited = AwaitedSignal::new(signal).map_err(io::Error::other)?;
            let event = epoll::EventData::new_u64(0);
            epoll::add(&stop.readable, &awaited.wake, event, epoll::EventFlags::IN)?;
            stop.awaited.push(awaited);
        }
        Ok(stop)
    }

    /// Whether the wish has come.
    pub fn requested(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that brought it.
    pub fn signal(&self) -> Option<i32> {
        let came = self.awaited.iter().find(|awaited| awaited.came_early || awaited.flag.is_set());
        came.map(|awaited| awaited.signal.as_raw())
    }
}

impl AwaitedSignal {
    fn new(signal: Signal) -> tontine::signal::Result<Self> {
        let wake = Wake::install(signal)?;
        let flag = Flag::install(signal)?;
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let came_early = poll(&mut [PollFd::new(&wake, PollFlags::IN)], Some(&at_once)) == Ok(1);
        Ok(Self { signal, wake, flag, came_early })
    }
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null pointer changes nothing; the other is valid for one `sigaction`.
    let asked = unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: a call that succeeds has filled it in.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

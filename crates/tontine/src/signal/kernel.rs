//! What is asked of the kernel about signals: masks, taking one, a descriptor of them, a timer that
//! wakes a thread, and an end by signal.
//!
//! Neighbours: [`super::disposition`] and [`super::handler`] ask about dispositions.

#![allow(unsafe_code, reason = "signal masks, sigtimedwait, signalfd and timers have no wrapper")]

use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::error::{Error, Result};
use super::{Received, Set, Signal};

/// A set in the C library's form.
#[derive(Clone, Copy)]
pub(super) struct Raw(libc::sigset_t);

impl Raw {
    pub(super) fn of(set: Set) -> Self {
        // SAFETY: a plain C structure, which `sigemptyset` initialises; both calls write to it.
        unsafe {
            let mut raw = zeroed();
            libc::sigemptyset(&mut raw);
            for signal in set.iter() {
                libc::sigaddset(&mut raw, signal.as_raw());
            }
            Self(raw)
        }
    }

    fn set(&self) -> Set {
        let all = (1..=super::number::MOST).filter_map(Signal::from_raw);
        // SAFETY: the set is initialised.
        all.filter(|signal| unsafe { libc::sigismember(&self.0, signal.as_raw()) } == 1).collect()
    }

    /// Blocks them in the calling thread; what was blocked before.
    pub(super) fn block(&self) -> Result<Set> {
        self.change(libc::SIG_BLOCK).map(|before| before.set())
    }

    /// Unblocks them in the calling thread. Allocates nothing and locks nothing.
    pub(super) fn unblock(&self) -> Result<()> {
        self.change(libc::SIG_UNBLOCK).map(drop)
    }

    fn change(&self, how: libc::c_int) -> Result<Self> {
        // SAFETY: the set is initialised; the old mask is written to a live local, for which zero
        // is valid.
        let (code, before) = unsafe {
            let mut before = zeroed();
            (libc::pthread_sigmask(how, &self.0, &mut before), before)
        };
        match code {
            0 => Ok(Self(before)),
            code => Err(Error::system("pthread_sigmask", Errno::from_raw_os_error(code))),
        }
    }

    /// Takes one of them, in the calling thread; none where the time is over first. Without a
    /// time it waits for ever, and without an end.
    #[inline]
    pub(super) fn take(&self, timeout: Option<Duration>) -> Result<Option<Received>> {
        let until = timeout.and_then(|time| Instant::now().checked_add(time));
        let mut time = timeout.map(timespec);
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            let time_pointer = time.as_ref().map_or(null(), std::ptr::from_ref);
            // SAFETY: the set is initialised, `info` is writable, the time is null or a live local.
            let taken = unsafe { libc::sigtimedwait(&self.0, info.as_mut_ptr(), time_pointer) };
            if taken > 0 {
                // SAFETY: the call has filled it in.
                return Ok(Some(received(unsafe { info.assume_init_ref() })));
            }
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // A handler ran, or the process was stopped: on with what is left of the time.
                Some(libc::EINTR) => {
                    if let Some(until) = until {
                        time = Some(timespec(until.saturating_duration_since(Instant::now())));
                    }
                }
                _ => return Err(Error::last("sigtimedwait")),
            }
        }
    }

    /// A descriptor that is readable while one of them is pending.
    pub(super) fn descriptor(&self) -> Result<OwnedFd> {
        // SAFETY: the set is initialised; −1 asks for a new descriptor.
        let made = unsafe { libc::signalfd(-1, &self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if made < 0 {
            return Err(Error::last("signalfd"));
        }
        // SAFETY: just made, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(made) })
    }
}

/// Reads one from a descriptor made by [`Raw::descriptor`]; none where none is pending.
pub(super) fn read(descriptor: BorrowedFd<'_>) -> Result<Option<Received>> {
    let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::retry_on_intr(|| rustix::io::read(descriptor, &mut bytes)) {
        Ok(length) if length == bytes.len() => {
            let info = bytes.as_ptr().cast::<libc::signalfd_siginfo>();
            // SAFETY: plain integers, of which every pattern is valid; as many bytes.
            Ok(Some(read_received(&unsafe { info.read_unaligned() })))
        }
        Ok(_) => Err(Error::system("read of a signalfd", Errno::IO)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(Error::system("read of a signalfd", errno)),
    }
}

fn timespec(time: Duration) -> libc::timespec {
    let tv_sec = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}

#[inline]
fn received(info: &libc::siginfo_t) -> Received {
    let signal = Signal::from_raw(info.si_signo).expect("the kernel knows its signals");
    // SAFETY: plain integers in every member of the union, of which the kernel writes or clears
    // all; which of them mean something is decided where they are asked for.
    let (pid, second, value, status) = unsafe {
        let value = info.si_value().sival_ptr as usize as u64;
        (info.si_pid(), info.si_uid(), value, info.si_status())
    };
    // A timer's overrun lies where others have their user.
    let timer = info.si_code == libc::SI_TIMER;
    let child = signal == Signal::CHLD && info.si_code > 0;
    Received {
        signal,
        code: info.si_code,
        pid: pid.cast_unsigned(),
        uid: if timer { 0 } else { second },
        value: if child { 0 } else { value },
        status: if child { status } else { 0 },
        merged: if timer { second } else { 0 },
    }
}

fn read_received(info: &libc::signalfd_siginfo) -> Received {
    let signal = i32::try_from(info.ssi_signo).ok().and_then(Signal::from_raw);
    let timer = info.ssi_code == libc::SI_TIMER;
    Received {
        signal: signal.expect("the kernel knows its signals"),
        code: info.ssi_code,
        pid: if timer { info.ssi_tid } else { info.ssi_pid },
        uid: info.ssi_uid,
        value: info.ssi_ptr,
        status: info.ssi_status,
        merged: if timer { info.ssi_overrun } else { 0 },
    }
}

/// Wakes the thread that made it out of [`Raw::take`], with a signal that it finds to be this one's
/// and nobody else's.
///
/// A timer: the kernel sets its signal aside when it is made, so that it neither fails nor loses
/// its value where the user's queue is full, and is not merged with what is pending.
pub(super) struct Waker {
    timer: libc::timer_t,
    /// An address of this program: no other timer of it has this value.
    value: u64,
}

// SAFETY: a timer is a number, which any thread of the process may set and delete.
unsafe impl Send for Waker {}
// SAFETY: as above; nothing of it changes.
unsafe impl Sync for Waker {}

impl Waker {
    /// For the calling thread; `signal` must be one that it takes. None where the system refuses.
    pub(super) fn new(signal: Signal, value: *const ()) -> Option<Self> {
        // SAFETY: zero is valid for all members; the call reads the event and writes the timer.
        unsafe {
            let mut event: libc::sigevent = zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal.as_raw();
            event.sigev_value.sival_ptr = value.cast_mut().cast();
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = null_mut();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);
            (made == 0).then_some(Self { timer, value: value.addr() as u64 })
        }
    }

    /// Wakes it, now or when it next waits.
    pub(super) fn wake(&self) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 1 };
        let once = libc::itimerspec { it_interval: none, it_value: at_once };
        // SAFETY: the timer is deleted when this is dropped; `once` is a live local.
        unsafe { libc::timer_settime(self.timer, 0, &once, null_mut()) };
    }

    /// Whether this is its signal.
    #[inline]
    pub(super) fn is(&self, received: &Received) -> bool {
        received.code == libc::SI_TIMER && received.value == self.value
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // SAFETY: made by `timer_create`, deleted once. Not in a forked child, which has no timers:
        // there nobody drops it ([`super::worker`]).
        unsafe { libc::timer_delete(self.timer) };
    }
}

impl Received {
    /// Ends the program as if the signal had never been taken: with its default disposition, so
    /// that the parent sees the same as of a program that does nothing about signals.
    ///
    /// One whose default is not to end (SIGCHLD, SIGTSTP) ends it with status 128 + its number.
    /// Nothing is flushed, nothing is dropped.
    pub fn die(&self) -> ! {
        let signal = self.signal;
        // SAFETY: zero is a valid action: the default, no flags. The calls read live locals.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            if ends(signal) && libc::sigaction(signal.as_raw(), &action, null_mut()) == 0 {
                // To this thread, so that no other takes it; here before the call returns.
                let _ = Raw::of(signal.into()).unblock();
                libc::raise(signal.as_raw());
            }
            libc::_exit(128 + signal.as_raw())
        }
    }
}

/// Whether its default is to end the process.
fn ends(signal: Signal) -> bool {
    let stays = [
        Signal::CHLD,
        Signal::CONT,
        Signal::STOP,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::URG,
        Signal::WINCH,
    ];
    !stays.contains(&signal)
}

//! System calls for signals: [`RawSet`] for masks, `sigtimedwait` and signalfd; [`WakeTimer`], a
//! timer that wakes a thread; [`SignalInfo::terminate_process`], which kills the process with a
//! signal.
//!
//! Neighbours: [`super::disposition`] and [`super::handler`] make the calls for dispositions.

#![allow(unsafe_code, reason = "signal masks, sigtimedwait, signalfd and timers have no wrapper")]

use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::error::SignalError;
use super::{Signal, SignalInfo, SignalSet};

/// A [`SignalSet`] in the C library's form.
#[derive(Clone, Copy)]
pub(super) struct RawSet(libc::sigset_t);

impl RawSet {
    pub(super) fn of(set: SignalSet) -> Self {
        // SAFETY: the set is a plain C structure, which `sigemptyset` initialises; both calls write
        // to it.
        unsafe {
            let mut raw = zeroed();
            libc::sigemptyset(&mut raw);
            for signal in set.iter() {
                libc::sigaddset(&mut raw, signal.as_raw());
            }
            Self(raw)
        }
    }

    fn set(&self) -> SignalSet {
        let all = (1..=super::number::MAX_SIGNAL).filter_map(Signal::from_raw);
        // SAFETY: the set is initialised.
        all.filter(|signal| unsafe { libc::sigismember(&self.0, signal.as_raw()) } == 1).collect()
    }

    /// Blocks the signals in the calling thread. Returns the previous mask.
    pub(super) fn block(&self) -> Result<SignalSet, SignalError> {
        self.change(libc::SIG_BLOCK).map(|before| before.set())
    }

    /// Unblocks the signals in the calling thread. Neither allocates nor locks.
    pub(super) fn unblock(&self) -> Result<(), SignalError> {
        self.change(libc::SIG_UNBLOCK).map(drop)
    }

    fn change(&self, how: libc::c_int) -> Result<Self, SignalError> {
        // SAFETY: the set is initialised; the call writes the old mask to a live local, for which
        // zero is valid.
        let (code, before) = unsafe {
            let mut before = zeroed();
            (libc::pthread_sigmask(how, &self.0, &mut before), before)
        };
        match code {
            0 => Ok(Self(before)),
            code => Err(SignalError::system("pthread_sigmask", code)),
        }
    }

    /// Blocks until a signal of the set is pending and takes it, in the calling thread. Returns
    /// `None` after `timeout`. Without a timeout, it blocks indefinitely.
    #[inline]
    pub(super) fn take(
        &self,
        timeout: Option<Duration>,
    ) -> Result<Option<SignalInfo>, SignalError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut time = timeout.map(timespec);
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
            let time_pointer = time.as_ref().map_or(null(), std::ptr::from_ref);
            // SAFETY: the set is initialised, `info` is writable, the time is null or a live local.
            let taken = unsafe { libc::sigtimedwait(&self.0, info.as_mut_ptr(), time_pointer) };
            if taken > 0 {
                // SAFETY: the call has initialised `info`.
                return Ok(Some(from_siginfo(unsafe { info.assume_init_ref() })));
            }
            match std::io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // A handler ran, or the process was stopped: wait for the rest of the timeout.
                Some(libc::EINTR) => {
                    if let Some(deadline) = deadline {
                        time = Some(timespec(deadline.saturating_duration_since(Instant::now())));
                    }
                }
                _ => return Err(SignalError::last("sigtimedwait")),
            }
        }
    }

    /// Returns a new signalfd, readable while a signal of the set is pending.
    pub(super) fn signal_fd(&self) -> Result<OwnedFd, SignalError> {
        // SAFETY: the set is initialised; −1 requests a new descriptor.
        let made = unsafe { libc::signalfd(-1, &self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if made < 0 {
            return Err(SignalError::last("signalfd"));
        }
        // SAFETY: the descriptor was just created and has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(made) })
    }
}

/// Reads one signal from a descriptor of [`RawSet::signal_fd`]. Returns `None` if none is pending.
pub(super) fn read_signal(fd: BorrowedFd<'_>) -> Result<Option<SignalInfo>, SignalError> {
    let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
    match rustix::io::retry_on_intr(|| rustix::io::read(fd, &mut bytes)) {
        Ok(length) if length == bytes.len() => {
            let info = bytes.as_ptr().cast::<libc::signalfd_siginfo>();
            // SAFETY: the structure has this size, and consists of integers, for which every bit
            // pattern is valid.
            Ok(Some(from_signalfd(&unsafe { info.read_unaligned() })))
        }
        Ok(_) => Err(SignalError::system("read of a signalfd", libc::EIO)),
        Err(Errno::AGAIN) => Ok(None),
        Err(errno) => Err(SignalError::system("read of a signalfd", errno.raw_os_error())),
    }
}

fn timespec(time: Duration) -> libc::timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    libc::timespec { tv_sec, tv_nsec: time.subsec_nanos().into() }
}

#[inline]
fn from_siginfo(info: &libc::siginfo_t) -> SignalInfo {
    let signal = Signal::from_raw(info.si_signo).expect("the kernel knows its signals");
    // SAFETY: every member of the union consists of integers, and the kernel writes or clears all
    // of them; the accessors of `SignalInfo` check which of them are valid for the code.
    let (pid, second, value, status) = unsafe {
        let value = info.si_value().sival_ptr as usize as u64;
        (info.si_pid(), info.si_uid(), value, info.si_status())
    };
    // A timer's overrun count is at the offset of the other codes' user id.
    let timer = info.si_code == libc::SI_TIMER;
    let child = signal == Signal::CHLD && info.si_code > 0;
    SignalInfo {
        signal,
        code: info.si_code,
        pid: pid.cast_unsigned(),
        uid: if timer { 0 } else { second },
        value: if child { 0 } else { value },
        status: if child { status } else { 0 },
        coalesced: if timer { second } else { 0 },
    }
}

fn from_signalfd(info: &libc::signalfd_siginfo) -> SignalInfo {
    let signal = i32::try_from(info.ssi_signo).ok().and_then(Signal::from_raw);
    let timer = info.ssi_code == libc::SI_TIMER;
    SignalInfo {
        signal: signal.expect("the kernel knows its signals"),
        code: info.ssi_code,
        pid: if timer { info.ssi_tid } else { info.ssi_pid },
        uid: info.ssi_uid,
        value: info.ssi_ptr,
        status: info.ssi_status,
        coalesced: if timer { info.ssi_overrun } else { 0 },
    }
}

/// A timer that wakes the thread that created it from [`RawSet::take`]. The thread can distinguish
/// the timer's signal from all others.
///
/// The kernel reserves a timer's signal when the timer is created. It therefore sends the signal,
/// with its value, even if the user's queue is full, and does not coalesce the signal with a
/// pending one.
pub(super) struct WakeTimer {
    timer: libc::timer_t,
    /// An address in this process, so that no other timer of the process has this value.
    value: u64,
}

// SAFETY: a timer is a number, which any thread of the process may use to set and delete the timer.
unsafe impl Send for WakeTimer {}
// SAFETY: the reason is the same as for `Send`, and no field changes.
unsafe impl Sync for WakeTimer {}

impl WakeTimer {
    /// Creates a timer for the calling thread, which must take `signal`. Returns `None` if the
    /// system refuses the timer.
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

    /// Wakes the thread, now or when it next waits.
    pub(super) fn wake(&self) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 1 };
        let once = libc::itimerspec { it_interval: none, it_value: at_once };
        // SAFETY: the timer exists until this value is dropped; `once` is a live local.
        unsafe { libc::timer_settime(self.timer, 0, &once, null_mut()) };
    }

    /// Returns `true` if this timer has sent the signal.
    #[inline]
    pub(super) fn has_sent(&self, info: &SignalInfo) -> bool {
        info.code == libc::SI_TIMER && info.value == self.value
    }
}

impl Drop for WakeTimer {
    fn drop(&mut self) {
        // SAFETY: `timer_create` returned the timer, which is deleted once. A forked child has no
        // timers, and no code drops the value there ([`super::thread`]).
        unsafe { libc::timer_delete(self.timer) };
    }
}

impl SignalInfo {
    /// Terminates the process with this signal, under the default disposition, as if the signal had
    /// never been taken. The parent sees the same status as for a program that does not handle the
    /// signal.
    ///
    /// If the default disposition of the signal is not to end the process (SIGCHLD, SIGTSTP), the
    /// process exits with status 128 + the signal's number. No buffer is flushed and no value is
    /// dropped.
    ///
    /// # Examples
    /// ```no_run
    /// let interrupted = tontine::signal::interrupted()?;
    /// // … the program works until `interrupted.is_set()`, then cleans up …
    /// if let Some(info) = interrupted.received() {
    ///     info.terminate_process();
    /// }
    /// # Ok::<(), tontine::signal::SignalError>(())
    /// ```
    pub fn terminate_process(&self) -> ! {
        let signal = self.signal;
        // SAFETY: zero is a valid action: the default without flags. The calls read live locals.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            if ends_process(signal) && libc::sigaction(signal.as_raw(), &action, null_mut()) == 0 {
                // The signal is raised in this thread so that no other thread takes it. It is
                // delivered before the call returns.
                let _ = RawSet::of(signal.into()).unblock();
                libc::raise(signal.as_raw());
            }
            libc::_exit(128 + signal.as_raw())
        }
    }
}

/// Returns `true` if the default disposition of the signal is to end the process.
fn ends_process(signal: Signal) -> bool {
    let others = [
        Signal::CHLD,
        Signal::CONT,
        Signal::STOP,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::URG,
        Signal::WINCH,
    ];
    !others.contains(&signal)
}

//! The liveness of the other end of a mechanism, [`PeerHandle`], and the signal that interrupts a
//! blocked call so that the caller can check the other end, [`PeriodicSignal`].
//!
//! A spinning end checks its peer after every [`SPINS`] polls. A blocking end receives a signal
//! every quarter of a second, so its call returns EINTR, and then checks its peer. Neither method
//! adds work to the path of a message. [`ChildError`] carries a child's error to its parent.
//!
//! This module does not kill or reap processes; [`crate::os::child`] does.

#![allow(unsafe_code, reason = "a POSIX timer, shared last words, and the environment")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::error::{ErrorContext, MeasureError, Result};
use crate::os::checked;
use crate::os::shared::{Shareable, SharedMapping};

/// Number of polls by a spinning end between two checks of its peer.
pub const SPINS: u32 = 1 << 20;

/// Interval, in nanoseconds, at which a blocked call is interrupted.
const NUDGE_NS: libc::c_long = 250_000_000;

/// A handle of the other end, for liveness checks.
#[derive(Debug, Clone, Copy)]
pub enum PeerHandle<'a> {
    /// A child process that has not been reaped yet.
    Child(Pid),
    /// A thread of this process, which sets the flag when it ends.
    Thread(&'a AtomicBool),
    /// The parent. The kernel ends this process when the parent ends, so no check is needed.
    Parent,
}

impl PeerHandle<'_> {
    /// Checks that the peer can still reply.
    ///
    /// # Errors
    /// Returns `Failed`, with the peer's status, if the peer has ended.
    #[cold]
    pub fn check(&self) -> Result<()> {
        match *self {
            Self::Parent => Ok(()),
            Self::Thread(ended) => {
                // SYNC peer-ended: pairs with the store in `TellEnd`.
                if ended.load(Ordering::Acquire) {
                    Err(MeasureError::fail("the other thread ended before the last message"))
                } else {
                    Ok(())
                }
            }
            Self::Child(pid) => {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                let Some(status) = waitid(WaitId::Pid(pid), options).during("waitid")? else {
                    return Ok(());
                };
                Err(MeasureError::fail(match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("the other process exited with status {code}"),
                    (_, Some(signal)) => {
                        format!("the other process was killed by signal {signal}")
                    }
                    _ => "the other process ended".to_owned(),
                }))
            }
        }
    }
}

/// Sets its flag when dropped, even during a panic.
#[derive(Debug)]
pub struct TellEnd<'a>(pub &'a AtomicBool);

impl Drop for TellEnd<'_> {
    fn drop(&mut self) {
        // SYNC peer-ended: pairs with `PeerHandle::check`.
        self.0.store(true, Ordering::Release);
    }
}

/// Spins until `done` returns `true`; checks the peer from time to time.
#[inline(always)]
pub fn spin_until(peer: PeerHandle<'_>, pause: bool, mut done: impl FnMut() -> bool) -> Result<()> {
    loop {
        for _ in 0..SPINS {
            if done() {
                return Ok(());
            }
            if pause {
                std::hint::spin_loop();
            }
        }
        peer.check()?;
    }
}

/// A guard during whose lifetime a signal interrupts the creating thread every quarter of a second.
#[derive(Debug)]
pub struct PeriodicSignal(libc::timer_t);

impl PeriodicSignal {
    /// Starts to interrupt the calling thread.
    ///
    /// # Errors
    /// Returns `Skipped` if the system refuses the timer.
    pub fn this_thread() -> Result<Self> {
        extern "C" fn nothing(_: libc::c_int) {}
        let signal = libc::SIGRTMIN() + 5;
        // SAFETY: the all-zero patterns of these plain C structures are valid; the handler accesses
        // nothing; each pointer refers to a live local variable.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
            checked(libc::sigaction(signal, &action, std::ptr::null_mut()))
                .setting_up("sigaction")?;
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = std::ptr::null_mut();
            checked(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer))
                .setting_up("timer_create")?;
            let nudge = Self(timer);
            let every = libc::timespec { tv_sec: 0, tv_nsec: NUDGE_NS };
            let times = libc::itimerspec { it_interval: every, it_value: every };
            checked(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()))
                .setting_up("timer_settime")?;
            Ok(nudge)
        }
    }
}

impl Drop for PeriodicSignal {
    fn drop(&mut self) {
        // SAFETY: this handle owns the timer and deletes it once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Shared memory for a child's error: a kind and up to [`WORDS`] bytes of text, one per word.
#[derive(Debug)]
#[repr(C)]
pub struct ChildError {
    /// 0: no error; 1: skipped; 2: failed.
    kind: AtomicU32,
    text: [AtomicU32; WORDS],
}

const WORDS: usize = 255;

// SAFETY: contains only atomics; zero is valid.
unsafe impl Shareable for ChildError {}

impl ChildError {
    /// Allocates the shared memory.
    pub fn new() -> Result<SharedMapping<Self>> {
        SharedMapping::anonymous()
    }

    /// Stores `trouble`.
    pub fn say(&self, trouble: &MeasureError) {
        for (place, byte) in self.text.iter().zip(trouble.why().bytes()) {
            place.store(byte.into(), Ordering::Relaxed);
        }
        let kind = if matches!(trouble, MeasureError::Skipped(_)) { 1 } else { 2 };
        // SYNC last-words: pairs with `heard`; the text is already stored.
        self.kind.store(kind, Ordering::Release);
    }

    /// Returns the stored error, if any.
    pub fn heard(&self) -> Option<MeasureError> {
        // SYNC last-words: pairs with `say`.
        let kind = self.kind.load(Ordering::Acquire);
        let bytes: Vec<u8> = self
            .text
            .iter()
            .map(|place| place.load(Ordering::Relaxed) as u8)
            .take_while(|&byte| byte != 0)
            .collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match kind {
            0 => None,
            1 => Some(MeasureError::Skipped(text)),
            _ => Some(MeasureError::Failed(text)),
        }
    }
}

/// Runs `body` in a forked, single-threaded process, for tests that another test in the same
/// process could disturb: by a fork that keeps a descriptor open, or by a thread that receives a
/// signal.
///
/// # Panics
/// Panics if `body` fails or panics, with its message.
#[doc(hidden)]
pub fn in_a_process_of_its_own(body: impl FnOnce() -> std::result::Result<(), String>) {
    let words = ChildError::new().expect("shared memory");
    // The clock is calibrated before the fork: a child forked during another thread's calibration
    // would wait for that thread indefinitely.
    crate::clock::Clock::calibrated();
    let mut child = crate::os::child::Child::fork(|| match body() {
        Ok(()) => 0,
        Err(why) => {
            words.say(&MeasureError::fail(why));
            1
        }
    })
    .expect("fork");
    let status = child.wait().expect("it ends");
    assert_eq!((words.heard(), status.exit_status()), (None, Some(0)));
}

/// Makes this process create its temporary folders in `place`. Call it in a forked process, which
/// has a single thread. [`std::env::set_var`] would wait indefinitely in that process if another
/// thread read the environment during the fork.
///
/// # Panics
/// Panics if the process has another thread, if the path contains a zero, or if memory is short.
#[doc(hidden)]
pub fn set_temp_dir(place: &Path) {
    let threads = std::fs::read_dir("/proc/self/task").expect("proc").count();
    assert_eq!(threads, 1, "another thread could read the environment");
    let place = CString::new(place.as_os_str().as_bytes()).expect("a path without zeros");
    // SAFETY: the strings are terminated, and there is no other thread to read the environment.
    assert_eq!(unsafe { libc::setenv(c"TMPDIR".as_ptr(), place.as_ptr(), 1) }, 0);
}

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
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::error::{ErrorContext, MeasureError, Result};
use crate::os::checked;
use crate::os::child::Child;
use crate::os::shared::{Shareable, SharedMapping};

/// Number of polls by a spinning end between two checks of its peer.
pub const SPINS: u32 = 1 << 20;

/// Interval, in nanoseconds, at which a blocked call is interrupted.
const SIGNAL_INTERVAL_NS: libc::c_long = 250_000_000;

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

/// Checks that all peers can still reply.
#[cold]
pub fn check(peers: &[PeerHandle<'_>]) -> Result<()> {
    peers.iter().try_for_each(PeerHandle::check)
}

/// Spins until `done` returns `true`, and checks the peers at intervals.
#[inline(always)]
pub fn spin_until(
    peers: &[PeerHandle<'_>],
    pause: bool,
    mut done: impl FnMut() -> bool,
) -> Result<()> {
    loop {
        for _ in 0..SPINS {
            if done() {
                return Ok(());
            }
            if pause {
                std::hint::spin_loop();
            }
        }
        check(peers)?;
    }
}

/// Timeout for one step of a child.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Action between two polls of [`wait_until`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Spin: the other process has its own processor.
    Spin,
    /// Yield the processor: the other process needs it.
    Yield,
    /// Sleep, because a poll costs much.
    Sleep(Duration),
}

impl Pass {
    /// Returns the action for processes on these processors.
    pub fn between(here: usize, there: usize) -> Self {
        if here == there { Self::Yield } else { Self::Spin }
    }
}

/// Waits until `so` returns `true`. Fails, stating `what` was expected, if the child ended first or
/// took longer than five seconds.
pub fn wait_until(
    child: &Child,
    pass: Pass,
    what: &str,
    mut so: impl FnMut() -> bool,
) -> Result<()> {
    let mut since = None;
    loop {
        for _ in 0..1024 {
            if so() {
                return Ok(());
            }
            match pass {
                Pass::Spin => std::hint::spin_loop(),
                Pass::Yield => std::thread::yield_now(),
                Pass::Sleep(time) => std::thread::sleep(time),
            }
        }
        if let Err(ended) = PeerHandle::Child(child.pid()).check() {
            // The child may have completed its step between our last poll and its end.
            return if so() {
                Ok(())
            } else {
                Err(MeasureError::fail(format!("expected {what}, but {}", ended.why())))
            };
        }
        if since.get_or_insert_with(Instant::now).elapsed() > STEP_TIMEOUT {
            return Err(MeasureError::fail(format!(
                "expected {what} within {STEP_TIMEOUT:?}, found nothing: is the machine \
                 overloaded, or does a tracer hold the child?"
            )));
        }
    }
}

/// A guard during whose lifetime a signal interrupts the creating thread every quarter of a second.
#[derive(Debug)]
pub struct PeriodicSignal(libc::timer_t);

impl PeriodicSignal {
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
            let started = Self(timer);
            let every = libc::timespec { tv_sec: 0, tv_nsec: SIGNAL_INTERVAL_NS };
            let times = libc::itimerspec { it_interval: every, it_value: every };
            checked(libc::timer_settime(timer, 0, &times, std::ptr::null_mut()))
                .setting_up("timer_settime")?;
            Ok(started)
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
    pub fn new() -> Result<SharedMapping<Self>> {
        SharedMapping::anonymous()
    }

    pub fn say(&self, trouble: &MeasureError) {
        for (place, byte) in self.text.iter().zip(trouble.why().bytes()) {
            place.store(byte.into(), Ordering::Relaxed);
        }
        let kind = if matches!(trouble, MeasureError::Skipped(_)) { 1 } else { 2 };
        // SYNC last-words: pairs with `heard`; the text is already stored.
        self.kind.store(kind, Ordering::Release);
    }

    /// Returns the exit status of a process, and stores its error. An earlier error is kept,
    /// because it is the cause of this one.
    pub fn status(&self, done: Result<()>) -> i32 {
        if let Err(trouble) = &done
            && self.heard().is_none()
        {
            self.say(trouble);
        }
        i32::from(done.is_err())
    }

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

/// Runs the body of a test in a forked, single-threaded process, because another test in the same
/// process could disturb it: by a fork that keeps a descriptor open, or by a thread that receives a
/// signal. The body fails by a panic or by an error.
#[doc(hidden)]
pub fn in_a_process_of_its_own<T: TestOutcome>(body: impl FnOnce() -> T) {
    // The clock is calibrated before the fork: a child forked during another thread's calibration
    // would wait for that thread indefinitely.
    crate::clock::Clock::calibrated();
    let say = |why: &str| _ = rustix::io::write(rustix::stdio::stderr(), why.as_bytes());
    let mut child = Child::fork(|| {
        // The hook of the test program prints into memory that ends with this process.
        std::panic::set_hook(Box::new(move |panic| say(&format!("{panic}\n"))));
        body().error().map_or(0, |why| {
            say(&format!("{why}\n"));
            1
        })
    })
    .expect("fork");
    assert_eq!(child.wait().expect("it ends").exit_status(), Some(0), "see standard error");
}

/// The outcome of a test's body.
#[doc(hidden)]
pub trait TestOutcome {
    fn error(self) -> Option<String>;
}

impl TestOutcome for () {
    fn error(self) -> Option<String> {
        None
    }
}

impl<E: std::fmt::Display> TestOutcome for Result<(), E> {
    fn error(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Makes this process create its temporary folders in `place`. Call it in a forked process, which
/// has a single thread. [`std::env::set_var`] would wait indefinitely in that process if another
/// thread read the environment during the fork.
#[doc(hidden)]
pub fn set_temp_dir(place: &Path) {
    let threads = std::fs::read_dir("/proc/self/task").expect("proc").count();
    assert_eq!(threads, 1, "another thread could read the environment");
    let place = CString::new(place.as_os_str().as_bytes()).expect("a path without zeros");
    // SAFETY: the strings are terminated, and there is no other thread to read the environment.
    assert_eq!(unsafe { libc::setenv(c"TMPDIR".as_ptr(), place.as_ptr(), 1) }, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_that_ended_first_is_reported_with_its_status() {
        let child = Child::fork(|| 9).expect("fork");
        let trouble = wait_until(&child, Pass::Yield, "a stamp", || false).expect_err("it ended");
        assert!(matches!(trouble, MeasureError::Failed(_)));
        assert!(trouble.why().contains("exited with status 9"), "{trouble}");
    }
}

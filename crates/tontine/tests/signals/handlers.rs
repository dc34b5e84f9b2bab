//! Async-signal-safe handlers: their effects, and the dispositions that they restore.
//!
//! Dispositions belong to the process, so each test has its own process.

#![allow(unsafe_code, reason = "raise, errno")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine::signal::handler::{SelfPipe, SignalCounter, SignalFlag};
use tontine::signal::{Blocked, Signal, SignalError};

use crate::child::Child;
use crate::shared::*;

fn raise(signal: Signal) {
    // SAFETY: `raise` only takes a number. The handler has run when it returns.
    assert_eq!(unsafe { libc::raise(signal.as_raw()) }, 0);
}

fn is_readable(wake: &SelfPipe) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

#[test]
fn flag_counter_and_pipe_report_installed_signal() {
    in_own_process!();
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    let counter = SignalCounter::install(Signal::USR1).expect("installed");
    let wake = SelfPipe::install(Signal::USR1).expect("installed");
    let other = SignalFlag::install(Signal::USR2).expect("installed");
    assert!(!flag.is_set() && counter.get() == 0 && !is_readable(&wake) && !wake.take());
    (0..3).for_each(|_| raise(Signal::USR1));
    assert!(flag.is_set() && flag.take() && !flag.is_set() && !flag.take());
    assert_eq!(counter.get(), 3);
    assert!(is_readable(&wake) && wake.take() && !is_readable(&wake) && !wake.take());
    assert!(!other.is_set());
    raise(Signal::USR2);
    assert!(other.is_set() && counter.get() == 3);
    let (_, flags) = disposition(Signal::USR1);
    let wanted = libc::SA_RESTART | libc::SA_ONSTACK;
    assert_eq!(flags & wanted, wanted);
}

#[test]
fn drop_of_last_handler_restores_disposition() {
    in_own_process!();
    dispose(Signal::USR1, libc::SIG_IGN, libc::SA_NODEFER);
    let before = disposition(Signal::USR1);
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    let counter = SignalCounter::install(Signal::USR1).expect("installed");
    let wake = SelfPipe::install(Signal::USR1).expect("installed");
    drop(counter);
    drop(flag);
    raise(Signal::USR1);
    assert!(wake.take(), "the last one still has its handler");
    drop(wake);
    assert_eq!(disposition(Signal::USR1), before);
    raise(Signal::USR1);
    // The second installation uses the previous pipe, which must be empty.
    raise(Signal::USR1);
    let wake = SelfPipe::install(Signal::USR1).expect("installed");
    assert!(!is_readable(&wake) && !wake.take());
    raise(Signal::USR1);
    assert!(wake.take());
}

#[test]
fn full_self_pipe_is_harmless_and_errno_is_preserved() {
    in_own_process!();
    let wake = SelfPipe::install(Signal::USR1).expect("installed");
    let size = rustix::pipe::fcntl_setpipe_size(&wake, 4096).expect("a small pipe");
    // More signals than the pipe holds bytes: the last writes fail with EAGAIN, which the
    // program must not see.
    for _ in 0..size + 1_000 {
        // SAFETY: the pointer is to this thread's errno.
        unsafe { *libc::__errno_location() = libc::EXDEV };
        raise(Signal::USR1);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EXDEV);
    }
    assert!(is_readable(&wake) && wake.take() && !is_readable(&wake));
    raise(Signal::USR1);
    assert!(is_readable(&wake) && wake.take());
}

#[test]
fn handlers_can_be_installed_and_dropped_while_running() {
    in_own_process!();
    let always = SignalCounter::install(Signal::USR1).expect("installed");
    let stop = Arc::new(AtomicBool::new(false));
    let its_stop = Arc::clone(&stop);
    let raises = std::thread::spawn(move || {
        let mut raised = 0;
        while !its_stop.load(Ordering::Relaxed) {
            raise(Signal::USR1);
            raised += 1;
        }
        raised
    });
    for _ in 0..2_000 {
        let flag = SignalFlag::install(Signal::USR1).expect("installed");
        let wake = SelfPipe::install(Signal::USR1).expect("installed");
        let counter = SignalCounter::install(Signal::USR1).expect("installed");
        drop(wake);
        drop(flag);
        drop(counter);
    }
    stop.store(true, Ordering::Relaxed);
    let raised = raises.join().expect("joined");
    assert_eq!(always.get(), raised, "none was missed");
}

#[test]
fn forked_child_wakes_only_itself() {
    alone!();
    in_a_process(|| {
        let wake = SelfPipe::install(Signal::USR1).expect("installed");
        let mut child = Child::fork(|_| {
            raise(Signal::USR1);
            drop(wake);
            let own = SelfPipe::install(Signal::USR1).expect("a pipe of the child");
            assert!(!own.take());
            raise(Signal::USR1);
            assert!(is_readable(&own) && own.take());
        });
        assert_eq!(child.wait(), 0);
    });
    in_a_process(|| {
        let wake = SelfPipe::install(Signal::USR1).expect("installed");
        let mut child = Child::fork(|_| raise(Signal::USR1));
        assert_eq!(child.wait(), 0);
        assert!(!is_readable(&wake) && !wake.take());
        raise(Signal::USR1);
        assert!(wake.take());
    });
}

#[test]
fn signals_that_target_one_thread_are_refused() {
    alone!();
    for signal in [Signal::KILL, Signal::STOP, Signal::SEGV, Signal::ILL] {
        let error = SignalFlag::install(signal).expect_err("refused");
        assert!(matches!(error, SignalError::CannotTake { .. }), "{error}");
    }
}

#[test]
fn blocked_signal_never_reaches_its_handler() {
    in_own_process!();
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    let blocked = Blocked::new(Signal::USR1).expect("blocked");
    raise(Signal::USR1);
    assert!(!flag.is_set());
    assert!(blocked.wait(Some(LONG)).expect("waits").is_some());
    drop(blocked);
    assert!(!flag.is_set());
    raise(Signal::USR1);
    assert!(flag.is_set());
}

/// The handlers of another library, each of which calls the handler that it replaced.
mod other {
    use std::mem::zeroed;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tontine::signal::Signal;

    pub(super) static CALLS: AtomicUsize = AtomicUsize::new(0);
    static FOUND: AtomicUsize = AtomicUsize::new(0);
    static DEPTH: AtomicUsize = AtomicUsize::new(0);

    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

    extern "C" fn chain(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        if DEPTH.fetch_add(1, Ordering::Relaxed) > 0 {
            std::process::abort();
        }
        let found = FOUND.load(Ordering::Relaxed);
        if found != libc::SIG_DFL && found != libc::SIG_IGN {
            // SAFETY: `found` is a handler; a handler with a single argument ignores the other two.
            let found = unsafe { std::mem::transmute::<usize, Handler>(found) };
            found(number, info, context);
        }
        DEPTH.fetch_sub(1, Ordering::Relaxed);
    }

    /// Installs the handler that calls the previous one.
    pub(super) fn install(signal: Signal) {
        // SAFETY: zero is a valid action; the pointers are to live locals; the handler touches only
        // atomics.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            let mut before: libc::sigaction = zeroed();
            action.sa_sigaction = chain as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(signal.as_raw(), null_mut(), &mut before), 0);
            FOUND.store(before.sa_sigaction, Ordering::Relaxed);
            assert_eq!(libc::sigaction(signal.as_raw(), &action, null_mut()), 0);
        }
    }

    pub(super) fn calls() -> usize {
        CALLS.load(Ordering::Relaxed)
    }

    pub(super) fn address() -> usize {
        chain as *const () as usize
    }
}

static FIRST_CALLS: AtomicUsize = AtomicUsize::new(0);

/// A handler that a program installed before any library installed one.
extern "C" fn first(_: libc::c_int) {
    FIRST_CALLS.fetch_add(1, Ordering::Relaxed);
}

fn first_calls() -> usize {
    FIRST_CALLS.load(Ordering::Relaxed)
}

/// Regression: a program installed a flag, then a library that installed its own handler. The
/// program dropped the flag, which restored the default disposition without checking whose handler
/// it replaced, and the next signal killed the process.
#[test]
fn flag_dropped_under_newer_handler_keeps_newer_handler() {
    in_own_process!();
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    other::install(Signal::USR1);
    raise(Signal::USR1);
    assert!(flag.take(), "the newer handler calls the older one");
    drop(flag);
    assert_eq!(disposition(Signal::USR1).0, other::address());
    raise(Signal::USR1);
    assert_eq!(other::calls(), 2);
}

/// Regression: a flag's handler replaced the program's own handler, and a library's handler, which
/// calls the handler that it replaced, replaced the flag's. After the flag was dropped, the call
/// ended at the flag's idle handler, and the program's handler was never called again.
#[test]
fn handler_below_dropped_flag_is_called_through_chain() {
    in_own_process!();
    dispose(Signal::USR1, first as *const () as usize, libc::SA_RESTART);
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    other::install(Signal::USR1);
    raise(Signal::USR1);
    assert_eq!((flag.take(), other::calls(), first_calls()), (true, 1, 0));
    drop(flag);
    raise(Signal::USR1);
    assert_eq!((other::calls(), first_calls()), (2, 1));
    // A second flag replaces the chain. Dropping it must not form a cycle.
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    raise(Signal::USR1);
    assert_eq!((flag.take(), other::calls(), first_calls()), (true, 2, 1));
    drop(flag);
    assert_eq!(disposition(Signal::USR1).0, other::address());
    raise(Signal::USR1);
    assert_eq!((other::calls(), first_calls()), (3, 2));
}

/// Regression: a thread ran a program with the C library's `system`, which ignores SIGINT during
/// the run and then restores the previous handler. That was a flag's handler, although the flag had
/// been dropped in between. It swallowed the signal, so that the process could no longer be
/// interrupted.
#[test]
fn restored_handler_of_dropped_flag_calls_previous_one() {
    alone!();
    let restored = |beneath: usize, calls_of_first: usize| {
        status_of(|| {
            dispose(Signal::INT, beneath, 0);
            let flag = SignalFlag::install(Signal::INT).expect("installed");
            let (ours, flags) = dispose(Signal::INT, libc::SIG_IGN, 0);
            drop(flag);
            assert_eq!(disposition(Signal::INT).0, libc::SIG_IGN, "the newer handler stays");
            dispose(Signal::INT, ours, flags);
            raise(Signal::INT);
            assert_eq!(first_calls(), calls_of_first);
            // The second flag finds the handler as the first flag left it, and reuses it.
            let flag = SignalFlag::install(Signal::INT).expect("installed");
            raise(Signal::INT);
            assert!(flag.take());
            drop(flag);
            assert_eq!(disposition(Signal::INT).0, beneath);
        })
    };
    assert_eq!(restored(libc::SIG_DFL, 0), 128 + libc::SIGINT);
    assert_eq!(restored(libc::SIG_IGN, 0), 0);
    assert_eq!(restored(first as *const () as usize, 1), 0);
}

/// Regression: threads installed and dropped handlers while the main thread forked. If another
/// thread held the lock over the lists or over the spare pipes at the fork, no thread of the child
/// ever released the lock, and the child hung in `SignalFlag::install`.
#[test]
fn child_forked_during_installs_does_not_hang() {
    in_own_process!();
    let flag = SignalFlag::install(Signal::USR1).expect("installed");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let flag = SignalFlag::install(Signal::USR2).expect("installed");
                    let wake = SelfPipe::install(Signal::USR2).expect("installed");
                    drop((SignalFlag::install(Signal::USR1), flag, wake));
                }
            });
        }
        let begin = Instant::now();
        // On a machine busy with other programs, a round takes a long time.
        for round in (0..60).take_while(|_| begin.elapsed() < Duration::from_secs(5)) {
            let status = status_of(|| in_child_of_busy_parent(&flag));
            if status != 0 {
                stop.store(true, Ordering::Relaxed);
            }
            assert_eq!(status, 0, "child {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(flag);
    assert_eq!(disposition(Signal::USR1).0, libc::SIG_DFL);
    assert_eq!(disposition(Signal::USR2).0, libc::SIG_DFL);
}

fn in_child_of_busy_parent(inherited: &SignalFlag) {
    // SAFETY: `alarm` only takes a number. Its signal ends a hanging child.
    unsafe { libc::alarm(60) };
    raise(Signal::USR1);
    assert!(inherited.take(), "the forking thread's own flag still works");
    for signal in [Signal::USR1, Signal::USR2] {
        let flag = SignalFlag::install(signal).expect("installed");
        let wake = SelfPipe::install(signal).expect("installed");
        raise(signal);
        assert!(flag.take() && wake.take());
        drop(flag);
        raise(signal);
        assert!(wake.take());
    }
    // No thread of the parent uses SIGHUP. Reset it: nohup(1) starts programs with it ignored.
    dispose(Signal::HUP, libc::SIG_DFL, 0);
    let flag = SignalFlag::install(Signal::HUP).expect("installed");
    raise(Signal::HUP);
    assert!(flag.take());
    drop(flag);
    assert_eq!(disposition(Signal::HUP).0, libc::SIG_DFL);
}

//! Handlers that do only what a handler may: what they do, and what they put back.
//!
//! Dispositions are the process's: each test has a process of its own.

#![allow(unsafe_code, reason = "raise, errno")]

mod child;
mod signals;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine::signal::handler::{Counter, Flag, Wake};
use tontine::signal::{Blocked, Error, Signal};

use child::Child;
use signals::*;

fn raise(signal: Signal) {
    // SAFETY: takes a number. The handler has run when it returns.
    assert_eq!(unsafe { libc::raise(signal.as_raw()) }, 0);
}

fn is_readable(wake: &Wake) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(wake, PollFlags::IN)], Some(&at_once)) == Ok(1)
}

#[test]
fn each_says_that_its_signal_has_come() {
    in_a_process(|| {
        let flag = Flag::install(Signal::USR1).expect("installed");
        let counter = Counter::install(Signal::USR1).expect("installed");
        let wake = Wake::install(Signal::USR1).expect("installed");
        let other = Flag::install(Signal::USR2).expect("installed");
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
    });
}

#[test]
fn the_disposition_that_was_there_comes_back_with_the_last_one() {
    in_a_process(|| {
        dispose(Signal::USR1, libc::SIG_IGN, libc::SA_NODEFER);
        let before = disposition(Signal::USR1);
        let flag = Flag::install(Signal::USR1).expect("installed");
        let counter = Counter::install(Signal::USR1).expect("installed");
        let wake = Wake::install(Signal::USR1).expect("installed");
        drop(counter);
        drop(flag);
        raise(Signal::USR1);
        assert!(wake.take(), "the last one still has its handler");
        drop(wake);
        assert_eq!(disposition(Signal::USR1), before);
        raise(Signal::USR1);
        // And again, with the pipe of before, of which nothing is left over.
        raise(Signal::USR1);
        let wake = Wake::install(Signal::USR1).expect("installed");
        assert!(!is_readable(&wake) && !wake.take());
        raise(Signal::USR1);
        assert!(wake.take());
    });
}

#[test]
fn a_full_pipe_is_well_and_errno_is_as_before() {
    in_a_process(|| {
        let wake = Wake::install(Signal::USR1).expect("installed");
        // More than a pipe holds: the last ones fail with EAGAIN, which nobody must see.
        for _ in 0..70_000 {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = libc::EXDEV };
            raise(Signal::USR1);
            // SAFETY: as above.
            assert_eq!(unsafe { *libc::__errno_location() }, libc::EXDEV);
        }
        assert!(is_readable(&wake) && wake.take() && !is_readable(&wake));
        raise(Signal::USR1);
        assert!(is_readable(&wake) && wake.take());
    });
}

#[test]
fn they_come_and_go_while_their_handlers_run() {
    in_a_process(|| {
        let always = Counter::install(Signal::USR1).expect("installed");
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
            let flag = Flag::install(Signal::USR1).expect("installed");
            let wake = Wake::install(Signal::USR1).expect("installed");
            let counter = Counter::install(Signal::USR1).expect("installed");
            drop(wake);
            drop(flag);
            drop(counter);
        }
        stop.store(true, Ordering::Relaxed);
        let raised = raises.join().expect("joined");
        assert_eq!(always.get(), raised, "none was missed");
    });
}

#[test]
fn a_forked_child_wakes_nobody_but_itself() {
    in_a_process(|| {
        let wake = Wake::install(Signal::USR1).expect("installed");
        let mut child = Child::fork(|_| {
            raise(Signal::USR1);
            drop(wake);
            let own = Wake::install(Signal::USR1).expect("its own");
            assert!(!own.take());
            raise(Signal::USR1);
            assert!(is_readable(&own) && own.take());
        });
        assert_eq!(child.wait(), 0);
    });
    in_a_process(|| {
        let wake = Wake::install(Signal::USR1).expect("installed");
        let mut child = Child::fork(|_| raise(Signal::USR1));
        assert_eq!(child.wait(), 0);
        assert!(!is_readable(&wake) && !wake.take());
        raise(Signal::USR1);
        assert!(wake.take());
    });
}

#[test]
fn what_means_one_thread_has_no_handler_here() {
    for signal in [Signal::KILL, Signal::STOP, Signal::SEGV, Signal::ILL] {
        let error = Flag::install(signal).expect_err("refused");
        assert!(matches!(error, Error::CannotTake { .. }), "{error}");
    }
}

#[test]
fn a_blocked_signal_never_gets_to_its_handler() {
    in_a_process(|| {
        let flag = Flag::install(Signal::USR1).expect("installed");
        let blocked = Blocked::new(Signal::USR1).expect("blocked");
        raise(Signal::USR1);
        assert!(!flag.is_set());
        assert!(blocked.wait(Some(LONG)).expect("waits").is_some());
        drop(blocked);
        assert!(!flag.is_set());
        raise(Signal::USR1);
        assert!(flag.is_set());
    });
}

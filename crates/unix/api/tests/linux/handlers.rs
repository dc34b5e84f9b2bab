//! Handlers: the information that they receive, the time at which they run, and the reported
//! actions.
#![allow(unsafe_code, reason = "installs a handler without the library")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use tontine_unix::{
    ActionFlags, Disposition, Errno, Fd, SigAction, SigCode, SigSet, Signal, WaitOptions,
};

use crate::scene::{end, run, sleeper, until};

/// The standard library installs a handler for SIGSEGV, which reports stack overflows.
#[test]
fn foreign_handler_can_be_restored() {
    run(|sys| {
        let caught = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            let set = u64::from_str_radix(line.trim(), 16).unwrap();
            SigSet::from_bits(set).contains(Signal::SEGV)
        };
        extern "C" fn handler(_: libc::c_int) {}
        // SAFETY: a handler that does nothing may run at any time.
        unsafe { libc::signal(libc::SIGSEGV, handler as *const () as libc::sighandler_t) };
        assert!(caught());
        let theirs = sys.sigaction(Signal::SEGV, None).unwrap();
        assert!(matches!(theirs.disposition, Disposition::Handler(_)));
        assert_eq!(sys.sigaction(Signal::SEGV, Some(SigAction::DEFAULT)), Ok(theirs.clone()));
        assert!(!caught());
        assert_eq!(sys.sigaction(Signal::SEGV, Some(theirs.clone())), Ok(SigAction::DEFAULT));
        assert!(caught());
        assert_eq!(sys.sigaction(Signal::SEGV, None), Ok(theirs));
    });
}

#[test]
fn handler_preserves_errno_of_the_interrupted_code() {
    run(|sys| {
        let failed = Arc::new(AtomicU32::new(0));
        let handler = {
            let failed = Arc::clone(&failed);
            SigAction::handler(move |sys, _| {
                let error = sys.close(Fd(-1)).err();
                failed.fetch_add(u32::from(error == Some(Errno::EBADF)), Relaxed);
            })
        };
        sys.sigaction(Signal::USR1, Some(handler)).unwrap();
        let me = (sys.getpid(), sys.gettid());
        assert!(std::fs::File::open("/nowhere/at/all").is_err());
        sys.tgkill(me.0, me.1, Some(Signal::USR1)).unwrap();
        let errno = Errno::from(std::io::Error::last_os_error());
        assert_eq!((failed.load(Relaxed), errno), (1, Errno::ENOENT));
    });
}

#[test]
fn handler_may_signal_and_wait_during_the_same_calls() {
    run(|sys| {
        let child = sleeper(sys);
        let calls = Arc::new(AtomicU32::new(0));
        let action = {
            let calls = Arc::clone(&calls);
            SigAction::handler(move |sys, _| {
                let alive = sys.kill(child.into(), None).is_ok()
                    && sys.waitpid(child.into(), WaitOptions::NOHANG) == Ok(None);
                calls.fetch_add(u32::from(alive), Relaxed);
            })
            .with_flags(ActionFlags::RESTART)
        };
        sys.sigaction(Signal::USR1, Some(action)).unwrap();
        let me = sys.getpid();
        let busy = sys.gettid();
        let stop = Arc::new(AtomicBool::new(false));
        let sender = {
            let stop = Arc::clone(&stop);
            sys.thread(move |sys| {
                while !stop.load(Relaxed) {
                    sys.tgkill(me, busy, Some(Signal::USR1)).unwrap();
                    sys.sched_yield();
                }
            })
        };
        // The locks are held during most of the time that a fork takes.
        for _ in 0..100 {
            let forked = sys.fork(|_| 0).unwrap();
            end(sys, forked);
            sys.kill(child.into(), None).unwrap();
        }
        until("a handler found the child alive", || calls.load(Relaxed) > 0);
        stop.store(true, Relaxed);
        sys.join(sender.unwrap()).unwrap();
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        end(sys, child);
    });
}

#[test]
fn fault_runs_its_handler_immediately() {
    run(|sys| {
        for signal in tontine_unix::FAULTS.iter() {
            let times = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&times);
            let handler = SigAction::handler(move |_, info| {
                counted.fetch_add(u32::from(info.code == SigCode::Fault), Relaxed);
            });
            sys.sigaction(signal, Some(handler)).unwrap();
            sys.fault(signal).unwrap();
            assert_eq!(times.load(Relaxed), 1, "{signal}");
        }
        assert_eq!(sys.fault(Signal::TERM), Err(Errno::EINVAL));
    });
}

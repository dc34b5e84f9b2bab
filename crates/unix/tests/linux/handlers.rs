//! Handlers: the information that they receive, the time at which they run, and the reported
//! actions.
#![allow(unsafe_code, reason = "installs a handler without the library")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed};

use tontine_unix::{
    ActionFlags, Disposition, Errno, Fd, SigAction, SigCode, SigInfo, SigSet, SigStack, SigVec,
    SigmaskHow, Signal, Sys, WaitOptions, WaitStatus,
};

use crate::scene::{await_byte, end, play, send_byte, sleeper, until};

/// The information that a handler received last, in words that a handler may write.
#[derive(Debug, Default)]
struct Seen {
    times: AtomicU32,
    pid: AtomicI32,
    value: AtomicI32,
    status: AtomicI32,
    code: AtomicI32,
}

/// Signal codes; [`Seen`] stores a code as an index into this array.
const CODES: [SigCode; 8] = [
    SigCode::User,
    SigCode::Queue,
    SigCode::Tkill,
    SigCode::Kernel,
    SigCode::Fault,
    SigCode::Exited,
    SigCode::Killed,
    SigCode::Stopped,
];

impl Seen {
    fn store(&self, info: &SigInfo) {
        self.pid.store(info.pid, Relaxed);
        self.value.store(info.value, Relaxed);
        self.status.store(info.status, Relaxed);
        let code = CODES.iter().position(|code| *code == info.code).map_or(-1, |at| at as i32);
        self.code.store(code, Relaxed);
        self.times.fetch_add(1, Relaxed);
    }

    fn code(&self) -> SigCode {
        CODES[self.code.load(Relaxed) as usize]
    }

    fn times(&self) -> u32 {
        self.times.load(Relaxed)
    }
}

/// Installs a handler that stores its information.
fn install(sys: &dyn Sys, signal: Signal, flags: ActionFlags) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let handler = {
        let seen = Arc::clone(&seen);
        SigAction::handler(move |_, info| seen.store(info)).with_flags(flags)
    };
    sys.sigaction(signal, Some(handler)).unwrap();
    seen
}

#[test]
fn handler_receives_sender_value_and_code() {
    play(|sys| {
        let me = sys.getpid();
        let seen = install(sys, Signal::USR1, ActionFlags::empty());
        sys.kill(me.into(), Some(Signal::USR1)).unwrap();
        assert_eq!((seen.times(), seen.code()), (1, SigCode::User));
        assert_eq!(seen.pid.load(Relaxed), me.number());
        sys.raise(Signal::USR1).unwrap();
        assert_eq!((seen.times(), seen.code()), (2, SigCode::Tkill));
        for value in [i32::MIN, -1, 0, 77] {
            sys.sigqueue(me, Some(Signal::USR1), value).unwrap();
            assert_eq!((seen.code(), seen.value.load(Relaxed)), (SigCode::Queue, value));
        }
    });
}

#[test]
fn sigqueue_value_reaches_a_child_by_its_handle() {
    play(|sys| {
        let (ready, tell) = sys.pipe().unwrap();
        let signal = Signal::realtime(1).unwrap();
        let parent = sys.getpid().number();
        let child = sys.fork(move |sys| {
            let set = SigSet::of(&[signal]);
            sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
            send_byte(sys, tell);
            let info = sys.sigtimedwait(set, None).unwrap();
            assert_eq!((info.code, info.pid), (SigCode::Queue, parent));
            info.value
        });
        let child = child.unwrap();
        await_byte(sys, ready);
        sys.sigqueue(child, None, 0).unwrap();
        sys.sigqueue(child, Some(signal), 99).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(99));
    });
}

#[test]
fn sigchld_handler_receives_child_and_status() {
    play(|sys| {
        let seen = install(sys, Signal::CHLD, ActionFlags::RESTART);
        let child = sys.fork(|_| 21).unwrap();
        until("a child ended", || seen.times() == 1);
        assert_eq!((seen.code(), seen.status.load(Relaxed)), (SigCode::Exited, 21));
        assert_eq!(seen.pid.load(Relaxed), child.number());
        end(sys, child);
        let child = sleeper(sys);
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        until("a child was killed", || seen.times() == 2);
        assert_eq!((seen.code(), seen.status.load(Relaxed)), (SigCode::Killed, 9));
        end(sys, child);
    });
}

#[test]
fn sigaction_returns_the_installed_action() {
    play(|sys| {
        assert_eq!(sys.sigaction(Signal::USR1, None), Ok(SigAction::DEFAULT));
        let mask = SigSet::of(&[Signal::USR2]);
        let flags = ActionFlags::RESTART | ActionFlags::NODEFER;
        let first = SigAction::handler(|_, _| {}).with_flags(flags).with_mask(mask);
        let second = SigAction::handler(|_, _| {});
        assert_eq!(sys.sigaction(Signal::USR1, Some(first.clone())), Ok(SigAction::DEFAULT));
        assert_eq!(sys.sigaction(Signal::USR1, Some(second.clone())), Ok(first.clone()));
        assert_eq!(sys.sigaction(Signal::USR1, Some(SigAction::IGNORE)), Ok(second));
        assert_eq!(sys.sigaction(Signal::USR1, Some(first.clone())), Ok(SigAction::IGNORE));
        assert_eq!(sys.sigaction(Signal::USR1, None), Ok(first));
    });
}

#[test]
fn actions_of_sigkill_and_sigstop_are_read_only() {
    play(|sys| {
        for signal in SigSet::UNBLOCKABLE.iter() {
            assert_eq!(sys.sigaction(signal, None), Ok(SigAction::DEFAULT));
            for new in [SigAction::IGNORE, SigAction::DEFAULT, SigAction::handler(|_, _| {})] {
                assert_eq!(sys.sigaction(signal, Some(new)), Err(Errno::EINVAL));
            }
        }
    });
}

/// The standard library installs a handler for SIGSEGV, which reports stack overflows.
#[test]
fn foreign_handler_can_be_restored() {
    play(|sys| {
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
fn handler_blocks_its_signal_and_mask_while_running() {
    play(|sys| {
        let masks = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let install = |signal, at: usize, flags| {
            let masks = Arc::clone(&masks);
            let action = SigAction::handler(move |sys, _| {
                masks[at].store(sys.sigprocmask(None).unwrap_or_default().bits() as u32, Relaxed);
            });
            let action = action.with_mask(SigSet::of(&[Signal::HUP])).with_flags(flags);
            sys.sigaction(signal, Some(action)).unwrap();
            sys.raise(signal).unwrap();
        };
        install(Signal::USR1, 0, ActionFlags::empty());
        install(Signal::USR2, 1, ActionFlags::NODEFER);
        let set = |at: usize| SigSet::from_bits(masks[at].load(Relaxed).into());
        assert_eq!(set(0), SigSet::of(&[Signal::HUP, Signal::USR1]));
        assert_eq!(set(1), SigSet::of(&[Signal::HUP]));
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
    });
}

#[test]
fn handler_preserves_errno_of_the_interrupted_code() {
    play(|sys| {
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
fn resethand_handler_runs_only_once() {
    play(|sys| {
        let child = sys.fork(|sys| {
            let seen = install(sys, Signal::USR1, ActionFlags::RESETHAND);
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(seen.times(), 1);
            let now = sys.sigaction(Signal::USR1, None).unwrap();
            assert_eq!(now.disposition, Disposition::Default);
            sys.raise(Signal::USR1).unwrap();
            0
        });
        assert_eq!(end(sys, child.unwrap()).signaled(), Some(Signal::USR1));
    });
}

#[test]
fn handler_may_signal_and_wait_during_the_same_calls() {
    play(|sys| {
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
fn wait_is_interrupted_only_by_a_handler_without_restart() {
    play(|sys| {
        let child = sleeper(sys);
        let me = sys.getpid();
        let (waiter, restarts) = (sys.gettid(), install(sys, Signal::USR1, ActionFlags::RESTART));
        install(sys, Signal::USR2, ActionFlags::empty());
        let sleeping = format!("/proc/self/task/{}/stat", waiter.0);
        let asleep = move || {
            let stat = std::fs::read_to_string(&sleeping).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
        };
        let sender = {
            let restarts = Arc::clone(&restarts);
            sys.thread(move |sys| {
                until("the waiter sleeps", &asleep);
                sys.tgkill(me, waiter, Some(Signal::USR1)).unwrap();
                until("a handler ran", || restarts.times() == 1);
                until("the waiter sleeps again", &asleep);
                sys.tgkill(me, waiter, Some(Signal::USR2)).unwrap();
            })
        };
        assert_eq!(sys.wait(), Err(Errno::EINTR));
        assert_eq!(restarts.times(), 1);
        sys.join(sender.unwrap()).unwrap();
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        end(sys, child);
    });
}

#[test]
fn fault_runs_its_handler_immediately() {
    play(|sys| {
        for signal in tontine_unix::FAULTS.iter() {
            let seen = install(sys, signal, ActionFlags::empty());
            sys.fault(signal).unwrap();
            assert_eq!((seen.times(), seen.code()), (1, SigCode::Fault), "{signal}");
        }
        assert_eq!(sys.fault(Signal::TERM), Err(Errno::EINVAL));
    });
}

#[test]
fn blocked_or_ignored_fault_kills_process() {
    play(|sys| {
        let blocked = sys.fork(|sys| {
            install(sys, Signal::FPE, ActionFlags::empty());
            sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::FPE])))).unwrap();
            sys.fault(Signal::FPE).map_or(1, |()| 0)
        });
        assert_eq!(end(sys, blocked.unwrap()).signaled(), Some(Signal::FPE));
        let ignored = sys.fork(|sys| {
            sys.sigaction(Signal::ILL, Some(SigAction::IGNORE)).unwrap();
            sys.fault(Signal::ILL).map_or(1, |()| 0)
        });
        assert_eq!(end(sys, ignored.unwrap()).signaled(), Some(Signal::ILL));
    });
}

#[test]
fn handler_runs_on_the_alternate_stack_with_onstack() {
    play(|sys| {
        let on_it = Arc::new(AtomicU32::new(0));
        for flags in [ActionFlags::empty(), ActionFlags::ONSTACK] {
            sys.sigstack(Some(SigStack { size: 1 << 16, on_stack: false })).unwrap();
            let handler = {
                let on_it = Arc::clone(&on_it);
                SigAction::handler(move |sys, _| {
                    // This call would disable the stack if it were not refused.
                    let off = || sys.sigstack(Some(SigStack::default()));
                    let there = sys.sigstack(None).is_ok_and(|stack| stack.on_stack);
                    on_it.fetch_add(u32::from(there && off() == Err(Errno::EPERM)), Relaxed);
                })
            };
            sys.sigaction(Signal::USR1, Some(handler.with_flags(flags))).unwrap();
            sys.raise(Signal::USR1).unwrap();
            assert_eq!(on_it.load(Relaxed), u32::from(flags == ActionFlags::ONSTACK));
        }
        let small = SigStack { size: 64, on_stack: false };
        assert_eq!(sys.sigstack(Some(small)), Err(Errno::ENOMEM));
        assert_eq!(sys.sigstack(Some(SigStack::default())).unwrap().size, 1 << 16);
    });
}

#[test]
fn calls_restart_after_a_sigvec_handler() {
    play(|sys| {
        let action = SigAction::handler(|_, _| {}).with_flags(ActionFlags::RESETHAND);
        sys.sigvec(Signal::USR1, Some(SigVec { action: action.clone() })).unwrap();
        let flags = sys.sigaction(Signal::USR1, None).unwrap().flags;
        assert_eq!(flags, ActionFlags::RESTART | ActionFlags::RESETHAND);
        assert_eq!(sys.sigvec(Signal::USR1, None), Ok(SigVec { action }));
    });
}

//! 4.3BSD's calls (§2.1).

use super::harness::*;

/// Returns the bit of a signal in a mask of 32 bits.
fn bit(signal: Signal) -> u32 {
    1 << (signal.number() - 1)
}

#[test]
fn sigblock_adds_sigsetmask_replaces_both_return_the_old_mask() {
    everywhere(|sys| {
        let (one, two) = (bit(Signal::USR1), bit(Signal::USR2));
        assert_eq!(sys.sigblock(one), 0);
        assert_eq!(sys.sigblock(two | bit(Signal::KILL)), one);
        assert_eq!(sys.sigblock(0), one | two);
        assert_eq!(sys.sigsetmask(two), one | two);
        assert_eq!(sys.sigsetmask(u32::MAX), two);
        let all = sys.sigblock(0);
        assert_eq!(all & bit(Signal::KILL), 0);
        assert_eq!(all & bit(Signal::STOP), 0);
        assert_ne!(all & bit(Signal::TERM), 0);
    })
    .and_on_linux();
}

#[test]
fn sigsetmask_keeps_signals_unknown_to_4_3bsd() {
    everywhere(|sys| {
        block(sys, &[Signal::RTMIN, Signal::HUP]);
        sys.sigsetmask(bit(Signal::USR1));
        let expected = SigSet::of(&[Signal::RTMIN, Signal::USR1]);
        assert_eq!(sys.sigprocmask(None), Ok(expected));
    })
    .and_on_linux();
}

#[test]
fn sigpause_waits_with_its_mask() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        sys.sigblock(bit(Signal::USR1));
        kill(sys, sys.getpid(), Signal::USR1);
        assert_eq!(sys.sigpause(0), Errno::EINTR);
        assert_eq!(log.len(), 1);
        assert_eq!(sys.sigblock(0), bit(Signal::USR1));
    })
    .and_on_linux();
}

#[test]
fn sigvec_returns_the_old_action_and_refuses_kill_and_stop() {
    everywhere(|sys| {
        let log = Log::default();
        let vector = SigVec { action: log.signals() };
        let old = sys.sigvec(Signal::USR1, Some(vector.clone())).unwrap();
        assert_eq!(old.action.disposition, Disposition::Default);
        let now = sys.sigvec(Signal::USR1, None).unwrap();
        assert_eq!(now.action.disposition, vector.action.disposition);
        for signal in [Signal::KILL, Signal::STOP] {
            assert_eq!(sys.sigvec(signal, Some(vector.clone())), Err(Errno::EINVAL));
        }
    })
    .and_on_linux();
}

#[test]
fn call_interrupted_by_sigvec_handler_restarts() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            let log = Log::default();
            sys.sigvec(Signal::USR1, Some(SigVec { action: log.signals() })).unwrap();
            wait_through(sys, Signal::USR1);
            log.len() as i32
        });
        assert_eq!(end, WaitStatus::Exited(1));
    })
    .and_on_linux();
}

#[test]
fn sigstack_is_in_use_while_an_onstack_handler_runs() {
    everywhere(|sys| {
        let none = SigStack::default();
        let stack = SigStack { size: 65_536, on_stack: false };
        sys.sigstack(Some(none)).unwrap();
        assert_eq!(sys.sigstack(Some(stack)), Ok(none));
        assert_eq!(sys.sigstack(None), Ok(stack));
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            let now = sys.sigstack(None).unwrap();
            noted.note(now.on_stack.into());
            noted.note((sys.sigstack(Some(SigStack::default())) == Err(Errno::EPERM)).into());
        });
        act(sys, Signal::USR1, handler.with_flags(ActionFlags::ONSTACK));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [1, 1]);
        assert_eq!(sys.sigstack(Some(none)), Ok(stack), "the stack is still in use");
        assert_eq!(sys.sigstack(None), Ok(none));
    })
    .and_on_linux();
}

#[test]
fn killpg_equals_kill_of_group() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        sys.setpgid(child, child).unwrap();
        assert_eq!(sys.killpg(child, Some(Signal::TERM)), Ok(()));
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
        assert_eq!(sys.killpg(child, Some(Signal::TERM)), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn wait3_and_wait4_reap_like_waitpid() {
    everywhere(|sys| {
        let child = sys.fork(|_| 1).unwrap();
        assert_eq!(sys.wait3(WaitOptions::empty()).unwrap().unwrap().pid, child);
        let child = sys.fork(|_| 1).unwrap();
        assert_eq!(sys.wait4(child.into(), WaitOptions::empty()).unwrap().unwrap().pid, child);
        assert_eq!(sys.wait3(WaitOptions::NOHANG), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn alternate_stack_is_inherited_by_child_not_thread() {
    everywhere(|sys| {
        sys.sigstack(Some(SigStack { size: 65_536, on_stack: false })).unwrap();
        let pages = |sys: &dyn Sys| (sys.sigstack(None).unwrap().size / 4096) as i32;
        assert_eq!(end_as(sys, pages), WaitStatus::Exited(16));
        let log = Log::default();
        let noted = log.clone();
        let thread = sys.thread(move |sys| noted.note(pages(sys))).unwrap();
        sys.join(thread).unwrap();
        assert_ne!(log.all(), [16]);
    })
    .and_on_linux();
}

//! Guarantees of calls that send a signal: the receiving process or thread, the time of arrival,
//! and that a refused call sends nothing.

use super::harness::*;

#[test]
fn raise_signals_the_calling_thread() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        act(sys, Signal::USR1, SigAction::handler(move |sys, _| noted.note(sys.gettid().0)));
        let thread = sys.thread(|sys| sys.raise(Signal::USR1).unwrap()).unwrap();
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [thread.0]);
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.all(), [thread.0, sys.gettid().0]);
    })
    .and_on_linux();
}

#[test]
fn raise_returns_after_the_handler() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let handler = SigAction::handler(move |sys, _| {
            sys.sched_yield();
            noted.note(1);
        });
        act(sys, Signal::USR1, handler);
        assert_eq!(sys.raise(Signal::USR1), Ok(()));
        log.note(2);
        assert_eq!(log.all(), [1, 2]);
    })
    .and_on_linux();
}

#[test]
fn raise_beyond_the_queue_limit_returns_eagain() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setuid(unused_uid(sys)).unwrap();
            sys.setrlimit(Resource::PendingSignals, Rlimit::of(1)).unwrap();
            block(sys, &[Signal::RTMIN]);
            assert_eq!(sys.raise(Signal::RTMIN), Ok(()));
            assert_eq!(sys.raise(Signal::RTMIN), Err(Errno::EAGAIN));
            let set = SigSet::of(&[Signal::RTMIN]);
            assert_eq!(sys.sigwait(set), Ok(Signal::RTMIN));
            assert_eq!(sys.sigpending(), SigSet::EMPTY, "the refused signal was not sent");
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn signal_queued_to_self_arrives_before_sigqueue_returns() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        for signal in [Signal::USR1, Signal::RTMIN] {
            let noted = noted.clone();
            act(sys, signal, SigAction::handler(move |_, info| noted.note(info.value)));
        }
        sys.sigqueue(sys.getpid(), Some(Signal::USR1), 7).unwrap();
        assert_eq!(log.all(), [7]);
        sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 8).unwrap();
        assert_eq!(log.all(), [7, 8]);
    })
    .and_on_linux();
}

#[test]
fn sigqueue_value_reaches_another_process() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::RTMIN]);
        sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
        let me = sys.getpid().number();
        let child = sys
            .fork(move |sys| {
                let info = sys.sigtimedwait(set, None).unwrap();
                assert_eq!((info.signal, info.code, info.pid), (Signal::RTMIN, SigCode::Queue, me));
                info.value
            })
            .unwrap();
        assert_eq!(sys.sigqueue(child, Some(Signal::RTMIN), 99), Ok(()));
        assert_eq!(end_of(sys, child), WaitStatus::Exited(99));
    })
    .and_on_linux();
}

#[test]
fn signal_to_self_goes_to_unblocking_thread() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        act(sys, Signal::USR1, SigAction::handler(move |sys, _| noted.note(sys.gettid().0)));
        block(sys, &[Signal::USR1]);
        let thread = sys
            .thread(|sys| {
                let open = SigSet::ALL.without(Signal::USR1);
                assert_eq!(sys.sigsuspend(open), Errno::EINTR);
            })
            .unwrap();
        kill(sys, sys.getpid(), Signal::USR1);
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [thread.0], "the caller blocks the signal");
    })
    .and_on_linux();
}

#[test]
fn refused_calls_send_no_signal() {
    everywhere(|sys| {
        let target = sys.fork(sleep_on).unwrap();
        sys.setpgid(target, target).unwrap();
        let stranger = bare(target);
        let end = end_as(sys, move |sys| {
            sys.setuid(54_321).unwrap();
            let (usr1, thread) = (Some(Signal::USR1), Tid(stranger.number()));
            assert_eq!(sys.kill(stranger.into(), usr1), Err(Errno::EPERM));
            assert_eq!(sys.kill(SignalTarget::Group(stranger), usr1), Err(Errno::EPERM));
            assert_eq!(sys.killpg(stranger, usr1), Err(Errno::EPERM));
            assert_eq!(sys.sigqueue(stranger, usr1, 1), Err(Errno::EPERM));
            assert_eq!(sys.tgkill(stranger, thread, usr1), Err(Errno::EPERM));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        // The thread belongs to a process other than the named one.
        let thread = Tid(target.number());
        let refused = sys.tgkill(sys.getpid(), thread, Some(Signal::USR1));
        assert_eq!(refused, Err(Errno::ESRCH));
        rest(sys);
        kill(sys, target, Signal::TERM);
        assert_eq!(end_of(sys, target), WaitStatus::Signaled(Signal::TERM, false));
    })
    .and_on_linux();
}

#[test]
fn killpg_signals_the_group_and_refuses_invalid_groups() {
    everywhere(|sys| {
        let group = sys.fork(sleep_on).unwrap();
        sys.setpgid(group, group).unwrap();
        assert_eq!(sys.killpg(group, None), Ok(()), "the null signal only checks");
        rest(sys);
        assert_eq!(sys.waitpid(group.into(), WaitOptions::NOHANG), Ok(None));
        assert_eq!(sys.killpg(group, Some(Signal::TERM)), Ok(()));
        assert_eq!(end_of(sys, group), WaitStatus::Signaled(Signal::TERM, false));
        assert_eq!(sys.killpg(group, Some(Signal::TERM)), Err(Errno::ESRCH));
        assert_eq!(sys.killpg(Pid::number_only(i32::MAX), None), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn signal_calls_are_never_interrupted_by_signals() {
    everywhere(|sys| {
        let log = Log::default();
        let seen = log.clone();
        let handler = SigAction::handler(move |_, _| {
            if seen.len() < 20 {
                seen.note(1);
            }
        });
        act(sys, Signal::USR1, handler);
        let (me, first) = (sys.getpid(), sys.gettid());
        let enough = log.clone();
        let sender = sys
            .thread(move |sys| {
                while enough.len() < 20 {
                    sys.tgkill(me, first, Some(Signal::USR1)).unwrap();
                    sys.sched_yield();
                }
            })
            .unwrap();
        while log.len() < 20 {
            assert_eq!(sys.tgkill(me, first, None), Ok(()));
            assert_eq!(sys.tgkill(me, first, Some(Signal::CHLD)), Ok(()));
            assert!(
                sys.sigprocmask(Some((SigmaskHow::Block, SigSet::of(&[Signal::USR2])))).is_ok()
            );
            assert!(
                sys.sigprocmask(Some((SigmaskHow::Unblock, SigSet::of(&[Signal::USR2])))).is_ok()
            );
            assert_eq!(sys.raise(Signal::CHLD), Ok(()));
            sys.sched_yield();
        }
        sys.join(sender).unwrap();
    })
    .and_on_linux();
}

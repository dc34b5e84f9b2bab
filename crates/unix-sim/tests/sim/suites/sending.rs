//! Sending signals: the target that a number denotes, and the information that arrives.

use crate::rules::harness::*;

const KILLED: WaitStatus = WaitStatus::Signaled(Signal::KILL, false);

#[test]
fn kill_accepts_bare_numbers_and_thread_ids() {
    everywhere(|sys| {
        let own = Pid::number_only(sys.getpid().number());
        assert_eq!(sys.kill(own.into(), None), Ok(()));
        assert_eq!(sys.kill(SignalTarget::OwnGroup, None), Ok(()));
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        let bell = Bell::new(sys);
        let thread = sys
            .thread(move |sys| {
                let itself = Pid::number_only(sys.gettid().0);
                assert_eq!(sys.kill(itself.into(), None), Ok(()));
                bell.heard(sys);
            })
            .unwrap();
        let named = Pid::number_only(thread.0);
        assert_eq!(sys.kill(named.into(), None), Ok(()));
        kill(sys, named, Signal::USR1);
        until(sys, || log.len() == 1);
        bell.ring(sys);
        sys.join(thread).unwrap();
        assert_eq!(sys.kill(named.into(), None), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn group_exists_until_its_last_member_is_reaped() {
    everywhere(|sys| {
        let [child, other] = [0; 2].map(|_| sys.fork(sleep_on).unwrap());
        let end = Some(Signal::KILL);
        assert_eq!(sys.kill(SignalTarget::Group(child), end), Err(Errno::ESRCH));
        sys.setpgid(child, child).unwrap();
        assert_eq!(sys.setpgid(child, other), Err(Errno::EPERM));
        kill(sys, other, Signal::KILL);
        assert_eq!(end_of(sys, other), WaitStatus::Signaled(Signal::KILL, false));
        assert_eq!(sys.setpgid(child, child), Ok(()));
        assert_eq!(sys.kill(SignalTarget::Group(child), end), Ok(()));
        let group = Children::Group(child);
        let waited = sys.waitpid(group, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((waited.pid, waited.status), (child, WaitStatus::Signaled(Signal::KILL, false)));
        assert_eq!(sys.kill(SignalTarget::Group(child), end), Err(Errno::ESRCH));
        assert_eq!(sys.waitpid(group, WaitOptions::empty()), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn sigkill_to_own_group_kills_caller() {
    everywhere(|sys| {
        // A process that has ended remains a member until it is reaped.
        sys.set_subreaper(true).unwrap();
        let bell = Bell::new(sys);
        let leader = sys
            .fork(move |sys| {
                let me = Pid::number_only(0);
                sys.setpgid(me, me).unwrap();
                for _ in 0..5 {
                    sys.fork(move |sys| {
                        bell.ring(sys);
                        sleep_on(sys)
                    })
                    .unwrap();
                    bell.heard(sys);
                }
                let _ = sys.kill(SignalTarget::OwnGroup, Some(Signal::KILL));
                1
            })
            .unwrap();
        let group = SignalTarget::Group(bare(leader));
        assert_eq!(end_of(sys, leader), KILLED);
        (0..5).for_each(|_| assert_eq!(sys.wait().unwrap().status, KILLED));
        assert_eq!(sys.kill(group, None), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn queued_signals_report_their_own_number_and_value() {
    everywhere(|sys| {
        let log = Log::default();
        for (signal, value) in [(Signal::USR1, 11), (Signal::USR2, 22)] {
            let log = log.clone();
            let handler = SigAction::handler(move |_, info| {
                log.note(info.signal.number());
                log.note(info.value);
                log.note(code(info.code));
            });
            act(sys, signal, handler);
            sys.sigqueue(sys.getpid(), Some(signal), value).unwrap();
        }
        let queued = code(SigCode::Queue);
        let (first, second) = (Signal::USR1.number(), Signal::USR2.number());
        assert_eq!(log.all(), [first, 11, queued, second, 22, queued]);
    })
    .and_on_linux();
}

#[test]
fn real_time_signal_to_a_thread_reports_its_sender() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::RTMAX, log.infos());
        sys.tgkill(sys.getpid(), sys.gettid(), Some(Signal::RTMAX)).unwrap();
        let (pid, uid) = (sys.getpid().number(), sys.getuid() as i32);
        assert_eq!(log.all(), [code(SigCode::Tkill), pid, uid, 0, 0]);
    })
    .and_on_linux();
}

#[test]
fn thread_signal_beyond_the_limit_is_refused() {
    everywhere(|sys| {
        // The limit counts all signals pending for the user.
        let end = end_as(sys, |sys| {
            sys.setuid(unused_uid(sys)).unwrap();
            let bell = Bell::new(sys);
            block(sys, &[Signal::RTMIN]);
            let thread = sys.thread(move |sys| bell.heard(sys)).unwrap();
            sys.setrlimit(Resource::PendingSignals, Rlimit::of(0)).unwrap();
            let sent = sys.tgkill(sys.getpid(), thread, Some(Signal::RTMIN));
            assert_eq!(sent, Err(Errno::EAGAIN));
            bell.ring(sys);
            sys.join(thread).unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

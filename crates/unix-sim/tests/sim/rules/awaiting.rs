//! Threads that wait for signals: the signals that `sigsuspend` and `sigwait` take or leave
//! pending.

use super::harness::*;

#[test]
fn sigwait_takes_the_first_queued_and_leaves_the_rest() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::RTMIN]);
        block(sys, &[Signal::RTMIN]);
        for value in [3, 1, 2] {
            sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), value).unwrap();
        }
        assert_eq!(sys.sigwait(set), Ok(Signal::RTMIN));
        assert_eq!(sys.sigpending(), set);
        let values: Vec<_> = drain(sys, set).iter().map(|info| info.value).collect();
        assert_eq!(values, [1, 2]);
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
    })
    .and_on_linux();
}

#[test]
fn sigwait_takes_a_coalesced_standard_signal_once() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::USR1]);
        block(sys, &[Signal::USR1]);
        for _ in 0..4 {
            sys.raise(Signal::USR1).unwrap();
        }
        assert_eq!(sys.sigwait(set), Ok(Signal::USR1));
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
    })
    .and_on_linux();
}

#[test]
fn sigwait_takes_the_lowest_queued_signal_first() {
    everywhere(|sys| {
        let signals = [9, 0, 30, 4].map(|nth| Signal::realtime(nth).unwrap());
        let set = SigSet::of(&signals);
        sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
        for signal in signals {
            sys.sigqueue(sys.getpid(), Some(signal), 0).unwrap();
        }
        for signal in set.iter() {
            assert_eq!(sys.sigwait(set), Ok(signal));
        }
    })
    .and_on_linux();
}

#[test]
fn sigtimedwait_reports_number_code_and_value() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::USR1, Signal::RTMIN]);
        sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
        let told = || {
            let info = sys.sigtimedwait(set, None).unwrap();
            (info.signal, info.code, info.value)
        };
        kill(sys, sys.getpid(), Signal::USR1);
        assert_eq!(told(), (Signal::USR1, SigCode::User, 0));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(told(), (Signal::USR1, SigCode::Tkill, 0));
        sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), -5).unwrap();
        assert_eq!(told(), (Signal::RTMIN, SigCode::Queue, -5));
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
    })
    .and_on_linux();
}

#[test]
fn sigtimedwait_with_zero_timeout_does_not_wait() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::USR1, Signal::ALRM]);
        sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
        sys.alarm(1000);
        for _ in 0..10 {
            assert_eq!(sys.sigtimedwait(set, Some(Duration::ZERO)), Err(Errno::EAGAIN));
        }
        assert!(sys.alarm(0) > 900);
        kill(sys, sys.getpid(), Signal::USR1);
        let info = sys.sigtimedwait(set, Some(Duration::ZERO)).unwrap();
        assert_eq!(info.signal, Signal::USR1, "a pending signal is taken");
    })
    .and_on_linux();
}

#[test]
fn sigwait_sleeps_until_a_signal_arrives() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let set = SigSet::of(&[Signal::USR1, Signal::USR2]);
        sys.sigprocmask(Some((SigmaskHow::Block, set))).unwrap();
        let thread = sys.thread(move |sys| noted.note(sys.sigwait(set).unwrap().number()));
        let thread = thread.unwrap();
        rest(sys);
        assert_eq!(log.len(), 0);
        kill(sys, sys.getpid(), Signal::USR2);
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [Signal::USR2.number()]);
    })
    .and_on_linux();
}

#[test]
fn thread_directed_signal_wakes_only_its_waiting_thread() {
    everywhere(|sys| {
        let log = Log::default();
        let set = SigSet::of(&[Signal::USR1]);
        block(sys, &[Signal::USR1]);
        let threads = [(); 2].map(|()| {
            let noted = log.clone();
            sys.thread(move |sys| {
                sys.sigwait(set).unwrap();
                noted.note(sys.gettid().0);
            })
            .unwrap()
        });
        let [first, second] = threads;
        for (nth, thread) in [second, first].into_iter().enumerate() {
            sys.tgkill(sys.getpid(), thread, Some(Signal::USR1)).unwrap();
            until(sys, || log.len() == nth + 1);
        }
        assert_eq!(log.all(), [second.0, first.0]);
        threads.into_iter().for_each(|thread| sys.join(thread).unwrap());
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_waits_for_a_signal_outside_its_mask() {
    everywhere(|sys| {
        let log = Log::default();
        let (one, both) = (SigSet::of(&[Signal::USR1]), [Signal::USR1, Signal::USR2]);
        for signal in both {
            act(sys, signal, log.signals());
        }
        block(sys, &both);
        let done = log.clone();
        let thread = sys
            .thread(move |sys| {
                assert_eq!(sys.sigsuspend(one), Errno::EINTR);
                done.note(-1);
                assert_eq!(
                    sys.sigprocmask(None),
                    Ok(SigSet::of(&both)),
                    "the mask was not restored"
                );
                assert_eq!(sys.sigpending(), one);
            })
            .unwrap();
        let send = |signal| sys.tgkill(sys.getpid(), thread, Some(signal)).unwrap();
        send(Signal::USR1);
        rest(sys);
        assert_eq!(log.len(), 0, "the mask of the call blocks it");
        send(Signal::USR2);
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [Signal::USR2.number(), -1]);
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_leaves_other_process_signals_pending() {
    everywhere(|sys| {
        let log = Log::default();
        let (both, usr2) = ([Signal::USR1, Signal::USR2], SigSet::of(&[Signal::USR2]));
        for signal in both {
            act(sys, signal, log.signals());
        }
        block(sys, &both);
        both.iter().for_each(|&signal| kill(sys, sys.getpid(), signal));
        assert_eq!(sys.sigsuspend(usr2), Errno::EINTR);
        assert_eq!(log.all(), [Signal::USR1.number()]);
        let noted = log.clone();
        let thread = sys.thread(move |sys| noted.note(sys.sigwait(usr2).unwrap().number()));
        sys.join(thread.unwrap()).unwrap();
        assert_eq!(log.all(), both.map(Signal::number), "another thread can take it");
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_does_not_return_from_a_fatal_signal() {
    everywhere(|sys| {
        block(sys, &[Signal::TERM]);
        let child = sys
            .fork(|sys| {
                sys.sigsuspend(SigSet::EMPTY);
                7
            })
            .unwrap();
        kill(sys, child, Signal::TERM);
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
    })
    .and_on_linux();
}

#[test]
fn sigsuspend_blocks_neither_kill_nor_stop() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                sys.sigsuspend(Signal::all().collect());
                7
            })
            .unwrap();
        rest(sys);
        stop_and_kill(sys, child);
    })
    .and_on_linux();
}

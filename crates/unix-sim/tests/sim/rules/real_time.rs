//! Real-time signals: their order, queue and limit.

use super::harness::*;

const SET: SigSet = SigSet::of(&[Signal::RTMIN, Signal::RTMAX]);

#[test]
fn real_time_signals_arrive_lowest_first_in_queue_order() {
    everywhere(|sys| {
        sys.sigprocmask(Some((SigmaskHow::Block, SET))).unwrap();
        for (signal, value) in
            [(Signal::RTMAX, 1), (Signal::RTMIN, 2), (Signal::RTMAX, 3), (Signal::RTMIN, 2)]
        {
            sys.sigqueue(sys.getpid(), Some(signal), value).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| sys.sigtimedwait(SET, Some(Duration::ZERO)).ok())
            .map(|info| (info.signal, info.value))
            .collect();
        let (low, high) = (Signal::RTMIN, Signal::RTMAX);
        assert_eq!(order, [(low, 2), (low, 2), (high, 1), (high, 3)]);
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
    })
    .and_on_linux();
}

#[test]
fn kill_queues_real_time_signals() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::RTMIN, log.signals());
        block(sys, &[Signal::RTMIN]);
        for _ in 0..3 {
            kill(sys, sys.getpid(), Signal::RTMIN);
        }
        unblock(sys, &[Signal::RTMIN]);
        assert_eq!(log.len(), 3);
    })
    .and_on_linux();
}

#[test]
fn real_time_signal_default_action_terminates() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            kill(sys, sys.getpid(), Signal::RTMIN);
            0
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::RTMIN, false));
    })
    .and_on_linux();
}

/// Runs part of a rule with a limit on queued signals, as a user without other processes.
fn limited(sys: &dyn Sys, limit: u64, rule: impl FnOnce(&dyn Sys) + Send + 'static) {
    let end = end_as(sys, move |sys| {
        sys.setuid(unused_uid(sys)).unwrap();
        let limit = Rlimit::of(limit);
        sys.setrlimit(Resource::PendingSignals, limit).unwrap();
        sys.sigprocmask(Some((SigmaskHow::Block, SET))).unwrap();
        rule(sys);
        0
    });
    assert_eq!(end, WaitStatus::Exited(0));
}

#[test]
fn sigqueue_beyond_the_limit_returns_eagain_until_one_is_taken() {
    everywhere(|sys| {
        limited(sys, 2, |sys| {
            let queue = || sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1);
            assert_eq!((queue(), queue(), queue()), (Ok(()), Ok(()), Err(Errno::EAGAIN)));
            assert_eq!(
                sys.tgkill(sys.getpid(), sys.gettid(), Some(Signal::RTMIN)),
                Err(Errno::EAGAIN)
            );
            sys.sigwait(SET).unwrap();
            assert_eq!((queue(), queue()), (Ok(()), Err(Errno::EAGAIN)));
        });
    })
    .and_on_linux();
}

#[test]
fn kill_beyond_the_limit_sends_without_information() {
    everywhere(|sys| {
        limited(sys, 1, |sys| {
            sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1).unwrap();
            for _ in 0..2 {
                kill(sys, sys.getpid(), Signal::RTMAX);
            }
            let none = Some(Duration::ZERO);
            assert_eq!(sys.sigwait(SET), Ok(Signal::RTMIN));
            let info = sys.sigtimedwait(SET, none).unwrap();
            assert_eq!((info.signal, info.code, info.pid), (Signal::RTMAX, SigCode::User, 0));
            assert_eq!(sys.sigtimedwait(SET, none), Err(Errno::EAGAIN), "both signals were merged");
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Ok(()));
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Err(Errno::EAGAIN));
        });
    })
    .and_on_linux();
}

#[test]
fn standard_signals_count_toward_limit_but_are_not_refused() {
    everywhere(|sys| {
        limited(sys, 1, |sys| {
            block(sys, &[Signal::USR1, Signal::USR2]);
            kill(sys, sys.getpid(), Signal::USR1);
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Err(Errno::EAGAIN));
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::USR2), 5), Ok(()));
            let info = sys.sigtimedwait(SigSet::of(&[Signal::USR2]), None).unwrap();
            assert_eq!((info.code, info.value), (SigCode::User, 0), "no space for the information");
        });
    })
    .and_on_linux();
}

#[test]
fn discarded_signals_no_longer_count() {
    everywhere(|sys| {
        limited(sys, 2, |sys| {
            let queue = || sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1);
            let full = || {
                assert_eq!((queue(), queue(), queue()), (Ok(()), Ok(()), Err(Errno::EAGAIN)));
            };
            full();
            act(sys, Signal::RTMIN, SigAction::IGNORE);
            act(sys, Signal::RTMIN, SigAction::DEFAULT);
            full();
            act(sys, Signal::RTMIN, SigAction::IGNORE);
            act(sys, Signal::RTMIN, SigAction::DEFAULT);
            let end = end_as(sys, |sys| {
                sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1).unwrap();
                sys.tgkill(sys.getpid(), sys.gettid(), Some(Signal::RTMIN)).unwrap();
                0
            });
            assert_eq!(end, WaitStatus::Exited(0));
            rest(sys);
            full();
        });
    })
    .and_on_linux();
}

#[test]
fn signals_of_an_ended_thread_no_longer_count() {
    everywhere(|sys| {
        limited(sys, 1, |sys| {
            let thread = sys
                .thread(|sys| {
                    sys.tgkill(sys.getpid(), sys.gettid(), Some(Signal::RTMIN)).unwrap();
                })
                .unwrap();
            sys.join(thread).unwrap();
            assert_eq!(sys.sigqueue(sys.getpid(), Some(Signal::RTMIN), 1), Ok(()));
        });
    });
}

//! Signals between generation and delivery.

use super::harness::*;

#[test]
fn sigpending_shows_blocked_signals_that_were_sent() {
    everywhere(|sys| {
        let both = [Signal::USR1, Signal::USR2];
        assert_eq!(sys.sigpending(), SigSet::EMPTY);
        block(sys, &both);
        kill(sys, sys.getpid(), Signal::USR1);
        assert_eq!(sys.sigpending(), SigSet::of(&[Signal::USR1]));
        sys.raise(Signal::USR2).unwrap();
        assert_eq!(sys.sigpending(), SigSet::of(&both), "the process's and the thread's");
        act(sys, Signal::USR1, Log::default().signals());
        unblock(sys, &[Signal::USR1]);
        assert_eq!(sys.sigpending(), SigSet::of(&[Signal::USR2]));
    })
    .and_on_linux();
}

#[test]
fn sigpending_shows_process_signals_and_only_own_thread_signals() {
    everywhere(|sys| {
        let log = Log::default();
        block(sys, &[Signal::USR1, Signal::USR2]);
        sys.raise(Signal::USR1).unwrap();
        kill(sys, sys.getpid(), Signal::USR2);
        let seen = log.clone();
        let thread = sys
            .thread(move |sys| {
                seen.note(i32::from(sys.sigpending() == SigSet::of(&[Signal::USR2])));
            })
            .unwrap();
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [1]);
    })
    .and_on_linux();
}

#[test]
fn standard_signal_coalesces_and_keeps_its_first_info() {
    everywhere(|sys| {
        let set = SigSet::of(&[Signal::USR1]);
        block(sys, &[Signal::USR1]);
        for value in [1, 2, 3] {
            sys.sigqueue(sys.getpid(), Some(Signal::USR1), value).unwrap();
        }
        let told: Vec<_> = drain(sys, set).iter().map(|info| (info.code, info.value)).collect();
        assert_eq!(told, [(SigCode::Queue, 1)]);
    })
    .and_on_linux();
}

#[test]
fn thread_signals_precede_process_signals_lowest_first() {
    everywhere(|sys| {
        let own = [Signal::TERM, Signal::USR1, Signal::RTMAX];
        let shared = [Signal::RTMIN, Signal::HUP, Signal::USR2];
        let all: SigSet = own.into_iter().chain(shared).collect();
        sys.sigprocmask(Some((SigmaskHow::Block, all))).unwrap();
        own.iter().for_each(|&signal| sys.raise(signal).unwrap());
        shared.iter().for_each(|&signal| kill(sys, sys.getpid(), signal));
        let order: Vec<_> = drain(sys, all).iter().map(|info| info.signal).collect();
        let expected =
            [Signal::USR1, Signal::TERM, Signal::RTMAX, Signal::HUP, Signal::USR2, Signal::RTMIN];
        assert_eq!(order, expected);
    })
    .and_on_linux();
}

#[test]
fn faults_are_taken_before_lower_signals() {
    everywhere(|sys| {
        let three = [Signal::HUP, Signal::SEGV, Signal::BUS];
        block(sys, &three);
        three.iter().for_each(|&signal| sys.raise(signal).unwrap());
        let order: Vec<_> = drain(sys, SigSet::of(&three)).iter().map(|i| i.signal).collect();
        assert_eq!(order, [Signal::BUS, Signal::SEGV, Signal::HUP]);
    })
    .and_on_linux();
}

#[test]
fn sigkill_takes_effect_despite_other_pending_signals() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        change_of(sys, child, WaitOptions::STOPPED);
        for signal in [Signal::SEGV, Signal::HUP, Signal::TSTP, Signal::KILL] {
            kill(sys, child, signal);
        }
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
    })
    .and_on_linux();
}

#[test]
fn sigcont_and_stop_signals_cancel_each_other_while_pending() {
    everywhere(|sys| {
        let stops = [Signal::TSTP, Signal::TTIN, Signal::TTOU];
        let all: SigSet = stops.into_iter().chain([Signal::CONT]).collect();
        sys.sigprocmask(Some((SigmaskHow::Block, all))).unwrap();
        stops.iter().for_each(|&signal| kill(sys, sys.getpid(), signal));
        sys.raise(Signal::TSTP).unwrap();
        assert_eq!(sys.sigpending(), SigSet::of(&stops));
        kill(sys, sys.getpid(), Signal::CONT);
        assert_eq!(sys.sigpending(), SigSet::of(&[Signal::CONT]));
        for stop in stops {
            kill(sys, sys.getpid(), Signal::CONT);
            kill(sys, sys.getpid(), stop);
            assert_eq!(sys.sigpending(), SigSet::of(&[stop]));
        }
    })
    .and_on_linux();
}

//! `sigprocmask`: the mask of a thread.

use super::harness::*;

#[test]
fn block_adds_unblock_removes_set_replaces_and_each_gives_back_what_was() {
    everywhere(|sys| {
        let (one, two) = (SigSet::of(&[Signal::USR1]), SigSet::of(&[Signal::USR2]));
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
        assert_eq!(sys.sigprocmask(Some((SigmaskHow::Block, one))), Ok(SigSet::EMPTY));
        assert_eq!(sys.sigprocmask(Some((SigmaskHow::Block, two))), Ok(one));
        assert_eq!(sys.sigprocmask(Some((SigmaskHow::Unblock, one))), Ok(one.union(two)));
        assert_eq!(sys.sigprocmask(Some((SigmaskHow::Set, one))), Ok(two));
        assert_eq!(sys.sigprocmask(None), Ok(one));
    })
    .and_on_linux();
}

#[test]
fn kill_and_stop_are_never_blocked() {
    everywhere(|sys| {
        let all: SigSet = Signal::all().collect();
        sys.sigprocmask(Some((SigmaskHow::Set, all))).unwrap();
        assert_eq!(sys.sigprocmask(None), Ok(all.difference(SigSet::UNBLOCKABLE)));
        let child = sys.fork(sleep_on).unwrap();
        stop_and_kill(sys, child);
    })
    .and_on_linux();
}

#[test]
fn what_a_mask_lets_in_is_delivered_before_the_call_returns() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        block(sys, &[Signal::USR1]);
        sys.raise(Signal::USR1).unwrap();
        kill(sys, sys.getpid(), Signal::USR1);
        assert_eq!(log.len(), 0);
        unblock(sys, &[Signal::USR1]);
        assert_eq!(log.len(), 2, "one thread signal and one process signal");
    })
    .and_on_linux();
}

#[test]
fn a_signal_to_oneself_arrives_before_kill_returns() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        for nth in 1..=3 {
            kill(sys, sys.getpid(), Signal::USR1);
            assert_eq!(log.len(), nth);
        }
    })
    .and_on_linux();
}

#[test]
fn a_thread_begins_with_its_makers_mask_and_keeps_its_own() {
    everywhere(|sys| {
        let log = Log::default();
        block(sys, &[Signal::USR1]);
        let seen = log.clone();
        let thread = sys
            .thread(move |sys| {
                seen.note(i32::from(sys.sigprocmask(None) == Ok(SigSet::of(&[Signal::USR1]))));
                block(sys, &[Signal::USR2]);
            })
            .unwrap();
        sys.join(thread).unwrap();
        assert_eq!(log.all(), [1]);
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::USR1])));
    })
    .and_on_linux();
}

#[test]
fn a_mask_that_a_handler_changes_is_undone_when_it_returns() {
    everywhere(|sys| {
        let handler = SigAction::handler(|sys, _| block(sys, &[Signal::HUP]));
        act(sys, Signal::USR1, handler);
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
    })
    .and_on_linux();
}

#[test]
fn a_mask_is_the_processs_where_osf1s_are_asked_for() {
    everywhere_with(
        |builder| builder.masks(Masks::PerProcess),
        |sys| {
            let usr1 = SigSet::of(&[Signal::USR1]);
            let other = sys.thread(move |sys| block(sys, &[Signal::USR1])).unwrap();
            sys.join(other).unwrap();
            assert_eq!(
                sys.sigprocmask(None),
                Ok(usr1),
                "a signal that one thread blocks is blocked in all"
            );
            let log = Log::default();
            act(sys, Signal::USR1, log.signals());
            kill(sys, sys.getpid(), Signal::USR1);
            assert_eq!((log.len(), sys.sigpending()), (0, usr1));
            let other = sys.thread(move |sys| unblock(sys, &[Signal::USR1])).unwrap();
            sys.join(other).unwrap();
            sys.poll();
            assert_eq!((log.len(), sys.sigpending()), (1, SigSet::EMPTY));
        },
    );
}

#[test]
fn sigsuspend_suspends_one_thread_where_the_mask_is_the_processs() {
    everywhere_with(
        |builder| builder.masks(Masks::PerProcess),
        |sys| {
            let (usr1, usr2) = (SigSet::of(&[Signal::USR1]), SigSet::of(&[Signal::USR2]));
            let log = Log::default();
            act(sys, Signal::USR1, log.signals());
            block(sys, &[Signal::USR1]);
            let main = sys.gettid();
            let other = sys.thread(move |sys| {
                assert_eq!(sys.sigprocmask(None), Ok(usr1), "not the mask of the suspended thread");
                block(sys, &[Signal::USR2]);
                sys.tgkill(sys.getpid(), main, Some(Signal::USR1)).unwrap();
            });
            let other = other.unwrap();
            assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
            sys.join(other).unwrap();
            assert_eq!(log.len(), 1);
            assert_eq!(sys.sigprocmask(None), Ok(usr1.union(usr2)), "the process's current mask");
        },
    );
}

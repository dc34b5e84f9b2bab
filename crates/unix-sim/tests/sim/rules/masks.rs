//! `sigprocmask`: the mask of a thread.

use super::harness::*;

#[test]
fn sigprocmask_block_unblock_set_return_the_old_mask() {
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
fn sigkill_and_sigstop_are_never_blocked() {
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
fn unblocked_signals_are_delivered_before_sigprocmask_returns() {
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
fn signal_to_self_arrives_before_kill_returns() {
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
fn new_thread_inherits_the_mask_and_changes_only_its_own() {
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
fn mask_changed_in_a_handler_is_restored_on_return() {
    everywhere(|sys| {
        let handler = SigAction::handler(|sys, _| block(sys, &[Signal::HUP]));
        act(sys, Signal::USR1, handler);
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
    })
    .and_on_linux();
}

#[test]
fn per_process_masks_are_shared_by_all_threads() {
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
fn sigsuspend_with_per_process_masks_suspends_one_thread() {
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

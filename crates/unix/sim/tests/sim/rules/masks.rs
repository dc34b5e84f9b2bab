//! `sigprocmask`: the mask of a thread.

use super::harness::*;

#[test]
fn per_process_masks_are_shared_by_all_threads() {
    everywhere_with(
        |builder| builder.masks(Masks::PerProcess),
        |sys| {
            let usr1 = SigSet::of(&[Signal::USR1]);
            let other = threaded(sys, move |sys| block(sys, &[Signal::USR1]));
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
            let other = threaded(sys, move |sys| unblock(sys, &[Signal::USR1]));
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
            let other = threaded(sys, move |sys| {
                assert_eq!(sys.sigprocmask(None), Ok(usr1), "not the mask of the suspended thread");
                block(sys, &[Signal::USR2]);
                sys.tgkill(sys.getpid(), main, Some(Signal::USR1)).unwrap();
            });
            assert_eq!(sys.sigsuspend(SigSet::EMPTY), Errno::EINTR);
            sys.join(other).unwrap();
            assert_eq!(log.len(), 1);
            assert_eq!(sys.sigprocmask(None), Ok(usr1.union(usr2)), "the process's current mask");
        },
    );
}

//! The session and the foreground group of a terminal, from the beginning of the session to its
//! end.

use tontine_unix::{Errno, SigSet, Signal, WaitStatus};

use crate::jobs::scene::{
    Gate, SELF, end, everywhere_and_on_linux, fork, ignore, leader, report, with_terminal,
};

#[test]
fn either_end_can_become_the_controlling_terminal() {
    everywhere_and_on_linux(|sys| {
        let leader = fork(sys, |sys| {
            sys.setsid().unwrap();
            let (controlling, terminal) = sys.openpty().unwrap();
            sys.set_controlling(controlling).unwrap();
            let me = sys.getpid();
            assert_eq!((sys.tcgetsid(terminal), sys.tcgetpgrp(terminal)), (Ok(me), Ok(me)));
            ignore(sys, Signal::HUP);
        });
        assert_eq!(end(sys, leader), WaitStatus::Exited(0));
    });
}

#[test]
fn terminal_keeps_its_session_when_a_child_ends() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, controlling, terminal| {
            let child = fork(sys, |_| {});
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
            assert_eq!(sys.tcgetsid(terminal), Ok(sys.getpid()));
            let told = Gate::new(sys);
            report(sys, told, SigSet::of(&[Signal::INT]));
            sys.write(controlling, b"\x03").unwrap();
            told.pass(sys);
        });
    });
}

#[test]
fn foreground_passes_to_a_child_and_back() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            ignore(sys, Signal::TTOU);
            let me = sys.getpgrp();
            assert_eq!(
                sys.tcsetpgrp(terminal, me),
                Ok(()),
                "the group is in the foreground already"
            );
            let child = leader(sys);
            assert_eq!(sys.tcsetpgrp(terminal, child), Ok(()));
            assert_eq!(sys.tcgetpgrp(terminal), Ok(child));
            assert_eq!(sys.getsid(child), sys.getsid(SELF));
            sys.kill(child.into(), Some(Signal::TERM)).unwrap();
            assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::TERM, false));
            assert_eq!(sys.tcsetpgrp(terminal, me), Ok(()));
            assert_eq!(sys.tcgetpgrp(terminal), Ok(me));
        });
    });
}

#[test]
fn tcsetpgrp_to_an_empty_group_returns_esrch() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            let child = fork(sys, |sys| sys.setpgid(SELF, SELF).unwrap());
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
            assert_eq!(sys.tcsetpgrp(terminal, child), Err(Errno::ESRCH));
            assert_eq!(sys.tcgetpgrp(terminal), Ok(sys.getpgrp()));
        });
    });
}

#[test]
fn nested_sessions_end_one_by_one() {
    everywhere_and_on_linux(|sys| {
        let second = fork(sys, |sys| {
            sys.setsid().unwrap();
            let third = fork(sys, |sys| {
                let parents = sys.getsid(SELF).unwrap();
                assert_ne!(sys.setsid().map(|own| own.number()), Ok(parents.number()));
            });
            assert_eq!(end(sys, third), WaitStatus::Exited(0));
        });
        assert_eq!(end(sys, second), WaitStatus::Exited(0));
    });
}

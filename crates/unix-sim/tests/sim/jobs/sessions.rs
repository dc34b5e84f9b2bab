//! Sessions: setsid, and the members of a session.

use tontine_unix::{Errno, SpawnGroup, WaitStatus};

use crate::jobs::scene::{
    Gate, SELF, end, everywhere_and_on_linux, fork, kill, sleeper, spawn_cat, with_terminal,
};

#[test]
fn setsid_makes_the_caller_a_session_and_group_leader() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            let me = sys.getpid();
            assert_ne!(sys.getpgrp(), me);
            assert_eq!(sys.setsid(), Ok(me));
            assert_eq!((sys.getsid(SELF), sys.getpgid(SELF)), (Ok(me), Ok(me)));
            let grand = sleeper(sys);
            assert_eq!((sys.getsid(grand), sys.getpgid(grand)), (Ok(me), Ok(me)));
            kill(sys, grand);
        });
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn setsid_of_a_group_leader_returns_eperm() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            sys.setpgid(SELF, SELF).unwrap();
            assert_eq!(sys.setsid(), Err(Errno::EPERM));
        });
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn setsid_while_a_group_has_the_pid_returns_eperm() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            let (me, before) = (sys.getpid(), sys.getpgrp());
            sys.setpgid(SELF, SELF).unwrap();
            let member = sleeper(sys);
            sys.setpgid(SELF, before).unwrap();
            assert_eq!(sys.getpgid(member), Ok(me), "the group lives without its leader");
            assert_eq!(sys.setsid(), Err(Errno::EPERM));
            kill(sys, member);
            assert_eq!(sys.setsid(), Ok(me));
        });
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn new_session_has_no_terminal() {
    everywhere_and_on_linux(|sys| {
        with_terminal(sys, |sys, _, terminal| {
            assert_eq!(sys.tcgetsid(terminal), Ok(sys.getpid()));
            let child = fork(sys, move |sys| {
                let tty = sys.open_tty().unwrap();
                sys.setsid().unwrap();
                assert_eq!(sys.open_tty(), Err(Errno::ENXIO));
                assert_eq!(sys.tcgetsid(tty), Err(Errno::ENOTTY));
                assert_eq!(sys.tcgetpgrp(terminal), Err(Errno::ENOTTY));
            });
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
        });
    });
}

#[test]
fn session_outlives_its_leader() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let tell = Gate::new(sys);
        let leader = fork(sys, move |sys| {
            sys.setsid().unwrap();
            tell.tell(sys, sleeper(sys).number());
        });
        assert_eq!(end(sys, leader), WaitStatus::Exited(0));
        let member = tell.ask_pid(sys);
        assert_eq!(sys.getsid(member).map(|session| session.number()), Ok(leader.number()));
        kill(sys, member);
    });
}

#[test]
fn spawn_creates_a_session_or_a_group() {
    everywhere_and_on_linux(|sys| {
        let (child, input) = spawn_cat(sys, |spawn| spawn.session = true);
        assert_eq!(sys.getsid(child), Ok(child));
        assert_eq!(sys.setpgid(child, sys.getpgrp()), Err(Errno::EPERM));
        sys.close(input).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        let (child, input) = spawn_cat(sys, |spawn| spawn.group = SpawnGroup::Own);
        assert_eq!((sys.getpgid(child), sys.getsid(child)), (Ok(child), sys.getsid(SELF)));
        let (other, other_input) = spawn_cat(sys, |spawn| spawn.group = SpawnGroup::Of(child));
        assert_eq!(sys.getpgid(other), Ok(child));
        for (child, input) in [(child, input), (other, other_input)] {
            sys.close(input).unwrap();
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
        }
    });
}

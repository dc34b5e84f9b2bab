//! Orphaned groups: no member has a parent outside the group but in its session.

use tontine_unix::{Errno, Pid, SigSet, Signal, WaitStatus};

use crate::jobs::scene::{
    Gate, SELF, change, end, everywhere_and_on_linux, fork, inherited_end, kill, leader, news,
    report, reported, rest, sleep_on, sleeper, stop,
};

const HUP_AND_CONT: SigSet = SigSet::of(&[Signal::HUP, Signal::CONT]);

#[test]
fn newly_orphaned_stopped_group_gets_sighup_and_sigcont() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (tell, told, go) = (Gate::new(sys), Gate::new(sys), Gate::new(sys));
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let parent = fork(sys, move |sys| {
                let child = fork(sys, move |sys| {
                    report(sys, told, HUP_AND_CONT);
                    go.open(sys);
                    sleep_on(sys);
                });
                sys.setpgid(child, child).unwrap();
                go.pass(sys);
                stop(sys, child);
                tell.tell(sys, child.number());
            });
            assert_eq!(end(sys, parent), WaitStatus::Exited(0));
            sleep_on(sys);
        });
        let child = tell.ask_pid(sys);
        let both = SigSet::from_iter([reported(sys, told), reported(sys, told)]);
        assert_eq!(both, HUP_AND_CONT);
        assert_eq!(sys.getpgid(child).map(|group| group.number()), Ok(child.number()));
        sys.kill(child.into(), Some(Signal::KILL)).unwrap();
        kill(sys, session);
    });
}

#[test]
fn exit_of_the_session_leader_orphans_groups() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let tell = Gate::new(sys);
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let child = leader(sys);
            stop(sys, child);
            tell.tell(sys, child.number());
        });
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
        assert_eq!(inherited_end(sys, tell.ask_pid(sys)), WaitStatus::Signaled(Signal::HUP, false));
    });
}

#[test]
fn exit_of_the_member_with_outside_parent_orphans_the_group() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let (tell, go) = (Gate::new(sys), Gate::new(sys));
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let member = fork(sys, move |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                let other = sleeper(sys);
                stop(sys, other);
                tell.tell(sys, other.number());
                go.pass(sys);
            });
            assert_eq!(end(sys, member), WaitStatus::Exited(0));
            sleep_on(sys);
        });
        let other = tell.ask_pid(sys);
        go.open(sys);
        assert_eq!(inherited_end(sys, other), WaitStatus::Signaled(Signal::HUP, false));
        kill(sys, session);
    });
}

#[test]
fn every_member_of_an_orphaned_group_gets_the_signals() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let tell = Gate::new(sys);
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let (one, other) = (leader(sys), sleeper(sys));
            sys.setpgid(other, one).unwrap();
            stop(sys, one);
            tell.tell(sys, one.number());
            tell.tell(sys, other.number());
        });
        for _ in 0..2 {
            assert_eq!(
                inherited_end(sys, tell.ask_pid(sys)),
                WaitStatus::Signaled(Signal::HUP, false)
            );
        }
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
    });
}

#[test]
fn orphaned_group_without_stopped_member_gets_no_signal() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let tell = Gate::new(sys);
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            tell.tell(sys, leader(sys).number());
        });
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
        let child = tell.ask_pid(sys);
        rest(sys);
        assert_eq!(news(sys, child), None);
        kill(sys, child);
    });
}

#[test]
fn group_with_another_outside_parent_is_not_orphaned() {
    everywhere_and_on_linux(|sys| {
        sys.set_subreaper(true).unwrap();
        let tell = Gate::new(sys);
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let mine = Pid::number_only(leader(sys).number());
            let between = fork(sys, move |sys| {
                let child = sleeper(sys);
                sys.setpgid(child, mine).unwrap();
                stop(sys, child);
                tell.tell(sys, child.number());
            });
            assert_eq!(end(sys, between), WaitStatus::Exited(0));
            rest(sys);
            assert_eq!(news(sys, mine), None);
            // Now no member of the group has a parent outside the group.
            stop(sys, mine);
        });
        let child = tell.ask_pid(sys);
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::HUP, false));
    });
}

#[test]
fn group_orphaned_by_setpgid_gets_no_signal() {
    everywhere_and_on_linux(|sys| {
        let session = fork(sys, move |sys| {
            sys.setsid().unwrap();
            let parent = fork(sys, |sys| {
                let child = leader(sys);
                stop(sys, child);
                sys.setpgid(SELF, child).unwrap();
                rest(sys);
                assert_eq!(news(sys, child), None, "the group stays stopped");
                sys.setpgid(SELF, SELF).unwrap();
                kill(sys, child);
            });
            assert_eq!(end(sys, parent), WaitStatus::Exited(0));
        });
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
    });
}

#[test]
fn terminal_stop_signals_do_not_stop_an_orphaned_group() {
    everywhere_and_on_linux(|sys| {
        let session = fork(sys, |sys| {
            sys.setsid().unwrap();
            for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
                sys.raise(signal).unwrap();
            }
        });
        assert_eq!(change(sys, session), WaitStatus::Exited(0));
    });
}

#[test]
fn terminal_stop_signals_stop_a_group_with_a_parent() {
    everywhere_and_on_linux(|sys| {
        for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
            let session = fork(sys, move |sys| {
                sys.setsid().unwrap();
                let child = leader(sys);
                sys.kill(child.into(), Some(signal)).unwrap();
                assert_eq!(change(sys, child), WaitStatus::Stopped(signal));
                kill(sys, child);
            });
            assert_eq!(change(sys, session), WaitStatus::Exited(0));
        }
    });
}

#[test]
fn sigstop_stops_an_orphaned_group_too() {
    everywhere_and_on_linux(|sys| {
        let session = fork(sys, |sys| {
            sys.setsid().unwrap();
            sys.raise(Signal::STOP).unwrap();
        });
        assert_eq!(change(sys, session), WaitStatus::Stopped(Signal::STOP));
        sys.kill(session.into(), Some(Signal::CONT)).unwrap();
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
        assert_eq!(sys.kill(session.into(), None), Err(Errno::ESRCH));
    });
}

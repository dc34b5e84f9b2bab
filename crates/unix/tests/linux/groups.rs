//! Process groups and sessions.

use tontine_unix::{Errno, Pid, Signal, Status, Target, WaitOptions};

use crate::scene::{await_byte, end, play, reap, send_byte, sleeper};

const SELF: Pid = Pid::number_only(0);

#[test]
fn a_signal_to_a_group_reaches_its_members_and_nobody_else() {
    play(|sys| {
        let (leader, member, other) = (sleeper(sys), sleeper(sys), sleeper(sys));
        sys.setpgid(leader, leader).unwrap();
        sys.setpgid(member, leader).unwrap();
        assert_eq!(sys.getpgid(member), Ok(leader));
        sys.killpg(leader, Some(Signal::TERM)).unwrap();
        for child in [leader, member] {
            assert_eq!(end(sys, child).signaled(), Some(Signal::TERM));
        }
        assert_eq!(sys.waitpid(other.into(), WaitOptions::NOHANG), Ok(None));
        assert_eq!(sys.killpg(leader, None), Err(Errno::ESRCH), "the group is gone");
        sys.kill(other.into(), Some(Signal::KILL)).unwrap();
        reap(sys, other);
    });
}

#[test]
fn a_group_outlives_its_leader() {
    play(|sys| {
        let (leader, member) = (sleeper(sys), sleeper(sys));
        sys.setpgid(leader, leader).unwrap();
        sys.setpgid(member, leader).unwrap();
        sys.kill(leader.into(), Some(Signal::KILL)).unwrap();
        reap(sys, leader);
        assert_eq!(sys.kill(leader.into(), None), Err(Errno::ESRCH), "as a process it is gone");
        assert_eq!(sys.getpgid(member), Ok(leader), "as a group it is there");
        sys.killpg(leader, Some(Signal::HUP)).unwrap();
        assert_eq!(end(sys, member).signaled(), Some(Signal::HUP));
        assert_eq!(sys.killpg(leader, None), Err(Errno::ESRCH));
        let late = sleeper(sys);
        assert_eq!(sys.setpgid(late, leader), Err(Errno::EPERM));
        sys.kill(late.into(), Some(Signal::KILL)).unwrap();
        reap(sys, late);
    });
}

#[test]
fn waiting_for_a_group_finds_its_members_only() {
    play(|sys| {
        let outside = sys.fork(|_| 1).unwrap();
        let inside = sleeper(sys);
        sys.setpgid(inside, inside).unwrap();
        let group = tontine_unix::Children::Group(inside);
        assert_eq!(sys.waitpid(group, WaitOptions::NOHANG), Ok(None));
        sys.kill(inside.into(), Some(Signal::KILL)).unwrap();
        let found = sys.waitpid(group, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(found.pid, inside);
        assert_eq!(sys.waitpid(group, WaitOptions::empty()), Err(Errno::ECHILD));
        assert_eq!(end(sys, outside), Status::Exited(1));
    });
}

#[test]
fn setpgid_refuses_as_the_kernel_does() {
    play(|sys| {
        let (release, hold) = sys.pipe().unwrap();
        let (ready, tell) = sys.pipe().unwrap();
        let session = sys.fork(move |sys| {
            sys.setsid().unwrap();
            assert_eq!(sys.setsid(), Err(Errno::EPERM));
            send_byte(sys, tell);
            await_byte(sys, release);
            0
        });
        let session = session.unwrap();
        await_byte(sys, ready);
        assert_eq!(sys.getsid(session), Ok(session));
        assert_eq!(sys.setpgid(session, session), Err(Errno::EPERM), "it leads a session");
        let executed = tontine_unix::Spawn::new("/bin/sleep", &["sleep", "1000"]);
        let executed = sys.spawn(&executed).unwrap();
        assert_eq!(sys.setpgid(executed, executed), Err(Errno::EACCES));
        assert_eq!(sys.setpgid(SELF, Pid::number_only(-3)), Err(Errno::EINVAL));
        assert_eq!(sys.setpgid(Pid::number_only(1), SELF), Err(Errno::ESRCH), "no child");
        sys.kill(executed.into(), Some(Signal::KILL)).unwrap();
        send_byte(sys, hold);
        reap(sys, executed);
        assert_eq!(end(sys, session), Status::Exited(0));
    });
}

#[test]
fn the_own_group_is_the_callers() {
    play(|sys| {
        let child = sys.fork(|sys| {
            sys.setpgid(SELF, SELF).unwrap();
            assert_eq!(sys.getpgrp(), sys.getpid());
            sys.kill(Target::OwnGroup, Some(Signal::TERM)).unwrap();
            0
        });
        assert_eq!(end(sys, child.unwrap()).signaled(), Some(Signal::TERM));
        assert_eq!(sys.killpg(Pid::number_only(-1), None), Err(Errno::EINVAL));
    });
}

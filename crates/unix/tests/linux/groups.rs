//! Process groups and sessions.

#![allow(unsafe_code, reason = "a PID namespace is unshared")]

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine_unix::{
    Children, Errno, Pid, SigAction, Signal, SignalTarget, WaitOptions, WaitStatus,
};

use crate::scene::{
    TIMEOUT_S, await_byte, end, open_descriptors, play, reap, send_byte, sleeper, until,
};

const SELF: Pid = Pid::number_only(0);

#[test]
fn group_signal_reaches_exactly_the_members() {
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
        assert_eq!(sys.killpg(leader, None), Err(Errno::ESRCH), "the group has ended");
        sys.kill(other.into(), Some(Signal::KILL)).unwrap();
        reap(sys, other);
    });
}

#[test]
fn group_outlives_its_reaped_leader() {
    play(|sys| {
        let (leader, member) = (sleeper(sys), sleeper(sys));
        sys.setpgid(leader, leader).unwrap();
        sys.setpgid(member, leader).unwrap();
        sys.kill(leader.into(), Some(Signal::KILL)).unwrap();
        reap(sys, leader);
        assert_eq!(sys.kill(leader.into(), None), Err(Errno::ESRCH), "the process has ended");
        assert_eq!(sys.getpgid(member), Ok(leader), "the group exists");
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
fn descriptor_of_a_group_is_closed_with_the_group() {
    play(|sys| {
        let before = open_descriptors();
        for _ in 0..100 {
            // The test acts like a shell with `a | b` whose first process ends first.
            let (leader, member) = (sleeper(sys), sleeper(sys));
            sys.setpgid(leader, leader).unwrap();
            sys.setpgid(member, leader).unwrap();
            for child in [leader, member] {
                sys.kill(child.into(), Some(Signal::KILL)).unwrap();
                reap(sys, child);
            }
        }
        let after = open_descriptors();
        assert!(after <= before + 20, "{before} descriptors grew to {after}");
    });
}

/// As in `children.rs`, a process in its own PID namespace can choose the next number. The leader
/// vanishes when it ends, because SIGCHLD is ignored, and a grandchild that is not in this
/// process's table receives its number.
#[test]
fn group_handle_never_names_the_next_group_with_its_number() {
    play(|sys| {
        // SAFETY: the call changes only the namespace of children created from now on, and no
        // descriptor.
        if unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.is_err() {
            // An unprivileged process cannot choose the number.
            return;
        }
        let first_of_its_system = sys.fork(|sys| {
            sys.alarm(TIMEOUT_S);
            sys.sigaction(Signal::CHLD, Some(SigAction::IGNORE)).unwrap();
            let old = sleeper(sys);
            sys.setpgid(old, old).unwrap();
            let number = old.number();
            sys.kill(old.into(), Some(Signal::KILL)).unwrap();
            until("the leader vanishes", || sys.kill(old.into(), None).is_err());
            let (ready, tell) = sys.pipe().unwrap();
            let parent = sys
                .fork(move |sys| {
                    let before = (number - 1).to_string();
                    std::fs::write("/proc/sys/kernel/ns_last_pid", before).unwrap();
                    let new = sleeper(sys);
                    sys.setpgid(new, new).unwrap();
                    assert_eq!(new.number(), number);
                    send_byte(sys, tell);
                    sys.pause();
                    0
                })
                .unwrap();
            await_byte(sys, ready);
            let bare = Pid::number_only(number);
            assert_eq!(sys.killpg(bare, None), Ok(()), "a group has the number");
            assert_eq!(sys.killpg(old, None), Err(Errno::ESRCH));
            assert_eq!(sys.killpg(old, Some(Signal::KILL)), Err(Errno::ESRCH));
            assert_eq!(sys.setpgid(parent, old), Err(Errno::EPERM));
            let group = sys.waitpid(Children::Group(old), WaitOptions::NOHANG);
            assert_eq!(group, Err(Errno::ECHILD));
            assert_eq!(sys.killpg(bare, None), Ok(()), "the group exists");
            0
        });
        assert_eq!(end(sys, first_of_its_system.unwrap()), WaitStatus::Exited(0));
    });
}

#[test]
fn wait_for_a_group_finds_only_its_members() {
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
        assert_eq!(end(sys, outside), WaitStatus::Exited(1));
    });
}

#[test]
fn setpgid_returns_the_errors_of_the_kernel() {
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
        assert_eq!(sys.setpgid(session, session), Err(Errno::EPERM), "a session leader");
        let executed = tontine_unix::SpawnRequest::new("/bin/sleep", &["sleep", "1000"]);
        let executed = sys.spawn(&executed).unwrap();
        assert_eq!(sys.setpgid(executed, executed), Err(Errno::EACCES));
        assert_eq!(sys.setpgid(SELF, Pid::number_only(-3)), Err(Errno::EINVAL));
        assert_eq!(sys.setpgid(Pid::number_only(1), SELF), Err(Errno::ESRCH), "not a child");
        sys.kill(executed.into(), Some(Signal::KILL)).unwrap();
        send_byte(sys, hold);
        reap(sys, executed);
        assert_eq!(end(sys, session), WaitStatus::Exited(0));
    });
}

#[test]
fn kill_of_own_group_signals_callers_group() {
    play(|sys| {
        let child = sys.fork(|sys| {
            sys.setpgid(SELF, SELF).unwrap();
            assert_eq!(sys.getpgrp(), sys.getpid());
            sys.kill(SignalTarget::OwnGroup, Some(Signal::TERM)).unwrap();
            0
        });
        assert_eq!(end(sys, child.unwrap()).signaled(), Some(Signal::TERM));
        assert_eq!(sys.killpg(Pid::number_only(-1), None), Err(Errno::EINVAL));
    });
}

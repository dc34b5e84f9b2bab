//! Process groups and sessions.

use tontine_unix::{Children, Errno, Pid, SigAction, Signal, WaitOptions};

use crate::scene::{
    await_byte, in_namespace, open_descriptors, reap, run, send_byte, sleeper, until,
};

#[test]
fn descriptor_of_a_group_is_closed_with_the_group() {
    run(|sys| {
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
    in_namespace(|sys| {
        sys.sigaction(Signal::CHLD, Some(SigAction::IGNORE)).unwrap();
        let old = sleeper(sys);
        sys.setpgid(old, old).unwrap();
        let number = old.number();
        sys.kill(old.into(), Some(Signal::KILL)).unwrap();
        until("the leader vanishes", || sys.kill(old.into(), None).is_err());
        let (ready, notify) = sys.pipe().unwrap();
        let parent = sys
            .fork(move |sys| {
                let before = (number - 1).to_string();
                std::fs::write("/proc/sys/kernel/ns_last_pid", before).unwrap();
                let new = sleeper(sys);
                sys.setpgid(new, new).unwrap();
                assert_eq!(new.number(), number);
                send_byte(sys, notify);
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
    });
}

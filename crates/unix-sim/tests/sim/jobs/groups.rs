//! Process groups: setpgid and getpgid, killpg, the lifetime of a group.

use tontine_unix::{Errno, Pid, Signal, SignalTarget, Sys, WaitOptions, WaitStatus};

use crate::jobs::scene::{
    Gate, MISSING, SELF, end, everywhere, everywhere_and_on_linux, fork, kill, leader, sleep_on,
    sleeper, spawn_cat, with,
};

#[test]
fn child_starts_in_group_and_session_of_parent() {
    everywhere_and_on_linux(|sys| {
        let child = sleeper(sys);
        assert_eq!(sys.getpgid(child), Ok(sys.getpgrp()));
        assert_eq!(sys.getsid(child), sys.getsid(SELF));
        kill(sys, child);
    });
}

#[test]
fn setpgid_by_parent_and_child_both_succeed() {
    everywhere_and_on_linux(|sys| {
        for _ in 0..5 {
            let child = fork(sys, |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                assert_eq!(sys.getpgrp(), sys.getpid());
            });
            sys.setpgid(child, child).unwrap();
            assert_eq!(sys.getpgid(child), Ok(child));
            assert_eq!(end(sys, child), WaitStatus::Exited(0));
        }
    });
}

#[test]
fn setpgid_moves_a_child_into_an_existing_group() {
    everywhere_and_on_linux(|sys| {
        let (one, two) = (leader(sys), sleeper(sys));
        sys.setpgid(two, one).unwrap();
        assert_eq!(sys.getpgid(two), Ok(one));
        sys.setpgid(two, sys.getpgrp()).unwrap();
        assert_eq!(sys.getpgid(two), Ok(sys.getpgrp()));
        // A move into the current group is permitted.
        sys.setpgid(two, sys.getpgrp()).unwrap();
        kill(sys, one);
        kill(sys, two);
    });
}

#[test]
fn setpgid_of_child_after_exec_returns_eacces() {
    everywhere_and_on_linux(|sys| {
        let (child, input) = spawn_cat(sys, |_| {});
        assert_eq!(sys.setpgid(child, child), Err(Errno::EACCES));
        assert_eq!(sys.getpgid(child), Ok(sys.getpgrp()));
        sys.close(input).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn setpgid_to_a_negative_group_returns_einval() {
    everywhere_and_on_linux(|sys| {
        assert_eq!(sys.setpgid(SELF, Pid::number_only(-1)), Err(Errno::EINVAL));
        assert_eq!(sys.setpgid(MISSING, Pid::number_only(-1)), Err(Errno::EINVAL));
        assert_eq!(
            sys.setpgid(Pid::number_only(-1), SELF),
            Err(Errno::EINVAL),
            "the process's own group"
        );
    });
}

#[test]
fn setpgid_of_neither_caller_nor_child_returns_esrch() {
    everywhere_and_on_linux(|sys| {
        let (tell, grandchild) = (Gate::new(sys), Gate::new(sys));
        let parent = sys.getpid();
        let child = fork(sys, move |sys| {
            assert_eq!(sys.setpgid(parent, parent), Err(Errno::ESRCH), "the parent");
            let grand = fork(sys, move |sys| grandchild.pass(sys));
            tell.tell(sys, grand.number());
            assert_eq!(end(sys, grand), WaitStatus::Exited(0));
        });
        let grand = tell.ask_pid(sys);
        assert_eq!(sys.setpgid(grand, grand), Err(Errno::ESRCH), "a grandchild");
        grandchild.open(sys);
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        assert_eq!(sys.setpgid(child, SELF), Err(Errno::ESRCH), "a reaped child");
        assert_eq!(sys.setpgid(MISSING, SELF), Err(Errno::ESRCH), "a missing process");
        assert_eq!(
            sys.setpgid(Pid::number_only(-1), sys.getpgrp()),
            Err(Errno::ESRCH),
            "an invalid number"
        );
    });
}

#[test]
fn setpgid_of_a_session_leader_returns_eperm() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |sys| {
            sys.setsid().unwrap();
            assert_eq!(sys.setpgid(SELF, SELF), Err(Errno::EPERM));
        });
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

#[test]
fn setpgid_across_sessions_returns_eperm() {
    everywhere_and_on_linux(|sys| {
        let ready = Gate::new(sys);
        let stranger = fork(sys, move |sys| {
            sys.setsid().unwrap();
            ready.open(sys);
            sleep_on(sys);
        });
        ready.pass(sys);
        assert_eq!(sys.setpgid(stranger, sys.getpgrp()), Err(Errno::EPERM), "the child");
        let child = sleeper(sys);
        assert_eq!(sys.setpgid(child, stranger), Err(Errno::EPERM), "the group");
        kill(sys, stranger);
        kill(sys, child);
    });
}

#[test]
fn setpgid_to_a_missing_group_returns_eperm() {
    everywhere_and_on_linux(|sys| {
        let (one, two) = (sleeper(sys), sleeper(sys));
        assert_eq!(sys.setpgid(one, two), Err(Errno::EPERM), "a process that leads no group");
        assert_eq!(sys.setpgid(one, MISSING), Err(Errno::EPERM));
        kill(sys, one);
        kill(sys, two);
    });
}

#[test]
fn zombie_stays_in_its_group_and_can_be_moved() {
    everywhere_and_on_linux(|sys| {
        let child = fork(sys, |_| {});
        let options = WaitOptions::EXITED | WaitOptions::NOWAIT;
        sys.waitid(child.into(), options).unwrap();
        assert_eq!(sys.getpgid(child), Ok(sys.getpgrp()));
        assert_eq!(sys.getsid(child), sys.getsid(SELF));
        sys.setpgid(child, child).unwrap();
        assert_eq!(sys.getpgid(child), Ok(child));
        assert_eq!(sys.killpg(child, Some(Signal::TERM)), Ok(()), "its group exists");
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
        assert_eq!(sys.getpgid(child), Err(Errno::ESRCH));
        assert_eq!(sys.getsid(child), Err(Errno::ESRCH));
        assert_eq!(sys.killpg(child, None), Err(Errno::ESRCH));
    });
}

#[test]
fn getpgid_and_getsid_of_missing_process_return_esrch() {
    everywhere_and_on_linux(|sys| {
        for missing in [MISSING, Pid::number_only(-1)] {
            assert_eq!(sys.getpgid(missing), Err(Errno::ESRCH));
            assert_eq!(sys.getsid(missing), Err(Errno::ESRCH));
        }
        assert_eq!(sys.getpgid(SELF), sys.getpgid(sys.getpid()));
        assert_eq!(sys.getsid(SELF), sys.getsid(sys.getpid()));
    });
}

#[test]
fn killpg_signals_exactly_the_group_members() {
    everywhere_and_on_linux(|sys| {
        let (outside, first) = (sleeper(sys), leader(sys));
        let others = [sleeper(sys), sleeper(sys), sleeper(sys)];
        for other in others {
            sys.setpgid(other, first).unwrap();
        }
        sys.killpg(first, Some(Signal::USR1)).unwrap();
        for member in others.into_iter().chain([first]) {
            assert_eq!(end(sys, member), WaitStatus::Signaled(Signal::USR1, false));
        }
        assert_eq!(sys.kill(outside.into(), None), Ok(()));
        kill(sys, outside);
        assert_eq!(sys.killpg(first, Some(Signal::USR1)), Err(Errno::ESRCH));
        assert_eq!(sys.killpg(Pid::number_only(-3), None), Err(Errno::EINVAL));
    });
}

#[test]
fn kill_of_own_group_terminates_all_members() {
    everywhere_and_on_linux(|sys| {
        let first = fork(sys, |sys| {
            sys.setpgid(SELF, SELF).unwrap();
            let other = sleeper(sys);
            let ended = sys.kill(SignalTarget::OwnGroup, Some(Signal::USR1));
            unreachable!("{ended:?} {other}");
        });
        assert_eq!(end(sys, first), WaitStatus::Signaled(Signal::USR1, false));
    });
}

#[test]
fn group_outlives_leader_and_reserves_number() {
    with(
        |builder| builder.pids(330),
        |_| {},
        |sys| {
            // These forks use up the numbers that are assigned only once.
            while fork_and_reap(sys).number() < 305 {}
            let (first, member) = (leader(sys), sleeper(sys));
            sys.setpgid(member, first).unwrap();
            kill(sys, first);
            assert_eq!(sys.getpgid(member), Ok(first));
            assert_eq!(
                sys.kill(first.into(), None),
                Err(Errno::ESRCH),
                "no process has the number"
            );
            for _ in 0..60 {
                assert_ne!(fork_and_reap(sys).number(), first.number());
            }
            kill(sys, member);
            assert!((0..60).any(|_| fork_and_reap(sys).number() == first.number()));
        },
    );
}

fn fork_and_reap(sys: &dyn Sys) -> Pid {
    let child = fork(sys, |_| {});
    assert_eq!(end(sys, child), WaitStatus::Exited(0));
    child
}

/// Either the child is a member before the walk over the group, or its fork completes only after
/// the signal is delivered.
#[test]
fn group_signal_reaches_children_of_a_concurrent_fork() {
    everywhere(|sys| {
        sys.set_subreaper(true).unwrap();
        for round in 0..4 {
            let gate = Gate::new(sys);
            let first = fork(sys, move |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                gate.open(sys);
                for _ in 0..20 {
                    sleeper(sys);
                }
                sleep_on(sys);
            });
            gate.pass(sys);
            for _ in 0..round {
                sys.sched_yield();
            }
            sys.killpg(first, Some(Signal::TERM)).unwrap();
            // A child that missed the signal would sleep indefinitely.
            while sys.wait().is_ok() {}
        }
    });
}

#[test]
fn setpgid_during_killpg_escapes_or_receives_signal() {
    everywhere(|sys| {
        for _ in 0..4 {
            let first = leader(sys);
            let mover = fork(sys, |sys| {
                sys.setpgid(SELF, SELF).unwrap();
                sys.exit(3);
            });
            let _ = sys.setpgid(mover, first);
            sys.killpg(first, Some(Signal::TERM)).unwrap();
            assert_eq!(end(sys, first), WaitStatus::Signaled(Signal::TERM, false));
            let ended = end(sys, mover);
            let known = [WaitStatus::Exited(3), WaitStatus::Signaled(Signal::TERM, false)];
            assert!(known.contains(&ended), "{ended}");
        }
    });
}

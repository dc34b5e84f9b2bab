//! The targets of `kill` and related calls.

use super::harness::*;

/// Asserts that SIGTERM terminated a child.
fn killed(sys: &dyn Sys, child: Pid) {
    assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
}

fn terminate(sys: &dyn Sys, child: Pid) {
    kill(sys, child, Signal::TERM);
    killed(sys, child);
}

#[test]
fn kill_reaches_a_process_by_handle_and_by_number() {
    everywhere(|sys| {
        for bare in [false, true] {
            let child = sys.fork(sleep_on).unwrap();
            let named = if bare { Pid::number_only(child.number()) } else { child };
            assert_eq!(sys.kill(named.into(), None), Ok(()));
            kill(sys, named, Signal::TERM);
            killed(sys, child);
        }
    })
    .and_on_linux();
}

#[test]
fn null_signal_checks_without_sending() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        assert_eq!(sys.kill(child.into(), None), Ok(()));
        assert_eq!(sys.sigqueue(child, None, 1), Ok(()));
        assert_eq!(sys.tgkill(child, Tid(child.number()), None), Ok(()));
        rest(sys);
        assert_eq!(sys.waitpid(child.into(), WaitOptions::NOHANG), Ok(None));
        terminate(sys, child);
    })
    .and_on_linux();
}

#[test]
fn kill_of_zombie_succeeds_kill_of_reaped_child_fails() {
    everywhere(|sys| {
        let child = sys.fork(|_| 3).unwrap();
        sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
        assert_eq!(sys.kill(child.into(), Some(Signal::KILL)), Ok(()));
        assert_eq!(sys.sigqueue(child, Some(Signal::KILL), 0), Ok(()));
        assert_eq!(end_of(sys, child), WaitStatus::Exited(3));
        assert_eq!(sys.kill(child.into(), Some(Signal::KILL)), Err(Errno::ESRCH));
        assert_eq!(sys.sigqueue(child, Some(Signal::KILL), 0), Err(Errno::ESRCH));
        let thread = Tid(child.number());
        assert_eq!(sys.tgkill(child, thread, Some(Signal::KILL)), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

/// Returns a child that leads a group and whose number can be reused.
fn leader_of_many(sys: &dyn Sys) -> Pid {
    loop {
        let child = leader(sys);
        if child.number() >= 300 {
            return child;
        }
        // Numbers below 300 are assigned only once.
        terminate(sys, child);
    }
}

/// Returns an ended process and the process that now has its number.
fn two_with_one_number(sys: &dyn Sys) -> (Pid, Pid) {
    let old = leader_of_many(sys);
    terminate(sys, old);
    loop {
        let new = leader_of_many(sys);
        if new.number() == old.number() {
            return (old, new);
        }
        terminate(sys, new);
    }
}

#[test]
fn handle_never_names_the_next_process_with_its_number() {
    everywhere_with(
        |builder| builder.pids(310),
        |sys| {
            let (old, new) = two_with_one_number(sys);
            assert_eq!(sys.kill(old.into(), Some(Signal::KILL)), Err(Errno::ESRCH));
            assert_eq!(sys.waitpid(old.into(), WaitOptions::NOHANG), Err(Errno::ECHILD));
            terminate(sys, new);
        },
    );
}

#[test]
fn group_handle_never_names_the_next_group_with_its_number() {
    everywhere_with(
        |builder| builder.pids(310),
        |sys| {
            let (old, new) = two_with_one_number(sys);
            let member = sys.fork(sleep_on).unwrap();
            assert_eq!(sys.kill(SignalTarget::Group(old), Some(Signal::TERM)), Err(Errno::ESRCH));
            assert_eq!(sys.setpgid(member, old), Err(Errno::EPERM));
            assert_eq!(sys.setpgid(new, old), Err(Errno::EPERM));
            let group = |id| sys.waitpid(Children::Group(id), WaitOptions::NOHANG);
            assert_eq!(group(old), Err(Errno::ECHILD));
            assert_eq!(group(new), Ok(None));
            assert_eq!(group(bare(old)), Ok(None), "a bare number names its current holder");
            assert_eq!(sys.setpgid(member, bare(old)), Ok(()));
            kill(sys, new, Signal::TERM);
            kill(sys, member, Signal::TERM);
            killed(sys, new);
            killed(sys, member);
        },
    );
}

#[test]
fn kill_of_a_group_reaches_exactly_its_members() {
    everywhere(|sys| {
        let one = leader(sys);
        let other = sys.fork(sleep_on).unwrap();
        sys.setpgid(other, one).unwrap();
        let outside = sys.fork(sleep_on).unwrap();
        assert_eq!(sys.kill(SignalTarget::Group(one), Some(Signal::TERM)), Ok(()));
        killed(sys, one);
        killed(sys, other);
        assert_eq!(sys.waitpid(outside.into(), WaitOptions::NOHANG), Ok(None));
        assert_eq!(sys.kill(SignalTarget::Group(one), None), Err(Errno::ESRCH));
        terminate(sys, outside);
    })
    .and_on_linux();
}

#[test]
fn kill_of_own_group_includes_caller() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        let bell = Bell::new(sys);
        let child = sys
            .fork(move |sys| {
                let log = Log::default();
                act(sys, Signal::USR1, log.signals());
                bell.ring(sys);
                until(sys, || log.len() == 1);
                5
            })
            .unwrap();
        bell.heard(sys);
        assert_eq!(sys.kill(SignalTarget::OwnGroup, Some(Signal::USR1)), Ok(()));
        assert_eq!(log.len(), 1);
        assert_eq!(end_of(sys, child), WaitStatus::Exited(5));
        act(sys, Signal::USR1, SigAction::IGNORE);
        assert_eq!(sys.killpg(Pid::number_only(0), Some(Signal::USR1)), Ok(()));
    })
    .and_on_linux();
}

#[test]
fn kill_of_numbers_without_a_process_is_refused() {
    everywhere(|sys| {
        let missing = Pid::number_only(999);
        assert_eq!(sys.kill(missing.into(), Some(Signal::TERM)), Err(Errno::ESRCH));
        assert_eq!(sys.kill(SignalTarget::Group(missing), Some(Signal::TERM)), Err(Errno::ESRCH));
        assert_eq!(sys.sigqueue(missing, Some(Signal::TERM), 0), Err(Errno::ESRCH));
        assert_eq!(sys.tgkill(missing, Tid(999), None), Err(Errno::ESRCH));
    });
    everywhere(|sys| {
        for number in [0, -1, -7, i32::MIN] {
            let bare = Pid::number_only(number);
            assert_eq!(sys.kill(bare.into(), None), Err(Errno::ESRCH), "{number}");
            assert_eq!(sys.sigqueue(bare, None, 0), Err(Errno::ESRCH), "{number}");
            if number != 0 {
                // The lowest number has no positive counterpart.
                let errno = if number == i32::MIN { Errno::ESRCH } else { Errno::EINVAL };
                assert_eq!(sys.kill(SignalTarget::Group(bare), None), Err(errno), "{number}");
                assert_eq!(sys.killpg(bare, None), Err(Errno::EINVAL), "{number}");
            }
        }
        let most = Pid::number_only(i32::MAX);
        assert_eq!(sys.kill(most.into(), None), Err(Errno::ESRCH));
        assert_eq!(sys.kill(SignalTarget::Group(most), None), Err(Errno::ESRCH));
    })
    .and_on_linux();
}

#[test]
fn kill_of_everyone_spares_the_caller_and_init() {
    everywhere(|sys| {
        let log = Log::default();
        act(sys, Signal::TERM, log.signals());
        assert_eq!(sys.kill(SignalTarget::Everyone, Some(Signal::TERM)), Err(Errno::ESRCH));
        let children = [leader(sys), sys.fork(sleep_on).unwrap()];
        assert_eq!(sys.kill(SignalTarget::Everyone, Some(Signal::KILL)), Ok(()));
        for child in children {
            assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        }
        assert_eq!(log.len(), 0);
    });
}

#[test]
fn user_may_signal_only_its_own_processes() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let make = |uid: u32| {
            let child = sys
                .fork(move |sys| {
                    sys.setsid().unwrap();
                    sys.setuid(uid).unwrap();
                    bell.ring(sys);
                    sleep_on(sys)
                })
                .unwrap();
            bell.heard(sys);
            child
        };
        let (same, other, root) = (make(54_321), make(54_322), make(0));
        let (mine, others) = (bare(same), [other, root].map(bare));
        let end = end_as(sys, move |sys| {
            sys.setuid(54_321).unwrap();
            for target in others {
                for signal in [None, Some(Signal::TERM), Some(Signal::CONT)] {
                    assert_eq!(sys.kill(target.into(), signal), Err(Errno::EPERM));
                    assert_eq!(sys.kill(SignalTarget::Group(target), signal), Err(Errno::EPERM));
                    assert_eq!(sys.sigqueue(target, signal, 0), Err(Errno::EPERM));
                    let thread = Tid(target.number());
                    assert_eq!(sys.tgkill(target, thread, signal), Err(Errno::EPERM));
                }
            }
            assert_eq!(sys.kill(mine.into(), Some(Signal::TERM)), Ok(()));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        killed(sys, same);
        for child in [other, root] {
            terminate(sys, child);
        }
    })
    .and_on_linux();
}

#[test]
fn kill_of_a_group_fails_only_if_no_member_is_permitted() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let one = leader(sys);
        let group = bare(one);
        let mine = sys
            .fork(move |sys| {
                sys.setpgid(Pid::number_only(0), group).unwrap();
                sys.setuid(54_321).unwrap();
                bell.ring(sys);
                sleep_on(sys)
            })
            .unwrap();
        bell.heard(sys);
        let end = end_as(sys, move |sys| {
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.kill(SignalTarget::Group(group), Some(Signal::TERM)), Ok(()));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        killed(sys, mine);
        assert_eq!(sys.waitpid(one.into(), WaitOptions::NOHANG), Ok(None));
        terminate(sys, one);
    })
    .and_on_linux();
}

#[test]
fn kill_of_everyone_ignores_processes_without_permission() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        let end = end_as(sys, |sys| {
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.kill(SignalTarget::Everyone, Some(Signal::TERM)), Ok(()));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(sys.waitpid(child.into(), WaitOptions::NOHANG), Ok(None));
        terminate(sys, child);
    });
}

#[test]
fn sigcont_may_be_sent_to_any_process_in_the_session() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        change_of(sys, child, WaitOptions::STOPPED);
        let stopped = bare(child);
        let end = end_as(sys, move |sys| {
            sys.setuid(54_321).unwrap();
            assert_eq!(sys.kill(stopped.into(), Some(Signal::TERM)), Err(Errno::EPERM));
            assert_eq!(sys.kill(stopped.into(), Some(Signal::CONT)), Ok(()));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(change_of(sys, child, WaitOptions::CONTINUED), WaitStatus::Continued);
        terminate(sys, child);
    })
    .and_on_linux();
}

#[test]
fn unprivileged_user_may_not_signal_init() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.setuid(54_321).unwrap();
            let init = Pid::number_only(1);
            assert_eq!(sys.kill(init.into(), None), Err(Errno::EPERM));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

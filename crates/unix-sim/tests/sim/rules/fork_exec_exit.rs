//! The state that a child inherits, the state that a process keeps across exec, and the end of
//! processes.

use super::harness::*;

#[test]
fn child_inherits_mask_dispositions_limits_priority_and_user() {
    everywhere(|sys| {
        let limit = Rlimit { soft: 100, hard: 200 };
        let action = Log::default().signals().with_flags(ActionFlags::RESTART);
        block(sys, &[Signal::USR1]);
        act(sys, Signal::USR2, action.clone());
        act(sys, Signal::HUP, SigAction::IGNORE);
        sys.setrlimit(Resource::Descriptors, limit).unwrap();
        sys.setpriority(PriorityScope::Process(Pid::number_only(0)), 5).unwrap();
        let user = sys.getuid();
        let end = end_as(sys, move |sys| {
            assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::USR1])));
            assert_eq!(sys.sigaction(Signal::USR2, None), Ok(action));
            assert_eq!(sys.sigaction(Signal::HUP, None), Ok(SigAction::IGNORE));
            assert_eq!(sys.getrlimit(Resource::Descriptors), limit);
            assert_eq!(sys.getpriority(PriorityScope::Process(Pid::number_only(0))), Ok(5));
            assert_eq!((sys.getuid(), sys.geteuid()), (user, user));
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    })
    .and_on_linux();
}

#[test]
fn child_inherits_neither_pending_signals_nor_the_alarm() {
    everywhere(|sys| {
        block(sys, &[Signal::USR1, Signal::USR2]);
        kill(sys, sys.getpid(), Signal::USR1);
        sys.raise(Signal::USR2).unwrap();
        sys.alarm(1000);
        let end = end_as(sys, |sys| {
            assert_eq!(sys.sigpending(), SigSet::EMPTY);
            assert_eq!(sys.alarm(0), 0);
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(sys.sigpending(), SigSet::of(&[Signal::USR1, Signal::USR2]));
        assert!(sys.alarm(0) > 0);
    })
    .and_on_linux();
}

#[test]
fn child_changes_do_not_affect_the_parent() {
    everywhere(|sys| {
        sys.setpriority(PriorityScope::Process(Pid::number_only(0)), 8).unwrap();
        let end = end_as(sys, |sys| {
            act(sys, Signal::USR1, SigAction::IGNORE);
            block(sys, &[Signal::USR2]);
            sys.setpriority(PriorityScope::Process(Pid::number_only(0)), 9).unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        assert_eq!(sys.sigaction(Signal::USR1, None), Ok(SigAction::DEFAULT));
        assert_eq!(sys.sigprocmask(None), Ok(SigSet::EMPTY));
        assert_eq!(sys.getpriority(PriorityScope::Process(Pid::number_only(0))), Ok(8));
    })
    .and_on_linux();
}

#[test]
fn getppid_getpgrp_getsid_of_child_match_its_parent() {
    everywhere(|sys| {
        let (me, group, session) = (sys.getpid(), sys.getpgrp(), sys.getsid(sys.getpid()).unwrap());
        let child = sys
            .fork(move |sys| {
                assert_eq!(sys.getppid().number(), me.number());
                assert_eq!(sys.getpgrp().number(), group.number());
                assert_eq!(sys.getsid(sys.getpid()).unwrap().number(), session.number());
                assert_eq!(sys.gettid().0, sys.getpid().number());
                0
            })
            .unwrap();
        assert_ne!(child.number(), me.number());
        assert_eq!(end_of(sys, child), WaitStatus::Exited(0));
    })
    .and_on_linux();
}

/// Adds programs that check the state with which they start.
fn with_programs(builder: Builder) -> Builder {
    builder
        .program("looks", |sys, arguments| {
            let own: i32 = arguments[1].parse().unwrap();
            assert_eq!(sys.getpid().number(), own);
            assert_eq!(sys.gettid().0, own, "the remaining thread is the process's first");
            assert_eq!(sys.sigaction(Signal::USR1, None), Ok(SigAction::DEFAULT));
            let ignored = sys.sigaction(Signal::USR2, None).unwrap();
            assert_eq!(ignored.disposition, Disposition::Ignore);
            assert_eq!(sys.sigprocmask(None), Ok(SigSet::of(&[Signal::HUP, Signal::TERM])));
            assert_eq!(sys.sigpending(), SigSet::of(&[Signal::HUP, Signal::TERM]));
            assert!(sys.alarm(0) > 0);
            assert_eq!(sys.getrlimit(Resource::Descriptors), Rlimit::of(77));
            42
        })
        .program("returns", |_, arguments| arguments[1].parse().unwrap())
        .program("again", |sys, arguments| {
            let left: u32 = arguments[1].parse().unwrap();
            if left == 0 {
                return 21;
            }
            let Err(errno) = sys.exec("again", &["again", &(left - 1).to_string()]);
            errno.raw()
        })
        .program("sleeps", |sys, _| sleep_on(sys))
}

fn prepare_to_look(sys: &dyn Sys) {
    act(sys, Signal::USR1, Log::default().signals());
    act(sys, Signal::USR2, SigAction::IGNORE);
    block(sys, &[Signal::HUP, Signal::TERM]);
    kill(sys, sys.getpid(), Signal::HUP);
    sys.raise(Signal::TERM).unwrap();
    sys.alarm(1000);
    sys.setrlimit(Resource::Descriptors, Rlimit::of(77)).unwrap();
}

#[test]
fn exec_resets_handlers_and_keeps_other_state() {
    everywhere_with(with_programs, |sys| {
        let end = end_as(sys, |sys| {
            prepare_to_look(sys);
            let own = sys.getpid().to_string();
            let Err(errno) = sys.exec("looks", &["looks", &own]);
            errno.raw()
        });
        assert_eq!(end, WaitStatus::Exited(42));
    });
}

#[test]
fn exec_in_another_thread_replaces_the_process() {
    everywhere_with(with_programs, |sys| {
        let after = Log::default();
        let noted = after.clone();
        let end = end_as(sys, move |sys| {
            prepare_to_look(sys);
            for _ in 0..2 {
                sys.thread(|sys| {
                    sleep_on(sys);
                })
                .unwrap();
            }
            sys.thread(|sys| {
                // Signals that are pending for the thread remain pending for it.
                block(sys, &[Signal::TERM]);
                sys.raise(Signal::TERM).unwrap();
                let own = sys.getpid().to_string();
                let _ = sys.exec("looks", &["looks", &own]);
            })
            .unwrap();
            sleep_on(sys);
            noted.note(1);
            1
        });
        assert_eq!(end, WaitStatus::Exited(42));
        assert_eq!(after.len(), 0);
    });
}

#[test]
fn exec_can_be_repeated_in_one_process() {
    everywhere_with(with_programs, |sys| {
        let end = end_as(sys, |sys| {
            let Err(errno) = sys.exec("again", &["again", "40"]);
            errno.raw()
        });
        assert_eq!(end, WaitStatus::Exited(21));
    });
}

#[test]
fn failed_exec_returns_its_errno_and_changes_nothing() {
    everywhere_with(with_programs, |sys| {
        let log = Log::default();
        act(sys, Signal::USR1, log.signals());
        let long = "x".repeat(200_000);
        assert_eq!(sys.exec("nowhere", &["nowhere"]), Err(Errno::ENOENT));
        assert_eq!(sys.exec("", &[""]), Err(Errno::ENOENT));
        assert_eq!(sys.exec("returns", &["returns", &long]), Err(Errno::E2BIG));
        assert_eq!(sys.exec("nowhere", &["nowhere", &long]), Err(Errno::ENOENT));
        sys.raise(Signal::USR1).unwrap();
        assert_eq!(log.len(), 1);
    });
}

#[test]
fn exec_unwinds_the_previous_program() {
    everywhere_with(with_programs, |sys| {
        struct Dropped(Log);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.note(1);
            }
        }
        let log = Log::default();
        let dropped = Dropped(log.clone());
        let end = end_as(sys, move |sys| {
            let _held = dropped;
            let Err(errno) = sys.exec("returns", &["returns", "5"]);
            errno.raw()
        });
        assert_eq!((end, log.len()), (WaitStatus::Exited(5), 1));
    });
}

#[test]
fn spawned_program_runs_in_a_new_process() {
    everywhere_with(with_programs, |sys| {
        let child = sys.spawn(&SpawnRequest::new("returns", &["returns", "300"])).unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(300 & 0xff));
        block(sys, &[Signal::HUP]);
        act(sys, Signal::TERM, SigAction::IGNORE);
        let mut spawn = SpawnRequest::new("sleeps", &["sleeps"]);
        spawn.group = SpawnGroup::Own;
        spawn.mask = Some(SigSet::EMPTY);
        spawn.defaults = SigSet::of(&[Signal::TERM]);
        let child = sys.spawn(&spawn).unwrap();
        assert_eq!(sys.getpgid(child), Ok(child));
        sys.kill(SignalTarget::Group(child), Some(Signal::TERM)).unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
    });
}

#[test]
fn failed_spawn_leaves_no_child_and_no_signal() {
    everywhere_with(with_programs, |sys| {
        let end = end_as(sys, |sys| {
            sys.setuid(54_321).unwrap();
            sys.setrlimit(Resource::Processes, Rlimit::of(2)).unwrap();
            let mut bad_group = SpawnRequest::new("returns", &["returns", "1"]);
            bad_group.group = SpawnGroup::Of(Pid::number_only(1));
            let mut bad_descriptor = SpawnRequest::new("returns", &["returns", "1"]);
            bad_descriptor.descriptors = vec![(Fd(50), Fd(3))];
            let long = "x".repeat(200_000);
            let cases = [
                (SpawnRequest::new("nowhere", &["nowhere"]), Errno::ENOENT),
                (SpawnRequest::new("returns", &["returns", &long]), Errno::E2BIG),
                (bad_group, Errno::EPERM),
                (bad_descriptor, Errno::EBADF),
            ];
            block(sys, &[Signal::CHLD]);
            for (spawn, errno) in cases {
                for _ in 0..3 {
                    assert_eq!(sys.spawn(&spawn), Err(errno));
                    assert_eq!(sys.wait(), Err(Errno::ECHILD));
                }
            }
            assert!(!sys.sigpending().contains(Signal::CHLD), "a failed spawn sent SIGCHLD");
            let child = sys.spawn(&SpawnRequest::new("sleeps", &["sleeps"])).unwrap();
            let refused = sys.spawn(&SpawnRequest::new("sleeps", &["sleeps"]));
            assert_eq!(refused, Err(Errno::EAGAIN));
            kill(sys, child, Signal::KILL);
            end_of(sys, child);
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
    });
}

#[test]
fn spawned_child_killed_before_exec_is_still_reaped() {
    everywhere_with(with_programs, |sys| {
        let mut spawn = SpawnRequest::new("sleeps", &["sleeps"]);
        let leader = sys.fork(sleep_on).unwrap();
        sys.setpgid(leader, leader).unwrap();
        spawn.group = SpawnGroup::Of(leader);
        let killer = sys
            .thread(move |sys| {
                while sys.kill(SignalTarget::Group(leader), Some(Signal::KILL)).is_ok() {
                    sys.poll();
                }
            })
            .unwrap();
        let child = sys.spawn(&spawn);
        if let Ok(child) = child {
            kill(sys, child, Signal::KILL);
            assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
        }
        end_of(sys, leader);
        sys.join(killer).unwrap();
    });
}

/// Returns a request for a child in the group of `leader` whose setup takes so long that a signal
/// to the group arrives before the program starts.
fn slow_to_begin(leader: Pid) -> SpawnRequest {
    let mut spawn = SpawnRequest::new("sleeps", &["sleeps"]);
    spawn.group = SpawnGroup::Of(leader);
    spawn.defaults = SigSet::ALL.difference(SigSet::of(&[Signal::TERM]));
    spawn
}

#[test]
fn spawner_dies_while_its_child_is_stopped_before_exec() {
    everywhere_with(with_programs, |sys| {
        for killed in [true, false] {
            let leader = sys.fork(sleep_on).unwrap();
            sys.setpgid(leader, leader).unwrap();
            let go = Bell::new(sys);
            let spawner = sys
                .fork(move |sys| {
                    sys.thread(move |sys| {
                        go.heard(sys);
                        sys.exit(9);
                    })
                    .unwrap();
                    let _ = sys.spawn(&slow_to_begin(leader));
                    sleep_on(sys)
                })
                .unwrap();
            let stopper = sys
                .fork(move |sys| {
                    while sys.kill(SignalTarget::Group(leader), Some(Signal::STOP)).is_ok() {
                        sys.poll();
                    }
                    0
                })
                .unwrap();
            for _ in 0..10 {
                rest(sys);
            }
            kill(sys, stopper, Signal::KILL);
            end_of(sys, stopper);
            if killed {
                kill(sys, spawner, Signal::KILL);
                assert_eq!(end_of(sys, spawner), WaitStatus::Signaled(Signal::KILL, false));
            } else {
                go.ring(sys);
                assert_eq!(end_of(sys, spawner), WaitStatus::Exited(9));
            }
            sys.kill(SignalTarget::Group(leader), Some(Signal::KILL)).unwrap();
            end_of(sys, leader);
        }
    });
}

#[test]
fn signal_before_spawned_program_runs_no_parent_handler() {
    everywhere_with(with_programs, |sys| {
        let leader = sys
            .fork(|sys| {
                act(sys, Signal::TERM, SigAction::IGNORE);
                sleep_on(sys)
            })
            .unwrap();
        sys.setpgid(leader, leader).unwrap();
        let (me, strayed) = (sys.getpid().number(), Log::default());
        let log = strayed.clone();
        let handler = SigAction::handler(move |sys, _| {
            let here = sys.getpid().number();
            if here != me {
                log.note(here);
            }
        });
        act(sys, Signal::TERM, handler);
        let sender = sys
            .fork(move |sys| {
                while sys.kill(SignalTarget::Group(leader), Some(Signal::TERM)).is_ok() {
                    sys.poll();
                }
                0
            })
            .unwrap();
        let child = sys.spawn(&slow_to_begin(leader)).unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
        assert_eq!(strayed.len(), 0, "the parent's handler ran in {:?}", strayed.all());
        for helper in [sender, leader] {
            kill(sys, helper, Signal::KILL);
            end_of(sys, helper);
        }
    });
}

#[test]
fn spawned_program_inherits_mask_unless_mask_is_given() {
    let with_mask = |builder: Builder| {
        builder.program("mask", |sys, _| {
            let mask = sys.sigprocmask(None).unwrap();
            i32::from(mask.contains(Signal::HUP)) + 2 * i32::from(mask.contains(Signal::USR1))
        })
    };
    everywhere_with(with_mask, |sys| {
        block(sys, &[Signal::HUP]);
        let mut spawn = SpawnRequest::new("mask", &["mask"]);
        let child = sys.spawn(&spawn).unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
        spawn.mask = Some(SigSet::of(&[Signal::USR1]));
        let child = sys.spawn(&spawn).unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(2));
        assert_eq!(
            sys.sigprocmask(None),
            Ok(SigSet::of(&[Signal::HUP])),
            "the parent's mask changed"
        );
    });
}

#[test]
fn exit_status_has_eight_bits() {
    everywhere(|sys| {
        for status in [0, 1, 255, 256, 511, -1, i32::MIN] {
            let expected = WaitStatus::Exited(status & 0xff);
            assert_eq!(end_as(sys, move |_| status), expected);
            assert_eq!(end_as(sys, move |sys| sys.exit(status)), expected);
        }
    })
    .and_on_linux();
}

#[test]
fn exit_in_any_thread_terminates_process() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.thread(|sys| {
                sleep_on(sys);
            })
            .unwrap();
            sys.thread(|sys| sys.exit(5)).unwrap();
            sleep_on(sys)
        });
        assert_eq!(end, WaitStatus::Exited(5));
    })
    .and_on_linux();
}

#[test]
fn return_from_first_thread_exits_process() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            sys.thread(|sys| {
                sleep_on(sys);
            })
            .unwrap();
            6
        });
        assert_eq!(end, WaitStatus::Exited(6));
    })
    .and_on_linux();
}

#[test]
fn fatal_signal_to_any_thread_terminates_process() {
    everywhere(|sys| {
        let end = end_as(sys, |sys| {
            block(sys, &[Signal::TERM]);
            let thread = sys
                .thread(|sys| {
                    unblock(sys, &[Signal::TERM]);
                    sleep_on(sys);
                })
                .unwrap();
            sys.tgkill(sys.getpid(), thread, Some(Signal::TERM)).unwrap();
            sleep_on(sys)
        });
        assert_eq!(end, WaitStatus::Signaled(Signal::TERM, false));
    })
    .and_on_linux();
}

#[test]
fn orphans_are_reparented_to_init_and_reaped() {
    everywhere(|sys| {
        let log = Log::default();
        let (noted, told) = (log.clone(), log.clone());
        let end = end_as(sys, move |sys| {
            sys.fork(move |sys| {
                until(sys, || sys.getppid().number() == 1);
                noted.note(sys.getpid().number());
                9
            })
            .unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        until(sys, || told.len() == 1);
        let orphan = Pid::number_only(told.all()[0]);
        until(sys, || sys.kill(orphan.into(), None) == Err(Errno::ESRCH));
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    });
}

#[test]
fn unreaped_zombie_vanishes_with_its_parent() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let end = end_as(sys, move |sys| {
            let child = sys.fork(|_| 9).unwrap();
            noted.note(child.number());
            sys.waitid(child.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        let orphan = Pid::number_only(log.all()[0]);
        until(sys, || sys.kill(orphan.into(), None) == Err(Errno::ESRCH));
    });
}

#[test]
fn subreaper_inherits_the_children_of_its_descendants() {
    everywhere(|sys| {
        sys.set_subreaper(true).unwrap();
        let me = sys.getpid().number();
        let bell = Bell::new(sys);
        let end = end_as(sys, move |sys| {
            sys.fork(move |sys| {
                bell.heard(sys);
                if sys.getppid().number() == me { 9 } else { 1 }
            })
            .unwrap();
            0
        });
        assert_eq!(end, WaitStatus::Exited(0));
        bell.ring(sys);
        assert_eq!(sys.wait().unwrap().status, WaitStatus::Exited(9));
        sys.set_subreaper(false).unwrap();
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn subreaper_can_wait_for_an_inherited_zombie() {
    everywhere(|sys| {
        sys.set_subreaper(true).unwrap();
        let child = sys
            .fork(|sys| {
                let orphan = sys.fork(|_| 9).unwrap();
                sys.waitid(orphan.into(), WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
                0
            })
            .unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(0));
        assert_eq!(sys.wait().unwrap().status, WaitStatus::Exited(9));
    })
    .and_on_linux();
}

#[test]
fn subreaper_role_is_not_inherited_by_a_child() {
    everywhere(|sys| {
        sys.set_subreaper(true).unwrap();
        let end = end_as(sys, |sys| {
            let child = sys
                .fork(|sys| {
                    sys.fork(|_| 9).unwrap();
                    0
                })
                .unwrap();
            end_of(sys, child);
            i32::from(sys.wait() == Err(Errno::ECHILD))
        });
        assert_eq!(end, WaitStatus::Exited(1));
        assert_eq!(sys.wait().unwrap().status, WaitStatus::Exited(9));
    })
    .and_on_linux();
}

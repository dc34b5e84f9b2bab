//! Exec, spawned programs that are signalled before they begin, and the end of processes.

use super::harness::*;

/// Adds a program that returns its argument and one that sleeps.
fn with_programs(builder: Builder) -> Builder {
    builder
        .program("returns", |_, arguments| arguments[1].parse().unwrap())
        .program("sleeps", |sys, _| sleep_on(sys))
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
fn spawned_child_killed_before_exec_is_still_reaped() {
    everywhere_with(with_programs, |sys| {
        let mut spawn = SpawnRequest::new("sleeps", &["sleeps"]);
        let leader = forked(sys, sleep_on);
        sys.setpgid(leader, leader).unwrap();
        spawn.group = SpawnGroup::Of(leader);
        let killer = threaded(sys, move |sys| {
            while sys.kill(SignalTarget::Group(leader), Some(Signal::KILL)).is_ok() {
                sys.poll();
            }
        });
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
            let leader = forked(sys, sleep_on);
            sys.setpgid(leader, leader).unwrap();
            let go = Gate::new(sys);
            let spawner = forked(sys, move |sys| {
                threaded(sys, move |sys| {
                    go.pass(sys);
                    sys.exit(9);
                });
                let _ = sys.spawn(&slow_to_begin(leader));
                sleep_on(sys)
            });
            let stopper = forked(sys, move |sys| {
                while sys.kill(SignalTarget::Group(leader), Some(Signal::STOP)).is_ok() {
                    sys.poll();
                }
                0
            });
            for _ in 0..10 {
                rest(sys);
            }
            kill(sys, stopper, Signal::KILL);
            end_of(sys, stopper);
            if killed {
                kill(sys, spawner, Signal::KILL);
                assert_eq!(end_of(sys, spawner), WaitStatus::Signaled(Signal::KILL, false));
            } else {
                go.open(sys);
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
        let leader = forked(sys, |sys| {
            act(sys, Signal::TERM, SigAction::IGNORE);
            sleep_on(sys)
        });
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
        let sender = forked(sys, move |sys| {
            while sys.kill(SignalTarget::Group(leader), Some(Signal::TERM)).is_ok() {
                sys.poll();
            }
            0
        });
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
fn unreaped_zombie_vanishes_with_its_parent() {
    everywhere(|sys| {
        let log = Log::default();
        let noted = log.clone();
        let end = end_as(sys, move |sys| {
            let child = forked(sys, |_| 9);
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
fn program_without_arguments_gets_an_empty_name() {
    everywhere_with(
        |builder| builder.program("counts", |_, arguments| i32::from(arguments == [""])),
        |sys| {
            let end = end_as(sys, |sys| {
                let Err(errno) = sys.exec("counts", &[]);
                errno.raw()
            });
            assert_eq!(end, WaitStatus::Exited(1));
            let child = sys.spawn(&SpawnRequest::new("counts", &[])).unwrap();
            assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
        },
    );
}

#[test]
fn thread_created_during_exec_is_terminated() {
    everywhere_with(with_programs, |sys| {
        let end = end_as(sys, |sys| {
            threaded(sys, |sys| {
                let _ = sys.exec("returns", &["returns", "12"]);
            });
            loop {
                let _ = sys.thread(|sys| {
                    let _ = sys.nanosleep(Duration::from_secs(1000));
                });
                sys.sched_yield();
            }
        });
        assert_eq!(end, WaitStatus::Exited(12));
    });
}

//! `wait` and the changes that children report; stopping and continuing.

use super::harness::*;

const STOPPED: WaitOptions = WaitOptions::STOPPED;
const CONTINUED: WaitOptions = WaitOptions::CONTINUED;
const EXITED: WaitOptions = WaitOptions::EXITED;
const NOHANG: WaitOptions = WaitOptions::NOHANG;
const NOWAIT: WaitOptions = WaitOptions::NOWAIT;

fn kill_and_wait(sys: &dyn Sys, child: Pid) {
    kill(sys, child, Signal::KILL);
    assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
}

#[test]
fn wait_without_children_returns_echild() {
    everywhere(|sys| {
        let own = Pid::number_only(sys.getpid().number());
        for children in [Children::Any, Children::OwnGroup, own.into(), Children::Group(own)] {
            for options in [EXITED, EXITED | NOHANG, STOPPED | CONTINUED | NOHANG] {
                assert_eq!(sys.waitid(children, options), Err(Errno::ECHILD), "{children:?}");
            }
        }
    })
    .and_on_linux();
}

#[test]
fn wait_without_kind_of_change_returns_einval() {
    everywhere(|sys| {
        for options in [WaitOptions::empty(), NOHANG, NOWAIT, NOHANG | NOWAIT] {
            assert_eq!(sys.waitid(Children::Any, options), Err(Errno::EINVAL));
        }
        assert_eq!(sys.waitpid(Children::Any, NOWAIT), Err(Errno::EINVAL));
        assert_eq!(sys.wait3(NOWAIT), Err(Errno::EINVAL));
    })
    .and_on_linux();
}

#[test]
fn wait_reports_an_ended_child_once() {
    everywhere(|sys| {
        let child = sys.fork(|_| 9).unwrap();
        let waited = sys.waitpid(child.into(), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!((waited.pid, waited.status), (child, WaitStatus::Exited(9)));
        assert_eq!(waited.uid, sys.getuid());
        assert_eq!(sys.waitpid(child.into(), NOHANG), Err(Errno::ECHILD));
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn nohang_returns_none_while_children_run() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        assert_eq!(sys.waitid(Children::Any, EXITED | NOHANG), Ok(None));
        assert_eq!(sys.waitid(child.into(), STOPPED | CONTINUED | NOHANG), Ok(None));
        kill_and_wait(sys, child);
    })
    .and_on_linux();
}

#[test]
fn nowait_keeps_change_waitable() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        let look = |options| sys.waitid(Children::Any, options).unwrap().unwrap().status;
        assert_eq!(look(STOPPED | NOWAIT), WaitStatus::Stopped(Signal::STOP));
        assert_eq!(look(STOPPED | NOWAIT), WaitStatus::Stopped(Signal::STOP));
        assert_eq!(look(STOPPED), WaitStatus::Stopped(Signal::STOP));
        assert_eq!(sys.waitid(Children::Any, STOPPED | NOHANG), Ok(None));
        kill(sys, child, Signal::CONT);
        assert_eq!(look(CONTINUED | NOWAIT), WaitStatus::Continued);
        assert_eq!(look(CONTINUED), WaitStatus::Continued);
        assert_eq!(sys.waitid(Children::Any, CONTINUED | NOHANG), Ok(None));
        kill(sys, child, Signal::KILL);
        assert_eq!(look(EXITED | NOWAIT), WaitStatus::Signaled(Signal::KILL, false));
        assert_eq!(look(EXITED), WaitStatus::Signaled(Signal::KILL, false));
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn wait_reports_the_oldest_child_first() {
    everywhere(|sys| {
        let children = [1, 2, 3].map(|n| sys.fork(move |_| n).unwrap());
        for child in children {
            sys.waitid(child.into(), EXITED | NOWAIT).unwrap();
        }
        let order: Vec<_> = children.iter().map(|_| sys.wait().unwrap().pid).collect();
        assert_eq!(order, children);
    })
    .and_on_linux();
}

#[test]
fn wait_for_a_group_ignores_other_children() {
    everywhere(|sys| {
        let mine = sys.fork(|_| 1).unwrap();
        let other = sys.fork(sleep_on).unwrap();
        sys.setpgid(other, other).unwrap();
        sys.waitid(mine.into(), EXITED | NOWAIT).unwrap();
        assert_eq!(sys.waitpid(Children::Group(other), NOHANG), Ok(None));
        kill(sys, other, Signal::KILL);
        let found = sys.waitpid(Children::Group(other), WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(found.pid, other);
        assert_eq!(sys.waitpid(Children::Group(other), NOHANG), Err(Errno::ECHILD));
        let found = sys.waitpid(Children::OwnGroup, WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(found.pid, mine);
        assert_eq!(sys.waitpid(Children::OwnGroup, NOHANG), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn wait_for_non_child_returns_echild() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                let parent = Pid::number_only(sys.getppid().number());
                let own = Pid::number_only(sys.getpid().number());
                let refused = |pid: Pid| sys.waitpid(pid.into(), NOHANG) == Err(Errno::ECHILD);
                i32::from(refused(parent) && refused(own) && refused(Pid::number_only(1)))
            })
            .unwrap();
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
    })
    .and_on_linux();
}

#[test]
fn wait_for_stops_ignores_a_zombie() {
    everywhere(|sys| {
        let child = sys.fork(|_| 1).unwrap();
        sys.waitid(child.into(), EXITED | NOWAIT).unwrap();
        assert_eq!(sys.waitid(child.into(), STOPPED), Err(Errno::ECHILD));
        assert_eq!(sys.waitid(Children::Any, CONTINUED), Err(Errno::ECHILD));
        end_of(sys, child);
    })
    .and_on_linux();
}

#[test]
fn unreported_change_is_replaced_by_the_next() {
    everywhere(|sys| {
        block(sys, &[Signal::CHLD]);
        let chld = SigSet::of(&[Signal::CHLD]);
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        sys.sigwait(chld).unwrap();
        kill(sys, child, Signal::CONT);
        sys.sigwait(chld).unwrap();
        assert_eq!(sys.waitid(child.into(), STOPPED | NOHANG), Ok(None));
        assert_eq!(change_of(sys, child, STOPPED | CONTINUED), WaitStatus::Continued);
        kill_and_wait(sys, child);
    })
    .and_on_linux();
}

#[test]
fn stopped_process_does_not_run_until_continued() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let child = sys
            .fork(move |sys| {
                act(sys, Signal::USR1, Log::default().signals());
                block(sys, &[Signal::USR1]);
                bell.ring(sys);
                sys.sigsuspend(SigSet::EMPTY);
                4
            })
            .unwrap();
        bell.heard(sys);
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        kill(sys, child, Signal::USR1);
        rest(sys);
        assert_eq!(sys.waitpid(child.into(), NOHANG), Ok(None));
        kill(sys, child, Signal::CONT);
        assert_eq!(end_of(sys, child), WaitStatus::Exited(4));
    })
    .and_on_linux();
}

#[test]
fn stop_and_continue_affect_all_threads() {
    everywhere(|sys| {
        let count = Log::default();
        let counted = count.clone();
        let child = sys
            .fork(move |sys| {
                for _ in 0..2 {
                    let counted = counted.clone();
                    sys.thread(move |sys| {
                        loop {
                            if counted.len() < 30 {
                                counted.note(1);
                            }
                            rest(sys);
                        }
                    })
                    .unwrap();
                }
                sleep_on(sys)
            })
            .unwrap();
        until(sys, || count.len() >= 2);
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        // A thread that has not yet stopped may log one more number.
        rest(sys);
        let before = count.len();
        for _ in 0..4 {
            rest(sys);
        }
        assert!(count.len() <= before + 2);
        let stopped = count.len();
        kill(sys, child, Signal::CONT);
        assert_eq!(change_of(sys, child, CONTINUED), WaitStatus::Continued);
        until(sys, || count.len() > stopped || count.len() >= 30);
        kill_and_wait(sys, child);
    });
}

#[test]
fn sigkill_kills_stopped_process_immediately() {
    everywhere(|sys| {
        for threads in [0, 2] {
            let child = sys
                .fork(move |sys| {
                    for _ in 0..threads {
                        sys.thread(|sys| {
                            sleep_on(sys);
                        })
                        .unwrap();
                    }
                    sleep_on(sys)
                })
                .unwrap();
            kill(sys, child, Signal::STOP);
            assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
            kill_and_wait(sys, child);
        }
    })
    .and_on_linux();
}

#[test]
fn process_that_stops_itself_is_continued_by_another() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                for _ in 0..3 {
                    sys.raise(Signal::STOP).unwrap();
                }
                6
            })
            .unwrap();
        for _ in 0..3 {
            assert_eq!(change_of(sys, child, STOPPED | EXITED), WaitStatus::Stopped(Signal::STOP));
            kill(sys, child, Signal::CONT);
        }
        assert_eq!(end_of(sys, child), WaitStatus::Exited(6));
    })
    .and_on_linux();
}

#[test]
fn continue_is_never_lost_to_an_earlier_stop() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                loop {
                    sys.poll();
                }
            })
            .unwrap();
        for _ in 0..40 {
            kill(sys, child, Signal::STOP);
            kill(sys, child, Signal::CONT);
        }
        let log = Log::default();
        act(sys, Signal::CHLD, log.signals());
        kill(sys, child, Signal::TERM);
        let end = loop {
            match sys.waitpid(child.into(), WaitOptions::empty()) {
                Err(Errno::EINTR) => {}
                end => break end.unwrap().unwrap().status,
            }
        };
        assert_eq!(end, WaitStatus::Signaled(Signal::TERM, false));
    })
    .and_on_linux();
}

#[test]
fn sigcont_handler_runs_after_the_process_continues() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let child = sys
            .fork(move |sys| {
                let log = Log::default();
                act(sys, Signal::CONT, log.signals());
                bell.ring(sys);
                until(sys, || log.len() == 1);
                8
            })
            .unwrap();
        bell.heard(sys);
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        kill(sys, child, Signal::CONT);
        assert_eq!(change_of(sys, child, EXITED), WaitStatus::Exited(8));
    })
    .and_on_linux();
}

#[test]
fn blocked_sigcont_still_continues_the_process() {
    everywhere(|sys| {
        let child = sys
            .fork(|sys| {
                block(sys, &[Signal::CONT]);
                sys.raise(Signal::STOP).unwrap();
                i32::from(sys.sigpending().contains(Signal::CONT))
            })
            .unwrap();
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        kill(sys, child, Signal::CONT);
        assert_eq!(end_of(sys, child), WaitStatus::Exited(1));
    })
    .and_on_linux();
}

#[test]
fn second_waiter_for_one_child_gets_echild() {
    everywhere(|sys| {
        let log = Log::default();
        let bell = Bell::new(sys);
        let child = sys
            .fork(move |sys| {
                bell.heard(sys);
                2
            })
            .unwrap();
        let threads = [0, 1].map(|_| {
            let log = log.clone();
            sys.thread(move |sys| {
                log.note(match sys.waitpid(child.into(), WaitOptions::empty()) {
                    Ok(Some(waited)) => waited.status.exited().unwrap_or(99),
                    Err(Errno::ECHILD) => -1,
                    _ => 98,
                });
            })
            .unwrap()
        });
        rest(sys);
        bell.ring(sys);
        for thread in threads {
            sys.join(thread).unwrap();
        }
        let mut all = log.all();
        all.sort_unstable();
        assert_eq!(all, [-1, 2]);
    })
    .and_on_linux();
}

#[test]
fn each_of_many_children_is_reported_to_one_thread() {
    everywhere(|sys| {
        let log = Log::default();
        for n in 1..=6 {
            sys.fork(move |_| n).unwrap();
        }
        let threads = [0, 1, 2].map(|_| {
            let log = log.clone();
            sys.thread(move |sys| {
                while let Ok(waited) = sys.wait() {
                    log.note(waited.status.exited().unwrap_or(99));
                }
            })
            .unwrap()
        });
        for thread in threads {
            sys.join(thread).unwrap();
        }
        let mut all = log.all();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3, 4, 5, 6]);
    })
    .and_on_linux();
}

#[test]
fn thread_may_wait_for_a_child_of_another_thread() {
    everywhere(|sys| {
        let made = Log::default();
        let noted = made.clone();
        let maker = sys.thread(move |sys| noted.note(sys.fork(|_| 4).unwrap().number())).unwrap();
        sys.join(maker).unwrap();
        let waited = sys.wait().unwrap();
        assert_eq!((waited.pid.number(), waited.status), (made.all()[0], WaitStatus::Exited(4)));
    })
    .and_on_linux();
}

#[test]
fn redundant_continue_and_stop_are_not_reported() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let child = sys
            .fork(move |sys| {
                bell.ring(sys);
                sleep_on(sys)
            })
            .unwrap();
        bell.heard(sys);
        kill(sys, child, Signal::CONT);
        rest(sys);
        assert_eq!(sys.waitid(child.into(), CONTINUED | NOHANG), Ok(None));
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        kill(sys, child, Signal::STOP);
        rest(sys);
        assert_eq!(sys.waitid(child.into(), STOPPED | NOHANG), Ok(None));
        kill_and_wait(sys, child);
    })
    .and_on_linux();
}

#[test]
fn fatal_signal_waits_for_continue_unless_sigkill() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        kill(sys, child, Signal::STOP);
        assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        kill(sys, child, Signal::TERM);
        rest(sys);
        assert_eq!(sys.waitpid(child.into(), NOHANG), Ok(None));
        kill(sys, child, Signal::CONT);
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::TERM, false));
    })
    .and_on_linux();
}

#[test]
fn sigcont_is_reported_immediately() {
    everywhere(|sys| {
        let children = [0, 1].map(|_| sys.fork(sleep_on).unwrap());
        for child in children {
            kill(sys, child, Signal::STOP);
            assert_eq!(change_of(sys, child, STOPPED), WaitStatus::Stopped(Signal::STOP));
        }
        for child in [children[1], children[0]] {
            kill(sys, child, Signal::CONT);
            let found = sys.waitid(Children::Any, CONTINUED | NOHANG).unwrap();
            assert_eq!(found.map(|waited| waited.pid), Some(child));
        }
        for child in children {
            kill_and_wait(sys, child);
        }
    })
    .and_on_linux();
}

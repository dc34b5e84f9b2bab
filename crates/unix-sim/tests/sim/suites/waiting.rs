//! Waiting for children: the reported child, the time of the report, and the errors for missing
//! children.

use crate::rules::harness::*;

const NOHANG: WaitOptions = WaitOptions::NOHANG;
const STOPPED: WaitOptions = WaitOptions::STOPPED;

/// Waits until a child has ended or, with `STOPPED`, stopped; returns `None` if no child is left.
fn next(sys: &dyn Sys, children: Children, options: WaitOptions) -> Option<WaitedChild> {
    loop {
        match sys.waitpid(children, options) {
            Ok(Some(waited)) => return Some(waited),
            Ok(None) => rest(sys),
            Err(errno) => {
                assert_eq!(errno, Errno::ECHILD);
                return None;
            }
        }
    }
}

#[test]
fn wait_sleeps_until_the_child_ends() {
    everywhere(|sys| {
        for any in [true, false] {
            let before = sys.now();
            let child = sys
                .fork(|sys| {
                    sys.nanosleep(4 * MOMENT).unwrap();
                    42
                })
                .unwrap();
            let children = if any { Children::Any } else { Children::One(child) };
            let waited = sys.waitpid(children, WaitOptions::empty()).unwrap().unwrap();
            assert_eq!((waited.pid, waited.status), (child, WaitStatus::Exited(42)));
            assert_eq!(waited.uid, sys.getuid());
            assert!(sys.now() - before >= 4 * MOMENT);
        }
    })
    .and_on_linux();
}

#[test]
fn children_can_be_waited_for_in_any_order() {
    everywhere(|sys| {
        for turned in [false, true] {
            let mut children = [3, 4].map(|status| (sys.fork(move |_| status).unwrap(), status));
            if turned {
                children.reverse();
            }
            for (child, status) in children {
                assert_eq!(end_of(sys, child), WaitStatus::Exited(status));
            }
        }
        let born = [5, 6].map(|status| sys.fork(move |_| status).unwrap());
        let mut found = [0, 1].map(|_| sys.wait().unwrap().pid);
        found.sort();
        let mut expected = born;
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn wait_for_a_thread_returns_echild() {
    everywhere(|sys| {
        let bell = Bell::new(sys);
        let thread = sys.thread(move |sys| bell.heard(sys)).unwrap();
        let named = Children::One(Pid::number_only(thread.0));
        assert_eq!(sys.waitpid(named, WaitOptions::empty()), Err(Errno::ECHILD));
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
        bell.ring(sys);
        sys.join(thread).unwrap();
        assert_eq!(sys.waitpid(named, NOHANG), Err(Errno::ECHILD));
    })
    .and_on_linux();
}

#[test]
fn stop_is_not_reported_after_continue() {
    everywhere(|sys| {
        let threads = [0; 4].map(|_| {
            sys.thread(|sys| {
                for _ in 0..5 {
                    let child = sys.fork(sleep_on).unwrap();
                    for signal in [Signal::STOP, Signal::CONT, Signal::TERM] {
                        kill(sys, child, signal);
                    }
                    let change = change_of(sys, child, STOPPED | WaitOptions::EXITED);
                    assert_eq!(change, WaitStatus::Signaled(Signal::TERM, false));
                }
            })
            .unwrap()
        });
        for thread in threads {
            sys.join(thread).unwrap();
        }
    })
    .and_on_linux();
}

#[test]
fn wait_and_kill_of_the_lowest_integer_return_esrch() {
    everywhere(|sys| {
        let child = sys.fork(sleep_on).unwrap();
        let lowest = Children::of(i32::MIN);
        assert_eq!(sys.waitpid(lowest, NOHANG), Err(Errno::ESRCH));
        assert_eq!(sys.wait4(lowest, WaitOptions::empty()), Err(Errno::ESRCH));
        let bare = Pid::number_only(i32::MIN);
        assert_eq!(sys.kill(bare.into(), Some(Signal::KILL)), Err(Errno::ESRCH));
        kill(sys, child, Signal::KILL);
        assert_eq!(end_of(sys, child), WaitStatus::Signaled(Signal::KILL, false));
    })
    .and_on_linux();
}

#[test]
fn wait_for_an_adjacent_pid_returns_echild() {
    everywhere(|sys| {
        let child = sys.fork(|_| 0).unwrap();
        let next = Pid::number_only(child.number() + 1);
        let group = Pid::number_only(sys.getpgrp().number() + 1);
        let first = Pid::number_only(1);
        for children in [Children::One(next), Children::Group(group), Children::One(first)] {
            assert_eq!(sys.waitid(children, WaitOptions::EXITED), Err(Errno::ECHILD));
        }
        let own = Children::Group(Pid::number_only(sys.getpgrp().number()));
        let waited = sys.waitid(own, WaitOptions::EXITED).unwrap().unwrap();
        assert_eq!((waited.pid, waited.status), (child, WaitStatus::Exited(0)));
    })
    .and_on_linux();
}

/// Creates eight children that wait for the bell, four in the caller's group and four in another
/// group. If `stop` is set, each child first stops itself. Returns the first four, the other group
/// and the others.
fn eight(sys: &dyn Sys, bell: Bell, stop: bool) -> ([Pid; 4], Pid, Vec<Pid>) {
    let mut other = None;
    let mut make = |elsewhere: bool| {
        let child = sys
            .fork(move |sys| {
                bell.heard(sys);
                if stop {
                    sys.raise(Signal::STOP).unwrap();
                }
                3
            })
            .unwrap();
        if elsewhere {
            sys.setpgid(child, *other.get_or_insert(child)).unwrap();
        }
        child
    };
    let mine = [false; 4].map(&mut make);
    let others = [true; 4].map(make).to_vec();
    (mine, other.expect("four children"), others)
}

/// Waits for the children in `children` and returns them. If `stop` is set, continues each child
/// once it has stopped.
fn all(sys: &dyn Sys, children: Children, options: WaitOptions, stop: bool) -> Vec<Pid> {
    let (mut ended, mut stopped) = (Vec::new(), Vec::new());
    while let Some(waited) = next(sys, children, options) {
        match waited.status {
            WaitStatus::Stopped(Signal::STOP) => {
                stopped.push(waited.pid);
                kill(sys, waited.pid, Signal::CONT);
            }
            status => {
                assert_eq!(status, WaitStatus::Exited(3));
                ended.push(waited.pid);
            }
        }
    }
    ended.sort();
    stopped.sort();
    assert_eq!(stopped, if stop { ended.clone() } else { Vec::new() });
    ended
}

/// Runs eight children, and asserts that none is reported before the bell rings and that all are
/// reported afterwards.
fn play_eight(sys: &dyn Sys, options: WaitOptions, stop: bool) {
    for by_group in [false, true] {
        let bell = Bell::new(sys);
        let (mine, other, others) = eight(sys, bell, stop);
        let kinds = if by_group {
            vec![(Children::OwnGroup, mine.to_vec()), (Children::Group(other), others)]
        } else {
            vec![(Children::Any, [mine.to_vec(), others].concat())]
        };
        for (children, _) in &kinds {
            assert_eq!(sys.waitpid(*children, options | NOHANG), Ok(None));
        }
        for _ in 0..8 {
            bell.ring(sys);
        }
        for (children, mut expected) in kinds {
            expected.sort();
            assert_eq!(all(sys, children, options, stop), expected);
        }
    }
}

#[test]
fn eight_children_are_reported_by_any_kind_of_wait() {
    everywhere(|sys| {
        play_eight(sys, WaitOptions::empty(), false);
        play_eight(sys, NOHANG, false);
    })
    .and_on_linux();
}

#[test]
fn eight_stopped_children_are_reported_and_continued() {
    everywhere(|sys| {
        play_eight(sys, STOPPED, true);
        play_eight(sys, STOPPED | NOHANG, true);
    })
    .and_on_linux();
}

#[test]
fn children_that_compute_fork_and_sleep_are_all_reaped() {
    everywhere(|sys| {
        let bodies: [fn(&dyn Sys); 4] = [
            |_| {},
            |sys| (0..500).for_each(|_| sys.poll()),
            |sys| (0..5).for_each(|_| assert_eq!(end_as(sys, |_| 0), WaitStatus::Exited(0))),
            rest,
        ];
        let mut expected = Vec::new();
        for body in bodies.into_iter().cycle().take(8) {
            let child = sys.fork(move |sys| {
                body(sys);
                3
            });
            expected.push(child.unwrap());
        }
        expected.sort();
        assert_eq!(all(sys, Children::OwnGroup, WaitOptions::empty(), false), expected);
    })
    .and_on_linux();
}

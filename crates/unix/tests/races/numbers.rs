//! Process numbers and what else runs out: `EAGAIN`, and everything is given back; numbers wrap,
//! and a stale handle reaches nobody.

use std::collections::BTreeSet;

use tontine_unix::{Errno, Executor, Limit, Mode, Pid, Resource, Signal, Sys, Target, WaitOptions};

use crate::systems::{assert_success, everywhere, of, run};

const OWN: Pid = Pid::number_only(0);

/// Forks until it is refused; how many there are now.
fn fork_all(sys: &dyn Sys) -> (i32, Errno) {
    let mut made = 0;
    loop {
        match sys.fork(|_| 0) {
            Ok(_) => made += 1,
            Err(errno) => return (made, errno),
        }
    }
}

fn pauses(sys: &dyn Sys) -> i32 {
    sys.pause();
    0
}

/// Waits until no child is left; how many there were.
fn reap_all(sys: &dyn Sys) -> i32 {
    let mut reaped = 0;
    while sys.wait().is_ok() {
        reaped += 1;
    }
    reaped
}

#[test]
fn forks_without_wait_meet_the_users_limit_again_and_again() {
    for (on, system) in everywhere() {
        let limit = Limit { soft: 50, hard: 50 };
        let report = run(system.limit(Resource::Processes, limit), |sys| {
            sys.setuid(7).expect("it may");
            for _ in 0..5 {
                assert_eq!(fork_all(sys), (49, Errno::EAGAIN));
                assert_eq!(sys.thread(|_| {}), Err(Errno::EAGAIN));
                assert_eq!(reap_all(sys), 49);
            }
            0
        });
        assert_success(&on, &report);
    }
}

#[test]
fn forks_without_wait_fill_the_table_again_and_again() {
    for (on, system) in everywhere() {
        let report = run(system, |sys| {
            // 400 numbers, of which the first processes and the reserved ones below 300 are given
            // out once only.
            let (first, errno) = fork_all(sys);
            assert_eq!((first, errno), (398, Errno::EAGAIN));
            assert_eq!(reap_all(sys), first);
            for _ in 0..3 {
                assert_eq!(fork_all(sys), (101, Errno::EAGAIN));
                assert_eq!(sys.thread(|_| {}), Err(Errno::EAGAIN));
                assert_eq!(reap_all(sys), 101);
            }
            0
        });
        assert_success(&on, &report);
    }
}

#[test]
fn numbers_wrap_and_a_stale_handle_reaches_nobody() {
    for (on, system) in everywhere() {
        let report = run(system, |sys| {
            let stale = sys.fork(|_| 0).expect("there is room");
            assert_eq!(sys.wait().map(|waited| waited.pid), Ok(stale));
            let first = loop {
                let child = sys.fork(|_| 0).expect("there is room");
                assert_eq!(sys.wait().map(|waited| waited.pid), Ok(child));
                if child.number() == 350 {
                    break child;
                }
            };
            let mut numbers = BTreeSet::new();
            let second = loop {
                let child = sys.fork(|sys| {
                    sys.pause();
                    0
                });
                let child = child.expect("there is room");
                if child.number() == first.number() {
                    break child;
                }
                assert!(child.number() >= 300, "{child}");
                assert!(numbers.insert(child.number()), "{child} is given out twice");
                sys.kill(child.into(), Some(Signal::KILL)).expect("it is there");
                assert_eq!(sys.wait().map(|waited| waited.pid), Ok(child));
            };
            assert_ne!(first, second);
            for gone in [first, stale] {
                assert_eq!(sys.kill(gone.into(), Some(Signal::KILL)), Err(Errno::ESRCH));
                assert_eq!(sys.setpgid(gone, OWN), Err(Errno::ESRCH));
                assert_eq!(sys.getpgid(gone), Err(Errno::ESRCH));
                let waited = sys.waitpid(gone.into(), WaitOptions::NOHANG);
                assert_eq!(waited, Err(Errno::ECHILD));
            }
            sys.kill(second.into(), Some(Signal::KILL)).expect("it is there");
            i32::from(sys.wait().map(|waited| waited.pid) != Ok(second))
        });
        assert_success(&on, &report);
    }
}

#[test]
fn the_number_of_a_group_or_a_session_or_a_thread_is_not_given_out() {
    for (on, system) in everywhere() {
        let report = run(system, |sys| {
            let sleeps = |sys: &dyn Sys| {
                sys.pause();
                0
            };
            // A session whose leader is gone and waited for, and whose group lives on in a child.
            let leader = sys.fork(move |sys| {
                sys.setsid().expect("it leads no group");
                sys.fork(sleeps).expect("there is room");
                0
            });
            let leader = leader.expect("there is room");
            sys.waitpid(leader.into(), WaitOptions::empty()).expect("it is my child");
            let thread = sys
                .thread(|sys| {
                    let _ = sys.pause();
                })
                .expect("there is room");
            for _ in 0..500 {
                let child = sys.fork(|_| 0).expect("there is room");
                let waited = sys.waitpid(child.into(), WaitOptions::empty());
                waited.expect("it is my child");
                assert!(![leader.number(), thread.0].contains(&child.number()), "{child}");
            }
            sys.kill(Target::Group(leader), Some(Signal::KILL)).expect("one is there");
            0
        });
        assert_success(&on, &report);
    }
}

#[test]
fn a_stack_that_cannot_be_had_is_refused_and_everything_is_given_back() {
    for (on, system) in everywhere() {
        let limit = Limit { soft: 300, hard: 300 };
        let system = system.stacks(256).pids(3000).limit(Resource::Processes, limit);
        let report = run(system, |sys| {
            sys.setuid(7).expect("it may");
            // More refusals than there are numbers, and than the user may have processes.
            let mut refused = 0;
            while refused < 3500 {
                let mut children = Vec::new();
                while let Ok(child) = sys.fork(pauses) {
                    children.push(child);
                }
                for _ in 0..500 {
                    refused += i32::from(sys.fork(pauses) == Err(Errno::EAGAIN));
                    refused += i32::from(sys.thread(|_| {}) == Err(Errno::EAGAIN));
                }
                assert!((20..256).contains(&children.len()), "{}", children.len());
                for child in children {
                    sys.kill(child.into(), Some(Signal::KILL)).expect("it is there");
                }
                reap_all(sys);
            }
            sys.fork(|_| 0).expect("there is room");
            i32::from(reap_all(sys) != 1)
        });
        assert_success(&on, &report);
    }
}

/// A child that could not begin kept its copies of the descriptors until another process had its
/// slot: the reader of a pipe whose writers were gone waited for ever.
#[test]
fn a_child_that_cannot_begin_keeps_no_descriptor() {
    for (on, system) in everywhere() {
        let report = run(system.stacks(64).pids(3000), |sys| {
            let (reader, writer) = sys.pipe().expect("there is room");
            let mut children = Vec::new();
            while let Ok(child) = sys.fork(pauses) {
                children.push(child);
            }
            for child in children {
                sys.kill(child.into(), Some(Signal::KILL)).expect("it is there");
            }
            reap_all(sys);
            sys.close(writer).expect("it is open");
            i32::from(sys.read(reader, &mut [0]) != Ok(0))
        });
        assert_success(&on, &report);
    }
}

#[test]
fn threads_give_their_numbers_back_however_they_end() {
    for (on, system) in everywhere() {
        let system = system.program("true", |_, _| 0);
        let report = run(system, |sys| {
            for nth in 0..250 {
                let child = sys.fork(move |sys| {
                    let other = sys.thread(move |sys| match nth % 3 {
                        0 => sys.exit(0),
                        1 => drop(sys.exec("true", &[])),
                        _ => {}
                    });
                    other.expect("there is room");
                    if nth % 3 == 2 {
                        return 0;
                    }
                    loop {
                        sys.pause();
                    }
                });
                child.expect("there is room");
                let waited = sys.wait().expect("it is my child");
                assert_eq!(waited.status.exited(), Some(0));
            }
            // All numbers but the program's are free.
            i32::from(fork_all(sys) != (101, Errno::EAGAIN))
        });
        assert_success(&on, &report);
    }
}

/// Forks that are tried, and processes that a user may have, in one run.
const TRIED: i32 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
const ALLOWED: i32 = TRIED / 5;

#[test]
fn a_million_forks_without_wait_are_made_or_refused() {
    let system = of(Mode::Parallel, Executor::Parallel).pids(4_194_304);
    let allowed = Limit { soft: ALLOWED as u64, hard: ALLOWED as u64 };
    let report = run(system.limit(Resource::Processes, allowed), |sys| {
        sys.setuid(7).expect("it may");
        let made = (0..TRIED).filter(|_| match sys.fork(|_| 0) {
            Ok(_) => true,
            Err(errno) => {
                assert_eq!(errno, Errno::EAGAIN);
                false
            }
        });
        assert_eq!(made.count() as i32, ALLOWED - 1);
        assert_eq!(reap_all(sys), ALLOWED - 1);
        sys.fork(|_| 0).expect("there is room");
        i32::from(reap_all(sys) != 1)
    });
    assert_success("parallel", &report);
}

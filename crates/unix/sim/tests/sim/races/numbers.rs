//! Exhaustion of process numbers and other resources: calls return `EAGAIN`, and every resource is
//! released again. Numbers wrap around, and a stale handle never reaches a process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tontine_unix::{
    Children, Errno, Pid, PriorityScope, Ptrace, Resource, Rlimit, SigAction, Signal, SignalTarget,
    Sys, Tid, WaitOptions, WaitStatus,
};
use tontine_unix_sim::{Builder, Executor, LockingMode};

use crate::children::{end_of, forked, pauses, send, threaded};
use crate::races::deaths::descend;
use crate::systems::{assert_success, of, run, succeeds_everywhere, succeeds_everywhere_with};

const OWN: Pid = Pid::number_only(0);

/// Forks until a fork is refused; returns the number of new children and the error.
fn fork_all(sys: &dyn Sys) -> (i32, Errno) {
    let mut made = 0;
    loop {
        match sys.fork(|_| 0) {
            Ok(_) => made += 1,
            Err(errno) => return (made, errno),
        }
    }
}

/// Waits until no child is left; returns the number of children reaped.
fn reap_all(sys: &dyn Sys) -> i32 {
    let mut reaped = 0;
    while sys.wait().is_ok() {
        reaped += 1;
    }
    reaped
}

#[test]
fn unreaped_forks_reach_the_user_limit_repeatedly() {
    let limit = Rlimit { soft: 50, hard: 50 };
    let change = |system: Builder| system.limit(Resource::Processes, limit);
    succeeds_everywhere_with(change, |sys| {
        sys.setuid(7).expect("permitted");
        for _ in 0..5 {
            assert_eq!(fork_all(sys), (49, Errno::EAGAIN));
            assert_eq!(sys.thread(|_| {}), Err(Errno::EAGAIN));
            assert_eq!(reap_all(sys), 49);
        }
        0
    });
}

#[test]
fn unreaped_forks_fill_the_process_table_repeatedly() {
    succeeds_everywhere(|sys| {
        // There are 400 numbers. The numbers of the first processes and the reserved numbers
        // below 300 are assigned only once.
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
}

#[test]
fn process_numbers_wrap_and_stale_handles_return_esrch() {
    succeeds_everywhere(|sys| {
        let stale = forked(sys, |_| 0);
        assert_eq!(sys.wait().map(|waited| waited.pid), Ok(stale));
        let first = loop {
            let child = forked(sys, |_| 0);
            assert_eq!(sys.wait().map(|waited| waited.pid), Ok(child));
            if child.number() == 350 {
                break child;
            }
        };
        let mut numbers = BTreeSet::new();
        let second = loop {
            let child = forked(sys, pauses);
            if child.number() == first.number() {
                break child;
            }
            assert!(child.number() >= 300, "{child}");
            assert!(numbers.insert(child.number()), "{child} was assigned twice");
            send(sys, child, Signal::KILL);
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
        send(sys, second, Signal::KILL);
        i32::from(sys.wait().map(|waited| waited.pid) != Ok(second))
    });
}

#[test]
fn number_of_a_live_group_session_or_thread_is_not_reused() {
    succeeds_everywhere(|sys| {
        // The leader of this session has been reaped, but its group lives on in a child.
        let leader = forked(sys, move |sys| {
            sys.setsid().expect("the caller leads no group");
            forked(sys, pauses);
            0
        });
        end_of(sys, leader);
        let thread = threaded(sys, |sys| {
            let _ = sys.pause();
        });
        for _ in 0..500 {
            let child = forked(sys, |_| 0);
            let waited = sys.waitpid(child.into(), WaitOptions::empty());
            waited.expect("a child of the caller");
            assert!(![leader.number(), thread.0].contains(&child.number()), "{child}");
        }
        sys.kill(SignalTarget::Group(leader), Some(Signal::KILL)).expect("a member exists");
        0
    });
}

/// Creates a session whose leader has been reaped, and whose only remaining group has one member, a
/// child of the caller. Returns the leader's number and that child.
fn session_of_one(sys: &dyn Sys) -> (i32, Pid) {
    sys.set_subreaper(true).expect("permitted");
    let orphan = Arc::new(AtomicI32::new(0));
    let stored = orphan.clone();
    let leader = forked(sys, move |sys| {
        sys.setsid().expect("the caller leads no group");
        let child = forked(sys, pauses);
        sys.setpgid(child, child).expect("a child of the caller");
        stored.store(child.number(), Ordering::Relaxed);
        0
    });
    end_of(sys, leader);
    (leader.number(), Pid::number_only(orphan.load(Ordering::Relaxed)))
}

/// Returns the number of a child that exits immediately.
fn next_number(sys: &dyn Sys) -> i32 {
    let child = forked(sys, |_| 0);
    end_of(sys, child);
    child.number()
}

#[test]
fn session_number_is_reused_only_after_its_last_group() {
    succeeds_everywhere(|sys| {
        // Numbers below 300 are assigned only once.
        while next_number(sys) < 320 {}
        let (session, orphan) = session_of_one(sys);
        assert_eq!(sys.getsid(orphan).map(Pid::number), Ok(session));
        assert!((0..300).all(|_| next_number(sys) != session), "the session still exists");
        send(sys, orphan, Signal::KILL);
        end_of(sys, orphan);
        i32::from(!(0..300).any(|_| next_number(sys) == session))
    });
}

/// Returns two successive children with the same number.
fn namesakes(sys: &dyn Sys) -> (Pid, Pid) {
    let first = loop {
        let child = forked(sys, |_| 0);
        end_of(sys, child);
        if child.number() == 350 {
            break child;
        }
    };
    while next_number(sys) != first.number() - 1 {}
    let second = forked(sys, pauses);
    assert_eq!(second.number(), first.number());
    (first, second)
}

#[test]
fn stale_handle_never_names_the_current_process() {
    succeeds_everywhere(|sys| {
        let (stale, child) = namesakes(sys);
        assert_ne!(stale, child);
        let usr1 = Some(Signal::USR1);
        let refused = Err(Errno::ESRCH);
        assert_eq!(sys.kill(stale.into(), None), refused);
        assert_eq!(sys.kill(stale.into(), usr1), refused);
        assert_eq!(sys.sigqueue(stale, usr1, 1), refused);
        assert_eq!(sys.tgkill(stale, Tid(stale.number()), usr1), refused);
        assert_eq!(sys.getpgid(stale).map(drop), refused);
        assert_eq!(sys.getsid(stale).map(drop), refused);
        assert_eq!(sys.setpgid(stale, stale), refused);
        assert_eq!(sys.getpriority(PriorityScope::Process(stale)).map(drop), refused);
        assert_eq!(sys.setpriority(PriorityScope::Process(stale), 5), refused);
        for request in [
            Ptrace::Attach(stale),
            Ptrace::Continue(stale, None),
            Ptrace::Kill(stale),
            Ptrace::Detach(stale, None),
        ] {
            assert_eq!(sys.ptrace(request), refused, "{request:?}");
        }
        let waited = sys.waitpid(stale.into(), WaitOptions::NOHANG);
        assert_eq!(waited, Err(Errno::ECHILD));
        assert_eq!(sys.getpriority(PriorityScope::Process(child)), Ok(0));
        let waited = sys.waitpid(child.into(), WaitOptions::NOHANG);
        assert_eq!(waited, Ok(None), "the current process is untouched");
        send(sys, child, Signal::KILL);
        i32::from(sys.wait().map(|waited| waited.pid) != Ok(child))
    });
}

#[test]
fn stale_handle_never_names_the_current_group() {
    succeeds_everywhere(|sys| {
        let (stale, child) = namesakes(sys);
        sys.setpgid(child, child).expect("a child of the caller");
        let usr1 = Some(Signal::USR1);
        let refused = Err(Errno::ESRCH);
        assert_eq!(sys.kill(SignalTarget::Group(stale), usr1), refused);
        assert_eq!(sys.killpg(stale, usr1), refused);
        assert_eq!(sys.getpriority(PriorityScope::Group(stale)).map(drop), refused);
        assert_eq!(sys.setpriority(PriorityScope::Group(stale), 5), refused);
        let other = forked(sys, pauses);
        assert_eq!(sys.setpgid(other, stale), Err(Errno::EPERM));
        assert_eq!(sys.setpgid(child, stale), Err(Errno::EPERM));
        let waited = sys.waitpid(Children::Group(stale), WaitOptions::NOHANG);
        assert_eq!(waited, Err(Errno::ECHILD));
        sys.setpgid(other, child).expect("the group exists");
        sys.killpg(child, Some(Signal::KILL)).expect("the group exists");
        for _ in 0..2 {
            let waited = sys.waitpid(Children::Group(child), WaitOptions::empty());
            waited.expect("a child").expect("the wait blocks");
        }
        i32::from(sys.wait() != Err(Errno::ECHILD))
    });
}

#[test]
fn number_of_a_foreground_group_is_reused_only_after_release() {
    succeeds_everywhere(|sys| {
        // Only numbers from 300 upwards are reused.
        for _ in 0..300 {
            forked(sys, |_| 0);
            sys.wait().expect("a child of the caller");
        }
        let shell = forked(sys, |sys| {
            sys.setsid().expect("the caller leads no group");
            let (_user, terminal) = sys.openpty().expect("within the limits");
            sys.set_controlling(terminal).expect("the caller leads a session");
            let job = forked(sys, pauses);
            sys.setpgid(job, job).expect("a child of the caller");
            sys.tcsetpgrp(terminal, job).expect("a group of the caller's session");
            send(sys, job, Signal::KILL);
            sys.wait().expect("a child of the caller");
            let reborn = |times| {
                (0..times).any(|_| {
                    let child = forked(sys, |_| 0);
                    end_of(sys, child);
                    child.number() == job.number()
                })
            };
            // The loop forks more often than there are process numbers.
            assert!(!reborn(500), "{job} still owns the terminal");
            assert_eq!(sys.tcgetpgrp(terminal).map(Pid::number), Ok(job.number()));
            sys.sigaction(Signal::TTOU, Some(SigAction::IGNORE)).expect("permitted");
            sys.tcsetpgrp(terminal, sys.getpid()).expect("the caller ignores SIGTTOU");
            i32::from(!reborn(500))
        });
        end_of(sys, shell).exited().unwrap_or(1)
    });
}

#[test]
fn fork_without_free_stack_fails_without_leaks() {
    let limit = Rlimit { soft: 300, hard: 300 };
    let change =
        |system: Builder| system.max_stacks(256).pids(3000).limit(Resource::Processes, limit);
    succeeds_everywhere_with(change, |sys| {
        sys.setuid(7).expect("permitted");
        // The number of refused calls exceeds both the number of process numbers and the user's
        // process limit.
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
                send(sys, child, Signal::KILL);
            }
            reap_all(sys);
        }
        forked(sys, |_| 0);
        i32::from(reap_all(sys) != 1)
    });
}

/// Regression: a child that could not start kept its copies of the descriptors until its slot was
/// reused. The reader of a pipe whose other writers had closed it therefore waited indefinitely.
#[test]
fn child_that_fails_to_start_keeps_no_descriptor() {
    let change = |system: Builder| system.max_stacks(64).pids(3000);
    succeeds_everywhere_with(change, |sys| {
        let (reader, writer) = sys.pipe().expect("within the limits");
        let mut children = Vec::new();
        while let Ok(child) = sys.fork(pauses) {
            children.push(child);
        }
        for child in children {
            send(sys, child, Signal::KILL);
        }
        reap_all(sys);
        sys.close(writer).expect("an open descriptor");
        i32::from(sys.read(reader, &mut [0]) != Ok(0))
    });
}

#[test]
fn threads_release_their_numbers_on_every_kind_of_end() {
    let change = |system: Builder| system.program("true", |_, _| 0);
    succeeds_everywhere_with(change, |sys| {
        for nth in 0..250 {
            let child = sys.fork(move |sys| {
                threaded(sys, move |sys| match nth % 3 {
                    0 => sys.exit(0),
                    1 => drop(sys.exec("true", &[])),
                    _ => {}
                });
                if nth % 3 == 2 {
                    return 0;
                }
                loop {
                    sys.pause();
                }
            });
            child.expect("within the limits");
            let waited = sys.wait().expect("a child of the caller");
            assert_eq!(waited.status.exited(), Some(0));
        }
        // All numbers except the program's must be free.
        i32::from(fork_all(sys) != (101, Errno::EAGAIN))
    });
}

/// Number of forks attempted in one run. The next constant is the user's process limit.
const TRIED: i32 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
const ALLOWED: i32 = TRIED / 5;

#[test]
fn million_unreaped_forks_succeed_or_return_eagain() {
    let system = of(LockingMode::Parallel, Executor::Parallel).pids(4_194_304);
    let allowed = Rlimit { soft: ALLOWED as u64, hard: ALLOWED as u64 };
    let report = run(system.limit(Resource::Processes, allowed), |sys| {
        sys.setuid(7).expect("permitted");
        let made = (0..TRIED).filter(|_| match sys.fork(|_| 0) {
            Ok(_) => true,
            Err(errno) => {
                assert_eq!(errno, Errno::EAGAIN);
                false
            }
        });
        assert_eq!(made.count() as i32, ALLOWED - 1);
        assert_eq!(reap_all(sys), ALLOWED - 1);
        forked(sys, |_| 0);
        i32::from(reap_all(sys) != 1)
    });
    assert_success("parallel", &report);
}

#[test]
fn overflow_of_last_stack_kills_only_its_program() {
    let change = |system: Builder| system.max_stacks(256);
    succeeds_everywhere_with(change, |sys| {
        for _ in 0..3 {
            let (from, to) = sys.pipe().expect("two descriptors");
            let recurses = loop {
                let child = sys.fork(move |sys| {
                    assert_eq!(sys.read(from, &mut [0]), Ok(1));
                    std::hint::black_box(descend(0));
                    0
                });
                match child {
                    Ok(child) => break child,
                    // Processes that have ended may not have released their stacks yet.
                    Err(_) => sys.sched_yield(),
                }
            };
            let mut others = 0;
            while sys.fork(pauses).is_ok() {
                others += 1;
            }
            assert_eq!(sys.write(to, b"."), Ok(1));
            let ended = end_of(sys, recurses);
            assert_eq!(ended, WaitStatus::Signaled(Signal::SEGV, true));
            sys.close(from).expect("an open descriptor");
            sys.close(to).expect("an open descriptor");
            sys.kill(SignalTarget::Everyone, Some(Signal::KILL)).expect("processes exist");
            assert_eq!(reap_all(sys), others);
        }
        0
    });
}

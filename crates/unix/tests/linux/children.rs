//! Tests of fork, exit, wait and handles.

#![allow(unsafe_code, reason = "a PID namespace is unshared")]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tontine_unix::{
    ActionFlags, Children, Errno, Pid, Resource, Rlimit, SigAction, Signal, SignalTarget,
    SpawnRequest, WaitOptions, WaitStatus,
};

use crate::scene::{
    TIMEOUT_S, await_byte, end, open_descriptors, play, reap, send_byte, sleeper, state, until,
};

const NOHANG: WaitOptions = WaitOptions::NOHANG;

#[test]
fn exit_status_is_the_return_value_modulo_256() {
    play(|sys| {
        let child = sys.fork(|_| 0x1ff).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0xff));
        let child = sys.fork(|sys| sys.exit(-2)).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(254));
    });
}

#[test]
fn panic_kills_child_with_sigabrt() {
    play(|sys| {
        std::panic::set_hook(Box::new(|_| {}));
        let child = sys.fork(|_| panic!("on purpose")).unwrap();
        assert_eq!(end(sys, child).signaled(), Some(Signal::ABRT));
    });
}

#[test]
fn handle_of_a_reaped_child_returns_esrch() {
    play(|sys| {
        let child = sys.fork(|_| 0).unwrap();
        assert_eq!(reap(sys, child).pid, child);
        assert_eq!(sys.kill(child.into(), None), Err(Errno::ESRCH));
        assert_eq!(sys.sigqueue(child, Some(Signal::USR1), 1), Err(Errno::ESRCH));
        assert_eq!(sys.getpgid(child), Err(Errno::ESRCH));
        assert_eq!(sys.waitpid(child.into(), NOHANG), Err(Errno::ECHILD));
    });
}

/// Process numbers are reused. In its own PID namespace, a process can choose the next number
/// (/proc/sys/kernel/ns_last_pid), and no other process takes that number.
#[test]
fn handle_never_names_the_next_process_with_its_pid() {
    play(|sys| {
        // SAFETY: the call changes only the namespace of children created from now on, and no
        // descriptor.
        if unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.is_err() {
            // An unprivileged process cannot choose the number.
            return;
        }
        let first_of_its_system = sys.fork(|sys| {
            sys.alarm(TIMEOUT_S);
            let first = sys.fork(|_| 0).unwrap();
            reap(sys, first);
            let before = (first.number() - 1).to_string();
            std::fs::write("/proc/sys/kernel/ns_last_pid", before).unwrap();
            let second = sleeper(sys);
            assert_eq!(second.number(), first.number());
            assert_ne!(second, first);
            assert_eq!(sys.kill(first.into(), Some(Signal::KILL)), Err(Errno::ESRCH));
            assert_eq!(sys.tgkill(first, sys.gettid(), None), Err(Errno::ESRCH));
            assert_eq!(sys.waitpid(first.into(), NOHANG), Err(Errno::ECHILD));
            assert_eq!(sys.waitpid(second.into(), NOHANG), Ok(None), "the second process lives");
            sys.kill(second.into(), Some(Signal::TERM)).unwrap();
            assert_eq!(end(sys, second).signaled(), Some(Signal::TERM));
            0
        });
        assert_eq!(end(sys, first_of_its_system.unwrap()), WaitStatus::Exited(0));
    });
}

#[test]
fn three_waiters_one_child_one_reaps_two_get_echild() {
    play(|sys| {
        for _ in 0..50 {
            let (from, to) = sys.pipe().unwrap();
            let child = sys.fork(move |sys| {
                await_byte(sys, from);
                3
            });
            let child = child.unwrap();
            let found = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let wait = |children: Children| {
                let found = Arc::clone(&found);
                sys.thread(move |sys| {
                    let slot = match sys.waitpid(children, WaitOptions::empty()) {
                        Ok(Some(waited)) if waited.status == WaitStatus::Exited(3) => 0,
                        Err(Errno::ECHILD) => 1,
                        other => panic!("{other:?}"),
                    };
                    found[slot].fetch_add(1, Relaxed);
                })
                .unwrap()
            };
            let waiters = [wait(child.into()), wait(Children::Any), wait(child.into())];
            send_byte(sys, to);
            for waiter in waiters {
                sys.join(waiter).unwrap();
            }
            assert_eq!((found[0].load(Relaxed), found[1].load(Relaxed)), (1, 2));
            sys.close(from).unwrap();
            sys.close(to).unwrap();
        }
    });
}

#[test]
fn many_waiters_reap_each_of_many_children_once() {
    play(|sys| {
        const CHILDREN: u32 = 200;
        const WAITERS: usize = 4;
        let reaped = Arc::new(AtomicU32::new(0));
        let children: Vec<_> = (0..CHILDREN).map(|_| sys.fork(|_| 0).unwrap()).collect();
        let start = Arc::new(Barrier::new(WAITERS));
        let waiters = [(); WAITERS].map(|()| {
            let (reaped, start) = (Arc::clone(&reaped), Arc::clone(&start));
            sys.thread(move |sys| {
                start.wait();
                while sys.wait().is_ok() {
                    reaped.fetch_add(1, Relaxed);
                }
            })
            .unwrap()
        });
        for waiter in waiters {
            sys.join(waiter).unwrap();
        }
        assert_eq!(reaped.load(Relaxed), CHILDREN);
        assert!(children.iter().all(|&child| sys.kill(child.into(), None) == Err(Errno::ESRCH)));
    });
}

#[test]
fn wait_for_any_ignores_children_of_command() {
    play(|sys| {
        let mut theirs = Command::new("/bin/sh").args(["-c", "exit 5"]).spawn().unwrap();
        let number = theirs.id() as i32;
        until("the command ended", || state(number) == 'Z');
        assert_eq!(sys.wait(), Err(Errno::ECHILD), "no child of this backend");
        let ours = sys.fork(|_| 6).unwrap();
        let found = sys.wait().unwrap();
        assert_eq!((found.pid, found.status), (ours, WaitStatus::Exited(6)));
        let options = WaitOptions::EXITED | WaitOptions::NOWAIT | NOHANG;
        let found = sys.waitid(Children::of(number), options).unwrap().unwrap();
        assert_eq!(found.status, WaitStatus::Exited(5), "found by its number");
        assert_eq!(theirs.wait().unwrap().code(), Some(5));
    });
}

#[test]
fn wait_reports_own_stop_despite_a_foreign_zombie() {
    play(|sys| {
        let mut theirs = Command::new("/bin/sh").args(["-c", "exit 5"]).spawn().unwrap();
        until("the command ended", || state(theirs.id() as i32) == 'Z');
        let ours = sleeper(sys);
        let killer = sys.thread(move |sys| {
            sys.kill(ours.into(), Some(Signal::STOP)).unwrap();
        });
        let options = WaitOptions::EXITED | WaitOptions::STOPPED;
        let found = sys.waitid(Children::Any, options).unwrap().unwrap();
        assert_eq!((found.pid, found.status), (ours, WaitStatus::Stopped(Signal::STOP)));
        sys.join(killer.unwrap()).unwrap();
        sys.kill(ours.into(), Some(Signal::KILL)).unwrap();
        reap(sys, ours);
        theirs.wait().unwrap();
    });
}

#[test]
fn nowait_leaves_child_to_next_wait() {
    play(|sys| {
        let child = sys.fork(|_| 4).unwrap();
        for children in [Children::Any, Children::One(child), Children::OwnGroup] {
            let looked = sys.waitid(children, WaitOptions::EXITED | WaitOptions::NOWAIT).unwrap();
            assert_eq!(
                looked.map(|found| (found.pid, found.status)),
                Some((child, WaitStatus::Exited(4)))
            );
        }
        assert_eq!(end(sys, child), WaitStatus::Exited(4));
    });
}

#[test]
fn waitid_without_events_returns_einval() {
    play(|sys| {
        assert_eq!(sys.waitid(Children::Any, NOHANG), Err(Errno::EINVAL));
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    });
}

#[test]
fn waitid_reports_stop_and_continue_once_each() {
    play(|sys| {
        let child = sleeper(sys);
        sys.kill(child.into(), Some(Signal::STOP)).unwrap();
        let stopped = sys.waitid(child.into(), WaitOptions::STOPPED).unwrap().unwrap();
        assert_eq!(stopped.status, WaitStatus::Stopped(Signal::STOP));
        assert_eq!(
            sys.waitid(child.into(), WaitOptions::STOPPED | NOHANG),
            Ok(None),
            "reported once"
        );
        sys.kill(child.into(), Some(Signal::CONT)).unwrap();
        let went_on = sys.waitid(child.into(), WaitOptions::CONTINUED).unwrap().unwrap();
        assert_eq!(went_on.status, WaitStatus::Continued);
        sys.kill(child.into(), Some(Signal::TERM)).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Signaled(Signal::TERM, false));
    });
}

#[test]
fn orphans_are_reparented_to_a_subreaper() {
    play(|sys| {
        sys.set_subreaper(true).unwrap();
        let (from, to) = sys.pipe().unwrap();
        let child = sys.fork(move |sys| {
            let orphan = sys.fork(move |sys| {
                await_byte(sys, from);
                9
            });
            orphan.unwrap().number() & 0x7f
        });
        let status = end(sys, child.unwrap());
        assert!(status.exited().is_some());
        send_byte(sys, to);
        let orphan = sys.wait().unwrap();
        assert_eq!(orphan.status, WaitStatus::Exited(9));
        assert_eq!(Some(orphan.pid.number() & 0x7f), status.exited());
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    });
}

#[test]
fn nocldwait_leaves_no_zombie_and_no_descriptor() {
    play(|sys| {
        let ignore = SigAction::DEFAULT.with_flags(ActionFlags::NOCLDWAIT);
        sys.sigaction(Signal::CHLD, Some(ignore)).unwrap();
        let before = open_descriptors();
        let last = (0..300).map(|_| sys.fork(|_| 0).unwrap()).last().unwrap();
        assert_eq!(sys.waitpid(last.into(), WaitOptions::empty()), Err(Errno::ECHILD));
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
        assert_eq!(sys.kill(last.into(), None), Err(Errno::ESRCH));
        assert_eq!(open_descriptors(), before);
    });
}

#[test]
fn forked_child_has_no_children_of_its_parent() {
    play(|sys| {
        let sibling = sleeper(sys);
        let before = open_descriptors();
        let child = sys.fork(move |sys| {
            assert_eq!(open_descriptors(), before - 1, "the sibling's descriptor is closed");
            assert_eq!(sys.wait(), Err(Errno::ECHILD));
            assert_eq!(sys.waitpid(sibling.into(), NOHANG), Err(Errno::ECHILD));
            assert_eq!(sys.kill(sibling.into(), None), Err(Errno::ESRCH));
            0
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(0));
        sys.kill(sibling.into(), Some(Signal::KILL)).unwrap();
        assert_eq!(end(sys, sibling).signaled(), Some(Signal::KILL));
    });
}

#[test]
fn fork_without_a_free_descriptor_creates_no_child() {
    play(|sys| {
        // Descriptors 0, 1 and 2 are open.
        sys.setrlimit(Resource::Descriptors, Rlimit::of(3)).unwrap();
        assert_eq!(sys.fork(|_| 0), Err(Errno::EMFILE));
        assert_eq!(sys.spawn(&SpawnRequest::new("/bin/true", &["true"])), Err(Errno::EMFILE));
        assert_eq!(sys.waitpid(Children::Any, NOHANG), Err(Errno::ECHILD));
    });
}

#[test]
fn kill_of_an_invalid_number_returns_esrch() {
    play(|sys| {
        for number in [0, -1, -5] {
            let target = SignalTarget::Process(Pid::number_only(number));
            assert_eq!(sys.kill(target, None), Err(Errno::ESRCH), "{number}");
        }
    });
}

#[test]
fn wait_returns_processor_time_of_child() {
    play(|sys| {
        let child = sys.fork(|sys| {
            while sys.getrusage().user.as_millis() < 30 {}
            0
        });
        let waited = reap(sys, child.unwrap());
        assert!(waited.usage.user.as_millis() >= 30, "{:?}", waited.usage);
        assert_eq!(waited.uid, sys.getuid());
    });
}

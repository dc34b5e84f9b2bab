//! Tests of fork, exit, wait and handles.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Barrier};

use tontine_unix::{
    ActionFlags, Children, Errno, Resource, Rlimit, SigAction, Signal, SpawnRequest, WaitOptions,
    WaitStatus,
};

use crate::scene::{end, in_namespace, open_descriptors, reap, run, sleeper, state, until};

const NOHANG: WaitOptions = WaitOptions::NOHANG;

#[test]
fn panic_kills_child_with_sigabrt() {
    run(|sys| {
        std::panic::set_hook(Box::new(|_| {}));
        let child = sys.fork(|_| panic!("on purpose")).unwrap();
        assert_eq!(end(sys, child).signaled(), Some(Signal::ABRT));
    });
}

/// Process numbers are reused. In its own PID namespace, a process can choose the next number
/// (/proc/sys/kernel/ns_last_pid), and no other process takes that number.
#[test]
fn handle_never_names_the_next_process_with_its_pid() {
    in_namespace(|sys| {
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
    });
}

#[test]
fn many_waiters_reap_each_of_many_children_once() {
    run(|sys| {
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
    run(|sys| {
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
    run(|sys| {
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
fn nocldwait_leaves_no_zombie_and_no_descriptor() {
    run(|sys| {
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
    run(|sys| {
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
    run(|sys| {
        // Descriptors 0, 1 and 2 are open.
        sys.setrlimit(Resource::Descriptors, Rlimit::of(3)).unwrap();
        assert_eq!(sys.fork(|_| 0), Err(Errno::EMFILE));
        assert_eq!(sys.spawn(&SpawnRequest::new("/bin/true", &["true"])), Err(Errno::EMFILE));
        assert_eq!(sys.waitpid(Children::Any, NOHANG), Err(Errno::ECHILD));
    });
}

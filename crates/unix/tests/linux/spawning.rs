//! Tests of `spawn` and `exec`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rustix::process::{PidfdFlags, Signal as HostSignal, pidfd_open, pidfd_send_signal};
use tontine_unix::{
    Children, Errno, Fd, SigAction, SigSet, SigmaskHow, Signal, SpawnGroup, SpawnRequest, Sys,
    WaitOptions, WaitStatus,
};

use crate::keeper::parent_of;
use crate::scene::{end, open_descriptors, play};

/// Returns a request for a shell that runs `script`.
fn shell(script: &str) -> SpawnRequest {
    SpawnRequest::new("/bin/sh", &["sh", "-c", script])
}

/// Reads all bytes of a pipe.
fn read_all(sys: &dyn Sys, from: Fd) -> String {
    let (mut all, mut buffer) = (Vec::new(), [0; 256]);
    loop {
        match sys.read(from, &mut buffer) {
            Ok(0) => return String::from_utf8(all).unwrap(),
            Ok(read) => all.extend_from_slice(&buffer[..read]),
            Err(error) => assert_eq!(error, Errno::EINTR),
        }
    }
}

/// Returns the standard output of a spawned program.
fn output(sys: &dyn Sys, spawn: SpawnRequest) -> String {
    let (from, to) = sys.pipe().unwrap();
    let mut spawn = spawn;
    spawn.descriptors.push((to, Fd::STDOUT));
    let child = sys.spawn(&spawn).unwrap();
    sys.close(to).unwrap();
    let written = read_all(sys, from);
    sys.close(from).unwrap();
    assert_eq!(end(sys, child), WaitStatus::Exited(0));
    written
}

#[test]
fn spawn_of_unusable_file_fails_and_leaves_no_child() {
    play(|sys| {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "neither a script nor a program").unwrap();
        let text = text.to_str().unwrap();
        let long = "x".repeat(5000);
        let before = open_descriptors();
        let ends = SigSet::of(&[Signal::CHLD]);
        sys.sigprocmask(Some((SigmaskHow::Block, ends))).unwrap();
        let cases = [
            ("/nowhere/at/all", Errno::ENOENT),
            (text, Errno::EACCES),
            ("/", Errno::EACCES),
            (long.as_str(), Errno::ENAMETOOLONG),
            ("nul\0inside", Errno::ENOENT),
        ];
        for (path, expected) in cases {
            for _ in 0..20 {
                assert_eq!(sys.spawn(&SpawnRequest::new(path, &["x"])), Err(expected), "{path}");
            }
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(text, mode).unwrap();
        assert_eq!(sys.spawn(&SpawnRequest::new(text, &["x"])), Err(Errno::ENOEXEC));
        let huge = "x".repeat(200_000);
        assert_eq!(sys.spawn(&SpawnRequest::new("/bin/true", &["true", &huge])), Err(Errno::E2BIG));

        assert!(!sys.sigpending().contains(Signal::CHLD), "a failed spawn sends no SIGCHLD");
        assert_eq!(open_descriptors(), before);
        assert_eq!(sys.waitpid(Children::Any, WaitOptions::NOHANG), Err(Errno::ECHILD));
        let zombies = std::fs::read_to_string("/proc/thread-self/children");
        assert!(zombies.is_ok_and(|children| children.is_empty()), "no process is left");
        let child = sys.spawn(&SpawnRequest::new("/bin/true", &["true"])).unwrap();
        assert_eq!(
            sys.sigtimedwait(ends, None).unwrap().pid,
            child.number(),
            "SIGCHLD of the existing child"
        );
        assert_eq!(end(sys, child), WaitStatus::Exited(0));
    });
}

/// Number of spawned children, which is large enough that some are killed before exec and some
/// after.
const SPAWNED: u32 = 2_000;

/// Kills children of `parent` until `until` is set; returns the number killed.
fn kill_children_of(parent: i32, until: &AtomicBool) -> u32 {
    let list = format!("/proc/{parent}/task/{parent}/children");
    let mut killed = 0;
    while !until.load(Relaxed) {
        let children = std::fs::read_to_string(&list).unwrap_or_default();
        for number in children.split_whitespace().filter_map(|number| number.parse().ok()) {
            let child = rustix::process::Pid::from_raw(number).expect("a positive number");
            let Ok(held) = pidfd_open(child, PidfdFlags::empty()) else { continue };
            // If the number still belongs to a child, it was not reused before the pidfd was
            // opened.
            if parent_of(number) == Some(parent) {
                killed += u32::from(pidfd_send_signal(held, HostSignal::KILL).is_ok());
            }
        }
    }
    killed
}

#[test]
fn spawn_of_child_killed_before_exec_leaves_no_child() {
    play(|sys| {
        let (over, parent) = (Arc::new(AtomicBool::new(false)), sys.getpid().number());
        let killer = std::thread::spawn({
            let over = Arc::clone(&over);
            move || kill_children_of(parent, &over)
        });
        for _ in 0..SPAWNED {
            match sys.spawn(&SpawnRequest::new("/bin/true", &["true"])) {
                Ok(child) => {
                    let ended = end(sys, child);
                    assert!(matches!(ended, WaitStatus::Exited(0) | WaitStatus::Signaled(..)));
                }
                Err(error) => assert_eq!(error, Errno::EAGAIN),
            }
        }
        over.store(true, Relaxed);
        assert!(killer.join().expect("no panic") > 0);
        assert_eq!(sys.waitpid(Children::Any, WaitOptions::NOHANG), Err(Errno::ECHILD));
        let zombies = std::fs::read_to_string("/proc/thread-self/children");
        assert!(zombies.is_ok_and(|children| children.is_empty()), "no process is left");
    });
}

#[test]
fn spawn_leaves_memory_and_mask_of_the_parent_unchanged() {
    play(|sys| {
        let mask = SigSet::of(&[Signal::USR1, Signal::realtime(3).unwrap()]);
        sys.sigprocmask(Some((SigmaskHow::Set, mask))).unwrap();
        let mut values = [0_u64; 64];
        for round in 0..100 {
            values.fill(round);
            let path = if round % 2 == 0 { "/bin/true" } else { "/nowhere" };
            if let Ok(child) = sys.spawn(&SpawnRequest::new(path, &["true"])) {
                assert_eq!(end(sys, child), WaitStatus::Exited(0));
            }
            assert!(values.iter().all(|value| *value == round));
            assert_eq!(sys.sigprocmask(None), Ok(mask));
        }
    });
}

#[test]
fn spawned_program_receives_arguments_and_environment() {
    play(|sys| {
        let spawn =
            SpawnRequest::new("/bin/sh", &["sh", "-c", "echo \"$0 $1 ${PATH:+set}\"", "a b", "c"]);
        assert_eq!(output(sys, spawn), "a b c set\n");
    });
}

#[test]
fn spawned_program_starts_in_the_requested_group() {
    play(|sys| {
        let mut leader = shell("read line");
        let (hold, release) = sys.pipe().unwrap();
        leader.descriptors = vec![(hold, Fd::STDIN)];
        assert_eq!(sys.spawn(&leader).and_then(|child| sys.getpgid(child)), Ok(sys.getpgrp()));
        leader.group = SpawnGroup::Own;
        let first = sys.spawn(&leader).unwrap();
        assert_eq!(sys.getpgid(first), Ok(first));
        leader.group = SpawnGroup::Of(first);
        let second = sys.spawn(&leader).unwrap();
        assert_eq!(sys.getpgid(second), Ok(first));
        sys.close(release).unwrap();
        for _ in 0..3 {
            assert!(sys.wait().unwrap().status.is_terminated());
        }
        assert_eq!(sys.spawn(&leader), Err(Errno::EPERM), "the group has ended");
    });
}

#[test]
fn spawned_program_leads_a_session_if_requested() {
    play(|sys| {
        let (hold, release) = sys.pipe().unwrap();
        let spawn = SpawnRequest {
            session: true,
            descriptors: vec![(hold, Fd::STDIN)],
            ..shell("read line")
        };
        let child = sys.spawn(&spawn).unwrap();
        assert_eq!(sys.getsid(child), Ok(child));
        sys.close(release).unwrap();
        assert!(end(sys, child).is_terminated());
    });
}

/// Returns the lines of /proc/self/status about signals, as sets.
fn signal_sets(sys: &dyn Sys, spawn: &SpawnRequest) -> (SigSet, SigSet, SigSet) {
    let script = "exec cat /proc/self/status";
    let status = output(sys, SpawnRequest { path: shell(script).path, ..spawn_of(spawn, script) });
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let set = SigSet::from_bits(u64::from_str_radix(line.trim(), 16).unwrap());
        // Signals 32 and 33 are left out, because they may have been ignored before the tests
        // began.
        set.iter().collect()
    };
    (set("SigBlk:"), set("SigIgn:"), set("SigCgt:"))
}

fn spawn_of(like: &SpawnRequest, script: &str) -> SpawnRequest {
    SpawnRequest { path: "/bin/sh".into(), arguments: shell(script).arguments, ..like.clone() }
}

#[test]
fn spawn_inherits_or_sets_mask_and_dispositions() {
    play(|sys| {
        let ignored = SigSet::of(&[Signal::USR2, Signal::PIPE]);
        for signal in ignored.iter() {
            sys.sigaction(signal, Some(SigAction::IGNORE)).unwrap();
        }
        sys.sigaction(Signal::USR1, Some(SigAction::handler(|_, _| {}))).unwrap();
        let blocked = SigSet::of(&[Signal::TERM]);
        sys.sigprocmask(Some((SigmaskHow::Set, blocked))).unwrap();

        let (mask, ignores, catches) = signal_sets(sys, &SpawnRequest::default());
        assert_eq!(mask, blocked);
        assert_eq!(ignores, ignored);
        assert!(!catches.contains(Signal::USR1));

        let asked = SpawnRequest {
            mask: Some(SigSet::of(&[Signal::HUP])),
            defaults: SigSet::of(&[Signal::PIPE]),
            ..SpawnRequest::default()
        };
        let (mask, ignores, _) = signal_sets(sys, &asked);
        assert_eq!(mask, SigSet::of(&[Signal::HUP]));
        assert_eq!(ignores, SigSet::of(&[Signal::USR2]));
    });
}

#[test]
fn spawned_program_has_exactly_the_mapped_descriptors() {
    play(|sys| {
        let ((a, into_a), (b, into_b)) = (sys.pipe().unwrap(), sys.pipe().unwrap());
        sys.write(into_a, b"from a\n").unwrap();
        sys.write(into_b, b"from b\n").unwrap();
        // The descriptors exchange their numbers.
        let spawn = SpawnRequest { descriptors: vec![(a, b), (b, a)], ..SpawnRequest::default() };
        let script =
            format!("read x </proc/self/fd/{}; read y </proc/self/fd/{}; echo $x, $y", b.0, a.0);
        assert_eq!(output(sys, spawn_of(&spawn, &script)), "from a, from b\n");

        let spawn = SpawnRequest { descriptors: vec![(a, a)], ..SpawnRequest::default() };
        let script = format!("[ -e /proc/self/fd/{} ] && [ ! -e /proc/self/fd/{} ]", a.0, b.0);
        let child = sys.spawn(&spawn_of(&spawn, &script)).unwrap();
        assert_eq!(end(sys, child), WaitStatus::Exited(0), "a is open and b is not");

        let closed = SpawnRequest { descriptors: vec![(Fd(999), Fd(3))], ..shell("true") };
        assert_eq!(sys.spawn(&closed), Err(Errno::EBADF));
    });
}

#[test]
fn exec_replaces_the_program_or_returns_an_error() {
    play(|sys| {
        let child = sys.fork(|sys| {
            assert_eq!(sys.exec("/nowhere", &["x"]).err(), Some(Errno::ENOENT));
            let _ = sys.exec("/bin/sh", &["sh", "-c", "exit 42"]);
            1
        });
        assert_eq!(end(sys, child.unwrap()), WaitStatus::Exited(42));
    });
}

#[test]
fn threads_spawning_concurrently_each_reap_their_own_child() {
    play(|sys| {
        let right = Arc::new(AtomicU32::new(0));
        let threads = [0, 1, 2, 3].map(|n| {
            let right = Arc::clone(&right);
            sys.thread(move |sys| {
                for round in 0..30 {
                    let child = if round % 2 == 0 {
                        sys.spawn(&shell(&format!("exit {n}"))).unwrap()
                    } else {
                        sys.fork(move |_| n).unwrap()
                    };
                    assert_eq!(end(sys, child), WaitStatus::Exited(n));
                    right.fetch_add(1, Relaxed);
                }
            })
            .unwrap()
        });
        for thread in threads {
            sys.join(thread).unwrap();
        }
        assert_eq!(right.load(Relaxed), 4 * 30);
        assert_eq!(sys.wait(), Err(Errno::ECHILD));
    });
}

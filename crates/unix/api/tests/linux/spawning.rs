//! Tests of `spawn` and `exec`.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use rustix::process::{PidfdFlags, Signal as HostSignal, pidfd_open, pidfd_send_signal};
use tontine_unix::{
    Children, Errno, Fd, SigSet, SigmaskHow, Signal, SpawnRequest, Sys, WaitOptions, WaitStatus,
};

use crate::keeper::parent_of;
use crate::scene::{end, open_descriptors, run};

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
fn failed_spawn_leaves_no_child_and_no_signal() {
    run(|sys| {
        let before = open_descriptors();
        let ends = SigSet::of(&[Signal::CHLD]);
        sys.sigprocmask(Some((SigmaskHow::Block, ends))).unwrap();
        for path in ["/nowhere/at/all", "nul\0inside"] {
            for _ in 0..20 {
                let spawned = sys.spawn(&SpawnRequest::new(path, &["x"]));
                assert_eq!(spawned, Err(Errno::ENOENT), "{path}");
            }
        }
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

/// Returns the error if a child of `user` cannot exec `path`, or `None` if it can.
fn exec_error(sys: &dyn Sys, path: &str, user: u32) -> Option<Errno> {
    let path = path.to_owned();
    let child = sys.fork(move |sys| {
        if user != 0 {
            sys.setuid(user).unwrap();
        }
        let Err(errno) = sys.exec(&path, &["program"]);
        errno.raw()
    });
    end(sys, child.unwrap()).exited().filter(|status| *status != 0).map(Errno::from_raw)
}

/// Runs in a process of its own: a process that another test forks would hold the written files
/// open, and their exec would return ETXTBSY.
#[test]
fn exec_or_spawn_of_unusable_file_returns_specific_errno() {
    run(|sys| {
        let folder = tempfile::tempdir().unwrap();
        let permit = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        permit(folder.path(), 0o755);
        let file = |name: &str, text: &[u8], mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            permit(&path, mode);
            path.to_str().unwrap().to_owned()
        };
        let program = std::fs::read("/bin/true").unwrap();
        let empty = file("empty", b"", 0o755);
        let written = file("written", &program, 0o755);
        let private = file("private", &program, 0o700);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let writer = File::options().append(true).open(&written).unwrap();
        let missing = folder.path().join("nothing").to_str().unwrap().to_owned();
        let cases = [
            ("/".to_owned() + &"x".repeat(300), 0, Errno::ENAMETOOLONG),
            ("x".repeat(5000), 0, Errno::ENAMETOOLONG),
            (missing, 0, Errno::ENOENT),
            (String::new(), 0, Errno::ENOENT),
            ("/".to_owned(), 0, Errno::EACCES),
            (empty.clone() + "/x", 0, Errno::ENOTDIR),
            (file("text", b"#!/bin/cat\n", 0o644), 0, Errno::EACCES),
            (empty, 0, Errno::ENOEXEC),
            (file("script", b"#!/no/such/program\n", 0o755), 0, Errno::ENOENT),
            (link.to_str().unwrap().to_owned(), 0, Errno::ELOOP),
            (written.clone(), 0, Errno::ETXTBSY),
            (private, 54_321, Errno::EACCES),
        ];
        let is_first_user = sys.geteuid() == 0;
        for (path, user, errno) in cases {
            if user == 0 || is_first_user {
                assert_eq!(exec_error(sys, &path, user), Some(errno), "{path}");
            }
            if user == 0 {
                assert_eq!(sys.spawn(&SpawnRequest::new(&path, &["x"])), Err(errno), "{path}");
            }
        }
        drop(writer);
        assert_eq!(exec_error(sys, &written, 0), None, "the writer has closed the file");
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
    run(|sys| {
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
    run(|sys| {
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
    run(|sys| {
        let spawn =
            SpawnRequest::new("/bin/sh", &["sh", "-c", "echo \"$0 $1 ${PATH:+set}\"", "a b", "c"]);
        assert_eq!(output(sys, spawn), "a b c set\n");
    });
}

fn spawn_of(like: &SpawnRequest, script: &str) -> SpawnRequest {
    SpawnRequest { path: "/bin/sh".into(), arguments: shell(script).arguments, ..like.clone() }
}

#[test]
fn spawned_program_has_exactly_the_mapped_descriptors() {
    run(|sys| {
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
fn threads_spawning_concurrently_each_reap_their_own_child() {
    run(|sys| {
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

//! Helpers for tests of a command, whose path is `crate::PROGRAM`: the command, its output, its
//! processes, and waits for events. Each command's tests include this file and use a part of it.
#![allow(dead_code, reason = "each command's tests use a part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A timeout that no wait of a test reaches.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the command under test. SIGINT has its default effect: otherwise it could be ignored,
/// because a shell ignores it for its background jobs.
pub(crate) fn tontine() -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal=INT", crate::PROGRAM]);
    command
}

/// Converts output into text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Writes a program that every user may run. A shell writes it: if this process did, a child that
/// another test forks at that time would keep it open for writing, and Linux would not run it.
pub(crate) fn write_program(path: &Path, script: &str) {
    let written = Command::new("sh")
        .args(["-c", "printf %s \"$2\" > \"$1\"", "sh"])
        .args([path.as_os_str(), script.as_ref()])
        .status();
    assert!(written.expect("sh runs").success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Copies the command under test, so that every user may run it. As with [`write_program`], this
/// process does not write the copy.
pub(crate) fn copy_command(path: &Path) {
    let copied = Command::new("cp").args([Path::new(crate::PROGRAM), path]).status();
    assert!(copied.expect("cp runs").success());
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("executable");
}

/// Waits until `done` returns `true`.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < TIMEOUT, "expected that {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("the process still runs");
}

/// Returns the state of a process's first thread, as in `/proc`: `S` if it sleeps, `T` if it is
/// stopped.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Returns `true` if a process has a handler for a signal.
pub(crate) fn handles(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & 1 << (signal.as_raw() - 1) != 0
}

/// Waits until no process carries the test's mark, `TONTINE_TEST`, in its environment. No process
/// may survive a run. A process inside a container has a different environment and belongs to the
/// engine.
#[track_caller]
pub(crate) fn until_none_is_left(mark: &Path) {
    until("no process outlives its run", || marked(mark).is_empty());
}

/// Waits until an invocation of the run with this mark works. The run handles signals before it
/// starts one.
#[track_caller]
pub(crate) fn until_invocation(mark: &Path) {
    let is_invocation = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"__invocation")
    };
    until("an invocation runs", || marked(mark).iter().any(is_invocation));
}

/// Returns the processes that carry a test's mark, which the forks of a run inherit.
pub(crate) fn marked(mark: &Path) -> Vec<u32> {
    let marker = format!("TONTINE_TEST={}", mark.display());
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    })
    .collect()
}

/// Kills a run when this number of processes carries its mark, and returns the network namespaces
/// of these processes. A run that cannot have them ends by itself.
#[track_caller]
pub(crate) fn kill_at_process(mut run: Child, mark: &Path, count: usize) -> Vec<PathBuf> {
    let mut has_ended = false;
    until(&format!("the run has {count} processes"), || {
        has_ended = run.try_wait().expect("a child").is_some();
        has_ended || marked(mark).len() >= count
    });
    if has_ended {
        eprintln!("skipped: the run ended before it had {count} processes");
        return Vec::new();
    }
    let namespace = |pid| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let own = namespace(std::process::id());
    let pids = marked(mark).into_iter();
    let namespaces = pids.filter_map(namespace).filter(|one| own.as_ref() != Some(one)).collect();
    signal(&run, Signal::KILL);
    run.wait().expect("reaped");
    namespaces
}

/// Returns the network devices of this network namespace that have one of these names.
pub(crate) fn devices(names: &[&str]) -> Vec<String> {
    let is_there = |name: &&&str| Path::new("/sys/class/net").join(name).exists();
    names.iter().filter(is_there).map(ToString::to_string).collect()
}

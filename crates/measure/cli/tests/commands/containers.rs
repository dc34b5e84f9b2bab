//! Tests of the container rows from a user's point of view: with a real engine, without an engine,
//! and after a kill.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Signal, getuid};
use serde_json::Value;

use crate::common::{signal, text, tontine, until, until_none_is_left};
use crate::hosts::unprivileged;

/// Serialises the tests that use an engine, because each of them counts the objects that it leaves
/// there.
static ENGINE_TESTS: Mutex<()> = Mutex::new(());

fn cells(folder: &Path) -> Vec<Value> {
    let text = fs::read(folder.join("results.json")).expect("results.json");
    let results: Value = serde_json::from_slice(&text).expect("valid JSON");
    results["cells"].as_array().expect("cells").clone()
}

/// Runs one row of a quick run and returns its cells.
fn row(command: &mut Command, folder: &Path, name: &str) -> (Output, Vec<Value>) {
    let output = command.args(["--quick", "--invocations", "1", "--out"]);
    let output = output.arg(folder).arg(name).output().expect("tontine runs");
    let cells = cells(folder);
    assert!(!cells.is_empty(), "{}", text(&output.stderr));
    (output, cells)
}

/// Runs a row of containers, and checks that each cell has this status and a reason with these
/// words.
fn assert_unmeasured(mut command: Command, variant: &str, status: &str, words: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    // An unprivileged user writes there too.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("chmod");
    let (output, cells) =
        row(&mut command, &folder.path().join("out"), &format!("round-trip/{variant}"));
    assert_eq!(output.status.success(), status == "skipped", "{}", text(&output.stderr));
    for cell in cells {
        assert_eq!(cell["status"], status, "{cell}");
        let why = cell["why"].as_str().unwrap_or_default();
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
    }
}

/// Returns the output of the user's `docker`, or `None` if there is no engine.
fn docker(arguments: &[&str]) -> Option<String> {
    let output = Command::new("docker").args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| text(&output.stdout))
}

fn has_engine() -> bool {
    let found = docker(&["version", "--format", "{{.Server.Version}}"]).is_some();
    if !found {
        eprintln!("skipped: no Docker engine");
    }
    found
}

/// Returns the containers, networks, volumes and images whose names contain the pid of this run.
fn left_in_the_engine(pid: u32) -> Vec<String> {
    let listed = [
        docker(&["ps", "--all", "--filter", "label=tontine", "--format", "{{.Names}}"]),
        docker(&["network", "ls", "--filter", "label=tontine", "--format", "{{.Name}}"]),
        docker(&["volume", "ls", "--filter", "label=tontine", "--format", "{{.Name}}"]),
        docker(&["images", "--filter", "label=tontine", "--format", "{{.Repository}}:{{.Tag}}"]),
    ];
    let whose = format!("-{pid}-");
    let lines = listed.iter().flatten().flat_map(|listed| listed.lines());
    lines.filter(|name| name.contains(&whose)).map(str::to_owned).collect()
}

fn marks(pid: u32) -> Vec<PathBuf> {
    let whose = format!("-{pid}-");
    let entries = fs::read_dir("/var/tmp").expect("/var/tmp").flatten();
    let names = entries.map(|entry| entry.path());
    names
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("tontine-docker-") && name.contains(&whose)
        })
        .collect()
}

#[test]
#[ignore = "takes long: starts containers"]
fn real_engine_measures_two_containers_without_leftovers() {
    let _alone = ENGINE_TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_engine() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let samples = folder.path().join("samples");
    let run = tontine()
        // The timeout of --quick would be too short if the machine is compiling at the same time.
        .args(["--invocations", "2", "--out"])
        .arg(folder.path())
        .arg("--samples")
        .arg(&samples)
        .args(["round-trip/container-tcp", "round-trip/container-unix"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tontine runs");
    let pid = run.id();
    let output = run.wait_with_output().expect("the process ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    for cell in cells(folder.path()) {
        assert_eq!(cell["status"], "ok", "{cell}");
        assert_eq!(cell["invocations"].as_array().map(Vec::len), Some(2), "{cell}");
        assert!(cell["failures"].as_array().is_none_or(Vec::is_empty), "{cell}");
        assert!(cell["notes"].to_string().contains("Docker engine"), "{cell}");
        assert!(cell["estimate"].as_f64().is_some_and(|ns| ns > 100.0), "{cell}");
    }
    let files: Vec<_> = fs::read_dir(&samples).expect("samples").flatten().collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let text = fs::read_to_string(file.path()).expect("a file");
        let numbers = text.lines().filter(|line| !line.starts_with('#'));
        let count = numbers.map(str::parse::<f64>).filter(Result::is_ok).count();
        assert_eq!(count, 5_000, "{file:?}");
    }
    assert_eq!(left_in_the_engine(pid), Vec::<String>::new());
    assert_eq!(marks(pid), Vec::<PathBuf>::new());
}

#[test]
#[ignore = "takes long: starts containers"]
fn next_run_removes_leftovers_of_killed_run() {
    let _alone = ENGINE_TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_engine() {
        return;
    }
    for variant in ["container-tcp", "container-unix"] {
        leftovers_are_removed(variant);
    }
}

fn leftovers_are_removed(variant: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut run = tontine()
        .arg("--out")
        .arg(folder.path())
        .arg(format!("round-trip/{variant}"))
        .env("TONTINE_TEST", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("tontine runs");
    let pid = run.id();
    // Image, network or volume, and server exist, and the client is being started.
    let there = || left_in_the_engine(pid).iter().any(|name| name.ends_with("-server"));
    until("the server's container exists", there);
    signal(&run, Signal::KILL);
    run.wait().expect("reaped");
    until_none_is_left(folder.path());
    assert!(there(), "containers outlive the process that started them");
    assert_eq!(marks(pid).len(), 1);

    let (output, _) = row(&mut tontine(), folder.path(), "liveness-check/dummy");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(left_in_the_engine(pid), Vec::<String>::new());
    assert_eq!(marks(pid), Vec::<PathBuf>::new());
}

#[test]
fn missing_docker_skips_rows() {
    for variant in ["container-tcp", "container-unix"] {
        let mut command = tontine();
        command.env("PATH", "/nowhere");
        let why = "no Docker engine (`docker` is not installed)";
        assert_unmeasured(command, variant, "skipped", &[why]);
    }
}

/// Returns `true` if the command-line tool exists, which is sufficient for some tests.
fn has_tool() -> bool {
    let found = Command::new("docker").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: `docker` is not installed");
    }
    found
}

/// Returns a command whose engine is expected at this socket.
fn with_engine(mut command: Command, socket: &Path) -> Command {
    command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    command
}

#[test]
#[ignore = "takes long: waits for a timeout"]
fn silent_engine_skips_row() {
    if !has_tool() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("engine");
    // The socket listens, so connections succeed, but no process accepts them.
    let _deaf = UnixListener::bind(&socket).expect("a socket");
    let why = "did not answer `docker version` within 5 s";
    assert_unmeasured(with_engine(tontine(), &socket), "container-tcp", "skipped", &[why]);
}

#[test]
fn unusable_engine_skips_or_fails_row_and_names_reason() {
    if !has_tool() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = |name: &str| folder.path().join(name);
    drop(UnixListener::bind(socket("dead")).expect("a socket"));
    for name in ["dead", "never"] {
        let command = with_engine(tontine(), &socket(name));
        assert_unmeasured(command, "container-tcp", "skipped", &["no Docker engine: "]);
    }
    let _closed = UnixListener::bind(socket("forbidden")).expect("a socket");
    let shut = if getuid().is_root() { 0o600 } else { 0o000 };
    let mode = fs::Permissions::from_mode(shut);
    fs::set_permissions(socket("forbidden"), mode).expect("chmod");
    let command = with_engine(unprivileged(folder.path()), &socket("forbidden"));
    let words = ["permission denied", "group `docker`"];
    assert_unmeasured(command, "container-tcp", "skipped", &words);
    let engine = UnixListener::bind(socket("strange")).expect("a socket");
    thread::spawn(move || {
        for connection in engine.incoming() {
            let mut connection = connection.expect("a connection");
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"42 apples\n");
            let _ = connection.shutdown(Shutdown::Both);
        }
    });
    let command = with_engine(tontine(), &socket("strange"));
    assert_unmeasured(command, "container-tcp", "failed", &["docker version: ", "apples"]);
}

#[test]
#[ignore = "takes long: starts measurements"]
fn container_client_gives_up_after_timeout() {
    // No machine has this address, and a client without a limit would try for ten seconds.
    let order = r#"{"role":{"TcpClient":"192.0.2.1"},"rounds":1,"warm_up":0,"cpu":0,"within":1}"#;
    let ended = tontine().args(["__container", order]).output().expect("tontine runs");
    assert_eq!(ended.status.code(), Some(124), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("gave up after 1 s"), "{}", text(&ended.stderr));
    assert!(ended.stdout.is_empty());
}

//! Tests of `tontine bridge` from a user's point of view.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{text, tontine};

/// A timeout that no operation of a test reaches.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A folder with a configuration.
struct ConfigFile {
    folder: TempDir,
    path: PathBuf,
}

impl ConfigFile {
    fn new(contents: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bridge.toml");
        fs::write(&path, contents).expect("written");
        Self { folder, path }
    }

    /// Returns a gateway without peers, whose status socket is in the folder.
    fn alone() -> Self {
        let file = Self::new("");
        let status = file.status();
        let contents = format!("name = \"hostA\"\nstatus = {status:?}\n");
        fs::write(&file.path, contents).expect("written");
        file
    }

    fn status(&self) -> PathBuf {
        self.folder.path().join("status")
    }

    fn bridge(&self, arguments: &[&str]) -> Command {
        let mut command = tontine();
        command.arg("bridge").args(arguments).arg("--config").arg(&self.path);
        command.env_remove("TONTINE_LOG").env_remove("JOURNAL_STREAM").env_remove("NOTIFY_SOCKET");
        command
    }

    /// Runs a command that ends by itself.
    fn run(&self, arguments: &[&str]) -> Output {
        self.bridge(arguments).output().expect("tontine runs")
    }
}

/// A running process, which is killed when the value is dropped.
struct Running(Child);

impl Running {
    /// Starts a gateway, and waits until it runs.
    fn gateway(file: &ConfigFile) -> Self {
        let mut command = file.bridge(&[]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("tontine runs");
        let mut log = BufReader::new(child.stderr.take().expect("piped"));
        let mut line = String::new();
        let began = Instant::now();
        while !line.contains(" runs: ") {
            line.clear();
            let length = log.read_line(&mut line).expect("the log");
            assert!(length > 0 && began.elapsed() < TIMEOUT, "the gateway does not start");
        }
        // The thread ends with the gateway.
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self(child)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends a signal, and returns the exit status.
    fn end_by(mut self, signal: Signal) -> Option<i32> {
        kill_process(self.pid(), signal).expect("the process runs");
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[track_caller]
fn assert_fails(output: &Output, status: i32, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    for word in words {
        assert!(error.contains(word), "expected {word:?} in {error}");
    }
    assert!(error.lines().all(|line| line.starts_with("tontine: ")), "{error}");
}

fn succeed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn check_reports_every_mistake() {
    let file =
        ConfigFile::new("name = \"host A\"\nlisten = \"here\"\n[imports]\n\"b/x\" = \"@x\"\n");
    let path = file.path.display();
    for arguments in [&["--check"][..], &[]] {
        let output = file.run(arguments);
        let mistakes = [
            format!("tontine: {path}:1:8: name: expected "),
            format!("tontine: {path}:2:10: listen: expected an IP address"),
            format!(
                "tontine: {path}:4:1: imports.\"b/x\": expected a host of [peers], found \"b\""
            ),
        ];
        assert_fails(&output, 2, &mistakes.each_ref().map(String::as_str));
        assert_eq!(text(&output.stderr).lines().count(), 3);
    }
}

#[test]
fn check_of_valid_file_prints_summary() {
    let file = ConfigFile::new(
        "name = \"hostA\"\nrealm = \"plant\"\nlisten = \"127.0.0.1:7447\"\n[peers.b]\n[exports]\n\
         x = \"@x\"\ny = \"@y\"",
    );
    let path = file.path.display();
    let summary = "valid: host hostA of realm plant with 1 peer, 2 exports and 0 imports";
    assert_eq!(succeed(&file.run(&["--check"])), format!("{path}: {summary}\n"));

    let file = ConfigFile::new("name = \"hostA\"");
    let output = file.run(&["--check"]);
    succeed(&output);
    let warning = "bridge.toml: warning: neither [exports] nor [imports] names a mailbox";
    assert!(text(&output.stderr).contains(warning), "{}", text(&output.stderr));
}

#[test]
fn missing_and_unreadable_configurations_are_refused() {
    let file = ConfigFile::new("");
    fs::remove_file(&file.path).expect("removed");
    assert_fails(&file.run(&["--check"]), 2, &["cannot read ", "No such file"]);
    fs::create_dir(&file.path).expect("created");
    assert_fails(&file.run(&[]), 2, &["cannot read ", "Is a directory"]);
    let output = tontine().arg("bridge").output().expect("tontine runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--config <FILE>"), "{}", text(&output.stderr));
}

#[test]
fn wrong_log_level_is_refused() {
    let file = ConfigFile::alone();
    let expected = "--log: expected off, error, warn, info, debug or trace; found \"loud\"";
    assert_fails(&file.run(&["--log", "loud"]), 2, &[expected]);
    let output = file.bridge(&[]).env("TONTINE_LOG", "3").output().expect("tontine runs");
    assert_fails(&output, 2, &["TONTINE_LOG: expected off, error, warn"]);
}

#[test]
fn missing_folder_of_a_socket_is_named() {
    let contents = "name = \"hostA\"\nstatus = \"/no/such/folder/status\"";
    let output = ConfigFile::new(contents).run(&["--log", "off"]);
    let words = "/no/such/folder/status needs the folder /no/such/folder, which does not exist";
    assert_fails(&output, 1, &[words]);
}

#[test]
fn address_beyond_loopback_needs_plaintext() {
    let contents = "name = \"hostA\"\nlisten = \"0.0.0.0:7447\"\n[peers.b]";
    let output = ConfigFile::new(contents).run(&[]);
    assert_fails(&output, 1, &["cannot start the carrier TCP: 0.0.0.0:7447", "--plaintext"]);
}

#[test]
fn missing_zenoh_program_says_how_to_build_it() {
    let file = ConfigFile::alone();
    let mut command = file.bridge(&["--carrier", "zenoh"]);
    let output = command.env("PATH", file.folder.path()).output().expect("tontine runs");
    let words = ["needs the program tontine-bridge-zenoh", "cargo install --path crates/zenoh"];
    assert_fails(&output, 1, &words);
}

#[test]
fn zenoh_program_gets_the_arguments() {
    let file = ConfigFile::alone();
    let program = file.folder.path().join("tontine-bridge-zenoh");
    fs::write(&program, "#!/bin/sh\necho \"$@\"\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    let mut command = file.bridge(&["--carrier", "zenoh", "--plaintext", "--log", "debug"]);
    let output = command.env("PATH", file.folder.path()).output().expect("tontine runs");
    let arguments = format!("--config {} --plaintext --log debug\n", file.path.display());
    assert_eq!(succeed(&output), arguments);
}

#[test]
fn status_without_a_gateway_is_an_error() {
    let file = ConfigFile::alone();
    let socket = file.status();
    let words = format!("no gateway listens at {}: No such file", socket.display());
    let mut command = tontine();
    command.args(["bridge", "status", "--socket"]).arg(&socket);
    assert_fails(&command.output().expect("tontine runs"), 1, &[&words, "tontine bridge --config"]);
    let mut command = tontine();
    command.args(["bridge", "status", "--config"]).arg(&file.path);
    assert_fails(&command.output().expect("tontine runs"), 1, &[&words]);
}

fn status(file: &ConfigFile, more: &[&str]) -> Output {
    let mut command = tontine();
    command.args(["bridge", "status", "--config"]).arg(&file.path).args(more);
    command.output().expect("tontine runs")
}

#[test]
fn gateway_shows_its_status_until_signalled() {
    let file = ConfigFile::alone();
    for signal in [Signal::TERM, Signal::INT] {
        let gateway = Running::gateway(&file);
        let words = succeed(&status(&file, &[]));
        assert!(words.starts_with("hostA in realm default, over "), "{words}");
        assert!(words.contains("\nNo peers: ") && words.contains("\nNo lanes: "), "{words}");
        let json = succeed(&status(&file, &["--format", "json"]));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["pid"], gateway.pid().as_raw_nonzero().get());
        assert_eq!(gateway.end_by(signal), Some(0));
        assert!(!file.status().exists());
    }
}

#[test]
fn second_gateway_is_refused_and_killed_one_replaced() {
    let file = ConfigFile::alone();
    let first = Running::gateway(&file);
    let pid = first.pid().as_raw_nonzero();
    let words = format!("the gateway with process id {pid} has {}", file.status().display());
    assert_fails(&file.run(&["--log", "off"]), 1, &[&words]);
    assert_eq!(first.end_by(Signal::KILL), None);
    assert!(file.status().exists());
    let second = Running::gateway(&file);
    assert!(succeed(&status(&file, &[])).contains("hostA"));
    assert_eq!(second.end_by(Signal::TERM), Some(0));
}

#[test]
fn service_manager_is_notified() {
    let file = ConfigFile::alone();
    let path = file.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut command = file.bridge(&["--log", "error"]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "30000000");
    let gateway = Running(command.spawn().expect("tontine runs"));
    let message = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).expect("a message");
        text(&bytes[..length])
    };
    assert_eq!(message(), "READY=1");
    assert!(file.status().exists());
    assert_eq!(message(), "WATCHDOG=1");
    kill_process(gateway.pid(), Signal::TERM).expect("the process runs");
    while message() != "STOPPING=1" {}
    drop(gateway);
}

/// Returns a port of loopback that is free now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("an address").port()
}

/// Returns two gateways: programs send to `to_b` on the first host, and `jobs` on the second host
/// receives.
fn hosts() -> (ConfigFile, ConfigFile, PathBuf, PathBuf) {
    let port = free_port();
    let (a, b) = (ConfigFile::new(""), ConfigFile::new(""));
    let to_b = a.folder.path().join("to-b");
    let jobs = b.folder.path().join("jobs");
    let (status_a, status_b) = (a.status(), b.status());
    let contents = format!(
        "name = \"hostA\"\nstatus = {status_a:?}\nlisten = \"127.0.0.1:{port}\"\n[peers.hostB]\n\
         [imports]\n\"hostB/jobs\" = {to_b:?}\n"
    );
    fs::write(&a.path, contents).expect("written");
    let contents = format!(
        "name = \"hostB\"\nstatus = {status_b:?}\n[peers.hostA]\n\
         connect = \"127.0.0.1:{port}\"\n[exports]\njobs = {jobs:?}\n"
    );
    fs::write(&b.path, contents).expect("written");
    (a, b, to_b, jobs)
}

fn send(to: &Path, more: &[&str], lines: &str) -> Child {
    let mut command = tontine();
    command.arg("send").args(more).arg(to).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = command.spawn().expect("tontine runs");
    sender.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("written");
    sender
}

fn receive(at: &Path, count: &str) -> Child {
    let mut command = tontine();
    command.args(["recv", "--timeout", "60", "--count", count]).arg(at);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tontine runs")
}

#[test]
fn messages_cross_two_gateways() {
    let (a, b, to_b, jobs) = hosts();
    let _gateways = (Running::gateway(&a), Running::gateway(&b));
    let receiver = receive(&jobs, "2");
    let sender = send(&to_b, &["--wait"], "hello\nworld\n");
    assert_eq!(succeed(&receiver.wait_with_output().expect("it ends")), "hello\nworld\n");
    succeed(&sender.wait_with_output().expect("it ends"));
    let began = Instant::now();
    loop {
        // The first ping may still be unanswered.
        let words = succeed(&status(&a, &[]));
        if words.contains("hostB") && words.contains("connected") {
            break;
        }
        assert!(began.elapsed() < TIMEOUT, "{words}");
    }
}

#[test]
fn killed_gateways_lose_no_message() {
    let (a, b, to_b, jobs) = hosts();
    let gateways = (Running::gateway(&a), Running::gateway(&b));
    let mut receiver = tontine();
    let receiver = receiver.args(["recv", "--timeout", "60"]).arg(&jobs).stdout(Stdio::piped());
    let mut receiver = Running(receiver.spawn().expect("tontine runs"));
    let lines = BufReader::new(receiver.0.stdout.take().expect("piped"));
    let mut lines = lines.lines().map(|line| line.expect("a line"));

    let mut command = tontine();
    command.args(["send", "--wait"]).arg(&to_b).stdin(Stdio::piped());
    let mut sender = Running(command.spawn().expect("tontine runs"));
    let mut input = sender.0.stdin.take().expect("piped");
    input.write_all(b"1\n").expect("written");
    assert_eq!(lines.next().as_deref(), Some("1"));

    assert_eq!(gateways.0.end_by(Signal::KILL), None);
    assert_eq!(gateways.1.end_by(Signal::KILL), None);
    input.write_all(b"2\n3\n").expect("written");
    drop(input);
    let _gateways = (Running::gateway(&a), Running::gateway(&b));
    // The first message is repeated if its acknowledgement was lost with the gateways.
    let rest: Vec<String> = lines.by_ref().skip_while(|line| line == "1").take(2).collect();
    assert_eq!(rest, ["2", "3"]);
    assert_eq!(sender.0.wait().expect("it ends").code(), Some(0));
}

#[test]
fn waiting_sender_finds_late_receiver() {
    let (a, b, to_b, jobs) = hosts();
    let _gateways = (Running::gateway(&a), Running::gateway(&b));
    let sender = send(&to_b, &["--wait"], "1\n2\n3\n");
    // The gateways refuse the sender meanwhile.
    thread::sleep(Duration::from_millis(500));
    let receiver = receive(&jobs, "3");
    assert_eq!(succeed(&receiver.wait_with_output().expect("it ends")), "1\n2\n3\n");
    succeed(&sender.wait_with_output().expect("it ends"));

    // The receiver has ended. The message names that, or the timeout if the gateways are slow.
    let sender = send(&to_b, &["--wait", "--timeout", "0.5"], "4\n");
    assert_eq!(sender.wait_with_output().expect("it ends").status.code(), Some(1));
}

#[test]
fn systemd_accepts_the_unit() {
    let output = tontine().args(["bridge", "unit"]).output().expect("tontine runs");
    let unit = succeed(&output);
    for setting in ["Type=notify", "User=tontine", "RuntimeDirectory=tontine", "Restart=always"] {
        assert!(unit.contains(&format!("\n{setting}\n")), "{unit}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tontine-bridge.service");
    fs::write(&path, &unit).expect("written");
    let mut command = Command::new("systemd-analyze");
    let verified = match command.args(["verify", "--man=no"]).arg(&path).output() {
        Ok(verified) => verified,
        Err(error) => {
            eprintln!("skipped: systemd-analyze: {error}");
            return;
        }
    };
    // Other units of the machine may have mistakes of their own.
    let words = text(&verified.stderr);
    assert!(!words.contains("tontine-bridge.service"), "{words}");
}

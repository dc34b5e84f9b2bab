//! Tests of `tontine bridge` from a user's point of view.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, geteuid};
use tempfile::TempDir;

use crate::common::{TIMEOUT, signal, text, tontine, until, write_program};

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
        while !line.contains(" runs: ") {
            line.clear();
            assert!(log.read_line(&mut line).expect("the log") > 0, "the gateway does not start");
        }
        // The thread ends with the gateway.
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self(child)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Sends a signal, and returns the exit status.
    fn end_by(mut self, by: Signal) -> Option<i32> {
        signal(&self.0, by);
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
    let file = ConfigFile::new(contents);
    let output = file.run(&[]);
    assert_fails(&output, 1, &["cannot start the carrier TCP: 0.0.0.0:7447", "--plaintext"]);
    let words = "bridge.toml: listen: expected an address of loopback, found 0.0.0.0; ";
    assert_fails(&file.run(&["--check"]), 2, &[words, "--plaintext"]);
    succeed(&file.run(&["--check", "--plaintext"]));
    let contents = "name = \"hostA\"\n[peers.b]\nconnect = \"192.0.2.1:7447\"";
    let output = ConfigFile::new(contents).run(&["--check"]);
    let words = "bridge.toml: peers.b.connect: expected an address of loopback, found 192.0.2.1; ";
    assert_fails(&output, 2, &[words, "--plaintext"]);
}

#[test]
fn missing_zenoh_program_says_how_to_build_it() {
    let file = ConfigFile::alone();
    let mut command = file.bridge(&["--carrier", "zenoh"]);
    let output = command.env("PATH", file.folder.path()).output().expect("tontine runs");
    let words = ["needs the program tontine-bridge-zenoh", "cargo install --locked --path "];
    assert_fails(&output, 1, &words);
}

#[test]
fn zenoh_program_gets_the_arguments() {
    let file = ConfigFile::alone();
    let program = file.folder.path().join("tontine-bridge-zenoh");
    write_program(&program, "#!/bin/sh\necho \"$@\"\n");
    for more in [&["--plaintext", "--log", "debug"][..], &["--check"]] {
        let mut command = file.bridge(&[&["--carrier", "zenoh"], more].concat());
        let output = command.env("PATH", file.folder.path()).output().expect("tontine runs");
        let arguments = format!("--config {} {}\n", file.path.display(), more.join(" "));
        assert_eq!(succeed(&output), arguments);
    }
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

/// Waits until the gateway's status contains a word.
fn until_shown(file: &ConfigFile, word: &str) {
    until(&format!("the status contains {word}"), || succeed(&status(file, &[])).contains(word));
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
    signal(&gateway.0, Signal::TERM);
    while message() != "STOPPING=1" {}
    drop(gateway);
}

/// Returns an address of loopback that no other process and no other test uses.
fn own_address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(7447);
    let pid = std::process::id();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    ([127, 1 + (pid >> 16) as u8, (pid >> 8) as u8, pid as u8], port).into()
}

/// Returns two gateways: programs send to `to_b` on the first host, and `jobs` on the second host
/// receives.
fn hosts() -> (ConfigFile, ConfigFile, PathBuf, PathBuf) {
    let address = own_address();
    let (a, b) = (ConfigFile::new(""), ConfigFile::new(""));
    let to_b = a.folder.path().join("to-b");
    let jobs = b.folder.path().join("jobs");
    let (status_a, status_b) = (a.status(), b.status());
    let contents = format!(
        "name = \"hostA\"\nstatus = {status_a:?}\nlisten = \"{address}\"\n[peers.hostB]\n\
         [imports]\n\"hostB/jobs\" = {to_b:?}\n"
    );
    fs::write(&a.path, contents).expect("written");
    let contents = format!(
        "name = \"hostB\"\nstatus = {status_b:?}\n[peers.hostA]\n\
         connect = \"{address}\"\n[exports]\njobs = {jobs:?}\n"
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
    // The first ping may still be unanswered.
    until_shown(&a, "connected");
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
    // The gateway of the receiver waits for it, and does not answer the sender's meanwhile.
    until("a lane is shown", || !succeed(&status(&a, &[])).contains("No lanes"));
    let receiver = receive(&jobs, "3");
    assert_eq!(succeed(&receiver.wait_with_output().expect("it ends")), "1\n2\n3\n");
    succeed(&sender.wait_with_output().expect("it ends"));
}

#[test]
fn timeout_behind_gateway_claims_no_live_receiver() {
    let (a, b, to_b, _jobs) = hosts();
    let gateways = (Running::gateway(&a), Running::gateway(&b));
    until_shown(&a, "connected");
    let pid = gateways.0.pid().as_raw_nonzero();
    let owner = format!("pid {pid} (uid {}) owns the mailbox", geteuid().as_raw());
    let output = sent_in_vain(&to_b, &owner);
    assert_fails(&output, 1, &["not acknowledged everything within ", &owner, "a gateway"]);
    assert!(!text(&output.stderr).contains("alive"), "{}", text(&output.stderr));

    gateways.1.end_by(Signal::KILL);
    until_shown(&a, "suspected");
    let words = "its host does not answer the gateway (pid ";
    assert_fails(&sent_in_vain(&to_b, words), 1, &[words]);
}

/// Returns the output of a sender whose timeout ends. The timeout grows until the gateway had the
/// time to answer, so that the error contains `words`.
fn sent_in_vain(to: &Path, words: &str) -> Output {
    let mut timeouts = ["0.2", "1", "5", "30"].into_iter();
    loop {
        let timeout = timeouts.next().unwrap_or_else(|| panic!("expected {words:?} at some time"));
        let sender = send(to, &["--wait", "--timeout", timeout], "1\n");
        let output = sender.wait_with_output().expect("it ends");
        if text(&output.stderr).contains(words) {
            return output;
        }
    }
}

/// Returns gateways as [`hosts`] does, but the second host exports another mailbox.
fn hosts_without_export() -> (ConfigFile, ConfigFile, PathBuf) {
    let (a, b, to_b, _jobs) = hosts();
    let contents = fs::read_to_string(&b.path).expect("read");
    fs::write(&b.path, contents.replace("\njobs = ", "\nothers = ")).expect("written");
    (a, b, to_b)
}

/// Regression: with `--wait`, the sender tried again without end and without a word.
#[test]
fn sender_to_missing_export_fails_at_once() {
    for more in [&["--wait"][..], &[], &["--unread"]] {
        let (a, b, to_b) = hosts_without_export();
        let _gateway = Running::gateway(&a);
        let mut command = tontine();
        command.arg("send").args(more).arg(&to_b).stdin(Stdio::piped());
        let mut sender =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        let mut input = sender.stdin.take().expect("piped");
        input.write_all(b"1\n2\n").expect("written");
        until("the sender reads", || ioctl_fionread(&input).expect("a pipe") == 0);
        let _gateway = Running::gateway(&b);
        let output = sender.wait_with_output().expect("it ends");
        drop(input);
        let words = text(&output.stderr);
        let who = format!(
            "no receiver runs behind {}, or the other host has no export of that name; ",
            to_b.display()
        );
        if more == ["--unread"] {
            assert_fails(&output, 1, &[&who, "see standard output for 2 messages"]);
            assert_eq!(text(&output.stdout), "1\n2\n");
        } else {
            assert_fails(&output, 1, &[&who, "no receiver got 2 messages", "add it to [exports]"]);
        }
        assert!(!words.contains("--wait"), "{words}");
    }
}

/// Checks that the sender reports the refusal although its standard input stays open.
#[test]
fn idle_sender_to_missing_export_fails() {
    let (a, b, to_b) = hosts_without_export();
    let _gateways = (Running::gateway(&a), Running::gateway(&b));
    let mut command = tontine();
    command.args(["send", "--wait"]).arg(&to_b).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = Running(command.spawn().expect("tontine runs"));
    let mut words = String::new();
    let stderr = sender.0.stderr.as_mut().expect("piped");
    stderr.read_to_string(&mut words).expect("read");
    assert!(words.contains("the rest of standard input was not sent; start the"), "{words}");
    assert_eq!(sender.0.wait().expect("it ends").code(), Some(1));
}

#[test]
fn unit_of_program_in_hidden_folder_warns() {
    // The folder lies in /tmp, which the unit hides.
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let program = folder.path().join("tontine");
    // Another process makes the copy, so that no child of this one keeps it open for writing.
    let copied = Command::new("cp").arg(crate::PROGRAM).arg(&program).status();
    assert!(copied.expect("cp runs").success());
    let output = Command::new(&program).args(["bridge", "unit"]).output().expect("tontine runs");
    assert!(succeed(&output).contains(&format!("\nExecStart={} bridge ", program.display())));
    let words = text(&output.stderr);
    assert!(
        words.contains("the unit hides /tmp") && words.contains("--root /usr/local"),
        "{words}"
    );
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

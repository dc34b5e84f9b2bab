//! Tests of `tontine recv` and `tontine send` from a user's point of view.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{TIMEOUT, copy_command, signal, state, text, tontine, until};

/// A running `tontine`, which is killed when the value is dropped.
pub(crate) struct Run(Option<Child>);

impl Run {
    pub(crate) fn new(arguments: &[&str]) -> Self {
        Self::of(tontine().args(arguments))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        Self::with_stdin(command, Stdio::piped())
    }

    pub(crate) fn with_stdin(command: &mut Command, stdin: impl Into<Stdio>) -> Self {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().expect("tontine runs")))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("not finished")
    }

    pub(crate) fn signal(&mut self, by: Signal) {
        signal(self.child(), by);
    }

    /// Stops the process, and returns when it has stopped.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        let pid = self.child().id();
        until("the process stops", || state(pid) == Some('T'));
    }

    /// Waits until the process sleeps, as it does when it has nothing left to do.
    fn until_asleep(&mut self) {
        let pid = self.child().id();
        until("the process sleeps", || state(pid) == Some('S'));
    }

    /// Waits until a sender has read all of its open standard input and sleeps.
    pub(crate) fn until_sent(&mut self) {
        let stdin = self.child().stdin.as_ref().expect("open");
        until("the input is read", || ioctl_fionread(stdin).expect("a pipe") == 0);
        self.until_asleep();
    }

    pub(crate) fn write(&mut self, text: &[u8]) {
        let stdin = self.child().stdin.as_mut().expect("piped");
        match stdin.write_all(text).and_then(|()| stdin.flush()) {
            // The command has already ended, and its status shows the reason.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            done => done.expect("written"),
        }
    }

    fn stdin(&mut self) -> ChildStdin {
        self.child().stdin.take().expect("piped")
    }

    /// Reads `count` bytes of the output.
    pub(crate) fn read(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        self.child().stdout.as_mut().expect("piped").read_exact(&mut bytes).expect("read");
        text(&bytes)
    }

    /// Waits until the command ends.
    pub(crate) fn end(mut self) -> Output {
        drop(self.child().stdin.take());
        let child = self.0.take().expect("not finished");
        let pid = Pid::from_child(&child);
        let (sender_end, receiver_end) = std::sync::mpsc::channel();
        // A thread reads the output during the wait, so that a full pipe does not block the
        // command.
        let waiting = thread::spawn(move || sender_end.send(child.wait_with_output()));
        let output = receiver_end.recv_timeout(TIMEOUT).unwrap_or_else(|_| {
            let _ = kill_process(pid, Signal::KILL);
            panic!("the process hangs")
        });
        waiting.join().expect("the thread ends").expect("sent");
        output.expect("the output")
    }

    pub(crate) fn succeed(self) -> String {
        let output = self.end();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Waits until the command ends with status 1, and returns the error message.
    pub(crate) fn fail(self) -> String {
        let output = self.end();
        let words = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.starts_with("tontine: "), "{words}");
        words
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A directory, and a path for a mailbox in it.
pub(crate) struct TestAddress(pub(crate) tempfile::TempDir, pub(crate) String);

pub(crate) fn test_address() -> TestAddress {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("box").display().to_string();
    TestAddress(folder, path)
}

/// Starts a receiver, and returns when it listens.
pub(crate) fn receiver(path: &str, more: &[&str]) -> Run {
    let receiver = Run::new(&[&["recv", path], more].concat());
    until("the receiver listens", || Path::new(path).exists());
    receiver
}

pub(crate) fn send(path: &str, input: impl AsRef<[u8]>, more: &[&str]) -> Run {
    let mut sender = Run::new(&[&["send", path], more].concat());
    sender.write(input.as_ref());
    drop(sender.stdin());
    sender
}

#[test]
fn lines_arrive_whole_and_in_order() {
    let TestAddress(_folder, path) = test_address();
    let receiver = receiver(&path, &["--count", "5"]);
    assert_eq!(send(&path, "one\n\n two \nlast, without an end", &["--wait"]).succeed(), "");
    assert_eq!(send(&path, "another's\n", &[]).succeed(), "");
    assert_eq!(receiver.succeed(), "one\n\n two \nlast, without an end\nanother's\n");
    assert!(!Path::new(&path).exists(), "the socket is removed");
}

#[test]
fn null_option_allows_newlines_in_messages() {
    let TestAddress(_folder, path) = test_address();
    let receiver = receiver(&path, &["--null", "--count", "2"]);
    send(&path, "a\nb\0c\n\0", &["-0", "--wait"]).succeed();
    assert_eq!(receiver.succeed(), "a\nb\0c\n\0");
}

/// Checks that lines are printed in the order in which they were written, by turns, to two senders,
/// although the receiver is stopped meanwhile.
#[test]
fn recv_prints_lines_of_two_senders_in_causal_order() {
    let TestAddress(_folder, path) = test_address();
    let causal = Run::new(&["recv", "--order", "causal", "--timeout", "0", &path]).end();
    if !causal.status.success() {
        let words = text(&causal.stderr);
        assert!(words.contains("clock source"), "{words}");
        return println!("skipped: the clock source is not the processor's counter");
    }
    for (options, is_causal) in [(&[][..], true), (&["--order", "by-sender"], false)] {
        let TestAddress(_folder, path) = test_address();
        let mut receiver = receiver(&path, options);
        receiver.stop();
        let mut senders = [(); 2].map(|()| Run::new(&["send", "--wait", &path]));
        let mut expected = String::new();
        for number in 10..30 {
            let line = format!("{number}\n");
            let sender = &mut senders[number % 2];
            sender.write(line.as_bytes());
            sender.until_sent();
            expected += &line;
        }
        receiver.signal(Signal::CONT);
        let printed = receiver.read(expected.len());
        assert_eq!(printed == expected, is_causal, "{options:?}: {printed}");
    }
}

#[test]
fn abstract_name_needs_no_directory() {
    let name = format!("@tontine-cli-{}", std::process::id());
    let sender = send(&name, "hello\n", &["--wait"]);
    assert_eq!(Run::new(&["recv", "--count", "1", &name]).succeed(), "hello\n");
    sender.succeed();
}

#[test]
fn successor_receives_messages_of_killed_receiver() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let mut sender = Run::new(&["send", "--wait", &path]);
    sender.write(b"1\n2\n");
    assert_eq!(first.read(4), "1\n2\n");
    first.stop();
    sender.write(b"3\n4\n");
    sender.until_sent();
    first.signal(Signal::KILL);
    assert_eq!(text(&first.end().stdout), "");
    // The sender hands over although its standard input is idle and still open. The first line was
    // acknowledged before the second was printed; the second line may or may not be acknowledged.
    let mut second = Run::new(&["recv", &path]);
    let mut inherited = String::new();
    while !inherited.ends_with("4\n") {
        inherited += &second.read(2);
    }
    second.signal(Signal::TERM);
    assert_eq!(text(&second.end().stdout), "");
    assert!(inherited == "3\n4\n" || inherited == "2\n3\n4\n", "{inherited:?}");
    // This receiver closed its mailbox, so the next receiver gets the following messages.
    sender.write(b"5\n");
    let third = Run::new(&["recv", "--count", "1", &path]);
    assert_eq!(third.succeed(), "5\n");
    assert_eq!(sender.succeed(), "");
}

#[test]
fn recv_wait_takes_over_after_owner_ends() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let second = Run::new(&["recv", "--wait", "--count", "2", &path]);
    first.stop();
    let mut sender = Run::new(&["send", "--wait", &path]);
    sender.write(b"1\n2\n");
    sender.until_sent();
    first.signal(Signal::KILL);
    assert_eq!(second.succeed(), "1\n2\n");
    sender.succeed();
}

#[test]
fn send_unread_prints_unread_messages_with_status_1() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let pid = first.child().id();
    let mut sender = Run::new(&["send", "--unread", &path]);
    sender.write(b"1\n");
    assert_eq!(first.read(2), "1\n");
    first.stop();
    sender.write(b"2\n3\n");
    sender.until_sent();
    drop(sender.stdin());
    first.signal(Signal::KILL);
    let output = sender.end();
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains(&format!("pid {pid} ")) && words.contains("died"), "{words}");
    let left = text(&output.stdout);
    // The first line was printed, and may or may not have been acknowledged before the stop.
    assert!(left == "2\n3\n" || left == "1\n2\n3\n", "{left:?}");
}

#[test]
fn send_reports_dead_receiver_without_options() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let mut sender = Run::new(&["send", &path]);
    sender.write(b"1\n2\n");
    assert_eq!(first.read(4), "1\n2\n");
    first.signal(Signal::KILL);
    first.end();
    // The sender has already ended if the second line was printed but not acknowledged.
    sender.write(b"3\n");
    let words = sender_failed(&mut sender);
    assert!(words.contains("died") && words.contains("--unread"), "{words}");
    assert!(send(&path, "2\n", &[]).fail().contains("no process listens at"));
}

/// Regression: `send` ended with status 0 once the messages were in shared memory, and they were
/// lost with the receiver.
#[test]
fn send_fails_with_count_if_stopped_receiver_is_killed() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let pid = first.child().id();
    first.stop();
    let mut sender = Run::new(&["send", &path]);
    sender.write(b"1\n2\n3\n");
    sender.until_sent();
    drop(sender.stdin());
    first.signal(Signal::KILL);
    let words = sender.fail();
    assert!(words.contains("did not acknowledge 3 messages"), "{words}");
    assert!(words.contains(&format!("pid {pid} ")) && words.contains("--wait"), "{words}");
}

#[test]
fn send_timeout_ends_wait_for_stopped_receiver() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    first.stop();
    let words = send(&path, "1\n", &["--timeout", "0.2"]).fail();
    assert!(words.contains("not acknowledged everything within 200ms"), "{words}");
    // The message is in the lane, and the receiver prints it when it continues.
    first.signal(Signal::CONT);
    assert_eq!(first.read(2), "1\n");
}

#[test]
fn send_timeout_ends_wait_for_missing_receiver() {
    let TestAddress(_folder, path) = test_address();
    let words = send(&path, "1\n", &["--wait", "--timeout", "0.1"]).fail();
    assert!(words.contains("no process listens at"), "{words}");
}

/// Returns the error message of a sender whose standard input is still open.
fn sender_failed(sender: &mut Run) -> String {
    let mut words = String::new();
    sender.child().stderr.as_mut().expect("piped").read_to_string(&mut words).expect("read");
    words
}

#[test]
fn second_receiver_is_refused_with_pid_of_first() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let words = Run::new(&["recv", &path]).fail();
    let pid = first.child().id();
    assert!(words.contains(&format!("in use by pid {pid}")), "{words}");
}

#[test]
fn signals_close_the_mailbox_and_remove_the_socket() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let TestAddress(folder, path) = test_address();
        let mut first = receiver(&path, &[]);
        // After this time the receiver usually sleeps in `poll`, which a signal must end.
        thread::sleep(Duration::from_millis(150));
        first.signal(signal);
        let output = first.end();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "");
        let left: Vec<_> = fs::read_dir(folder.path()).expect("the folder").collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn closed_stdout_ends_recv_and_loses_no_message() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    let mut sender = Run::new(&["send", "--wait", &path]);
    sender.write(b"1\n");
    assert_eq!(first.read(2), "1\n");
    // The receiver must notice the closed pipe while it waits, because earlier output might have
    // been read.
    drop(first.child().stdout.take());
    let output = first.end();
    sender.write(b"2\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    assert_eq!(Run::new(&["recv", "--count", "1", &path]).succeed(), "2\n");
    sender.succeed();
}

#[test]
fn signal_ends_recv_with_full_stdout() {
    let TestAddress(_folder, path) = test_address();
    let mut first = receiver(&path, &[]);
    // The lines exceed the capacity of a pipe, and no process reads them.
    let lines: String = (0..200).map(|number| format!("{number:01000}\n")).collect();
    let sender = send(&path, &lines, &["--wait"]);
    let stdout = first.child().stdout.take().expect("piped");
    let mut before = 0;
    until("the receiver fills the pipe and sleeps", || {
        let printed = ioctl_fionread(&stdout).expect("a pipe");
        let is_full = printed > 0 && printed == std::mem::replace(&mut before, printed);
        is_full && state(first.child().id()) == Some('S')
    });
    first.signal(Signal::INT);
    first.child().stdout = Some(stdout);
    let output = first.end();
    assert_eq!(output.status.code(), Some(130));
    let first = text(&output.stdout);
    let left = 200 - first.matches('\n').count();
    let second = Run::new(&["recv", "--count", &left.to_string(), &path]).succeed();
    sender.succeed();
    let whole = first.rfind('\n').map_or(0, |end| end + 1);
    assert_eq!(format!("{}{second}", &first[..whole]), lines, "each line once");
}

#[test]
fn recv_timeout_and_count_set_exit_status() {
    let TestAddress(_folder, path) = test_address();
    assert_eq!(Run::new(&["recv", "--timeout", "0.05", &path]).succeed(), "");
    let words = Run::new(&["recv", "--timeout", "0.05", "--count", "1", &path]).fail();
    assert!(words.contains("expected 1 messages, received 0"), "{words}");
    for wrong in [["recv", "--count=0", &path], ["recv", "--timeout=-1", &path]] {
        assert_eq!(Run::new(&wrong).end().status.code(), Some(2), "{wrong:?}");
    }
    for command in ["recv", "send"] {
        assert_eq!(Run::new(&[command, ""]).end().status.code(), Some(2));
        assert_eq!(Run::new(&[command, "@"]).end().status.code(), Some(2));
    }
}

#[test]
fn invalid_address_is_named_in_error() {
    let TestAddress(folder, path) = test_address();
    let long = folder.path().join("x".repeat(120)).display().to_string();
    fs::write(&path, "mine").expect("a file");
    for command in ["recv", "send"] {
        let words = Run::new(&[command, &long]).fail();
        assert!(words.contains(&long), "{words}");
        let words = Run::new(&[command, &path]).fail();
        assert!(words.contains(&path) && words.contains("found another file"), "{words}");
        let words = Run::new(&[command, "/nowhere/at/all"]).fail();
        assert!(words.contains("/nowhere/at/all"), "{words}");
    }
    assert_eq!(fs::read_to_string(&path).expect("the file exists"), "mine");
}

#[test]
fn forbidden_directory_is_named_in_error() {
    let TestAddress(folder, path) = test_address();
    let inner = folder.path().join("theirs");
    fs::create_dir(&inner).expect("a folder");
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o000)).expect("closed");
    let path = path.replace("/box", "/theirs/box");
    for command in ["recv", "send"] {
        let mut run = Command::new(crate::PROGRAM);
        if rustix::process::geteuid().is_root() {
            // Root may enter the directory, but another user may not.
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("open");
            run = Command::new("setpriv");
            run.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program(&folder));
        }
        let words = Run::of(run.args([command, &path])).fail();
        assert!(words.contains(&path) && words.contains("ermission denied"), "{words}");
    }
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).expect("open again");
}

/// Returns a copy of the command that all users may run.
fn program(folder: &tempfile::TempDir) -> PathBuf {
    let copy = folder.path().join("tontine");
    if !copy.exists() {
        copy_command(&copy);
    }
    copy
}

#[test]
fn send_names_number_of_too_long_line() {
    let TestAddress(_folder, path) = test_address();
    let mut receiver = receiver(&path, &[]);
    let mut lines = String::from("fine\n");
    lines.push_str(&"x".repeat(17 << 20));
    let mut sender = Run::new(&["send", &path]);
    let mut stdin = sender.stdin();
    let feeding = thread::spawn(move || {
        // The sender refuses the line before it has read all of it.
        let _ = stdin.write_all(lines.as_bytes());
    });
    let words = sender.fail();
    assert!(words.contains("line 2 of standard input"), "{words}");
    feeding.join().expect("fed");
    assert_eq!(receiver.read(5), "fine\n");
}

/// Runs the session in the README literally. A receiver hangs and is killed, and its successor
/// receives the messages.
#[test]
fn readme_session_prints_documented_output() {
    let readme = include_str!("../../../../README.md");
    let start = readme.find("$ tontine recv").expect("the session");
    let session = readme[start..].split("```").next().expect("its end");
    let (commands, printed): (Vec<&str>, Vec<&str>) =
        session.lines().partition(|line| line.starts_with("$ "));
    assert_eq!(commands.len(), 4, "{session}");
    let mut commands: Vec<&str> = commands.iter().map(|line| &line[2..]).collect();
    // At a prompt, the process has ended before the next command is typed.
    let kill = commands.iter().position(|line| line.starts_with("kill")).expect("a kill");
    commands.insert(kill + 1, "wait %1 2> /dev/null");
    let TestAddress(folder, _) = test_address();
    let program = Path::new(crate::PROGRAM);
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    // The shell uses job control, as at a prompt. The sender must succeed at the end.
    bash.args(["-m", "-c", &format!("{}\nwait $! && echo all read", commands.join("\n"))]);
    bash.env("PATH", format!("{}:{path}", program.parent().expect("a folder").display()));
    let output = Run::of(bash.current_dir(folder.path())).end();
    let words = text(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert_eq!(text(&output.stdout), format!("{}\nall read\n", printed.join("\n")), "{words}");
    // The shell reports on its jobs as it likes.
    assert!(!words.contains("tontine: "), "{words}");
}

/// Regression: `tontine recv` with a closed standard output (`>&-`) acknowledged each message,
/// printed it to the `/dev/null` that Rust's runtime had opened there, and ended with status 0.
#[test]
fn recv_with_closed_stdout_fails_before_it_binds() {
    let TestAddress(_folder, path) = test_address();
    let program = crate::PROGRAM;
    let script = format!("exec '{program}' recv '{path}' --count 1 >&-");
    let words = Run::of(Command::new("sh").args(["-c", &script])).fail();
    assert!(words.contains("standard output is closed"), "{words}");
    assert!(!Path::new(&path).exists(), "expected no socket");
}

/// Checks that a message that did not fit on a full disk is not acknowledged, so that its sender
/// still has it. `/dev/null`, opened for writing or for both directions, accepts all output.
#[test]
fn recv_acknowledges_only_written_messages() {
    let program = crate::PROGRAM;
    for (to, status) in [("> /dev/full", 1), ("> /dev/null", 0), ("1<> /dev/null", 0)] {
        let TestAddress(_folder, path) = test_address();
        let script = format!("exec '{program}' recv '{path}' --count 1 {to}");
        let receiver = Run::of(Command::new("sh").args(["-c", &script]));
        until("the receiver listens", || Path::new(&path).exists());
        let sent = send(&path, "one\n", &[]).end();
        let ended = receiver.end();
        assert_eq!(ended.status.code(), Some(status), "{to}: {}", text(&ended.stderr));
        assert_eq!(sent.status.code(), Some(status), "{to}: {}", text(&sent.stderr));
    }
}

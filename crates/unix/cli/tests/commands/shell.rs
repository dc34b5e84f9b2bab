//! Tests of `tontine-unix shell` from a user's point of view: at a terminal, and without one.
//!
//! The test is the user at the other end of a real terminal. It types when the expected output has
//! appeared, and fails if the output does not appear in time.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::common::{TIMEOUT, until};

const PROMPT: &str = "tontine$ ";
/// Timeout of one poll of the terminal.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

fn tontine(arguments: &[&str]) -> Command {
    let mut tontine = Command::new(crate::PROGRAM);
    tontine.args(["shell"]).args(arguments);
    tontine
}

/// A user at a terminal, and the shell that runs on it.
struct User {
    end: OwnedFd,
    terminal: OwnedFd,
    shell: Child,
    seen: String,
    /// Number of bytes of `seen` that were matched.
    compared: usize,
}

impl User {
    fn begin(arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let end = openpt(flags).unwrap();
        grantpt(&end).unwrap();
        unlockpt(&end).unwrap();
        let terminal = ioctl_tiocgptpeer(&end, flags).unwrap();
        let stdio = || Stdio::from(terminal.try_clone().unwrap());
        let shell = tontine(arguments).stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn();
        Self { end, terminal, shell: shell.unwrap(), seen: String::new(), compared: 0 }
    }

    fn types(&self, text: &str) {
        assert_eq!(rustix::io::write(&self.end, text.as_bytes()), Ok(text.len()));
    }

    /// Types a line at the prompt.
    fn enters(&mut self, line: &str) {
        self.sees(PROMPT);
        self.types(&format!("{line}\r"));
        self.sees(&format!("{line}\r\n"));
    }

    /// Waits until `text` appears after the matched output, and returns the output before it.
    fn sees(&mut self, text: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.seen[self.compared..].find(text) {
                let before = self.seen[self.compared..][..at].to_owned();
                self.compared += at + text.len();
                return before;
            }
            let waited = start.elapsed();
            assert!(waited < TIMEOUT, "expected {text:?}, seen {:?}", &self.seen[self.compared..]);
            let mut ready = [PollFd::new(&self.end, PollFlags::IN)];
            if poll(&mut ready, Some(&POLL_TIMEOUT)).unwrap() > 0 {
                let mut buffer = [0; 4096];
                let read = rustix::io::read(&self.end, &mut buffer).unwrap();
                self.seen += &String::from_utf8_lossy(&buffer[..read]);
            }
        }
    }

    /// Enters `ps` until its table contains `process`, and returns that table.
    ///
    /// If `ps` runs on another processor, it may run before the shell that started it waits, or
    /// before a process executes its program or receives a signal.
    fn sees_in_ps(&mut self, process: &str) -> String {
        let mut table = String::new();
        until(&format!("`ps` shows {process:?}"), || {
            self.enters("ps");
            table = self.sees(" ps\r\n");
            table.contains(process)
        });
        table
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// Waits until the command has ended, and returns its exit status.
    fn wait_end(&mut self) -> Option<i32> {
        let mut status = None;
        until("the shell ends", || {
            status = self.shell.try_wait().unwrap();
            status.is_some()
        });
        assert!(!self.is_raw(), "expected the terminal to be restored");
        status.and_then(|status| status.code())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // The shell has already ended, except in a test that failed.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Runs a session of a user with jobs.
fn session(arguments: &[&str]) {
    let mut user = User::begin(arguments);
    user.enters("echo hi");
    assert!(user.is_raw());
    assert_eq!(user.sees("hi\r\n"), "");
    user.enters("catch USR1");
    user.sees("catches {SIGUSR1}\r\n");
    user.types("\x1a");
    user.sees("^Z\r\n[1]+ Stopped");
    user.enters("jobs");
    user.sees("[1]+ Stopped");
    let table = user.sees_in_ps(" S shell");
    assert!(table.contains(" T catch"), "a stopped process in {table}");
    user.enters("bg");
    user.enters("kill %1; wait %1; echo status $?");
    user.sees("status 143\r\n");
    user.enters("catch USR1");
    user.sees("catches {SIGUSR1}\r\n");
    user.types("\x03");
    user.sees("^C");
    user.enters("echo status $?");
    user.sees("status 130\r\n");
    user.enters("exit 3");
    assert_eq!(user.wait_end(), Some(3));
}

#[test]
fn jobs_stop_continue_and_end() {
    session(&[]);
}

#[test]
fn shell_runs_in_every_mode() {
    session(&["--mode", "master", "--processors", "2"]);
    session(&["--mode", "uniprocessor"]);
}

#[test]
fn simulated_shell_waits_for_input() {
    session(&["--seed", "7"]);
}

#[test]
fn sleeping_job_is_stopped_listed_and_killed() {
    let mut user = User::begin(&[]);
    user.enters("sleep 100 &");
    user.enters("jobs");
    user.sees("sleep 100");
    user.sees_in_ps(" S sleep");
    user.enters("kill -STOP %1");
    user.sees_in_ps(" T sleep");
    user.enters("bg; kill %1; wait %1; echo status $?");
    user.sees("status 143\r\n");
    user.sees(PROMPT);
    user.types("\x04");
    assert_eq!(user.wait_end(), Some(0));
}

#[test]
fn signal_ends_shell_and_restores_terminal() {
    let mut user = User::begin(&[]);
    user.sees(PROMPT);
    assert!(user.is_raw());
    let shell = rustix::process::Pid::from_child(&user.shell);
    rustix::process::kill_process(shell, rustix::process::Signal::TERM).unwrap();
    assert_eq!(user.wait_end(), None);
}

#[test]
fn stopped_shell_continues_on_return_and_ends_on_ctrl_d() {
    for arguments in [&[][..], &["--seed", "5"]] {
        let mut user = User::begin(arguments);
        user.enters("kill -STOP $$");
        user.sees("the shell has stopped (SIGSTOP); Return continues it, ^D kills it: ");
        user.types("\r");
        user.enters("echo here again");
        user.sees("here again\r\n");
        user.enters("kill -STOP $$");
        user.sees("^D kills it: ");
        user.types("\x04");
        assert_eq!(user.wait_end(), Some(128 + 9));
    }
}

#[test]
fn interrupt_works_after_long_type_ahead() {
    let mut user = User::begin(&[]);
    user.enters("catch USR1");
    user.sees("catches {SIGUSR1}\r\n");
    let paste = "echo of a line that is pasted\r".repeat(40);
    for _ in 0..10 {
        user.types(&paste);
    }
    user.types("\x03");
    user.sees("^C");
    user.sees(PROMPT);
    user.types("echo status $?\r");
    user.sees("status 130\r\n");
    user.sees(PROMPT);
    user.types("\x04");
    assert_eq!(user.wait_end(), Some(0));
}

#[test]
fn shell_without_terminal_does_not_block() {
    for mode in [&["-c"][..], &["--seed", "1", "-c"]] {
        let output = without_a_terminal(&[mode, &["kill -STOP $$"]].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.contains("the shell has stopped (SIGSTOP), and no user can continue it"),
            "{said}"
        );
        assert_eq!(output.status.code(), Some(128 + 9));
        let output = without_a_terminal(&[mode, &["seq 2; catch USR1"]].concat());
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("1\n2\n"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("found that all threads are blocked:"), "{said}");
        assert!(said.contains(" S catch"), "{said}");
        assert_eq!(output.status.code(), Some(1));
    }
}

fn without_a_terminal(arguments: &[&str]) -> Output {
    tontine(arguments).stdin(Stdio::null()).output().expect("tontine runs")
}

#[test]
fn shell_commands_need_no_terminal() {
    let output = without_a_terminal(&["-c", "seq 3 | cat; cat; cat; exit 7"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n2\n3\n");
    assert_eq!(output.status.code(), Some(7));
    let output = without_a_terminal(&["--seed", "3", "-c", "sleep 1000000; kill -TERM $$"]);
    assert_eq!(output.status.code(), Some(128 + 15));
}

#[test]
fn long_shell_output_is_complete() {
    let output = without_a_terminal(&["-c", "seq 50000"]);
    let lines = output.stdout.split(|byte| *byte == b'\n').count();
    assert_eq!((lines, output.status.code()), (50_001, Some(0)));
}

#[test]
fn shell_without_terminal_or_commands_exits_with_2() {
    let output = without_a_terminal(&[]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("expected a terminal on standard input"), "{said}");
    let output = without_a_terminal(&["--mode", "uniprocessor", "--processors", "2", "-c", "true"]);
    assert_eq!(output.status.code(), Some(2));
}

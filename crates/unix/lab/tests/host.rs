//! Tests of a user's terminal that is connected to another terminal: the transferred bytes, and the
//! restored modes.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::pipe::PipeFlags;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use tontine_unix::{Linux, Pid, Signal, Sys, WaitOptions, WaitStatus};
use tontine_unix_lab::shell::attend;
use tontine_unix_sim::TerminalController;

/// Creates the user's terminal; returns the user's end and the program's end.
fn terminal() -> (OwnedFd, OwnedFd) {
    let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&user).unwrap();
    unlockpt(&user).unwrap();
    let program = ioctl_tiocgptpeer(&user, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    (user, program)
}

fn is_raw(terminal: &OwnedFd) -> bool {
    !tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ICANON)
}

/// A controller that echoes input and ends after `q`; `!` makes it panic.
#[derive(Default)]
struct Mirror {
    typed: Mutex<Vec<u8>>,
    came: Condvar,
    over: Mutex<bool>,
}

impl TerminalController for Mirror {
    fn input(&self, bytes: &[u8]) {
        assert!(!bytes.contains(&b'!'), "typed an exclamation mark");
        self.typed.lock().unwrap().extend(bytes);
        if bytes.contains(&b'q') {
            *self.over.lock().unwrap() = true;
        }
        self.came.notify_all();
    }

    fn output(&self, wait: Duration) -> Vec<u8> {
        let typed = self.typed.lock().unwrap();
        let (mut typed, _) =
            self.came.wait_timeout_while(typed, wait, |typed| typed.is_empty()).unwrap();
        std::mem::take(&mut *typed)
    }

    fn is_over(&self) -> bool {
        *self.over.lock().unwrap()
    }
}

/// A controller whose output never ends.
struct Fountain;

impl TerminalController for Fountain {
    fn input(&self, _: &[u8]) {}

    fn output(&self, _: Duration) -> Vec<u8> {
        vec![b'y'; 1 << 16]
    }

    fn is_over(&self) -> bool {
        false
    }
}

/// Signals whose default action ends a process.
const ENDING: [Signal; 8] = [
    Signal::TERM,
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::ABRT,
    Signal::ALRM,
    Signal::USR1,
    Signal::USR2,
];

/// Lets one test run at a time, because a process that is forked while another thread installs a
/// signal handler inherits a lock of signal-hook that no thread of the process releases, and would
/// hang in its first handler.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process that attends `terminal`; returns once the terminal is in raw mode.
fn attends(
    sys: &dyn Sys,
    controller: impl TerminalController + Send + 'static,
    terminal: &OwnedFd,
) -> Pid {
    let own = terminal.try_clone().unwrap();
    let child = sys.fork(move |_| attend(&controller, &own, &own).map_or(1, |()| 0)).unwrap();
    while !is_raw(terminal) {
        std::thread::yield_now();
    }
    child
}

/// Reads the user's output up to `last`.
fn sees(user: &OwnedFd, last: u8) -> Vec<u8> {
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        let mut byte = [0];
        assert_eq!(rustix::io::read(user, &mut byte), Ok(1));
        seen.extend(byte);
    }
    seen
}

#[test]
fn keys_pass_unprocessed_and_terminal_is_restored() {
    let _alone = alone();
    let (user, program) = terminal();
    let mirror = Mirror::default();
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| attend(&mirror, &program, &program));
        while !is_raw(&program) {
            std::thread::yield_now();
        }
        rustix::io::write(&user, b"\x03a\x1a\r.").unwrap();
        assert_eq!(sees(&user, b'.'), b"\x03a\x1a\r.");
        rustix::io::write(&user, b"q").unwrap();
        assert_eq!(sees(&user, b'q'), b"q");
        attending.join().unwrap().unwrap();
    });
    assert!(!is_raw(&program));
}

#[test]
fn terminal_is_restored_after_panic() {
    let _alone = alone();
    let (user, program) = terminal();
    let mirror = Mirror::default();
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| attend(&mirror, &program, &program))).is_err()
        });
        while !is_raw(&program) {
            std::thread::yield_now();
        }
        rustix::io::write(&user, b"!").unwrap();
        assert!(attending.join().unwrap(), "the controller's panic propagates");
    });
    assert!(!is_raw(&program));
}

#[test]
fn terminal_is_restored_when_signal_terminates_process() {
    let _alone = alone();
    for signal in ENDING {
        let (_user, program) = terminal();
        let linux = Linux::new().unwrap();
        let sys: &dyn Sys = &linux;
        let child = attends(sys, Mirror::default(), &program);
        sys.kill(child.into(), Some(signal)).unwrap();
        let waited = sys.waitpid(child.into(), Default::default()).unwrap().unwrap();
        assert_eq!(waited.status.signaled(), Some(signal));
        assert!(!is_raw(&program));
    }
}

#[test]
fn terminal_is_restored_while_output_is_blocked() {
    let _alone = alone();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let (user, program) = terminal();
        let linux = Linux::new().unwrap();
        let sys: &dyn Sys = &linux;
        let child = attends(sys, Fountain, &program);
        // The loop ends when the terminal is full and remains full, which shows that the writer is
        // blocked.
        let mut before = 0;
        loop {
            let now = rustix::io::ioctl_fionread(&user).unwrap();
            if now > 0 && now == before {
                break;
            }
            before = now;
            std::thread::sleep(Duration::from_millis(50));
        }
        sys.kill(child.into(), Some(signal)).unwrap();
        let waited = sys.waitpid(child.into(), Default::default()).unwrap().unwrap();
        assert_eq!(waited.status.signaled(), Some(signal));
        assert!(!is_raw(&program));
    }
}

#[test]
fn stop_restores_terminal_and_continue_sets_raw_mode() {
    let _alone = alone();
    let (_user, program) = terminal();
    let linux = Linux::new().unwrap();
    let sys: &dyn Sys = &linux;
    let child = attends(sys, Mirror::default(), &program);
    let state = |options| sys.waitpid(child.into(), options).unwrap().unwrap().status;
    // In its own group, the process has a parent outside the group, so the group is not orphaned
    // and can be stopped.
    sys.setpgid(child, child).unwrap();
    for (signal, raw) in [(Signal::TSTP, false), (Signal::STOP, true)] {
        sys.kill(child.into(), Some(signal)).unwrap();
        assert_eq!(state(WaitOptions::STOPPED), WaitStatus::Stopped(signal));
        assert_eq!(is_raw(&program), raw);
        // The user's shell sets these modes when it takes the terminal.
        let mut cooked = tcgetattr(&program).unwrap();
        cooked.local_modes |= LocalModes::ICANON;
        tcsetattr(&program, OptionalActions::Now, &cooked).unwrap();
        sys.kill(child.into(), Some(Signal::CONT)).unwrap();
        while !is_raw(&program) {
            std::thread::yield_now();
        }
    }
    sys.kill(child.into(), Some(Signal::TERM)).unwrap();
    assert_eq!(state(WaitOptions::default()).signaled(), Some(Signal::TERM));
    assert!(!is_raw(&program));
}

#[test]
fn end_waits_for_blocked_terminal_output() {
    let _alone = alone();
    let (reader, program) = terminal();
    let (seen, shown) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK).unwrap();
    let mirror = Mirror::default();
    mirror.typed.lock().unwrap().extend(vec![b'x'; 1 << 20]);
    *mirror.over.lock().unwrap() = true;
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| {
            let done = attend(&mirror, &program, &shown);
            drop(shown);
            done
        });
        let mut count = 0;
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(&seen, &mut buffer) {
                Ok(0) => break,
                Ok(n) => count += n,
                Err(_) => std::thread::yield_now(),
            }
        }
        attending.join().unwrap().unwrap();
        assert_eq!(count, 1 << 20);
    });
    drop(reader);
}

#[test]
fn terminal_with_another_writer_keeps_newline_translation() {
    let _alone = alone();
    let (user, program) = terminal();
    let (_seen, shown) = rustix::pipe::pipe().unwrap();
    let mirror = Mirror::default();
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| attend(&mirror, &program, &shown));
        while !is_raw(&program) {
            std::thread::yield_now();
        }
        rustix::io::write(&program, b"a\n").unwrap();
        assert_eq!(sees(&user, b'\n'), b"a\r\n");
        rustix::io::write(&user, b"q").unwrap();
        attending.join().unwrap().unwrap();
    });
}

#[test]
fn end_of_non_terminal_input_is_sent_as_ctrl_d() {
    let _alone = alone();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (seen, shown) = rustix::pipe::pipe().unwrap();
    let mirror = Mirror::default();
    std::thread::scope(|scope| {
        let attending = scope.spawn(|| attend(&mirror, &reader, &shown));
        rustix::io::write(&writer, b"ab").unwrap();
        assert_eq!(sees(&seen, b'b'), b"ab");
        drop(writer);
        assert_eq!(sees(&seen, b'\x04'), b"\x04");
        mirror.input(b"q");
        attending.join().unwrap().unwrap();
    });
}

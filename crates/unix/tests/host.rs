//! A user's terminal joined with another: what passes, and how it is left behind.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};
use tontine_unix::shell::{Seat, attend};
use tontine_unix::{Linux, Signal, Status, Sys};

/// The user's terminal: where the user is, and what the program has.
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

/// A seat that shows what is typed and is over when `q` is; `!` makes it panic.
#[derive(Default)]
struct Mirror {
    typed: Mutex<Vec<u8>>,
    came: Condvar,
    over: Mutex<bool>,
}

impl Seat for Mirror {
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

/// Reads what the user sees, up to `last`.
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
fn keys_pass_raw_and_the_terminal_is_restored() {
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
fn the_terminal_is_restored_after_a_panic() {
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
        assert!(attending.join().unwrap(), "the seat's panic goes on");
    });
    assert!(!is_raw(&program));
}

#[test]
fn the_terminal_is_restored_when_a_signal_ends_the_process() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let (_user, program) = terminal();
        let linux = Linux::new().unwrap();
        let sys: &dyn Sys = &linux;
        let attended = program.try_clone().unwrap();
        let child =
            sys.fork(move |_| attend(&Mirror::default(), &attended, &attended).map_or(1, |()| 0));
        let child = child.unwrap();
        while !is_raw(&program) {
            std::thread::yield_now();
        }
        sys.kill(child.into(), Some(signal)).unwrap();
        let waited = sys.waitpid(child.into(), Default::default()).unwrap().unwrap();
        assert_eq!(waited.status, Status::Signaled(signal, false));
        assert!(!is_raw(&program));
    }
}

#[test]
fn the_end_of_input_that_is_no_terminal_is_typed() {
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

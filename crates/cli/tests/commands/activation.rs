//! Tests of `tontine recv` at a socket that a service manager passed.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::common::text;
use crate::mail::{Run, TestAddress, send, test_address};

/// Returns a receiver without a path, to which a service manager has passed `socket`.
fn activated(socket: &OwnedFd, more: &[&str]) -> Run {
    // The shell has the process id that `exec` keeps.
    let script = "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&0 < /dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", crate::PROGRAM, "recv"]).args(more);
    Run::with_stdin(&mut command, socket.try_clone().expect("a copy"))
}

#[test]
fn activated_receivers_take_over_one_socket() {
    let TestAddress(_folder, path) = test_address();
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("one");
    let bound = rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a short path"));
    bound.and_then(|()| rustix::net::listen(&socket, 16)).expect("listens");
    // The sender connects before a receiver runs.
    let mut sender = Run::new(&["send", "--wait", &path]);
    sender.write(b"1\n");
    sender.until_sent();
    let mut first = activated(&socket, &[]);
    assert_eq!(first.read(2), "1\n");
    first.stop();
    sender.write(b"2\n");
    sender.until_sent();
    first.signal(Signal::KILL);
    first.end();
    let other = send(&path, "3\n", &[]);
    let mut second = activated(&socket, &[]);
    // The first message may or may not have been acknowledged before the stop.
    let mut printed = String::new();
    while !(printed.contains("2\n") && printed.contains("3\n")) {
        printed += &second.read(2);
    }
    other.succeed();
    sender.succeed();
    second.signal(Signal::TERM);
    assert_eq!(text(&second.end().stdout), "");
    assert!(Path::new(&path).exists(), "the socket belongs to the manager");
}

#[test]
fn recv_without_path_and_socket_is_refused() {
    let output = Run::new(&["recv"]).end();
    let words = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{words}");
    assert!(words.contains("found no PATH and 0 sockets"), "{words}");
    let (socket, _other) = UnixStream::pair().expect("a pair");
    let words = activated(&socket.into(), &[]).fail();
    assert!(words.contains("SOCK_STREAM"), "{words}");
}

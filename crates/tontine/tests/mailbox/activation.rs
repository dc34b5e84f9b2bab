//! Mailboxes at a listening socket that another process made, as a service manager does.

#![allow(unsafe_code, reason = "fork, and descriptors of a child")]

use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use tontine::Error;
use tontine::mailbox::{ListenerCheck, Mailbox, OnDeath, Options, Sender, activated_sockets};

use crate::common::*;

/// A service manager: holds the listening socket, and starts receivers.
struct Manager {
    place: Place,
    socket: OwnedFd,
    /// Keeps descriptor 3 in use, which a receiver replaces by the socket.
    _reserved: OwnedFd,
}

impl Manager {
    fn new() -> Self {
        let reserved = std::fs::File::open("/dev/null").expect("opened").into();
        let place = place();
        let socket = seqpacket(SocketType::SEQPACKET);
        let address = SocketAddrUnix::new(&place.path).expect("a short path");
        rustix::net::bind(&socket, &address).expect("bound");
        rustix::net::listen(&socket, 128).expect("listens");
        Self { place, socket, _reserved: reserved }
    }

    /// Returns a duplicate of the socket.
    fn pass(&self) -> OwnedFd {
        self.socket.try_clone().expect("a copy")
    }

    /// Passes the socket to this process, a child, by descriptor 3.
    fn activate(&self) {
        // SAFETY: the child uses no file of its parent with this number.
        assert_eq!(unsafe { libc::dup2(self.socket.as_raw_fd(), 3) }, 3);
        set("LISTEN_FDS", "1");
        set("LISTEN_FDNAMES", "jobs");
        set("LISTEN_PID", &std::process::id().to_string());
    }

    /// Starts a receiver, which receives the given messages, then sleeps until it is killed.
    fn start(&self, done: &Signal, expected: &[&[u8]]) -> i32 {
        fork(|| {
            self.activate();
            let activated = activated_sockets().expect("one").pop().expect("one");
            assert_eq!(activated.name, "jobs");
            let mut mailbox = Options::new().listen(activated.socket).expect("opened");
            let mut left = expected.to_vec();
            while !left.is_empty() {
                let message = mailbox.recv_timeout(AMPLE).expect("a message");
                let place = left.iter().position(|one| *one == &*message).expect("expected");
                left.swap_remove(place);
            }
            mailbox.ack();
            done.give(0);
            sleep_indefinitely();
        })
    }
}

fn seqpacket(kind: SocketType) -> OwnedFd {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn set(name: &str, value: &str) {
    // SAFETY: the process, a forked child, has one thread.
    unsafe { std::env::set_var(name, value) };
}

#[test]
fn second_activation_receives_what_killed_receiver_left() {
    alone!();
    let manager = Manager::new();
    let done = Signal::new();
    let path = &manager.place.path;
    let options = Options::new().on_death(OnDeath::WaitForSuccessor);
    // No receiver runs yet, and the connection waits in the queue of the socket.
    let mut early = options.connect(path).expect("connects");
    early.send(b"one").expect("sent");
    assert_eq!(early.peer(), None);
    assert_eq!(early.owner().and_then(|owner| owner.pid), Some(std::process::id()));
    let first = manager.start(&done, &[b"one"]);
    early.wait_acked(Some(AMPLE)).expect("received");
    assert_eq!(early.peer().and_then(|peer| peer.pid), Some(first.cast_unsigned()));
    done.take();
    early.send(b"two").expect("sent");
    kill(first);
    // No process receives now, and the socket still accepts senders.
    let mut late = Sender::connect(path).expect("connects");
    late.send(b"three").expect("sent");
    let second = manager.start(&done, &[b"two", b"three"]);
    early.wait_acked(Some(AMPLE)).expect("received by the successor");
    late.wait_acked(Some(AMPLE)).expect("received");
    done.take();
    kill(second);
}

#[test]
fn unaccepted_sender_outlives_killed_receiver() {
    alone!();
    let manager = Manager::new();
    let done = Signal::new();
    let mut sender = Sender::connect(&manager.place.path).expect("connects");
    sender.send(b"one").expect("sent");
    let first = manager.start(&done, &[]);
    done.take();
    kill(first);
    sender.send(b"two").expect("sent to the next receiver");
    let second = manager.start(&done, &[b"one", b"two"]);
    sender.wait_acked(Some(AMPLE)).expect("received");
    done.take();
    kill(second);
}

#[test]
fn dropped_mailbox_leaves_socket_and_unaccepted_senders() {
    alone!();
    let manager = Manager::new();
    let path = &manager.place.path;
    let mut first = Options::new().listen(manager.pass()).expect("opened");
    let mut accepted = Sender::connect(path).expect("connects");
    accepted.send(b"one").expect("sent");
    assert_eq!(&*first.recv_timeout(AMPLE).expect("a message"), b"one");
    let mut waiting = Sender::connect(path).expect("connects");
    waiting.send(b"two").expect("sent");
    drop(first);
    assert!(matches!(accepted.send(b"three"), Err(Error::Closed { .. })));
    // The address belongs to the process that listens.
    let error = Mailbox::bind(path).expect_err("in use");
    let holder = Some(std::process::id());
    assert!(matches!(error, Error::AddrInUse { holder: found, .. } if found == holder), "{error}");
    let mut second = Options::new().listen(manager.pass()).expect("opened");
    assert_eq!(&*second.recv_timeout(AMPLE).expect("a message"), b"two");
    drop(second);
    assert!(path.exists(), "the socket's file stays");
}

/// The messages of a lane whose listener's process had ended were both taken back and received by
/// the next process that listened at the same socket.
#[test]
fn lane_that_ended_unaccepted_is_not_received() {
    alone!();
    let place = place();
    let ready = Signal::new();
    let socket = seqpacket(SocketType::SEQPACKET);
    let address = SocketAddrUnix::new(&place.path).expect("a short path");
    rustix::net::bind(&socket, &address).expect("bound");
    let listener = fork(|| {
        rustix::net::listen(&socket, 128).expect("listens");
        ready.give(0);
        sleep_indefinitely();
    });
    ready.take();
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    kill(listener);
    let died = sender.send(b"two").expect_err("the process that listened has ended");
    assert!(matches!(died, Error::OwnerDied { .. }), "{died}");
    assert_eq!(sender.take_unread().expect("all messages"), [b"one"]);
    let mut mailbox = Options::new().listen(socket).expect("opened");
    let nothing = mailbox.recv_timeout(Duration::from_millis(50)).expect_err("withdrawn");
    assert_eq!((nothing, mailbox.take_errors()), (Error::TimedOut, vec![]));
    // The process that listened has ended, and this one has the socket.
    let path = &place.path;
    let refused = Sender::connect(path).expect_err("no process that listens");
    assert!(matches!(refused, Error::NoMailbox { .. }), "{refused}");
    for check in [ListenerCheck::Watched, ListenerCheck::Ignored] {
        let mut sender = Options::new().check_listener(check).connect(path).expect("connects");
        sender.send(b"three").expect("sent");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"three");
    }
}

#[test]
fn sockets_that_do_not_listen_are_refused() {
    alone!();
    let manager = Manager::new();
    let listening = |kind, name: &str| {
        let socket = seqpacket(kind);
        let path = manager.place.path.with_file_name(name);
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("bound");
        rustix::net::listen(&socket, 1).expect("listens");
        socket
    };
    let connected = seqpacket(SocketType::SEQPACKET);
    let address = SocketAddrUnix::new(&manager.place.path).expect("short");
    rustix::net::connect(&connected, &address).expect("connected");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bound");
    let cases = [
        (listening(SocketType::STREAM, "stream"), libc::EPROTOTYPE, "SOCK_STREAM"),
        (seqpacket(SocketType::SEQPACKET), libc::EPROTOTYPE, "does not listen"),
        (connected, libc::EPROTOTYPE, "does not listen"),
        (tcp.into(), libc::EPROTOTYPE, "another domain"),
        (std::fs::File::open("/dev/null").expect("opened").into(), libc::ENOTSOCK, "SO_DOMAIN"),
    ];
    for (socket, errno, word) in cases {
        let error = Options::new().listen(socket).expect_err(word);
        assert_eq!(error.errno(), errno, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn socket_without_name_leaves_names_of_others() {
    alone!();
    let manager = Manager::new();
    let names = || {
        let all = activated_sockets().expect("three").into_iter();
        all.map(|activated| activated.name).collect::<Vec<_>>().join(" ")
    };
    let child = fork(|| {
        manager.activate();
        for copy in 4..6 {
            // SAFETY: the child uses no file of its parent with this number.
            assert_eq!(unsafe { libc::dup2(3, copy) }, copy);
        }
        set("LISTEN_FDS", "3");
        for (given, expected) in [
            ("a::b", "a unknown b"),
            (":a", "unknown a unknown"),
            ("a:b:c:d", "a b c"),
            ("", "unknown unknown unknown"),
        ] {
            set("LISTEN_FDNAMES", given);
            assert_eq!(names(), expected, "{given}");
        }
        // SAFETY: the process, a forked child, has one thread.
        unsafe { std::env::remove_var("LISTEN_FDNAMES") };
        assert_eq!(names(), "unknown unknown unknown");
    });
    assert_eq!(reap(child), 0);
}

#[test]
fn variables_of_other_process_pass_no_socket() {
    alone!();
    let manager = Manager::new();
    let child = fork(|| {
        manager.activate();
        assert_eq!(activated_sockets().expect("one").len(), 1);
        assert_eq!(activated_sockets().expect("another duplicate").len(), 1);
        set("LISTEN_FDS", "1000000000");
        assert_eq!(activated_sockets().expect_err("not open").errno(), libc::EBADF);
        set("LISTEN_FDS", "one");
        let error = activated_sockets().expect_err("no number");
        assert!(error.to_string().contains("LISTEN_FDS"), "{error}");
        set("LISTEN_PID", "1");
        assert_eq!(activated_sockets().expect("no error").len(), 0);
    });
    assert_eq!(reap(child), 0);
}

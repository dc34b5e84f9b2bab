//! Hostile peers that hide descriptors in a queue that another process will close. The last close
//! of a lingering socket waits, and closing a Unix socket closes all descriptors in its queue.

#![allow(unsafe_code, reason = "a socket option")]

use crate::raw;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::common::*;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::mailbox::{Mailbox, Options, Sender};

/// Longer than any call takes that does not wait for a lingering socket.
const AT_ONCE: Duration = Duration::from_secs(30);

fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair")
}

/// Returns a Unix socket whose queue contains a socket whose queue contains … a lingering socket.
fn nested(kind: SocketType, depth: usize) -> (OwnedFd, TcpStream) {
    let (mut inner, silent) = raw::lingering();
    for _ in 0..depth {
        let (outer, other) = pair(kind);
        assert!(raw::send(&other, b"rubbish", &[]));
        assert!(raw::send(&other, b"in it", &[inner.as_fd()]));
        inner = outer;
    }
    (inner, silent)
}

fn in_time(what: &str, call: impl FnOnce()) {
    let started = Instant::now();
    call();
    let took = started.elapsed();
    assert!(took < AT_ONCE, "{what} took {took:?}");
}

/// Regression: the receiver closed a connection at the first invalid message. That also closed the
/// descriptors in the second message, which had not been read, and `try_recv` waited for as long as
/// the peer chose.
#[test]
fn messages_after_refused_hello_do_not_delay_calls() {
    alone!();
    let (place, mut mailbox) = bound();
    for count in [1, 3] {
        let (tcp, _silent) = raw::lingering();
        let socket = raw::dial(&place.path);
        for _ in 0..count {
            assert!(raw::send(&socket, b"rubbish", &[]));
        }
        assert!(raw::send(&socket, b"", &[tcp.as_fd()]));
        drop((tcp, socket));
        in_time("try_recv", || drop(mailbox.try_recv().map(drop)));
        assert!(!mailbox.take_errors().is_empty());
    }
}

/// Regression: like the previous test, one level deeper. Unix sockets were regarded as harmless.
#[test]
fn messages_in_passed_socket_do_not_delay_calls() {
    alone!();
    let (place, mut mailbox) = bound();
    for kind in [SocketType::SEQPACKET, SocketType::STREAM, SocketType::DGRAM] {
        for depth in [1, 3] {
            let (outer, _silent) = nested(kind, depth);
            let socket = raw::dial(&place.path);
            assert!(raw::send(&socket, b"rubbish", &[outer.as_fd()]));
            drop((outer, socket));
            in_time("try_recv", || drop(mailbox.try_recv().map(drop)));
            assert!(!mailbox.take_errors().is_empty());
        }
    }
}

/// Regression: like the previous test, on a connection that is never read. Such a connection is
/// dropped if there are too many, if it stays silent, or with the mailbox, whether or not it was
/// accepted.
#[test]
fn dropping_unread_connections_does_not_wait() {
    alone!();
    let (place, mailbox) = bound();
    let (tcp, _silent) = raw::lingering();
    let socket = raw::dial(&place.path);
    assert!(raw::send(&socket, b"rubbish", &[tcp.as_fd()]));
    drop((tcp, socket));
    in_time("dropping the mailbox", || drop(mailbox));
    Mailbox::bind(&place.path).expect("the name is free");
}

/// If the table of descriptors is small, the thread that receives a peer's descriptors gives them
/// low numbers. It closes them only when it ends, since only then does no socket linger.
#[test]
fn lingering_socket_in_small_table_does_not_keep_thread() {
    alone!();
    let place = place();
    let receiver = fork(|| {
        let limits = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limits }).expect("lowered");
        let mut mailbox = Options::new().bind(&place.path).expect("binds");
        let before = threads();
        let (lingering, _silent) = raw::lingering();
        let socket = raw::dial(&place.path);
        assert!(raw::send(&socket, &raw::hello(1 << 20, &[12]), &[lingering.as_fd()]));
        drop((lingering, socket));
        let started = Instant::now();
        until("the connection is refused", || {
            drop(mailbox.try_recv().map(drop));
            !mailbox.take_errors().is_empty()
        });
        until("its thread has ended", || threads() == before);
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    });
    assert_eq!(reap(receiver), 0);
}

/// Regression: the doorbell receives bytes, and with them descriptors. Removing the rings waited
/// for the descriptors to be closed, and so did dropping the lane.
#[test]
fn descriptors_at_doorbell_do_not_delay_calls() {
    alone!();
    let (place, mut mailbox) = bound();
    for ends in [false, true] {
        let (socket, _chunk) = raw::lane(&place.path);
        in_time("recv_timeout", || drop(mailbox.recv_timeout(Duration::ZERO).map(drop)));
        let (kind, _, passed) = raw::receive(&socket);
        assert_eq!(kind, raw::WELCOME);
        // The doorbell is drained only after several waits.
        for _ in 0..4 {
            drop(mailbox.recv_timeout(Duration::ZERO).map(drop));
        }
        let (tcp, _silent) = raw::lingering();
        // If the kernel offers the option to refuse descriptors, this `send` fails.
        if !raw::send(&passed[2], b"1", &[tcp.as_fd()]) {
            sockopt::set_socket_linger(&tcp, None).expect("set");
        }
        drop(tcp);
        if ends {
            drop((socket, passed));
        }
        in_time("recv_timeout", || drop(mailbox.recv_timeout(Duration::ZERO).map(drop)));
        in_time("recv_timeout", || drop(mailbox.recv_timeout(Duration::ZERO).map(drop)));
    }
    in_time("dropping the mailbox", || drop(mailbox));
}

/// Regression: control messages after `WELCOME`, and the doorbell itself, delayed the drop of a
/// sender.
#[test]
fn hostile_receiver_does_not_delay_sender_drop() {
    alone!();
    for welcomes in [false, true] {
        let place = place();
        let listener = raw::listen(&place.path);
        let mut sender = Sender::connect(&place.path).expect("connects");
        let socket = raw::accept(&listener);
        let (page, control) = (raw::process_page(1), raw::control(0, 4096));
        let (button, _silent) = if welcomes {
            let (button, silent) = nested(SocketType::SEQPACKET, 1);
            (Some(button), Some(silent))
        } else {
            (None, None)
        };
        if let Some(button) = &button {
            raw::welcome(&socket, page.fd.as_fd(), &control, button.as_fd());
            sender.service().expect("welcomed");
            assert!(sender.peer().is_some());
        }
        let (tcp, _silent_too) = raw::lingering();
        assert!(raw::send(&socket, b"rubbish", &[tcp.as_fd()]));
        drop((tcp, button, socket, listener));
        in_time("dropping the sender", || drop(sender));
    }
}

/// Regression: a peek at the queue of a peer's doorbell proved nothing, because an empty message
/// hid the messages after it, and so did SO_PEEK_OFF. The sender that dropped the doorbell waited
/// for a lingering socket.
#[test]
fn doorbell_with_hidden_messages_does_not_delay_drop() {
    alone!();
    const SO_PEEK_OFF: i32 = 42;
    for hides_by_offset in [false, true] {
        let place = place();
        let listener = raw::listen(&place.path);
        let mut sender = Sender::connect(&place.path).expect("connects");
        let socket = raw::accept(&listener);
        let (page, control) = (raw::process_page(1), raw::control(0, 4096));
        let (button, other) = pair(SocketType::SEQPACKET);
        let (tcp, _silent) = raw::lingering();
        if hides_by_offset {
            let offset = 1_i32 << 20;
            // SAFETY: the option's value is one integer.
            let set = unsafe {
                libc::setsockopt(
                    button.as_raw_fd(),
                    libc::SOL_SOCKET,
                    SO_PEEK_OFF,
                    (&raw const offset).cast(),
                    size_of::<i32>() as libc::socklen_t,
                )
            };
            assert_eq!(set, 0);
        } else {
            assert!(raw::send(&other, b"", &[]));
        }
        assert!(raw::send(&other, b"hidden", &[tcp.as_fd()]));
        raw::welcome(&socket, page.fd.as_fd(), &control, button.as_fd());
        sender.service().expect("welcomed");
        assert!(sender.peer().is_some());
        drop((tcp, button, other, socket, listener));
        in_time("dropping the sender", || drop(sender));
    }
}

/// The library's threads that receive and close descriptors end once they are done. However a lane
/// ends, an honest program then has no thread of the library.
#[test]
fn no_library_thread_remains_after_honest_lanes_end() {
    alone!();
    // The test needs its own process, because other tests do start such threads.
    let place = place();
    let child = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let unread = Sender::connect(&place.path).expect("connects");
        drop(mailbox.try_recv().map(drop));
        // The lane ends with its WELCOME unread.
        drop(unread);
        let mut sender = Sender::connect(&place.path).expect("connects");
        for _ in 0..10 {
            sender.send(&[1; 500]).expect("sent");
            let _ = mailbox.recv().expect("a message");
        }
        let late = Sender::connect(&place.path).expect("connects");
        drop(mailbox);
        drop((sender, late));
        until("no other thread is left", || threads() == 1);
    });
    assert_eq!(reap(child), 0);
}

//! Handovers of a lane that meet an obstacle: a listener that is never read, an owner without
//! space, a system that refuses.

#![allow(unsafe_code, reason = "exec")]

use crate::raw;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::*;
use rustix::net::{SocketAddrUnix, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender, SenderOptions};

fn waiting() -> SenderOptions {
    Options::new().on_death(OnDeath::WaitForSuccessor)
}

/// Returns a sender with one message that its killed receiver did not acknowledge.
fn orphan(path: &Path, options: &SenderOptions) -> Sender {
    let bound = path.to_owned();
    let reader = fork(move || {
        let mut mailbox = Mailbox::bind(&bound).expect("binds");
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
        sleep_indefinitely();
    });
    let mut sender = connect(options, path);
    sender.send(b"hello").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    kill(reader);
    sender.send(b"unread").expect("kept for the successor");
    sender
}

/// Receives until `sender` has handed over, and returns all messages that arrived.
fn inherit(mailbox: &mut Mailbox, sender: &mut Sender) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    until("the successor has the messages", || {
        sender.service().expect("in service");
        let message =
            mailbox.recv_timeout(Duration::from_millis(1)).map(|message| message.to_vec());
        mailbox.ack();
        got.extend(message.ok());
        sender.wait_acked(Some(Duration::ZERO)).is_ok()
    });
    while let Ok(message) = mailbox.recv_timeout(Duration::from_millis(20)) {
        got.push(message.to_vec());
    }
    got
}

/// The first search for a successor happens as soon as the end is noticed, no matter how recently
/// the sender checked whether its first receiver, which had not answered yet, still owned the path.
#[test]
fn first_search_for_successor_is_immediate() {
    alone!();
    for round in 0..20 {
        let place = place();
        let reader = fork(|| {
            let _mailbox = Mailbox::bind(&place.path).expect("binds");
            sleep_indefinitely();
        });
        let mut sender = connect(&waiting(), &place.path);
        sender.send(b"unread").expect("kept for the successor");
        sender.service().expect("waits");
        kill(reader);
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        sender.service().expect("the receiver hands over");
        let message = mailbox.recv_timeout(AMPLE);
        assert_eq!(message.as_deref().ok(), Some(&b"unread"[..]), "round {round}");
    }
}

/// Regression: the receiver forked a worker, then called `exec`. The worker's copy of the listener
/// still accepts connections, and the pidfd does not fire. The lane was handed to a listener that
/// no process read, and the later owner of the path never received it.
#[test]
fn lane_at_leftover_listener_moves_to_next_owner() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
        let worker = fork(|| thread::sleep(Duration::from_secs(60)));
        std::fs::write(place.path.with_extension("worker"), worker.to_string()).expect("written");
        let seconds = c"60";
        // SAFETY: the strings are terminated, and the list ends in a null pointer.
        unsafe {
            libc::execl(
                c"/bin/sleep".as_ptr(),
                c"sleep".as_ptr(),
                seconds.as_ptr(),
                std::ptr::null::<libc::c_char>(),
            );
        }
    });
    let mut sender = connect(&waiting(), &place.path);
    sender.send(b"hello").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    let mut name = String::new();
    until("the receiver calls exec", || {
        name = std::fs::read_to_string(format!("/proc/{reader}/comm")).unwrap_or_default();
        name == "sleep\n"
    });
    // The sender hands the lane over to the leftover listener, from which no process reads.
    until("the lane is handed over", || {
        sender.service().expect("waits");
        sender.peer().is_none()
    });
    sender.send(b"unread").expect("kept for the successor");
    // A sender that connects now reaches the same listener.
    let mut second = waiting().connect(&place.path).expect("connects");
    second.send(b"second").expect("sent");
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(inherit(&mut mailbox, &mut sender), [b"unread"]);
    assert_eq!(inherit(&mut mailbox, &mut second), [b"second"]);
    kill(reader);
    let worker = std::fs::read_to_string(place.path.with_extension("worker")).expect("read");
    let worker: i32 = worker.parse().expect("a pid");
    // SAFETY: this test started the process, through its child.
    unsafe { libc::kill(worker, libc::SIGKILL) };
}

/// A sender may withdraw a `HELLO` that is still answered later. Only one of two owners may read
/// the lane: the owner that reads the `HELLO` late, or the owner that received the lane in the
/// meantime.
#[test]
fn withdrawn_hello_is_not_read_by_second_owner() {
    alone!();
    let place = place();
    let mut late = Mailbox::bind(&place.path).expect("binds");
    let mut sender = waiting().connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    // Another process's socket takes the name.
    let other = place.path.with_extension("other");
    let mut owner = Mailbox::bind(&other).expect("binds");
    std::fs::rename(&other, &place.path).expect("renamed");
    assert_eq!(inherit(&mut owner, &mut sender), [b"one"]);
    let nothing = late.recv_timeout(Duration::from_millis(50)).expect_err("the lane was withdrawn");
    assert_eq!((nothing, late.take_errors(), late.sender_count()), (Error::TimedOut, vec![], 0));
    sender.send(b"two").expect("sent");
    assert_eq!(&*owner.recv_timeout(AMPLE).expect("a message"), b"two");
}

/// Regression: every error in a handover was permanently treated as "no successor yet".
#[test]
fn permanent_handover_error_is_returned_with_messages() {
    alone!();
    let place = place();
    let mut sender = orphan(&place.path, &waiting());
    std::fs::remove_file(&place.path).expect("removed");
    // Another program's socket has the name: connecting fails with EPROTOTYPE.
    let stream = raw::unbound(SocketType::STREAM);
    rustix::net::bind(&stream, &SocketAddrUnix::new(&place.path).expect("a path")).expect("bind");
    rustix::net::listen(&stream, 1).expect("listen");
    let mut error = None;
    until("the error is reported", || {
        error = sender.service().err();
        error.is_some()
    });
    assert_eq!(error.map(|error| error.errno()), Some(libc::EPROTOTYPE));
    assert_eq!(sender.send(b"more").expect_err("a permanent error").errno(), libc::EPROTOTYPE);
    assert_eq!(sender.take_unread().expect("the unread messages"), [b"unread"]);
}

/// A lack of descriptors does not end the lane: the error is reported if the lack lasts, and the
/// lane continues.
#[test]
fn sender_short_of_descriptors_continues_once_available() {
    alone!();
    let place = place();
    let child = fork(|| {
        let options =
            waiting().handshake_timeout(Duration::from_millis(100)).raise_descriptor_limit(false);
        let mut sender = orphan(&place.path, &options);
        let most = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: most.maximum })
            .expect("lowered");
        let file = std::fs::File::open("/dev/null").expect("a file");
        let mut held = Vec::new();
        while let Ok(copy) = file.try_clone() {
            held.push(copy);
        }
        let mut error = None;
        until("the error is reported", || {
            error = sender.service().err();
            error.is_some()
        });
        assert_eq!(error.map(|error| error.errno()), Some(libc::EMFILE));
        drop(held);
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        assert_eq!(inherit(&mut mailbox, &mut sender), [b"unread"]);
    });
    assert_eq!(reap(child), 0);
}

/// Returns a mailbox whose only lane is in use.
fn full_mailbox(path: &Path) -> (Mailbox, Sender) {
    let mut mailbox = Options::new().max_lanes(1).bind(path).expect("binds");
    let mut occupant = Sender::connect(path).expect("connects");
    occupant.send(b"here").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"here");
    (mailbox, occupant)
}

/// Regression: if the successor had no space for one more lane, the lane ended permanently.
#[test]
fn sender_waits_for_full_successor() {
    alone!();
    let place = place();
    let mut sender = orphan(&place.path, &waiting());
    let (mut full, _occupant) = full_mailbox(&place.path);
    let mut refused = Vec::new();
    until("the receiver refuses the lane", || {
        sender.service().expect("the connection lives");
        let _ = full.recv_timeout(Duration::from_millis(1)).map(drop);
        refused.extend(full.take_errors());
        !refused.is_empty()
    });
    assert!(refused.iter().all(|fault| matches!(fault, Error::Full { .. })), "{refused:?}");
    sender.send(b"more").expect("the message is kept");
    drop(full);
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(inherit(&mut mailbox, &mut sender), [&b"unread"[..], b"more"]);

    // Alternatively, the sender takes its messages back while it waits.
    let mut sender = orphan(&place.path.with_extension("b"), &waiting());
    let small = place.path.with_extension("b");
    let (mut full, _occupant) = full_mailbox(&small);
    until("the receiver refuses the lane", || {
        sender.service().expect("the connection lives");
        let _ = full.recv_timeout(Duration::from_millis(1)).map(drop);
        !full.take_errors().is_empty()
    });
    assert_eq!(sender.take_unread().expect("the unread messages"), [b"unread"]);
}

/// A refusal for another reason ends the lane, and the messages can be taken back.
#[test]
fn refusal_by_successor_ends_lane() {
    alone!();
    for errno in [libc::EACCES, libc::EPROTONOSUPPORT] {
        let place = place();
        let mut sender = orphan(&place.path, &waiting());
        std::fs::remove_file(&place.path).expect("removed");
        let listener = raw::listen(&place.path);
        until("the lane is handed over", || {
            sender.service().expect("no refusal yet");
            sender.peer().is_none()
        });
        let socket = raw::accept(&listener);
        assert_eq!(raw::receive(&socket).0, raw::HELLO);
        let refused = raw::note(raw::REFUSED, &[errno.cast_unsigned()]);
        assert!(raw::send(&socket, &refused, &[]));
        let error = sender.service().expect_err("refused");
        assert!(matches!(error, Error::Refused { .. } | Error::Denied { .. }), "{error:?}");
        assert_eq!(sender.take_unread().expect("the unread messages"), [b"unread"]);
    }
}

/// Regression: the error was "A process of uid 4294967295 died", because before the `WELCOME`, only
/// the kernel knew the process.
#[test]
fn hang_up_before_welcome_names_process() {
    alone!();
    let place = place();
    let listener = raw::listen(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    drop(raw::accept(&listener));
    let error = sender.send(b"not received").expect_err("the peer hung up");
    assert!(error.to_string().starts_with(&format!("pid {} ", std::process::id())), "{error}");

    let (ours, theirs) = raw::pair();
    let mut sender = Sender::from_socket(ours).expect("the lane begins");
    drop(theirs);
    let error = sender.send(b"not received").expect_err("the peer hung up");
    assert!(error.to_string().starts_with("an unidentified process"), "{error}");
}

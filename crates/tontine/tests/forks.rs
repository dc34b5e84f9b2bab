//! Forks and execs in the middle of everything: handles that a child inherits, and ends that die or
//! change their program while a child keeps what they had open.

#![allow(unsafe_code, reason = "fork and exec")]

mod common;

use std::thread;
use std::time::Instant;

use common::{
    AMPLE, SHORT, Signal, connect, fork, kill, place, reap, signal, sleep_for_ever, until,
};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

fn exec_sleep() {
    let arguments = [c"sleep".as_ptr(), c"20".as_ptr(), std::ptr::null()];
    // SAFETY: terminated strings in a terminated list.
    unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
}

/// As `fork`, without a life: a child that joins has its own page where its parent's would be.
fn bare_fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the child leaves by `_exit` or a signal, never into the harness.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends this process.
            unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
        }
        pid => pid,
    }
}

/// The child of a fork in the middle of a batch acknowledged on a page that it does not inherit,
/// and crashed; or it was told that it is forked, and not how many messages it had been given.
#[test]
fn a_batch_ends_with_the_fork_in_it() {
    for forks_at in 0..3 {
        let place = place();
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let mut sender = Sender::connect(&place.path).expect("connects");
        for number in 0..3_u8 {
            sender.send(&[number]).expect("sent");
        }
        let (mut given, mut child) = (0, None);
        let count = mailbox.recv_batch(3, |_| {
            if given == forks_at {
                // SAFETY: the child leaves by `_exit` below, or a signal.
                child = Some(unsafe { libc::fork() });
            }
            given += 1;
        });
        let child = child.expect("it forked");
        if child == 0 {
            let fine = count == Ok(forks_at + 1)
                && mailbox.try_recv().is_err_and(|error| error == Error::Forked);
            // SAFETY: ends this process.
            unsafe { libc::_exit(if fine { 0 } else { 101 }) }
        }
        assert_eq!(reap(child), 0, "a fork in message {forks_at}");
        assert_eq!(count, Ok(3));
        sender.wait_read(Some(AMPLE)).expect("the parent acknowledged all");
    }
}

/// An armed mailbox, or one with a message handed out, touched in a forked child memory that a
/// child does not inherit, and the child crashed. A reservation did the same.
#[test]
fn forked_handles_in_the_middle_of_everything_are_stale_and_harmless() {
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    mailbox.recv_timeout(AMPLE).expect("handed out, not acknowledged");
    let child = bare_fork(|| {
        mailbox.acknowledge();
        assert_eq!(mailbox.try_recv().expect_err("stale"), Error::Forked);
    });
    assert_eq!(reap(child), 0);
    mailbox.acknowledge();
    while !mailbox.arm().expect("arms") {}
    let child = bare_fork(|| {
        assert_eq!(mailbox.try_recv().expect_err("stale"), Error::Forked);
        assert_eq!(mailbox.recv_timeout(SHORT).expect_err("stale"), Error::Forked);
        assert_eq!(mailbox.arm().expect_err("stale"), Error::Forked);
        assert_eq!(mailbox.recv_batch(1, |_| ()).expect_err("stale"), Error::Forked);
        // Asking must not take what the parent was sent.
        sender.unread_bytes();
        assert_eq!(sender.wait_read(None).expect_err("stale"), Error::Forked);
        assert_eq!(sender.unread().expect_err("stale"), Error::Forked);
        assert_eq!(sender.service().expect_err("stale"), Error::Forked);
        assert_eq!(sender.try_clone().expect_err("stale"), Error::Forked);
    });
    assert_eq!(reap(child), 0);
    let mut reserved = Some(sender.reserve(3).expect("room"));
    let child = bare_fork(|| {
        let reserved = reserved.take().expect("the child's copy");
        assert_eq!(reserved.commit().expect_err("stale"), Error::Forked);
    });
    assert_eq!(reap(child), 0);
    let mut reserved = reserved.expect("the parent's");
    reserved.copy_from_slice(b"two");
    reserved.commit().expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"two");
    mailbox.acknowledge();
    sender.wait_read(Some(AMPLE)).expect("read");
    assert_eq!(mailbox.faults(), []);
}

/// A reader with a forked child that keeps its connections, its listener or both.
fn reader_with_child(place: &common::Place, receives: usize, end: impl FnOnce()) -> (i32, i32) {
    let told = Signal::new();
    let path = place.path.clone();
    let reader = fork(|| {
        let mut mailbox = Options::new().lane_cap(1 << 16).bind(&path).expect("binds");
        told.give(0);
        for _ in 0..receives {
            mailbox.recv().expect("a message");
        }
        mailbox.acknowledge();
        let child = fork(sleep_for_ever);
        told.give(child);
        thread::sleep(SHORT);
        end();
    });
    assert_eq!(told.take(), 0);
    let mut sender = None;
    if receives > 0 {
        let mut first = Sender::connect(&place.path).expect("connects");
        (0..receives).for_each(|_| first.send(b"x").expect("sent"));
        sender = Some(first);
    }
    let child = told.take();
    // Blocked, or about to.
    let mut sender = sender.unwrap_or_else(|| Sender::connect(&place.path).expect("connects"));
    let started = Instant::now();
    let error = loop {
        if let Err(error) = sender.send_timeout(&[1; 1000], AMPLE) {
            break error;
        }
    };
    assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
    assert!(started.elapsed() < AMPLE / 2, "{:?}", started.elapsed());
    (reader, child)
}

/// Ends this process without dropping anything: a mailbox that is dropped is closed, not dead.
fn end_at_once() {
    // SAFETY: ends this process.
    unsafe { libc::_exit(0) }
}

/// Before the welcome, only the connection was watched: a sender in the queue of a listener that a
/// dead owner's child kept open waited for ever.
#[test]
fn a_reader_that_dies_while_its_forked_child_lives_is_noticed() {
    for receives in [3, 0] {
        let place = place();
        let (reader, child) = reader_with_child(&place, receives, end_at_once);
        assert_eq!(reap(reader), 0);
        let error = Sender::connect(&place.path).expect_err("nobody is there");
        assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
        let _successor = Mailbox::bind(&place.path).expect("free");
        signal(child, libc::SIGKILL);
    }
}

#[test]
fn a_reader_that_calls_exec_is_dead() {
    for with_child in [false, true] {
        let place = place();
        let path = place.path.clone();
        let told = Signal::new();
        let reader = fork(|| {
            let mut mailbox = Options::new().lane_cap(1 << 14).bind(&path).expect("binds");
            mailbox.recv().expect("a message");
            told.give(if with_child { fork(sleep_for_ever) } else { 0 });
            exec_sleep();
        });
        let mut sender = connect(&Options::new(), &place.path);
        sender.send(b"one").expect("sent");
        let child = told.take();
        let error = loop {
            if let Err(error) = sender.send_timeout(&[1; 1000], AMPLE) {
                break error;
            }
        };
        assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
        // The word is marked a moment before `exec` closes what the claim stands on.
        until("its path is free", || Mailbox::bind(&place.path).is_ok());
        kill(reader);
        if with_child {
            signal(child, libc::SIGKILL);
        }
    }
}

/// A sender that called `exec` while its forked child kept the connection was never forgotten:
/// neither hang-up nor pidfd tell of it, and the receiver did not look at the life word.
#[test]
fn a_sender_that_calls_exec_is_forgotten_after_its_mail_is_read() {
    for with_child in [false, true] {
        let place = place();
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let path = place.path.clone();
        let told = Signal::new();
        let child = fork(|| {
            let mut sender = Sender::connect(&path).expect("connects");
            sender.send(b"before").expect("sent");
            sender.wait_read(Some(AMPLE)).expect("read");
            sender.send(b"after").expect("sent");
            told.give(if with_child { fork(sleep_for_ever) } else { 0 });
            exec_sleep();
        });
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"before");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"after");
        let grandchild = told.take();
        until("its lane is gone", || {
            assert!(mailbox.recv_timeout(SHORT).is_err());
            mailbox.lanes() == 0
        });
        kill(child);
        if with_child {
            signal(grandchild, libc::SIGKILL);
        }
    }
}

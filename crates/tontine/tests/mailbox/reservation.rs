//! Messages written in place, whose receiver requests memory, dies or closes between `reserve` and
//! `commit`, and reservations inherited by a forked child.

#![allow(unsafe_code, reason = "fork")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::common::*;
use crate::requested_back::until_requested_back;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender};

/// Starts a receiver that requests a large chunk once it is notified, and a sender whose lane has
/// one.
fn idle_reader(place: &Place, on_death: OnDeath) -> (i32, Signal, Sender) {
    let (path, go) = (place.path.clone(), Signal::new());
    let reader = fork(|| {
        let options = Options::new().shrink_after(Duration::from_millis(1));
        let mut mailbox = options.bind(&path).expect("binds");
        // The receiver waits in its mailbox only if it may request memory.
        for _ in 0..2 {
            let _ = mailbox.recv().expect("a message");
            mailbox.ack();
            go.take();
        }
        let _ = mailbox.recv().expect("no message");
    });
    let mut sender = connect(&Options::new().on_death(on_death), &place.path);
    sender.send(b"first").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    let mut large = sender.reserve(200_000).expect("the lane grows");
    large.fill(1);
    large.commit().expect("sent");
    go.give(0);
    sender.wait_acked(Some(AMPLE)).expect("read");
    (reader, go, sender)
}

/// Regression: an idle receiver requested the large chunk and died. `commit`, which saw the death,
/// returned the chunk before it published. It wrote a header far past the end of a chunk of 4,096
/// bytes, or, for a small message, published the new chunk's bytes as the message.
#[test]
fn chunk_with_reservation_is_not_returned() {
    alone!();
    for length in [200_000, 100] {
        let place = place();
        let (reader, go, mut sender) = idle_reader(&place, OnDeath::WaitForSuccessor);
        let mut reserved = sender.reserve(length).expect("space is free");
        reserved.fill(7);
        go.give(0);
        until_requested_back();
        kill(reader);
        reserved.commit().expect("kept for the successor");
        let mut successor = Mailbox::bind(&place.path).expect("a free address");
        until("the lane is handed over", || {
            sender.service().expect("waits for a successor");
            let message = successor.recv_timeout(Duration::from_millis(1));
            message.is_ok_and(|message| *message == vec![7; length])
        });
    }
}

#[test]
fn commit_to_dead_receiver_fails() {
    alone!();
    let place = place();
    let (reader, go, mut sender) = idle_reader(&place, OnDeath::Fail);
    let mut reserved = sender.reserve(200_000).expect("space is free");
    reserved.fill(7);
    go.give(0);
    until_requested_back();
    kill(reader);
    let error = reserved.commit().expect_err("the peer has died");
    assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
    assert_eq!(sender.take_unread().expect("the process has ended"), Vec::<Vec<u8>>::new());
}

/// Regression: `commit` checked only whether the receiver was alive, and returned `Ok` for a
/// receiver that had closed.
#[test]
fn commit_to_closed_mailbox_fails() {
    alone!();
    for on_death in [OnDeath::Fail, OnDeath::WaitForSuccessor] {
        let (place, mut mailbox) = bound();
        let mut sender = Options::new().on_death(on_death).connect(&place.path).expect("connects");
        sender.send(b"first").expect("sent");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"first");
        mailbox.ack();
        sender.wait_acked(Some(AMPLE)).expect("read");
        let mut reserved = sender.reserve(8).expect("space is free");
        reserved.fill(7);
        mailbox.close();
        let error = reserved.commit().expect_err("closed");
        assert_eq!(error.errno(), libc::EPIPE, "{error}");
        assert_eq!(sender.take_unread().expect("the mailbox is closed"), Vec::<Vec<u8>>::new());
    }
}

/// Regression: a child does not inherit the memory of its parent's reservation. Safe code in the
/// child crashed when it read that memory, or wrote to whatever had been mapped there since the
/// fork.
#[test]
fn forked_child_panics_on_access_to_parent_reservation() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    let mut reservation = Some(sender.reserve(3).expect("space is free"));
    let child = fork(|| {
        let mut reserved = reservation.take().expect("the child's copy");
        let reading = catch_unwind(AssertUnwindSafe(|| reserved[0])).expect_err("reads");
        let writing = catch_unwind(AssertUnwindSafe(|| reserved.fill(9))).expect_err("writes");
        for panic in [reading, writing] {
            let text = panic.downcast_ref::<&str>().expect("a message");
            assert!(text.contains("forked child"), "{text}");
        }
        assert_eq!(reserved.commit(), Err(Error::Forked));
    });
    assert_eq!(reap(child), 0);
    let mut reserved = reservation.expect("the parent's");
    reserved.copy_from_slice(b"two");
    reserved.commit().expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"two");
}

//! The mailbox as its users see it, between threads of one process and between processes.

use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::raw;
use std::path::Path;
use tontine::Error;

use tontine::mailbox::{Fences, Mailbox, OnDeath, Options, Sender, SenderOptions, WaitStrategy};

#[test]
fn small_messages_arrive_in_every_mode() {
    alone!();
    let place = place();
    for fences in [Fences::Asymmetric, Fences::Symmetric] {
        for waiting in [WaitStrategy::SpinThenSleep(Duration::from_micros(5)), WaitStrategy::Sleep]
        {
            let options = Options::new().fences(fences).wait_strategy(waiting).lane_cap(1 << 16);
            let mut mailbox = options.bind(&place.path).expect("binds");
            let mut sender = options.connect(&place.path).expect("connects");
            let count = 100_000_u64;
            let sending = thread::spawn(move || {
                for number in 0..count {
                    sender.send_timeout(&number.to_le_bytes(), AMPLE).expect("sent");
                }
                sender.wait_acked(Some(AMPLE)).expect("all messages are read");
            });
            for number in 0..count {
                let message = mailbox.recv_timeout(AMPLE).expect("a message");
                assert_eq!(*message, number.to_le_bytes(), "{fences:?} {waiting:?}");
            }
            mailbox.ack();
            assert_eq!(mailbox.try_recv().expect_err("no further message"), Error::WouldBlock);
            sending.join().expect("the sender ends");
        }
    }
}

/// Regression: a receiver that had passed padding and found nothing after it published the free
/// space, padding included, but not the position. A sender that saw the free space before the
/// position took this for a protocol violation and closed the lane.
#[test]
fn padding_without_following_message_keeps_lane_intact() {
    alone!();
    let options = Options::new().lane_cap(1 << 16);
    let (place, mut mailbox) = bound_with(&options);
    let mut sender = options.first_chunk(1 << 16).connect(&place.path).expect("connects");
    let message = [7; 20_000];
    // Three messages fill the ring, except for a remainder that is too short for a fourth message.
    for _ in 0..3 {
        sender.send_timeout(&message, AMPLE).expect("sent");
    }
    for _ in 0..3 {
        let _ = mailbox.recv_timeout(AMPLE).expect("a message");
    }
    mailbox.ack();
    // The sender has been welcomed and is at the end of the ring, so a reservation writes padding.
    // No message is sent.
    sender.wait_acked(Some(AMPLE)).expect("all messages are read");
    let _ = sender.try_reserve(message.len()).expect("space behind padding");
    assert_eq!(mailbox.try_recv().expect_err("padding only"), Error::WouldBlock);
    // The third message checks for space twice, the fourth checks the position.
    for _ in 0..3 {
        sender.send_timeout(&message, AMPLE).expect("sent");
    }
    assert_eq!(sender.try_send(&message).expect_err("full"), Error::WouldBlock);
    for _ in 0..3 {
        assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), message);
    }
}

#[test]
fn lane_grows_to_smaller_of_both_caps() {
    alone!();
    let place = place();
    for (theirs, ours) in [(1 << 20, 64 << 20), (64 << 20, 1 << 20)] {
        let mut mailbox = Options::new().lane_cap(theirs).bind(&place.path).expect("binds");
        let mut sender = Options::new().lane_cap(ours).connect(&place.path).expect("connects");
        mailbox.try_recv().expect_err("no message yet");
        let mut sent = 0_u32;
        loop {
            match sender.try_send(&[7; 1000]) {
                Ok(()) => sent += 1,
                Err(Error::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((500..1_049).contains(&sent), "{sent} messages of 1,000 bytes in 1 MiB");
        for _ in 0..sent {
            assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), [7; 1000]);
        }
        mailbox.try_recv().expect_err("all messages were received");
        sender.try_send(&[7; 1000]).expect("the lane has space again");
    }
}

/// Connects, and waits until the lane is accepted: later messages have no stamp.
fn welcomed(options: &SenderOptions, path: &Path) -> Sender {
    let mut sender = connect(options, path);
    until("the lane is accepted", || {
        sender.service().expect("the receiver lives");
        sender.peer().is_some()
    });
    sender
}

#[test]
fn death_of_receiver_is_noticed_and_messages_remain() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        for _ in 0..3 {
            let _ = mailbox.recv().expect("a message");
        }
        sleep_indefinitely();
    });
    let mut sender = welcomed(&Options::new().into(), &place.path);
    for number in 0..10_u8 {
        sender.send(&[number; 5]).expect("sent");
    }
    until("two messages are acknowledged", || sender.unread_bytes() == 8 * 16);
    assert_eq!(sender.take_unread().expect_err("the receiver lives"), Error::WouldBlock);
    kill(reader);
    let error = sender.send(b"too late").expect_err("the peer has died");
    assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
    assert!(error.to_string().contains(&format!("pid {reader}")), "{error}");
    // The third message was handed out and never acknowledged.
    let unread = sender.take_unread().expect("the process has ended");
    assert_eq!(unread, (2..10_u8).map(|number| vec![number; 5]).collect::<Vec<_>>());
}

#[test]
fn successor_inherits_unacknowledged_messages() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        for _ in 0..100 {
            let _ = mailbox.recv().expect("a message");
        }
        sleep_indefinitely();
    });
    let options = Options::new().on_death(OnDeath::WaitForSuccessor);
    let mut sender = welcomed(&options, &place.path);
    let message = |number: u32| [number.to_le_bytes(); 20].concat();
    for number in 0..500 {
        sender.send(&message(number)).expect("sent");
    }
    until("99 messages are acknowledged", || sender.unread_bytes() < 402 * 88);
    kill(reader);
    for number in 500..600 {
        sender.send(&message(number)).expect("the lane waits for a successor");
    }
    let mut mailbox = Mailbox::bind(&place.path).expect("the dead reader's path is free");
    until("the successor is found", || {
        sender.service().expect("no error yet");
        mailbox.try_recv().is_ok_and(|first| *first == *message(99))
    });
    for number in 100..600 {
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), message(number));
    }
    sender.send(b"on we go").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"on we go");
}

/// Regression: a program that adopted a hundred sockets, for children yet to be started, silently
/// lost the first sockets, which were treated as pending connections that send nothing.
#[test]
fn adopted_sockets_may_stay_silent_indefinitely() {
    alone!();
    let _place = place();
    let deadline = Duration::from_millis(10);
    let mut mailbox = Options::new().handshake_timeout(deadline).unbound().expect("opens");
    let mut theirs = Vec::new();
    for _ in 0..100 {
        let (one, other) = raw::pair();
        mailbox.adopt(one).expect("takes it");
        theirs.push(other);
    }
    assert_eq!(mailbox.recv_timeout(10 * deadline).expect_err("no message"), Error::TimedOut);
    let mut senders = Vec::new();
    for (number, socket) in theirs.into_iter().enumerate() {
        let mut sender = Sender::from_socket(socket).expect("begins a lane");
        sender.send(&number.to_le_bytes()).expect("sent");
        senders.push(sender);
    }
    let mut heard: Vec<_> =
        (0..100).map(|_| mailbox.recv_timeout(AMPLE).expect("a message").to_vec()).collect();
    heard.sort();
    heard.dedup();
    assert_eq!((heard.len(), mailbox.sender_count()), (100, 100));
    assert_eq!(mailbox.take_errors(), []);
}

#[test]
fn requeued_message_is_received_again_or_stays_unread() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    for message in [b"one", b"two"] {
        sender.send(message).expect("sent");
    }
    for _ in 0..3 {
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"one");
        mailbox.requeue();
    }
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("the message again"), b"one");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("the next message"), b"two");
    mailbox.requeue();
    drop(mailbox);
    assert_eq!(sender.take_unread().expect("closed"), [b"two"]);
}

#[test]
fn message_converts_into_its_bytes_without_copy() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    let long = vec![7; 10_000];
    for message in [&long[..], b"short", &long, b""] {
        sender.send(message).expect("sent");
    }
    let message = mailbox.recv_timeout(AMPLE).expect("a message");
    let (address, id) = (message.as_ptr(), message.sender());
    let bytes = message.into_vec();
    assert_eq!((bytes.as_ptr(), &bytes), (address, &long));
    let mailbox_ref: &Mailbox = &mailbox;
    assert_eq!(mailbox_ref.is_alive(id), Some(true));
    // The buffer is gone, so the next message has a short one of its own.
    assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").into_vec(), b"short");
    assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), long);
    // A message that is much shorter than the buffer does not take it along.
    let bytes = mailbox.recv_timeout(AMPLE).expect("a message").into_vec();
    assert_eq!((bytes.len(), bytes.capacity()), (0, 0));
    drop(sender);
    until("the lane is removed", || mailbox.try_recv().is_err() && mailbox.sender_count() == 0);
    assert_eq!(mailbox.is_alive(id), None);
}

/// Both ends count the messages in between, in several chunks and laps.
#[test]
fn unread_counts_of_both_ends_follow_messages() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    let mut unread = 0;
    for number in 0..3000_usize {
        sender.send(&vec![0; number * 31 % 5000]).expect("sent");
        unread += 1;
        if number % 4 != 0 {
            drop(mailbox.recv_timeout(AMPLE).expect("a message"));
            mailbox.ack();
            unread -= 1;
        }
        assert_eq!(sender.unread_count(), unread);
    }
    for left in (0..unread).rev() {
        drop(mailbox.recv_timeout(AMPLE).expect("a message"));
        // The one that was received is not acknowledged.
        assert_eq!((mailbox.unread_count(), sender.unread_count()), (Ok(left), left + 1));
    }
}

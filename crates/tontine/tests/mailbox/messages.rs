//! The mailbox as its users see it, between threads of one process and between processes.

#![allow(unsafe_code, reason = "zero-copy receiving")]

use std::thread;
use std::time::Duration;

use crate::common::{AMPLE, connect, fork, kill, place, reap, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tontine::Error;
use tontine::mailbox::{Fences, Mailbox, OnDeath, Options, Sender, WaitStrategy};

#[test]
fn messages_arrive_whole_and_in_order() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"before the lane is accepted").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"before the lane is accepted");
    for length in 0..300_usize {
        sender.send(&vec![length as u8; length]).expect("sent");
    }
    for length in 0..300_usize {
        let message = mailbox.recv_timeout(AMPLE).expect("a message");
        assert_eq!(&*message, vec![length as u8; length]);
        assert_eq!(message.peer().pid, Some(std::process::id()));
    }
    assert_eq!(mailbox.try_recv().expect_err("no further message"), Error::WouldBlock);
    assert!(mailbox.take_errors().is_empty());
}

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
    let place = place();
    let options = Options::new().first_chunk(1 << 16).lane_cap(1 << 16);
    let mut mailbox = options.bind(&place.path).expect("binds");
    let mut sender = options.connect(&place.path).expect("connects");
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

#[test]
fn longest_message_is_sent_longer_message_refused() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(1 << 20);
    let mut mailbox = options.bind(&place.path).expect("binds");
    let mut sender = options.connect(&place.path).expect("connects");
    mailbox.try_recv().expect_err("no message yet");
    let most = sender.max_message_len();
    let error = sender.try_send(&vec![0; most + 1]).expect_err("too large");
    assert_eq!(error, Error::TooLarge { len: most as u64 + 1, max: most as u64, set_by: None });
    let longest: Vec<u8> = (0..most).map(|n| n as u8).collect();
    for _ in 0..5 {
        until("the longest message fits", || {
            let _ = mailbox.try_recv();
            sender.try_send(&longest).is_ok()
        });
        assert!(*mailbox.recv_timeout(AMPLE).expect("a message") == *longest);
    }
}

#[test]
fn death_of_receiver_is_noticed_and_messages_remain() {
    alone!();
    let place = place();
    let path = place.path.clone();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        for _ in 0..3 {
            let _ = mailbox.recv().expect("a message");
        }
        loop {
            thread::park();
        }
    });
    let mut sender = connect(&Options::new(), &place.path);
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
    let path = place.path.clone();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        for _ in 0..100 {
            let _ = mailbox.recv().expect("a message");
        }
        loop {
            thread::park();
        }
    });
    let options = Options::new().on_death(OnDeath::WaitForSuccessor);
    let mut sender = connect(&options, &place.path);
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

#[test]
fn closed_mailbox_returns_closed_and_frees_name() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    let error = Mailbox::bind(&place.path).expect_err("taken");
    assert_eq!(error.errno(), libc::EADDRINUSE, "{error}");
    sender.send(b"read").expect("sent");
    let _ = mailbox.recv_timeout(AMPLE).expect("accepts and reads");
    sender.send(b"unread").expect("sent");
    mailbox.close();
    let error = sender.send(b"more").expect_err("closed");
    assert_eq!(error.errno(), libc::EPIPE, "{error}");
    assert_eq!(sender.take_unread().expect("the mailbox is closed"), [b"unread"]);
    assert!(!place.path.exists());
    Mailbox::bind(&place.path).expect("free again");
}

#[test]
fn sender_that_ends_leaves_sent_messages() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let path = place.path.clone();
    let child = fork(|| {
        let mut sender = Sender::connect(&path).expect("connects");
        for number in 0..100_u32 {
            sender.send(&number.to_le_bytes()).expect("sent");
        }
    });
    assert_eq!(reap(child), 0);
    for number in 0..100_u32 {
        let message = mailbox.recv_timeout(AMPLE).expect("a message");
        assert_eq!(*message, number.to_le_bytes());
        assert_eq!(message.peer().pid, u32::try_from(child).ok());
    }
    until("the lane is removed", || {
        assert_eq!(mailbox.try_recv().expect_err("no message is left"), Error::WouldBlock);
        mailbox.sender_count() == 0
    });
}

#[test]
fn handles_in_forked_child_return_forked() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"from the parent").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"from the parent");
    // These are a forked child's copies of both handles.
    let mut copies = Some((sender, mailbox));
    let child = fork(|| {
        let (mut sender, mut mailbox) = copies.take().expect("the child's copies");
        assert_eq!(sender.send(b"from the child").expect_err("inherited by fork"), Error::Forked);
        assert_eq!(mailbox.try_recv().expect_err("inherited by fork"), Error::Forked);
        drop((sender, mailbox));
    });
    assert_eq!(reap(child), 0);
    let (mut sender, mut mailbox) = copies.take().expect("the parent's are untouched");
    sender.send(b"still here").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"still here");
    assert!(place.path.exists(), "the child did not remove it");
}

#[test]
fn socket_pair_needs_no_address() {
    alone!();
    let _place = place();
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair");
    let mut mailbox = Mailbox::unbound().expect("opens");
    mailbox.adopt(ours).expect("takes it");
    let mut sender = Sender::from_socket(theirs).expect("begins a lane");
    sender.send(b"no name").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"no name");
    assert!(sender.try_clone().is_err(), "the mailbox has no address");
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
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a pair");
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
fn abstract_name_works_like_path() {
    alone!();
    let _place = place();
    let name = format!("@tontine-test-{}", std::process::id());
    let mut mailbox = Mailbox::bind(&name).expect("binds");
    let mut sender = Sender::connect(&name).expect("connects");
    let mut another = sender.try_clone().expect("a separate lane");
    sender.send(b"one").expect("sent");
    another.send(b"two").expect("sent");
    let first = mailbox.recv_timeout(AMPLE).map(|message| message.sender()).expect("a message");
    let second = mailbox.recv_timeout(AMPLE).map(|message| message.sender()).expect("a message");
    assert_ne!(first, second);
    assert_eq!(mailbox.sender_count(), 2);
}

#[test]
fn reservation_is_sent_on_commit() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    let _ = sender.reserve(100).expect("space is free");
    let mut reserved = sender.reserve(5).expect("space is free");
    reserved.copy_from_slice(b"later");
    reserved.commit().expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"later");
    sender.send(b"in place").expect("sent");
    // SAFETY: the sender is this test, which changes nothing.
    let message = unsafe { mailbox.recv_in_place() }.expect("a message");
    assert_eq!(&*message, b"in place");
}

#[test]
fn sleeping_receiver_is_woken_by_message() {
    alone!();
    let place = place();
    for fences in [Fences::Asymmetric, Fences::Symmetric] {
        let options = Options::new().wait_strategy(WaitStrategy::Sleep).fences(fences);
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut sender = options.connect(&place.path).expect("connects");
        let sending = thread::spawn(move || {
            for number in 0..200_u32 {
                thread::sleep(Duration::from_micros(200));
                sender.send(&number.to_le_bytes()).expect("sent");
            }
        });
        for number in 0..200_u32 {
            let message = mailbox.recv_timeout(AMPLE).expect("a message");
            assert_eq!(*message, number.to_le_bytes());
        }
        sending.join().expect("the sender ends");
    }
}

#[test]
fn poll_and_arm_report_pending_messages() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let path = place.path.clone();
    let sending = thread::spawn(move || {
        let mut sender = Sender::connect(&path).expect("connects");
        for number in 0..100_u32 {
            thread::sleep(Duration::from_micros(300));
            sender.send(&number.to_le_bytes()).expect("sent");
        }
        sender.wait_acked(Some(AMPLE)).expect("read");
    });
    let mut expected = 0;
    while expected < 100_u32 {
        if mailbox.arm().expect("arms") {
            let mut polled = [PollFd::new(&mailbox, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&Timespec { tv_sec: 60, tv_nsec: 0 }));
            assert_eq!(ready, Ok(1), "message {expected} was not announced");
        }
        loop {
            match mailbox.try_recv() {
                Ok(message) => assert_eq!(*message, expected.to_le_bytes()),
                Err(Error::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
            expected += 1;
        }
    }
    mailbox.ack();
    let _ = mailbox.try_recv();
    sending.join().expect("the sender ends");
}

#[test]
fn requeued_message_is_received_again_or_stays_unread() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
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

/// Regression: the lock file was once called `mailbox.lock.lock`, and a living owner's address
/// `mailbox.lock`: both the mailbox and the path lock added the suffix.
#[test]
fn lock_file_and_refusal_have_documented_names() {
    alone!();
    let place = place();
    let mailbox = Mailbox::bind(&place.path).expect("binds");
    let Err(Error::AddrInUse { address, .. }) = Mailbox::bind(&place.path) else {
        panic!("the address has a living owner");
    };
    assert_eq!(address, place.path.display().to_string());
    let folder = place.path.parent().expect("a folder");
    let names = || {
        let files = std::fs::read_dir(folder).expect("readable").flatten();
        let mut names: Vec<_> = files.map(|file| file.file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["mailbox", "mailbox.lock"]);
    drop(mailbox);
    assert_eq!(names(), Vec::<&str>::new());
}

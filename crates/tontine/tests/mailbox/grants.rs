//! Sharing a mailbox's memory among senders: each has a small share, requests more when needed, and
//! returns it.

use crate::raw;
use std::thread;
use std::time::Duration;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

const LARGE: usize = 1 << 20;

/// Creates senders whose first message has been read.
fn senders(count: usize, options: &Options, mailbox: &mut Mailbox, place: &Place) -> Vec<Sender> {
    let connected = (0..count).map(|_| {
        let mut sender = options.connect(&place.path).expect("connects");
        sender.send(b"small").expect("sent");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"small");
        sender
    });
    connected.collect()
}

/// Regression: each new sender was permanently granted 64 MiB while that much memory was left. With
/// the default options the twentieth sender could not send 1 MiB although the memory was idle.
#[test]
fn forty_senders_in_turn_send_large_message_twice() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        loop {
            let _ = mailbox.recv().expect("a message");
            assert_eq!(mailbox.take_errors(), []);
        }
    });
    let large = vec![1; LARGE];
    let mut senders: Vec<Sender> = Vec::new();
    for _ in 0..40 {
        let mut sender = connect(&Options::new(), &place.path);
        sender.send_timeout(&large, AMPLE).expect("the lane has space");
        sender.wait_acked(Some(AMPLE)).expect("read");
        senders.push(sender);
    }
    for sender in &mut senders {
        sender.send(b"small again").expect("the lane has space");
        sender.send_timeout(&large, AMPLE).expect("the lane has space");
        sender.wait_acked(Some(AMPLE)).expect("read");
    }
    kill(reader);
}

/// Regression: memory that a lane had returned stayed granted to that lane. In a mailbox with space
/// for two large lanes, no other lane could ever become large.
#[test]
fn returned_memory_is_granted_to_other_lanes() {
    alone!();
    let options = Options::new().mailbox_cap(16 << 20).max_lanes(8);
    let (place, mut mailbox) = bound_with(&options);
    let mut senders = senders(8, &Options::new(), &mut mailbox, &place);
    let large = vec![1; LARGE];
    for turn in (0..8).chain((0..8).rev()) {
        until("the lane has space", || {
            let sent = match senders[turn].try_send(&large) {
                Ok(()) => true,
                Err(Error::WouldBlock) => false,
                Err(error) => panic!("{error}"),
            };
            senders.iter_mut().for_each(|sender| sender.service().expect("alive"));
            while mailbox.try_recv().is_ok() {}
            assert_eq!(mailbox.take_errors(), []);
            sent
        });
    }
}

/// Regression: senders whose messages were read, and which made no further call, kept the memory
/// that other senders waited for, although every lane was empty. That memory is granted again, up
/// to twice the mailbox's cap.
#[test]
fn memory_of_idle_senders_is_granted_up_to_twice_the_cap() {
    alone!();
    let place = place();
    // Each of the messages takes a chunk of 2 MiB.
    let options = Options::new().mailbox_cap(9 << 20).max_lanes(9);
    let mut mailbox = options.bind(&place.path).expect("binds");
    let mut idle = senders(9, &Options::new(), &mut mailbox, &place);
    let large = vec![1; LARGE - 4096];
    let mut waiting = idle.pop().expect("a sender");
    for sender in &mut idle {
        until("the lane has space", || {
            let sent = sender.try_send(&large).is_ok();
            while mailbox.try_recv().is_ok() {}
            sent
        });
    }
    // The idle senders have 16 MiB and may use this memory again at any time, so another sender
    // gets no more than what is left of 18 MiB.
    for _ in 0..20 {
        assert_eq!(waiting.try_send(&large), Err(Error::WouldBlock));
        thread::sleep(Duration::from_millis(10));
        mailbox.try_recv().expect_err("no message");
    }
    idle[0].service().expect("returns its memory");
    until("the lane has space", || {
        let _ = mailbox.try_recv();
        waiting.try_send(&large).is_ok()
    });
    assert_eq!(mailbox.take_errors(), []);
}

/// Regression: a grant that arrived after the sender's deadline was never used.
#[test]
fn unused_grant_is_revoked_for_other_lanes() {
    alone!();
    let place = place();
    // Each of the messages takes a chunk of 2 MiB, and three such chunks do not fit.
    let options = Options::new().mailbox_cap(5 << 20).max_lanes(3);
    let mut mailbox = options.bind(&place.path).expect("binds");
    let mut senders = senders(3, &Options::new(), &mut mailbox, &place);
    let large = vec![1; LARGE - 4096];
    for sender in &mut senders[..2] {
        assert_eq!(sender.try_send(&large), Err(Error::WouldBlock));
        assert_eq!(mailbox.try_recv().expect_err("no message yet"), Error::WouldBlock);
    }
    let mut idle_but = |last: usize| {
        until("the lane has the memory that the others did not use", || {
            let sent = senders[last].try_send(&large);
            senders.iter_mut().for_each(|sender| sender.service().expect("alive"));
            while mailbox.try_recv().is_ok() {}
            assert_eq!(mailbox.take_errors(), []);
            sent.is_ok()
        });
    };
    idle_but(2);
    // The memory returns to the first lane.
    idle_but(0);
}

/// Both ends run independently, with growing, requesting, returning and lowering in every order
/// that occurs. No sender is wrongly found to exceed its grant.
#[test]
fn concurrent_shrink_and_grow_keeps_lanes_intact() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let options = Options::new().mailbox_cap(2 << 20).max_lanes(4);
        let mut mailbox =
            options.shrink_after(Duration::from_millis(1)).bind(&place.path).expect("binds");
        for _ in 0..4 * 300 {
            let _ = mailbox.recv_timeout(AMPLE).expect("a message");
            assert_eq!(mailbox.take_errors(), []);
        }
        mailbox.ack();
        let _ = mailbox.recv_timeout(AMPLE);
    });
    thread::scope(|scope| {
        for name in 0..4_usize {
            let mut sender = connect(&Options::new().lane_cap(1 << 20), &place.path);
            scope.spawn(move || {
                for number in 0..300 {
                    let length = [8, 100_000, 3_000, 40_000][(number * 7 + name) % 4];
                    sender.send_timeout(&vec![1; length], AMPLE).expect("sent");
                    if number % 5 == 0 {
                        sender.wait_acked(Some(AMPLE)).expect("read");
                    }
                }
                sender.wait_acked(Some(AMPLE)).expect("read");
            });
        }
    });
    kill(reader);
}

/// A return lowers the grant only once for each request of the receiver.
#[test]
fn unrequested_return_closes_lane() {
    alone!();
    let (place, mut mailbox) = bound();
    let (socket, _chunk) = raw::lane(&place.path);
    accept(&mut mailbox);
    assert!(raw::send(&socket, &raw::note(raw::RETURNED, &[]), &[]));
    until("the lane is closed", || mailbox.try_recv().is_err() && mailbox.sender_count() == 0);
    let faults = mailbox.take_errors();
    assert!(faults.len() == 1 && faults[0].errno() == libc::EPROTO, "{faults:?}");
}

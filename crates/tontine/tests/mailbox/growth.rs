//! Growth of a lane: up to the memory that the mailbox can spare, and while descriptor tables are
//! full. Its costs are in `footprint.rs`.

use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::shortage::Held;
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

/// Sends messages of 1,000 bytes until no space is left; returns their number.
fn fill(sender: &mut Sender) -> u64 {
    let mut sent = 0;
    loop {
        match sender.try_send(&[7; 1000]) {
            Ok(()) => sent += 1,
            Err(Error::WouldBlock) => return sent,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the maximum number of messages that fit at once, while the mailbox has time to grant
/// more.
fn most_at_once(mailbox: &mut Mailbox, sender: &mut Sender) -> u64 {
    let rounds = (0..20).map(|_| {
        let sent = fill(sender);
        thread::sleep(Duration::from_millis(12));
        while mailbox.try_recv().is_ok() {}
        assert_eq!(mailbox.take_errors(), []);
        sent
    });
    rounds.max().unwrap_or(0)
}

/// Regression: a sender that requested more than its first share was never granted more, because
/// the mailbox compared the request with the sender's first announcement, which is the same. A
/// sender that had returned a large chunk and grew again did not count that chunk, which the
/// receiver had not left yet. The sender was therefore considered to exceed its grant, and its lane
/// was closed.
#[test]
fn lanes_share_mailbox_and_inherit_freed_memory() {
    alone!();
    let options = Options::new().lane_cap(1 << 20);
    let receiving = options.clone().mailbox_cap(1 << 20).max_lanes(64);
    let (place, mut mailbox) = bound_with(&receiving);
    let mut first = options.connect(&place.path).expect("connects");
    mailbox.try_recv().expect_err("no message yet");
    let one = most_at_once(&mut mailbox, &mut first) * 1008;
    assert!((200_000..1 << 20).contains(&one), "{one} bytes of a mailbox of 1 MiB");
    // Another sender still receives a lane.
    let mut second = options.connect(&place.path).expect("connects");
    second.send(b"late").expect("space in the first chunk");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"late");
    assert_eq!(mailbox.take_errors(), []);
    // The first sender leaves, and the second can use its memory.
    drop(first);
    until("the first lane is removed", || {
        let _ = mailbox.try_recv();
        mailbox.sender_count() == 1
    });
    let two = most_at_once(&mut mailbox, &mut second) * 1008;
    assert!(two > 200_000, "{two} bytes");
}

/// Regression: a sender whose descriptor table was full when the WELCOME arrived could not ring the
/// doorbell, and the receiver slept despite pending messages.
#[test]
fn sender_without_free_descriptor_is_served_then_grows() {
    alone!();
    let (place, mut mailbox) = bound();
    let heard = Signal::new();
    let child = fork(|| {
        let mut held = Held::new();
        held.leave(0);
        // Connecting returns a clear error until a descriptor is free.
        let mut sender = loop {
            match Sender::connect(&place.path) {
                Ok(sender) => break sender,
                Err(error) => assert_eq!(error.errno(), libc::EMFILE, "{error}"),
            }
            held.leave_one();
        };
        held.leave(0);
        for number in 0..20_u32 {
            thread::sleep(Duration::from_millis(10));
            sender.send(&number.to_le_bytes()).expect("sent");
        }
        assert_eq!(sender.peer(), None, "the welcome has no space");
        heard.take();
        // Until a descriptor is free, growing fails as if there were no space.
        let large = [7; 100_000];
        assert_eq!(sender.try_send(&large), Err(Error::WouldBlock));
        loop {
            match sender.send_timeout(&large, Duration::from_millis(5)) {
                Ok(()) => break,
                Err(error) => assert_eq!(error, Error::TimedOut),
            }
            held.leave_one();
        }
        held.leave_all();
        sender.wait_acked(Some(AMPLE)).expect("read");
    });
    for number in 0..20_u32 {
        let started = Instant::now();
        let message = mailbox.recv_timeout(AMPLE / 2).expect("a message");
        assert_eq!(*message, number.to_le_bytes());
        // A receiver that is not woken would check again only at its own deadline.
        assert!(started.elapsed() < AMPLE / 4, "the sender was not woken");
    }
    heard.give(0);
    assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), 100_000);
    let _ = mailbox.recv_timeout(Duration::from_millis(100));
    assert_eq!(reap(child), 0);
}

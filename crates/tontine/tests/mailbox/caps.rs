//! The capacity of a lane: whose cap applies, and when it is known.

use std::thread;

use crate::asleep::until_others_sleep;
use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Options, Sender, WaitStrategy};

/// Returns the maximum length in a refusal, and the pid of the process that set it.
fn limit(error: &Error) -> (u64, Option<u32>) {
    match error {
        Error::TooLarge { max, set_by, .. } => (*max, set_by.and_then(|peer| peer.pid)),
        other => panic!("{other}"),
    }
}

/// Regression: a message within the sender's cap but over the receiver's waited indefinitely in
/// `send` for space that could never exist.
#[test]
fn message_beyond_receiver_cap_is_refused_promptly() {
    alone!();
    let place = place();
    let narrow = Options::new().lane_cap(1 << 16);
    // The mailbox's cap leaves the lane either all of its memory, or the memory that remains after
    // the other lanes' shares.
    let shared = Options::new().mailbox_cap(1 << 16).max_lanes(1);
    let places = Options::new().mailbox_cap(1 << 16).max_lanes(9);
    for (theirs, cap) in [(narrow.into(), 1 << 16), (shared, 1 << 16), (places, 1 << 15)] {
        let mut mailbox = theirs.bind(&place.path).expect("binds");
        let mut sender = Sender::connect(&place.path).expect("connects");
        let before = sender.max_message_len();
        mailbox.try_recv().expect_err("no message yet");
        let error = sender.send_timeout(&[7; 20_000], AMPLE).expect_err("beyond the cap");
        let (most, by) = limit(&error);
        assert!((cap / 4 - 200..cap / 4).contains(&most), "{most} of {cap}");
        assert_eq!(by, Some(std::process::id()), "{error}");
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
        assert_eq!(sender.max_message_len() as u64, most);
        assert!(sender.max_message_len() < before);
        assert_eq!(sender.try_send(&[7; 20_000]), Err(error.clone()));
        assert_eq!(sender.arm(20_000), Err(error.clone()));
        assert_eq!(sender.reserve(20_000).expect_err("beyond the cap"), error);
        // Messages up to that length are sent.
        let longest = vec![7; most as usize];
        until("the longest message is sent", || {
            let _ = mailbox.try_recv();
            sender.try_send(&longest).is_ok()
        });
        assert!(*mailbox.recv_timeout(AMPLE).expect("a message") == *longest);
        assert_eq!(mailbox.take_errors(), []);
    }
}

/// Until the receiver has announced its cap, a message beyond the cap must wait like any other
/// large message. Regression: a blocked `send` was not notified when the cap became known.
#[test]
fn blocked_send_fails_once_receiver_cap_is_known() {
    alone!();
    let place = place();
    for waiting in [WaitStrategy::Sleep, WaitStrategy::Spin] {
        let mut mailbox = Options::new().lane_cap(1 << 16).bind(&place.path).expect("binds");
        let options = Options::new().wait_strategy(waiting);
        let mut sender = options.connect(&place.path).expect("connects");
        assert_eq!(sender.try_send(&[7; 400_000]), Err(Error::WouldBlock));
        thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send_timeout(&[7; 400_000], AMPLE));
            if waiting == WaitStrategy::Sleep {
                until_others_sleep();
            }
            mailbox.try_recv().expect_err("no message yet");
            let error = sending.join().expect("no panic").expect_err("beyond the cap");
            assert_eq!(limit(&error).1, Some(std::process::id()));
        });
    }
}

/// Before the handshake, the lane grows to 1 MiB without a grant. Messages that need more wait.
/// No message is lost or overtaken.
#[test]
fn message_over_255_kib_waits_for_welcome_others_do_not() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    let large = vec![9; 300_000];
    sender.send(b"small").expect("space in the first chunk");
    assert_eq!(sender.try_send(&large), Err(Error::WouldBlock));
    assert_eq!(sender.send_timeout(&large, SHORT), Err(Error::TimedOut));
    assert_eq!(
        sender.arm(large.len()),
        Ok(true),
        "the lane has no space, and a notification will arrive"
    );
    // The sender sends as many messages as the lane holds without a grant.
    let mut sent = 1;
    while sender.try_send(b"small").is_ok() {
        sent += 1;
        assert!(sent * 24 < 1 << 20, "the lane grew without a grant");
    }
    assert!(sent * 24 > 1000 << 10, "{sent} stamped records of 24 bytes");
    thread::scope(|scope| {
        let sending = scope.spawn(|| sender.send_timeout(&large, AMPLE));
        until_others_sleep();
        assert!(!sending.is_finished(), "the lane is not accepted yet");
        for _ in 0..sent {
            assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"small");
        }
        assert!(*mailbox.recv_timeout(AMPLE).expect("a message") == *large);
        sending.join().expect("no panic").expect("sent");
    });
    assert_eq!(mailbox.take_errors(), []);
    // A sender that must send large messages immediately can have a larger first chunk.
    let options = Options::new().first_chunk(1 << 19);
    let mut sender = options.connect(&place.path).expect("connects");
    sender.try_send(&large).expect("space before the lane is accepted");
    assert!(*mailbox.recv_timeout(AMPLE).expect("a message") == *large);
}

/// A sender of large messages waits for a slow receiver once its lane has the bound; a message that
/// does not fit, and short ones, still make it grow.
#[test]
fn large_backlog_bounds_lane_of_large_messages_only() {
    alone!();
    let place = place();
    let mut mailbox = Options::new().bind(&place.path).expect("binds");
    let mut sender = Options::new().large_backlog(1 << 20).connect(&place.path).expect("connects");
    accept(&mut mailbox);
    let fill = |sender: &mut Sender, length| {
        while sender.try_send(&vec![7; length]).is_ok() {}
        sender.unread_bytes()
    };
    let bytes = fill(&mut sender, 64 << 10);
    assert!((256 << 10..1 << 20).contains(&bytes), "{bytes} bytes of large messages");
    // The message needs a chunk of 4 MiB.
    until("the lane has grown", || {
        let _ = mailbox.try_recv();
        sender.try_send(&[7; 1 << 20]).is_ok()
    });
    let bytes = fill(&mut sender, 1 << 20);
    assert!((3 << 20..5 << 20).contains(&bytes), "{bytes} bytes after a larger message");
    until("the lane has grown to its cap", || {
        let _ = mailbox.try_recv();
        fill(&mut sender, 60 << 10) > 20 << 20
    });
}

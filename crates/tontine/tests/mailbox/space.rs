//! Waiting for space in a program's own event loop: `Sender::arm` and the descriptor.

use std::thread;
use std::time::Duration;

use crate::common::{AMPLE, is_readable, place, until};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

/// Returns a full lane, and the number of its messages.
fn full(options: &Options, path: &std::path::Path) -> (Mailbox, Sender, usize) {
    let mut mailbox = options.bind(path).expect("binds");
    let mut sender = options.connect(path).expect("connects");
    mailbox.try_recv().expect_err("no message yet");
    let mut sent = 0;
    until("the lane is full", || {
        let _ = sender.service();
        while sender.try_send(&[7; 100]).is_ok() {
            sent += 1;
        }
        sent > 30
    });
    (mailbox, sender, sent)
}

#[test]
fn armed_sender_is_notified_of_space() {
    alone!();
    let place = place();
    let (mut mailbox, mut sender, sent) = full(&Options::new().lane_cap(8192), &place.path);
    assert_eq!(sender.arm(100), Ok(true), "the lane has no space");
    assert!(!is_readable(&sender, Duration::ZERO), "no change");
    for _ in 0..sent {
        let _ = mailbox.recv_timeout(AMPLE).expect("a message");
    }
    mailbox.try_recv().expect_err("all messages were received");
    assert!(is_readable(&sender, AMPLE), "space was freed without a notification");
    assert_eq!(sender.arm(100), Ok(false), "the lane has space");
    sender.try_send(&[7; 100]).expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), [7; 100]);
}

/// Regression: free space was announced for each quarter of the ring, and when the lane was found
/// empty. If a receiver acknowledged one message and then worked for an hour, an armed sender was
/// not notified, and a sender that waited for the acknowledgement woke only by its own timer.
#[test]
fn explicit_acknowledgement_notifies_armed_sender() {
    alone!();
    let place = place();
    let (mut mailbox, mut sender, _) = full(&Options::new().lane_cap(8192), &place.path);
    assert_eq!(sender.arm(100), Ok(true), "the lane has no space");
    let _ = mailbox.recv_timeout(AMPLE).expect("a message");
    assert!(!is_readable(&sender, Duration::ZERO), "no change");
    mailbox.ack();
    assert!(
        is_readable(&sender, Duration::ZERO),
        "a message was acknowledged without a notification"
    );
}

/// Regression: like the previous test, with a receiver that takes long for each message and leaves
/// the acknowledgement to the next call.
#[test]
fn slow_receiver_announces_space_in_time() {
    alone!();
    let place = place();
    let (mut mailbox, mut sender, _) = full(&Options::new().lane_cap(8192), &place.path);
    let work = |mailbox: &mut Mailbox| {
        let _ = mailbox.recv_timeout(AMPLE).expect("a message");
        thread::sleep(Duration::from_millis(6));
    };
    let fill = |sender: &mut Sender| while sender.try_send(&[7; 100]).is_ok() {};
    // After this many messages the mailbox has noticed that its receiver is slow.
    for _ in 0..80 {
        work(&mut mailbox);
        fill(&mut sender);
    }
    // The mailbox has now just notified the sender, for whatever reason.
    assert_eq!(sender.arm(100), Ok(true), "the lane has no space");
    until("the sender is notified of space", || {
        work(&mut mailbox);
        is_readable(&sender, Duration::ZERO)
    });
    fill(&mut sender);
    assert_eq!(sender.arm(100), Ok(true), "the lane has no space");
    let less_than_a_quarter = 4096 / 4 / 112 - 1;
    let notified = (0..less_than_a_quarter).any(|_| {
        work(&mut mailbox);
        is_readable(&sender, Duration::ZERO)
    });
    assert!(notified, "{less_than_a_quarter} messages were read without a notification");
}

#[test]
fn unarmed_sender_is_not_notified() {
    alone!();
    let place = place();
    let (mut mailbox, mut sender, sent) = full(&Options::new().lane_cap(8192), &place.path);
    assert_eq!(sender.arm(100), Ok(true), "the lane has no space");
    assert_eq!(sender.try_send(&[7; 100]).expect_err("full"), Error::WouldBlock);
    for _ in 0..sent {
        let _ = mailbox.recv_timeout(AMPLE).expect("a message");
    }
    mailbox.try_recv().expect_err("all messages were received");
    assert!(
        !is_readable(&sender, Duration::ZERO),
        "the sender did not announce again that it waits"
    );
}

#[test]
fn arm_returns_too_large_and_closed_errors() {
    alone!();
    let place = place();
    let (mailbox, mut sender, _) = full(&Options::new().lane_cap(8192), &place.path);
    let most = sender.max_message_len();
    let error = sender.arm(most + 1).expect_err("beyond the cap");
    assert_eq!(sender.try_send(&vec![0; most + 1]), Err(error.clone()));
    assert_eq!(error, Error::TooLarge { len: most as u64 + 1, max: most as u64, set_by: None });
    mailbox.close();
    assert!(matches!(sender.arm(100), Err(Error::Closed { .. })));
}

//! In causal order, a message that was sent after another is received after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Order, Sender};

use crate::common::*;

fn causal() -> (Place, Mailbox) {
    let place = place();
    let mailbox = Options::new().order(Order::Causal).bind(&place.path).expect("binds");
    (place, mailbox)
}

/// Sends the numbers from 0 to `count`, each by the next of `senders` threads once the one before
/// it has returned from its send, and receives them by `receive`, which returns a number.
fn relay_race(
    senders: usize,
    count: usize,
    length: fn(usize) -> usize,
    mut receive: impl FnMut(&mut Mailbox) -> usize,
) {
    let (place, mut mailbox) = causal();
    let turn = AtomicUsize::new(0);
    let mut received = Vec::new();
    thread::scope(|scope| {
        for index in 0..senders {
            let (turn, path) = (&turn, &place.path);
            scope.spawn(move || {
                let mut sender = Sender::connect(path).expect("connects");
                for number in (index..count).step_by(senders) {
                    while turn.load(Ordering::Acquire) != number {
                        thread::yield_now();
                    }
                    let mut message = vec![0; length(number).max(8)];
                    message[..8].copy_from_slice(&number.to_ne_bytes());
                    sender.send(&message).expect("sends");
                    turn.store(number + 1, Ordering::Release);
                }
            });
        }
        received = (0..count).map(|_| receive(&mut mailbox)).collect();
    });
    assert_ascending(&received);
}

/// Fails if a number is missing or not in its place. Called once the senders have ended.
fn assert_ascending(received: &[usize]) {
    let wrong = received.iter().enumerate().find(|(index, number)| index != *number);
    assert_eq!(wrong, None, "(place, number)");
}

fn number(message: &[u8]) -> usize {
    usize::from_ne_bytes(message[..8].try_into().expect("eight bytes"))
}

#[test]
fn messages_of_taking_turns_arrive_in_order() {
    alone!();
    relay_race(3, 30_000, |_| 8, |mailbox| number(&mailbox.recv().expect("a message")));
}

#[test]
fn order_holds_across_growing_and_shrinking_lanes() {
    alone!();
    let length = |number: usize| if number % 500 < 250 { 1 << (number % 17) } else { 8 };
    relay_race(3, 10_000, length, |mailbox| number(&mailbox.recv().expect("a message")));
}

#[test]
fn every_way_of_receiving_keeps_the_order() {
    alone!();
    let mut calls = 0;
    let mut batch = Vec::new();
    relay_race(
        3,
        20_000,
        |_| 8,
        |mailbox| {
            calls += 1;
            if let Some(number) = batch.pop() {
                return number;
            }
            match calls % 5 {
                0 => loop {
                    match mailbox.try_recv() {
                        Ok(message) => return number(&message),
                        Err(error) => assert_eq!(error, Error::WouldBlock),
                    }
                },
                1 => {
                    mailbox
                        .recv_batch(7, |message| batch.push(number(message)))
                        .expect("a message");
                    batch.reverse();
                    batch.pop().expect("at least one message")
                }
                2 => loop {
                    if mailbox.arm().expect("arms") {
                        poll(&mut [PollFd::new(&mailbox, PollFlags::IN)], None).expect("polls");
                    }
                    if let Ok(message) = mailbox.try_recv() {
                        return number(&message);
                    }
                },
                3 => {
                    let first = number(&mailbox.recv().expect("a message"));
                    mailbox.requeue();
                    assert_eq!(number(&mailbox.recv().expect("the same message")), first);
                    first
                }
                _ => number(&mailbox.recv_timeout(AMPLE).expect("a message")),
            }
        },
    );
}

/// A sender's messages precede the acceptance of its lane.
#[test]
fn order_holds_for_senders_that_are_not_accepted_yet() {
    alone!();
    let (place, mut mailbox) = causal();
    let (path, mut received) = (&place.path, Vec::new());
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..600_usize {
                let mut sender = Sender::connect(path).expect("connects");
                sender.send(&number.to_ne_bytes()).expect("sends");
                // Every third sender stays until its message is received.
                if number % 3 == 0 {
                    sender.wait_acked(None).expect("received");
                }
            }
        });
        received = (0..600).map(|_| number(&mailbox.recv().expect("a message"))).collect();
    });
    assert_ascending(&received);
}

#[test]
fn messages_before_the_first_receive_arrive_in_order() {
    alone!();
    let (place, mut mailbox) = causal();
    let mut senders: Vec<Sender> =
        (0..20).map(|_| Sender::connect(&place.path).expect("connects")).collect();
    for round in 0..50 {
        for (index, sender) in senders.iter_mut().enumerate() {
            sender.send(&(20 * round + index).to_ne_bytes()).expect("sends");
        }
    }
    let mut next = || number(&mailbox.try_recv().expect("a message"));
    assert_ascending(&(0..1000).map(|_| next()).collect::<Vec<_>>());
    assert_eq!(mailbox.try_recv().expect_err("no further message"), Error::WouldBlock);
}

//! Receiving from several mailboxes at once: `MailboxSet`.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Mailbox, MailboxSet, Options, Sender};

/// Returns a set of `count` mailboxes, each with a sender.
fn set_of(count: usize) -> (Vec<Place>, MailboxSet, Vec<Sender>) {
    let (mut places, mut set, mut senders) = (Vec::new(), MailboxSet::new(), Vec::new());
    for index in 0..count {
        let (place, mailbox, sender) = channel();
        assert_eq!(set.add(mailbox), index);
        places.push(place);
        senders.push(sender);
    }
    (places, set, senders)
}

#[test]
fn set_receives_from_each_mailbox_and_acknowledges() {
    alone!();
    let (_places, mut set, mut senders) = set_of(3);
    assert_eq!(set.len(), 3);
    assert_eq!(set.try_recv().expect_err("no message"), Error::WouldBlock);
    assert_eq!(set.recv_timeout(SHORT).expect_err("no message"), Error::TimedOut);
    for round in 0..200_usize {
        let index = round * 7 % 3;
        senders[index].send(&round.to_le_bytes()).expect("sent");
        let (from, message) = match round % 3 {
            0 => set.recv().expect("a message"),
            1 => set.recv_timeout(AMPLE).expect("a message"),
            _ => set.try_recv().expect("a message"),
        };
        assert_eq!((from, &*message), (index, &round.to_le_bytes()[..]));
        assert_ne!(senders[index].unread_bytes(), 0, "it is not acknowledged yet");
        assert_eq!(set.try_recv().expect_err("no message"), Error::WouldBlock);
        assert_eq!(senders[index].unread_bytes(), 0, "any receiving call acknowledges it");
    }
    set[1].requeue();
    assert_eq!(set.into_inner().len(), 3);
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a positive time")
}

/// A mailbox that always has a message does not keep the others waiting.
#[test]
fn busy_mailbox_does_not_delay_others() {
    alone!();
    let (_places, mut set, mut senders) = set_of(3);
    for sender in &mut senders {
        for number in 0..100_u8 {
            sender.send(&[number]).expect("sent");
        }
    }
    let mut counts = [0_u8; 3];
    for _ in 0..300 {
        let (from, message) = set.recv_timeout(AMPLE).expect("a message");
        assert_eq!(message[0], counts[from], "each sender's order");
        counts[from] += 1;
        assert!(counts.iter().max() <= counts.iter().min().map(|least| least + 1).as_ref());
    }
}

/// Senders that send at any moment of the set's wait wake it.
#[test]
fn set_misses_no_message_of_many_senders() {
    alone!();
    const EACH: u32 = 3000;
    let (_places, mut set, senders) = set_of(4);
    thread::scope(|threads| {
        for (index, mut sender) in senders.into_iter().enumerate() {
            threads.spawn(move || {
                for number in 0..EACH {
                    sender.send(&number.to_le_bytes()).expect("sent");
                    if number % (7 + index as u32) == 0 {
                        sender.wait_acked(Some(AMPLE)).expect("received");
                    }
                }
                sender.wait_acked(Some(AMPLE)).expect("received");
            });
        }
        let mut counts = BTreeMap::new();
        for _ in 0..4 * EACH {
            let (from, message) = set.recv_timeout(AMPLE).expect("a message");
            let count = counts.entry(from).or_insert(0_u32);
            assert_eq!(*message, count.to_le_bytes());
            *count += 1;
        }
        assert_eq!(set.recv_timeout(SHORT).expect_err("no message"), Error::TimedOut);
    });
}

#[test]
fn set_sleeps_while_one_mailbox_has_no_senders() {
    alone!();
    let reporting = Options::new().report_no_senders(true);
    let (place, ended) = bound_with(&reporting);
    let (other_place, other) = bound_with(&reporting);
    let mut set = MailboxSet::new();
    let (ended, other) = (set.add(ended), set.add(other));
    let connect = |place: &Place| Sender::connect(&place.path).expect("connects");
    connect(&place).send(b"last").expect("sent");
    let mut sender = connect(&other_place);
    assert_eq!(set.recv().map(|(from, message)| (from, message.len())), Ok((ended, 4)));
    let before = processor_time();
    assert_eq!(set.recv_timeout(Duration::from_secs(1)).expect_err("none"), Error::TimedOut);
    assert!(processor_time() - before < Duration::from_millis(500), "the wait sleeps");
    // It may get another sender at any time, and the set ends with the last of all.
    let mut again = connect(&place);
    again.send(b"again").expect("sent");
    assert_eq!(set.recv().map(|(from, message)| (from, message.len())), Ok((ended, 5)));
    sender.send(b"other").expect("sent");
    drop((again, sender));
    assert_eq!(set.recv().map(|(from, message)| (from, message.len())), Ok((other, 5)));
    assert_eq!(set.recv().expect_err("no sender is left"), Error::NoSenders);
    assert_eq!(set.try_recv().expect_err("no sender is left"), Error::NoSenders);
}

#[test]
fn waker_of_any_mailbox_ends_wait_of_set() {
    alone!();
    let (_places, mut set, _senders) = set_of(3);
    for index in 0..3 {
        let waker = set[index].waker().expect("a waker");
        let wakes = thread::spawn(move || {
            thread::sleep(SHORT);
            waker.wake()
        });
        assert_eq!(set.recv().expect_err("no message"), Error::Woken);
        wakes.join().expect("no panic").expect("woken");
        assert_eq!(set.recv_timeout(SHORT).expect_err("one token"), Error::TimedOut);
    }
    // Each mailbox has a token of its own, and a call takes one.
    let wakers: Vec<_> = (0..3).map(|index| set[index].waker().expect("a waker")).collect();
    wakers.iter().for_each(|waker| waker.wake().expect("woken"));
    let errors = [(); 4].map(|()| set.recv_timeout(SHORT).expect_err("no message"));
    assert_eq!(errors, [Error::Woken, Error::Woken, Error::Woken, Error::TimedOut]);
}

#[test]
fn set_in_forked_child_fails() {
    alone!();
    let (_places, mut set, mut senders) = set_of(2);
    let child = bare_fork(|| {
        assert_eq!(set.try_recv().expect_err("forked"), Error::Forked);
        assert_eq!(set.recv().expect_err("forked"), Error::Forked);
        drop(std::mem::take(&mut set));
    });
    assert_eq!(reap(child), 0);
    senders[1].send(b"parent's").expect("sent");
    assert_eq!(set.recv().map(|(from, message)| (from, message.len())), Ok((1, 8)));
    let empty = std::panic::catch_unwind(|| MailboxSet::new().recv().map(|(from, _)| from));
    assert!(empty.is_err(), "an empty set would wait indefinitely");
    let _: Vec<Mailbox> = set.into_inner();
}

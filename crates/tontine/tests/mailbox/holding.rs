//! A mailbox that holds several messages at once: `HoldingMailbox`.

#![allow(unsafe_code, reason = "an owner that is traced")]

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::raw;
use crate::redelivered::{Counts, step};
use tontine::Error;
use tontine::mailbox::{
    HeldMessage, HoldingMailbox, Mailbox, OnDeath, Options, Order, Sender, SenderOptions,
};

/// Number of bytes that a message of one byte takes in its lane.
const RECORD: u64 = 16;

fn restarting() -> SenderOptions {
    Options::new().on_death(OnDeath::WaitThroughRestarts)
}

fn holding(path: &Path, max: usize) -> HoldingMailbox {
    Mailbox::bind(path).expect("binds").into_holding(max).expect("holds")
}

fn send_numbers(sender: &mut Sender, numbers: std::ops::Range<u8>) {
    numbers.for_each(|number| sender.send(&[number]).expect("sent"));
}

/// Receives the next messages, of senders that may have to hand their lanes over first.
fn take(mailbox: &mut HoldingMailbox, sender: &mut Sender, count: usize) -> Vec<HeldMessage> {
    let mut taken = Vec::new();
    until("the messages are there", || {
        sender.service().expect("in service");
        while taken.len() < count
            && let Ok(message) = mailbox.try_recv()
        {
            taken.push(message);
        }
        taken.len() == count
    });
    taken
}

fn numbers(messages: &[HeldMessage]) -> Vec<u8> {
    messages.iter().map(|message| message[0]).collect()
}

#[test]
fn completion_acknowledges_only_prefix_without_gap() {
    alone!();
    let place = place();
    let mut mailbox = holding(&place.path, 8);
    let mut sender = Sender::connect(&place.path).expect("connects");
    // A sender that is not accepted yet stamps its messages, which then take more bytes.
    until("the lane is accepted", || {
        assert_eq!(mailbox.try_recv().expect_err("no message"), Error::WouldBlock);
        mailbox.sender_count() == 1
    });
    sender.service().expect("accepted");
    send_numbers(&mut sender, 0..8);
    let mut held: Vec<_> = take(&mut mailbox, &mut sender, 6).into_iter().map(Some).collect();
    assert_eq!(mailbox.held_count(), 6);
    let mut unread = 8 * RECORD;
    assert_eq!(sender.unread_bytes(), unread);
    for (completed, acknowledged) in [(3, 0), (1, 0), (0, 2), (4, 0), (2, 3)] {
        mailbox.complete(held[completed].take().expect("held"));
        unread -= RECORD * acknowledged;
        assert_eq!(sender.unread_bytes(), unread, "after message {completed}");
    }
    assert_eq!(mailbox.held_count(), 1);
    drop(mailbox);
    let left = sender.take_unread_parts().expect("closed");
    assert_eq!((left.in_doubt, left.unsent), (vec![vec![5]], vec![vec![6], vec![7]]));
}

/// The messages from the first one that was not completed to the last that was received are in
/// doubt: the sender takes it back, or the successor receives it with a count.
#[test]
fn killed_receiver_leaves_held_span_in_doubt() {
    alone!();
    for waits in [false, true] {
        let place = place();
        let done = Signal::new();
        let owner = fork(|| {
            let mut mailbox = holding(&place.path, 8);
            let mut held = Vec::new();
            while held.len() < 6 {
                held.push(mailbox.recv().expect("a message"));
            }
            for index in [4, 2, 0] {
                mailbox.complete(held.remove(index));
            }
            done.give(1);
            sleep_indefinitely();
        });
        let on_death = if waits { OnDeath::WaitForSuccessor } else { OnDeath::Fail };
        let mut sender = connect(&Options::new().on_death(on_death), &place.path);
        send_numbers(&mut sender, 0..8);
        done.take();
        kill(owner);
        if !waits {
            until("the death is known", || sender.service().is_err());
            let left = sender.take_unread_parts().expect("dead");
            assert_eq!(left.in_doubt.concat(), [1, 2, 3, 4, 5]);
            assert_eq!(left.unsent.concat(), [6, 7]);
            continue;
        }
        let mut mailbox = holding(&place.path, 8);
        let again = take(&mut mailbox, &mut sender, 7);
        assert_eq!(numbers(&again), [1, 2, 3, 4, 5, 6, 7]);
        let counts: Vec<u32> = again.iter().map(HeldMessage::redelivered).collect();
        assert_eq!(counts, [1, 1, 1, 1, 1, 0, 0]);
        again.into_iter().rev().for_each(|message| mailbox.complete(message));
        assert_eq!(sender.unread_bytes(), 0);
    }
}

#[test]
fn dropped_message_is_received_again_and_counted_once() {
    alone!();
    let place = place();
    let mut mailbox = holding(&place.path, 2);
    let mut sender = restarting().connect(&place.path).expect("connects");
    send_numbers(&mut sender, 0..3);
    let mut held = take(&mut mailbox, &mut sender, 2);
    let unread = sender.unread_bytes();
    let (second, mut first) = (held.remove(1), held.remove(0));
    for _ in 0..2 {
        drop(first);
        first = mailbox.recv().expect("put back");
        assert_eq!((first[0], first.redelivered(), mailbox.held_count()), (0, 1, 2));
    }
    mailbox.complete(second);
    assert_eq!(sender.unread_bytes(), unread);
    // Work that fails in another thread puts the message back, which wakes a call that waits.
    mailbox.complete(first);
    let third = mailbox.recv().expect("a message");
    let fails = thread::spawn(move || {
        let _job = third;
        thread::sleep(SHORT);
        panic!("the work fails");
    });
    let third = loop {
        match mailbox.recv() {
            // The call waited when the message was dropped.
            Err(Error::Woken) => {}
            received => break received.expect("put back"),
        }
    };
    assert!(fails.join().is_err());
    assert_eq!((third[0], third.redelivered()), (2, 1));
    drop(mailbox);
    drop(third);
    let mut mailbox = holding(&place.path, 2);
    let last = take(&mut mailbox, &mut sender, 1).remove(0);
    assert_eq!((last[0], last.redelivered()), (2, 1));
    mailbox.complete(last);
    assert_eq!(sender.unread_bytes(), 0);
}

#[test]
fn dropped_message_makes_armed_descriptor_readable() {
    alone!();
    let place = place();
    let mut mailbox = holding(&place.path, 2);
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(&[0]).expect("sent");
    let mut held = take(&mut mailbox, &mut sender, 1).remove(0);
    for _ in 0..3 {
        until("the mailbox is armed", || {
            let is_armed = mailbox.arm().expect("armed");
            is_armed || mailbox.try_recv().is_ok()
        });
        drop(held);
        assert!(is_readable(mailbox.as_fd(), AMPLE));
        held = mailbox.try_recv().expect("put back");
    }
    drop(held);
    assert!(!mailbox.arm().expect("a message is there"));
    held = mailbox.try_recv().expect("put back");
    mailbox.complete(held);
    let timed_out = mailbox.recv_timeout(Duration::ZERO).expect_err("no token is left");
    assert_eq!(timed_out, Error::TimedOut);
}

#[test]
fn mailbox_holds_no_more_messages_than_it_may() {
    alone!();
    let refused = Mailbox::unbound().expect("opens").into_holding(0).expect_err("too few");
    assert!(matches!(refused, Error::InvalidOption { option: "max", .. }), "{refused}");
    let place = place();
    let mut mailbox = holding(&place.path, 3);
    let mut sender = Sender::connect(&place.path).expect("connects");
    send_numbers(&mut sender, 0..7);
    let mut held = take(&mut mailbox, &mut sender, 3);
    let full = mailbox.recv().expect_err("three are held");
    assert_eq!(full, Error::Full { what: "messages that this mailbox holds", max: 3 });
    // A completed message behind one that is not counts, too.
    mailbox.complete(held.pop().expect("the last"));
    mailbox.complete(held.pop().expect("the second"));
    assert_eq!(mailbox.try_recv().expect_err("none is acknowledged"), full);
    mailbox.complete(held.pop().expect("the first"));
    held = take(&mut mailbox, &mut sender, 3);
    assert_eq!(numbers(&held), [3, 4, 5]);
    assert_eq!(mailbox.recv_timeout(AMPLE).expect_err("three are held"), full);
    held.into_iter().for_each(|message| mailbox.complete(message));
    assert_eq!(numbers(&take(&mut mailbox, &mut sender, 1)), [6]);
}

/// The completed messages behind one that is not keep their memory: the sender waits, and
/// continues once that one is completed.
#[test]
fn full_lane_continues_when_first_message_is_completed() {
    alone!();
    for cap in [4096, 1 << 20] {
        let place = place();
        let options = Options::new().lane_cap(cap);
        let mailbox = options.bind(&place.path).expect("binds");
        let mut mailbox = mailbox.into_holding(1 << 20).expect("holds");
        let mut sender = options.connect(&place.path).expect("connects");
        sender.send(&[0; 100]).expect("sent");
        let first = mailbox.recv().expect("a message");
        let mut received = 1;
        // The lane grows only as the mailbox answers requests.
        let (mut vain, mut sent) = (0, 1_u32);
        while vain < 100 {
            let length = 4 + sent as usize * 7 % 300;
            let message: Vec<u8> = sent.to_le_bytes().into_iter().chain(vec![0; length]).collect();
            match sender.try_send(&message) {
                Ok(()) => (vain, sent) = (0, sent + 1),
                Err(Error::WouldBlock) => vain += 1,
                Err(error) => panic!("{error}"),
            }
            if let Ok(message) = mailbox.recv_timeout(Duration::ZERO) {
                assert_eq!(message[..4], u32::to_le_bytes(received));
                received += 1;
                mailbox.complete(message);
            }
        }
        assert_eq!(received, sent, "{cap}");
        assert!(sender.unread_bytes() > cap / 3, "{cap}: {} bytes", sender.unread_bytes());
        let sends = thread::spawn(move || {
            sender.send_timeout(&[1; 600], AMPLE).expect("the lane has space again");
            sender
        });
        thread::sleep(SHORT);
        assert!(!sends.is_finished(), "{cap}");
        mailbox.complete(first);
        let last = mailbox.recv_timeout(AMPLE).expect("a message");
        let mut sender = sends.join().expect("sent");
        assert_eq!(last.len(), 600);
        mailbox.complete(last);
        sender.wait_acked(Some(AMPLE)).expect("all are completed");
    }
}

#[test]
fn causal_order_holds_for_held_messages() {
    alone!();
    let place = place();
    let Ok(mailbox) = Options::new().order(Order::Causal).bind(&place.path) else {
        return eprintln!("skipped: no shared clock");
    };
    let mut mailbox = mailbox.into_holding(64).expect("holds");
    let mut senders = [(); 3].map(|()| Sender::connect(&place.path).expect("connects"));
    for number in 0..30_u8 {
        senders[usize::from(number * 7 % 3)].send(&[number]).expect("sent");
    }
    let held: Vec<_> = (0..30).map(|_| mailbox.recv().expect("a message")).collect();
    assert_eq!(numbers(&held), (0..30).collect::<Vec<u8>>());
    held.into_iter().rev().for_each(|message| mailbox.complete(message));
    assert!(senders.iter_mut().all(|sender| sender.unread_bytes() == 0));
}

/// The lane of a sender that has ended is removed once it is read, although its messages are held.
#[test]
fn messages_outlive_lane_of_ended_sender() {
    alone!();
    let place = place();
    let mailbox = Options::new().report_no_senders(true).bind(&place.path).expect("binds");
    let mut mailbox = mailbox.into_holding(4).expect("holds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    send_numbers(&mut sender, 0..3);
    drop(sender);
    let mut held: Vec<_> = (0..3).map(|_| mailbox.recv().expect("a message")).collect();
    mailbox.complete(held.remove(1));
    let mut next = Sender::connect(&place.path).expect("connects");
    send_numbers(&mut next, 3..5);
    drop(held.remove(1));
    let again = mailbox.recv().expect("put back");
    assert_eq!((again[0], again.redelivered()), (2, 1));
    let other = take(&mut mailbox, &mut next, 1).remove(0);
    assert_eq!(other[0], 3);
    for message in [again, held.remove(0), other] {
        mailbox.complete(message);
    }
    let last = mailbox.recv().expect("a message");
    mailbox.complete(last);
    assert_eq!(next.unread_bytes(), 0);
    drop(next);
    assert_eq!(mailbox.recv().expect_err("the last sender has ended"), Error::NoSenders);
}

#[test]
fn message_of_other_mailbox_is_not_completed() {
    alone!();
    let place = place();
    let mut mailbox = holding(&place.path, 1);
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"job").expect("sent");
    let message = mailbox.recv().expect("a message");
    let mut other = Mailbox::unbound().expect("opens").into_holding(1).expect("holds");
    let refused = catch_unwind(AssertUnwindSafe(|| other.complete(message)));
    let text = refused.expect_err("panics").downcast::<&str>().expect("a text");
    assert!(text.contains("by the mailbox that has received it"), "{text}");
    assert_ne!(sender.unread_bytes(), 0);
    let again = mailbox.recv().expect("put back");
    mailbox.complete(again);
    assert_eq!(sender.unread_bytes(), 0);
}

/// A sender that writes over its held records loses only its own lane.
#[test]
fn hostile_sender_of_held_messages_loses_only_its_lane() {
    alone!();
    const FIRST: usize = 128;
    let place = place();
    let mut mailbox = holding(&place.path, 8);
    let mut honest = Sender::connect(&place.path).expect("connects");
    honest.send(b"honest").expect("sent");
    let (_socket, chunk) = raw::lane(&place.path);
    chunk.put_message(FIRST, 8);
    let mut held = Vec::new();
    until("both messages are there", || {
        held.extend(mailbox.try_recv());
        held.len() == 2
    });
    chunk.put(FIRST, raw::header(1, 1 << 20));
    chunk.put(FIRST + 16, raw::header(9, 8));
    until("the lane is closed", || {
        held.extend(mailbox.try_recv());
        mailbox.take_errors().iter().any(|error| matches!(error, Error::Protocol { .. }))
    });
    held.into_iter().rev().for_each(|message| mailbox.complete(message));
    assert_eq!((mailbox.held_count(), honest.unread_bytes()), (0, 0));
}

/// An owner is killed after a number of instructions, in steps through the reception of four
/// messages of two lanes and their completion out of order.
#[test]
fn held_span_is_exact_after_kill_within_calls() {
    alone!();
    const STEP: usize = 2003;
    let (mut points, mut has_ended) = (0, false);
    while !has_ended {
        let place = place();
        let (received, completed) = (Counts::new(), Counts::new());
        let owner = fork(|| {
            let mut mailbox = holding(&place.path, 4);
            until("both lanes are accepted", || {
                mailbox.arm().is_ok() && mailbox.sender_count() == 2
            });
            // SAFETY: the parent is this test, which expects both.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
            }
            let mut held = [const { None }; 4];
            for _ in 0..4 {
                let message = mailbox.recv().expect("a message");
                let number = usize::from(message[0]);
                received.of(number).store(1, Ordering::SeqCst);
                held[number] = Some(message);
            }
            for number in [2, 1, 0, 3] {
                mailbox.complete(held[number].take().expect("held"));
                completed.of(number).store(1, Ordering::SeqCst);
            }
            std::mem::forget(mailbox);
        });
        let waiting = Options::new().on_death(OnDeath::WaitForSuccessor);
        let mut senders = [(); 2].map(|()| connect(&waiting, &place.path));
        let mut status = 0;
        // SAFETY: the child is our own, and `status` is writable.
        assert_eq!(unsafe { libc::waitpid(owner, &raw mut status, 0) }, owner);
        assert!(libc::WIFSTOPPED(status), "{status}");
        for number in 0..4_u8 {
            senders[usize::from(number % 2)].send(&[number]).expect("sent");
        }
        has_ended = !step(owner, points * STEP);
        points += 1;
        if !has_ended {
            kill(owner);
        }
        let mut mailbox = holding(&place.path, 4);
        let mut again = BTreeMap::new();
        until("all messages are acknowledged", || {
            while let Ok(message) = mailbox.try_recv() {
                again.insert(usize::from(message[0]), message.redelivered());
                mailbox.complete(message);
            }
            let acked = senders.each_mut().map(|one| one.wait_acked(Some(Duration::ZERO)).is_ok());
            acked == [true, true]
        });
        let [had, done] = [received, completed]
            .map(|log| [0, 1, 2, 3].map(|number| log.of(number).load(Ordering::SeqCst)));
        for number in 0..4 {
            let context = format!("point {points}, message {number}: {again:?} {had:?} {done:?}");
            let is_acked = done[number] == 1 && (number < 2 || done[number - 2] == 1);
            match again.get(&number) {
                Some(&count) => {
                    assert!(!is_acked && (had[number]..=1).contains(&count), "{context}")
                }
                None => assert_eq!(had[number], 1, "{context}"),
            }
            // The second message of a lane is not acknowledged before the first.
            assert!(
                number < 2 || !again.contains_key(&(number - 2)) || again.contains_key(&number)
            );
        }
    }
    assert!(points > 10, "{points} points");
}

/// Owners that hold messages are killed at random times. Each message that one of them had is
/// counted, and no message is lost.
#[test]
fn count_of_held_messages_is_never_too_low_after_random_kills() {
    alone!();
    const SENDERS: usize = 3;
    const EACH: usize = 400;
    let place = place();
    let (received, completed) = (Counts::new(), Counts::new());
    let bound = Mailbox::bind(&place.path).expect("binds");
    let mut senders: Vec<Sender> =
        (0..SENDERS).map(|_| restarting().connect(&place.path).expect("connects")).collect();
    for (index, sender) in senders.iter_mut().enumerate() {
        for number in 0..EACH {
            let mut message = vec![0; 8 + (index * 31 + number * 7) % 200];
            message[..8].copy_from_slice(&(index * EACH + number).to_le_bytes());
            sender.send(&message).expect("the lane grows");
        }
    }
    drop(bound);
    let number =
        |message: &[u8]| usize::from_le_bytes(message[..8].try_into().expect("eight bytes"));
    let mut random = Random(0x686f_6c64_696e_6721);
    let mut kills = 0;
    while senders.iter_mut().any(|sender| sender.wait_acked(Some(Duration::ZERO)).is_err()) {
        let seed = random.next();
        let owner = fork(|| {
            let mut random = Random(seed);
            let mut mailbox = holding(&place.path, 1 + random.below(30) as usize);
            let mut held: Vec<HeldMessage> = Vec::new();
            for _ in 0..1 + random.below(200) {
                match mailbox.recv_timeout(SHORT) {
                    Ok(message) => {
                        let before = received.of(number(&message)).fetch_add(1, Ordering::SeqCst);
                        let count = message.redelivered();
                        assert!(count >= before, "{}: {count} < {before}", number(&message));
                        held.push(message);
                    }
                    Err(Error::Full { .. } | Error::TimedOut) => {}
                    Err(error) => panic!("{error}"),
                }
                if !held.is_empty() && random.below(2) == 0 {
                    let message = held.swap_remove(random.below(held.len() as u64) as usize);
                    completed.of(number(&message)).fetch_add(1, Ordering::SeqCst);
                    mailbox.complete(message);
                }
            }
            sleep_indefinitely();
        });
        let end = Instant::now() + Duration::from_micros(random.below(6000));
        while Instant::now() < end {
            for sender in &mut senders {
                sender.service().expect("in service");
            }
        }
        assert_eq!(ended(owner), None, "the owner's assertions hold");
        kill(owner);
        kills += 1;
    }
    assert!(kills > 5, "{kills} kills");
    for number in 0..SENDERS * EACH {
        assert_ne!(completed.of(number).load(Ordering::SeqCst), 0, "message {number}");
    }
}

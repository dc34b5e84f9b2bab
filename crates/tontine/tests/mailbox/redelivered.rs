//! The number of owners that may have received a message before: `Message::redelivered`.

#![allow(unsafe_code, reason = "memory that forked receivers share with the test")]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::*;
use tontine::mailbox::{Mailbox, Message, OnDeath, Options, Order, Sender, SenderOptions};

fn waiting() -> SenderOptions {
    Options::new().on_death(OnDeath::WaitForSuccessor)
}

fn restarting() -> SenderOptions {
    Options::new().on_death(OnDeath::WaitThroughRestarts)
}

/// Receives a message of one of the senders, which have to hand their lanes over first, and returns
/// it with its count.
fn next(mailbox: &mut Mailbox, senders: &mut [&mut Sender]) -> (Vec<u8>, u32) {
    let mut found = None;
    until("a message is there", || {
        for sender in senders.iter_mut() {
            sender.service().expect("in service");
        }
        found = mailbox.try_recv().ok().map(|message| (message.redelivered(), message.into_vec()));
        found.is_some()
    });
    let (count, message) = found.expect("a message");
    (message, count)
}

/// Runs `receive` with a mailbox in a forked process, which the caller kills after it has returned.
fn owner(path: &Path, receive: impl FnOnce(&mut Mailbox)) -> (i32, Signal) {
    let (path, done) = (path.to_owned(), Signal::new());
    let owner = fork(|| {
        let mut mailbox = Mailbox::bind(path).expect("binds");
        receive(&mut mailbox);
        done.give(1);
        sleep_indefinitely();
    });
    (owner, done)
}

/// A message whose receiver dies each time is counted; messages of other senders are not.
#[test]
fn poison_message_is_counted_and_others_are_not() {
    alone!();
    let place = place();
    let bound = Mailbox::bind(&place.path).expect("binds");
    let mut poison = restarting().connect(&place.path).expect("connects");
    poison.send(b"poison").expect("sent");
    poison.send(b"behind it").expect("sent");
    let mut others: Vec<Sender> =
        (0..5).map(|_| restarting().connect(&place.path).expect("connects")).collect();
    for other in &mut others {
        for number in 0..5_u8 {
            other.send(&[number]).expect("sent");
        }
    }
    drop(bound);
    for deaths in 0..4 {
        let (pid, done) = owner(&place.path, |mailbox| {
            loop {
                let message = mailbox.recv_timeout(AMPLE).expect("a message");
                if message.starts_with(b"poison") {
                    assert_eq!(message.redelivered(), deaths, "the number of earlier owners");
                    break;
                }
                assert_eq!(message.redelivered(), 0, "{message:?}");
            }
        });
        until("the poison is received", || {
            poison.service().expect("in service");
            others.iter_mut().for_each(|other| other.service().expect("in service"));
            assert_eq!(ended(pid), None, "the owner's assertions hold");
            done.is_given()
        });
        kill(pid);
    }
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(next(&mut mailbox, &mut [&mut poison]), (b"poison".to_vec(), 4));
    assert_eq!(next(&mut mailbox, &mut [&mut poison]), (b"behind it".to_vec(), 0));
    for other in &mut others {
        while other.wait_acked(Some(Duration::ZERO)).is_err() {
            let (message, count) = next(&mut mailbox, &mut [other]);
            assert_eq!(count, 0, "{message:?}");
            mailbox.ack();
        }
    }
}

#[test]
fn message_of_owner_that_received_nothing_is_certainly_first() {
    alone!();
    let place = place();
    let (pid, done) = owner(&place.path, |mailbox| {
        until("the lane is accepted", || {
            // Accepts senders, without a look at their lanes.
            mailbox.arm().is_ok() && mailbox.sender_count() == 1
        });
    });
    let mut sender = connect(&waiting(), &place.path);
    done.take();
    sender.send(b"one").expect("sent");
    kill(pid);
    sender.send(b"two").expect("kept");
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"one".to_vec(), 0));
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"two".to_vec(), 0));
}

/// An owner that dies while it waits, or whose death is known, has not received what follows.
#[test]
fn message_sent_after_owners_end_is_certainly_first() {
    alone!();
    let place = place();
    let (pid, done) = owner(&place.path, |mailbox| {
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
    });
    let mut sender = connect(&waiting(), &place.path);
    sender.send(b"acknowledged").expect("sent");
    done.take();
    kill(pid);
    sender.service().expect("waits");
    sender.send(b"after").expect("kept");
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"after".to_vec(), 0));
}

#[test]
fn close_leaves_count_only_of_requeued_message() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = restarting().connect(&place.path).expect("connects");
    for message in [b"one", b"two"] {
        sender.send(message).expect("sent");
    }
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"one".to_vec(), 0));
    drop(mailbox); // acknowledges it
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"two".to_vec(), 0));
    for _ in 0..3 {
        mailbox.requeue();
        // This owner counts once, however often it puts the message back.
        assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"two".to_vec(), 1));
    }
    mailbox.requeue();
    drop(mailbox);
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"two".to_vec(), 1));
    let panics = catch_unwind(AssertUnwindSafe(move || {
        let _mailbox = mailbox;
        panic!("the program fails at the message");
    }));
    assert!(panics.is_err());
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    assert_eq!(next(&mut mailbox, &mut [&mut sender]), (b"two".to_vec(), 2));
}

/// A message that was put back is in doubt until it is acknowledged, also while the owner receives
/// the messages of others.
#[test]
fn requeued_message_counts_although_turn_has_passed() {
    alone!();
    let place = place();
    // One puts the message back, the other panics in a batch.
    for panics in [false, true] {
        let (pid, done) = owner(&place.path, |mailbox| {
            if panics {
                let batch = catch_unwind(AssertUnwindSafe(|| {
                    // The second message may be sent after the first batch.
                    let check = |message: &Message<'_>| assert_ne!(message[0], 1, "the second");
                    while mailbox.recv_batch(9, check).is_ok() {}
                }));
                assert!(batch.is_err());
            } else {
                let _ = mailbox.recv().expect("a message");
                assert_eq!(mailbox.recv().expect("a message")[0], 1);
                mailbox.requeue();
            }
            let mut others = 0;
            while others < 3 {
                let message = mailbox.recv().expect("a message");
                if message[0] == 1 {
                    assert_eq!(message.redelivered(), 1);
                    mailbox.requeue();
                } else {
                    assert_eq!(message.redelivered(), 0);
                    others += 1;
                }
            }
        });
        let mut first = connect(&waiting(), &place.path);
        for number in 0..2_u8 {
            first.send(&[number]).expect("sent");
        }
        until("the message is received", || first.unread_bytes() < 32);
        let mut other = connect(&waiting(), &place.path);
        for number in 2..5_u8 {
            other.send(&[number]).expect("sent");
        }
        done.take();
        kill(pid);
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        assert_eq!(next(&mut mailbox, &mut [&mut first]), (vec![1], 1), "{panics}");
    }
}

/// The count concerns the message, wherever padding, a stamp or another chunk moves its record.
#[test]
fn count_follows_message_across_chunks_and_stamps() {
    alone!();
    for order in [Order::BySender, Order::Causal] {
        let options = Options::new().order(order);
        let place = place();
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut sender = restarting().connect(&place.path).expect("connects");
        let message = |number: usize| vec![number as u8; 1 + number * 97 % 1700];
        for number in 0..100 {
            sender.send(&message(number)).expect("the lane grows");
        }
        for number in 0..100 {
            let expected = (message(number), 0);
            assert_eq!(next(&mut mailbox, &mut [&mut sender]), expected, "{order:?}");
            for owners in 1..=2 {
                mailbox.requeue();
                drop(mailbox);
                mailbox = options.bind(&place.path).expect("binds");
                let again = next(&mut mailbox, &mut [&mut sender]);
                assert_eq!(again, (message(number), owners), "{order:?}: {number}");
            }
        }
        assert_eq!(mailbox.take_errors(), []);
    }
}

/// A relay may have passed on everything before the position that it stored.
#[test]
fn messages_that_relay_passed_on_are_counted() {
    alone!();
    let place = place();
    let mut relay = Options::new().bind_relay(&place.path).expect("binds");
    let mut sender = waiting().connect(&place.path).expect("connects");
    for number in 0..5_u8 {
        sender.send(&[number]).expect("sent");
    }
    for _ in 0..2 {
        until("the relay has the lane", || {
            sender.service().expect("in service");
            relay.service().expect("in service");
            !relay.lanes().is_empty()
        });
        let lane = relay.lanes()[0].sender;
        let (mut sent, mut records) = (0, 0);
        relay
            .read_ahead(lane, |record| {
                sent = record.end();
                records += 1;
                records < 3
            })
            .expect("read");
        relay.mark_sent(lane, sent);
        drop(relay);
        relay = Options::new().bind_relay(&place.path).expect("binds");
    }
    drop(relay);
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    for number in 0..5_u8 {
        let (message, count) = next(&mut mailbox, &mut [&mut sender]);
        assert_eq!(message, [number]);
        assert_eq!(count, if number < 3 { 2 } else { 0 }, "{number}");
    }
}

/// The counts of receptions by all receivers, in memory that they share.
pub(crate) struct Counts(*const AtomicU32);

impl Counts {
    const MESSAGES: usize = 4096;

    pub(crate) fn new() -> Self {
        let (size, at) = (4 * Self::MESSAGES, std::ptr::null_mut());
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which is kept until the process ends.
        let memory = unsafe { libc::mmap(at, size, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Self(memory.cast())
    }

    pub(crate) fn of(&self, number: usize) -> &AtomicU32 {
        assert!(number < Self::MESSAGES);
        // SAFETY: within the mapping, whose words all processes access as atomics.
        unsafe { &*self.0.add(number) }
    }
}

/// Owners are killed at random times while they receive. Whatever they were doing, each message
/// that one of them had is counted.
#[test]
fn count_is_never_too_low_after_random_kills() {
    alone!();
    const SENDERS: usize = 3;
    const EACH: usize = 600;
    let place = place();
    let received = Counts::new();
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
    let mut random = Random(0x7465_6e74_696e_6521);
    let mut kills = 0;
    while senders.iter_mut().any(|sender| sender.wait_acked(Some(Duration::ZERO)).is_err()) {
        let seed = random.next();
        let owner = fork(|| {
            let mut random = Random(seed);
            let mut mailbox = Mailbox::bind(&place.path).expect("binds");
            // An owner logs a message once, however often it puts the message back.
            let mut seen = BTreeSet::new();
            let mut log = |message: &[u8], count: u32| {
                if !seen.insert(number(message)) {
                    return;
                }
                let before = received.of(number(message)).fetch_add(1, Ordering::SeqCst);
                assert!(count >= before, "message {}: {count} < {before}", number(message));
            };
            for _ in 0..1 + random.below(60) {
                if random.below(4) == 0 {
                    let most = 1 + random.below(5) as usize;
                    let _ = mailbox.recv_batch(most, |one| log(one, one.redelivered()));
                    continue;
                }
                let message = mailbox.recv().expect("a message");
                log(&message, message.redelivered());
                match random.below(8) {
                    0 => mailbox.ack(),
                    1 => mailbox.requeue(),
                    2 => drop(mailbox.arm()),
                    _ => {}
                }
            }
            sleep_indefinitely();
        });
        let until = std::time::Instant::now() + Duration::from_micros(random.below(4000));
        while std::time::Instant::now() < until {
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
        assert_ne!(received.of(number).load(Ordering::SeqCst), 0, "message {number}");
    }
}

/// Steps an owner that has stopped itself by `count` instructions. Returns `false` if it has ended.
pub(crate) fn step(owner: i32, count: usize) -> bool {
    for _ in 0..count {
        let mut status = 0;
        let (none, process) = (std::ptr::null_mut::<libc::c_void>(), owner);
        // SAFETY: the process is a stopped child that has asked to be traced; `status` is writable.
        let stepped = unsafe {
            libc::ptrace(libc::PTRACE_SINGLESTEP, process, none, none) == 0
                && libc::waitpid(process, &raw mut status, 0) == process
        };
        assert!(stepped, "the owner is traced");
        if !libc::WIFSTOPPED(status) {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
            return false;
        }
    }
    true
}

/// An owner is killed after a number of instructions, in steps through four messages of two lanes.
/// Its successor receives no message that the owner had acknowledged, and counts the one that the
/// owner may have received.
#[test]
fn count_is_right_after_kill_within_receiving_calls() {
    alone!();
    const STEP: usize = 1009;
    let mut points = 0;
    let mut has_ended = false;
    while !has_ended {
        let place = place();
        let received = Counts::new();
        let owner = fork(|| {
            let mut mailbox = Mailbox::bind(&place.path).expect("binds");
            until("both lanes are accepted", || {
                mailbox.arm().is_ok() && mailbox.sender_count() == 2
            });
            // SAFETY: the parent is this test, which expects both.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
            }
            for _ in 0..4 {
                let message = mailbox.recv().expect("a message");
                received.of(message[0].into()).store(1, Ordering::SeqCst);
            }
            std::mem::forget(mailbox);
        });
        let mut senders: Vec<Sender> = (0..2).map(|_| connect(&waiting(), &place.path)).collect();
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
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let [mut one, mut other] = <[Sender; 2]>::try_from(senders).expect("two");
        let mut counts = std::collections::BTreeMap::new();
        loop {
            let are_acked = [&mut one, &mut other]
                .map(|sender| sender.wait_acked(Some(Duration::ZERO)).is_ok());
            if are_acked == [true, true] {
                break;
            }
            let (message, count) = next(&mut mailbox, &mut [&mut one, &mut other]);
            mailbox.ack();
            counts.insert(message[0], count);
        }
        let logged = |number: u8| received.of(number.into()).load(Ordering::SeqCst);
        for (&number, &count) in &counts {
            assert!(count >= logged(number), "point {points}, message {number}: {count}");
            assert!(count <= 1, "point {points}, message {number}: {count}");
        }
        let in_doubt = counts.values().filter(|count| **count > 0).count();
        assert!(in_doubt <= 2, "point {points}: {counts:?}");
        let again = counts.keys().filter(|number| logged(**number) > 0).count();
        assert!(again <= 1, "point {points}: only one message was not acknowledged");
        for number in 0..4 {
            assert!(logged(number) == 1 || counts.contains_key(&number), "{number} is lost");
        }
    }
    assert!(points > 10, "{points} points");
}

//! Results of a sender's calls after its receiver's end: every call returns the same error,
//! whatever the order of the calls.

#![allow(unsafe_code, reason = "robust mutexes in a forked process")]

use crate::raw;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender, SenderOptions};

/// More entries than the kernel walks in one thread's robust list (`ROBUST_LIST_LIMIT`, 2,048).
const ROBUST_MUTEXES: usize = 2100;

fn waiting() -> SenderOptions {
    Options::new().on_death(OnDeath::WaitForSuccessor)
}

/// Starts a receiver that acknowledges one message and then sleeps.
fn receiver(path: &Path) -> i32 {
    let path = path.to_owned();
    fork(move || {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
        sleep_indefinitely();
    })
}

/// Returns a sender with two unacknowledged messages for a killed receiver.
fn sender_of_killed(place: &Place, options: &SenderOptions) -> Sender {
    let receiver = receiver(&place.path);
    let mut sender = connect(options, &place.path);
    sender.send(b"read").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    sender.send(b"one").expect("sent");
    sender.send(b"two").expect("sent");
    kill(receiver);
    sender
}

/// Asserts that every call returns `errno`, in any order.
fn assert_all_fail(sender: &mut Sender, errno: i32) {
    let found = |result: tontine::Result<()>| result.map_err(|error| error.errno());
    for _ in 0..2 {
        assert_eq!(found(sender.service()), Err(errno), "service");
        assert_eq!(found(sender.send(b"more")), Err(errno), "send");
        assert_eq!(found(sender.try_send(b"more")), Err(errno), "try_send");
        assert_eq!(found(sender.reserve(4).map(drop)), Err(errno), "reserve");
        assert_eq!(found(sender.try_reserve(4).map(drop)), Err(errno), "try_reserve");
        assert_eq!(found(sender.arm(4).map(drop)), Err(errno), "arm");
        assert_eq!(sender.send_timeout(b"more", AMPLE).map_err(|error| error.errno()), Err(errno));
    }
}

/// Regression: a program took back the unread messages of its dead receiver, and every later call
/// returned EPROTO. The sender counted the messages taken back as read. It then considered the
/// control page of the dead receiver invalid, because the page still showed the position before
/// them.
#[test]
fn take_unread_keeps_owner_died_error() {
    alone!();
    let place = place();
    let mut sender = sender_of_killed(&place, &Options::new().into());
    assert_eq!(sender.send(b"more").map_err(|error| error.errno()), Err(libc::EOWNERDEAD));
    assert_eq!(sender.take_unread().expect("its messages"), [b"one", b"two"]);
    assert_eq!(sender.unread_bytes(), 0);
    assert_all_fail(&mut sender, libc::EOWNERDEAD);
    assert_eq!(sender.take_unread().expect("no message is left"), Vec::<Vec<u8>>::new());
    sender.wait_acked(Some(AMPLE)).expect("no unread message");
    assert_all_fail(&mut sender, libc::EOWNERDEAD);
}

/// Like [`take_unread_keeps_owner_died_error`], with a receiver that closed its
/// mailbox.
#[test]
fn take_unread_keeps_closed_error() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    sender.send(b"read").expect("sent");
    sender.send(b"unread").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"read");
    mailbox.close();
    assert_eq!(sender.take_unread().expect("its messages"), [b"unread"]);
    assert_eq!(sender.unread_bytes(), 0);
    assert_all_fail(&mut sender, libc::EPIPE);
}

/// Regression: a sender that waits for a successor took back the dead receiver's unread messages.
/// After that, its lane could never be handed over, because the sender reads the dead receiver's
/// position again before each handover, and refused it.
#[test]
fn lane_is_handed_over_after_take_unread() {
    alone!();
    let place = place();
    let mut sender = sender_of_killed(&place, &waiting());
    assert_eq!(sender.take_unread().expect("its messages"), [b"one", b"two"]);
    sender.service().expect("waits for a successor");
    sender.send(b"three").expect("stays in the lane");
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    until("the successor has the lane", || {
        sender.service().expect("in service");
        match mailbox.try_recv() {
            Ok(message) => {
                assert_eq!(&*message, b"three");
                true
            }
            Err(error) => {
                assert_eq!(error, Error::WouldBlock);
                false
            }
        }
    });
    for number in 0..1000_u32 {
        sender.send(&number.to_le_bytes()).expect("sent");
        let message = mailbox.recv_timeout(AMPLE).expect("a message");
        assert_eq!(*message, number.to_le_bytes());
    }
    assert_eq!(mailbox.take_errors(), []);
}

/// Messages that an iterator did not return stay in the lane, whatever chunk they are in.
#[test]
fn dropped_unread_iterator_leaves_other_messages() {
    alone!();
    for taken in [0, 1, 2, 150, 299, 300] {
        let place = place();
        let mut sender = sender_of_killed(&place, &waiting());
        let all: Vec<Vec<u8>> = (0..300_usize).map(|number| vec![number as u8; number]).collect();
        assert_eq!(sender.take_unread().expect("its messages"), [b"one", b"two"]);
        for message in &all {
            sender.send(message).expect("the lane grows");
        }
        let first: Vec<_> = sender.take_unread_iter().expect("ended").take(taken).collect();
        assert_eq!(first, all[..taken]);
        // The lane still accepts messages, and those left are handed over.
        sender.send(b"more").expect("stays in the lane");
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let mut rest = Vec::new();
        until("the successor has the rest", || {
            sender.service().expect("in service");
            rest.extend(mailbox.try_recv().ok().map(|message| message.into_vec()));
            rest.last().is_some_and(|last| last == b"more")
        });
        let expected: Vec<_> = all[taken..].iter().cloned().chain([b"more".to_vec()]).collect();
        assert_eq!(rest, expected, "after {taken}");
        assert_eq!(sender.take_unread_iter().err(), Some(Error::WouldBlock), "the receiver lives");
        sender.send(b"to the successor").expect("sent");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"to the successor");
        assert_eq!(mailbox.take_errors(), []);
    }
}

#[test]
fn exhausted_unread_iterator_leaves_read_lane() {
    alone!();
    let place = place();
    let mut sender = sender_of_killed(&place, &Options::new().into());
    let mut unread = sender.take_unread_iter().expect("ended");
    assert_eq!(unread.next().as_deref(), Some(&b"one"[..]));
    // A receiver may have processed the message that was taken, and no other.
    let parts = sender.take_unread_parts().expect("ended");
    assert_eq!((parts.in_doubt, parts.unsent), (vec![], vec![b"two".to_vec()]));
    assert_eq!(sender.take_unread_iter().expect("ended").count(), 0);
    assert_eq!((sender.unread_bytes(), sender.wait_acked(None)), (0, Ok(())));
}

/// Regression: a sender over a passed socket had the option to wait for a successor, which cannot
/// exist without an address. A search for a successor returned the receiver's end, but calls within
/// the next 5 ms did not search, and put their messages into a lane that no process would ever
/// read.
#[test]
fn lane_without_address_does_not_wait_for_successor() {
    alone!();
    let (ours, theirs) = raw::pair();
    let mut mailbox = Mailbox::unbound().expect("a mailbox");
    mailbox.adopt(theirs).expect("adopts");
    let mut sender = waiting().connect_socket(ours).expect("the lane begins");
    sender.send(b"unread").expect("sent");
    assert!(sender.try_clone().is_err(), "the mailbox has no address");
    drop(mailbox);
    assert_all_fail(&mut sender, libc::EOWNERDEAD);
    assert_eq!(sender.take_unread().expect("its message"), [b"unread"]);
    assert_all_fail(&mut sender, libc::EOWNERDEAD);
}

/// Locks [`ROBUST_MUTEXES`] robust mutexes in the calling thread. They come after its liveness
/// word: the kernel walks the list newest first and stops before it reaches the word.
fn lock_robust_mutexes() {
    // SAFETY: zero bytes are valid for both types, which the calls below initialise; the mutexes
    // stay in place until the process ends.
    unsafe {
        let mut attributes: libc::pthread_mutexattr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_mutexattr_init(&raw mut attributes), 0);
        let robust = libc::PTHREAD_MUTEX_ROBUST;
        assert_eq!(libc::pthread_mutexattr_setrobust(&raw mut attributes, robust), 0);
        for _ in 0..ROBUST_MUTEXES {
            let mutex: &mut libc::pthread_mutex_t = Box::leak(Box::new(std::mem::zeroed()));
            assert_eq!(libc::pthread_mutex_init(mutex, &raw const attributes), 0);
            assert_eq!(libc::pthread_mutex_lock(mutex), 0);
        }
    }
}

/// Returns a forked receiver whose death the kernel does not mark in its liveness word, and a
/// sender from which it has read one message.
fn lane_to_unmarked_receiver(place: &Place, options: &SenderOptions) -> (i32, Sender) {
    let (path, ready) = (place.path.clone(), Signal::new());
    let receiver = fork(|| {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
        lock_robust_mutexes();
        ready.give(1);
        sleep_indefinitely();
    });
    let mut sender = connect(options, &place.path);
    sender.send(b"read").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    assert_eq!(ready.take(), 1);
    (receiver, sender)
}

/// Regression: when a receiver was killed, its registered thread held 2,100 robust mutexes of its
/// program, more than the kernel walks, so its liveness word was never marked. `service` noticed
/// the end through the hang-up and returned EOWNERDEAD. `send`, which checked only the liveness
/// word, returned `Ok` until the chunk was full.
#[test]
fn send_after_service_reported_death_fails_despite_life_word() {
    alone!();
    let place = place();
    let (receiver, mut sender) = lane_to_unmarked_receiver(&place, &Options::new().into());
    sender.send(b"unread").expect("sent");
    kill(receiver);
    until("the hang-up is noticed", || sender.service().is_err());
    assert_all_fail(&mut sender, libc::EOWNERDEAD);
    assert_eq!(sender.take_unread().expect("its messages"), [b"unread"]);
    assert_all_fail(&mut sender, libc::EOWNERDEAD);
}

/// Regression: a sender that waits for a successor of such a receiver continued to send into the
/// lane through the fast path, which never searches for a successor. The next owner received
/// nothing until the chunk was full.
#[test]
fn sends_after_unmarked_death_reach_successor_promptly() {
    alone!();
    let place = place();
    let (receiver, mut sender) = lane_to_unmarked_receiver(&place, &waiting());
    kill(receiver);
    std::thread::sleep(Duration::from_millis(20));
    sender.service().expect("waits for a successor");
    sender.send(b"one").expect("stays in the lane");
    let mut reserved = sender.reserve(3).expect("space");
    reserved.copy_from_slice(b"two");
    reserved.commit().expect("stays in the lane");
    let _ = sender.reserve(4).expect("space, and no message is sent");
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    // The sleep is longer than the pause between two searches for a successor.
    std::thread::sleep(Duration::from_millis(20));
    sender.try_send(b"three").expect("the lane is handed over");
    for expected in [&b"one"[..], b"two", b"three"] {
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), expected);
    }
    assert_eq!(mailbox.take_errors(), []);
}

/// Returns a lane to a raw receiver whose liveness word always shows it alive.
fn hostile(options: &SenderOptions) -> raw::Receiver {
    raw::receiver(&place().path, options, 1 << 20)
}

/// Regression: a receiver wrote an invalid position, while its liveness word still showed it alive.
/// `service` returned EPROTO, but `send` then returned `Ok` 58 times, and an earlier reservation
/// could still be committed.
#[test]
fn send_after_service_reported_false_position_fails() {
    alone!();
    let mut lane = hostile(&Options::new().into());
    lane.sender.send(b"unread").expect("sent");
    lane.control.put(128, 1 << 20);
    assert_eq!(lane.sender.service().map_err(|error| error.errno()), Err(libc::EPROTO));
    assert_all_fail(&mut lane.sender, libc::EPROTO);
    assert_eq!(lane.sender.take_unread().expect("the connection has ended"), [b"unread"]);
    assert_all_fail(&mut lane.sender, libc::EPROTO);
}

/// Regression: a receiver's liveness word was marked and then appeared alive again. Taking messages
/// back in between ended the lane only while the word was marked: later messages were written to
/// the lane and were lost.
#[test]
fn take_unread_ends_lane_though_life_word_revives() {
    alone!();
    let mut lane = hostile(&Options::new().into());
    lane.sender.send(b"unread").expect("sent");
    lane.page.half(64).store(1 << 30, Ordering::Relaxed);
    assert_eq!(lane.sender.take_unread().expect("the receiver appears dead"), [b"unread"]);
    lane.page.half(64).store(1, Ordering::Relaxed);
    assert_all_fail(&mut lane.sender, libc::EOWNERDEAD);
}

/// Regression: a sender that waits for a successor rang the old receiver's doorbell for each
/// message that it left in the lane.
#[test]
fn sends_while_waiting_do_not_ring_old_receiver() {
    alone!();
    let mut lane = hostile(&waiting());
    // If another test forks, its child holds a copy of the socket, so closing it would not hang up.
    rustix::net::shutdown(&lane.socket, rustix::net::Shutdown::Both).expect("the peer hung up");
    lane.sender.service().expect("waits for a successor");
    lane.page.half(128).store(1, Ordering::Relaxed);
    for _ in 0..3 {
        lane.sender.send(b"unread").expect("stays in the lane");
    }
    let mut byte = [0];
    let rung = rustix::net::recv(&lane.bell.0, &mut byte, rustix::net::RecvFlags::DONTWAIT);
    assert_eq!(rung.map(|(length, _)| length), Err(rustix::io::Errno::AGAIN));
    assert_eq!(lane.sender.take_unread().expect("the process has ended").len(), 3);
}

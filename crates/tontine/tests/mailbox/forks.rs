//! Forks and execs during operations: handles that a child inherits, and processes that die or
//! change their program while a child keeps their open files.

#![allow(unsafe_code, reason = "fork and exec")]

use crate::asleep::until_asleep;
use crate::common::*;
use tontine::Error;
use tontine::heap;
use tontine::heap::shared::Heap;
use tontine::mailbox::{Mailbox, Options, Sender};

pub(crate) fn exec_sleep() {
    let arguments = [c"sleep".as_ptr(), c"300".as_ptr(), std::ptr::null()];
    // SAFETY: the strings are terminated, and the list ends in a null pointer.
    unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
}

/// Regression: after a fork during a batch, the child acknowledged on a page that it does not
/// inherit, and crashed, or it received the error `Forked` instead of the number of messages
/// received.
#[test]
fn batch_in_forked_child_ends_at_fork() {
    alone!();
    for forks_at in 0..3 {
        let (_place, mut mailbox, mut sender) = channel();
        for number in 0..3_u8 {
            sender.send(&[number]).expect("sent");
        }
        let (mut given, mut child) = (0, None);
        let count = mailbox.recv_batch(3, |_| {
            if given == forks_at {
                // SAFETY: the child leaves through `_exit` below, or a signal kills it.
                child = Some(unsafe { libc::fork() });
            }
            given += 1;
        });
        let child = child.expect("the child forked");
        if child == 0 {
            let fine = count == Ok(forks_at + 1)
                && mailbox.try_recv().is_err_and(|error| error == Error::Forked);
            // SAFETY: `_exit` only ends this process.
            unsafe { libc::_exit(if fine { 0 } else { 101 }) }
        }
        assert_eq!(reap(child), 0, "a fork in message {forks_at}");
        assert_eq!(count, Ok(3));
        sender.wait_acked(Some(AMPLE)).expect("the parent acknowledged all");
    }
}

/// Calls every method of each mailbox handle in a forked child, with the handles armed and with a
/// message received, reserved or unread, and drops the handles there. A method without a check
/// would write to a page that the child does not inherit, and SIGSEGV would kill the child.
#[test]
fn mailbox_handles_in_forked_child_change_nothing() {
    alone!();
    let place = place();
    let mut mailbox = Some(Mailbox::bind(&place.path).expect("binds"));
    let mut sender = Some(Options::new().lane_cap(8192).connect(&place.path).expect("connects"));
    let (ours, theirs) =
        (mailbox.as_mut().expect("still present"), sender.as_mut().expect("still present"));
    theirs.send(b"one").expect("sent");
    let id = ours.recv_timeout(AMPLE).expect("a message").sender();
    while theirs.try_send(&[1; 1000]).is_ok() {}
    assert!(theirs.arm(1000).expect("arms"), "expected a full lane");
    let child = bare_fork(|| {
        let (mut mailbox, mut sender) =
            (mailbox.take().expect("still present"), sender.take().expect("still present"));
        let _ = format!("{mailbox:?} {sender:?}");
        let _ =
            (mailbox.sender_count(), mailbox.take_errors(), mailbox.is_alive(id), sender.peer());
        let _ = (sender.max_message_len(), sender.unread_bytes());
        mailbox.ack();
        assert_eq!(mailbox.recv().expect_err("forked"), Error::Forked);
        // SAFETY: the sender is in this process's parent, which changes nothing.
        unsafe {
            assert_eq!(mailbox.recv_in_place().err(), Some(Error::Forked));
            assert_eq!(mailbox.try_recv_in_place().err(), Some(Error::Forked));
        }
        let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert_eq!(mailbox.adopt(one.into()).expect_err("forked"), Error::Forked);
        assert_eq!(mailbox.try_recv().err(), Some(Error::Forked));
        assert_eq!(mailbox.recv_timeout(SHORT).err(), Some(Error::Forked));
        assert_eq!(mailbox.recv_batch(1, |_| ()).err(), Some(Error::Forked));
        assert_eq!(mailbox.arm().expect_err("forked"), Error::Forked);
        mailbox.requeue();
        assert_eq!(sender.wait_acked(None), Err(Error::Forked));
        assert_eq!(sender.take_unread(), Err(Error::Forked));
        assert_eq!(sender.take_unread_iter().err(), Some(Error::Forked));
        assert_eq!(sender.service(), Err(Error::Forked));
        assert_eq!(sender.try_clone().err(), Some(Error::Forked));
        assert_eq!(sender.send(b"x").expect_err("forked"), Error::Forked);
        assert_eq!(sender.try_send(b"x").expect_err("forked"), Error::Forked);
        assert_eq!(sender.send_timeout(b"x", SHORT).expect_err("forked"), Error::Forked);
        assert_eq!(sender.reserve(1).err(), Some(Error::Forked));
        assert_eq!(sender.try_reserve(1).err(), Some(Error::Forked));
        assert_eq!(sender.arm(1).expect_err("forked"), Error::Forked);
        mailbox.close();
    });
    assert_eq!(reap(child), 0);
    let (mut mailbox, mut sender) =
        (mailbox.expect("still present"), sender.expect("still present"));
    let unread = sender.unread_bytes();
    assert!(unread > 1000, "{unread}");
    assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), 1000);
    while mailbox.recv_timeout(SHORT).is_ok() {}
    sender.send(b"last").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"last");
    Sender::connect(&place.path).expect("the listener exists");
    assert_eq!(mailbox.take_errors(), []);
}

/// Calls every method of each handle of a shared heap in a forked child, and drops the handles
/// there. A method without a check would write to the heap's pages, which the child does not
/// inherit.
#[test]
fn heap_handles_in_forked_child_change_nothing() {
    alone!();
    let place = place();
    let heap = Heap::create(1 << 20).expect("there is memory");
    let mut inbox = Some(heap.inbox(Mailbox::bind(&place.path).expect("binds")).expect("ours"));
    let lane = Sender::connect(&place.path).expect("connects");
    let mut outbox = Some(heap.outbox(lane, heap.member()).expect("ours"));
    assert!(inbox.as_mut().expect("still present").try_recv().is_err(), "nothing was sent");
    for _ in 0..2 {
        let sent =
            outbox.as_mut().expect("still present").send(heap.alloc(100).expect("space is free"));
        assert!(sent.is_ok());
    }
    let (received, _) = inbox.as_mut().expect("still present").recv().expect("a block");
    let mut blocks = Some((received, heap.alloc(100_000).expect("space is free")));
    let mut published =
        Some(heap.alloc(64).expect("space is free").publish().expect("a valid filter"));
    let child = bare_fork(|| {
        std::panic::set_hook(Box::new(|_| ()));
        let forked = |error: heap::HeapError| {
            let lanes = heap::HeapError::Mailbox(Error::Forked);
            assert!(error == heap::HeapError::Forked || error == lanes, "{error}");
        };
        let (mut inbox, mut outbox) =
            (inbox.take().expect("still present"), outbox.take().expect("still present"));
        let (small, large) = blocks.take().expect("the blocks");
        let published = published.take().expect("still present");
        let _ = format!("{heap:?} {inbox:?} {outbox:?} {small:?} {large:?} {published:?}");
        let _ = (inbox.sender_count(), inbox.take_errors(), inbox.skipped(), outbox.peer());
        let _ = (published.handle(), published.words(), large.offset());
        forked(heap.alloc(1).expect_err("forked"));
        forked(heap.check().expect_err("forked"));
        forked(heap.claim(published.handle()).expect_err("forked"));
        forked(inbox.try_recv().expect_err("forked"));
        forked(inbox.recv().expect_err("forked"));
        forked(inbox.arm().expect_err("forked"));
        forked(outbox.arm().expect_err("forked"));
        forked(outbox.service().expect_err("forked"));
        forked(outbox.wait_acked(None).expect_err("forked"));
        forked(outbox.take_unread().expect_err("forked"));
        let read = std::panic::AssertUnwindSafe(|| small[0]);
        assert!(std::panic::catch_unwind(read).is_err(), "expected a panic");
        let (error, small) = small.publish().expect_err("forked");
        forked(error);
        let (error, small) = outbox.try_send(small).expect_err("forked");
        forked(error);
        let (error, small) = outbox.send(small).expect_err("forked");
        forked(error);
        forked(heap.read(published.handle(), &mut [0; 8]).expect_err("forked"));
        let load = std::panic::AssertUnwindSafe(|| published.load(0));
        assert!(std::panic::catch_unwind(load).is_err(), "expected a panic");
        drop((small, published, inbox, outbox));
        let _ = large.into_handle();
    });
    assert_eq!(reap(child), 0);
    let (other, _) = inbox.as_mut().expect("still present").recv().expect("the other block");
    drop((other, blocks, published));
    drop((outbox, inbox));
    let report = heap.check().expect("not forked");
    assert_eq!((report.in_use(), report.faults.len()), (0, 0), "{report}");
}

/// Starts a receiver with a forked child that keeps its connections, its listener or both. The
/// receiver ends once the sender waits for space.
fn reader_with_child(place: &Place, receives: usize, end: impl FnOnce()) -> (i32, i32) {
    let (reported, connected) = (Signal::new(), Signal::new());
    let sending = std::process::id().cast_signed();
    let reader = fork(|| {
        let mut mailbox = Options::new().lane_cap(1 << 16).bind(&place.path).expect("binds");
        reported.give(0);
        for _ in 0..receives {
            let _ = mailbox.recv().expect("a message");
        }
        mailbox.ack();
        let child = fork(sleep_indefinitely);
        reported.give(child);
        connected.take();
        until_asleep(sending);
        end();
    });
    assert_eq!(reported.take(), 0);
    let mut sender = Sender::connect(&place.path).expect("connects");
    (0..receives).for_each(|_| sender.send(b"x").expect("sent"));
    let child = reported.take();
    connected.give(0);
    let error = loop {
        if let Err(error) = sender.send_timeout(&[1; 1000], AMPLE) {
            break error;
        }
    };
    assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
    (reader, child)
}

/// Ends this process without dropping any value: a dropped mailbox is closed, not dead.
fn end_at_once() {
    // SAFETY: `_exit` only ends this process.
    unsafe { libc::_exit(0) }
}

/// Regression: before the WELCOME, only the connection was watched. A sender in the queue of a
/// listener that a dead owner's child kept open waited indefinitely.
#[test]
fn death_of_receiver_with_living_child_is_noticed() {
    alone!();
    for receives in [3, 0] {
        let place = place();
        let (reader, child) = reader_with_child(&place, receives, end_at_once);
        assert_eq!(reap(reader), 0);
        let error = Sender::connect(&place.path).expect_err("no receiver");
        assert_eq!(error.errno(), libc::ECONNREFUSED, "{error}");
        let _successor = Mailbox::bind(&place.path).expect("a free address");
        signal(child, libc::SIGKILL);
    }
}

#[test]
fn receiver_that_calls_exec_is_dead() {
    alone!();
    for with_child in [false, true] {
        let place = place();
        let reported = Signal::new();
        let reader = fork(|| {
            let mut mailbox = Options::new().lane_cap(1 << 14).bind(&place.path).expect("binds");
            let _ = mailbox.recv().expect("a message");
            reported.give(if with_child { fork(sleep_indefinitely) } else { 0 });
            exec_sleep();
        });
        let mut sender = connect(&Options::new(), &place.path);
        sender.send(b"one").expect("sent");
        let child = reported.take();
        let error = loop {
            if let Err(error) = sender.send_timeout(&[1; 1000], AMPLE) {
                break error;
            }
        };
        assert_eq!(error.errno(), libc::EOWNERDEAD, "{error}");
        signal(reader, 0); // The process lives.
        assert!(!sender.take_unread().expect("the unread messages").is_empty());
        // The kernel marks the word slightly before `exec` closes the file that holds the path
        // lock.
        until("the path is free", || Mailbox::bind(&place.path).is_ok());
        kill(reader);
        if with_child {
            signal(child, libc::SIGKILL);
        }
    }
}

/// Regression: a sender that called `exec` while its forked child kept the connection was never
/// forgotten. Neither hang-up nor pidfd reports that, and the receiver did not check the liveness
/// word.
#[test]
fn sender_that_calls_exec_is_removed_after_messages() {
    alone!();
    for with_child in [false, true] {
        let (place, mut mailbox) = bound();
        let path = place.path.clone();
        let reported = Signal::new();
        let child = fork(|| {
            let mut sender = Sender::connect(&path).expect("connects");
            sender.send(b"before").expect("sent");
            sender.wait_acked(Some(AMPLE)).expect("read");
            sender.send(b"after").expect("sent");
            reported.give(if with_child { fork(sleep_indefinitely) } else { 0 });
            exec_sleep();
        });
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"before");
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"after");
        let grandchild = reported.take();
        until("the lane is removed", || {
            assert!(mailbox.recv_timeout(SHORT).is_err());
            mailbox.sender_count() == 0
        });
        kill(child);
        if with_child {
            signal(grandchild, libc::SIGKILL);
        }
    }
}

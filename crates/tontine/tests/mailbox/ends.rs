//! Results of a sender's calls when its receiver ends, closes or restarts.

#![allow(unsafe_code, reason = "the end of a process")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::asleep::{until_asleep, until_others_sleep};
use crate::common::*;
use crate::raw;
use crate::shortage::Held;
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Sender, WaitStrategy};

/// Regression: the size of a record was computed without an overflow check: a reservation of almost
/// all of memory took 8 bytes, and its slice extended past the end of every mapping.
#[test]
fn reservation_beyond_any_possible_size_is_refused() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    for joined in [false, true] {
        for length in [usize::MAX, usize::MAX - 7, usize::MAX - 15, isize::MAX as usize, 1 << 40] {
            let refused = |error: Error| matches!(error, Error::TooLarge { .. });
            assert!(
                refused(sender.reserve(length).expect_err("beyond the cap")),
                "{joined} {length}"
            );
            assert!(
                refused(sender.try_reserve(length).expect_err("beyond the cap")),
                "{joined} {length}"
            );
            assert!(refused(sender.arm(length).expect_err("beyond the cap")), "{joined} {length}");
        }
        mailbox.try_recv().expect_err("no message yet");
        sender.service().expect("welcomed");
    }
    // A reservation that is dropped or forgotten sends nothing.
    let _ = sender.reserve(10).expect("space is free");
    sender.send(b"sent").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"sent");
}

/// Regression: a receiver that had closed its mailbox and then ended was reported as dead if its
/// forked child kept the connection, because the liveness word was checked first.
#[test]
fn receiver_ended_after_close_is_reported_closed() {
    alone!();
    let place = place();
    let report = Signal::new();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        report.give(fork(sleep_indefinitely));
        mailbox.close();
    });
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"read").expect("sent");
    let child = report.take();
    assert_eq!(reap(reader), 0);
    let error = sender.send(b"late").expect_err("closed");
    // SAFETY: the receiver started this process, and only the process that adopts it reaps it.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!(error.errno(), libc::EPIPE, "{error}");
}

/// Regression: `wait_acked` returned the receiver's close or death as an error although everything
/// had been read.
#[test]
fn wait_acked_succeeds_if_all_was_read_before_end() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    sender.send(b"read").expect("sent");
    let _ = mailbox.recv_timeout(AMPLE).expect("a message");
    mailbox.close();
    sender.wait_acked(Some(AMPLE)).expect("acknowledged");
    sender.wait_acked(None).expect("acknowledged");
    assert_eq!(sender.service().expect_err("the mailbox has closed").errno(), libc::EPIPE);

    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        mailbox.ack();
        sleep_indefinitely();
    });
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"read").expect("sent");
    until("the message is acknowledged", || sender.unread_bytes() == 0);
    kill(reader);
    sender.wait_acked(Some(AMPLE)).expect("acknowledged");

    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"read").expect("sent");
    sender.send(b"unread").expect("sent");
    let _ = mailbox.recv_timeout(AMPLE).expect("a message");
    mailbox.close();
    assert_eq!(sender.wait_acked(None).expect_err("one message is unread").errno(), libc::EPIPE);
}

/// Repeats `wait` until the parent gives a word.
fn until_given(signal: &Signal, mut wait: impl FnMut()) {
    while !signal.is_given() {
        wait();
    }
}

/// Asserts that a process that waits in several calls sleeps again and again. A process that uses a
/// processor does not sleep at all.
fn sleeps_while_it_waits(child: i32) {
    (0..20).for_each(|_| until_asleep(child));
}

/// Regression: a WELCOME that did not fit into the sender's descriptor table left its socket
/// readable, so that a sender waiting for space used a whole processor.
#[test]
fn sender_without_free_descriptor_sleeps() {
    alone!();
    let (place, mut mailbox) = bound();
    let (full, go) = (Signal::new(), Signal::new());
    let child = fork(|| {
        let mut sender = Options::new()
            .wait_strategy(WaitStrategy::Sleep)
            .connect(&place.path)
            .expect("connects");
        let mut held = Held::new();
        held.leave(0);
        full.give(0);
        go.take();
        until_given(&go, || {
            let waited = sender.send_timeout(&[7; 100_000], Duration::from_millis(100));
            assert_eq!(waited, Err(Error::TimedOut));
        });
        drop(held);
        sender.send_timeout(&[7; 100_000], AMPLE).expect("sent");
    });
    full.take();
    accept(&mut mailbox);
    go.give(0);
    sleeps_while_it_waits(child);
    go.give(0);
    assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), 100_000);
    assert_eq!(reap(child), 0);
}

/// A sender that waits for a stopped or slow receiver sleeps after the spin time.
#[test]
fn sender_without_free_space_sleeps() {
    alone!();
    let (place, mut mailbox) = bound_with(&Options::new().lane_cap(8192));
    let (full, go) = (Signal::new(), Signal::new());
    let child = fork(|| {
        let mut sender = connect(&Options::new(), &place.path);
        go.take();
        let waited = loop {
            if let Err(error) = sender.send_timeout(&[7; 100], SHORT) {
                break error;
            }
        };
        assert_eq!(waited, Error::TimedOut);
        for waits in [
            |sender: &mut Sender, time| sender.send_timeout(&[7; 100], time),
            |sender: &mut Sender, time| sender.wait_acked(Some(time)),
        ] {
            full.give(0);
            go.take();
            until_given(&go, || {
                assert_eq!(waits(&mut sender, Duration::from_millis(100)), Err(Error::TimedOut));
            });
            go.take();
        }
    });
    accept(&mut mailbox);
    // The lane does not grow any more once it is full.
    go.give(0);
    for _ in 0..2 {
        full.take();
        go.give(0);
        sleeps_while_it_waits(child);
        go.give(0);
    }
    assert_eq!(reap(child), 0);
}

/// Deadlines beyond the range of the clock never expire. Regression: a handshake's deadline
/// overflowed.
#[test]
fn longest_timeouts_never_expire() {
    alone!();
    let options = Options::new()
        .handshake_timeout(Duration::MAX)
        .wait_strategy(WaitStrategy::SpinThenSleep(Duration::MAX));
    let receiving = options.clone().shrink_after(Duration::MAX);
    let (place, mut mailbox) = bound_with(&receiving);
    let _silent = raw::dial(&place.path);
    let mut sender = options.connect(&place.path).expect("connects");
    sender.send_timeout(b"first", Duration::MAX).expect("sent");
    assert_eq!(&*mailbox.recv_timeout(Duration::MAX).expect("a message"), b"first");
    assert_eq!(mailbox.recv_timeout(SHORT).expect_err("no message"), Error::TimedOut);
    sender.wait_acked(Some(Duration::MAX)).expect("read");
    drop(mailbox);
    let mut mailbox =
        receiving.wait_strategy(WaitStrategy::Sleep).bind(&place.path).expect("binds");
    let _again = raw::dial(&place.path);
    assert_eq!(mailbox.recv_timeout(SHORT).expect_err("no message"), Error::TimedOut);
}

/// Regression: a receiver that a service manager restarts closes its mailbox. A sender with the
/// option to wait for a successor received EPIPE, because no option made it wait through a restart
/// as well.
#[test]
fn sender_with_wait_through_restarts_survives_restart() {
    alone!();
    let place = place();
    let narrow = Options::new().lane_cap(1 << 16);
    let mut mailbox = narrow.bind(&place.path).expect("binds");
    let patient = Options::new().on_death(OnDeath::WaitThroughRestarts);
    let mut sender = patient.connect(&place.path).expect("connects");
    let waiting = Options::new().on_death(OnDeath::WaitForSuccessor);
    let mut other = waiting.connect(&place.path).expect("connects");
    for number in 0..5_u8 {
        sender.send(&[number]).expect("sent");
    }
    for number in 0..3_u8 {
        assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), [number]);
    }
    other.service().expect("welcomed");
    drop(mailbox);
    assert_eq!(other.send(b"late").expect_err("the mailbox was closed").errno(), libc::EPIPE);
    sender.send(&[5]).expect("the lane waits for a successor");
    sender.service().expect("the lane waits as well");
    assert_eq!(sender.wait_acked(Some(SHORT)), Err(Error::TimedOut));
    // Receivers restart several times while the sender waits for space. Between two receivers the
    // lane must not grow over their cap.
    for round in 0..3 {
        let mut mailbox = narrow.bind(&place.path).expect("a free address");
        thread::scope(|scope| {
            let sending = scope.spawn(|| {
                for number in 6..200_u8 {
                    sender.send_timeout(&[number; 1000], AMPLE).expect("sent");
                }
                sender.wait_acked(Some(AMPLE)).expect("read");
            });
            if round == 0 {
                for number in 3..6_u8 {
                    assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), [number]);
                }
            }
            for number in 6..200_u8 {
                assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), [number; 1000]);
                if number == 100 {
                    thread::sleep(SHORT);
                    drop(mailbox);
                    thread::sleep(SHORT);
                    mailbox = narrow.bind(&place.path).expect("a free address");
                }
            }
            mailbox.ack();
            sending.join().expect("no panic");
        });
    }
}

/// Occupies a process's descriptors, so that it takes a while to close them when it ends.
fn hold_descriptors() -> Vec<std::fs::File> {
    (0..400).map(|_| std::fs::File::open("/dev/null").expect("opened")).collect()
}

/// Regression: a sender reported the death of a live process that had hung up before WELCOME.
#[test]
fn hang_up_of_live_process_before_welcome_is_closed() {
    alone!();
    type HangUp = fn(&Path, &dyn Fn());
    let hang_ups: [HangUp; 4] = [
        |path, wait| {
            let mailbox = Mailbox::bind(path).expect("binds");
            wait();
            drop(mailbox);
        },
        // The program has no mailbox.
        |path, wait| {
            let listener = raw::listen(path);
            let connections = [raw::accept(&listener), raw::accept(&listener)];
            wait();
            drop(connections);
            sleep_indefinitely();
        },
        |path, wait| {
            let _mailbox = Mailbox::bind(path).expect("binds");
            wait();
            let _ = Command::new("sleep").arg("1000").exec();
        },
        // The connections wait at a child's copy of the listener.
        |path, wait| {
            let mailbox = Mailbox::bind(path).expect("binds");
            let child = fork(sleep_indefinitely);
            wait();
            drop(mailbox);
            kill(child);
        },
    ];
    for hang_up in hang_ups {
        let place = place();
        let connected = Signal::new();
        let listener = fork(|| {
            let _held = hold_descriptors();
            hang_up(&place.path, &|| {
                connected.take();
            });
            sleep_indefinitely();
        });
        let mut sender = connect(&Options::new(), &place.path);
        let waits = Options::new().on_death(OnDeath::WaitForSuccessor);
        let mut waiting = connect(&waits, &place.path);
        sender.send(b"unread").expect("sent");
        waiting.send(b"unread").expect("sent");
        connected.give(0);
        let error = sender.wait_acked(Some(AMPLE)).expect_err("no receiver");
        let Error::Closed { peer } = error else { panic!("expected Closed, found {error}") };
        assert_eq!(peer.pid, Some(listener.cast_unsigned()));
        assert_eq!(sender.take_unread().expect("closed"), [b"unread"]);
        // A sender that waits for a successor waits after such an end, too.
        assert_eq!(waiting.wait_acked(Some(SHORT)), Err(Error::TimedOut));
        kill(listener);
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        until("the successor is found", || {
            waiting.service().expect("waits");
            mailbox.try_recv().is_ok_and(|message| *message == *b"unread")
        });
    }
}

/// The hang-up of a killed process is visible before the kernel reports its end.
#[test]
fn hang_up_of_killed_process_before_welcome_is_death() {
    alone!();
    for _ in 0..20 {
        let place = place();
        let listener = fork(|| {
            let _before = hold_descriptors();
            let _mailbox = Mailbox::bind(&place.path).expect("binds");
            let _after = hold_descriptors();
            sleep_indefinitely();
        });
        let mut sender = connect(&Options::new(), &place.path);
        sender.send(b"unread").expect("sent");
        let killing = thread::spawn(move || {
            until_others_sleep();
            kill(listener);
        });
        let error = sender.wait_acked(Some(AMPLE)).expect_err("no receiver");
        assert!(matches!(error, Error::OwnerDied { .. }), "{error}");
        killing.join().expect("killed");
    }
}

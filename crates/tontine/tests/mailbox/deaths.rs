//! Results of a sender's calls for each way in which its receiver can end, or appear to end.

#![allow(unsafe_code, reason = "waitpid for a stopped process")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender};

#[test]
fn stopped_receiver_is_alive_and_sends_time_out() {
    alone!();
    let place = place();
    let options = Options::new().lane_cap(1 << 16);
    let (path, theirs) = (place.path.clone(), options.clone());
    let reader = fork(|| {
        let mut mailbox = theirs.bind(&path).expect("binds");
        while mailbox.recv().is_ok() {}
    });
    let mut sender = connect(&options, &place.path);
    sender.send(b"go").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    signal(reader, libc::SIGSTOP);
    let mut status = 0;
    // SAFETY: the child is our own, and `status` is writable.
    let stopped = unsafe { libc::waitpid(reader, &raw mut status, libc::WUNTRACED) };
    assert_eq!(stopped, reader);
    while sender.try_send(&[1; 100]).is_ok() {}
    let error = sender.send_timeout(&[1; 100], SHORT).expect_err("full");
    assert_eq!(error, Error::TimedOut);
    signal(reader, libc::SIGCONT);
    sender.send_timeout(&[1; 100], AMPLE).expect("the reader still reads");
    kill(reader);
}

#[test]
fn killed_ends_leave_only_name_for_next_owner() {
    alone!();
    let place = place();
    let reader = fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let _ = mailbox.recv().expect("a message");
        sleep_indefinitely();
    });
    let sender = fork(|| {
        let mut sender = connect(&Options::new(), &place.path);
        for _ in 0..100 {
            sender.send(b"lost with both").expect("sent");
        }
        std::fs::write(place.path.with_extension("sent"), b"").expect("written");
        sleep_indefinitely();
    });
    until("all messages are sent", || place.path.with_extension("sent").exists());
    kill(sender);
    kill(reader);
    let left = std::fs::read_dir(place.path.parent().expect("a folder")).expect("still present");
    let mut left: Vec<_> = left.map(|entry| entry.expect("an entry").file_name()).collect();
    left.sort();
    // Regression: the lock file was once called `mailbox.lock.lock`, because two modules added the
    // suffix.
    assert_eq!(left, ["mailbox", "mailbox.lock", "mailbox.sent"]);
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let nothing = mailbox.recv_timeout(SHORT).expect_err("no message is left");
    assert_eq!(nothing, Error::TimedOut);
}

#[test]
fn killed_sender_is_reported_after_its_messages() {
    alone!();
    let (place, mut mailbox) = bound();
    // Long messages move the lane to other chunks than its first.
    let child = fork(|| {
        let mut sender = connect(&Options::new(), &place.path);
        for length in [1, 10_000, 100_000] {
            sender.send(&vec![7; length]).expect("sent");
        }
        std::fs::write(place.path.with_extension("sent"), b"").expect("written");
        sleep_indefinitely();
    });
    assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), 1);
    until("all messages are sent", || place.path.with_extension("sent").exists());
    kill(child);
    for length in [10_000, 100_000] {
        assert_eq!(mailbox.take_deaths(), []);
        assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), length);
    }
    // The descriptor reports the end, also after several calls.
    while mailbox.sender_count() != 0 {
        if mailbox.arm().expect("armed") {
            assert!(is_readable(&mailbox, AMPLE));
        }
        let error = mailbox.recv_timeout(Duration::ZERO).expect_err("no message is left");
        assert_eq!(error, Error::TimedOut);
    }
    let dead: Vec<_> = mailbox.take_deaths().iter().map(|(_, peer)| peer.pid).collect();
    assert_eq!(dead, [Some(child.cast_unsigned())]);
    assert_eq!(mailbox.take_deaths(), []);
}

/// Messages of at least 1 KiB are stored past the cache or through it, whichever is faster, and
/// their stream moves the lane to a larger chunk.
#[test]
fn large_messages_of_killed_sender_are_whole() {
    alone!();
    /// Returns a message whose words all depend on its number, of 1 KiB to 17 KiB or, sometimes, 1
    /// MiB.
    fn message(number: u64) -> Vec<u8> {
        let words = if number % 64 == 63 { 1 << 17 } else { 128 + number * 61 % 2048 };
        let word = |at: u64| (number << 32 | at).to_le_bytes();
        (0..words).flat_map(word).collect()
    }
    let (place, mut mailbox) = bound();
    // The first phases of the choice end after 8 MiB.
    for received in [1, 10, 1500, 3001, 4500] {
        let child = fork(|| {
            let messages: Vec<_> = (0..64).map(message).collect();
            let mut sender = connect(&Options::new(), &place.path);
            for number in 0.. {
                sender.send(&messages[number % 64]).expect("sent");
            }
        });
        let expected: Vec<_> = (0..64).map(message).collect();
        let mut number = 0;
        while number < received {
            let got = mailbox.recv_timeout(AMPLE).expect("a message");
            assert!(*got == expected[number % 64], "message {number}");
            number += 1;
        }
        kill(child);
        while let Ok(got) = mailbox.recv_timeout(SHORT) {
            assert!(*got == expected[number % 64], "message {number}");
            number += 1;
        }
        until("the death is reported", || {
            let _ = mailbox.try_recv();
            !mailbox.take_deaths().is_empty()
        });
        assert_eq!(mailbox.take_errors(), []);
    }
}

#[test]
fn sender_closed_before_exit_is_not_reported_as_dead() {
    alone!();
    let (place, mut mailbox) = bound();
    let closed = fork(|| {
        let mut sender = connect(&Options::new(), &place.path);
        for length in [1, 10_000, 100_000] {
            sender.send(&vec![7; length]).expect("sent");
        }
    });
    for length in [1, 10_000, 100_000] {
        assert_eq!(mailbox.recv_timeout(AMPLE).expect("a message").len(), length);
    }
    // The process has ended before the receiver notices.
    assert_eq!(reap(closed), 0);
    until("the end is noticed", || {
        assert!(mailbox.recv_timeout(Duration::from_millis(1)).is_err());
        mailbox.sender_count() == 0
    });
    assert_eq!(mailbox.take_deaths(), []);
}

/// Ends this process with a core dump. The core is in `folder` if the system writes cores to the
/// working directory. Removes the program's own handlers, which would return.
fn dump_core(folder: &std::path::Path, signal: i32) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    std::env::set_current_dir(folder).expect("a folder");
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let most = maximum.unwrap_or(u64::MAX).min(1 << 28);
    setrlimit(Resource::Core, Rlimit { current: Some(most), maximum }).expect("raised");
    // SAFETY: this signal kills the process, and no handler runs.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

#[test]
fn sender_that_dumps_core_leaves_sent_messages() {
    alone!();
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with('/') {
        println!("skipped: cores would be left in {pattern}");
        return;
    }
    for signal in [libc::SIGABRT, libc::SIGSEGV] {
        let (place, mut mailbox) = bound();
        let folder = place.path.parent().expect("a folder");
        let child = fork(|| {
            let mut sender = Sender::connect(&place.path).expect("connects");
            for number in 0..300_u32 {
                sender.send(&number.to_le_bytes().repeat(100)).expect("sent");
            }
            dump_core(folder, signal);
        });
        for number in 0..300_u32 {
            let message = mailbox.recv_timeout(AMPLE).expect("a message");
            assert_eq!(*message, number.to_le_bytes().repeat(100));
        }
        until("the end is noticed", || {
            assert!(mailbox.recv_timeout(std::time::Duration::from_millis(1)).is_err());
            mailbox.sender_count() == 0
        });
        assert_eq!(mailbox.take_errors(), []);
        let dead: Vec<_> = mailbox.take_deaths().iter().map(|(_, peer)| peer.pid).collect();
        assert_eq!(dead, [Some(child.cast_unsigned())]);
        let status = reap(child);
        assert_eq!(libc::WTERMSIG(status), signal);
        if !libc::WCOREDUMP(status) {
            println!("no core was written here");
        }
    }
}

/// Regression: if a handler panicked, its message was lost, because unwinding dropped the mailbox,
/// which acknowledged the last received message.
#[test]
fn panicking_receiver_leaves_current_message_unread() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    for job in ["done", "in hand", "waiting"] {
        sender.send(job.as_bytes()).expect("sent");
    }
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"done");
        let job = mailbox.recv_timeout(AMPLE).expect("a message");
        panic!("could not do {}", job.escape_ascii());
    }));
    assert!(panicked.is_err());
    assert!(matches!(sender.send(b"more"), Err(Error::Closed { .. })));
    assert_eq!(
        sender.take_unread().expect("the unread messages"),
        [b"in hand".to_vec(), b"waiting".to_vec()]
    );
}

/// Regression: a panic during a message of a batch lost that message too, if the program continued
/// with the next call.
#[test]
fn message_of_panicking_batch_handler_is_redelivered() {
    alone!();
    for panics_at in 0..5 {
        let (place, mut mailbox) = bound();
        let mut senders: Vec<Sender> =
            (0..2).map(|_| Sender::connect(&place.path).expect("connects")).collect();
        mailbox.try_recv().expect_err("no message yet");
        for number in 0..6_u8 {
            senders[usize::from(number / 3)].send(&[number]).expect("sent");
        }
        let mut given = Vec::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            mailbox.recv_batch(6, |message| {
                given.push(message[0]);
                assert!(given.len() != panics_at + 1, "could not do {}", message[0]);
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(given.len(), panics_at + 1);
        let last = given.pop();
        let mut rest = Vec::new();
        while let Ok(message) = mailbox.try_recv() {
            rest.push(message[0]);
        }
        assert!(rest.contains(&last.expect("the message beyond the limit")), "{given:?}, {rest:?}");
        given.append(&mut rest);
        given.sort_unstable();
        assert_eq!(
            given,
            [0, 1, 2, 3, 4, 5],
            "each message is received, and no acknowledged message is received again"
        );
    }
}

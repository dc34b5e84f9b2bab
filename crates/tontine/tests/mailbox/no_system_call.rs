//! Sending to an awake receiver and receiving pending messages make no system call: a filter kills
//! a process that makes one.

#![allow(unsafe_code, reason = "ends a process at once")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{AMPLE, fork, place, reap};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};

const COUNT: u64 = 10_000;

/// Forbids all further system calls of this thread except the one that ends the process.
fn forbid_system_calls() {
    let rules = BTreeMap::from([(libc::SYS_exit_group, Vec::new())]);
    let arch = std::env::consts::ARCH.try_into().expect("a known processor");
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, arch);
    let program: BpfProgram = filter.expect("a valid filter").try_into().expect("compiles");
    apply_filter(&program).expect("filters are permitted");
}

/// Returns messages of 0 to 39 bytes, which make several laps of the smallest ring.
fn message(number: u64) -> Vec<u8> {
    vec![number as u8; number as usize % 40]
}

/// Regression: a sender that had used up its known free space, as it does once per lap, read from
/// its socket before it checked the receiver's position. This took one system call per few hundred
/// messages.
#[test]
fn send_to_awake_receiver_makes_no_system_call() {
    alone!();
    let place = place();
    let options = Options::new().wait_strategy(WaitStrategy::Spin);
    let status = reap(fork(|| {
        static RECEIVED: AtomicU64 = AtomicU64::new(0);
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut sender = options.first_chunk(4096).connect(&place.path).expect("connects");
        thread::spawn(move || {
            while sender.peer().is_none() {
                sender.service().expect("the receiver lives");
            }
            let messages: Vec<_> = (0..COUNT).map(message).collect();
            forbid_system_calls();
            for (sent, message) in (0..).zip(&messages) {
                // The sender stays well within the ring.
                while sent > RECEIVED.load(Ordering::Relaxed) + 16 {
                    std::hint::spin_loop();
                }
                assert!(sender.send(message).is_ok());
            }
            // The thread spins until the process exits, because the exit of a thread makes system
            // calls.
            loop {
                std::hint::spin_loop();
            }
        });
        for number in 0..COUNT {
            let received = mailbox.recv_timeout(AMPLE).expect("a message").to_vec();
            assert_eq!(received, message(number));
            mailbox.ack();
            RECEIVED.store(number + 1, Ordering::Relaxed);
        }
    }));
    assert_eq!(status, 0, "killed for a system call, or failed");
}

#[test]
fn recv_of_pending_messages_makes_no_system_call() {
    alone!();
    let messages: Vec<_> = (0..1000).map(message).collect();
    once_without_system_call(|mailbox, sender| {
        for few in messages.chunks(16) {
            for message in few {
                assert!(sender.send(message).is_ok());
            }
            for message in few {
                assert!(mailbox.recv().is_ok_and(|received| *received == **message));
            }
        }
    });
}

#[test]
fn try_recv_without_message_makes_no_system_call() {
    alone!();
    once_without_system_call(|mailbox, sender| {
        for _ in 0..1000 {
            assert!(mailbox.try_recv().is_err());
        }
        assert!(sender.send(b"later").is_ok());
        assert!(mailbox.try_recv().is_ok_and(|received| *received == *b"later"));
    });
}

/// A receiver that sleeps, or waits on its descriptor, is woken by one message: the sender rings
/// once per wait.
#[test]
fn further_sends_to_sleeping_receiver_make_no_system_call() {
    alone!();
    let place = place();
    let status = reap(fork(|| {
        let mut mailbox = Mailbox::bind(&place.path).expect("binds");
        let mut sender = Sender::connect(&place.path).expect("connects");
        sender.send(b"first").expect("sent");
        assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), *b"first");
        while !mailbox.arm().expect("armed") {
            let _ = mailbox.recv_timeout(Duration::ZERO);
        }
        sender.send(b"ring").expect("sent");
        forbid_system_calls();
        for number in 0..100 {
            assert!(sender.send(&message(number)).is_ok());
        }
        // SAFETY: `_exit` only ends this process. Drops would make system calls to unmap memory.
        unsafe { libc::_exit(0) }
    }));
    assert_eq!(status, 0, "killed for a system call, or failed");
}

/// Does `work` with all system calls forbidden.
///
/// The receiver checks for connections after 65,536 messages or some milliseconds, and makes no
/// system call between two such checks. On a busy machine those milliseconds may pass at any
/// message, so only one of many attempts must be free of a check.
fn once_without_system_call(work: impl Fn(&mut Mailbox, &mut Sender)) {
    let is_free = (0..500).any(|_| {
        let status = without_system_calls(&work);
        assert!(status == 0 || libc::WTERMSIG(status) == libc::SIGSYS, "failed: {status:#x}");
        status == 0
    });
    assert!(is_free, "each attempt was killed for a system call");
}

fn without_system_calls(work: impl Fn(&mut Mailbox, &mut Sender)) -> i32 {
    let place = place();
    let options = Options::new().wait_strategy(WaitStrategy::Spin);
    reap(fork(|| {
        let mut mailbox = options.bind(&place.path).expect("binds");
        let mut sender = options.first_chunk(4096).connect(&place.path).expect("connects");
        for number in 0..100 {
            sender.send(&message(number)).expect("sent");
            assert_eq!(*mailbox.recv_timeout(AMPLE).expect("a message"), message(number));
        }
        // This call checks for connections.
        let _ = mailbox.recv_timeout(Duration::ZERO).expect_err("all messages were received");
        forbid_system_calls();
        work(&mut mailbox, &mut sender);
        // SAFETY: `_exit` only ends this process. Drops would make system calls to unmap memory.
        unsafe { libc::_exit(0) }
    }))
}

#[test]
fn system_call_filter_kills_process() {
    alone!();
    let status = reap(fork(|| {
        forbid_system_calls();
        std::hint::black_box(rustix::process::getppid());
    }));
    assert_eq!(libc::WTERMSIG(status), libc::SIGSYS);
}

//! No process sleeps while messages are pending: the check before each sleep covers every lane to
//! its end.

#![allow(unsafe_code, reason = "another process's limits")]

use crate::raw;
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use crate::common::*;
use crate::raw::{RING, header};
use rustix::event::{Timespec, epoll};
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};

/// Sends a message, and waits until it has arrived and both ends know each other.
fn begin(mailbox: &mut Mailbox, sender: &mut Sender) {
    sender.send(b"first").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"first");
    mailbox.ack();
    sender.wait_acked(Some(AMPLE)).expect("read");
    assert_eq!(mailbox.try_recv().expect_err("no further message"), Error::WouldBlock);
}

/// Leaves behind chunks without messages.
fn leave_empty_chunks(sender: &mut Sender) {
    for length in (12..19).map(|log2| 3 << log2) {
        let reserved = sender.reserve(length).expect("the lane grows");
        assert_eq!(reserved.len(), length, "and it is dropped without commit");
    }
}

/// Regression: the check followed one change of chunks and took an empty chunk for the end of the
/// lane. `arm` reported that nothing was pending although a message was two chunks further on, and
/// no sender rang for that message again.
#[test]
fn message_after_empty_chunks_is_seen_before_waiting() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    begin(&mut mailbox, &mut sender);
    leave_empty_chunks(&mut sender);
    sender.send(b"behind them").expect("sent");
    assert_eq!(mailbox.arm(), Ok(false), "a message has arrived");
    assert_eq!(&*mailbox.try_recv().expect("a message"), b"behind them");
}

/// A sender rings once per wait, and rings stay queued for several waits. A wait whose number a
/// sender had already rung for, or a full queue, would leave the receiver asleep.
#[test]
fn each_of_many_waits_is_notified() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut senders = [(); 2].map(|()| Sender::connect(&place.path).expect("connects"));
    senders.iter_mut().for_each(|sender| begin(&mut mailbox, sender));
    for round in 0..3000_usize {
        while !mailbox.arm().expect("armed") {
            assert!(mailbox.recv_timeout(Duration::ZERO).is_err(), "all messages were received");
        }
        let ringing =
            if round % 3 == 0 { &mut senders[..] } else { &mut senders[round % 2..][..1] };
        for sender in ringing.iter_mut() {
            (0..=round % 4).for_each(|_| sender.send(b"ring").expect("sent"));
        }
        if round % 5 == 0 {
            assert_eq!(mailbox.arm(), Ok(false), "messages have arrived");
        } else {
            assert!(is_readable(&mailbox, AMPLE), "no notification in wait {round}");
        }
        for _ in 0..ringing.len() * (round % 4 + 1) {
            assert_eq!(&*mailbox.try_recv().expect("a message"), b"ring");
        }
    }
}

/// Regression: `arm` announced the same wait again to a sender that had rung for it. The event of
/// that ring was still in the mailbox's set, but a set that reports edges had reported it already.
#[test]
fn each_wait_of_partly_read_mailbox_is_an_edge() {
    alone!();
    let (_place, mut mailbox, mut sender) = channel();
    // Fast messages make turns long, so that one call for each message makes no system call.
    (0..100).for_each(|_| begin(&mut mailbox, &mut sender));
    let edges = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a set");
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&edges, &mailbox, epoll::EventData::new_u64(0), flags).expect("added");
    let ample = Timespec { tv_sec: 60, tv_nsec: 0 };
    for round in 0..1000 {
        assert_eq!(mailbox.arm(), Ok(true), "all messages were received");
        sender.send(b"ring").expect("sent");
        let mut events = [epoll::Event { flags, data: epoll::EventData::new_u64(0) }];
        assert_eq!(epoll::wait(&edges, &mut events, Some(&ample)), Ok(1), "no edge in {round}");
        assert_eq!(mailbox.arm(), Ok(false), "a message has arrived");
        assert_eq!(&*mailbox.try_recv().expect("a message"), b"ring");
    }
}

/// Like [`message_after_empty_chunks_is_seen_before_waiting`], but the receiver already sleeps, or
/// is in `recv` with and without a deadline.
#[test]
fn message_after_empty_chunks_wakes_receiver() {
    alone!();
    let place = place();
    let mut mailbox =
        Options::new().wait_strategy(WaitStrategy::Sleep).bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    begin(&mut mailbox, &mut sender);
    assert_eq!(mailbox.arm(), Ok(true), "no message has arrived");
    leave_empty_chunks(&mut sender);
    sender.send(b"behind them").expect("sent");
    assert!(is_readable(&mailbox, AMPLE), "no notification");
    let none = mailbox.recv_timeout(Duration::ZERO).map(|message| message.to_vec());
    assert_eq!(none, Ok(b"behind them".to_vec()));

    let path = &place.path;
    thread::scope(|threads| {
        let receiving = threads.spawn(move || {
            let message = mailbox.recv().expect("a message").to_vec();
            (mailbox, message)
        });
        let mut another = Sender::connect(path).expect("connects");
        leave_empty_chunks(&mut another);
        another.send(b"behind others").expect("sent");
        let (_mailbox, message) = receiving.join().expect("no panic");
        assert_eq!(message, b"behind others");
    });
}

/// A sender leaves the longest chain of empty chunks that an honest sender can leave.
#[test]
fn longest_chain_of_empty_chunks_is_followed_in_one_scan() {
    alone!();
    let (place, mut mailbox) = bound();
    let (socket, mut chunk) = raw::lane(&place.path);
    mailbox.try_recv().expect_err("no message yet");
    let mut chunks = Vec::new();
    // Each chunk has the size of all before it together.
    for (sequence, log2) in (1..).zip(12..20) {
        let next = raw::chunk(log2);
        assert!(raw::send(&socket, &raw::chunk_note(log2, sequence), &[next.fd.as_fd()]));
        chunk.put(RING, header(3, log2.into()));
        chunks.push(std::mem::replace(&mut chunk, next));
    }
    chunk.put_message(RING, 5);
    assert_eq!(mailbox.arm(), Ok(false), "a message has arrived");
    assert_eq!(&*mailbox.try_recv().expect("a message"), [0; 5]);
    assert_eq!(mailbox.take_errors(), []);
}

/// Regression: a scan of all idle lanes walked a list while it removed lanes that woke, and moved
/// the last lane into their place. The moved lane was skipped. If the lane that woke had no message
/// (it was broken, had ended, or continued in an empty chunk), the receiver went to sleep despite
/// the moved lane's message.
#[test]
fn broken_lane_does_not_hide_other_lanes_message() {
    alone!();
    for broken_at in 0..6 {
        for modest in 0..5 {
            for turns in 0..7 {
                let (place, mut mailbox) = bound();
                let mut senders = Vec::new();
                let mut broken = None;
                for index in 0..6 {
                    if index == broken_at {
                        broken = Some(raw::lane(&place.path));
                        mailbox.try_recv().expect_err("no message yet");
                    } else {
                        let mut sender = Sender::connect(&place.path).expect("connects");
                        begin(&mut mailbox, &mut sender);
                        senders.push(sender);
                    }
                }
                // These calls make all lanes idle, and move the turn to any of the lanes.
                for _ in 0..10 + turns {
                    mailbox.try_recv().expect_err("no message");
                }
                let (_socket, chunk) = broken.expect("created above");
                chunk.put(RING, header(7, 0));
                senders[modest].send(b"modest").expect("sent");
                let armed = mailbox.arm();
                assert_eq!(armed, Ok(false), "{broken_at} broke, {modest} sent, {turns} turns");
                assert_eq!(&*mailbox.try_recv().expect("a message"), b"modest");
            }
        }
    }
}

/// Limits the address space of a process.
fn limit_address_space(pid: i32, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the process is our own child; the call reads `limit` and returns no old limit.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_AS, &limit, std::ptr::null_mut()) };
    assert_eq!(done, 0, "prlimit");
}

/// Regression: a receiver that lacked the memory to map a chunk slept, although no sender rings
/// when memory becomes available.
#[test]
fn chunk_mapping_is_retried_after_memory_shortage() {
    alone!();
    let place = place();
    let receiver = fork(|| {
        let options = Options::new().wait_strategy(WaitStrategy::Sleep);
        let mut mailbox = options.bind(&place.path).expect("binds");
        loop {
            let _ = mailbox.recv().expect("a message").len();
            mailbox.ack();
        }
    });
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"first").expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("read");
    // A thread that closes the connection's descriptors would take memory of its own later.
    until("the receiver has one thread", || {
        std::fs::read_dir(format!("/proc/{receiver}/task")).expect("a folder").count() == 1
    });
    let sizes = std::fs::read_to_string(format!("/proc/{receiver}/statm"))
        .expect("the sizes of the process");
    let pages: u64 = sizes.split(' ').next().and_then(|pages| pages.parse().ok()).expect("pages");
    // Enough for the allocator, which takes 132 KiB at a time, but not for the new chunk of 1 MiB.
    limit_address_space(receiver, (pages + 192) * 4096);
    sender.send(&[7; 400_000]).expect("sent");
    let error =
        sender.wait_acked(Some(Duration::from_millis(100))).expect_err("no memory for the chunk");
    assert_eq!(error, Error::TimedOut);
    limit_address_space(receiver, libc::RLIM_INFINITY);
    sender.wait_acked(Some(AMPLE)).expect("the retry succeeds");
    kill(receiver);
}

//! Hostile senders: raw sockets and memory against an honest mailbox. The mailbox neither crashes
//! nor hangs nor loses another sender's messages, whatever a sender does.

use crate::raw;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::raw::{RING, header, hello, hello_at};
use rustix::fs::MemfdFlags;
use tontine::mailbox::{Mailbox, Options, Order, Sender};
use tontine::{Error, Peer};

/// Returns the mailbox's description of a protocol violation.
fn broken(faults: &[Error]) -> &'static str {
    match faults {
        [Error::Protocol { what, .. }] => what,
        other => panic!("expected one broken lane, found {other:?}"),
    }
}

/// Asserts that an honest sender's message still arrives.
fn still_serves(mailbox: &mut Mailbox, sender: &mut Sender) {
    sender.send(b"honest").expect("sent");
    assert_eq!(&*mailbox.recv_timeout(AMPLE).expect("a message"), b"honest");
}

/// Serves until the mailbox reports a peer's error.
fn faults(mailbox: &mut Mailbox) -> Vec<Error> {
    let mut found = Vec::new();
    until("an error is reported", || {
        let nothing = mailbox.recv_timeout(Duration::from_millis(1)).is_err();
        assert!(nothing, "a message that no sender sent");
        found.extend(mailbox.take_errors());
        !found.is_empty()
    });
    found
}

#[test]
fn silent_connection_is_dropped_without_blocking_others() {
    alone!();
    let options = Options::new().handshake_timeout(Duration::from_millis(100));
    let (place, mut mailbox) = bound_with(&options);
    let silent = raw::dial(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    still_serves(&mut mailbox, &mut sender);
    // The receiver sleeps, and wakes by itself when the silent peer's handshake timeout expires.
    thread::scope(|threads| {
        let receiving = threads.spawn(|| mailbox.recv().expect("a message").to_vec());
        let (kind, ..) = raw::receive(&silent);
        assert_eq!(kind, 0, "the mailbox hung up");
        sender.send(b"later").expect("sent");
        assert_eq!(receiving.join().expect("no panic"), b"later");
    });
    still_serves(&mut mailbox, &mut sender);
}

#[test]
fn open_descriptors_are_bounded_under_10000_connections() {
    alone!();
    let (place, mut mailbox) = bound();
    let (path, done) = (place.path.clone(), AtomicBool::new(false));
    thread::scope(|threads| {
        let before = open_descriptors();
        threads.spawn(|| {
            let mut held = std::collections::VecDeque::new();
            for _ in 0..10_000 {
                held.push_back(raw::dial(&path));
                if held.len() > 100 {
                    held.pop_front();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        let honest = threads.spawn(|| {
            for number in 0..50_u32 {
                let mut sender = Sender::connect(&path).expect("connects");
                sender.send_timeout(&number.to_le_bytes(), AMPLE).expect("sent");
                sender.wait_acked(Some(AMPLE)).expect("read");
            }
        });
        let mut received = 0_u32;
        while received < 50 || !done.load(Ordering::Relaxed) {
            match mailbox.recv_timeout(Duration::from_millis(10)) {
                Ok(message) => {
                    assert_eq!(*message, received.to_le_bytes());
                    received += 1;
                }
                Err(error) => assert_eq!(error, Error::TimedOut),
            }
            // These are the descriptors of 64 pending connections, the hostile peer's own 101, and
            // the descriptors of other tests.
            assert!(
                open_descriptors() < before + 400,
                "{} descriptors, {before} before",
                open_descriptors()
            );
            mailbox.ack();
        }
        honest.join().expect("all messages are read");
    });
}

#[test]
fn malformed_hello_is_refused() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    still_serves(&mut mailbox, &mut sender);
    let good = hello(1 << 20, &[12]);
    let longest = hello(1 << 20, &[12; 32]);
    let mut fences = good.clone();
    fences[8] = 7;
    let cases: [(&str, Vec<u8>); 11] = [
        ("nothing", Vec::new()),
        ("a byte", vec![1]),
        ("no chunks", hello(1 << 20, &[])),
        ("a chunk of size 0", hello(1 << 20, &[12, 0])),
        ("many small chunks", hello(1 << 20, &[12, 12, 12])),
        ("a smaller chunk", hello(1 << 20, &[13, 12])),
        ("cut off", good[..39].to_vec()),
        ("too long", [longest.as_slice(), &[12]].concat()),
        ("undefined fences", fences),
        ("another message first", raw::note(raw::WANT, &[0, 0])),
        ("an unknown kind", raw::note(77, &[])),
    ];
    for (what, bytes) in cases {
        let (socket, chunk) = (raw::dial(&place.path), raw::chunk(12));
        raw::send(&socket, &bytes, &[raw::life(), chunk.fd.as_fd()]);
        let found = faults(&mut mailbox);
        assert_eq!(raw::refusal(&socket), libc::EPROTO, "{what}: {found:?}");
        still_serves(&mut mailbox, &mut sender);
    }
    assert_eq!(mailbox.sender_count(), 1);
}

#[test]
fn version_mismatch_error_names_both_versions() {
    alone!();
    let (place, mut mailbox) = bound();
    let (socket, chunk) = (raw::dial(&place.path), raw::chunk(12));
    let mut bytes = hello(1 << 20, &[12]);
    bytes[4] = 9;
    raw::send(&socket, &bytes, &[raw::life(), chunk.fd.as_fd()]);
    assert_eq!(faults(&mut mailbox), [Error::VersionMismatch { ours: raw::VERSION, theirs: 9 }]);
    assert_eq!(raw::refusal(&socket), libc::EPROTONOSUPPORT);
}

#[test]
fn hello_with_wrong_descriptor_count_is_refused() {
    alone!();
    let (place, mut mailbox) = bound();
    let chunk = raw::chunk(12);
    for count in [0, 1, 3, 253] {
        let socket = raw::dial(&place.path);
        let fds = vec![chunk.fd.as_fd(); count];
        assert!(raw::send(&socket, &hello(1 << 20, &[12]), &fds));
        let found = faults(&mut mailbox);
        assert!(broken(&found).contains("one for each chunk"), "{count}: {found:?}");
    }
    assert_eq!(mailbox.sender_count(), 0);
}

/// Returns descriptors that are invalid as a chunk of 4 KiB, each with its name.
fn invalid_chunks() -> Vec<(&'static str, OwnedFd)> {
    let (pipe, _) = rustix::pipe::pipe().expect("a pipe");
    let flags = rustix::event::epoll::CreateFlags::CLOEXEC;
    let epoll = rustix::event::epoll::create(flags).expect("epoll");
    let unsealed = raw::memfd(4096);
    rustix::io::pwrite(&unsealed, &[1; 4096], 0).expect("written");
    let sparse = raw::memfd(4096);
    rustix::fs::fcntl_add_seals(&sparse, raw::SEALS).expect("seals");
    let file = tempfile::tempfile().expect("a file");
    file.set_len(4096).expect("the size of a chunk");
    let mut found = vec![
        ("a pipe", pipe),
        ("an epoll set", epoll),
        ("an unsealed memfd", unsealed),
        ("a sparse memfd", sparse),
        ("a regular file", file.into()),
        ("a large memfd", raw::Memory::new(8192).fd.try_clone().expect("a copy")),
    ];
    let huge = MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    if let Ok(huge) = rustix::fs::memfd_create("huge", huge) {
        rustix::fs::fcntl_add_seals(&huge, raw::SEALS).expect("seals");
        found.push(("huge pages", huge));
    }
    found
}

#[test]
fn descriptor_of_invalid_kind_is_refused() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    still_serves(&mut mailbox, &mut sender);
    let chunk = raw::chunk(12);
    for (name, invalid_chunks) in invalid_chunks() {
        for fds in
            [[invalid_chunks.as_fd(), chunk.fd.as_fd()], [raw::life(), invalid_chunks.as_fd()]]
        {
            let socket = raw::dial(&place.path);
            assert!(raw::send(&socket, &hello(1 << 20, &[12]), &fds));
            let found = faults(&mut mailbox);
            assert!(broken(&found).starts_with("expected a "), "{name}: {found:?}");
            assert_eq!(raw::refusal(&socket), libc::EPROTO, "{name}");
        }
        // Then an admitted lane passes the same descriptor.
        let (socket, first) = raw::lane(&place.path);
        assert!(raw::send(&socket, &raw::chunk_note(12, 1), &[invalid_chunks.as_fd()]));
        assert!(broken(&faults(&mut mailbox)).starts_with("expected a "), "{name}");
        drop(first);
        still_serves(&mut mailbox, &mut sender);
    }
    assert_eq!(mailbox.sender_count(), 1);
}

/// Regression: many chunks of 4 KiB cost the receiver a mapping each, and two mailboxes with 1,024
/// such lanes exhausted the mappings of the process (`vm.max_map_count`).
#[test]
fn lane_with_many_small_chunks_is_refused() {
    alone!();
    let (place, mut mailbox) = bound();
    let (socket, _first) = raw::lane(&place.path);
    assert_eq!(mailbox.try_recv().map(drop), Err(Error::WouldBlock));
    let chunk = raw::chunk(12);
    // The last of these is one more than their size allows.
    for sequence in 1..=5 {
        assert!(raw::send(&socket, &raw::chunk_note(12, sequence), &[chunk.fd.as_fd()]));
    }
    let found = faults(&mut mailbox);
    assert!(broken(&found).starts_with("more chunks than their size allows"), "{found:?}");
    assert_eq!(mailbox.sender_count(), 0);
}

/// Regression: descriptors that arrived with a refused message were closed synchronously, with a
/// plain `close`: a lingering socket held the receiver for as long as the peer chose. Only the
/// descriptors of a `HELLO` with too many or too few descriptors were closed safely.
#[test]
fn closing_refused_descriptors_does_not_wait() {
    alone!();
    let (place, mut mailbox) = bound();
    let chunk = raw::chunk(12);
    let good = hello(1 << 20, &[12]);
    let mut version = good.clone();
    version[4] = 9;
    let started = Instant::now();
    for bytes in [good.clone(), version, raw::note(77, &[]), raw::note(raw::SPACE, &[])] {
        let (tcp, _unread) = raw::lingering();
        let socket = raw::dial(&place.path);
        assert!(raw::send(&socket, &bytes, &[tcp.as_fd(), chunk.fd.as_fd()]));
        drop(tcp);
        faults(&mut mailbox);
    }
    for bytes in [raw::chunk_note(12, 1), raw::note(raw::WANT, &[0, 0]), vec![1]] {
        let (tcp, _unread) = raw::lingering();
        let (socket, _chunk) = raw::lane(&place.path);
        assert!(raw::send(&socket, &bytes, &[tcp.as_fd()]));
        drop(tcp);
        faults(&mut mailbox);
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

/// An old stamp puts a message first in its scan, and a stamp in the future last. Other senders'
/// messages keep their order, and none is withheld.
#[test]
fn false_stamps_move_only_own_messages() {
    alone!();
    let place = place();
    let mut mailbox = Options::new().order(Order::Causal).bind(&place.path).expect("binds");
    let mut honest = [0, 1].map(|_| Sender::connect(&place.path).expect("connects"));
    let (_socket, chunk) = raw::lane(&place.path);
    // Each record is a stamp, and a message of eight zeros.
    let future = header(4, u64::from(u32::MAX)) | 0x7f_ffff << 40;
    let stamps = [header(4, 0), future, header(4, 1), future, header(4, 2)];
    for (index, stamp) in stamps.into_iter().enumerate() {
        let at = RING + 24 * index;
        chunk.put_message(at + 8, 8);
        chunk.put(at, stamp);
    }
    for number in 1..=100_u64 {
        honest[number as usize % 2].send(&number.to_ne_bytes()).expect("sent");
    }
    let mut received: Vec<u64> = (0..105)
        .map(|_| {
            let message = mailbox.recv_timeout(AMPLE).expect("a message");
            u64::from_ne_bytes(message[..].try_into().expect("eight bytes"))
        })
        .collect();
    received.retain(|number| *number != 0);
    assert_eq!(received, (1..=100).collect::<Vec<_>>());
    assert_eq!(mailbox.take_errors(), []);
}

/// Regression: a scan in causal order had no end before the lane cap, so a sender that refilled its
/// small chunk with old stamps held up all others for 64 MiB.
#[test]
fn endless_old_stamps_hold_up_others_for_one_chunk() {
    const RECORD: u64 = 32;
    alone!();
    let place = place();
    let mut mailbox = Options::new().order(Order::Causal).bind(&place.path).expect("binds");
    let mut honest = Sender::connect(&place.path).expect("connects");
    let (_socket, chunk) = raw::lane(&place.path);
    // The records fill the ring, and no one removes them, so the lane never ends.
    for at in (RING..4096).step_by(RECORD as usize) {
        chunk.put_message(at + 8, RECORD - 16);
        chunk.put(at, header(4, 1));
    }
    honest.send(b"honest").expect("sent");
    let is_honest = |_: &usize| &*mailbox.recv_timeout(AMPLE).expect("a message") == b"honest";
    let arrived = (0..1000).find(is_honest).expect("it arrives");
    assert!(arrived as u64 <= 2 * 4096 / RECORD, "after {arrived} messages");
}

#[test]
fn garbage_in_chunk_closes_only_that_lane() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    still_serves(&mut mailbox, &mut sender);
    let end = 4096 - RING as u64;
    let cases = [
        ("an unknown kind", header(9, 0), "header has an unknown kind"),
        ("bits that are zero", 1 << 63 | header(1, 8), "header has an unknown kind"),
        ("longer than the ring", header(1, end - 7), "longer than the rest of its ring"),
        ("the longest of all", header(1, u64::from(u32::MAX)), "longer than the rest of its ring"),
        ("padding too short", header(2, 8), "padding record does not reach"),
        ("padding too long", header(2, end), "padding record does not reach"),
        ("padding after padding", header(2, end - 8), "padding record follows a padding"),
        ("next, and nothing queued", header(3, 12), "but no chunk was passed"),
        ("a stamp of nothing", header(4, 7), "a stamp is not followed by a message"),
    ];
    for (name, word, expected) in cases {
        let (_socket, chunk) = raw::lane(&place.path);
        chunk.put(RING, word);
        let found = faults(&mut mailbox);
        assert!(broken(&found).contains(expected), "{name}: {found:?}");
        let us = Peer { pid: Some(std::process::id()), uid: rustix::process::geteuid().as_raw() };
        assert!(matches!(&found[0], Error::Protocol { peer, .. } if *peer == us), "{found:?}");
        still_serves(&mut mailbox, &mut sender);
    }
    assert_eq!(mailbox.sender_count(), 1);
}

#[test]
fn chain_of_empty_chunks_is_bounded() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    still_serves(&mut mailbox, &mut sender);
    let (socket, mut chunk) = raw::lane(&place.path);
    for sequence in 1..200 {
        let next = raw::chunk(12);
        assert!(raw::send(&socket, &raw::chunk_note(12, sequence), &[next.fd.as_fd()]));
        chunk.put(RING, header(3, 12));
        mailbox.recv_timeout(Duration::ZERO).expect_err("no message");
        still_serves(&mut mailbox, &mut sender);
        chunk = next;
    }
    assert_eq!(mailbox.take_errors(), []);
    // The sender queues more chunks than any honest sender does.
    let next = raw::chunk(12);
    for sequence in 200..240 {
        raw::send(&socket, &raw::chunk_note(12, sequence), &[next.fd.as_fd()]);
    }
    assert!(broken(&faults(&mut mailbox)).contains("chunk"));
    // `next` announces a size other than that of the passed chunk.
    let (socket, chunk) = raw::lane(&place.path);
    assert!(raw::send(&socket, &raw::chunk_note(12, 1), &[next.fd.as_fd()]));
    chunk.put(RING, header(3, 13));
    assert!(broken(&faults(&mut mailbox)).contains("another size"));
    still_serves(&mut mailbox, &mut sender);
}

/// Regression: a `HELLO` that handed over a lane at the largest positions made the receiver's sum
/// overflow.
#[test]
fn hello_with_unreachable_positions_is_refused() {
    alone!();
    let (place, mut mailbox) = bound();
    let last = u64::MAX - 7;
    let cases = [(last, last), (8, 16), (4, 0), (last, 0), (9, 8), (1 << 63, 1 << 63)];
    for (position, base) in cases {
        let (socket, chunk) = (raw::dial(&place.path), raw::chunk(12));
        chunk.put_message(RING, 64);
        let bytes = hello_at(1 << 20, position, base, &[12]);
        assert!(raw::send(&socket, &bytes, &[raw::life(), chunk.fd.as_fd()]));
        assert!(broken(&faults(&mut mailbox)).contains("position"));
    }
}

#[test]
fn chunk_changed_during_read_is_harmless() {
    alone!();
    let (place, mut mailbox) = bound();
    let until = Instant::now() + Duration::from_millis(300);
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| {
            let lengths = [1_u64, 8, 600, 2000, 3952, 3961, 0, 1 << 31];
            while !stop.load(Ordering::Relaxed) {
                let (_socket, chunk) = raw::lane(&place.path);
                for round in 0..20_000_usize {
                    let at = RING + round % 100 * 8;
                    chunk.put(at, header(1 + round as u64 % 3, lengths[round % lengths.len()]));
                    chunk.put(RING, header(1, lengths[round % 6]));
                }
            }
        });
        let mut longest = 0;
        while Instant::now() < until {
            if let Ok(message) = mailbox.recv_timeout(Duration::from_millis(1)) {
                longest = longest.max(message.len());
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(longest <= 4096 - RING - 8, "{longest}");
    });
}

#[test]
fn flood_of_control_messages_does_not_delay_others() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
    let stop = AtomicBool::new(false);
    let (socket, _chunk) = raw::lane(&place.path);
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut wanted = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                wanted = wanted.wrapping_add(4096);
                raw::send(&socket, &raw::note(raw::WANT, &[wanted, 0]), &[]);
            }
        });
        for _ in 0..300 {
            still_serves(&mut mailbox, &mut sender);
            // New senders can connect too.
            let mut another = Sender::connect(&place.path).expect("connects");
            still_serves(&mut mailbox, &mut another);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(mailbox.take_errors(), []);
}

/// Regression: the mailbox forgot a lane that it closed for an error, without notifying its sender.
/// The sender filled the rest of the ring, and then regarded its living receiver as dead.
#[test]
fn protocol_violator_gets_error_at_next_message() {
    alone!();
    let (_place, mut mailbox) = bound();
    let (ours, theirs) = raw::pair();
    mailbox.adopt(ours).expect("takes the socket");
    let another = theirs.try_clone().expect("a copy");
    let mut sender = Sender::from_socket(theirs).expect("begins a lane");
    still_serves(&mut mailbox, &mut sender);
    until("the lane is welcomed", || sender.service().is_ok() && sender.peer().is_some());
    // Another process writes to the same socket.
    assert!(raw::send(&another, b"rubbish", &[]));
    assert!(broken(&faults(&mut mailbox)).contains("RETURNED in turn"));
    let error = sender.send(b"more").expect_err("the lane is closed");
    assert!(matches!(error, Error::Closed { .. }), "{error:?}");
    assert_eq!(error.errno(), libc::EPIPE);
}

/// Regression: a sender withdrew its `HELLO` while the receiver answered, and the receiver hung up,
/// but left the control page in the state of an open lane. The sender's `send` therefore continued
/// without checking the socket until the chunk was full.
#[test]
fn withdrawn_answered_hello_leaves_no_open_lane() {
    alone!();
    let (place, mut mailbox) = bound();
    let (socket, chunk) = (raw::dial(&place.path), raw::chunk(12));
    const HANDOVER_AT: usize = 68;
    chunk.half(HANDOVER_AT).store(1, Ordering::Relaxed);
    raw::send(&socket, &hello(1 << 20, &[12]), &[raw::life(), chunk.fd.as_fd()]);
    until("the receiver answers", || {
        assert!(mailbox.try_recv().is_err(), "expected no message");
        raw::is_readable(&socket)
    });
    assert_eq!((mailbox.sender_count(), mailbox.take_errors()), (0, vec![]));
    let (kind, _, descriptors) = raw::receive(&socket);
    assert_eq!((kind, descriptors.len()), (raw::WELCOME, 3));
    const STATE_AT: usize = 64;
    let mut state = [0; 4];
    rustix::io::pread(&descriptors[1], &mut state, STATE_AT as u64).expect("read");
    assert_ne!(u32::from_le_bytes(state), 0, "the state that lets a sender continue");
}

/// Regression: a sender requested more memory from a mailbox with a huge `max_lanes`. A receiver
/// built with overflow checks panicked, because the number of slots for all senders that might
/// still connect overflowed an integer.
#[test]
fn request_for_memory_with_huge_max_lanes_is_harmless() {
    alone!();
    let options = Options::new().max_lanes(usize::MAX).lane_cap(u64::MAX);
    let (place, mut mailbox) = bound_with(&options);
    let (socket, chunk) = (raw::dial(&place.path), raw::chunk(12));
    raw::send(&socket, &hello(1 << 20, &[12]), &[raw::life(), chunk.fd.as_fd()]);
    accept(&mut mailbox);
    for bytes in [1 << 30, u64::MAX] {
        let halves = [bytes as u32, (bytes >> 32) as u32];
        raw::send(&socket, &raw::note(raw::WANT, &halves), &[]);
        let nothing = mailbox.recv_timeout(Duration::from_millis(20)).expect_err("no message");
        assert_eq!(
            (nothing, mailbox.sender_count(), mailbox.take_errors()),
            (Error::TimedOut, 1, vec![])
        );
    }
    let mut sender = Sender::connect(&place.path).expect("connects");
    still_serves(&mut mailbox, &mut sender);
}

//! Relays: reading ahead of acknowledgements, handovers between relays, and the ends that they
//! report to senders.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{AMPLE, SHORT, Signal, connect, fork, kill, place, sleep_indefinitely, until};
use crate::raw;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, Relay, RelayLane, RemoteEnd, Sender, SenderId};

/// A record that was read: its position, its end and its message.
type Read = (u64, u64, Vec<u8>);

fn relay(path: &Path) -> Relay {
    Options::new().bind_relay(path).expect("binds")
}

/// Serves until the relay has a lane, and returns it.
fn lane(relay: &mut Relay) -> RelayLane {
    let mut lanes = Vec::new();
    until("a sender is accepted", || {
        relay.service().expect("in service");
        lanes = relay.lanes();
        !lanes.is_empty()
    });
    lanes.remove(0)
}

/// Reads up to `most` records ahead.
fn read(relay: &mut Relay, lane: SenderId, most: usize) -> Vec<Read> {
    let mut records = Vec::new();
    relay
        .read_ahead(lane, |record| {
            if records.len() == most {
                return false;
            }
            let mut bytes = Vec::new();
            record.append_to(.., &mut bytes);
            assert_eq!(bytes.len(), record.len());
            records.push((record.position(), record.end(), bytes));
            true
        })
        .expect("read");
    records
}

fn message(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(25)
}

/// Sends while the relay serves, so that the lane can grow.
fn send(sender: &mut Sender, relay: &mut Relay, message: &[u8]) {
    until("the message is sent", || match sender.try_send(message) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error, Error::WouldBlock);
            relay.service().expect("in service");
            false
        }
    });
}

fn ready(relay: &mut Relay) -> Vec<SenderId> {
    let mut ready = Vec::new();
    relay.ready(&mut ready);
    ready
}

fn is_readable(end: &impl std::os::fd::AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&now)) == Ok(1)
}

#[test]
fn read_ahead_spans_chunks_and_seek_rereads() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    for number in 0..500 {
        send(&mut sender, &mut relay, &message(number));
    }
    assert_eq!(ready(&mut relay), [id]);
    let records = read(&mut relay, id, usize::MAX);
    let messages: Vec<_> = records.iter().map(|record| record.2.clone()).collect();
    assert_eq!(messages, (0..500).map(message).collect::<Vec<_>>());
    assert!(records.windows(2).all(|pair| pair[0].1 <= pair[1].0), "positions ascend");
    assert!(records.windows(2).filter(|pair| pair[0].1 != pair[1].0).count() >= 3, "chunks");
    assert_eq!(records[499].1, sender.sent());
    assert_eq!((ready(&mut relay), sender.acked()), (vec![], 0));

    for back in [0, 1, 77, 250, 499] {
        relay.seek(id, records[back].0).expect("the position of a record");
        assert_eq!(read(&mut relay, id, usize::MAX), records[back..], "from record {back}");
    }
    relay.seek(id, records[9].1).expect("the end of a record");
    relay.seek(id, records[300].1).expect("forward");
    assert_eq!(read(&mut relay, id, 1), records[301..302]);
    relay.seek(id, records[499].1).expect("to the end");

    relay.ack_to(id, records[250].1).expect("acknowledged");
    assert_eq!(sender.acked().max(records[250].1), sender.acked());
    assert!(sender.acked() <= records[251].0);
    relay.seek(id, records[250].1).expect("the acknowledged position");
    assert_eq!(read(&mut relay, id, usize::MAX), records[251..]);
    let before = relay.seek(id, records[250].0).expect_err("already acknowledged");
    assert!(matches!(before, Error::InvalidPosition { .. }), "{before}");
    relay.ack_to(id, records[10].1).expect("an earlier position changes nothing");
    relay.ack_to(id, records[499].1).expect("acknowledged");
    assert_eq!(sender.acked(), sender.sent());
    sender.wait_acked(Some(Duration::ZERO)).expect("all is acknowledged");
    assert_eq!(relay.take_errors(), []);
}

#[test]
fn position_inside_record_is_refused() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    for number in 0..3 {
        send(&mut sender, &mut relay, &message(number));
    }
    let records = read(&mut relay, id, 2);
    let (begin, end) = (records[1].0, records[1].1);
    for wrong in [begin + 8, begin + 1, end - 8, end + 8, sender.sent(), u64::MAX] {
        let acked = relay.ack_to(id, wrong).expect_err("no end of a record that was read");
        assert_eq!(acked, Error::InvalidPosition { position: wrong, from: 0, to: end });
        assert_eq!(relay.seek(id, wrong).expect_err("the same"), acked);
    }
    assert_eq!(sender.acked(), 0);
    relay.ack_to(id, end).expect("the end of a record");
    assert_eq!((sender.acked(), relay.take_errors()), (end, vec![]));
}

#[test]
fn part_of_record_is_copied_from_any_offset() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    for length in [0, 1, 7, 8, 9, 900] {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        send(&mut sender, &mut relay, &bytes);
        let parts = |begin: usize| [begin, begin + 1, begin + 8, begin + 600, length];
        let read = relay.read_ahead(id, |record| {
            for begin in (0..length).step_by(13).chain([0, length]) {
                for end in parts(begin).into_iter().filter(|&end| end >= begin && end <= length) {
                    let mut part = b"x".to_vec();
                    record.append_to(begin..end, &mut part);
                    assert_eq!(part[1..], bytes[begin..end], "{begin}..{end} of {length}");
                }
            }
            true
        });
        assert_eq!(read, Ok(1));
    }
}

#[test]
fn sender_gains_space_only_by_acknowledgement() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Options::new().lane_cap(4096).connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    let mut sent = 0;
    while sender.try_send(&message(sent)).is_ok() {
        sent += 1;
    }
    let records = read(&mut relay, id, usize::MAX);
    assert_eq!(records.len() as u32, sent);
    relay.service().expect("in service");
    assert_eq!(sender.try_send(&message(sent)), Err(Error::WouldBlock));
    // A sender that waits is woken by the acknowledgement.
    let waiting = thread::spawn(move || {
        sender.send_timeout(&message(sent), AMPLE).expect("space");
        sender
    });
    thread::sleep(SHORT);
    relay.ack_to(id, records[1].1).expect("acknowledged");
    let mut sender = waiting.join().expect("sent");
    // Laps of the ring, always full.
    let mut next = 2;
    let mut all = records;
    all.extend(read(&mut relay, id, usize::MAX));
    for number in sent + 1..sent + 500 {
        relay.ack_to(id, all[next].1).expect("acknowledged");
        next += 1;
        if sender.try_send(&message(number)).is_err() {
            relay.ack_to(id, all[next].1).expect("acknowledged");
            next += 1;
            sender.try_send(&message(number)).expect("space for one message and padding");
        }
        all.extend(read(&mut relay, id, usize::MAX));
    }
    let messages: Vec<_> = all.iter().map(|record| record.2.clone()).collect();
    assert_eq!(messages, (0..sent + 500).map(message).collect::<Vec<_>>());
}

#[test]
fn ended_lane_stays_until_removed() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    sender.send(b"two").expect("sent");
    let id = lane(&mut relay).sender;
    drop(sender);
    until("the end is noticed", || {
        relay.service().expect("in service");
        relay.lane(id).expect("the lane").ended
    });
    assert!(!relay.lane(id).expect("the lane").drained);
    assert_eq!(ready(&mut relay), [id]);
    let records = read(&mut relay, id, 9);
    assert_eq!(records.len(), 2);
    assert!(relay.lane(id).expect("the lane").drained);
    assert_eq!(ready(&mut relay), [id], "an end is found until the lane is held or removed");
    assert_eq!(relay.arm(), Ok(false));
    relay.hold(id, true);
    assert_eq!((ready(&mut relay), relay.arm()), (vec![], Ok(true)));
    relay.seek(id, records[0].0).expect("the sender's memory is still here");
    assert!(!relay.lane(id).expect("the lane").drained);
    assert_eq!(read(&mut relay, id, 9), records);
    relay.ack_to(id, records[1].1).expect("acknowledged");
    relay.service().expect("in service");
    assert!(relay.lane(id).is_some(), "an acknowledged lane stays too");
    relay.remove(id);
    assert_eq!((relay.lane(id), relay.lanes()), (None, vec![]));
    relay.ack_to(id, 8).expect("a removed lane is ignored");
}

#[test]
fn held_lane_neither_is_ready_nor_prevents_arming() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    sender.send(b"one").expect("sent");
    assert_eq!(relay.arm(), Ok(false));
    relay.hold(id, true);
    assert_eq!((ready(&mut relay), relay.arm()), (vec![], Ok(true)));
    let mut second = Sender::connect(&place.path).expect("connects");
    second.send(b"two").expect("sent");
    assert!(is_readable(&relay));
    relay.service().expect("in service");
    let found = ready(&mut relay);
    assert!(found.len() == 1 && found[0] != id, "{found:?}");
    assert_eq!(read(&mut relay, found[0], 9).len(), 1);
    relay.hold(id, false);
    assert_eq!((ready(&mut relay), relay.arm()), (vec![id], Ok(false)));
    // The descriptor reports a record that arrives after the relay was armed.
    assert_eq!(read(&mut relay, id, 9).len(), 1);
    assert_eq!(relay.arm(), Ok(true));
    assert!(!is_readable(&relay));
    sender.send(b"three").expect("sent");
    assert!(is_readable(&relay));
}

#[test]
fn acknowledgement_wakes_waiting_sender() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    sender.send(b"two").expect("sent");
    let id = lane(&mut relay).sender;
    let waiting = thread::spawn(move || {
        let begun = Instant::now();
        sender.wait_acked(Some(AMPLE)).expect("acknowledged");
        (sender, begun.elapsed())
    });
    let records = read(&mut relay, id, 9);
    thread::sleep(SHORT);
    relay.ack_to(id, records[0].1).expect("acknowledged");
    thread::sleep(SHORT);
    assert!(!waiting.is_finished());
    relay.ack_to(id, records[1].1).expect("acknowledged");
    let (mut sender, waited) = waiting.join().expect("woken");
    // Without a notification, the sender looks again after half a second.
    assert!(waited < Duration::from_millis(450), "{waited:?}");

    // The descriptor of an armed sender reports the acknowledgement too.
    sender.send(b"six").expect("sent");
    let acked = sender.acked();
    assert_eq!(sender.arm_acked(acked), Ok(true));
    assert!(!is_readable(&sender));
    let end = read(&mut relay, id, 9)[0].1;
    relay.ack_to(id, end).expect("acknowledged");
    assert!(is_readable(&sender));
    assert_eq!(sender.arm_acked(acked), Ok(false));
    assert_eq!((sender.acked(), sender.sent()), (end, end));
}

/// What a forked relay reports before it is killed.
struct Report {
    lane: u128,
    read: Vec<Read>,
}

/// Forks a relay that reads `count` records ahead, acknowledges `acked` of them and marks `sent` of
/// them as sent; then it lets its program `end` the lane, and waits to be killed.
fn forked(
    path: &Path,
    [count, acked, sent]: [usize; 3],
    end: Option<RemoteEnd>,
) -> (i32, impl FnOnce() -> Report) {
    let (file, signal) = (path.with_extension("report"), std::rc::Rc::new(Signal::new()));
    let (to, done) = (file.clone(), signal.clone());
    let path = path.to_owned();
    let pid = fork(move || {
        let mut relay = relay(&path);
        let found = lane(&mut relay);
        let mut records = Vec::new();
        until("the records are read", || {
            relay.service().expect("in service");
            records.extend(read(&mut relay, found.sender, count - records.len()));
            records.len() == count
        });
        if acked > 0 {
            relay.ack_to(found.sender, records[acked - 1].1).expect("acknowledged");
        }
        if sent > 0 {
            relay.mark_sent(found.sender, records[sent - 1].1);
        }
        if let Some(end) = end {
            relay.end(found.sender, end);
        }
        let text: Vec<String> =
            records.iter().map(|(at, end, bytes)| format!("{at} {end} {}", bytes.len())).collect();
        std::fs::write(to, format!("{}\n{}", found.lane, text.join("\n"))).expect("written");
        done.give(1);
        sleep_indefinitely();
    });
    let report = move || {
        assert_eq!(signal.take(), 1);
        let text = std::fs::read_to_string(file).expect("a report");
        let mut lines = text.lines();
        let lane = lines.next().expect("a line").parse().expect("a number");
        let read = lines.map(|line| {
            let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
            let mut next = || words.next().expect("three numbers");
            (next(), next(), vec![0; next() as usize])
        });
        Report { lane, read: read.collect() }
    };
    (pid, report)
}

#[test]
fn killed_relay_hands_lane_to_next_at_same_positions() {
    alone!();
    let place = place();
    let (pid, report) = forked(&place.path, [60, 20, 40], None);
    let mut sender = connect(&Options::new(), &place.path);
    for number in 0..100 {
        sender.send_timeout(&message(number), AMPLE).expect("sent");
    }
    let first = report();
    kill(pid);
    // A sender that fails at the death of a mailbox waits for the next relay.
    sender.send(&message(100)).expect("kept for the next relay");
    sender.service().expect("waits");
    assert_eq!(sender.wait_acked(Some(SHORT)), Err(Error::TimedOut));
    assert_eq!(sender.acked(), first.read[19].1);

    let mut relay = relay(&place.path);
    until("the lane is handed over", || {
        sender.service().expect("waits");
        relay.service().expect("in service");
        !relay.lanes().is_empty()
    });
    let found = lane(&mut relay);
    assert_eq!((found.lane, found.on_death), (first.lane, OnDeath::Fail));
    assert!((first.read[19].1..=first.read[20].0).contains(&found.acked), "{found:?}");
    assert_eq!(found.read, found.acked);
    let records = read(&mut relay, found.sender, usize::MAX);
    let messages: Vec<_> = records.iter().map(|record| record.2.clone()).collect();
    assert_eq!(messages, (20..101).map(message).collect::<Vec<_>>());
    let places = |records: &[Read]| records.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>();
    assert_eq!(places(&records[..40]), places(&first.read[20..]));
    relay.ack_to(found.sender, records[4].1).expect("acknowledged");

    // The first relay's `sent` still counts: what it may have sent is in doubt.
    relay.end(found.sender, RemoteEnd::Died);
    let unread = sender.take_unread_parts().expect("the lane has ended");
    assert_eq!(unread.in_doubt, (25..40).map(message).collect::<Vec<_>>());
    assert_eq!(unread.unsent, (40..101).map(message).collect::<Vec<_>>());
}

#[test]
fn lane_outlives_relay_killed_before_welcome() {
    alone!();
    let place = place();
    let (pid, report) = forked(&place.path, [1, 1, 1], None);
    let mut sender = connect(&Options::new(), &place.path);
    sender.send(b"one").expect("sent");
    report();
    kill(pid);
    sender.send(b"two").expect("kept for the next relay");
    // The next relay listens, and is killed before it reads anything.
    let (path, up) = (place.path.clone(), Signal::new());
    let pid = fork(|| {
        let _relay = relay(&path);
        up.give(1);
        sleep_indefinitely();
    });
    up.take();
    until("the lane is offered", || {
        sender.service().expect("waits");
        sender.peer().is_none()
    });
    kill(pid);
    sender.send(b"six").expect("kept for the next relay");
    let mut relay = relay(&place.path);
    until("the lane is handed over", || {
        sender.service().expect("waits");
        relay.service().expect("in service");
        !relay.lanes().is_empty()
    });
    let id = lane(&mut relay).sender;
    let messages: Vec<_> = read(&mut relay, id, 9).into_iter().map(|record| record.2).collect();
    assert_eq!(messages, [b"two", b"six"]);
}

#[test]
fn blocked_sender_resumes_when_relay_comes() {
    alone!();
    let place = place();
    let mut first = relay(&place.path);
    let mut sender = Options::new().lane_cap(4096).connect(&place.path).expect("connects");
    lane(&mut first);
    sender.service().expect("accepted");
    drop(first); // a relay that closes, like one that dies, is not the owner's end
    let mut sent = 0;
    while sender.try_send(&message(sent)).is_ok() {
        sent += 1;
    }
    let blocked = thread::spawn(move || {
        sender.send_timeout(&message(sent), AMPLE).expect("space");
        sender
    });
    thread::sleep(SHORT);
    assert!(!blocked.is_finished());
    let mut relay = relay(&place.path);
    let id = lane(&mut relay).sender;
    let records = read(&mut relay, id, usize::MAX);
    assert_eq!(records.len() as u32, sent);
    relay.ack_to(id, records[2].1).expect("acknowledged");
    drop(blocked.join().expect("sent"));
    assert_eq!(read(&mut relay, id, 9)[0].2, message(sent));
}

/// Opens a lane, sends four messages, of which the relay acknowledges one and sends one more, and
/// ends the lane.
fn end_lane(end: RemoteEnd, options: &Options) -> (Sender, Error) {
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = options.connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    for number in 0..4 {
        sender.send(&message(number)).expect("sent");
    }
    let records = read(&mut relay, id, 3);
    relay.mark_sent(id, records[1].1);
    relay.mark_sent(id, 8);
    relay.ack_to(id, records[0].1).expect("acknowledged");
    assert_eq!(sender.take_unread_parts(), Err(Error::WouldBlock));
    relay.end(id, end);
    relay.end(id, RemoteEnd::Refused { errno: libc::EIO });
    relay.ack_to(id, records[2].1).expect("nothing happens after the end");
    let error = sender.send(b"more").expect_err("the lane has ended");
    relay.remove(id);
    relay.service().expect("in service");
    drop(relay);
    let again = sender.service().expect_err("the end is final");
    assert_eq!(again, error);
    assert_eq!(sender.acked(), records[0].1);
    assert_eq!(sender.arm_acked(0).expect_err("the lane has ended"), error);
    (sender, error)
}

#[test]
fn latched_end_is_final_error_with_exact_doubt() {
    alone!();
    let refused = |errno| RemoteEnd::Refused { errno };
    let waiting = Options::new().on_death(OnDeath::WaitThroughRestarts);
    for options in [Options::new(), waiting] {
        for (end, errno) in [
            (RemoteEnd::Died, libc::EOWNERDEAD),
            (RemoteEnd::Closed, libc::EPIPE),
            (RemoteEnd::Unreachable, libc::EHOSTUNREACH),
            (refused(libc::ECONNREFUSED), libc::ECONNREFUSED),
            (refused(libc::ENOENT), libc::ECONNREFUSED),
            (refused(libc::EACCES), libc::EACCES),
            (refused(libc::ENOBUFS), libc::ECONNABORTED),
        ] {
            let (mut sender, error) = end_lane(end, &options);
            assert_eq!(error.errno(), errno, "{end:?}: {error}");
            let unread = sender.take_unread_parts().expect("the lane has ended");
            assert_eq!(unread.in_doubt, [message(1)]);
            assert_eq!(unread.unsent, [message(2), message(3)]);
            let (mut sender, _) = end_lane(end, &options);
            let unread = sender.take_unread().expect("the lane has ended");
            assert_eq!(unread, [message(1), message(2), message(3)]);
        }
    }
}

#[test]
fn latched_end_precedes_death_of_relay() {
    alone!();
    for options in [Options::new(), Options::new().on_death(OnDeath::WaitForSuccessor)] {
        let place = place();
        let (pid, report) = forked(&place.path, [3, 1, 2], Some(RemoteEnd::Unreachable));
        let mut sender = connect(&options, &place.path);
        for number in 0..4 {
            sender.send(&message(number)).expect("sent");
        }
        let records = report().read;
        kill(pid);
        let _next = relay(&place.path);
        let error = sender.send(b"more").expect_err("the lane has ended");
        assert!(matches!(error, Error::Unreachable { peer } if peer.pid == Some(pid as u32)));
        assert_eq!(sender.acked(), records[0].1);
        let unread = sender.take_unread_parts().expect("the lane has ended");
        assert_eq!(unread.in_doubt, [message(1)]);
        assert_eq!(unread.unsent, [message(2), message(3)]);
    }
}

#[test]
fn latched_end_wakes_blocked_sender() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    let id = lane(&mut relay).sender;
    let waiting = thread::spawn(move || {
        let begun = Instant::now();
        (sender.wait_acked(None).expect_err("the lane ends"), begun.elapsed())
    });
    thread::sleep(SHORT);
    relay.end(id, RemoteEnd::Closed);
    let (error, waited) = waiting.join().expect("woken");
    assert!(matches!(error, Error::Closed { .. }), "{error}");
    assert!(waited < Duration::from_millis(450), "{waited:?}");
}

#[test]
fn suspicion_is_reported_and_withdrawn() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let mut sender = Sender::connect(&place.path).expect("connects");
    assert!(!sender.is_suspected());
    let id = lane(&mut relay).sender;
    sender.service().expect("accepted");
    for suspected in [false, true, true, false] {
        relay.set_suspected(id, suspected);
        assert_eq!(sender.is_suspected(), suspected);
        sender.send(b"still accepted").expect("sent");
    }
}

#[test]
fn idle_lane_returns_memory_and_identity_stays() {
    alone!();
    let place = place();
    let options = Options::new().shrink_after(Duration::from_millis(5));
    let mut relay = options.bind_relay(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    let first = lane(&mut relay);
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let chunks = maps.lines().filter(|line| line.contains("tontine-chunk"));
        let size = chunks.map(|line| {
            let (begin, rest) = line.split_once('-').expect("a range");
            let end = rest.split(' ').next().expect("its end");
            let number = |hex| u64::from_str_radix(hex, 16).expect("an address");
            number(end) - number(begin)
        });
        size.sum::<u64>()
    };
    let small = mapped();
    for round in 0..20 {
        for number in 0..100 {
            send(&mut sender, &mut relay, &message(number));
        }
        assert!(mapped() > small);
        let records = read(&mut relay, first.sender, usize::MAX);
        assert_eq!(records.len(), 100, "round {round}");
        relay.ack_to(first.sender, records[99].1).expect("acknowledged");
        until("the large chunk is returned", || {
            relay.service().expect("in service");
            sender.service().expect("in service");
            assert_eq!(ready(&mut relay), []);
            mapped() == small
        });
    }
    let now = relay.lane(first.sender).expect("the lane");
    assert_eq!((now.lane, now.acked), (first.lane, now.read));
    assert_ne!(first.lane, 0);
}

#[test]
fn thousand_lanes_leave_no_descriptor_or_memory() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let open = || std::fs::read_dir("/proc/self/fd").expect("a folder").count();
    let maps = || std::fs::read_to_string("/proc/self/maps").expect("maps").lines().count();
    let (mut before, mut lanes) = ((0, 0), std::collections::BTreeSet::new());
    for round in 0..1000 {
        let mut sender = Sender::connect(&place.path).expect("connects");
        let found = lane(&mut relay);
        assert!(lanes.insert(found.lane), "the identifier is random");
        for number in 0..60 {
            send(&mut sender, &mut relay, &message(number));
        }
        let records = read(&mut relay, found.sender, usize::MAX);
        relay.seek(found.sender, records[3].0).expect("the position of a record");
        relay.ack_to(found.sender, records[40].1).expect("acknowledged");
        if round % 2 == 0 {
            relay.end(found.sender, RemoteEnd::Died);
            assert_eq!(sender.take_unread().expect("ended").len(), 19);
        }
        drop(sender);
        relay.remove(found.sender);
        relay.service().expect("in service");
        if round == 20 {
            before = (open(), maps());
        }
    }
    // A closed socket may have a thread that closes it.
    until("all is closed", || {
        relay.service().expect("in service");
        let now = (open(), maps());
        now.0 <= before.0 + 2 && now.1 <= before.1 + 8
    });
}

/// A sender that changes records after they were read harms its own lane only.
#[test]
fn record_changed_after_reading_closes_only_its_lane() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let changes: [fn(&raw::Memory); 6] = [
        |chunk| chunk.put(raw::RING + 24, u64::MAX),
        |chunk| chunk.put(raw::RING + 24, 0),
        |chunk| chunk.put(raw::RING + 24, raw::header(3, 12)),
        |chunk| chunk.put(raw::RING + 24, raw::header(1, 1 << 30)),
        |chunk| chunk.put(raw::RING + 24, raw::header(2, 4096 - 128 - 24 - 8)),
        |chunk| chunk.put(raw::RING + 24, raw::header(1, 3000)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let (socket, chunk) = raw::lane(&place.path);
        for at in [0, 24, 48] {
            chunk.put_message(raw::RING + at, 16);
        }
        let id = lane(&mut relay).sender;
        let records = read(&mut relay, id, 9);
        assert_eq!(records.len(), 3, "change {number}");
        change(&chunk);
        let acked = relay.ack_to(id, records[2].1);
        let sought = relay.seek(id, records[1].1);
        let mut refused = [acked, sought].into_iter().filter_map(Result::err);
        let faults = relay.take_errors();
        let closed = matches!(faults[..], [Error::Protocol { .. }]) && relay.lane(id).is_none();
        let invalid = refused.any(|error| matches!(error, Error::InvalidPosition { .. }));
        assert!(closed || invalid, "change {number}: {faults:?}");
        // Reading again from the beginning neither panics nor leaves the chunk.
        let _ = relay.seek(id, 0);
        for _ in 0..100 {
            let _ = relay.read_ahead(id, |record| {
                record.append_to(.., &mut Vec::new());
                true
            });
        }
        relay.remove(id);
        relay.service().expect("in service");
        drop((socket, relay.take_errors()));
    }
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"honest").expect("sent");
    let id = lane(&mut relay).sender;
    assert_eq!(read(&mut relay, id, 9)[0].2, b"honest");
}

/// A ring that never ends: each header leads to the next, around the ring.
#[test]
fn endless_ring_closes_lane() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    let (_socket, chunk) = raw::lane(&place.path);
    for at in (0..4096 - raw::RING).step_by(16) {
        chunk.put_message(raw::RING + at, 8);
    }
    let id = lane(&mut relay).sender;
    let records = read(&mut relay, id, usize::MAX);
    assert!(records.len() <= (4096 - raw::RING) / 16, "{} records", records.len());
    let faults = relay.take_errors();
    assert!(matches!(faults[..], [Error::Protocol { .. }]), "{faults:?}");
    assert_eq!(relay.lanes(), []);
}

#[test]
fn mailbox_leaves_at_most_one_message_in_doubt() {
    alone!();
    let place = place();
    let mut mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    for number in 0..60 {
        sender.send_timeout(&message(number), AMPLE).expect("sent");
        if number < 30 {
            let _ = mailbox.recv_timeout(AMPLE).expect("a message");
            mailbox.ack();
        }
        let _ = mailbox.try_recv();
        mailbox.requeue();
    }
    let acked = sender.acked();
    mailbox.close();
    let unread = sender.take_unread_parts().expect("closed");
    assert_eq!(unread.in_doubt, [message(30)]);
    assert_eq!(unread.unsent, (31..60).map(message).collect::<Vec<_>>());
    assert!(acked > 0 && acked < sender.sent());
    assert_eq!(sender.acked(), acked, "taking messages back acknowledges nothing");

    // A mailbox that never accepted the lane has processed nothing.
    let mailbox = Mailbox::bind(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    sender.send(b"one").expect("sent");
    drop(mailbox);
    sender.send(b"two").expect_err("the owner has ended");
    let unread = sender.take_unread_parts().expect("ended");
    assert_eq!((unread.in_doubt, unread.unsent), (vec![], vec![b"one".to_vec()]));
}

#[test]
fn acked_returns_last_position_of_dead_owner() {
    alone!();
    let place = place();
    let (path, done) = (place.path.clone(), Signal::new());
    let owner = fork(|| {
        let mut mailbox = Mailbox::bind(&path).expect("binds");
        for _ in 0..3 {
            let _ = mailbox.recv().expect("a message");
            mailbox.ack();
        }
        let _ = mailbox.recv().expect("not acknowledged");
        done.give(1);
        sleep_indefinitely();
    });
    let mut sender = connect(&Options::new(), &place.path);
    let mut ends = Vec::new();
    for number in 0..5 {
        sender.send(&message(number)).expect("sent");
        ends.push(sender.sent());
    }
    done.take();
    kill(owner);
    assert!(matches!(sender.service(), Err(Error::OwnerDied { .. })));
    assert_eq!(sender.acked(), ends[2]);
    let unread = sender.take_unread_parts().expect("ended");
    assert_eq!((unread.in_doubt, unread.unsent), (vec![message(3)], vec![message(4)]));
    assert_eq!(sender.acked(), ends[2]);
}

//! Relays: reading ahead of acknowledgements, held lanes, and senders that break the protocol.
//!
//! `relay_ends` tests the ends of relays and of what they stand for.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::asleep::until_others_sleep;
use crate::common::*;
use crate::raw;
use tontine::Error;
use tontine::mailbox::{Options, Order, Relay, RelayLane, RemoteEnd, Sender, SenderId};

/// A record that was read: its position, its end and its message.
pub(crate) type ReadRecord = (u64, u64, Vec<u8>);

/// Binds a relay in a new folder, and opens a lane.
pub(crate) fn opened() -> (Place, Relay, Sender, SenderId) {
    let place = place();
    let mut relay = relay(&place.path);
    let sender = Sender::connect(&place.path).expect("connects");
    let id = lane(&mut relay).sender;
    (place, relay, sender, id)
}

pub(crate) fn relay(path: &Path) -> Relay {
    Options::new().bind_relay(path).expect("binds")
}

/// Serves until the relay has a lane, and returns it.
pub(crate) fn lane(relay: &mut Relay) -> RelayLane {
    let mut lanes = Vec::new();
    until("a sender is accepted", || {
        relay.service().expect("in service");
        lanes = relay.lanes();
        !lanes.is_empty()
    });
    lanes.remove(0)
}

/// Reads up to `most` records ahead.
pub(crate) fn read(relay: &mut Relay, lane: SenderId, most: usize) -> Vec<ReadRecord> {
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

pub(crate) fn message(number: u32) -> Vec<u8> {
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

#[test]
fn read_ahead_spans_chunks_and_seek_rereads() {
    alone!();
    let (_place, mut relay, mut sender, id) = opened();
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
    let (_place, mut relay, mut sender, id) = opened();
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
    let (_place, mut relay, mut sender, id) = opened();
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
    until_others_sleep();
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
    let (_place, mut relay, mut sender, id) = opened();
    sender.send(b"one").expect("sent");
    sender.send(b"two").expect("sent");
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
    let (place, mut relay, mut sender, id) = opened();
    sender.send(b"one").expect("sent");
    assert_eq!(relay.arm(), Ok(false));
    relay.hold(id, true);
    assert_eq!((ready(&mut relay), relay.arm()), (vec![], Ok(true)));
    let mut second = Sender::connect(&place.path).expect("connects");
    second.send(b"two").expect("sent");
    assert!(is_readable(&relay, Duration::ZERO));
    relay.service().expect("in service");
    let found = ready(&mut relay);
    assert!(found.len() == 1 && found[0] != id, "{found:?}");
    assert_eq!(read(&mut relay, found[0], 9).len(), 1);
    relay.hold(id, false);
    assert_eq!((ready(&mut relay), relay.arm()), (vec![id], Ok(false)));
    // The descriptor reports a record that arrives after the relay was armed.
    assert_eq!(read(&mut relay, id, 9).len(), 1);
    assert_eq!(relay.arm(), Ok(true));
    assert!(!is_readable(&relay, Duration::ZERO));
    sender.send(b"three").expect("sent");
    assert!(is_readable(&relay, Duration::ZERO));
}

/// Asserts that a waiting sender is notified. Without a notification, it looks again after half a
/// second, so every wait takes that long; with a notification, only a wait on a busy machine does.
pub(crate) fn is_notified_before_next_look(mut wait: impl FnMut() -> Duration) {
    let is_short = (0..50).any(|_| wait() < Duration::from_millis(450));
    assert!(is_short, "each of 50 waits ended when the sender looked again");
}

#[test]
fn acknowledgement_wakes_waiting_sender() {
    alone!();
    let (_place, mut relay, mut sender, id) = opened();
    sender.send(b"one").expect("sent");
    let end = read(&mut relay, id, 9)[0].1;
    relay.ack_to(id, end).expect("acknowledged");
    is_notified_before_next_look(|| {
        sender.send(b"one").expect("sent");
        sender.send(b"two").expect("sent");
        let records = read(&mut relay, id, 9);
        thread::scope(|threads| {
            let waiting = threads.spawn(|| {
                let begun = Instant::now();
                sender.wait_acked(Some(AMPLE)).expect("acknowledged");
                begun.elapsed()
            });
            until_others_sleep();
            relay.ack_to(id, records[0].1).expect("acknowledged");
            until_others_sleep();
            assert!(!waiting.is_finished());
            relay.ack_to(id, records[1].1).expect("acknowledged");
            waiting.join().expect("woken")
        })
    });

    // The descriptor of an armed sender reports the acknowledgement too.
    sender.send(b"six").expect("sent");
    let acked = sender.acked();
    assert_eq!(sender.arm_acked(acked), Ok(true));
    assert!(!is_readable(&sender, Duration::ZERO));
    let end = read(&mut relay, id, 9)[0].1;
    relay.ack_to(id, end).expect("acknowledged");
    assert!(is_readable(&sender, Duration::ZERO));
    assert_eq!(sender.arm_acked(acked), Ok(false));
    assert_eq!((sender.acked(), sender.sent()), (end, end));
}

#[test]
fn suspicion_is_reported_and_withdrawn() {
    alone!();
    let (_place, mut relay, mut sender, id) = opened();
    assert!(!sender.is_suspected());
    sender.service().expect("accepted");
    for suspected in [false, true, true, false] {
        relay.set_suspected(id, suspected);
        assert_eq!(sender.is_suspected(), suspected);
        sender.send(b"still accepted").expect("sent");
    }
}

#[test]
fn options_that_relay_would_ignore_are_refused() {
    alone!();
    let place = place();
    for (options, named) in [
        (Options::new().order(Order::Causal), "order"),
        (Options::new().report_no_senders(true), "report_no_senders"),
    ] {
        let error = options.bind_relay(&place.path).expect_err("no effect");
        assert!(
            matches!(&error, Error::InvalidOption { option, .. } if *option == named),
            "{error}"
        );
        assert!(!place.path.exists(), "no file was created");
    }
    let options = Options::new().order(Order::BySender).report_no_senders(false);
    drop(options.bind_relay(&place.path).expect("binds"));
}

#[test]
fn idle_lane_returns_memory_and_identity_stays() {
    alone!();
    let place = place();
    let options = Options::new().shrink_after(Duration::from_millis(5));
    let mut relay = options.bind_relay(&place.path).expect("binds");
    let mut sender = Sender::connect(&place.path).expect("connects");
    let first = lane(&mut relay);
    let small = mapped_chunks();
    for round in 0..20 {
        for number in 0..100 {
            send(&mut sender, &mut relay, &message(number));
        }
        assert!(mapped_chunks() > small);
        let records = read(&mut relay, first.sender, usize::MAX);
        assert_eq!(records.len(), 100, "round {round}");
        relay.ack_to(first.sender, records[99].1).expect("acknowledged");
        until("the large chunk is returned", || {
            relay.service().expect("in service");
            sender.service().expect("in service");
            assert_eq!(ready(&mut relay), []);
            mapped_chunks() == small
        });
    }
    let now = relay.lane(first.sender).expect("the lane");
    assert_eq!((now.lane, now.acked), (first.lane, now.read));
    assert_ne!(first.lane, 0);
}

#[test]
fn many_lanes_leave_no_descriptor_or_memory() {
    alone!();
    let place = place();
    let mut relay = relay(&place.path);
    // Other mappings vary: the C library keeps the stacks of as many threads as ran together.
    let maps = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        maps.lines().filter(|line| line.contains("memfd:tontine-")).count()
    };
    let (mut before, mut lanes) = ((0, 0), std::collections::BTreeSet::new());
    for round in 0..300 {
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
            before = (open_descriptors(), maps());
        }
    }
    // A closed socket may have a thread that closes it.
    until("all is closed", || {
        relay.service().expect("in service");
        let now = (open_descriptors(), maps());
        now.0 <= before.0 + 2 && now.1 <= before.1
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

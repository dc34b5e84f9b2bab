//! The ends of relays and of their remote owners, and what is in doubt afterwards.

use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::asleep::until_others_sleep;
use crate::common::*;
use crate::relay::{ReadRecord, is_notified_before_next_look, lane, message, opened, read, relay};
use tontine::Error;
use tontine::mailbox::{Mailbox, OnDeath, Options, RemoteEnd, Sender, SenderOptions};

/// The report of a forked relay that is about to be killed.
struct Report {
    lane: u128,
    read: Vec<ReadRecord>,
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
    // A stamp may lie between the two.
    assert!((first.read[19].1..=first.read[20].0).contains(&sender.acked()));

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
    let places =
        |records: &[ReadRecord]| records.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>();
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
    until_others_sleep();
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
fn end_lane(end: RemoteEnd, options: &SenderOptions) -> (Sender, Error) {
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
    for options in [Options::new().into(), waiting] {
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
    for options in [Options::new().into(), Options::new().on_death(OnDeath::WaitForSuccessor)] {
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
    is_notified_before_next_look(|| {
        let (_place, mut relay, mut sender, id) = opened();
        sender.send(b"one").expect("sent");
        let waiting = thread::spawn(move || {
            let begun = Instant::now();
            (sender.wait_acked(None).expect_err("the lane ends"), begun.elapsed())
        });
        until_others_sleep();
        relay.end(id, RemoteEnd::Closed);
        let (error, waited) = waiting.join().expect("woken");
        assert!(matches!(error, Error::Closed { .. }), "{error}");
        waited
    });
}

#[test]
fn mailbox_leaves_at_most_one_message_in_doubt() {
    alone!();
    let (place, mut mailbox, mut sender) = channel();
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

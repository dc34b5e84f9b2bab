//! A test per promise, for every [`Route`].

#![allow(unsafe_code, reason = "forks a sender")]

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tontine::Error;
use tontine::mailbox::Sender;

use crate::child::Child;
use crate::hosts::gateways::{Host, MemoryGateways, TcpGateways};
use crate::hosts::program::{
    OwnerTask, OwnerThread, Program, Role, SenderTask, logged, now_ms, write_message,
};
use crate::hosts::{AMPLE, SeededNumbers, in_processes, until};
use crate::route::{DIFFERENCES, Fixture, Interruption, LocalRoute, Route};

/// P1: a sender whose receiver, or gateway, does nothing at present makes no system call besides
/// the one that wakes it.
fn further_sends_make_no_system_call<R: Route>() {
    let mut fixture = Fixture::<R>::new();
    let owner = fixture.owner().start();
    let sender = Program::start(&Role::SilentSender(R::sender_at(fixture.path())));
    sender.wait_for("ready");
    let mut stop_reader = |begins| match Interruption::StoppedGateway(Host::A) {
        stopped if R::knows(stopped) => fixture.route.interrupt(stopped, begins),
        _ => owner.signal(if begins { Signal::STOP } else { Signal::CONT }),
    };
    stop_reader(true);
    sender.finish();
    stop_reader(false);
    until("all messages arrive", || fixture.received(9).len() == 32);
    owner.finish();
}

/// P2: the death of the owner is reported, and nothing else is reported as a death.
fn killed_owner_is_reported<R: Route>() {
    let fixture = Fixture::<R>::new();
    let mut owner = fixture.owner().start();
    let sender = SenderTask { lingers: true, ..fixture.sender(1, 100) }.start();
    sender.wait_for("acked");
    let killed = now_ms();
    owner.kill();
    let report = sender.report();
    assert_eq!(report.errno, libc::EOWNERDEAD, "{}", report.summary());
    let notice = Duration::from_millis(report.ended_ms - killed);
    println!("{}: EOWNERDEAD after {notice:?}; {}", R::NAME, report.summary());
    report.check();
    assert_eq!((report.acked, report.sent), (100, 100));
}

fn stopped_owner_is_not_reported_as_dead<R: Route>() {
    let fixture = Fixture::<R>::new();
    let owner = fixture.owner().start();
    let mut sender = SenderTask { pause_us: 1000, ..fixture.sender(1, u64::MAX) }.start();
    fixture.wait_until_received(1);
    owner.signal(Signal::STOP);
    thread::sleep(SILENCE);
    owner.signal(Signal::CONT);
    sender.ask_to_end();
    fixture.check_all_received(&sender.report());
    owner.finish();
}

/// A stop that is longer than the failure detector's timeout.
const SILENCE: Duration = Duration::from_millis(1100);

/// The failure detector's timeout is between the two durations.
fn interruption_is_not_reported_as_death<R: Route>() {
    let known = Interruption::ALL.into_iter().filter(|what| R::knows(*what));
    let durations = [Duration::from_millis(400), SILENCE];
    in_processes(known.flat_map(|what| durations.map(|lasts| (what, lasts))), |(what, lasts)| {
        let mut fixture = Fixture::<R>::new();
        let owner = fixture.owner().start();
        let mut sender = SenderTask { pause_us: 1000, ..fixture.sender(1, u64::MAX) }.start();
        fixture.wait_until_received(1);
        fixture.route.interrupt(what, true);
        thread::sleep(lasts);
        if lasts == SILENCE && what.is_noticed() {
            sender.wait_for("suspected");
        }
        fixture.route.interrupt(what, false);
        sender.ask_to_end();
        println!("{}: {what:?} of {lasts:?}", R::NAME);
        fixture.check_all_received(&sender.report());
        owner.finish();
    });
}

fn closed_mailbox_is_reported_as_closed<R: Route>() {
    let fixture = Fixture::<R>::new();
    let owner = fixture.owner().start();
    let sender = SenderTask { lingers: true, ..fixture.sender(1, 100) }.start();
    sender.wait_for("acked");
    owner.finish();
    let report = sender.report();
    assert_eq!(report.errno, libc::EPIPE, "{}", report.summary());
    report.check();
    assert_eq!(report.acked, 100);
}

/// P3: a sender that is killed at a random moment leaves each message whole or absent.
fn killed_sender_leaves_whole_messages<R: Route>() {
    let fixture = Fixture::<R>::new();
    let owner = fixture.owner().start();
    let mut random = SeededNumbers(0x9e37_79b9);
    for id in 0..6 {
        let length = 16 + random.below(30_000) as usize;
        let task = SenderTask { length, ..fixture.sender(id, u64::MAX) };
        let mut sender = task.start();
        sender.wait_for("ready");
        thread::sleep(Duration::from_micros(random.below(60_000)));
        sender.kill();
        assert_eq!(fixture.sender(100 + id, 1).start().report().error, None);
    }
    // The lane of a killed sender may be read after the later ones.
    let log = fixture.path().join("received");
    let mut received = 0;
    while logged(&log) != std::mem::replace(&mut received, logged(&log)) {
        thread::sleep(Duration::from_millis(100));
    }
    // A torn message would have ended the owner.
    owner.finish();
    let received: Vec<Vec<u64>> = (0..6).map(|id| fixture.received(id)).collect();
    let counts: Vec<usize> = received.iter().map(Vec::len).collect();
    println!("{}: whole messages of killed senders: {counts:?}", R::NAME);
    for numbers in received {
        assert_eq!(numbers, Vec::from_iter(0..numbers.len() as u64));
    }
}

/// P4: one sender's messages arrive in order, none lost and none twice.
fn messages_of_each_sender_arrive_in_order<R: Route>() {
    let fixture = Fixture::<R>::new();
    let owner = fixture.owner().start();
    let lengths = [(16, 20_000), (1000, 5000), (100_000, 300)];
    let start = |id: usize| {
        let (length, count) = lengths[id];
        let task = SenderTask { length, ..fixture.sender(id as u64, count) };
        task.start()
    };
    let senders: Vec<Program> = (0..lengths.len()).map(start).collect();
    for (id, sender) in senders.iter().enumerate() {
        let report = sender.report();
        assert_eq!((report.error, report.acked), (None, lengths[id].1));
        assert_eq!(fixture.received(id as u64), Vec::from_iter(0..lengths[id].1));
    }
    owner.finish();
}

/// P6: a lane grows to its cap, then the sender waits.
fn lane_of_idle_owner_stays_within_cap<R: Route>() {
    let fixture = Fixture::<R>::new();
    let mut owner = OwnerTask { limit: 1, ..fixture.owner() }.start();
    let cap = 1 << 20;
    let task = SenderTask { length: 10_000, lane_cap: Some(cap), ..fixture.sender(1, u64::MAX) };
    let task = SenderTask { waits: false, ..task };
    let mut sender = task.start();
    sender.wait_for("full");
    sender.ask_to_end();
    let report = sender.report();
    println!("{}: {} messages of 10,000 bytes in {cap} bytes", R::NAME, report.sent);
    assert!(report.sent * 10_008 < cap + (64 << 10), "{}", report.summary());
    assert!(report.sent * 10_008 > cap / 4, "{}", report.summary());
    owner.kill();
}

/// P7: messages that a dead owner did not acknowledge come back.
fn unread_messages_of_killed_owner_come_back<R: Route>() {
    let fixture = Fixture::<R>::new();
    let mut owner = OwnerTask { limit: 100, ..fixture.owner() }.start();
    let sender = fixture.sender(1, 1000).start();
    sender.wait_for("sent");
    until("the owner receives its last message", || fixture.received(1).len() == 100);
    owner.kill();
    let report = sender.report();
    assert_eq!(report.errno, libc::EOWNERDEAD, "{}", report.summary());
    report.check();
    println!("{}: {}", R::NAME, report.summary());
    assert_eq!((report.sent, report.acked), (1000, 99));
    // The owner has received message 99 and not acknowledged it.
    assert!(report.in_doubt.contains(&99));
    assert_eq!(report.in_doubt.len() == 1, !R::is_remote());
}

fn successor_of_killed_owner_receives_the_rest<R: Route>() {
    let fixture = Fixture::<R>::new();
    let task = fixture.owner();
    let mut owner = OwnerTask { limit: 100, ..task.clone() }.start();
    let sender = SenderTask { on_death: 1, ..fixture.sender(1, 1000) }.start();
    until("the owner receives its last message", || fixture.received(1).len() == 100);
    owner.kill();
    let successor = task.start();
    let report = sender.report();
    assert_eq!((report.error.as_deref(), report.acked), (None, 1000), "{}", report.summary());
    let expected: Vec<u64> = (0..100).chain(99..1000).collect();
    assert_eq!(fixture.received(1), expected);
    successor.finish();
}

/// A receiver that closes acknowledges its last message.
fn successor_of_closed_mailbox_receives_the_rest<R: Route>() {
    let fixture = Fixture::<R>::new();
    let task = fixture.owner();
    let owner = OwnerTask { limit: 100, ..task.clone() }.start();
    let sender = SenderTask { on_death: 2, ..fixture.sender(1, 1000) }.start();
    until("the owner receives its last message", || fixture.received(1).len() == 100);
    owner.finish();
    let successor = task.start();
    let report = sender.report();
    assert_eq!((report.error.as_deref(), report.acked), (None, 1000), "{}", report.summary());
    assert_eq!(fixture.received(1), Vec::from_iter(0..1000));
    successor.finish();
}

/// P8: a program has no thread of the library, except the one that holds its life.
fn sender_has_no_thread_besides_anchor<R: Route>() {
    let fixture = Fixture::<R>::new();
    let owner = fixture.owner().start();
    let sender = fixture.sender(1, 1000).start();
    let report = sender.report();
    assert_eq!((report.error, report.acked), (None, 1000));
    assert!(report.threads <= 1, "{} threads", report.threads);
    owner.finish();
}

/// P9: a forked child uses no handle of its parent, which continues.
fn sender_in_forked_child_returns_forked<R: Route>() {
    let fixture = Fixture::<R>::new();
    let owner = OwnerThread::start(fixture.owner());
    let mut sender = Sender::connect(R::sender_at(fixture.path())).expect("connects");
    let mut message = Vec::new();
    write_message(&mut message, 1, 0, 64);
    sender.send(&message).expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("acknowledged");
    let mut child = Child::fork(|_| {
        assert!(matches!(sender.send(b"child"), Err(Error::Forked)));
        assert!(matches!(sender.take_unread_parts(), Err(Error::Forked)));
    });
    assert_eq!(child.wait(), 0);
    write_message(&mut message, 1, 1, 64);
    sender.send(&message).expect("sent");
    sender.wait_acked(Some(AMPLE)).expect("acknowledged");
    assert_eq!(fixture.received(1), [0, 1]);
    drop((sender, owner));
}

/// A test for each promise, with a case for each route.
macro_rules! promises {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                alone!();
                let routes: [fn(); 3] = [
                    super::$name::<LocalRoute>,
                    super::$name::<MemoryGateways>,
                    super::$name::<TcpGateways>,
                ];
                in_processes(routes, |run| run());
            }
        )*
    };
}

mod routes {
    use super::*;

    promises! {
        further_sends_make_no_system_call
        killed_owner_is_reported
        stopped_owner_is_not_reported_as_dead
        interruption_is_not_reported_as_death
        closed_mailbox_is_reported_as_closed
        killed_sender_leaves_whole_messages
        messages_of_each_sender_arrive_in_order
        lane_of_idle_owner_stays_within_cap
        unread_messages_of_killed_owner_come_back
        successor_of_killed_owner_receives_the_rest
        successor_of_closed_mailbox_receives_the_rest
        sender_has_no_thread_besides_anchor
        sender_in_forked_child_returns_forked
    }
}

#[test]
fn differences_across_machines_agree_with_guide() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/guides/across-machines.md");
    let guide = std::fs::read_to_string(guide).expect("a guide");
    for (promise, local, across) in DIFFERENCES {
        println!("{promise}: local: {local} Across machines: {across}");
        let row = guide.lines().find(|line| line.starts_with(&format!("| {promise} |")));
        let row = row.expect("a row for each promise");
        assert!(row.contains(across), "{promise}: the guide does not say: {across}");
    }
}

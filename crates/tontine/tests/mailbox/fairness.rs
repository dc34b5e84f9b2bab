//! Lanes take turns: a sender that floods its lane starves no other sender.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::*;
use tontine::Error;
use tontine::mailbox::Sender;

/// Maximum number of messages of one lane between two checks of the others, as the mailbox
/// promises. Idle lanes may have to wait for twice this number.
const TURN: u32 = 64;

/// Number of turns of a flooding lane between two checks for connections, if turns take no time.
const TURNS_BETWEEN_LOOKS: u32 = 1024 + 1;

#[test]
fn full_lane_does_not_starve_other_lanes() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut floods: Vec<Sender> =
        (0..3).map(|_| Sender::connect(&place.path).expect("connects")).collect();
    let mut modest = Sender::connect(&place.path).expect("connects");
    mailbox.try_recv().expect_err("no message yet");
    // All lanes are filled before anything is read, so that the mailbox alone determines the order.
    for flood in &mut floods {
        for _ in 0..20_000 {
            flood.try_send(b"flood").expect("the lane grows");
        }
    }
    for _ in 0..50 {
        modest.try_send(b"modest").expect("the lane has space");
    }
    let (mut between, mut longest, mut modest_ones) = (0, 0, 0);
    for _ in 0..60_050 {
        if *mailbox.try_recv().expect("a message") == *b"modest" {
            (longest, between, modest_ones) = (longest.max(between), 0, modest_ones + 1);
        } else if modest_ones < 50 {
            between += 1;
        }
    }
    assert_eq!(mailbox.try_recv().expect_err("no further message"), Error::WouldBlock);
    assert_eq!(modest_ones, 50);
    assert!(longest <= 2 * 3 * TURN, "{longest} messages of three others came before one");
}

/// Regression: lanes that had been empty for a while were checked only when all others were empty
/// too. Two of these four lanes were never served again.
#[test]
fn always_full_lanes_get_equal_shares() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut lanes: Vec<Sender> =
        (0..4).map(|_| Sender::connect(&place.path).expect("connects")).collect();
    mailbox.try_recv().expect_err("no message yet");
    for (index, lane) in lanes.iter_mut().enumerate() {
        (0..10_000).for_each(|_| lane.try_send(&[index as u8; 30]).expect("the lane grows"));
    }
    let mut shares = [0_u32; 4];
    for _ in 0..20_000 {
        shares[usize::from(mailbox.try_recv().expect("a message")[0])] += 1;
    }
    let least = shares.iter().min().copied().unwrap_or(0);
    let most = shares.iter().max().copied().unwrap_or(0);
    assert!(most - least <= 2 * TURN, "{shares:?}");
}

/// Regression: turns were counted, not timed. With a millisecond of work per message, a new sender
/// waited a minute for 65,527 messages of another sender.
#[test]
fn new_sender_is_served_despite_slow_messages() {
    alone!();
    let (place, mut mailbox) = bound();
    let mut flood = Sender::connect(&place.path).expect("connects");
    mailbox.try_recv().expect_err("no message yet");
    for _ in 0..1000 {
        flood.try_send(b"flood").expect("the lane grows");
    }
    let mut work = || {
        let is_new = *mailbox.recv_timeout(AMPLE).expect("a message") == *b"new";
        thread::sleep(std::time::Duration::from_millis(1));
        is_new
    };
    // The first turn is long, because no durations are known yet.
    for _ in 0..2 * TURN {
        assert!(!work(), "no new sender");
    }
    for _ in 0..5 {
        let mut new_sender = Sender::connect(&place.path).expect("connects");
        new_sender.send(b"new").expect("sent");
        let floods = (0..100).take_while(|_| !work()).count();
        assert!(floods <= TURN as usize / 2, "{floods} messages of another came first");
    }
}

#[test]
fn new_sender_is_served_during_flood() {
    alone!();
    let (place, mut mailbox) = bound();
    let (mut flood, stop) =
        (Sender::connect(&place.path).expect("connects"), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                flood.send_timeout(b"flood", AMPLE).expect("sent");
            }
        });
        for _ in 0..20 {
            let mut new_sender = Sender::connect(&place.path).expect("connects");
            new_sender.send(b"new").expect("sent");
            let floods = (0_u32..)
                .take_while(|_| *mailbox.recv_timeout(AMPLE).expect("a message") == *b"flood")
                .count();
            // Connections are checked after at most this many turns.
            let most = (TURNS_BETWEEN_LOOKS * TURN) as usize;
            assert!(floods <= most + 2 * TURN as usize, "{floods} messages of another came first");
        }
        stop.store(true, Ordering::Relaxed);
        while mailbox.recv_timeout(std::time::Duration::from_millis(20)).is_ok() {}
    });
}

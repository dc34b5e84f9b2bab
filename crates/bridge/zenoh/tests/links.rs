//! Links over real sessions on loopback, between processes and through a router.

mod common;

use std::time::{Duration, Instant};

use common::hosts::resources;
use common::{LinkObservation, OptionsBuilder, TestLink, new_endpoint, options, start_node, until};
use rustix::process::Signal;
use tontine_gateway::frame::MAX_FRAME;
use tontine_gateway::link::{HostId, Link, Queued};

const PEER: HostId = HostId(0);

/// Sends a frame until it comes back. Zenoh may lose it if it closes the connection, which depends
/// on the load of the machine.
fn exchange(near: &mut TestLink, frame: &[u8]) {
    until("the frame comes back", || {
        if near.link.try_send(PEER, &mut frame.to_vec()) != Queued::Yes {
            return false;
        }
        let end = Instant::now() + Duration::from_secs(1);
        let left = || end.saturating_duration_since(Instant::now());
        let mut events = std::iter::from_fn(|| near.next_within(left()));
        events.any(|seen| seen == LinkObservation::Frame(frame.to_vec()))
    });
}

#[test]
fn frames_of_all_lengths_arrive_in_order_both_ways() {
    let endpoint = new_endpoint("tcp");
    let mut near = TestLink::open(&options("near", "far").listen(&endpoint));
    let mut far = TestLink::open(&options("far", "near").connect(&endpoint));
    near.wait_up();
    far.wait_up();
    let lengths: Vec<usize> = (0..300).map(|number| number * 997 % MAX_FRAME + 1).collect();
    // Fewer at a time than the queues hold.
    for lengths in lengths.chunks(20) {
        for length in lengths {
            near.send(vec![*length as u8; *length]);
            far.send(vec![!*length as u8; *length]);
        }
        for length in lengths {
            assert!(far.frame() == vec![*length as u8; *length], "{length} bytes");
            assert!(near.frame() == vec![!*length as u8; *length], "{length} bytes");
        }
    }
}

#[test]
fn other_process_returns_frames() {
    let endpoint = new_endpoint("tcp");
    let mut node = start_node(&["echo", "far", "near", &endpoint]);
    let mut near = TestLink::open(&options("near", "far").connect(&endpoint));
    near.wait_up();
    node.wait_for("up");
    for number in 0..1_000_u32 {
        exchange(&mut near, &number.to_le_bytes());
    }
    node.kill();
    near.wait_down();
    assert_eq!(near.link.try_send(PEER, &mut vec![7]), Queued::Down);
    // The next instance is reached without a change here.
    let node = start_node(&["echo", "far", "near", &endpoint]);
    near.wait_up();
    node.wait_for("up");
    exchange(&mut near, &[7]);
}

#[test]
fn killed_router_is_down_and_its_successor_up() {
    let endpoint = new_endpoint("tcp");
    let mut near = TestLink::open(&options("near", "far").router("router", &endpoint));
    let mut router = start_node(&["router", &endpoint]);
    let mut far = TestLink::open(&options("far", "near").router("router", &endpoint));
    near.wait_up();
    far.wait_up();
    near.send(vec![7; MAX_FRAME]);
    assert!(far.frame() == vec![7; MAX_FRAME]);
    // After the longer absence, both links have replaced their sessions.
    for absence in [0, 7] {
        router.kill();
        near.wait_down();
        far.wait_down();
        std::thread::sleep(Duration::from_secs(absence));
        router = start_node(&["router", &endpoint]);
        near.wait_up();
        far.wait_up();
        far.send(vec![8; 8]);
        assert_eq!(near.frame(), [8; 8]);
    }
}

/// A peer that is stopped takes no bytes. Zenoh's `put` then waits for half a second, and the
/// gateway must not.
#[test]
fn sending_to_stopped_process_neither_waits_nor_grows() {
    let endpoint = new_endpoint("tcp");
    let node = start_node(&["echo", "far", "near", &endpoint]);
    let mut near = TestLink::open(&options("near", "far").connect(&endpoint));
    near.wait_up();
    node.signal(Signal::STOP);
    let before = resources::memory(std::process::id()).0;
    let mut send = || {
        let (start, used) = (Instant::now(), common::scheduled());
        let queued = near.link.try_send(PEER, &mut vec![7; MAX_FRAME]);
        let waited = start.elapsed().saturating_sub(common::scheduled() - used);
        // The lock of the queue is held for moments only.
        (queued, u32::from(waited > Duration::from_millis(400)))
    };
    until("the queue is full", || send().0 == Queued::Full);
    let mut slow = 0;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        let (queued, is_slow) = send();
        slow += is_slow;
        if queued != Queued::Yes {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    // Six calls would have waited for Zenoh.
    assert!(slow < 5, "{slow} calls");
    let grown = resources::memory(std::process::id()).0.saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    node.signal(Signal::CONT);
    exchange(&mut near, b"after");
}

#[test]
fn full_queue_becomes_writable() {
    let endpoint = new_endpoint("tcp");
    let node = start_node(&["echo", "far", "near", &endpoint]);
    let mut near = TestLink::open(&options("near", "far").connect(&endpoint));
    near.wait_up();
    node.signal(Signal::STOP);
    let mut frames = 0;
    while near.link.try_send(PEER, &mut vec![7; MAX_FRAME]) == Queued::Yes {
        frames += 1;
        assert!(frames < 1_000, "the queue and the kernel's buffers have bounds");
    }
    node.signal(Signal::CONT);
    near.wait_writable();
    assert_eq!(near.link.try_send(PEER, &mut vec![7; MAX_FRAME]), Queued::Yes);
}

#[test]
fn other_realm_and_unknown_host_are_not_heard() {
    let endpoint = new_endpoint("tcp");
    let mut near = TestLink::open(&options("near", "far").listen(&endpoint));
    let mut other = options("far", "near").connect(&endpoint);
    other.realm = "other".into();
    let mut other = TestLink::open(&other);
    let mut stranger = TestLink::open(&options("stranger", "near").connect(&endpoint));
    stranger.wait_up();
    stranger.send(vec![7]);
    let counted = || near.link.counts().strangers == 1;
    until("the frame is counted", counted);
    assert_eq!(near.link.poll(), None);
    assert_eq!(other.link.poll(), None);
    assert_eq!(other.link.try_send(PEER, &mut vec![7]), Queued::Down);
}

//! [`ZenohLink`]: frames from one link to another.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine_gateway::frame::MAX_FRAME;
use tontine_gateway::link::{HostId, Link, LinkEvent, Queued};
use tontine_zenoh::{ZenohLink, ZenohOptions};

use crate::{DURATION, END, SHORT, median_round_trip, megabytes_a_second};

pub(crate) const PEER: HostId = HostId(0);

/// Opens a link to the other process, and waits until that is up.
pub(crate) fn link(name: &str, peer: &str, endpoint: &str) -> ZenohLink {
    let mut options = ZenohOptions {
        name: name.into(),
        realm: "bench".into(),
        peers: vec![peer.into()],
        ..ZenohOptions::default()
    };
    let endpoints = if name == "near" { &mut options.connect } else { &mut options.listen };
    endpoints.push(endpoint.into());
    let mut link = ZenohLink::open(&options).expect("a link");
    if name == "far" {
        println!("ready");
    }
    while !matches!(link.poll(), Some(LinkEvent::Up(_))) {
        wait(&link);
    }
    // The other process hears of this one a little later.
    std::thread::sleep(Duration::from_millis(100));
    link
}

/// Waits until the link has an event.
pub(crate) fn wait(link: &ZenohLink) {
    let mut descriptors = [PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)];
    poll(&mut descriptors, None::<&Timespec>).expect("poll");
}

/// Returns the next frame.
fn receive(link: &mut ZenohLink, frame: &mut Vec<u8>) {
    loop {
        match link.poll() {
            Some(LinkEvent::Frame { bytes, .. }) => {
                frame.clear();
                frame.extend_from_slice(bytes);
                return;
            }
            Some(_) => {}
            None => wait(link),
        }
    }
}

/// Sends a frame; waits while the queue is full.
pub(crate) fn send(link: &mut ZenohLink, frame: &mut Vec<u8>) {
    loop {
        match link.try_send(PEER, frame) {
            Queued::Yes => return,
            Queued::Down => panic!("the link is down"),
            Queued::Full => {
                while link.poll().is_some() {}
                wait(link);
            }
        }
    }
}

pub(crate) fn throughput(endpoint: &str) -> f64 {
    let mut link = link("near", "far", endpoint);
    let mut frame = Vec::new();
    let start = Instant::now();
    while start.elapsed() < DURATION {
        frame.resize(MAX_FRAME, 7);
        send(&mut link, &mut frame);
    }
    send(&mut link, &mut vec![0; END]);
    receive(&mut link, &mut frame);
    megabytes_a_second(&frame, start)
}

pub(crate) fn counter(endpoint: &str) {
    let mut link = link("far", "near", endpoint);
    let mut count = 0_u64;
    loop {
        match link.poll() {
            Some(LinkEvent::Frame { bytes, .. }) if bytes.len() == END => break,
            Some(LinkEvent::Frame { bytes, .. }) => count += bytes.len() as u64,
            Some(_) => {}
            None => wait(&link),
        }
    }
    send(&mut link, &mut count.to_le_bytes().to_vec());
    std::thread::sleep(Duration::from_secs(60));
}

pub(crate) fn round_trip(endpoint: &str) -> f64 {
    let mut link = link("near", "far", endpoint);
    let mut frame = vec![7; SHORT];
    median_round_trip(|| {
        send(&mut link, &mut frame);
        receive(&mut link, &mut frame);
    })
}

pub(crate) fn echo(endpoint: &str) {
    let mut link = link("far", "near", endpoint);
    let mut frame = Vec::new();
    loop {
        receive(&mut link, &mut frame);
        send(&mut link, &mut frame);
    }
}

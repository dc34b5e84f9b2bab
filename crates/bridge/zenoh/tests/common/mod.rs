//! Links and processes of the tests.
#![allow(dead_code, reason = "each test program uses a part")]

#[path = "../../../gateway/tests/hosts/mod.rs"]
pub(crate) mod hosts;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hosts::program::Program;
pub(crate) use hosts::{AMPLE, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine_gateway::link::{HostId, Link, LinkEvent, Queued};
use tontine_zenoh::{Certificates, ZenohLink, ZenohOptions};
use zenoh::{Session, Wait};

/// Returns the address on loopback that only this process uses, by its number, which has at most 22
/// bits. Linux accepts all addresses that begin with 127.
pub(crate) fn own_address() -> Ipv4Addr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 + high, middle, low)
}

/// Returns an endpoint at [`own_address`] that no other test has.
pub(crate) fn new_endpoint(protocol: &str) -> String {
    // Below the ports that the kernel gives to clients.
    static NEXT_PORT: AtomicU16 = AtomicU16::new(20_000);
    format!("{protocol}/{}:{}", own_address(), NEXT_PORT.fetch_add(1, Relaxed))
}

/// Returns the options of a host with one peer.
pub(crate) fn options(name: &str, peer: &str) -> ZenohOptions {
    ZenohOptions {
        name: name.into(),
        realm: "test".into(),
        peers: vec![peer.into()],
        ..ZenohOptions::default()
    }
}

/// Returns the time for which this thread had a processor or waited for one.
pub(crate) fn scheduled() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let numbers = text.split_whitespace().take(2);
    Duration::from_nanos(numbers.map(|number| number.parse::<u64>().expect("a number")).sum())
}

/// Opens a session of Zenoh in a mode (`peer` or `client`), without access control of its own.
pub(crate) fn raw_session(mode: &str, tls: &Certificates, endpoint: &str) -> Session {
    let mut config = zenoh::Config::default();
    let mut set = |key: &str, value: String| config.insert_json5(key, &value).expect("a setting");
    set("mode", format!("{mode:?}"));
    set("scouting/multicast/enabled", "false".into());
    set("scouting/gossip/enabled", "false".into());
    set("listen/endpoints", "[]".into());
    set("connect/endpoints", format!("[{endpoint:?}]"));
    set("transport/link/tls/enable_mtls", "true".into());
    set("transport/link/tls/root_ca_certificate", format!("{:?}", tls.ca));
    set("transport/link/tls/connect_certificate", format!("{:?}", tls.certificate));
    set("transport/link/tls/connect_private_key", format!("{:?}", tls.private_key));
    zenoh::open(config).wait().expect("a session")
}

/// The methods of a builder.
pub(crate) trait OptionsBuilder {
    fn listen(self, endpoint: &str) -> Self;
    fn connect(self, endpoint: &str) -> Self;
    fn router(self, name: &str, endpoint: &str) -> Self;
}

impl OptionsBuilder for ZenohOptions {
    fn listen(mut self, endpoint: &str) -> Self {
        self.listen.push(endpoint.into());
        self
    }

    fn connect(mut self, endpoint: &str) -> Self {
        self.connect.push(endpoint.into());
        self
    }

    fn router(mut self, name: &str, endpoint: &str) -> Self {
        self.routers.push(name.into());
        self.connect(endpoint)
    }
}

/// A link whose events are awaited. All are of the first peer.
pub(crate) struct TestLink {
    pub(crate) link: ZenohLink,
}

#[derive(Debug, PartialEq)]
pub(crate) enum LinkObservation {
    Frame(Vec<u8>),
    Up,
    Down,
    Writable,
}

impl TestLink {
    pub(crate) fn open(options: &ZenohOptions) -> Self {
        Self { link: ZenohLink::open(options).expect("a link") }
    }

    /// Sends a frame; waits while the queue is full.
    pub(crate) fn send(&mut self, mut frame: Vec<u8>) {
        let mut sent = Queued::Full;
        until("the queue has space", || {
            sent = self.link.try_send(HostId(0), &mut frame);
            sent != Queued::Full
        });
        assert_eq!(sent, Queued::Yes);
    }

    pub(crate) fn next_within(&mut self, timeout: Duration) -> Option<LinkObservation> {
        let end = Instant::now() + timeout;
        loop {
            if let Some(event) = self.link.poll() {
                return Some(match event {
                    LinkEvent::Frame { bytes, .. } => LinkObservation::Frame(bytes.to_vec()),
                    LinkEvent::Up(_) => LinkObservation::Up,
                    LinkEvent::Down(_) => LinkObservation::Down,
                    LinkEvent::Writable(_) => LinkObservation::Writable,
                });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let left = Timespec::try_from(left).expect("a short time");
            let descriptor = self.link.descriptor();
            let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
            poll(&mut descriptors, Some(&left)).expect("poll");
        }
    }

    /// Waits for a frame; passes over other events.
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        loop {
            if let LinkObservation::Frame(frame) =
                self.next_within(AMPLE).expect("timed out: a frame")
            {
                return frame;
            }
        }
    }

    /// Checks that no event comes for a second.
    pub(crate) fn assert_silent(&mut self) {
        assert_eq!(self.next_within(Duration::from_secs(1)), None);
    }

    pub(crate) fn wait_up(&mut self) {
        self.wait(&LinkObservation::Up);
    }

    pub(crate) fn wait_down(&mut self) {
        self.wait(&LinkObservation::Down);
    }

    pub(crate) fn wait_writable(&mut self) {
        self.wait(&LinkObservation::Writable);
    }

    fn wait(&mut self, expected: &LinkObservation) {
        while self.next_within(AMPLE).unwrap_or_else(|| panic!("timed out: {expected:?}"))
            != *expected
        {}
    }
}

/// Starts a process of `examples/node.rs`, which is next to the folder of the tests, and waits
/// until it is ready.
pub(crate) fn start_node(arguments: &[&str]) -> Program {
    let test = std::env::current_exe().expect("a path");
    let target = test.parent().and_then(Path::parent).expect("a target folder");
    let mut command = Command::new(target.join("examples/node"));
    command.args(arguments);
    let node = Program::spawn(command, None);
    node.wait_for("ready");
    node
}

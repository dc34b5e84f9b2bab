//! Links and processes of the tests.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use tontine_remote::link::{HostId, Link, LinkEvent, Queued};
use tontine_zenoh::{Certificates, ZenohLink, ZenohOptions};
use zenoh::{Session, Wait};

/// Maximum wait for an event. Other tests may use all processors.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

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
pub(crate) fn options(name: &str, peer: &str) -> TestOptions {
    TestOptions(ZenohOptions {
        name: name.into(),
        realm: "test".into(),
        peers: vec![peer.into()],
        ..ZenohOptions::default()
    })
}

/// Returns the memory in bytes of this process.
pub(crate) fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number of pages") * rustix::param::page_size() as u64
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

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Options, with the methods of a builder.
#[derive(Clone)]
pub(crate) struct TestOptions(pub(crate) ZenohOptions);

impl TestOptions {
    pub(crate) fn listen(mut self, endpoint: &str) -> Self {
        self.0.listen.push(endpoint.into());
        self
    }

    pub(crate) fn connect(mut self, endpoint: &str) -> Self {
        self.0.connect.push(endpoint.into());
        self
    }

    pub(crate) fn router(mut self, name: &str, endpoint: &str) -> Self {
        self.0.routers.push(name.into());
        self.connect(endpoint)
    }
}

impl std::ops::Deref for TestOptions {
    type Target = ZenohOptions;

    fn deref(&self) -> &ZenohOptions {
        &self.0
    }
}

impl std::ops::DerefMut for TestOptions {
    fn deref_mut(&mut self) -> &mut ZenohOptions {
        &mut self.0
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
        wait_until("the queue has space", || {
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
                self.next_within(TIMEOUT).expect("timed out: a frame")
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
        while self.next_within(TIMEOUT).unwrap_or_else(|| panic!("timed out: {expected:?}"))
            != *expected
        {}
    }
}

/// A process of `examples/node.rs`, killed when it is dropped.
pub(crate) struct Node {
    child: Child,
    output: BufReader<ChildStdout>,
    /// The process ends with it.
    _input: ChildStdin,
}

impl Node {
    /// Starts the process, and waits until it is ready.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(program());
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program, from: cargo build --examples");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let input = child.stdin.take().expect("piped");
        let mut node = Self { child, output, _input: input };
        assert_eq!(node.line(), "ready");
        node
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Returns once all threads have stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| {
                stat.rsplit_once(") ").is_some_and(|rest| rest.1.starts_with('T'))
            })
        };
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_until("all threads are stopped", || {
            std::fs::read_dir(&tasks).expect("a process").all(is_stopped)
        });
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the example, which is next to the folder of the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().and_then(|deps| deps.parent()).expect("a target folder").join("examples/node")
}

//! Figures of the carrier between two processes over `tcp/` on loopback, as ratios within a run.
//!
//! `raw` is Zenoh itself: the denominator of everything above it. `link` is [`ZenohLink`], so that
//! its row states what the queues and the threads cost. A row of the gateway belongs into [`ROWS`]:
//! a function for each side, and the row to which it is compared.
//!
//! Run it by `cargo xtask zenoh --bench`.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine_remote::frame::MAX_FRAME;
use tontine_remote::link::{HostId, Link, LinkEvent, Queued};
use tontine_zenoh::{ZenohLink, ZenohOptions};
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::{Session, Wait};

/// A measured figure: its name, unit and base, and what both processes do.
struct BenchRow {
    name: &'static str,
    unit: &'static str,
    /// The row to which this one is compared.
    base: Option<&'static str>,
    near: fn(&str) -> f64,
    far: fn(&str),
}

const ROWS: [BenchRow; 4] = [
    BenchRow {
        name: "raw/throughput",
        unit: "MB/s",
        base: None,
        near: raw_throughput,
        far: raw_counter,
    },
    BenchRow {
        name: "raw/round-trip",
        unit: "us",
        base: None,
        near: raw_round_trip,
        far: raw_echo,
    },
    BenchRow {
        name: "link/throughput",
        unit: "MB/s",
        base: Some("raw/throughput"),
        near: link_throughput,
        far: link_counter,
    },
    BenchRow {
        name: "link/round-trip",
        unit: "us",
        base: Some("raw/round-trip"),
        near: link_round_trip,
        far: link_echo,
    },
];

/// Fresh pairs of processes for each row. Rows take turns.
const PAIRS: usize = 5;
/// Time in which the near process sends.
const DURATION: Duration = Duration::from_secs(2);
const ROUND_TRIPS: usize = 10_000;
/// Length of a message of which only the arrival counts.
const SHORT: usize = 64;
/// A message of this length ends a stream; the answer is the number of bytes that arrived.
const END: usize = 1;
const TO_FAR: &str = "bench/far";
const TO_NEAR: &str = "bench/near";
const PEER: HostId = HostId(0);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, name, endpoint] = &arguments[..]
        && role == "far"
    {
        let row = ROWS.iter().find(|row| row.name == name).expect("a row");
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        (row.far)(endpoint);
        return;
    }
    let mut figures = [const { Vec::new() }; ROWS.len()];
    for _ in 0..PAIRS {
        for (row, figures) in ROWS.iter().zip(&mut figures) {
            let endpoint = free_endpoint();
            let mut far = start(row, &endpoint);
            figures.push((row.near)(&endpoint));
            let _ = far.kill();
            let _ = far.wait();
        }
    }
    figures.iter_mut().for_each(|figures| figures.sort_by(f64::total_cmp));
    let median = |row: usize| figures[row][PAIRS / 2];
    println!("median of {PAIRS} pairs of processes, over tcp/ on loopback");
    println!("{:20} {:>10} {:>5} {:>21}  ratio", "", "median", "", "range");
    for (number, row) in ROWS.iter().enumerate() {
        let (least, most) = (figures[number][0], figures[number][PAIRS - 1]);
        let range = format!("{least:.1} - {most:.1}");
        let base = row.base.and_then(|base| ROWS.iter().position(|row| row.name == base));
        let ratio =
            base.map(|base| format!("{:.2} of {}", median(number) / median(base), ROWS[base].name));
        let ratio = ratio.unwrap_or_default();
        println!("{:20} {:>10.1} {:>5} {range:>21}  {ratio}", row.name, median(number), row.unit);
    }
}

fn free_endpoint() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("tcp/{}", listener.local_addr().expect("an address"))
}

/// Starts the other process, and waits until it is ready.
fn start(row: &BenchRow, endpoint: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["far", row.name, endpoint]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let mut line = String::new();
    let output = child.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

/// Opens a session with the settings of a link.
fn session(listen: &[&str], connect: &[&str]) -> Session {
    let mut config = zenoh::Config::default();
    let mut set = |key: &str, value: String| config.insert_json5(key, &value).expect("a setting");
    set("scouting/multicast/enabled", "false".into());
    set("scouting/gossip/enabled", "false".into());
    set("listen/endpoints", format!("{listen:?}"));
    set("connect/endpoints", format!("{connect:?}"));
    set("transport/link/tx/lease", "1000".into());
    zenoh::open(config).wait().expect("a session")
}

fn publisher(session: &Session, key: &'static str) -> Publisher<'static> {
    let publisher = session.declare_publisher(key);
    publisher.congestion_control(CongestionControl::Block).express(true).wait().expect("declared")
}

/// Returns the payloads that arrive under a key.
fn subscribe(session: &Session, key: &'static str) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let callback = move |sample: zenoh::sample::Sample| {
        let _ = sender.send(sample.payload().to_bytes().into_owned());
    };
    session.declare_subscriber(key).callback(callback).background().wait().expect("declared");
    receiver
}

/// Opens the near session, and waits until messages arrive at the far one and back.
fn raw_near(endpoint: &str) -> (Session, Publisher<'static>, Receiver<Vec<u8>>) {
    let session = session(&[], &[endpoint]);
    let publisher = publisher(&session, TO_FAR);
    let received = subscribe(&session, TO_NEAR);
    loop {
        publisher.put(vec![0; END]).wait().expect("put");
        if received.recv_timeout(Duration::from_millis(200)).is_ok() {
            break;
        }
    }
    while received.recv_timeout(Duration::from_millis(200)).is_ok() {}
    (session, publisher, received)
}

fn raw_throughput(endpoint: &str) -> f64 {
    let (_session, publisher, received) = raw_near(endpoint);
    let start = Instant::now();
    while start.elapsed() < DURATION {
        publisher.put(vec![7; MAX_FRAME]).wait().expect("put");
    }
    publisher.put(vec![0; END]).wait().expect("put");
    let bytes = received.recv_timeout(Duration::from_secs(20)).expect("an answer");
    megabytes_a_second(&bytes, start)
}

/// Counts bytes, and sends the count after the end of a stream.
fn raw_counter(endpoint: &str) {
    let session = session(&[endpoint], &[]);
    let publisher = publisher(&session, TO_NEAR);
    let count = std::sync::atomic::AtomicU64::new(0);
    let callback = move |sample: zenoh::sample::Sample| {
        use std::sync::atomic::Ordering::Relaxed;
        let length = sample.payload().len();
        if length == END {
            let count = count.swap(0, Relaxed);
            publisher.put(count.to_le_bytes().to_vec()).wait().expect("put");
        } else {
            count.fetch_add(length as u64, Relaxed);
        }
    };
    let subscriber = session.declare_subscriber(TO_FAR).callback(callback);
    subscriber.background().wait().expect("declared");
    println!("ready");
    std::thread::sleep(Duration::from_secs(60));
}

fn raw_round_trip(endpoint: &str) -> f64 {
    let (_session, publisher, received) = raw_near(endpoint);
    median_round_trip(|| {
        publisher.put(vec![7; SHORT]).wait().expect("put");
        received.recv().expect("an answer");
    })
}

fn raw_echo(endpoint: &str) {
    let session = session(&[endpoint], &[]);
    let publisher = publisher(&session, TO_NEAR);
    let received = subscribe(&session, TO_FAR);
    println!("ready");
    for message in received {
        publisher.put(message).wait().expect("put");
    }
}

/// Opens a link to the other process, and waits until that is up.
fn link(name: &str, peer: &str, endpoint: &str) -> ZenohLink {
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
fn wait(link: &ZenohLink) {
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
fn send(link: &mut ZenohLink, frame: &mut Vec<u8>) {
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

fn link_throughput(endpoint: &str) -> f64 {
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

fn link_counter(endpoint: &str) {
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

fn link_round_trip(endpoint: &str) -> f64 {
    let mut link = link("near", "far", endpoint);
    let mut frame = vec![7; SHORT];
    median_round_trip(|| {
        send(&mut link, &mut frame);
        receive(&mut link, &mut frame);
    })
}

fn link_echo(endpoint: &str) {
    let mut link = link("far", "near", endpoint);
    let mut frame = Vec::new();
    loop {
        receive(&mut link, &mut frame);
        send(&mut link, &mut frame);
    }
}

/// Returns the rate of a stream of which the other process counted the bytes.
fn megabytes_a_second(count: &[u8], start: Instant) -> f64 {
    let count = u64::from_le_bytes(count.try_into().expect("eight bytes"));
    count as f64 / 1e6 / start.elapsed().as_secs_f64()
}

/// Returns the median duration in microseconds.
fn median_round_trip(mut round_trip: impl FnMut()) -> f64 {
    let mut durations: Vec<Duration> = (0..ROUND_TRIPS)
        .map(|_| {
            let start = Instant::now();
            round_trip();
            start.elapsed()
        })
        .collect();
    durations.sort();
    durations[ROUND_TRIPS / 2].as_secs_f64() * 1e6
}

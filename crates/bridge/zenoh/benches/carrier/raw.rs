//! Zenoh itself: messages from one session to another.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tontine_gateway::frame::MAX_FRAME;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::{Session, Wait};

use crate::{DURATION, END, SHORT, median_round_trip, megabytes_a_second};

const TO_FAR: &str = "bench/far";
const TO_NEAR: &str = "bench/near";

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
fn near(endpoint: &str) -> (Session, Publisher<'static>, Receiver<Vec<u8>>) {
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

pub(crate) fn throughput(endpoint: &str) -> f64 {
    let (_session, publisher, received) = near(endpoint);
    let start = Instant::now();
    while start.elapsed() < DURATION {
        publisher.put(vec![7; MAX_FRAME]).wait().expect("put");
    }
    publisher.put(vec![0; END]).wait().expect("put");
    let bytes = received.recv_timeout(Duration::from_secs(20)).expect("an answer");
    megabytes_a_second(&bytes, start)
}

/// Counts bytes, and sends the count after the end of a stream.
pub(crate) fn counter(endpoint: &str) {
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

pub(crate) fn round_trip(endpoint: &str) -> f64 {
    let (_session, publisher, received) = near(endpoint);
    median_round_trip(|| {
        publisher.put(vec![7; SHORT]).wait().expect("put");
        received.recv().expect("an answer");
    })
}

pub(crate) fn echo(endpoint: &str) {
    let session = session(&[endpoint], &[]);
    let publisher = publisher(&session, TO_NEAR);
    let received = subscribe(&session, TO_FAR);
    println!("ready");
    for message in received {
        publisher.put(message).wait().expect("put");
    }
}

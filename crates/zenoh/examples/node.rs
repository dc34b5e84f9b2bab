//! A process that the tests start: a router, or a gateway that returns each frame.
//!
//! `node router ENDPOINT [CA CERTIFICATE KEY]` prints `ready`. `node echo NAME PEER ENDPOINT`
//! prints `ready`, then `up` and `down`. Both end with their standard input.

use std::io::Read;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine_remote::link::{Link, LinkEvent, Queued};
use tontine_zenoh::{ZenohLink, ZenohOptions};
use zenoh::Wait;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["router", endpoint] => router(endpoint, None),
        ["router", endpoint, ca, certificate, key] => {
            router(endpoint, Some([ca, certificate, key]))
        }
        ["echo", name, peer, endpoint] => echo(name, peer, endpoint),
        _ => panic!("expected router or echo, found {arguments:?}"),
    }
}

fn router(endpoint: &str, tls: Option<[&str; 3]>) {
    let mut config = zenoh::Config::default();
    let mut set = |key: &str, value: String| config.insert_json5(key, &value).expect("a setting");
    set("mode", "\"router\"".into());
    set("listen/endpoints", format!("[{endpoint:?}]"));
    set("scouting/multicast/enabled", "false".into());
    set("scouting/delay", "0".into());
    set("transport/link/tx/lease", "1000".into());
    if let Some([ca, certificate, key]) = tls {
        set("transport/link/tls/enable_mtls", "true".into());
        set("transport/link/tls/root_ca_certificate", format!("{ca:?}"));
        set("transport/link/tls/listen_certificate", format!("{certificate:?}"));
        set("transport/link/tls/listen_private_key", format!("{key:?}"));
    }
    let _session = zenoh::open(config).wait().expect("a router");
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

fn echo(name: &str, peer: &str, endpoint: &str) {
    let mut options = ZenohOptions {
        name: name.into(),
        realm: "test".into(),
        peers: vec![peer.into()],
        ..ZenohOptions::default()
    };
    match endpoint.strip_prefix('@') {
        Some(endpoint) => options.connect.push(endpoint.into()),
        None => options.listen.push(endpoint.into()),
    }
    let mut link = ZenohLink::open(&options).expect("a link");
    println!("ready");
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        while let Some(event) = link.poll() {
            match event {
                LinkEvent::Frame { from, bytes } => {
                    let mut frame = bytes.to_vec();
                    while link.try_send(from, &mut frame) == Queued::Full {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                LinkEvent::Up(_) => println!("up"),
                LinkEvent::Down(_) => println!("down"),
                LinkEvent::Writable(_) => {}
            }
        }
        let mut descriptors = [PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)];
        poll(&mut descriptors, None::<&Timespec>).expect("poll");
    }
}

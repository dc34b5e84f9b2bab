//! A process that the tests start: a router, or a gateway that returns each frame.
//!
//! `node router ENDPOINT [CA CERTIFICATE KEY]` and `node router FILE.json5` print `> ready`.
//! Another role, `node echo NAME PEER ENDPOINT`, prints `> ready`, then `> up` and `> down`. All
//! end with their standard input.

#[path = "../tests/common/router.rs"]
mod router;

use std::io::Read;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tontine_gateway::link::{Link, LinkEvent, Queued};
use tontine_zenoh::{ZenohLink, ZenohOptions};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["router", file] if file.ends_with(".json5") => {
            router::run(zenoh::Config::from_file(file).expect("a configuration"));
        }
        ["router", endpoint] => router::run(router::config(endpoint)),
        ["router", endpoint, ca, certificate, key] => {
            let mut config = router::config(endpoint);
            set_certificates(&mut config, [ca, certificate, key]);
            router::run(config);
        }
        ["echo", name, peer, endpoint] => echo(name, peer, endpoint),
        _ => panic!("expected router or echo, found {arguments:?}"),
    }
}

/// Adds the files by which the router and its clients prove their names.
fn set_certificates(config: &mut zenoh::Config, [ca, certificate, key]: [&str; 3]) {
    let mut set = |key: &str, value: String| {
        config.insert_json5(&format!("transport/link/tls/{key}"), &value).expect("a setting");
    };
    set("enable_mtls", "true".into());
    set("root_ca_certificate", format!("{ca:?}"));
    set("listen_certificate", format!("{certificate:?}"));
    set("listen_private_key", format!("{key:?}"));
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
    println!("> ready");
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
                LinkEvent::Up(_) => println!("> up"),
                LinkEvent::Down(_) => println!("> down"),
                LinkEvent::Writable(_) => {}
            }
        }
        let mut descriptors = [PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)];
        poll(&mut descriptors, None::<&Timespec>).expect("poll");
    }
}

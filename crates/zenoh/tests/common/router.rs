//! A router of Zenoh, as a process of its own: [`run`].
#![allow(dead_code, reason = "each program uses a part")]

use std::io::Read;

use zenoh::{Config, Wait};

/// Returns the configuration of a router that listens at an endpoint, without access control.
pub(crate) fn config(endpoint: &str) -> Config {
    let mut config = Config::default();
    let mut set = |key: &str, value: &str| config.insert_json5(key, value).expect("a setting");
    set("mode", "\"router\"");
    set("listen/endpoints", &format!("[{endpoint:?}]"));
    set("scouting/multicast/enabled", "false");
    set("scouting/delay", "0");
    set("transport/link/tx/lease", "1000");
    config
}

/// Adds the files by which the router and its clients prove their names.
pub(crate) fn set_certificates(config: &mut Config, [ca, certificate, key]: [&str; 3]) {
    let mut set = |key: &str, value: String| {
        config.insert_json5(&format!("transport/link/tls/{key}"), &value).expect("a setting");
    };
    set("enable_mtls", "true".into());
    set("root_ca_certificate", format!("{ca:?}"));
    set("listen_certificate", format!("{certificate:?}"));
    set("listen_private_key", format!("{key:?}"));
}

/// Runs a router. Prints `ready`, and ends with the standard input.
pub(crate) fn run(config: Config) -> ! {
    let _session = zenoh::open(config).wait().expect("a router");
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

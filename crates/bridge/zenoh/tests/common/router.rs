//! A router of Zenoh, as a process of its own: [`run`].

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

/// Runs a router. Prints `> ready`, and ends with the standard input.
pub(crate) fn run(config: Config) -> ! {
    let _session = zenoh::open(config).wait().expect("a router");
    println!("> ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

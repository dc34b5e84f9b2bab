//! The runs: what is killed, stopped or cut, and when.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::hosts::program::now_ms;
use crate::namespaces::{HostNamespace, Network};
use crate::{Hosts, Part, RouteKind, Traffic};

const MS: fn(u64) -> Duration = Duration::from_millis;
/// Maximum time to the end of a run.
const TIMEOUT: Duration = Duration::from_secs(60);

/// As fast as possible.
const FLOOD: Traffic =
    Traffic { count: 400_000, size: 64, pause: Duration::ZERO, slow: Duration::ZERO };
/// A message each millisecond.
const PACED: Traffic =
    Traffic { count: 1_500, size: 64, pause: Duration::from_millis(1), slow: Duration::ZERO };
/// Long silence between messages.
const IDLE: Traffic =
    Traffic { count: 8, size: 64, pause: Duration::from_millis(500), slow: Duration::ZERO };
const RECORDS_16_MIB: Traffic =
    Traffic { count: 12, size: (16 << 20) - 1024, pause: Duration::ZERO, slow: Duration::ZERO };
const SLOW_OWNER: Traffic =
    Traffic { count: 2_000, size: 4096, pause: Duration::ZERO, slow: Duration::from_micros(500) };

/// A name, the route between the gateways, the traffic, and the fault.
type Run = (&'static str, RouteKind, Traffic, fn(&mut Hosts) -> String);

/// All runs. Each returns what it found, beyond the books.
const RUNS: &[Run] = &[
    ("no fault, flood", RouteKind::Router, FLOOD, |_| String::new()),
    ("no fault, direct", RouteKind::Direct, FLOOD, |_| String::new()),
    ("both gateways dial", RouteKind::Both, FLOOD, |_| String::new()),
    ("16 MiB records", RouteKind::Router, RECORDS_16_MIB, |_| String::new()),
    ("slow owner", RouteKind::Router, SLOW_OWNER, |_| String::new()),
    ("gateway A killed, flood", RouteKind::Router, FLOOD, |hosts| {
        killed(hosts, Part::GatewayA, 20_000)
    }),
    ("gateway A killed, paced", RouteKind::Router, PACED, |hosts| {
        killed(hosts, Part::GatewayA, 200)
    }),
    ("gateway B killed, flood", RouteKind::Router, FLOOD, |hosts| {
        killed(hosts, Part::GatewayB, 20_000)
    }),
    ("gateway B killed, paced", RouteKind::Router, PACED, |hosts| {
        killed(hosts, Part::GatewayB, 200)
    }),
    ("router killed, flood", RouteKind::Router, FLOOD, |hosts| killed(hosts, Part::Router, 20_000)),
    ("router killed, paced", RouteKind::Router, PACED, |hosts| killed(hosts, Part::Router, 200)),
    ("sender killed, flood", RouteKind::Router, FLOOD, sender_killed),
    ("owner killed, flood", RouteKind::Router, FLOOD, |hosts| owner_killed(hosts, 20_000)),
    ("owner killed, paced", RouteKind::Router, PACED, |hosts| owner_killed(hosts, 200)),
    ("owner killed in a partition", RouteKind::Router, PACED, owner_killed_in_partition),
    ("owner stopped 2 s", RouteKind::Router, PACED, |hosts| stopped(hosts, Part::Receiver, 2000)),
    ("gateway A stopped 0.5 s", RouteKind::Router, PACED, |hosts| {
        stopped(hosts, Part::GatewayA, 500)
    }),
    ("gateway A stopped 3 s", RouteKind::Router, FLOOD, |hosts| {
        stopped(hosts, Part::GatewayA, 3000)
    }),
    ("gateway B stopped 0.5 s", RouteKind::Router, PACED, |hosts| {
        stopped(hosts, Part::GatewayB, 500)
    }),
    ("gateway B stopped 3 s", RouteKind::Router, FLOOD, |hosts| {
        stopped(hosts, Part::GatewayB, 3000)
    }),
    ("router stopped 0.5 s", RouteKind::Router, PACED, |hosts| stopped(hosts, Part::Router, 500)),
    ("router stopped 3 s", RouteKind::Router, FLOOD, |hosts| stopped(hosts, Part::Router, 3000)),
    ("link down 0.5 s, idle", RouteKind::Router, IDLE, |hosts| link_down(hosts, 2, 500)),
    ("link down 0.5 s, paced", RouteKind::Router, PACED, |hosts| link_down(hosts, 200, 500)),
    ("link down 0.5 s, flood", RouteKind::Router, FLOOD, |hosts| link_down(hosts, 20_000, 500)),
    ("link down 3 s, idle", RouteKind::Router, IDLE, |hosts| link_down(hosts, 2, 3000)),
    ("link down 3 s, paced", RouteKind::Router, PACED, |hosts| link_down(hosts, 200, 3000)),
    ("link down 3 s, flood", RouteKind::Router, FLOOD, |hosts| link_down(hosts, 20_000, 3000)),
    ("link down 3 s, direct", RouteKind::Direct, FLOOD, |hosts| link_down(hosts, 20_000, 3000)),
    ("one way lost 3 s, direct", RouteKind::Direct, PACED, one_way),
    ("delay 20 ms, loss 1 %", RouteKind::Direct, PACED, netem),
    ("100 cuts and heals", RouteKind::Direct, PACED_LONG, cycles),
];

const PACED_LONG: Traffic = Traffic { count: 25_000, ..PACED };

fn killed(hosts: &mut Hosts, part: Part, after: u64) -> String {
    hosts.until_received(after);
    hosts.replace(part, MS(300));
    String::new()
}

fn sender_killed(hosts: &mut Hosts) -> String {
    hosts.until_received(20_000);
    hosts.kill(Part::Sender);
    std::thread::sleep(MS(1500));
    format!("{}; {}", hosts.settle_without_sender(), hosts.check_usage())
}

fn owner_killed(hosts: &mut Hosts, after: u64) -> String {
    hosts.until_received(after);
    let killed = now_ms();
    hosts.kill(Part::Receiver);
    let report = hosts.report(TIMEOUT);
    let notice = report.ended_ms.saturating_sub(killed);
    assert!(report.errno != 0, "the sender was not notified; {}", hosts.state());
    format!("notified after {notice} ms")
}

fn owner_killed_in_partition(hosts: &mut Hosts) -> String {
    hosts.until_received(200);
    let cut = now_ms();
    hosts.network.set_link(false);
    std::thread::sleep(MS(300));
    hosts.kill(Part::Receiver);
    hosts.until_sender_suspects();
    let healed = now_ms();
    hosts.network.set_link(true);
    let report = hosts.report(TIMEOUT);
    assert!(report.errno != 0, "the sender was not notified; {}", hosts.state());
    assert!(report.ended_ms >= healed, "the partition was taken for a death");
    format!(
        "suspected after {} ms, notified {} ms after healing",
        report.suspected_ms.saturating_sub(cut),
        report.ended_ms.saturating_sub(healed)
    )
}

fn stopped(hosts: &mut Hosts, part: Part, ms: u64) -> String {
    hosts.until_received(200);
    hosts.pause(part, MS(ms));
    String::new()
}

fn link_down(hosts: &mut Hosts, after: u64, ms: u64) -> String {
    hosts.until_received(after);
    let cut = now_ms();
    hosts.network.set_link(false);
    std::thread::sleep(MS(ms));
    let is_long = ms > 2000;
    if is_long {
        hosts.until_sender_suspects();
    }
    hosts.network.set_link(true);
    let report = hosts.report(TIMEOUT);
    if !is_long {
        return String::new();
    }
    format!("suspected after {} ms", report.suspected_ms.saturating_sub(cut))
}

fn one_way(hosts: &mut Hosts) -> String {
    hosts.until_received(200);
    let cut = now_ms();
    hosts.network.set_blackhole(true);
    std::thread::sleep(MS(3000));
    hosts.until_sender_suspects();
    hosts.network.set_blackhole(false);
    let report = hosts.report(TIMEOUT);
    format!("suspected after {} ms", report.suspected_ms.saturating_sub(cut))
}

fn netem(hosts: &mut Hosts) -> String {
    let rule = ["qdisc", "add", "dev", "to-b", "root", "netem", "delay", "20ms", "loss", "1%"];
    match hosts.network.run(HostNamespace::Router, "tc", &rule) {
        Ok(()) => "netem".into(),
        // Some kernels are built without netem. The carrier in memory delays and loses frames, too.
        Err(reason) => format!("{SKIPPED}{reason}"),
    }
}

const SKIPPED: &str = "skipped: ";

/// Cuts and heals the link. Every 20th cut lasts longer than a lease: the gateway suspects its
/// peer, and connects again.
fn cycles(hosts: &mut Hosts) -> String {
    hosts.until_received(200);
    let mut reconnected = 0;
    for cycle in 1..=100 {
        let before = hosts.connections();
        hosts.network.set_link(false);
        if cycle % 20 == 0 {
            std::thread::sleep(MS(1500));
            hosts.until("gateway A suspects its peer", Hosts::is_suspected);
            hosts.until_sender_suspects();
            hosts.network.set_link(true);
            hosts.until("gateway A has a new connection", |hosts| {
                let now = hosts.connections();
                !now.is_empty() && now.iter().all(|one| !before.contains(one))
            });
            hosts.until("gateway A hears its peer again", |hosts| !hosts.is_suspected());
            reconnected += 1;
        } else {
            std::thread::sleep(MS(30));
            hosts.network.set_link(true);
            std::thread::sleep(MS(60));
        }
    }
    format!("suspected and connected again {reconnected} times")
}

/// Runs everything whose name contains one of the words, or everything.
pub(crate) fn run(words: &[&str]) {
    let wanted: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let (mut passed, mut failed) = (0, 0);
    for (name, route, traffic, fault) in RUNS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(**word)) {
            continue;
        }
        let network = match Network::new() {
            Ok(network) => network,
            Err(reason) => {
                println!("{SKIPPED}{reason}");
                return;
            }
        };
        let began = std::time::Instant::now();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut hosts = Hosts::start(network, *route, *traffic);
            let found = fault(&mut hosts);
            if name.starts_with("sender killed") {
                return found;
            }
            let report = hosts.report(TIMEOUT);
            let books = format!("{}; {}", hosts.settle(&report), hosts.check_usage());
            match found {
                found if found.starts_with(SKIPPED) => found,
                found if found.is_empty() => books,
                found => format!("{books}; {found}"),
            }
        }));
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(found) if found.starts_with(SKIPPED) => println!("{name:28} {found}"),
            Ok(found) => {
                passed += 1;
                println!("{name:28} ok      {seconds:5.1} s  {found}");
            }
            Err(_) => {
                failed += 1;
                println!("{name:28} FAILED  {seconds:5.1} s");
            }
        }
    }
    println!("hosts: {passed} passed, {failed} failed");
    assert!(failed == 0, "{failed} runs failed");
}

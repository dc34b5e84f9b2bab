//! Processes that are killed under traffic, at random moments: gateways, owners and both (P3, P4).

use std::thread;
use std::time::Duration;

use crate::hosts::SeededNumbers;
use crate::hosts::gateways::Host;
use crate::hosts::program::{Program, SenderTask};
use crate::starts::Hosts;

/// Lengths of messages and pauses between them: paced, flooded, and records of several frames.
const TRAFFIC: [(usize, u64); 3] = [(64, 50), (1000, 0), (300_000, 0)];

fn start_sender(hosts: &Hosts, id: usize, on_death: u8) -> Program {
    let (length, pause_us) = TRAFFIC[id];
    // What is in the lanes at the end has to pass on a busy machine, too.
    let task =
        SenderTask { lane_cap: Some(4 << 20), on_death, ..hosts.sender(id as u64, u64::MAX) };
    let sender = SenderTask { length, pause_us, ..task }.start();
    // A lane that no gateway has accepted ends with that gateway, like a local lane.
    hosts.wait_until_received(id as u64);
    sender
}

/// Checks that all messages were received, in order except for repetitions. Returns the number of
/// repetitions.
fn check_received(hosts: &Hosts, id: usize, sent: u64) -> usize {
    let received = hosts.received(id as u64);
    let mut next = 0;
    for number in &received {
        assert!(*number <= next, "message {number} after {} ones", next);
        next = next.max(number + 1);
    }
    assert_eq!(next, sent, "messages are lost");
    received.len() - sent as usize
}

/// Sends to an owner while `kill` is called with a random number, `rounds` times. Returns the
/// numbers of repetitions.
fn run(rounds: u32, on_death: u8, mut kill: impl FnMut(&mut KilledHosts, u64)) -> Vec<usize> {
    let hosts = Hosts::new();
    let owner = hosts.owner().start();
    let mut hosts = KilledHosts { hosts, owner };
    let mut senders: Vec<Program> =
        (0..TRAFFIC.len()).map(|id| start_sender(&hosts.hosts, id, on_death)).collect();
    let mut random = SeededNumbers(0x1234_5678 + u64::from(rounds));
    for _ in 0..rounds {
        thread::sleep(Duration::from_millis(random.below(120)));
        kill(&mut hosts, random.below(1 << 32));
    }
    senders.iter_mut().for_each(Program::ask_to_end);
    let mut repeated = Vec::new();
    for (id, sender) in senders.iter().enumerate() {
        let report = sender.report();
        if report.acked != report.sent {
            println!("{:#?}", [Host::A, Host::B].map(|host| hosts.hosts.route.status(host)));
        }
        assert_eq!((&report.error, report.acked), (&None, report.sent), "sender {id}");
        repeated.push(check_received(&hosts.hosts, id, report.sent));
        println!("sender {id}: {} sent, {} repeated", report.sent, repeated[id]);
    }
    hosts.owner.finish();
    repeated
}

struct KilledHosts {
    hosts: Hosts,
    owner: Program,
}

impl KilledHosts {
    fn kill_gateway(&mut self, host: Host) {
        self.hosts.route.kill(host);
        self.hosts.route.restart(host);
    }

    fn kill_owner(&mut self) {
        self.owner.kill();
        self.owner = self.hosts.owner().start();
    }
}

#[test]
fn killed_sending_gateway_loses_and_repeats_nothing() {
    alone!();
    let repeated = run(6, 0, |hosts, _| hosts.kill_gateway(Host::A));
    assert_eq!(repeated, [0; 3]);
}

#[test]
fn killed_receiving_gateway_loses_nothing() {
    alone!();
    run(6, 0, |hosts, _| hosts.kill_gateway(Host::B));
}

#[test]
fn kills_of_gateways_and_owner_lose_nothing() {
    alone!();
    run(10, 1, kill_any);
}

#[test]
#[ignore = "takes long: 40 s"]
fn many_kills_of_gateways_and_owner_lose_nothing() {
    alone!();
    run(120, 1, kill_any);
}

fn kill_any(hosts: &mut KilledHosts, random: u64) {
    match random % 6 {
        0 | 1 => hosts.kill_gateway(Host::A),
        2 => hosts.kill_gateway(Host::B),
        3 => hosts.kill_owner(),
        kind => {
            hosts.hosts.route.kill(Host::B);
            if kind == 5 {
                hosts.owner.kill();
            }
            hosts.kill_gateway(Host::A);
            hosts.hosts.route.restart(Host::B);
            if kind == 5 {
                hosts.owner = hosts.hosts.owner().start();
            }
        }
    }
}

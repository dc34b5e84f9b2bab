//! Processes that are killed under traffic, at random moments: gateways, owners and both (P3, P4).

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::hosts::gateways::{Host, TcpGateways};
use crate::hosts::program::{OwnerTask, Program, Role, SenderTask, empty_log, read_log};
use crate::hosts::{SeededNumbers, until};

/// Lengths of messages and pauses between them: paced, flooded, and records of several frames.
const TRAFFIC: [(usize, u64); 3] = [(64, 50), (1000, 0), (300_000, 0)];

fn start_owner(folder: &Path) -> Program {
    let task = OwnerTask::new(&folder.join("jobs"), &folder.join("received"));
    let owner = Program::start(&Role::Owner(task));
    owner.wait_for("ready");
    owner
}

fn start_sender(folder: &Path, id: usize, on_death: u8) -> Program {
    let (length, pause_us) = TRAFFIC[id];
    let task = SenderTask::new(&folder.join("B-jobs"), id as u64, u64::MAX);
    // What is in the lanes at the end has to pass on a busy machine, too.
    let task = SenderTask { length, pause_us, on_death, lane_cap: Some(4 << 20), ..task };
    let sender = Program::start(&Role::Sender(task));
    // A lane that no gateway has accepted ends with that gateway, like a local lane.
    until("a message arrives", || !read_log(&folder.join("received"), id as u64).is_empty());
    sender
}

/// Checks that all messages were received, in order except for repetitions. Returns the number of
/// repetitions.
fn check_received(folder: &Path, id: usize, sent: u64) -> usize {
    let received = read_log(&folder.join("received"), id as u64);
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
fn run(rounds: u32, on_death: u8, mut kill: impl FnMut(&mut Hosts, u64)) -> Vec<usize> {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    empty_log(folder);
    let gateways = TcpGateways::start(folder);
    let owner = start_owner(folder);
    let mut hosts = Hosts { folder, gateways, owner };
    let mut senders: Vec<Program> =
        (0..TRAFFIC.len()).map(|id| start_sender(folder, id, on_death)).collect();
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
            for host in [Host::A, Host::B] {
                println!("{:#?}", hosts.gateways.status(host));
            }
        }
        assert_eq!((&report.error, report.acked), (&None, report.sent), "sender {id}");
        repeated.push(check_received(folder, id, report.sent));
        println!("sender {id}: {} sent, {} repeated", report.sent, repeated[id]);
    }
    hosts.owner.finish();
    repeated
}

struct Hosts<'a> {
    folder: &'a Path,
    gateways: TcpGateways,
    owner: Program,
}

impl Hosts<'_> {
    fn kill_gateway(&mut self, host: Host) {
        self.gateways.kill(host);
        self.gateways.restart(host);
    }

    fn kill_owner(&mut self) {
        self.owner.kill();
        self.owner = start_owner(self.folder);
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

fn kill_any(hosts: &mut Hosts<'_>, random: u64) {
    match random % 6 {
        0 | 1 => hosts.kill_gateway(Host::A),
        2 => hosts.kill_gateway(Host::B),
        3 => hosts.kill_owner(),
        4 => {
            hosts.gateways.kill(Host::A);
            hosts.gateways.kill(Host::B);
            hosts.gateways.restart(Host::A);
            hosts.gateways.restart(Host::B);
        }
        _ => {
            hosts.gateways.kill(Host::B);
            hosts.owner.kill();
            hosts.kill_gateway(Host::A);
            hosts.gateways.restart(Host::B);
            hosts.owner = start_owner(hosts.folder);
        }
    }
}

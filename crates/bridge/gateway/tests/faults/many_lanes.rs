//! Gateways, as processes on TCP, with 1,000 lanes, and with owners that do not receive.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tontine::mailbox::{Mailbox, Options, Sender};
use tontine_gateway::memory::Faults;
use tontine_gateway::status::LaneDirection;

use crate::hosts::gateways::{Host, MemoryGateways, TcpGateways, configs};
use crate::hosts::program::{OwnerTask, Program, Role, SenderTask, empty_log};
use crate::hosts::{resources, until};

const LANES: usize = 1000;
/// Maximum resident memory of a gateway with 1,000 lanes.
const MAX_MEMORY: u64 = 64 << 20;
/// Maximum share of a processor that an idle gateway takes. It needs about 0.01; one that turns
/// without a reason takes all it gets.
const MAX_SHARE: f64 = 0.2;
/// Maximum number of turns of an idle gateway in a second. It needs about 25.
const MAX_TURNS_A_SECOND: f64 = 250.0;

/// Starts a process with this number of senders, which have sent `count` messages each.
fn start_senders(folder: &Path, senders: usize, count: u64) -> Program {
    let role = Role::Senders(folder.join("B-jobs"), senders as u64, count);
    let senders = Program::start(&role);
    senders.wait_for("acked");
    senders
}

fn idle_lanes(idle: Duration, measure: Duration) {
    let folder = tempfile::tempdir().expect("a folder");
    let gateways = TcpGateways::start(folder.path());
    let owner = OwnerTask::new(&folder.path().join("jobs"), &empty_log(folder.path())).start();
    let began = Instant::now();
    let senders = start_senders(folder.path(), LANES, 10);
    println!("{LANES} lanes, 10 messages each, after {:?}", began.elapsed());
    for host in [Host::A, Host::B] {
        let lanes = gateways.status(host).lanes;
        let direction = if host == Host::A { LaneDirection::Import } else { LaneDirection::Export };
        assert_eq!(lanes.iter().filter(|lane| lane.direction == direction).count(), LANES);
        let (all, private) = resources::memory(gateways.pid(host));
        let descriptors = resources::descriptors(gateways.pid(host));
        println!(
            "{host:?}: {} KiB resident, {} KiB of it private, {descriptors} descriptors",
            all >> 10,
            private >> 10
        );
        assert!(all <= MAX_MEMORY, "{host:?}: {all} bytes");
    }
    // Idle lanes return their memory first.
    thread::sleep(idle);
    let time = || [Host::A, Host::B].map(|host| resources::processor_time(gateways.pid(host)));
    let (began, before) = (Instant::now(), time());
    thread::sleep(measure);
    let (after, elapsed) = (time(), began.elapsed());
    for (at, host) in [Host::A, Host::B].into_iter().enumerate() {
        let used = after[at] - before[at];
        let share = used.as_secs_f64() / elapsed.as_secs_f64();
        println!(
            "{host:?}: idle: {used:?} of processor time in {elapsed:?}: {:.2} %",
            share * 100.0
        );
        assert!(share <= MAX_SHARE, "{host:?} uses {share} of a processor while idle");
    }
    drop(senders);
    until("the lanes are forgotten", || gateways.have_lanes(0));
    let left = resources::descriptors(gateways.pid(Host::A));
    assert!(left < 40, "{left} descriptors");
    owner.finish();
}

#[test]
fn thousand_idle_lanes_take_little_memory_and_time() {
    alone!();
    idle_lanes(Duration::from_millis(200), Duration::from_millis(500));
}

#[test]
#[ignore = "takes long: 15 s"]
fn thousand_idle_lanes_take_little_time_over_ten_seconds() {
    alone!();
    idle_lanes(Duration::from_secs(1), Duration::from_secs(10));
}

#[test]
fn memory_of_gateways_is_bounded_while_owner_is_idle() {
    alone!();
    let folder = tempfile::tempdir().expect("a folder");
    let gateways = TcpGateways::start(folder.path());
    let owner = OwnerTask::new(&folder.path().join("jobs"), &empty_log(folder.path()));
    let mut owner = OwnerTask { limit: 1, ..owner }.start();
    let start = |id| {
        let task = SenderTask::new(&folder.path().join("B-jobs"), id, u64::MAX);
        SenderTask { length: 4000, waits: false, ..task }.start()
    };
    let mut senders: Vec<Program> = (0..3).map(start).collect();
    for sender in &senders {
        sender.wait_for("full");
    }
    for host in [Host::A, Host::B] {
        let (all, private) = resources::memory(gateways.pid(host));
        println!("{host:?}: {} KiB resident, {} KiB private", all >> 10, private >> 10);
        assert!(private < 48 << 20, "{host:?}: {private} bytes");
    }
    senders.iter_mut().for_each(Program::ask_to_end);
    for sender in &senders {
        let sent = sender.report().sent * 4008;
        println!("{sent} bytes in a lane of 64 MiB");
        assert!(sent < 65 << 20);
    }
    owner.kill();
}

/// The next record does not fit into the bytes that the other gateway has left for the lane.
#[test]
fn gateway_sleeps_while_no_further_record_fits() {
    alone!();
    let folder = tempfile::tempdir().expect("a folder");
    let (a, mut b) = configs(folder.path(), None);
    b.lane_cap = Some(1 << 20);
    let gateways = MemoryGateways::with_configs(&a, &b, Faults::default());
    let mut mailbox = Mailbox::bind(folder.path().join("jobs")).expect("binds");
    // Records of 24 bytes, which begin at three different remainders: in one lane 8 bytes are left,
    // which is less than a frame begins a record with.
    let connect = |first| {
        let path = folder.path().join("B-jobs");
        let options = Options::new().lane_cap(1 << 20);
        let mut sender = options.connect(path).expect("the import is bound");
        sender.send(&vec![7; first]).expect("sent");
        sender
    };
    let mut senders = [16, 24, 32].map(connect);
    let _ = mailbox.recv().expect("the first message");
    // Until all lanes are full, at both ends: then the gateway does not take anything.
    thread::scope(|scope| {
        for sender in &mut senders {
            let full = Duration::from_millis(400);
            scope.spawn(move || while sender.send_timeout(&[7; 16], full).is_ok() {});
        }
    });
    let (began, before) = (Instant::now(), gateways.a.turns());
    thread::sleep(Duration::from_millis(500));
    let turns = gateways.a.turns() - before;
    let a_second = turns as f64 / began.elapsed().as_secs_f64();
    println!("{a_second:.0} turns a second");
    assert!(a_second < MAX_TURNS_A_SECOND, "{turns} turns, although nothing can be sent");
}

/// The last frame of a lane is lost, so only the receiving gateway knows it.
#[test]
#[ignore = "takes long: 2 minutes"]
fn lane_whose_end_was_lost_is_forgotten() {
    alone!();
    let folder = tempfile::tempdir().expect("a folder");
    let gateways = MemoryGateways::start(folder.path(), Faults::default());
    let mut mailbox = Mailbox::bind(folder.path().join("jobs")).expect("binds");
    let descriptors = || resources::descriptors(std::process::id());
    let before = descriptors();
    let mut sender = Sender::connect(folder.path().join("B-jobs")).expect("the import is bound");
    sender.send(b"one").expect("sent");
    let _ = mailbox.recv().expect("received");
    mailbox.ack();
    sender.wait_acked(Some(Duration::from_secs(10))).expect("acknowledged");
    gateways.switch.cut([true; 2]);
    let before_end = gateways.a.turns();
    drop(sender);
    // Ten turns take half a second if nothing happens.
    until("the gateway has sent the end", || gateways.a.turns() > before_end + 10);
    gateways.switch.cut([false; 2]);
    assert!(descriptors() > before, "the end is lost");
    let began = Instant::now();
    while descriptors() > before {
        assert!(began.elapsed() < Duration::from_secs(300), "the lane is left");
        let _ = mailbox.recv_timeout(Duration::from_millis(100));
    }
    println!("forgotten after {:?}", began.elapsed());
}

//! Lanes that begin or end while the other end is not ready: owners that are missing or do not
//! receive, hosts that are silent, senders that end early, and gateways that lack descriptors.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, Uid};
use tempfile::TempDir;
use tontine_remote::status::LaneState;

use crate::hosts::gateways::{Host, TcpGateways, own_address};
use crate::hosts::program::{OwnerTask, Program, Role, SenderTask, empty_log, read_log};
use crate::hosts::until;

fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    empty_log(folder.path());
    folder
}

fn owner(folder: &Path) -> OwnerTask {
    OwnerTask::new(&folder.join("jobs"), &folder.join("received"))
}

fn start_owner(task: OwnerTask) -> Program {
    let owner = Program::start(&Role::Owner(task));
    owner.wait_for("ready");
    owner
}

fn sender(folder: &Path, count: u64) -> SenderTask {
    SenderTask::new(&folder.join("B-jobs"), 1, count)
}

fn received(folder: &Path) -> Vec<u64> {
    read_log(&folder.join("received"), 1)
}

#[test]
fn lane_to_missing_mailbox_is_refused_and_nothing_leaves() {
    alone!();
    let folder = folder();
    let _gateways = TcpGateways::start(folder.path());
    let report = Program::start(&Role::Sender(sender(folder.path(), 10))).report();
    println!("{}", report.summary());
    assert_eq!(report.errno, libc::ECONNREFUSED, "{}", report.summary());
    report.check();
    assert_eq!((report.in_doubt.len(), report.unsent.len() as u64), (0, report.sent));
}

#[test]
fn waiting_lane_to_missing_mailbox_begins_with_its_owner() {
    alone!();
    let folder = folder();
    let _gateways = TcpGateways::start(folder.path());
    let task = SenderTask { on_death: 1, ..sender(folder.path(), 10) };
    let sender = Program::start(&Role::Sender(task));
    sender.wait_for("sent");
    // In this time the gateways repeat what they offer.
    thread::sleep(Duration::from_millis(500));
    let owner = start_owner(owner(folder.path()));
    let report = sender.report();
    assert_eq!((&report.error, report.acked), (&None, 10));
    assert_eq!(received(folder.path()), Vec::from_iter(0..10));
    owner.finish();
}

#[test]
fn lane_to_unknown_export_is_refused() {
    alone!();
    let folder = folder();
    let mut gateways = TcpGateways::start(folder.path());
    gateways.kill(Host::B);
    let (address, dir) = (gateways.address, folder.path().display());
    let config = format!(
        "name = \"B\"\nstatus = \"{dir}/b.status\"\nlisten = \"{address}\"\n[peers.A]\n[exports]\n\
         other = \"{dir}/jobs\"\n"
    );
    gateways.configure(Host::B, &config);
    gateways.restart(Host::B);
    let task = SenderTask { on_death: 2, ..sender(folder.path(), 10) };
    let report = Program::start(&Role::Sender(task)).report();
    assert_eq!(report.errno, libc::ECONNREFUSED, "{}", report.summary());
    report.check();
}

/// Regression: a stranger who bound the name of an exported mailbox while its owner was away
/// received the messages.
#[test]
fn owner_of_another_user_is_refused_unless_configured() {
    alone!();
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    const STRANGER: u32 = 3002;
    let folder = folder();
    let mut gateways = TcpGateways::start(folder.path());
    let name = format!("@tontine-stranger-{}", std::process::id());
    let mut configure = |owners: &str| {
        let (address, dir) = (gateways.address, folder.path().display());
        let config = format!(
            "name = \"B\"\nstatus = \"{dir}/b.status\"\nlisten = \"{address}\"\n{owners}\n\
             [peers.A]\n[exports]\njobs = \"{name}\"\n"
        );
        gateways.kill(Host::B);
        gateways.configure(Host::B, &config);
        gateways.restart(Host::B);
    };
    thread::scope(|scope| {
        let (done, until_done) = std::sync::mpsc::channel::<()>();
        let (bound, until_bound) = std::sync::mpsc::channel();
        let name = &name;
        let stranger = scope.spawn(move || {
            // The call changes only the user of this thread.
            let (root, user) = (Uid::ROOT, Uid::from_raw(STRANGER));
            rustix::thread::set_thread_res_uid(root, user, root).expect("another user");
            let options = tontine::mailbox::Options::new().allow_uid(0);
            let mut mailbox = options.bind(name.as_str()).expect("binds");
            bound.send(()).expect("notified");
            let mut received = 0;
            while until_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                received += u64::from(mailbox.recv_timeout(Duration::from_millis(20)).is_ok());
            }
            received
        });
        until_bound.recv().expect("bound");
        configure("");
        let report = Program::start(&Role::Sender(sender(folder.path(), 10))).report();
        assert_eq!(report.errno, libc::EACCES, "{}", report.summary());
        assert_eq!((report.in_doubt.len(), report.unsent.len() as u64), (0, report.sent));
        configure(&format!("owners = [{STRANGER}]"));
        let report = Program::start(&Role::Sender(sender(folder.path(), 10))).report();
        assert_eq!((&report.error, report.acked), (&None, 10), "{}", report.summary());
        drop(done);
        assert_eq!(stranger.join().expect("no panic"), 10);
    });
}

#[test]
fn messages_for_owner_that_never_accepts_come_back() {
    alone!();
    let folder = folder();
    let gateways = TcpGateways::start(folder.path());
    let mut owner = start_owner(OwnerTask { limit: 0, ..owner(folder.path()) });
    let task = SenderTask { length: 1000, ..sender(folder.path(), 100) };
    let sender = Program::start(&Role::Sender(task));
    sender.wait_for("sent");
    // The owner ends while its gateway connects to it, which takes 50 ms.
    thread::sleep(Duration::from_millis(300));
    owner.kill();
    let report = sender.report();
    println!("{}", report.summary());
    assert_eq!(report.errno, libc::EOWNERDEAD, "{}", report.summary());
    report.check();
    assert_eq!(report.acked, 0);
    until("the gateway forgets the lane of a sender that was notified and has ended", || {
        gateways.status(Host::A).lanes.is_empty()
    });
}

#[test]
fn silent_host_is_unreachable_after_timeout() {
    alone!();
    let folder = folder();
    // The sender sends for this long while the other host is suspected.
    let gateways = TcpGateways::start_with(folder.path(), "", "unreachable_after = \"1s\"");
    let owner = start_owner(owner(folder.path()));
    let task = SenderTask { pause_us: 1000, ..sender(folder.path(), u64::MAX) };
    let sender_one = Program::start(&Role::Sender(task));
    until("a message arrives", || received(folder.path()).len() > 20);
    gateways.signal(Host::B, Signal::STOP);
    let report = sender_one.report();
    gateways.signal(Host::B, Signal::CONT);
    println!("{}", report.summary());
    assert_eq!(report.errno, libc::EHOSTUNREACH, "{}", report.summary());
    report.check();
    assert!(!report.unsent.is_empty(), "sent during the silence");
    drop(sender_one);
    // What is unsent never arrives; what is in doubt may.
    let known = report.acked + report.in_doubt.len() as u64;
    gateways.wait_until_connected();
    until("the lane is settled", || gateways.status(Host::B).lanes.is_empty());
    let arrived = received(folder.path());
    assert_eq!(arrived, Vec::from_iter(0..arrived.len() as u64));
    assert!((report.acked..=known).contains(&(arrived.len() as u64)), "{}", arrived.len());
    let task = SenderTask { id: 2, ..sender(folder.path(), 10) };
    assert_eq!(Program::start(&Role::Sender(task)).report().acked, 10);
    owner.finish();
}

#[test]
fn sender_that_ends_early_leaves_all_messages() {
    alone!();
    let folder = folder();
    let mut gateways = TcpGateways::start(folder.path());
    let owner = start_owner(owner(folder.path()));
    let task = SenderTask { length: 10_000, waits: false, ..sender(folder.path(), 2000) };
    let first = SenderTask { id: 7, ..sender(folder.path(), 1) };
    Program::start(&Role::Sender(first)).report();
    owner.signal(Signal::STOP);
    let sender = Program::start(&Role::Sender(task));
    sender.wait_for("sent");
    sender.finish();
    let state = |host: Host| gateways.status(host).lanes.first().map(|lane| lane.state);
    until("the sender's end is known", || state(Host::A) == Some(LaneState::Ending));
    owner.signal(Signal::CONT);
    until("all messages arrive", || received(folder.path()).len() == 2000);
    assert_eq!(received(folder.path()), Vec::from_iter(0..2000));
    until("both gateways forget the lane", || {
        [Host::A, Host::B].iter().all(|host| gateways.status(*host).lanes.is_empty())
    });
    gateways.kill(Host::A);
    owner.finish();
}

#[test]
fn gateways_that_dial_each_other_carry_both_directions() {
    alone!();
    let folder = folder();
    let mut gateways = TcpGateways::start(folder.path());
    let dir = folder.path().display();
    let addresses = [own_address(7451), own_address(7452)];
    for (host, own, other, at) in [(Host::A, "A", "B", 0), (Host::B, "B", "A", 1)] {
        gateways.kill(host);
        let config = format!(
            "name = \"{own}\"\nstatus = \"{dir}/{status}.status\"\nlisten = \"{}\"\n\
             [peers.{other}]\nconnect = \"{}\"\n[exports]\nx = \"{dir}/{own}-own\"\n\
             [imports]\n\"{other}/x\" = \"{dir}/{other}-x\"\n",
            addresses[at],
            addresses[1 - at],
            status = own.to_lowercase(),
        );
        gateways.configure(host, &config);
    }
    gateways.restart(Host::A);
    gateways.restart(Host::B);
    let mut owners = Vec::new();
    let mut senders = Vec::new();
    for (id, host) in ["A", "B"].iter().enumerate() {
        let path = folder.path().join(format!("{host}-own"));
        owners.push(start_owner(OwnerTask { path, ..owner(folder.path()) }));
        let path = folder.path().join(format!("{host}-x"));
        let task = SenderTask { id: id as u64, path, ..sender(folder.path(), u64::MAX) };
        let task = SenderTask { pause_us: 100, ..task };
        senders.push(Program::start(&Role::Sender(task)));
        let log = folder.path().join("received");
        until("a message arrives", || !read_log(&log, id as u64).is_empty());
    }
    for host in [Host::A, Host::B] {
        gateways.kill(host);
        gateways.restart(host);
        gateways.wait_until_connected();
    }
    senders.iter_mut().for_each(Program::ask_to_end);
    for sender in senders {
        let report = sender.report();
        assert_eq!((&report.error, report.acked), (&None, report.sent));
    }
    owners.into_iter().for_each(Program::finish);
}

/// A gateway needs three descriptors per lane.
fn lack_of_descriptors_ends(lacking: Host) {
    const SENDERS: usize = 40;
    let folder = folder();
    let mut gateways = TcpGateways::start(folder.path());
    gateways.kill(lacking);
    gateways.restart_with(lacking, Some(110));
    gateways.wait_until_connected();
    let owner = start_owner(owner(folder.path()));
    let start = |id| {
        let task = SenderTask { id: 100 + id as u64, on_death: 1, ..sender(folder.path(), 10) };
        Program::start(&Role::Sender(SenderTask { lingers: true, ..task }))
    };
    let mut senders: Vec<Program> = (0..SENDERS).map(start).collect();
    let log = folder.path().join("received");
    let arrived = || (0..SENDERS).filter(|id| read_log(&log, 100 + *id as u64).len() == 10).count();
    until("the lanes that fit are served", || arrived() >= 10);
    until("the log names the lack", || {
        let text = gateways.log(lacking);
        text.contains("descriptors") || text.contains("os error 24") || text.contains("EMFILE")
    });
    // The lanes that have ended make place for those that wait.
    until("all lanes are served", || {
        for sender in &mut senders {
            if sender.reports("acked", Duration::ZERO) {
                sender.ask_to_end();
            }
        }
        arrived() == SENDERS
    });
    println!("{}", gateways.log(lacking));
    assert!(gateways.log(lacking).lines().count() < 200, "the log is flooded");
    owner.finish();
}

#[test]
fn sending_gateway_recovers_from_lack_of_descriptors() {
    alone!();
    lack_of_descriptors_ends(Host::A);
}

#[test]
fn receiving_gateway_recovers_from_lack_of_descriptors() {
    alone!();
    lack_of_descriptors_ends(Host::B);
}

/// The receiving gateway forgets lanes that are not offered again for a minute; these are.
#[test]
#[ignore = "takes long: a minute"]
fn nothing_arrives_twice_a_minute_after_a_restart() {
    alone!();
    let folder = folder();
    let mut gateways = TcpGateways::start(folder.path());
    let owner = start_owner(OwnerTask { pause_us: 100, ..owner(folder.path()) });
    let task = SenderTask { waits: false, lingers: true, ..sender(folder.path(), 20_000) };
    let mut sender = Program::start(&Role::Sender(task));
    until("messages arrive", || received(folder.path()).len() > 10);
    owner.signal(Signal::STOP);
    sender.wait_for("sent");
    gateways.kill(Host::A);
    gateways.restart(Host::A);
    thread::sleep(Duration::from_secs(65));
    owner.signal(Signal::CONT);
    until("all messages arrive", || received(folder.path()).len() >= 20_000);
    thread::sleep(Duration::from_millis(500));
    sender.ask_to_end();
    let report = sender.report();
    assert_eq!(report.error, None, "{}", report.summary());
    assert_eq!(received(folder.path()), Vec::from_iter(0..20_000));
    owner.finish();
}

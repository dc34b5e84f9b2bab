//! Lanes that begin or end while the other end is not ready: owners that are missing or do not
//! receive, hosts that are silent, senders that end early, and gateways that lack descriptors.

use std::thread;
use std::time::Duration;

use rustix::process::{Signal, Uid};
use tontine_gateway::status::LaneState;

use crate::hosts::gateways::{Host, TcpGateways, own_address};
use crate::hosts::program::{OwnerTask, Program, SenderTask};
use crate::hosts::until;
use crate::route::Fixture;

/// Two gateways in processes, and the programs that use them.
pub(crate) type Hosts = Fixture<TcpGateways>;

#[test]
fn lane_to_missing_mailbox_is_refused_and_nothing_leaves() {
    alone!();
    let hosts = Hosts::new();
    let report = hosts.sender(1, 10).start().report();
    println!("{}", report.summary());
    assert_eq!(report.errno, libc::ECONNREFUSED, "{}", report.summary());
    report.check();
    assert_eq!((report.in_doubt.len(), report.unsent.len() as u64), (0, report.sent));
}

#[test]
fn waiting_lane_to_missing_mailbox_begins_with_its_owner() {
    alone!();
    let hosts = Hosts::new();
    let sender = SenderTask { on_death: 1, ..hosts.sender(1, 10) }.start();
    sender.wait_for("sent");
    // In this time the gateways repeat what they offer.
    thread::sleep(Duration::from_millis(500));
    let owner = hosts.owner().start();
    hosts.check_all_received(&sender.report());
    owner.finish();
}

#[test]
fn lane_to_unknown_export_is_refused() {
    alone!();
    let mut hosts = Hosts::new();
    hosts.route.reconfigure(Host::B, |config| config.replace("\njobs = ", "\nother = "));
    let report = SenderTask { on_death: 2, ..hosts.sender(1, 10) }.start().report();
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
    let mut hosts = Hosts::new();
    let name = format!("@tontine-stranger-{}", std::process::id());
    let path = hosts.owner().path.display().to_string();
    hosts.route.reconfigure(Host::B, |config| config.replace(&path, &name));
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
        let report = hosts.sender(1, 10).start().report();
        assert_eq!(report.errno, libc::EACCES, "{}", report.summary());
        assert_eq!((report.in_doubt.len(), report.unsent.len() as u64), (0, report.sent));
        hosts.route.reconfigure(Host::B, |config| format!("owners = [{STRANGER}]\n{config}"));
        let report = hosts.sender(1, 10).start().report();
        assert_eq!((&report.error, report.acked), (&None, 10), "{}", report.summary());
        drop(done);
        assert_eq!(stranger.join().expect("no panic"), 10);
    });
}

#[test]
fn messages_for_owner_that_never_accepts_come_back() {
    alone!();
    let hosts = Hosts::new();
    let mut owner = OwnerTask { limit: 0, ..hosts.owner() }.start();
    let sender = SenderTask { length: 1000, ..hosts.sender(1, 100) }.start();
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
        hosts.route.status(Host::A).lanes.is_empty()
    });
}

#[test]
fn silent_host_is_unreachable_after_timeout() {
    alone!();
    let mut hosts = Hosts::new();
    // The sender sends for this long while the other host is suspected.
    let (peer, timeout) = ("[peers.B]\n", "unreachable_after = \"1s\"\n");
    hosts.route.reconfigure(Host::A, |config| config.replace(peer, &format!("{peer}{timeout}")));
    let owner = hosts.owner().start();
    let sender_one = SenderTask { pause_us: 1000, ..hosts.sender(1, u64::MAX) }.start();
    until("a message arrives", || hosts.received(1).len() > 20);
    hosts.route.signal(Host::B, Signal::STOP);
    let report = sender_one.report();
    hosts.route.signal(Host::B, Signal::CONT);
    println!("{}", report.summary());
    assert_eq!(report.errno, libc::EHOSTUNREACH, "{}", report.summary());
    report.check();
    assert!(!report.unsent.is_empty(), "sent during the silence");
    drop(sender_one);
    // What is unsent never arrives; what is in doubt may.
    let known = report.acked + report.in_doubt.len() as u64;
    hosts.route.wait_until_connected();
    until("the lane is settled", || hosts.route.status(Host::B).lanes.is_empty());
    let arrived = hosts.received(1);
    assert_eq!(arrived, Vec::from_iter(0..arrived.len() as u64));
    assert!((report.acked..=known).contains(&(arrived.len() as u64)), "{}", arrived.len());
    assert_eq!(hosts.sender(2, 10).start().report().acked, 10);
    owner.finish();
}

#[test]
fn sender_that_ends_early_leaves_all_messages() {
    alone!();
    let mut hosts = Hosts::new();
    let owner = hosts.owner().start();
    hosts.sender(7, 1).start().report();
    owner.signal(Signal::STOP);
    let sender = SenderTask { length: 10_000, waits: false, ..hosts.sender(1, 2000) }.start();
    sender.wait_for("sent");
    sender.finish();
    let state = |host: Host| hosts.route.status(host).lanes.first().map(|lane| lane.state);
    until("the sender's end is known", || state(Host::A) == Some(LaneState::Ending));
    owner.signal(Signal::CONT);
    until("all messages arrive", || hosts.received(1).len() == 2000);
    assert_eq!(hosts.received(1), Vec::from_iter(0..2000));
    until("both gateways forget the lane", || hosts.route.have_lanes(0));
    hosts.route.kill(Host::A);
    owner.finish();
}

#[test]
fn gateways_that_dial_each_other_carry_both_directions() {
    alone!();
    let mut hosts = Hosts::new();
    let dir = hosts.path().display().to_string();
    let addresses = [own_address(7451), own_address(7452)];
    for (host, other, at) in [(Host::A, "B", 0), (Host::B, "A", 1)] {
        hosts.route.kill(host);
        let config = format!(
            "listen = \"{}\"\n[peers.{other}]\nconnect = \"{}\"\n[exports]\n\
             x = \"{dir}/{host:?}-own\"\n[imports]\n\"{other}/x\" = \"{dir}/{other}-x\"\n",
            addresses[at],
            addresses[1 - at],
        );
        hosts.route.configure(host, &config);
    }
    hosts.route.restart(Host::A);
    hosts.route.restart(Host::B);
    let mut owners = Vec::new();
    let mut senders = Vec::new();
    for (id, host) in ["A", "B"].iter().enumerate() {
        let path = hosts.path().join(format!("{host}-own"));
        owners.push(OwnerTask { path, ..hosts.owner() }.start());
        let path = hosts.path().join(format!("{host}-x"));
        let task = SenderTask { path, pause_us: 100, ..hosts.sender(id as u64, u64::MAX) };
        senders.push(task.start());
        hosts.wait_until_received(id as u64);
    }
    for host in [Host::A, Host::B] {
        hosts.route.kill(host);
        hosts.route.restart(host);
        hosts.route.wait_until_connected();
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
    const SENDERS: u64 = 40;
    let mut hosts = Hosts::new();
    hosts.route.kill(lacking);
    hosts.route.restart_with(lacking, Some(110));
    hosts.route.wait_until_connected();
    let owner = hosts.owner().start();
    let start = |id| SenderTask { on_death: 1, lingers: true, ..hosts.sender(id, 10) }.start();
    let mut senders: Vec<Program> = (0..SENDERS).map(start).collect();
    let arrived = || (0..SENDERS).filter(|id| hosts.received(*id).len() == 10).count() as u64;
    until("the lanes that fit are served", || arrived() >= 10);
    until("the log names the lack", || {
        let text = hosts.route.log(lacking);
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
    println!("{}", hosts.route.log(lacking));
    assert!(hosts.route.log(lacking).lines().count() < 200, "the log is flooded");
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
    let mut hosts = Hosts::new();
    let owner = OwnerTask { pause_us: 100, ..hosts.owner() }.start();
    let mut sender = SenderTask { waits: false, lingers: true, ..hosts.sender(1, 20_000) }.start();
    until("messages arrive", || hosts.received(1).len() > 10);
    owner.signal(Signal::STOP);
    sender.wait_for("sent");
    hosts.route.kill(Host::A);
    hosts.route.restart(Host::A);
    thread::sleep(Duration::from_secs(65));
    owner.signal(Signal::CONT);
    until("all messages arrive", || hosts.received(1).len() >= 20_000);
    thread::sleep(Duration::from_millis(500));
    sender.ask_to_end();
    let report = sender.report();
    assert_eq!(report.error, None, "{}", report.summary());
    assert_eq!(hosts.received(1), Vec::from_iter(0..20_000));
    owner.finish();
}

//! Runs gateways on two hosts, network namespaces with a router between them, and kills, stops or
//! cuts off what is in between. Each run checks what the sender and the receivers know at the end:
//!
//! - sent = acknowledged + in doubt + unsent, and everything acknowledged was received;
//! - nothing unsent was received;
//! - messages arrive in order, and twice only if the receiver or its gateway was killed;
//! - the sender learns of the receiver's death, and only then, in bounded time;
//! - the memory and the descriptors of each gateway have bounds.
//!
//! `cargo test --test hosts -- [NAME…]` runs those whose names contain an argument.

#[path = "../../../gateway/tests/hosts/mod.rs"]
mod hosts;
mod namespaces;
#[path = "../common/router.rs"]
mod router;
mod runs;
mod usage;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hosts::AMPLE;
use hosts::program::{OwnerTask, Program, SenderReport, SenderTask, logged, read_log};
use namespaces::{HOST_A, HOST_B, HostNamespace, Network, ROUTER_A, ROUTER_B};
use rustix::process::Signal;
use tontine_gateway::status::PeerState;
use usage::UsageRange;

const GATEWAY: &str = env!("CARGO_BIN_EXE_tontine-bridge-zenoh");
/// Maximum growth of a gateway's resident memory in bytes, besides its lane: the queues to and from
/// the peer (1 MiB and 4 MiB), and Zenoh's buffers. A restarted gateway may be measured from its
/// start.
const MAX_GROWTH: u64 = 12 << 20;
/// Maximum memory of a lane in bytes, which is its default cap.
const LANE_CAP: u64 = 64 << 20;
/// Bytes of a message in a lane in addition to its own, at most.
const RECORD_OVERHEAD: u64 = 16;
/// Maximum growth of the number of a gateway's descriptors: those of a second lane, and a
/// connection that replaces another.
const MAX_NEW_DESCRIPTORS: u64 = 8;

fn main() {
    if hosts::program::run_role() {
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["router", endpoint] => router::run(router::config(endpoint)),
        _ => runs::run(&words),
    }
}

/// The route on which the two gateways reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteKind {
    /// Through a router of Zenoh in the middle namespace.
    Router,
    /// Host A dials host B.
    Direct,
    /// Both dial.
    Both,
}

/// The traffic of the sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) count: u64,
    pub(crate) size: usize,
    /// Pause between two messages.
    pub(crate) pause: Duration,
    /// Pause of the receiver after each message.
    pub(crate) slow: Duration,
}

/// A process of the run.
struct Process {
    program: Program,
    /// Number of messages in the receivers' log when the process started.
    logged: u64,
    /// Resources of a gateway since then, from the first message.
    usage: Option<UsageRange>,
}

/// A part of the run that can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Sender,
    GatewayA,
    Router,
    GatewayB,
    Receiver,
}

/// Two hosts with gateways and programs.
pub(crate) struct Hosts {
    pub(crate) network: Network,
    route: RouteKind,
    traffic: Traffic,
    folder: tempfile::TempDir,
    running: Vec<(Part, Process)>,
    /// A receiver, or its gateway, was killed: messages in doubt may arrive again.
    repeats: bool,
    receiver_killed: bool,
    /// The sender has reported that its peer is suspected.
    suspects: bool,
    report: Option<SenderReport>,
    /// Resources of gateways that were killed.
    usage: Vec<(Part, UsageRange)>,
}

impl Hosts {
    pub(crate) fn start(network: Network, route: RouteKind, traffic: Traffic) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut hosts = Self {
            network,
            route,
            traffic,
            folder,
            running: Vec::new(),
            repeats: false,
            receiver_killed: false,
            suspects: false,
            report: None,
            usage: Vec::new(),
        };
        hosts.write_configs();
        if route == RouteKind::Router {
            hosts.restart(Part::Router);
        }
        for part in [Part::Receiver, Part::GatewayB, Part::GatewayA, Part::Sender] {
            hosts.restart(part);
        }
        hosts
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_configs(&self) {
        let file = |name: &str| self.path(name).display().to_string();
        let at = |key: &str, host: &str, on: bool| {
            if on { format!("{key} = \"{host}:7447\"\n") } else { String::new() }
        };
        let (dials, both) = (self.route != RouteKind::Router, self.route == RouteKind::Both);
        let (listen_a, connect_a) = (at("listen", HOST_A, both), at("connect", HOST_B, dials));
        let (listen_b, connect_b) = (at("listen", HOST_B, dials), at("connect", HOST_A, both));
        let router = |address: &str| match self.route {
            RouteKind::Router => format!("[zenoh.routers]\nhub = \"{address}:7447\"\n"),
            _ => String::new(),
        };
        let a = format!(
            "name = \"a\"\nstatus = \"{}\"\n{listen_a}[peers.b]\n{connect_a}[imports]\n\
             \"b/jobs\" = \"{}\"\n{}",
            file("a.status"),
            file("b-jobs"),
            router(ROUTER_A)
        );
        let b = format!(
            "name = \"b\"\nstatus = \"{}\"\n{listen_b}[peers.a]\n{connect_b}[exports]\n\
             jobs = \"{}\"\n{}",
            file("b.status"),
            file("jobs"),
            router(ROUTER_B)
        );
        fs::write(self.path("a.toml"), a).expect("written");
        fs::write(self.path("b.toml"), b).expect("written");
    }

    /// Starts a part.
    pub(crate) fn restart(&mut self, part: Part) {
        let logged = self.logged();
        let Traffic { count, size, pause, slow } = self.traffic;
        let program = match part {
            Part::Sender => {
                let task = SenderTask::new(&self.path("b-jobs"), 1, count);
                let (length, pause_us) = (size, pause.as_micros() as u64);
                SenderTask { length, pause_us, completes: true, lingers: true, ..task }.start()
            }
            Part::Receiver => {
                let task = OwnerTask::new(&self.path("jobs"), &self.path("log"));
                OwnerTask { pause_us: slow.as_micros() as u64, ..task }.start()
            }
            Part::GatewayA | Part::GatewayB => {
                let (place, config) = match part {
                    Part::GatewayA => (HostNamespace::A, "a.toml"),
                    _ => (HostNamespace::B, "b.toml"),
                };
                let mut command = self.network.command(place, GATEWAY);
                command.arg("--config").arg(self.path(config));
                command.args(["--plaintext", "--log", "error"]);
                Program::spawn(command, None)
            }
            Part::Router => {
                let own = std::env::current_exe().expect("a path");
                let own = own.to_str().expect("UTF-8");
                let mut command = self.network.command(HostNamespace::Router, own);
                command.args(["router", "tcp/0.0.0.0:7447"]);
                Program::spawn(command, None)
            }
        };
        self.running.push((part, Process { program, logged, usage: None }));
    }

    pub(crate) fn kill(&mut self, part: Part) {
        self.sample();
        let killed = self.running.extract_if(.., |running| running.0 == part);
        self.usage.extend(killed.filter_map(|(part, process)| Some((part, process.usage?))));
        self.repeats |= matches!(part, Part::GatewayB | Part::Receiver);
        self.receiver_killed |= part == Part::Receiver;
    }

    /// Kills a part, and starts it again after a while.
    pub(crate) fn replace(&mut self, part: Part, after: Duration) {
        self.kill(part);
        std::thread::sleep(after);
        self.restart(part);
    }

    /// Stops a part for a while, with SIGSTOP.
    pub(crate) fn pause(&self, part: Part, time: Duration) {
        self.program(part).signal(Signal::STOP);
        std::thread::sleep(time);
        self.program(part).signal(Signal::CONT);
    }

    fn program(&self, part: Part) -> &Program {
        let process = self.running.iter().find(|running| running.0 == part);
        &process.expect("running").1.program
    }

    /// Returns the local addresses of gateway A's connections to host B.
    pub(crate) fn connections(&self) -> Vec<String> {
        usage::connections(self.program(Part::GatewayA).pid(), 7447)
    }

    /// Returns `true` while gateway A suspects its peer.
    pub(crate) fn is_suspected(&self) -> bool {
        let status = tontine_gateway::service::read_status(&self.path("a.status"));
        status.is_ok_and(|status| status.peers[0].suspected_for_ms.is_some())
    }

    /// Returns the number of messages that receivers have logged.
    fn logged(&self) -> u64 {
        logged(&self.path("log"))
    }

    /// Notes the resources of each gateway through which messages have passed. Messages that its
    /// predecessor has sent may still arrive, so a restarted gateway must also have heard its peer.
    fn sample(&mut self) {
        let logged = self.logged();
        let statuses = [self.path("a.status"), self.path("b.status")];
        for (part, process) in &mut self.running {
            let status = match part {
                Part::GatewayA => &statuses[0],
                Part::GatewayB => &statuses[1],
                _ => continue,
            };
            let is_connected = || {
                let status = tontine_gateway::service::read_status(status);
                status.is_ok_and(|status| status.peers[0].state == PeerState::Connected)
            };
            let is_measured = process.logged == 0 || process.usage.is_some();
            if logged > process.logged && (is_measured || is_connected()) {
                UsageRange::sample(&mut process.usage, process.program.pid());
            }
        }
    }

    /// Waits until a condition holds.
    pub(crate) fn until(&mut self, expected: &str, condition: impl Fn(&Self) -> bool) {
        let end = Instant::now() + AMPLE;
        while !condition(self) {
            assert!(Instant::now() < end, "timed out: {expected}; {}", self.state());
            self.sample();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a number of messages has been received.
    pub(crate) fn until_received(&mut self, count: u64) {
        let has_received = |hosts: &Self| hosts.logged() >= count;
        self.until(&format!("{count} messages"), has_received);
    }

    /// Waits until the sender has seen that its peer is suspected.
    pub(crate) fn until_sender_suspects(&mut self) {
        if !std::mem::replace(&mut self.suspects, true) {
            let reports =
                |hosts: &Self| hosts.program(Part::Sender).reports("suspected", Duration::ZERO);
            self.until("the sender sees the suspicion", reports);
        }
    }

    /// Lets the sender end once it has sent everything, and returns its report.
    pub(crate) fn report(&mut self, timeout: Duration) -> SenderReport {
        for (_, process) in self.running.iter_mut().filter(|running| running.0 == Part::Sender) {
            process.program.ask_to_end();
        }
        let end = Instant::now() + timeout;
        while self.report.is_none() {
            assert!(Instant::now() < end, "the sender has not ended: {}", self.state());
            self.sample();
            self.report = self.program(Part::Sender).report_within(Duration::from_millis(5));
        }
        self.report.clone().expect("reported")
    }

    /// Checks that no gateway grew beyond the bounds since the beginning of its traffic. Returns
    /// the growth as text.
    pub(crate) fn check_usage(&mut self) -> String {
        self.sample();
        let Traffic { count, size, .. } = self.traffic;
        let max_resident = (count * (size as u64 + RECORD_OVERHEAD)).min(LANE_CAP) + MAX_GROWTH;
        let running = self.running.iter();
        let running = running.filter_map(|(part, process)| Some((*part, process.usage?)));
        let mut text = Vec::new();
        for (part, usage) in self.usage.iter().copied().chain(running) {
            let [resident, descriptors] = usage.growth();
            text.push(format!("{part:?} +{} MiB, +{descriptors} fds", resident.div_ceil(1 << 20)));
            assert!(resident <= max_resident, "{part:?} grew: {usage:?}");
            assert!(descriptors <= MAX_NEW_DESCRIPTORS, "{part:?} grew: {usage:?}");
        }
        assert!(text.len() >= 2, "a gateway was not measured: {text:?}");
        text.join(", ")
    }

    /// Describes what the receivers and the gateways know.
    pub(crate) fn state(&self) -> String {
        let status = |name: &str| tontine_gateway::service::read_status(&self.path(name));
        let (a, b) = (status("a.status"), status("b.status"));
        format!("{} messages received\nA: {a:#?}\nB: {b:#?}", self.logged())
    }

    /// Checks the books at the end of a run. Returns them as text.
    pub(crate) fn settle(&self, report: &SenderReport) -> String {
        let log = read_log(&self.path("log"), 1);
        // The lane is a queue: its first messages are acknowledged, the next ones are in doubt.
        report.check();
        let mut first = Vec::new();
        let mut seen = vec![false; report.sent as usize];
        for number in &log {
            if !std::mem::replace(&mut seen[*number as usize], true) {
                first.push(*number);
            }
        }
        assert!(first.is_sorted(), "messages arrived out of order");
        let lost = (0..report.acked).filter(|number| !seen[*number as usize]).count();
        assert_eq!(lost, 0, "acknowledged messages were not received");
        let wrong = report.unsent.iter().filter(|number| seen[**number as usize]).count();
        assert_eq!(wrong, 0, "unsent messages were received");
        let repeated = log.len() - first.len();
        assert!(self.repeats || repeated == 0, "{repeated} messages arrived twice");
        if report.errno != 0 {
            let died = rustix::io::Errno::OWNERDEAD.raw_os_error();
            assert!(self.receiver_killed && report.errno == died, "errno {}", report.errno);
        }
        format!("{}; {} received, {repeated} twice", report.summary(), log.len())
    }

    /// Checks what was received if the sender was killed.
    pub(crate) fn settle_without_sender(&self) -> String {
        let log = read_log(&self.path("log"), 1);
        let expected: Vec<u64> = (0..log.len() as u64).collect();
        assert_eq!(log, expected, "messages arrived in order, without a gap");
        format!("{} received", log.len())
    }
}

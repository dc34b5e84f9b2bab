//! Gateways of two hosts: on threads, with a carrier in memory ([`MemoryGateways`]), or as
//! processes, with TCP ([`TcpGateways`]).
//!
//! Host A imports the mailbox `jobs` of host B: programs send to `B-jobs`, the owner binds `jobs`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Signal;
use tontine_gateway::config::{Config, ExportConfig, ImportConfig, PeerConfig};
use tontine_gateway::gateway::Gateway;
use tontine_gateway::link::{HostId, Link};
use tontine_gateway::memory::{Faults, MemoryLink, Switch};
use tontine_gateway::service;
use tontine_gateway::status::{GatewayStatus, PeerState};
use tontine_gateway::tcp::{TcpLink, TcpOptions};

use super::program::{Program, Role};
use super::until;

/// A gateway on a thread.
pub struct GatewayThread {
    stop: Arc<AtomicBool>,
    paused: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
    turns: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl GatewayThread {
    pub fn start<L: Link + Send + 'static>(config: &Config, link: L) -> Self {
        let flag = || Arc::new(AtomicBool::new(false));
        let (stop, paused, is_paused) = (flag(), flag(), flag());
        let (stops, pauses, pausing) = (stop.clone(), paused.clone(), is_paused.clone());
        let turns = Arc::<AtomicU64>::default();
        let counter = turns.clone();
        let mut gateway = Gateway::new(config, link).expect("a gateway");
        let thread = thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                gateway.turn(Some(Duration::from_millis(50))).expect("a turn");
                counter.fetch_add(1, Ordering::Relaxed);
                while pauses.load(Ordering::SeqCst) && !stops.load(Ordering::Relaxed) {
                    pausing.store(true, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(1));
                }
                pausing.store(false, Ordering::SeqCst);
            }
        });
        Self { stop, paused, is_paused, turns, thread: Some(thread) }
    }

    /// Returns the number of turns since the start.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    /// Stops the gateway between two turns, or lets it continue.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
        until("the gateway pauses or continues", || {
            self.is_paused.load(Ordering::SeqCst) == paused
        });
    }
}

impl Drop for GatewayThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.expect("started").expect("no panic");
        }
    }
}

/// Returns the configurations of both hosts.
pub fn configs(folder: &Path, unreachable_after: Option<Duration>) -> (Config, Config) {
    let peer = |name: &str, after| PeerConfig {
        name: name.into(),
        connect: None,
        unreachable_after: after,
    };
    let mut a = Config::new("A");
    a.peers.push(peer("B", unreachable_after));
    a.imports.push(ImportConfig {
        host: HostId(0),
        name: "jobs".into(),
        address: folder.join("B-jobs").into(),
    });
    let mut b = Config::new("B");
    b.peers.push(peer("A", None));
    b.exports.push(ExportConfig { name: "jobs".into(), address: folder.join("jobs").into() });
    (a, b)
}

/// Two gateways on threads, connected in memory.
pub struct MemoryGateways {
    pub switch: Switch,
    pub a: GatewayThread,
    pub b: GatewayThread,
}

impl MemoryGateways {
    pub fn start(folder: &Path, faults: Faults) -> Self {
        Self::with_timeout(folder, faults, None)
    }

    pub fn with_timeout(folder: &Path, faults: Faults, unreachable: Option<Duration>) -> Self {
        let (a, b) = configs(folder, unreachable);
        Self::with_configs(&a, &b, faults)
    }

    pub fn with_configs(a: &Config, b: &Config, faults: Faults) -> Self {
        let (link_a, link_b, switch) = MemoryLink::pair(faults).expect("descriptors");
        let (a, b) = (GatewayThread::start(a, link_a), GatewayThread::start(b, link_b));
        Self { switch, a, b }
    }
}

/// The two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    A,
    B,
}

/// Two gateways in processes, connected over TCP. Several pairs may run at the same time.
pub struct TcpGateways {
    folder: PathBuf,
    pub address: SocketAddr,
    programs: [Option<Program>; 2],
}

/// Port of the first pair; each further pair of the process takes the next one.
const FIRST_PORT: u16 = 7500;

/// Returns an address on loopback that no other process of this test uses.
pub fn own_address(port: u16) -> SocketAddr {
    let pid = std::process::id();
    ([127, 1 + (pid >> 16) as u8, (pid >> 8) as u8, pid as u8], port).into()
}

impl TcpGateways {
    /// Starts both gateways. A dials B.
    pub fn start(folder: &Path) -> Self {
        static PAIRS: AtomicU16 = AtomicU16::new(0);
        let address = own_address(FIRST_PORT + PAIRS.fetch_add(1, Ordering::Relaxed));
        let mut gateways = Self { folder: folder.to_owned(), address, programs: [None, None] };
        let dir = folder.display();
        gateways.configure(
            Host::A,
            &format!(
                "[peers.B]\nconnect = \"{address}\"\n[imports]\n\"B/jobs\" = \"{dir}/B-jobs\"\n"
            ),
        );
        gateways.configure(
            Host::B,
            &format!("listen = \"{address}\"\n[peers.A]\n[exports]\njobs = \"{dir}/jobs\"\n"),
        );
        gateways.restart(Host::B);
        gateways.restart(Host::A);
        gateways
    }

    fn file(&self, host: Host, kind: &str) -> PathBuf {
        let name = if host == Host::A { "a" } else { "b" };
        self.folder.join(format!("{name}.{kind}"))
    }

    /// Writes the configuration of a host below its name and the path of its status socket, for the
    /// next start of its gateway.
    pub fn configure(&self, host: Host, config: &str) {
        let status = self.file(host, "status");
        let config = format!("name = \"{host:?}\"\nstatus = {status:?}\n{config}");
        fs::write(self.file(host, "toml"), config).expect("written");
    }

    /// Changes the configuration of a host, and starts its gateway again.
    pub fn reconfigure(&mut self, host: Host, change: impl FnOnce(String) -> String) {
        let file = self.file(host, "toml");
        let config = change(fs::read_to_string(&file).expect("written"));
        self.kill(host);
        fs::write(file, config).expect("written");
        self.restart(host);
    }

    fn program(&self, host: Host) -> &Program {
        self.programs[host as usize].as_ref().expect("runs")
    }

    pub fn pid(&self, host: Host) -> u32 {
        self.program(host).pid()
    }

    /// Kills the gateway of a host.
    pub fn kill(&mut self, host: Host) {
        self.programs[host as usize].take().expect("runs").kill();
    }

    /// Starts the gateway of a host, and waits until it answers.
    pub fn restart(&mut self, host: Host) {
        self.restart_with(host, None);
    }

    /// Starts the gateway of a host with a limit of descriptors.
    pub fn restart_with(&mut self, host: Host, descriptors: Option<u64>) {
        let role = Role::Gateway(self.file(host, "toml"), descriptors);
        let log = self.file(host, "log");
        self.programs[host as usize] = Some(Program::start_with_log(&role, Some(&log)));
        let status = self.file(host, "status");
        until("the gateway answers", || service::read_status(&status).is_ok());
    }

    pub fn signal(&self, host: Host, signal: Signal) {
        self.program(host).signal(signal);
    }

    pub fn status(&self, host: Host) -> GatewayStatus {
        service::read_status(&self.file(host, "status")).expect("the gateway answers")
    }

    /// Returns `true` if both gateways have this number of lanes.
    pub fn have_lanes(&self, count: usize) -> bool {
        [Host::A, Host::B].iter().all(|host| self.status(*host).lanes.len() == count)
    }

    pub fn log(&self, host: Host) -> String {
        fs::read_to_string(self.file(host, "log")).unwrap_or_default()
    }

    pub fn wait_until_connected(&self) {
        until("the gateways are connected", || {
            [Host::A, Host::B].iter().all(|host| {
                let status = self.status(*host);
                status.peers.iter().all(|peer| peer.state == PeerState::Connected)
            })
        });
    }
}

/// Runs a gateway on TCP in this process.
pub fn run_process(config: &Path, descriptors: Option<u64>) {
    if let Some(max) = descriptors {
        let limit = rustix::process::Rlimit { current: Some(max), maximum: Some(max) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("lowered");
    }
    service::log_to_stderr(Some("info")).expect("a level");
    let config = Config::read(config).expect("a configuration");
    let peer = |peer: &PeerConfig| {
        let address = peer.connect.as_ref().map(|address| address.resolve().expect("a number"));
        (peer.name.clone(), address)
    };
    let options = TcpOptions {
        name: config.name.clone(),
        realm: config.realm.clone(),
        peers: config.peers.iter().map(peer).collect(),
        listen: config.listen.clone(),
        plaintext: false,
    };
    let link = TcpLink::new(&options).expect("listens");
    service::run(&config, link).expect("runs");
}

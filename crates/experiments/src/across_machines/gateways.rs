//! `tontine` and `tontine-zenoh`: a mailbox on each host, and between them a gateway on each host.
//!
//! The program sends into the mailbox of its host's gateway, which is a process of its own. This
//! gateway carries the message over TCP to the other host's gateway, which sends it into the
//! mailbox of the program there. The way back is the same. Without gateways, each program sends
//! into the other's mailbox. For `tontine-zenoh`, the gateways are the installed program.

use std::cell::Cell;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::Child;
use tontine_host::peer::{ChildError, PeerHandle};
use tontine_mechanisms::descriptor::pipe;
use tontine_mechanisms::end::{Inlet, Outlet, TransferError, TwoWay};
use tontine_mechanisms::mailbox::{failed, life, refused};
use tontine_remote::config::{Config, ExportConfig, ImportConfig, PeerConfig};
use tontine_remote::gateway::Gateway;
use tontine_remote::link::HostId;
use tontine_remote::tcp::{TcpLink, TcpOptions};

use super::crossing::{Crossing, CrossingEnd, HostSide};
use super::hosts::{exit_status, report_to, wait_for};
use super::server::start;

/// The gateway with Zenoh as the carrier.
const PROGRAM: &str = "tontine-bridge-zenoh";
/// The name by which a gateway exports the program's mailbox.
const INBOX: &str = "inbox";
/// Timeout for the acknowledgement of a whole stream.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(60);

/// The carrier between the gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewayKind {
    /// TCP, in forks of this program.
    Tcp,
    /// Zenoh over TCP, in processes of [`PROGRAM`].
    Zenoh,
}

/// A mailbox on each host.
pub(super) struct MailboxCrossing<'a> {
    /// A directory that both hosts see. The gateways make no use of that.
    pub(super) folder: &'a Path,
    /// The gateways that carry the messages. `None` if each program reaches the other's mailbox.
    pub(super) gateways: Option<GatewayKind>,
    /// `true` if the programs sleep at once when they wait, `false` if they have the default wait
    /// strategy.
    pub(super) sleeps: bool,
}

impl MailboxCrossing<'_> {
    /// Returns the address of the mailbox of the program on a host.
    fn inbox(&self, side: HostSide) -> PathBuf {
        self.folder.join(format!("{}-{INBOX}", side.name()))
    }

    /// Returns the address at which a host's gateway accepts messages to the other host.
    fn import(&self, side: HostSide) -> PathBuf {
        self.folder.join(format!("{}-gateway", side.name()))
    }

    fn options(&self) -> Options {
        let options = Options::new();
        if self.sleeps { options.wait_strategy(WaitStrategy::Sleep) } else { options }
    }

    fn config(&self, side: HostSide) -> Config {
        let mut config = Config::new(side.name());
        let name = side.other().name().to_owned();
        config.peers.push(PeerConfig { name, connect: None, unreachable_after: None });
        let (here, there) = (self.inbox(side).into(), self.import(side).into());
        config.exports.push(ExportConfig { name: INBOX.into(), address: here });
        config.imports.push(ImportConfig { host: HostId(0), name: INBOX.into(), address: there });
        config
    }

    /// Starts the installed gateway with Zenoh as the carrier.
    fn start_program(&self, side: HostSide) -> Result<Child> {
        let (name, other) = (side.name(), side.other().name());
        let listener = HostSide::listener();
        let (listen, connect) = match side {
            HostSide::A => (String::new(), format!("connect = \"{listener}\"\n")),
            HostSide::B => (format!("listen = [\"{listener}\"]\n"), String::new()),
        };
        let status = self.folder.join(format!("{name}-status"));
        let (inbox, import) = (self.inbox(side), self.import(side));
        let text = format!(
            "name = \"{name}\"\nstatus = {status:?}\n{listen}[peers.{other}]\n{connect}[exports]\n\
             {INBOX} = {inbox:?}\n[imports]\n\"{other}/{INBOX}\" = {import:?}\n"
        );
        let config = self.folder.join(format!("{name}.toml"));
        fs::write(&config, text).setting_up("writing a file")?;
        let config = config.display().to_string();
        let arguments = ["--config", &config, "--plaintext", "--log", "error"].map(str::to_owned);
        let reach = || Sender::connect(&import).ok().map(drop);
        start(PROGRAM, &arguments, self.folder, reach).map(|(child, ())| child)
    }

    /// Forks the gateway of a host, with TCP as the carrier.
    fn fork_gateway(&self, side: HostSide, errors: &ChildError) -> Result<Child> {
        let (ready, report) = pipe()?;
        let (ready, report) = (Cell::new(Some(ready)), Cell::new(Some(report)));
        let child = Child::fork(|| {
            drop(ready.take());
            let run = |report| exit_status(errors, self.run_gateway(side, &report));
            report.take().map_or(1, run)
        })?;
        drop(report.take());
        if let Some(ready) = ready.take() {
            wait_for(&ready, "a gateway did not start")?;
        }
        Ok(child)
    }

    /// Runs the gateway of a host, until its process is killed.
    fn run_gateway(&self, side: HostSide, report: &OwnedFd) -> Result<()> {
        let config = self.config(side);
        let listener = HostSide::listener().into();
        let (dialled, listen) = match side {
            HostSide::A => (Some(listener), Vec::new()),
            HostSide::B => (None, vec![listener]),
        };
        let options = TcpOptions {
            name: config.name.clone(),
            realm: config.realm.clone(),
            peers: vec![(side.other().name().into(), dialled)],
            listen,
            // The network contains no other process.
            plaintext: true,
        };
        let link = TcpLink::new(&options).during("a gateway's connection")?;
        let mut gateway = Gateway::new(&config, link)
            .map_err(|error| MeasureError::fail(format!("a gateway: {error}")))?;
        report_to(report)?;
        loop {
            gateway.turn(None).during("a gateway")?;
        }
    }
}

impl Crossing for MailboxCrossing<'_> {
    /// The program's mailbox, and the gateway of its host.
    type Half = (Mailbox, Option<Child>);
    type End = MailboxEnd;

    fn prepare(&self, side: HostSide, errors: &ChildError) -> Result<Self::Half> {
        // Before the mailbox exists, so that the gateway does not inherit its descriptors.
        let gateway = match self.gateways {
            Some(GatewayKind::Tcp) => Some(self.fork_gateway(side, errors)?),
            Some(GatewayKind::Zenoh) => Some(self.start_program(side)?),
            None => None,
        };
        life()?;
        let mailbox = self.options().bind(self.inbox(side)).map_err(refused)?;
        Ok((mailbox, gateway))
    }

    fn open(&self, side: HostSide, (mailbox, gateway): Self::Half) -> Result<MailboxEnd> {
        let target = match gateway {
            Some(_) => self.import(side),
            None => self.inbox(side.other()),
        };
        let sender = self.options().connect(target).map_err(refused)?;
        Ok(MailboxEnd { sender, mailbox, _gateway: gateway })
    }
}

/// The mailbox of a program, and its sender to the other program.
pub(super) struct MailboxEnd {
    sender: Sender,
    mailbox: Mailbox,
    /// Killed when the end is dropped.
    _gateway: Option<Child>,
}

impl Outlet for MailboxEnd {
    #[inline(always)]
    fn send(&mut self, message: &[u8], peers: &[PeerHandle<'_>]) -> Result<(), TransferError> {
        Outlet::send(&mut self.sender, message, peers)
    }
}

impl Inlet for MailboxEnd {
    #[inline(always)]
    fn receive<R>(
        &mut self,
        peers: &[PeerHandle<'_>],
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, TransferError> {
        self.mailbox.receive(peers, look)
    }
}

impl TwoWay for MailboxEnd {}

impl CrossingEnd for MailboxEnd {
    /// Blocks until the receiving program has acknowledged every message, then receives its answer.
    fn settle(&mut self) -> Result<()> {
        self.sender.wait_acked(Some(ACKNOWLEDGEMENT)).map_err(failed("wait_acked"))?;
        Ok(self.receive(&[], |_| ())?)
    }
}

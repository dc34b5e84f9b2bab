//! `tontine` and `tontine-zenoh`: a mailbox on each host, and between them a gateway on each host.
//!
//! The program sends into the mailbox of its host's gateway, a process of its own, which carries
//! the message over TCP to the gateway of the other host. Without gateways, each program sends into
//! the other's mailbox. For `tontine-zenoh`, the gateways are the installed program.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use std::fs::{self, File};
use std::os::unix::process::CommandExt;

use tontine::mailbox::{Mailbox, Options, Sender, WaitStrategy};
use tontine_bench::os::program::{find, last_lines};
use tontine_gateway::config::{Config, ExportConfig, ImportConfig, PeerConfig};
use tontine_gateway::gateway::Gateway;
use tontine_gateway::link::HostId;
use tontine_gateway::tcp::{TcpLink, TcpOptions};
use tontine_mechanisms::descriptor::pipe;
use tontine_mechanisms::end::{Duplex, Inlet};
use tontine_mechanisms::mailbox::{failed, life, refused};

use super::hosts::{Crossing, HostSide, report_to, wait_for};
use super::timing::CrossingEnd;
use crate::prelude::*;

const PROGRAM: &str = "tontine-bridge-zenoh";
/// The name by which a gateway exports the program's mailbox.
const INBOX: &str = "inbox";
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(60);
/// Timeout for the start of the program, and the interval of the attempts to reach it.
const START: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewayKind {
    /// TCP, in forks of this program.
    Tcp,
    /// Zenoh over TCP, in processes of [`PROGRAM`].
    Zenoh,
}

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
    fn inbox(&self, side: HostSide) -> PathBuf {
        self.folder.join(format!("{}-{INBOX}", side.name()))
    }

    /// Returns the address at which the gateway accepts messages to the other host.
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

    /// Starts the installed gateway with Zenoh as the carrier, which ends with this process, and
    /// waits until it accepts senders.
    fn start_program(&self, side: HostSide) -> Result<Child> {
        let program = find(PROGRAM).ok_or_else(|| {
            MeasureError::skip(format!("needs {PROGRAM}, and found none on PATH: install it"))
        })?;
        let (name, other) = (side.name(), side.other().name());
        let listener = HostSide::listener();
        let (listen, connect) = match side {
            HostSide::A => (String::new(), format!("connect = \"{listener}\"\n")),
            HostSide::B => (format!("listen = [\"{listener}\"]\n"), String::new()),
        };
        let at = |file: &str| self.folder.join(format!("{name}-{file}"));
        let (status, config, printed) = (at("status"), at("config.toml"), at("printed"));
        let (inbox, import) = (self.inbox(side), self.import(side));
        let text = format!(
            "name = \"{name}\"\nstatus = {status:?}\n{listen}[peers.{other}]\n{connect}[exports]\n\
             {INBOX} = {inbox:?}\n[imports]\n\"{other}/{INBOX}\" = {import:?}\n"
        );
        fs::write(&config, text).setting_up("writing a file")?;
        let log = File::create(&printed).setting_up("making a file")?;
        let errors = log.try_clone().setting_up("fcntl(F_DUPFD_CLOEXEC)")?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&config).args(["--plaintext", "--log", "error"]);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = Child::fork(|| {
            let _ = command.exec();
            1
        })?;
        let end = Instant::now() + START;
        loop {
            let ended = ends_within(child.pid(), RETRY)?;
            if !ended && Sender::connect(&import).is_ok() {
                return Ok(child);
            }
            if ended || Instant::now() > end {
                let words = last_lines(&fs::read(&printed).unwrap_or_default());
                let what = if ended { "ended" } else { "could not be reached" };
                bail!("{PROGRAM} {what}: {words}");
            }
        }
    }

    fn fork_gateway(&self, side: HostSide, errors: &ChildError) -> Result<Child> {
        let (ready, report) = pipe()?;
        let (ready, report) = (Cell::new(Some(ready)), Cell::new(Some(report)));
        let child = Child::fork(|| {
            drop(ready.take());
            let run = |report| errors.status(self.run_gateway(side, &report));
            report.take().map_or(1, run)
        })?;
        drop(report.take());
        if let Some(ready) = ready.take() {
            wait_for(&ready, "a gateway did not start")?;
        }
        Ok(child)
    }

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
        Ok(MailboxEnd { out: sender, back: mailbox, kept: gateway })
    }
}

/// The mailbox of a program, its sender to the other program, and the gateway, which is killed with
/// the end.
pub(super) type MailboxEnd = Duplex<Sender, Mailbox, Option<Child>>;

impl CrossingEnd for MailboxEnd {
    fn settle(&mut self) -> Result<()> {
        self.out.wait_acked(Some(ACKNOWLEDGEMENT)).map_err(failed("wait_acked"))?;
        Ok(self.receive(&[], |_| ())?)
    }
}

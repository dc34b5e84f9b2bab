//! The arguments of `tontine bridge`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::StatusFormat;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
A gateway runs once per host. It binds a mailbox for each import of its \
configuration; programs send to it as to any other. The gateway of the peer \
passes the messages on to the exported mailbox. Guide: \
docs/guides/across-machines.md.

Two of these on different hosts, each with the other as its peer:
  name = \"hostA\"                            name = \"hostB\"
  listen = \"192.0.2.1:7447\"                 [peers.hostA]
  [peers.hostB]                             connect = \"192.0.2.1:7447\"
  [imports]                                 [exports]
  \"hostB/jobs\" = \"/run/tontine/jobs\"        jobs = \"/run/jobs\"

SIGTERM and Ctrl-C end the gateway in order.

Examples:
  tontine bridge --config bridge.toml --check
  tontine bridge --config bridge.toml
  tontine bridge --config bridge.toml --carrier zenoh
  tontine bridge status --format json | jq '.lanes[]'
  tontine bridge unit > /etc/systemd/system/tontine-bridge.service

Exit status:
  0        ended by SIGTERM or SIGINT; --check: the configuration is valid
  1        any other failure: a gateway runs already, no gateway runs, …
  2        wrong usage, or a mistake in the configuration")]
pub(crate) struct Bridge {
    #[command(subcommand)]
    pub(crate) command: Option<BridgeCommand>,

    #[command(flatten)]
    pub(crate) gateway: RunGateway,
}

/// The arguments of a gateway.
#[derive(Debug, Args)]
pub(crate) struct RunGateway {
    /// Configuration of the gateway (TOML).
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) config: Option<PathBuf>,

    /// Only check the configuration, as for a start with the same carrier and options, and report
    /// every mistake.
    #[arg(long)]
    pub(crate) check: bool,

    /// Carrier between the hosts.
    #[arg(long, value_enum, default_value_t = CarrierName::Tcp)]
    pub(crate) carrier: CarrierName,

    /// Use addresses beyond this host although nothing encrypts the connection: anyone in the
    /// network may read, change and send messages.
    #[arg(long)]
    pub(crate) plaintext: bool,

    /// Level of the log on standard error: off, error, warn, info, debug or trace [default:
    /// $TONTINE_LOG, or info].
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<String>,
}

/// The carriers between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CarrierName {
    /// TCP without encryption: for one host, and for networks that encrypt.
    Tcp,
    /// Zenoh, with encryption, by the program tontine-bridge-zenoh.
    Zenoh,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BridgeCommand {
    /// Print the state of a running gateway: its peers and lanes.
    Status(BridgeStatus),
    /// Print a unit for systemd that runs a gateway.
    #[command(after_help = "\
The unit runs this program as the user tontine with the configuration \
/etc/tontine/bridge.toml.

Examples:
  useradd --system --shell /usr/sbin/nologin tontine
  tontine bridge unit > /etc/systemd/system/tontine-bridge.service
  systemctl daemon-reload
  systemctl enable --now tontine-bridge")]
    Unit,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Columns of a lane: UNREAD, bytes that the gateway has read and the owner of \
the mailbox has not acknowledged; IN DOUBT, the part of them that the owner \
may have processed; ACKED, bytes that were acknowledged.

Exit status:
  0        printed
  1        no gateway runs, or it gave no answer
  2        wrong usage, or a mistake in the configuration")]
pub(crate) struct BridgeStatus {
    /// Configuration of the gateway, which names its status socket.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub(crate) config: Option<PathBuf>,

    /// Status socket of the gateway [default: /run/tontine/bridge.status].
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// StatusFormat of the output.
    #[arg(long, value_enum, default_value_t = StatusFormat::Text)]
    pub(crate) format: StatusFormat,
}

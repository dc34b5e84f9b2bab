//! `tontine bridge`: a gateway to other hosts, its state, and a unit for systemd.
//!
//! The gateway is `tontine_gateway`; `unit` writes the unit. For the carrier Zenoh, another program
//! takes this process over, because Zenoh's packages are many.

mod unit;

use std::env;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use tontine_command::{CommandFailure, print};
use tontine_gateway::config::{Config, ConfigError, DEFAULT_STATUS, PeerConfig};
use tontine_gateway::service;
use tontine_gateway::tcp::{TcpLink, TcpOptions};

use crate::args::{Bridge, BridgeCommand, BridgeStatus, CarrierName, RunGateway, StatusFormat};

/// Program that runs a gateway over Zenoh, with the arguments of this one.
const ZENOH_PROGRAM: &str = "tontine-bridge-zenoh";

/// Runs a gateway, or one of the commands below it.
pub(crate) fn bridge(args: &Bridge) -> Result<ExitCode, CommandFailure> {
    match &args.command {
        Some(BridgeCommand::Status(args)) => status(args),
        Some(BridgeCommand::Unit) => {
            let program =
                env::current_exe().map_err(CommandFailure::cannot("find this program"))?;
            if let Some(hidden) = unit::hidden_folder(&program) {
                let _ = writeln!(
                    io::stderr(),
                    "tontine: warning: the unit hides {hidden}, so it cannot start {}; install \
                     the program elsewhere (cargo install --root /usr/local --path crates/cli \
                     --locked) and print the unit with it",
                    program.display()
                );
            }
            print(unit::unit(&program).as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        None => gateway(&args.gateway),
    }
}

fn gateway(args: &RunGateway) -> Result<ExitCode, CommandFailure> {
    let path = args.config.as_deref().ok_or_else(|| {
        CommandFailure::usage("expected --config FILE, found none; name a configuration")
    })?;
    let config = read(path)?;
    if args.carrier == CarrierName::Zenoh {
        return Err(become_zenoh(path, args));
    }
    if args.check {
        if !args.plaintext {
            check_loopback(path, &config)?;
        }
        for warning in &config.warnings {
            let _ = writeln!(io::stderr(), "tontine: {}: warning: {warning}", path.display());
        }
        print(format!("{}: valid: {}\n", path.display(), config.summary()).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    service::log_to_stderr(args.log.as_deref()).map_err(CommandFailure::usage)?;
    let link = TcpLink::new(&tcp_options(&config, args.plaintext)?)
        .map_err(CommandFailure::cannot("start the carrier TCP"))?;
    service::run(&config, link).map_err(CommandFailure::failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a configuration. Each line of the error begins with the program's name.
fn read(path: &Path) -> Result<Config, CommandFailure> {
    Config::read(path).map_err(|error| match error {
        ConfigError::Unreadable { .. } => CommandFailure::usage(error),
        ConfigError::Invalid { .. } => {
            CommandFailure::usage(error.to_string().replace('\n', "\ntontine: "))
        }
    })
}

/// Checks that the carrier TCP accepts all addresses without `--plaintext`. Names of hosts are not
/// resolved.
fn check_loopback(path: &Path, config: &Config) -> Result<(), CommandFailure> {
    let path = path.display();
    let listen = config.listen.iter().map(|address| ("listen".to_owned(), address.ip()));
    let connect = config.peers.iter().filter_map(|peer| {
        let ip = peer.connect.as_ref()?.host().parse().ok()?;
        Some((format!("peers.{}.connect", peer.name), ip))
    });
    let beyond: Vec<_> = listen.chain(connect).filter(|(_, ip)| !ip.is_loopback()).collect();
    if beyond.is_empty() {
        return Ok(());
    }
    let mistakes = beyond.iter().map(|(key, ip)| {
        format!(
            "{path}: {key}: expected an address of loopback, found {ip}; the carrier TCP neither \
             encrypts nor authenticates: use --carrier zenoh with certificates, or --plaintext on \
             a trusted cable"
        )
    });
    Err(CommandFailure::usage(mistakes.collect::<Vec<_>>().join("\ntontine: ")))
}

fn tcp_options(config: &Config, plaintext: bool) -> Result<TcpOptions, CommandFailure> {
    let peer = |peer: &PeerConfig| -> io::Result<(String, Option<SocketAddr>)> {
        let address = peer.connect.as_ref().map(|address| address.resolve()).transpose()?;
        Ok((peer.name.clone(), address))
    };
    let peers = config.peers.iter().map(peer).collect::<io::Result<_>>();
    Ok(TcpOptions {
        name: config.name.clone(),
        realm: config.realm.clone(),
        peers: peers.map_err(CommandFailure::cannot("find the address of a peer"))?,
        listen: config.listen.clone(),
        plaintext,
    })
}

/// Replaces this process by the program for Zenoh. Returns the reason if that fails.
fn become_zenoh(config: &Path, args: &RunGateway) -> CommandFailure {
    let neighbour = env::current_exe().ok().map(|program| program.with_file_name(ZENOH_PROGRAM));
    let program = neighbour.filter(|path| path.is_file()).unwrap_or_else(|| ZENOH_PROGRAM.into());
    let mut command = Command::new(&program);
    command.arg("--config").arg(config);
    if args.check {
        command.arg("--check");
    }
    if args.plaintext {
        command.arg("--plaintext");
    }
    if let Some(level) = &args.log {
        command.args(["--log", level]);
    }
    let error = command.exec();
    match error.kind() {
        io::ErrorKind::NotFound => CommandFailure::failed(format!(
            "--carrier zenoh needs the program {ZENOH_PROGRAM}, which is neither next to this one \
             nor in PATH; build it (cargo install --locked --path crates/bridge/zenoh)"
        )),
        _ => CommandFailure::failed(format!("cannot run {}: {error}", program.display())),
    }
}

fn status(args: &BridgeStatus) -> Result<ExitCode, CommandFailure> {
    let socket = match (&args.config, &args.socket) {
        (Some(config), _) => read(config)?.status,
        (None, Some(socket)) => socket.clone(),
        (None, None) => PathBuf::from(DEFAULT_STATUS),
    };
    let status = service::read_status(&socket).map_err(CommandFailure::failed)?;
    let text = match args.format {
        StatusFormat::Text => status.to_text(),
        StatusFormat::Json => status.to_json(),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

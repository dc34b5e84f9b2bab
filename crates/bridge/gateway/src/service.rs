//! A gateway as a service: [`run`], [`log_to_stderr`].
//!
//! A gateway ends with an error, or in order after SIGTERM or SIGINT. `folders` creates the folders
//! of the imports, `socket` answers requests for the status, and `notify` informs a service
//! manager. The gateway itself is `crate::gateway`.

mod error;
mod folders;
mod notify;
mod socket;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tontine::signal::Signal;
use tontine::signal::handler::SelfPipe;
use tracing::{info, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

pub use error::ServiceError;
pub use socket::{MAX_WAIT, StatusQueryError, read_status};

use crate::config::Config;
use crate::gateway::Gateway;
use crate::link::Link;
use crate::status::{GatewayStatus, PeerState};

/// The variable of the environment that holds the level of the log.
pub const LOG_VARIABLE: &str = "TONTINE_LOG";

/// Maximum sleep of the gateway, and the interval between two checks of the peers' states.
const INTERVAL: Duration = Duration::from_secs(1);

/// Writes the events of this process to standard error, one line each.
///
/// `level` is one of `off`, `error`, `warn`, `info`, `debug` and `trace`; without it, the variable
/// `TONTINE_LOG` counts, and without both `info`. Under systemd, which adds the time, the lines
/// have none.
///
/// # Errors
/// [`ServiceError::LogLevel`] if the level is unknown. If the process has a log already, that one
/// stays.
pub fn log_to_stderr(level: Option<&str>) -> Result<(), ServiceError> {
    let variable = std::env::var(LOG_VARIABLE).ok().filter(|level| !level.is_empty());
    let (level, origin) = match (level, &variable) {
        (Some(level), _) => (level, "--log"),
        (None, Some(level)) => (level.as_str(), LOG_VARIABLE),
        (None, None) => ("info", ""),
    };
    let filter: LevelFilter = match level {
        // A number is a level for the parser, but not for readers.
        "off" | "error" | "warn" | "info" | "debug" | "trace" => level.parse().ok(),
        _ => None,
    }
    .ok_or_else(|| ServiceError::LogLevel { origin, level: level.to_owned() })?;
    // A carrier's own log is for those who search a fault in the carrier.
    let others = if filter >= LevelFilter::DEBUG { filter } else { LevelFilter::OFF };
    let targets = Targets::new().with_target("tontine", filter).with_default(others);
    let log = tracing_subscriber::fmt()
        .with_max_level(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false);
    // An error means that the process has a log.
    let _ = if std::env::var_os("JOURNAL_STREAM").is_some() {
        tracing::subscriber::set_global_default(log.without_time().finish().with(targets))
    } else {
        tracing::subscriber::set_global_default(log.finish().with(targets))
    };
    Ok(())
}

/// Runs a gateway until SIGTERM or SIGINT.
///
/// Binds the status socket and the imports, then reports `READY=1` to the service manager. A socket
/// that a killed gateway left is replaced.
///
/// # Errors
/// Returns an error if the gateway cannot start, among others because another one has the same
/// status socket ([`ServiceError::AlreadyRuns`]), or cannot continue.
pub fn run<L: Link>(config: &Config, link: L) -> Result<(), ServiceError> {
    let stop = |signal| SelfPipe::install(signal).map_err(ServiceError::Signals);
    let (terminate, interrupt) = (stop(Signal::TERM)?, stop(Signal::INT)?);
    for warning in &config.warnings {
        warn!("{warning}");
    }
    folders::create(config)?;
    let socket = socket::StatusSocket::bind(&config.status)?;
    let mut gateway = Gateway::new(config, link).map_err(ServiceError::Gateway)?;
    for descriptor in [terminate.as_fd(), interrupt.as_fd(), socket.as_fd()] {
        gateway.watch(descriptor).map_err(ServiceError::Turn)?;
    }
    let (exports, imports) = (config.exports.len(), config.imports.len());
    info!(
        "gateway {} of realm {} runs: {exports} exports, {imports} imports, status at {}",
        config.name,
        config.realm,
        config.status.display()
    );
    let mut notifier = notify::Notifier::from_environment();
    notifier.send("READY=1");
    let mut peers = PeerLog::default();
    let mut checked = Instant::now();
    loop {
        gateway.turn(Some(INTERVAL)).map_err(ServiceError::Turn)?;
        if let Some(signal) = [(&terminate, "SIGTERM"), (&interrupt, "SIGINT")]
            .into_iter()
            .find_map(|(pipe, name)| pipe.take().then_some(name))
        {
            notifier.send("STOPPING=1");
            info!("gateway {} ends after {signal}", config.name);
            return Ok(());
        }
        socket.answer(|| gateway.status());
        if checked.elapsed() >= INTERVAL {
            checked = Instant::now();
            notifier.keep_alive();
            peers.update(&gateway.status());
        }
    }
}

/// The last logged state of each peer.
#[derive(Debug, Default)]
struct PeerLog(HashMap<String, PeerState>);

impl PeerLog {
    /// Logs the peers whose states have changed.
    fn update(&mut self, status: &GatewayStatus) {
        for peer in &status.peers {
            let last = self.0.insert(peer.name.clone(), peer.state);
            if last == Some(peer.state) {
                continue;
            }
            let (name, state) = (&peer.name, peer.state);
            match state {
                PeerState::Suspected => warn!("peer {name}: {state}; its lanes wait"),
                PeerState::Connected => info!("peer {name}: {state}"),
                PeerState::NeverSeen => info!("peer {name}: {state}; waiting for its gateway"),
            }
        }
    }
}

//! `tontine-bridge-zenoh`: a gateway whose carrier is Zenoh, and the certificates of its realm.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tontine_remote::config::Config;
use tontine_remote::service;
use tontine_zenoh::certificates::{self, CertifiedHost, VALID_DAYS};
use tontine_zenoh::{ZenohLink, ZenohOptions};

const HELP: &str = "\
Runs a gateway between Tontine's mailboxes on several hosts, with Zenoh as the carrier.

Usage: tontine-bridge-zenoh --config FILE [--plaintext] [--log LEVEL]
       tontine-bridge-zenoh certificates --realm NAME --out DIR [--days N] HOST...

Options:
  --config FILE  Configuration of the gateway, as for `tontine bridge`
  --plaintext    Permit other addresses than loopback without certificates
  --log LEVEL    off, error, warn, info, debug or trace [default: info]
  --realm NAME   Realm whose authority signs; it is made if DIR has none
  --out DIR      Folder of the certificates and keys
  --days N       Validity of the hosts' certificates [default: 1095]
  HOST           NAME or NAME=ADDRESS,...; peers connect to the name or one of the addresses
  -h, --help     Print help
  -V, --version  Print version

Exit status: 2 if an argument or the configuration is invalid, 1 after another error.
";

/// The task that the command line requests.
#[derive(Debug, PartialEq)]
enum BridgeTask {
    Help,
    Version,
    Run { config: PathBuf, plaintext: bool, log: Option<String> },
    Certificates { realm: String, out: PathBuf, days: u32, hosts: Vec<CertifiedHost> },
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(BridgeTask::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(BridgeTask::Version) => {
            println!("tontine-bridge-zenoh {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(BridgeTask::Run { config, plaintext, log }) => run(&config, plaintext, log.as_deref()),
        Ok(BridgeTask::Certificates { realm, out, days, hosts }) => {
            match certificates::make(&out, &realm, &hosts, days) {
                Ok(made) => {
                    made.iter().for_each(|path| println!("{}", path.display()));
                    ExitCode::SUCCESS
                }
                Err(error) => failure(1, error),
            }
        }
        Err(reason) => failure(2, format!("{reason}; see tontine-bridge-zenoh --help")),
    }
}

fn run(path: &Path, plaintext: bool, log: Option<&str>) -> ExitCode {
    if let Err(error) = service::log_to_stderr(log) {
        return failure(2, error);
    }
    let config = match Config::read(path) {
        Ok(config) => config,
        Err(error) => return failure(2, error),
    };
    let link = match ZenohLink::open(&ZenohOptions::from_config(&config, plaintext)) {
        Ok(link) => link,
        Err(error) => return failure(2, format!("{}: {error}", path.display())),
    };
    match service::run(&config, link) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(1, error),
    }
}

fn failure(status: u8, reason: impl Display) -> ExitCode {
    eprintln!("tontine-bridge-zenoh: {reason}");
    ExitCode::from(status)
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<BridgeTask, String> {
    let mut arguments = arguments.peekable();
    let makes_certificates = arguments.next_if(|word| word == "certificates").is_some();
    let (mut config, mut log, mut realm, mut out) = (None, None, None, None);
    let (mut plaintext, mut days, mut hosts) = (false, VALID_DAYS, Vec::new());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match (argument.as_str(), makes_certificates) {
            ("-h" | "--help", _) => return Ok(BridgeTask::Help),
            ("-V" | "--version", false) => return Ok(BridgeTask::Version),
            ("--config", false) => config = Some(PathBuf::from(value()?)),
            ("--plaintext", false) => plaintext = true,
            ("--log", false) => log = Some(value()?),
            ("--realm", true) => realm = Some(value()?),
            ("--out", true) => out = Some(PathBuf::from(value()?)),
            ("--days", true) => {
                let text = value()?;
                let valid = text.parse().ok().filter(|days| (1..=36_500).contains(days));
                days = valid.ok_or(format!("expected 1 to 36500 days, found {text:?}"))?;
            }
            (host, true) if !host.starts_with('-') => {
                hosts.push(host.parse().map_err(|error| format!("{error}"))?);
            }
            _ => return Err(format!("unknown argument {argument:?}")),
        }
    }
    if !makes_certificates {
        let config = config.ok_or("--config FILE is missing")?;
        return Ok(BridgeTask::Run { config, plaintext, log });
    }
    if hosts.is_empty() {
        return Err("the hosts' names are missing".into());
    }
    let realm = realm.ok_or("--realm NAME is missing")?;
    let out = out.ok_or("--out DIR is missing")?;
    Ok(BridgeTask::Certificates { realm, out, days, hosts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<BridgeTask, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn command_lines_of_help_are_accepted() {
        let run = BridgeTask::Run { config: "a.toml".into(), plaintext: true, log: None };
        assert_eq!(parsed("--config a.toml --plaintext"), Ok(run));
        let line = "certificates --realm plant --out keys a b=10.0.0.2";
        let Ok(BridgeTask::Certificates { realm, days, hosts, .. }) = parsed(line) else {
            panic!("certificates");
        };
        assert_eq!((realm.as_str(), days, hosts.len()), ("plant", VALID_DAYS, 2));
        assert_eq!(parsed("certificates --help"), Ok(BridgeTask::Help));
        assert!(HELP.contains(&format!("[default: {VALID_DAYS}]")));
        assert!(HELP.lines().all(|line| line.len() <= 100));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, text) in [
            ("", "--config FILE is missing"),
            ("--config", "--config needs a value"),
            ("--config a b", "\"b\""),
            ("--realm plant", "\"--realm\""),
            ("certificates --realm plant --out keys", "names are missing"),
            ("certificates --out keys a", "--realm NAME is missing"),
            ("certificates --realm plant a", "--out DIR is missing"),
            ("certificates --days 0 a", "\"0\""),
            ("certificates a.b", "\"a.b\""),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}

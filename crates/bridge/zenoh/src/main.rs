//! `tontine-bridge-zenoh`: a gateway whose carrier is Zenoh, and the certificates of its realm.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tontine_gateway::config::Config;
use tontine_gateway::service;
use tontine_zenoh::certificates::{self, CertifiedHost, VALID_DAYS};
use tontine_zenoh::{ZenohError, ZenohLink, ZenohOptions};

const HELP: &str = "\
Runs a gateway between Tontine's mailboxes on several hosts, with Zenoh as the carrier.

Usage: tontine-bridge-zenoh --config FILE [--check] [--plaintext] [--log LEVEL]
       tontine-bridge-zenoh certificates --realm NAME --out DIR [--days N] HOST...

Options:
  --config FILE  Configuration of the gateway, as for `tontine bridge`
  --check        Only check the configuration and its files, and report every mistake
  --plaintext    Permit other addresses than loopback without certificates
  --log LEVEL    off, error, warn, info, debug or trace [default: $TONTINE_LOG, or info]
  --realm NAME   Realm whose authority signs; it is made if DIR has none
  --out DIR      Folder of the certificates and keys
  --days N       Validity of the hosts' certificates [default: 1095]
  HOST           NAME or NAME=ADDRESS,...; peers connect to the name or one of the addresses.
                 Write -- before the first name that begins with -
  -h, --help     Print help
  -V, --version  Print version

Exit status: 2 if an argument or the configuration is invalid, or --check finds a mistake; 1 after
another error, for example if a file cannot be read or an address is in use.
";

/// The task that the command line requests.
#[derive(Debug, PartialEq)]
enum BridgeTask {
    Help,
    Version,
    Run { config: PathBuf, check: bool, plaintext: bool, log: Option<String> },
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
        Ok(BridgeTask::Run { config, check, plaintext, log }) => {
            run(&config, check, plaintext, log.as_deref())
        }
        Ok(BridgeTask::Certificates { realm, out, days, hosts }) => {
            match certificates::make(&out, &realm, &hosts, days) {
                Ok(made) => {
                    made.iter().for_each(|path| println!("{}", path.display()));
                    ExitCode::SUCCESS
                }
                Err(error) => failure(status(&error), error),
            }
        }
        Err(reason) => failure(2, format!("{reason}; see tontine-bridge-zenoh --help")),
    }
}

fn run(path: &Path, check: bool, plaintext: bool, log: Option<&str>) -> ExitCode {
    if let Err(error) = service::log_to_stderr(log) {
        return failure(2, error);
    }
    let config = match Config::read(path) {
        Ok(config) => config,
        Err(error) => return failure(2, error),
    };
    let options = ZenohOptions::from_config(&config, plaintext);
    let mistakes = options.mistakes();
    if !mistakes.is_empty() {
        let worst = if check { 2 } else { mistakes.iter().map(status).max().unwrap_or(2) };
        let line = |mistake: &ZenohError| format!("{}: {mistake}", path.display());
        return failure(worst, mistakes.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    if check {
        for warning in &config.warnings {
            eprintln!("tontine-bridge-zenoh: {}: warning: {warning}", path.display());
        }
        println!("{}: valid: {}", path.display(), config.summary());
        return ExitCode::SUCCESS;
    }
    let link = match ZenohLink::open(&options) {
        Ok(link) => link,
        Err(error) => return failure(status(&error), format!("{}: {error}", path.display())),
    };
    match service::run(&config, link) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(1, error),
    }
}

/// Returns the exit status after an error. The unit for systemd does not restart a gateway after
/// status 2.
fn status(error: &ZenohError) -> u8 {
    if error.is_invalid_input() { 2 } else { 1 }
}

/// Writes the reason, each line with the program's name.
fn failure(status: u8, reason: impl Display) -> ExitCode {
    for line in reason.to_string().lines() {
        eprintln!("tontine-bridge-zenoh: {line}");
    }
    ExitCode::from(status)
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<BridgeTask, String> {
    let mut arguments = arguments.peekable();
    let makes_certificates = arguments.next_if(|word| word == "certificates").is_some();
    let (mut config, mut log, mut realm, mut out) = (None, None, None, None);
    let (mut check, mut plaintext, mut only_hosts) = (false, false, false);
    let (mut days, mut hosts) = (VALID_DAYS, Vec::<CertifiedHost>::new());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match (argument.as_str(), makes_certificates) {
            (host, _) if only_hosts => hosts.push(parse_host(host)?),
            ("-h" | "--help", _) => return Ok(BridgeTask::Help),
            ("-V" | "--version", false) => return Ok(BridgeTask::Version),
            ("--config", false) => config = Some(PathBuf::from(value()?)),
            ("--check", false) => check = true,
            ("--plaintext", false) => plaintext = true,
            ("--log", false) => log = Some(value()?),
            ("--realm", true) => realm = Some(value()?),
            ("--out", true) => out = Some(PathBuf::from(value()?)),
            ("--days", true) => {
                let text = value()?;
                let valid = text.parse().ok().filter(|days| (1..=36_500).contains(days));
                days = valid.ok_or(format!("expected 1 to 36500 days, found {text:?}"))?;
            }
            ("--", true) => only_hosts = true,
            (host, true) if !host.starts_with('-') => hosts.push(parse_host(host)?),
            _ => return Err(format!("unknown argument {argument:?}")),
        }
    }
    if !makes_certificates {
        let config = config.ok_or("--config FILE is missing")?;
        return Ok(BridgeTask::Run { config, check, plaintext, log });
    }
    if hosts.is_empty() {
        return Err("the hosts' names are missing".into());
    }
    let realm = realm.ok_or("--realm NAME is missing")?;
    let out = out.ok_or("--out DIR is missing")?;
    Ok(BridgeTask::Certificates { realm, out, days, hosts })
}

fn parse_host(text: &str) -> Result<CertifiedHost, String> {
    text.parse().map_err(|error: ZenohError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<BridgeTask, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn command_lines_of_help_are_accepted() {
        let run =
            |check| BridgeTask::Run { config: "a".into(), check, plaintext: !check, log: None };
        assert_eq!(parsed("--config a --plaintext"), Ok(run(false)));
        assert_eq!(parsed("--check --config a"), Ok(run(true)));
        let line = "certificates --realm plant --out keys a b=10.0.0.2";
        let Ok(BridgeTask::Certificates { realm, days, hosts, .. }) = parsed(line) else {
            panic!("certificates");
        };
        assert_eq!((realm.as_str(), days, hosts.len()), ("plant", VALID_DAYS, 2));
        let line = "certificates --realm plant --out keys a -- -b --days";
        let Ok(BridgeTask::Certificates { hosts, .. }) = parsed(line) else {
            panic!("certificates");
        };
        assert_eq!(
            hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>()[1..],
            ["-b", "--days"]
        );
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
            ("certificates -a", "\"-a\""),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(text), "{line}: {error}");
        }
    }
}

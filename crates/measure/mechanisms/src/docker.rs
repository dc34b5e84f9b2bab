//! A container engine, used through its command-line tool `docker`: [`Docker`].
//!
//! Every call has a deadline and is killed when it overruns the deadline. [`Docker::find`]
//! distinguishes a machine without an engine (skipped, with advice on installation) from an engine
//! with an invalid reply (failed). Every created resource carries the label [`LABEL`] with its
//! owner's name; [`sweep`] removes the resources of owners that have ended.
//!
//! Neighbours: [`super::owner`] identifies owners, [`super::image`] builds the content of an image.

#![allow(unsafe_code, reason = "ties the tool to its caller between fork and exec")]

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use serde_json::Value;
use tontine_bench::error::{ErrorContext, MeasureError, Result};
use tontine_bench::os::child::ends_within;
use tontine_bench::os::deadline;

use super::owner::{ProcessIdentity, StaleMark};

/// Label of every created resource. Its value is the owner's name.
pub const LABEL: &str = "tontine";
/// The command line tool.
const TOOL: &str = "docker";
/// Timeout for an engine's reply with its version.
const GREETING: Duration = Duration::from_secs(5);
/// Timeout for any other small request.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of checks for resources that a killed invocation left. Repeated checks are needed,
/// because the engine may still be busy with its last request.
const LOOKS: usize = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);
/// Number of characters shown of an engine's error.
const SHOWN: usize = 300;
/// Error messages of a tool that could not reach an engine.
const UNREACHABLE: [&str; 6] = [
    "Cannot connect to",
    "failed to connect",
    "Is the docker daemon running",
    "connection refused",
    "no such file or directory",
    "no such host",
];

/// An engine that has replied.
#[derive(Debug, Clone)]
pub struct Docker {
    /// DOCKER_HOST, if it differs from the caller's.
    host: Option<String>,
    version: String,
}

/// The result of a call of the command-line tool.
#[derive(Debug)]
pub struct CliOutput {
    status: ExitStatus,
    out: Vec<u8>,
    complaint: String,
}

impl Docker {
    pub fn find() -> Result<Self> {
        Self::at(None)
    }

    fn at(host: Option<String>) -> Result<Self> {
        let mut docker = Self { host, version: String::new() };
        let arguments = ["version", "--format", "{{json .}}"];
        let answer = match docker.call(&arguments, None, GREETING) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(MeasureError::skip("no Docker engine (`docker` is not installed)"));
            }
            other => other.setting_up("starting `docker`")?,
        };
        let Some(answer) = answer else {
            let seconds = GREETING.as_secs();
            return Err(MeasureError::skip(format!(
                "no Docker engine: it did not answer `docker version` within {seconds} s; \
                 restart it"
            )));
        };
        let last = answer.last_lines();
        if last.contains("permission denied") {
            return Err(MeasureError::skip(format!(
                "the Docker engine denies access ({last}); run as root, or as a member of the \
                 group `docker`"
            )));
        }
        if !answer.status.success() {
            return Err(if UNREACHABLE.iter().any(|words| last.contains(words)) {
                MeasureError::skip(format!(
                    "no Docker engine: {last}; start one, or set DOCKER_HOST"
                ))
            } else {
                MeasureError::fail(format!("docker version: {last}"))
            });
        }
        let version: Value = serde_json::from_slice(&answer.out).unwrap_or_default();
        // Podman's `docker` is itself the engine, without a server.
        let version =
            ["Server", "Client"].iter().find_map(|side| version[*side]["Version"].as_str());
        docker.version = version
            .ok_or_else(|| MeasureError::fail(format!("docker version: {}", shown(&answer.out))))?
            .to_owned();
        Ok(docker)
    }

    /// Returns the version and the containers' security options, in words.
    pub fn described(&self) -> Result<String> {
        let options =
            self.say(&["info", "--format", "{{json .SecurityOptions}}"], None, TIMEOUT)?;
        let options: Vec<String> = serde_json::from_str(&options).unwrap_or_default();
        let options: Vec<&str> =
            options.iter().map(|option| option.trim_start_matches("name=")).collect();
        let guarded = if options.is_empty() { "unknown".into() } else { options.join(", ") };
        Ok(format!("Docker engine {}; security options: {guarded}", self.version))
    }

    /// Runs one command and returns its output.
    pub fn say(
        &self,
        arguments: &[&str],
        input: Option<File>,
        deadline: Duration,
    ) -> Result<String> {
        let out = self.bytes(arguments, input, deadline)?;
        Ok(String::from_utf8_lossy(&out).trim().to_owned())
    }

    /// Like [`Docker::say`], but returns bytes.
    pub fn bytes(
        &self,
        arguments: &[&str],
        input: Option<File>,
        deadline: Duration,
    ) -> Result<Vec<u8>> {
        let what = arguments.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        let deadline = deadline::within(deadline);
        let answer = self.call(arguments, input, deadline).during("starting `docker`")?;
        let answer = answer.ok_or_else(|| {
            let seconds = deadline.as_secs();
            MeasureError::skip(format!(
                "the Docker engine is too slow: `docker {what}` did not end within {seconds} s"
            ))
        })?;
        if answer.status.success() {
            Ok(answer.out)
        } else {
            Err(MeasureError::fail(format!("docker {what}: {}", answer.last_lines())))
        }
    }

    pub fn complaint_of(&self, container: &str) -> Option<String> {
        let arguments = ["logs", "--tail", "5", container];
        let answer = self.call(&arguments, None, TIMEOUT).ok()??;
        Some(last_line(&answer.complaint)).filter(|line| !line.is_empty())
    }

    /// Runs the tool until it ends. Returns `None` if the tool was killed at its deadline. The tool
    /// writes to files instead of pipes, so that no process needs to read while the tool runs,
    /// however much it prints.
    fn call(
        &self,
        arguments: &[&str],
        input: Option<File>,
        deadline: Duration,
    ) -> io::Result<Option<CliOutput>> {
        let (mut out, mut complaint) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let mut command = Command::new(TOOL);
        if let Some(host) = &self.host {
            command.env("DOCKER_HOST", host);
        }
        // SAFETY: the closure makes one system call and does not allocate.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let mut child = command
            .args(arguments)
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(out.try_clone()?)
            .stderr(complaint.try_clone()?)
            .spawn()?;
        let ended = ends_within(Pid::from_child(&child), deadline);
        if !matches!(ended, Ok(true)) {
            let _ = child.kill();
        }
        let status = child.wait()?;
        if !ended.map_err(io::Error::other)? {
            return Ok(None);
        }
        let mut answer = CliOutput { status, out: Vec::new(), complaint: String::new() };
        out.rewind()?;
        out.read_to_end(&mut answer.out)?;
        let mut complained = Vec::new();
        complaint.rewind()?;
        complaint.read_to_end(&mut complained)?;
        answer.complaint = String::from_utf8_lossy(&complained).into_owned();
        Ok(Some(answer))
    }

    /// Removes every resource with the owner's name. Returns `true` if any existed.
    fn remove_all_of(&self, owner: &ProcessIdentity) -> Result<bool> {
        let whose = format!("label={LABEL}={}", owner.name());
        let mut found = false;
        for (list, remove) in [
            (&["ps", "--all", "--quiet", "--no-trunc"][..], &["rm", "--force"][..]),
            (&["network", "ls", "--quiet", "--no-trunc"], &["network", "rm"]),
            (&["volume", "ls", "--quiet"], &["volume", "rm"]),
            (&["images", "--quiet", "--no-trunc"], &["rmi", "--force"]),
        ] {
            let listed = self.say(&[list, &["--filter", &whose]].concat(), None, TIMEOUT)?;
            let mut names: Vec<&str> = listed.split_whitespace().collect();
            names.sort_unstable();
            names.dedup();
            if !names.is_empty() {
                found = true;
                self.say(&[remove, &names[..]].concat(), None, TIMEOUT)?;
            }
        }
        Ok(found)
    }
}

impl CliOutput {
    /// Returns the last line that is not empty.
    fn last_lines(&self) -> String {
        let line = last_line(&self.complaint);
        if line.is_empty() { shown(&self.out) } else { line }
    }
}

/// Returns the name of the engine for a later process: DOCKER_HOST.
pub fn engine_name() -> String {
    std::env::var("DOCKER_HOST").unwrap_or_default()
}

/// Removes all resources that ended owners, or this process, left in an engine. Contacts an engine
/// only if a mark records that resources were left there.
pub fn sweep() {
    for left in StaleMark::all() {
        let host = Some(left.engine.clone()).filter(|host| !host.is_empty());
        let Ok(docker) = Docker::at(host) else {
            // The engine may be available at the next sweep.
            continue;
        };
        for _ in 0..LOOKS {
            match docker.remove_all_of(&left.owner) {
                Ok(true) => thread::sleep(BETWEEN_LOOKS),
                Ok(false) => {
                    left.forget();
                    break;
                }
                Err(_) => break,
            }
        }
    }
}

fn last_line(text: &str) -> String {
    let mut lines = text.lines().rev().map(str::trim);
    let line = lines
        .find(|line| !line.is_empty() && !line.starts_with("See '") && !line.starts_with("Run '"));
    line.unwrap_or_default().chars().take(SHOWN).collect()
}

fn shown(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(SHOWN).collect();
    format!("it printed {:?}", text.trim())
}

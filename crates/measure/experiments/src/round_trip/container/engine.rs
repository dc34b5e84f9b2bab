//! `container-tcp` and `container-unix`: two containers of a real engine, on their own network or
//! with a volume that both mount.
//!
//! The image contains this program (see `tontine_mechanisms::image`). It is created once per run
//! and removed at the run's end. Network, volume and containers belong to an invocation: their
//! names contain its pid, and they are removed when it ends. `tontine_mechanisms::docker::sweep`
//! removes what a killed invocation leaves behind; before that, the processes in its containers
//! exit by themselves.

use std::time::Duration;

use std::net::Ipv4Addr;

use tontine_mechanisms::docker::{Docker, LABEL, TIMEOUT, engine_name, sweep};
use tontine_mechanisms::image;
use tontine_mechanisms::owner::ProcessIdentity;

use super::{COMMAND, EndAnswer, EndRequest, EndRole, VOLUME, timeout};
use crate::prelude::*;
use crate::round_trip::end::Timed;
use crate::round_trip::harness::RoundPlan;

/// Timeout for importing an image of a few dozen megabytes.
const IMPORT: Duration = Duration::from_secs(120);
const DRIVER: &str = "bridge";

/// The connection between two containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum ContainerLink {
    Network,
    /// A volume that both mount; the containers have no network.
    Volume,
}

impl ContainerLink {
    fn kind(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }
}

pub(in super::super) fn run(plan: &RoundPlan<'_>, link: ContainerLink) -> Result<(Timed, String)> {
    let docker = Docker::find()?;
    let described = docker.described()?;
    let owner = ProcessIdentity::of_this_run()?;
    owner.mark(&engine_name())?;
    let done = timed(plan, &docker, &owner, link);
    if owner.is_this_process() {
        sweep();
    }
    let between = match link {
        ContainerLink::Network => format!("network driver {DRIVER}"),
        ContainerLink::Volume => "a shared volume, no network".to_owned(),
    };
    Ok((done?, format!("{described}; {between}")))
}

fn timed(
    plan: &RoundPlan<'_>,
    docker: &Docker,
    owner: &ProcessIdentity,
    link: ContainerLink,
) -> Result<Timed> {
    let image = image_id(docker, owner)?;
    let pair = ContainerPair::create(docker, owner, link)?;
    let (serve, at) = match link {
        ContainerLink::Network => (EndRole::TcpServer, None),
        ContainerLink::Volume => (EndRole::UnixServer, Some(EndRole::UnixClient)),
    };
    pair.start_server(&image, &EndRequest::new(plan, serve))?;
    let measured = at
        .map_or_else(|| pair.address_of_server().map(EndRole::TcpClient), Ok)
        .and_then(|ask| pair.run_client(&image, &EndRequest::new(plan, ask), plan));
    measured.map_err(|error| match (error, docker.complaint_of(&pair.server)) {
        (MeasureError::Failed(why), Some(said)) => {
            MeasureError::fail(format!("{why}; server: {said}"))
        }
        (error, _) => error,
    })
}

/// Returns the image's id: the id of an image from an earlier invocation of this run, or of a new
/// image.
fn image_id(docker: &Docker, owner: &ProcessIdentity) -> Result<String> {
    let build = image::fingerprint().during("reading /proc/self/exe")?;
    let name = format!("tontine:{}-{build}", owner.name());
    let known = docker.say(&["images", "--quiet", "--no-trunc", &name], None, TIMEOUT)?;
    if !known.is_empty() {
        return Ok(known);
    }
    let (archive, folders) = image::tree().during("making an image of this program")?;
    let label = format!("LABEL {LABEL}={}", owner.name());
    let mut arguments = vec!["import".to_owned(), "--change".to_owned(), label];
    if !folders.is_empty() {
        let folders = std::env::join_paths(&folders).map_err(|error| {
            MeasureError::skip(format!("a library's folder has a colon: {error}"))
        })?;
        let folders = format!("ENV LD_LIBRARY_PATH={}", folders.to_string_lossy());
        arguments.extend(["--change".to_owned(), folders]);
    }
    arguments.extend(["-".to_owned(), name]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    docker.say(&arguments, Some(archive), IMPORT)
}

/// An invocation's network or volume, and its containers, removed on drop.
struct ContainerPair<'a> {
    docker: &'a Docker,
    label: String,
    link: ContainerLink,
    shared: String,
    server: String,
    client: String,
}

impl<'a> ContainerPair<'a> {
    fn create(docker: &'a Docker, owner: &ProcessIdentity, link: ContainerLink) -> Result<Self> {
        // Several tasks may run in one process, but never at the same time.
        let name = format!("tontine-{}-{}", owner.name(), std::process::id());
        let pair = Self {
            docker,
            label: format!("{LABEL}={}", owner.name()),
            server: format!("{name}-server"),
            client: format!("{name}-client"),
            link,
            shared: name,
        };
        let Self { label, shared, .. } = &pair;
        let driver: &[&str] =
            if link == ContainerLink::Network { &["--driver", DRIVER] } else { &[] };
        let made = [&[link.kind(), "create", "--label", label], driver, &[shared]].concat();
        docker.say(&made, None, TIMEOUT)?;
        Ok(pair)
    }

    /// Returns the options that give a container the network or volume.
    fn attached(&self) -> [String; 2] {
        match self.link {
            ContainerLink::Network => ["--network".to_owned(), self.shared.clone()],
            ContainerLink::Volume => {
                ["--network=none".to_owned(), format!("--volume={}:{VOLUME}", self.shared)]
            }
        }
    }

    fn start_server(&self, image: &str, request: &EndRequest) -> Result<()> {
        let Self { label, server, .. } = self;
        let (request, [one, two]) = (json(request)?, self.attached());
        let run = ["run", "--detach", "--label", label, &one, &two, "--name", server];
        let run = [&run[..], &[image, image::PROGRAM, COMMAND, &request]].concat();
        self.docker.say(&run, None, TIMEOUT).map(drop)
    }

    fn address_of_server(&self) -> Result<Ipv4Addr> {
        let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}";
        let found = ["inspect", "--format", format, &self.server];
        let found = self.docker.say(&found, None, TIMEOUT)?;
        found.parse().map_err(|_| {
            MeasureError::fail(format!(
                "the server's container has no address: the engine reported {found:?}"
            ))
        })
    }

    /// Runs the client to its end. The client's samples arrive on its standard output, so they
    /// bypass the engine's log.
    fn run_client(&self, image: &str, request: &EndRequest, plan: &RoundPlan) -> Result<Timed> {
        let Self { label, client, .. } = self;
        let (request, [one, two]) = (json(request)?, self.attached());
        let run = ["run", "--log-driver", "none", "--label", label, &one, &two];
        let named = ["--name", client, image, image::PROGRAM, COMMAND, &request];
        let run = [&run[..], &named].concat();
        EndAnswer::read(&self.docker.bytes(&run, None, timeout(plan) + TIMEOUT)?)
    }
}

impl Drop for ContainerPair<'_> {
    fn drop(&mut self) {
        let Self { docker, link, shared, server, client, .. } = self;
        // If one container was never created, the other is still removed.
        let _ = docker.say(&["rm", "--force", client, server], None, TIMEOUT);
        let _ = docker.say(&[link.kind(), "rm", shared], None, TIMEOUT);
    }
}

fn json(request: &EndRequest) -> Result<String> {
    serde_json::to_string(request)
        .map_err(|error| MeasureError::fail(format!("a request: {error}")))
}

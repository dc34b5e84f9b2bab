//! Two hosts on this machine: [`across`] runs a program on each.
//!
//! Each host is a network namespace, and a veth pair joins the two. The invocation forks the
//! program of host A, which forks the program of host B and measures; a gateway is a child of the
//! program on its host. Every process dies with its parent, and no file holds a namespace, so
//! nothing is left if any of them is killed. The machine's real network is never changed.
//!
//! Without namespaces, the two programs run on this host. This module does not depend on any
//! mechanism.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::{Child, ends_within};
use tontine_host::os::namespaces::leave_network;
use tontine_host::os::netlink::Netlink;
use tontine_host::peer::ChildError;
use tontine_mechanisms::descriptor::pipe;

use super::crossing::{Crossing, HostSide};

/// The network device of each host.
const DEVICE: &str = "eth0";
/// Interval at which the invocation checks whether a process has reported an error.
const LOOK: Duration = Duration::from_millis(50);

/// The measurements of the program on host A.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CrossingTimes {
    /// Half of each round trip in ns.
    pub(super) one_way: Vec<f64>,
    /// Number of messages in the timed stream.
    pub(super) messages: usize,
    /// Duration of the timed stream in seconds, including its acknowledgement.
    pub(super) seconds: f64,
}

/// The separation of the two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostSeparation {
    /// Each program has its own network namespace.
    Namespaces,
    /// Both programs run on this host.
    OneHost,
}

/// Runs `answer` on host B and `time` on host A, and returns what `time` returns.
///
/// # Errors
/// Returns the first error of any process, and `Failed` if the program on host A does not end
/// within `patience`.
pub(super) fn across<C: Crossing>(
    crossing: &C,
    separation: HostSeparation,
    patience: Duration,
    time: impl FnOnce(&mut C::End) -> Result<CrossingTimes>,
    answer: impl FnOnce(&mut C::End) -> Result<()>,
) -> Result<CrossingTimes> {
    let errors = ChildError::new()?;
    let mut out = tempfile::tempfile().setting_up("making a temporary file")?;
    let mut child = Child::fork(|| {
        let measured = host_a(crossing, separation, &errors, time, answer);
        exit_status(&errors, measured.and_then(|times| write(&out, &times)))
    })?;
    let began = Instant::now();
    let mut in_time = false;
    while !in_time && errors.heard().is_none() && began.elapsed() < patience {
        in_time = ends_within(child.pid(), LOOK)?;
    }
    let status = child.kill()?;
    if let Some(error) = errors.heard() {
        return Err(error);
    }
    if !in_time {
        return Err(MeasureError::fail("the programs on the two hosts did not end in time"));
    }
    if status.exit_status() != Some(0) {
        return Err(MeasureError::fail(format!("the program on host A ended: {status:?}")));
    }
    read(&mut out)
}

/// Returns the exit status of a process and stores its error. If another process has already stored
/// an error, that error is the cause of this one and is kept.
pub(super) fn exit_status(errors: &ChildError, done: Result<()>) -> i32 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            if errors.heard().is_none() {
                errors.say(&error);
            }
            1
        }
    }
}

fn write(mut out: &File, times: &CrossingTimes) -> Result<()> {
    let text = serde_json::to_vec(times)
        .map_err(|error| MeasureError::fail(format!("writing the samples: {error}")))?;
    out.write_all(&text).during("write")
}

fn read(out: &mut File) -> Result<CrossingTimes> {
    let mut text = Vec::new();
    out.rewind().during("lseek")?;
    out.read_to_end(&mut text).during("read")?;
    serde_json::from_slice(&text)
        .map_err(|error| MeasureError::fail(format!("reading the samples: {error}")))
}

/// The program on host A. At its end it kills the program on host B.
fn host_a<C: Crossing>(
    crossing: &C,
    separation: HostSeparation,
    errors: &ChildError,
    time: impl FnOnce(&mut C::End) -> Result<CrossingTimes>,
    answer: impl FnOnce(&mut C::End) -> Result<()>,
) -> Result<CrossingTimes> {
    if separation == HostSeparation::Namespaces {
        leave_network()?;
    }
    let (here, there) = StepPipes::pair()?;
    let (here, there) = (Cell::new(Some(here)), Cell::new(Some(there)));
    let host_b = Child::fork(|| {
        // Each side closes the other side's ends, so that a death appears as an end of file. An
        // error is stored before that, because it is the cause.
        drop(here.take());
        there.take().map_or(1, |steps| {
            exit_status(errors, host_b(crossing, separation, errors, &steps, answer))
        })
    })?;
    drop(there.take());
    let Some(steps) = here.take() else {
        return Err(MeasureError::fail("the ends of a pipe were taken twice"));
    };
    if separation == HostSeparation::Namespaces {
        steps.wait("host B has no network namespace")?;
        let mut netlink = Netlink::open()?;
        netlink.add_cable(DEVICE, DEVICE, host_b.pid())?;
        configure(&mut netlink, HostSide::A)?;
        steps.report()?;
    }
    steps.wait("host B did not prepare its end")?;
    let half = crossing.prepare(HostSide::A, errors)?;
    steps.report()?;
    let mut end = crossing.open(HostSide::A, half)?;
    let measured = time(&mut end);
    // Before the end is dropped, so that host B does not report the end of the connection.
    drop(host_b);
    measured
}

/// The program on host B, which answers until it is killed.
fn host_b<C: Crossing>(
    crossing: &C,
    separation: HostSeparation,
    errors: &ChildError,
    steps: &StepPipes,
    answer: impl FnOnce(&mut C::End) -> Result<()>,
) -> Result<()> {
    if separation == HostSeparation::Namespaces {
        leave_network()?;
        steps.report()?;
        steps.wait("host A did not connect the network")?;
        configure(&mut Netlink::open()?, HostSide::B)?;
    }
    let half = crossing.prepare(HostSide::B, errors)?;
    steps.report()?;
    steps.wait("host A did not prepare its end")?;
    let mut end = crossing.open(HostSide::B, half)?;
    // Stored before the end is dropped, so that the cause precedes its effect on host A.
    answer(&mut end).inspect_err(|error| errors.say(error))
}

fn configure(netlink: &mut Netlink, side: HostSide) -> Result<()> {
    netlink.add_address(DEVICE, side.address())?;
    netlink.up(DEVICE)?;
    netlink.up("lo")
}

/// One side's ends of two pipes, over which the sides report each step of the preparation.
struct StepPipes {
    read: OwnedFd,
    write: OwnedFd,
}

impl StepPipes {
    fn pair() -> Result<(Self, Self)> {
        let ((here, to_here), (there, to_there)) = (pipe()?, pipe()?);
        let here = Self { read: here, write: to_there };
        Ok((here, Self { read: there, write: to_here }))
    }

    fn report(&self) -> Result<()> {
        report_to(&self.write)
    }

    fn wait(&self, otherwise: &str) -> Result<()> {
        wait_for(&self.read, otherwise)
    }
}

/// Reports a step over a pipe.
pub(super) fn report_to(pipe: &OwnedFd) -> Result<()> {
    rustix::io::write(pipe, &[1]).during("write").map(drop)
}

/// Waits for a step that another process reports over a pipe. Fails if that process has ended.
pub(super) fn wait_for(pipe: &OwnedFd, otherwise: &str) -> Result<()> {
    let mut byte = [0_u8];
    match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut byte)).during("read")? {
        1 => Ok(()),
        _ => Err(MeasureError::fail(otherwise)),
    }
}

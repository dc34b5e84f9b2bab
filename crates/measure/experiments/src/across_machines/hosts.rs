//! Two hosts on this machine: [`across`] runs a program on each.
//!
//! Each host is a network namespace, and a veth pair joins the two. The invocation forks the
//! program of host A, which forks the program of host B and measures; a gateway is a child of the
//! program on its host. Every process dies with its parent, and no file holds a namespace, so
//! nothing is left if any of them is killed. The machine's real network is never changed.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use std::fs::File;
use std::io::Seek;
use std::net::{Ipv4Addr, SocketAddrV4};

use tontine_bench::os::namespaces::leave_network;
use tontine_bench::os::program::{find, last_lines};
use tontine_mechanisms::descriptor::pipe;

use super::timing::{CrossingEnd, CrossingTimes};
use crate::prelude::*;

/// The port at which host B listens. Its network namespace contains no other process.
const PORT: u16 = 7_447;
/// Interval at which the invocation checks whether a process has reported an error.
const LOOK: Duration = Duration::from_millis(50);

/// One of the two hosts. The program on host A connects, sends first and measures; the program on
/// host B listens and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostSide {
    A,
    B,
}

impl HostSide {
    pub(super) fn name(self) -> &'static str {
        if self == Self::A { "A" } else { "B" }
    }

    pub(super) fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }

    fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 70, 5, if self == Self::A { 1 } else { 2 })
    }

    pub(super) fn listener() -> SocketAddrV4 {
        SocketAddrV4::new(Self::B.address(), PORT)
    }
}

/// A connection between a program on each host.
///
/// Host B prepares, then host A prepares, then both open. Each step runs in the program's own
/// process, which is single-threaded until then.
pub(super) trait Crossing {
    /// The preparation of one side, to which the other side may connect.
    type Half;
    type End: CrossingEnd;

    /// Prepares one side. A process that this side starts stores its error in `errors`.
    fn prepare(&self, side: HostSide, errors: &ChildError) -> Result<Self::Half>;

    fn open(&self, side: HostSide, half: Self::Half) -> Result<Self::End>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostSeparation {
    Namespaces,
    OneHost,
}

/// Runs `answer` on host B and `time` on host A, and returns what `time` returns, or the first
/// error of any process. Fails if the program on host A does not end within `timeout`.
pub(super) fn across<C: Crossing>(
    crossing: &C,
    separation: HostSeparation,
    timeout: Duration,
    time: impl FnOnce(&mut C::End) -> Result<CrossingTimes>,
    answer: impl FnOnce(&mut C::End) -> Result<()>,
) -> Result<CrossingTimes> {
    let errors = ChildError::new()?;
    let mut out = tempfile::tempfile().setting_up("making a temporary file")?;
    let mut child = Child::fork(|| {
        let measured = host_a(crossing, separation, &errors, time, answer);
        errors.status(measured.and_then(|times| write(&out, &times)))
    })?;
    let began = Instant::now();
    let mut in_time = false;
    while !in_time && errors.heard().is_none() && began.elapsed() < timeout {
        in_time = ends_within(child.pid(), LOOK)?;
    }
    let status = child.kill()?;
    if let Some(error) = errors.heard() {
        return Err(error);
    }
    ensure!(in_time, "the programs on the two hosts did not end in time");
    ensure!(status.exit_status() == Some(0), "the program on host A ended: {status:?}");
    out.rewind().during("lseek")?;
    serde_json::from_reader(&out)
        .map_err(|error| MeasureError::fail(format!("reading the samples: {error}")))
}

fn write(out: &File, times: &CrossingTimes) -> Result<()> {
    serde_json::to_writer(out, times)
        .map_err(|error| MeasureError::fail(format!("writing the samples: {error}")))
}

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
    let ((here, to_here), (there, to_there)) = (pipe()?, pipe()?);
    let here = Cell::new(Some(StepPipes { read: here, write: to_there }));
    let there = Cell::new(Some(StepPipes { read: there, write: to_here }));
    let host_b = Child::fork(|| {
        // Each side closes the other side's ends, so that a death appears as an end of file. An
        // error is stored before that, because it is the cause.
        drop(here.take());
        let run = |steps| errors.status(host_b(crossing, separation, errors, &steps, answer));
        there.take().map_or(1, run)
    })?;
    drop(there.take());
    let steps = here.take().ok_or_else(|| MeasureError::fail("a pipe was taken twice"))?;
    if separation == HostSeparation::Namespaces {
        steps.wait("host B has no network namespace")?;
        let process = host_b.pid();
        ip(&format!("link add eth0 type veth peer name eth0 netns {process}"))?;
        configure(HostSide::A)?;
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
        configure(HostSide::B)?;
    }
    let half = crossing.prepare(HostSide::B, errors)?;
    steps.report()?;
    steps.wait("host A did not prepare its end")?;
    let mut end = crossing.open(HostSide::B, half)?;
    // Stored before the end is dropped, so that the cause precedes its effect on host A.
    answer(&mut end).inspect_err(|error| errors.say(error))
}

fn configure(side: HostSide) -> Result<()> {
    ip(&format!("address add {}/24 dev eth0", side.address()))?;
    ip("link set eth0 up")?;
    ip("link set lo up")
}

fn ip(arguments: &str) -> Result<()> {
    let program = find("ip").ok_or_else(|| MeasureError::skip("needs ip: install iproute2"))?;
    let done = Command::new(program).args(arguments.split(' ')).output().setting_up("ip")?;
    if done.status.success() {
        return Ok(());
    }
    Err(MeasureError::skip(format!("ip {arguments}: {}", last_lines(&done.stderr))))
}

/// A side's ends of two pipes, over which the sides report each step of the preparation.
struct StepPipes {
    read: OwnedFd,
    write: OwnedFd,
}

impl StepPipes {
    fn report(&self) -> Result<()> {
        report_to(&self.write)
    }

    fn wait(&self, otherwise: &str) -> Result<()> {
        wait_for(&self.read, otherwise)
    }
}

pub(super) fn report_to(pipe: &OwnedFd) -> Result<()> {
    rustix::io::write(pipe, &[1]).during("write").map(drop)
}

/// Waits for a step that another process reports over a pipe. Fails if that process has ended.
pub(super) fn wait_for(pipe: &OwnedFd, otherwise: &str) -> Result<()> {
    match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut [0])).during("read")? {
        1 => Ok(()),
        _ => Err(MeasureError::fail(otherwise)),
    }
}

//! `container-netns`: an engine's namespaces, without an engine.
//!
//! A forked process, the *switch*, has its own network namespace, which contains a bridge. Each end
//! is a process with its own network, mount, PID, IPC and UTS namespaces; a veth pair connects it
//! to a port of that bridge. A message therefore takes the same path as in an engine's network with
//! the driver `bridge`. Unlike an engine's container, an end has no separate root file system, no
//! cgroup, no seccomp filter and no firewall rules.
//!
//! The machine's real network is never changed. The processes hold all resources, and each process
//! dies with its parent.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::child::{Child, ends_within};
use tontine_host::os::namespaces::{leave_all, leave_network};
use tontine_host::os::netlink::Netlink;
use tontine_host::os::shared::SharedMapping;
use tontine_host::peer::ChildError;
use tontine_mechanisms::descriptor::pipe;

use super::{EndRequest, EndRole, answer, obey, patience};
use crate::round_trip::Timed;
use crate::round_trip::harness::RoundPlan;

/// The bridge, in the switch's namespace.
const BRIDGE: &str = "br0";
/// The device inside the container, with the name that an engine uses.
const INSIDE: &str = "eth0";
/// The file that sets the milliseconds after which a request for a hardware address is repeated.
const ASK_AGAIN: &str = "/proc/sys/net/ipv4/neigh/eth0/retrans_time_ms";
/// Addresses of server and client; no other process is in these namespaces.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 70, 4, 1), Ipv4Addr::new(10, 70, 4, 2)];
/// Timeout for the server to end after the client has ended.
const FAREWELL: Duration = Duration::from_secs(2);

/// The note on the figure.
const NOTE: &str = "no engine: separate network, mount, PID, IPC and UTS namespaces, two veth \
                    pairs and a bridge, as in an engine's default; no seccomp filter, cgroup or \
                    firewall rule";

/// Times the rounds of a plan.
pub(in super::super) fn run(plan: &RoundPlan) -> Result<(Timed, String)> {
    let words = ChildError::new()?;
    let mut out = tempfile::tempfile().setting_up("making a temporary file")?;
    let mut child = Child::fork(|| said(&words, switch(plan, &words, &out)))?;
    let in_time = ends_within(child.pid(), patience(plan) + FAREWELL)?;
    let status = child.kill()?;
    if let Some(trouble) = words.heard() {
        return Err(trouble);
    }
    if !in_time {
        return Err(MeasureError::fail(
            "the two processes in their own namespaces did not end in time",
        ));
    }
    if status.exit_status() != Some(0) {
        return Err(MeasureError::fail(format!(
            "the process that holds the bridge ended: {status:?}"
        )));
    }
    let mut bytes = Vec::new();
    out.rewind().during("lseek")?;
    out.read_to_end(&mut bytes).during("read")?;
    Ok((answer::read(&bytes)?, NOTE.to_owned()))
}

/// Returns the exit status of a process and records its error. If another process has already
/// recorded an error, that error is the cause of this one and is kept.
fn said(words: &SharedMapping<ChildError>, done: Result<()>) -> i32 {
    match done {
        Ok(()) => 0,
        Err(trouble) => {
            if words.heard().is_none() {
                words.say(&trouble);
            }
            1
        }
    }
}

/// Creates the bridge in a forked process, starts both ends on it, and waits until the client ends.
fn switch(plan: &RoundPlan, words: &SharedMapping<ChildError>, out: &File) -> Result<()> {
    leave_network()?;
    let mut netlink = Netlink::open()?;
    netlink.add_bridge(BRIDGE)?;
    netlink.up(BRIDGE)?;
    let [at, _] = ADDRESSES;
    let orders = [EndRole::TcpServer, EndRole::TcpClient(at)].map(|it| EndRequest::new(plan, it));
    let mut ends = Vec::new();
    for ((order, address), port) in orders.iter().zip(ADDRESSES).zip(["port0", "port1"]) {
        ends.push(plugged_in(&mut netlink, order, address, port, words, out)?);
    }
    let mut client = ends.pop().ok_or_else(|| MeasureError::fail("there is no client"))?;
    let ended = client.wait()?;
    if ended.exit_status() != Some(0) && words.heard().is_none() {
        return Err(MeasureError::fail(format!("the client ended: {ended:?}")));
    }
    // If its client failed, a server may wait indefinitely; dropping the server kills it.
    for server in &ends {
        ends_within(server.pid(), FAREWELL)?;
    }
    Ok(())
}

/// Starts an end in its own namespaces and connects it to the bridge.
fn plugged_in(
    netlink: &mut Netlink,
    order: &EndRequest,
    address: Ipv4Addr,
    port: &str,
    words: &SharedMapping<ChildError>,
    out: &File,
) -> Result<Child> {
    let ((entered, enter), (plugged, plug)) = (pipe()?, pipe()?);
    // Each side closes the other side's ends, so that a death appears as an end of file.
    let (outside, inside) = (std::cell::Cell::new(Some((entered, plug))), (enter, plugged));
    let child = Child::fork(|| {
        drop(outside.take());
        said(words, end(order, address, inside, words, out))
    })?;
    if let Some((entered, plug)) = outside.take() {
        await_byte(&entered, || "a process did not enter namespaces of its own".to_owned())?;
        join(netlink, port, child.pid())?;
        rustix::io::write(&plug, &[1]).during("write")?;
    }
    Ok(child)
}

fn join(netlink: &mut Netlink, port: &str, process: Pid) -> Result<()> {
    netlink.add_pair(port, BRIDGE, INSIDE, process)?;
    netlink.up(port)
}

/// Enters the namespaces in a forked process, waits for the device, and executes the request in a
/// child, which is the first process of its PID namespace.
fn end(
    order: &EndRequest,
    address: Ipv4Addr,
    (enter, plugged): (OwnedFd, OwnedFd),
    words: &SharedMapping<ChildError>,
    mut out: &File,
) -> Result<()> {
    leave_all()?;
    rustix::io::write(&enter, &[1]).during("write")?;
    await_byte(&plugged, || "the bridge's holder ended".to_owned())?;
    let mut netlink = Netlink::open()?;
    netlink.add_address(INSIDE, address)?;
    // The bridge begins to forward a moment after the last device is up. The first request may
    // therefore be lost, and is by default repeated only after a whole second. If this write fails,
    // the connection takes that long.
    let _ = fs::write(ASK_AGAIN, "10");
    netlink.up(INSIDE)?;
    netlink.up("lo")?;
    // Inside its PID namespace the child does not see whether its parent, which alone holds the
    // write end, has ended before the kernel was told to kill the child with it.
    let (parent, hold) = pipe()?;
    let hold = std::cell::Cell::new(Some(hold));
    let mut first = Child::fork(|| {
        drop(hold.take());
        if is_hung_up(&parent) { 1 } else { said(words, obey(order, &mut out)) }
    })?;
    let status = first.wait()?;
    match status.exit_status() {
        Some(0) => Ok(()),
        _ => Err(MeasureError::fail(format!("an end inside its namespaces ended: {status:?}"))),
    }
}

/// Returns `true` if no process holds the write end of the pipe.
fn is_hung_up(pipe: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    let found = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    found.is_err() || polled[0].revents().contains(PollFlags::HUP)
}

fn await_byte(from: &OwnedFd, otherwise: impl FnOnce() -> String) -> Result<()> {
    let mut byte = [0_u8];
    match rustix::io::retry_on_intr(|| rustix::io::read(from, &mut byte)).during("read")? {
        1 => Ok(()),
        _ => Err(MeasureError::fail(otherwise())),
    }
}

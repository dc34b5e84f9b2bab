//! `across-machines`: the cost of a message between programs on two hosts: [`AcrossMachines`].
//!
//! The hosts are network namespaces of this machine (`hosts`). A message crosses through a gateway
//! on each host (`gateways`), over one TCP connection, or over ZeroMQ (`ends`), by the protocol in
//! `timing`. A bench of `tontine-gateway` measures message brokers with their own programs.

use std::time::Duration;

use crate::prelude::*;
use ends::TcpCrossing;
use gateways::{GatewayKind, MailboxCrossing};
use hosts::{Crossing, HostSeparation, across};
use timing::{CrossingTimes, CrossingWork};

mod ends;
mod gateways;
mod hosts;
mod timing;

const MESSAGE: &str = "64";
const ONE_BY_ONE: &str = "one by one";
const STREAM: &str = "stream";
/// The variant that shows how many messages the connection itself can carry.
const BUFFERED: &str = "tcp-buffered";
/// The variant whose gateways are programs, with Zenoh as their carrier.
const OVER_ZENOH: &str = "tontine-zenoh";
const PROCESSES: usize = 4;

pub(crate) struct AcrossMachines;

impl Experiment for AcrossMachines {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        let cell = |traffic: &&str| {
            params([("placement", "unpinned"), ("size", MESSAGE), ("traffic", traffic)])
        };
        // In a round trip a buffer has nothing to collect.
        let traffic: &[&str] = if variant == BUFFERED { &[STREAM] } else { &[ONE_BY_ONE, STREAM] };
        traffic.iter().map(cell).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.remote_rounds()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let rounds = self.operations(&task.variant, task.size);
        let work = match word(&task.params, "traffic") {
            ONE_BY_ONE => CrossingWork::Rounds { rounds, warm_up: task.size.warm_up(rounds) },
            STREAM => {
                let budget = Duration::from_millis(task.size.remote_streaming_ms() as u64);
                CrossingWork::Stream(budget)
            }
            other => return Err(unknown("across-machines", "traffic", other)),
        };
        measure(&task.variant, work, task.size.timeout())
    }
}

fn measure(variant: &str, work: CrossingWork, timeout: Duration) -> Result<Observed> {
    match variant {
        "tontine" => through_gateways(GatewayKind::Tcp, work, timeout),
        OVER_ZENOH => through_gateways(GatewayKind::Zenoh, work, timeout),
        "tcp" => measure_one(&TcpCrossing { buffered: false }, work, timeout),
        BUFFERED => measure_one(&TcpCrossing { buffered: true }, work, timeout),
        #[cfg(feature = "peers")]
        "zeromq-tcp" => measure_one(&ends::ZeroMqCrossing, work, timeout),
        other => Err(unknown("across-machines", "variant", other)),
    }
}

fn measure_one<C: Crossing>(
    crossing: &C,
    work: CrossingWork,
    timeout: Duration,
) -> Result<Observed> {
    let times = run(crossing, HostSeparation::Namespaces, work, timeout)?;
    Ok(Observed::of([series(times)], Vec::new()))
}

/// Measures the path through gateways. Round trips are measured before that between the same two
/// programs on one host, each of which sends into the other's mailbox.
fn through_gateways(kind: GatewayKind, work: CrossingWork, timeout: Duration) -> Result<Observed> {
    // A program that waits for an answer of another host, which is never there within
    // microseconds, sleeps at once. In a stream the default is used.
    let sleeps = matches!(work, CrossingWork::Rounds { .. });
    let mut local = None;
    if sleeps {
        let folder = Folder::new("hosts")?;
        let crossing = MailboxCrossing { folder: folder.path(), gateways: None, sleeps };
        local = Some(run(&crossing, HostSeparation::OneHost, work, timeout)?.one_way);
    }
    // A new directory, because the mailboxes of killed programs are left in the first one.
    let folder = Folder::new("hosts")?;
    let crossing = MailboxCrossing { folder: folder.path(), gateways: Some(kind), sleeps };
    let remote = run(&crossing, HostSeparation::Namespaces, work, timeout)?;

    let mut observed = Observed::default();
    if let Some(local) = local {
        let medians = order::median(&remote.one_way).zip(order::median(&local));
        observed.ratios.extend(medians.map(|(remote, local)| PairedRatio {
            name: "through gateways / on one host".into(),
            value: remote / local,
        }));
        observed.series.push(Series::ns("one_way_local", local));
    }
    observed.series.insert(0, series(remote));
    let processors = pin::allowed()?.len();
    if processors < PROCESSES {
        observed.notes.push(format!("{PROCESSES} processes on {processors} processors"));
    }
    Ok(observed)
}

fn run<C: Crossing>(
    crossing: &C,
    separation: HostSeparation,
    work: CrossingWork,
    timeout: Duration,
) -> Result<CrossingTimes> {
    let (time, answer) = (|end: &mut _| timing::time(work, end), |end: &mut _| timing::answer(end));
    across(crossing, separation, timeout, time, answer)
}

/// Returns the latency of each message, or the rate of the stream as a single figure, because a
/// queue that fills and drains in bursts has no typical part.
fn series(times: CrossingTimes) -> Series {
    let CrossingTimes { one_way, messages, seconds } = times;
    if messages == 0 {
        return Series::ns("one_way", one_way);
    }
    let rate = messages as f64 / seconds;
    Series::ns("rate", vec![rate]).in_unit("messages/s").batched(messages)
}

#[cfg(test)]
mod tests;

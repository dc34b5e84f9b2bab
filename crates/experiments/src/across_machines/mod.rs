//! `across-machines`: the cost of a message between programs on two hosts: [`AcrossMachines`].
//!
//! Two network namespaces of this machine, joined by a veth pair, represent the hosts (`hosts`). A
//! message crosses through a gateway on each host (`gateways`), over one TCP connection
//! (`coded_tcp`), over ZeroMQ (`zeromq_tcp`), or through a message server on host B (`nats`,
//! `redis`). Every row follows the protocol in `timing`.
//!
//! The network between the hosts is the kernel's own: it neither loses nor delays a packet, so the
//! figures show the cost of the programs and of TCP, not that of a network.

use std::time::Duration;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, PairedRatio, Series};
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::error::{MeasureError, Result};
use tontine_host::leftovers::Folder;
use tontine_host::os::pin;

use coded_tcp::TcpCrossing;
use crossing::Crossing;
use gateways::{GatewayKind, MailboxCrossing};
use hosts::{CrossingTimes, HostSeparation, across};
use nats::NatsCodec;
use redis::RedisCodec;
use server::{MessageServer, ServerCrossing};
use timing::CrossingWork;

mod coded_tcp;
mod crossing;
mod explained;
mod gateways;
mod hosts;
mod nats;
mod redis;
mod server;
mod timing;
#[cfg(feature = "peers")]
mod zeromq_tcp;

/// Bytes per message, [`timing::BYTES`].
const MESSAGE: &str = "64";
/// Traffic in which each message waits for the answer to the one before it.
const ONE_BY_ONE: &str = "one by one";
/// Traffic in which messages follow each other without a wait.
const STREAM: &str = "stream";
/// The variant that shows how many messages the connection itself can carry.
const BUFFERED: &str = "tcp-buffered";
/// The variant whose gateways are programs, with Zenoh as their carrier.
const OVER_ZENOH: &str = "tontine-zenoh";
/// Number of processes on the path through gateways.
const PROCESSES: usize = 4;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct AcrossMachines;

impl Experiment for AcrossMachines {
    fn name(&self) -> &'static str {
        "across-machines"
    }

    fn summary(&self) -> &'static str {
        "What does a message between two hosts cost through gateways, and next to bare TCP?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn params(&self, variant: &str, _: &Topology, _: Size) -> Vec<Params> {
        let cell = |traffic: &str| {
            let params = [("placement", "unpinned"), ("size", MESSAGE), ("traffic", traffic)];
            params.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        // In a round trip a buffer has nothing to collect.
        let traffic: &[&str] = if variant == BUFFERED { &[STREAM] } else { &[ONE_BY_ONE, STREAM] };
        traffic.iter().map(|traffic| cell(traffic)).collect()
    }

    /// Returns the number of round trips. A stream takes a fixed time.
    fn operations(&self, _: &str, size: Size) -> usize {
        size.remote_rounds()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let rounds = self.operations(&task.variant, task.size);
        let work = match task.params.get("traffic").map(String::as_str) {
            Some(ONE_BY_ONE) => CrossingWork::Rounds { rounds, warm_up: task.size.warm_up(rounds) },
            Some(STREAM) => {
                let budget = Duration::from_millis(task.size.remote_streaming_ms() as u64);
                CrossingWork::Stream(budget)
            }
            other => {
                return Err(MeasureError::fail(format!(
                    "expected traffic to be `{ONE_BY_ONE}` or `{STREAM}`, found {other:?}"
                )));
            }
        };
        measure(&task.variant, work, task.size.patience())
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let to_tcp = VARIANTS.iter().map(|variant| (variant.name, "tcp"));
        let to_tcp = to_tcp.filter(|(name, _)| *name != "tcp");
        let of_gateways = ["tontine", OVER_ZENOH].into_iter().flat_map(|name| {
            [BUFFERED, "zeromq-tcp", "nats", "redis-stream"].map(|base| (name, base))
        });
        to_tcp.chain(of_gateways).chain([(OVER_ZENOH, "tontine")]).collect()
    }
}

/// Measures a variant.
fn measure(variant: &str, work: CrossingWork, patience: Duration) -> Result<Observed> {
    match variant {
        "tontine" => through_gateways(GatewayKind::Tcp, work, patience),
        OVER_ZENOH => through_gateways(GatewayKind::Zenoh, work, patience),
        "nats" => through_server::<NatsCodec>(work, patience),
        "redis-stream" => through_server::<RedisCodec>(work, patience),
        "tcp" => measure_one(&TcpCrossing { buffered: false }, work, patience),
        BUFFERED => measure_one(&TcpCrossing { buffered: true }, work, patience),
        #[cfg(feature = "peers")]
        "zeromq-tcp" => measure_one(&zeromq_tcp::ZeroMqCrossing, work, patience),
        other => Err(MeasureError::fail(format!("across-machines has no variant {other}"))),
    }
}

fn measure_one<C: Crossing>(
    crossing: &C,
    work: CrossingWork,
    patience: Duration,
) -> Result<Observed> {
    let times = run(crossing, HostSeparation::Namespaces, work, patience)?;
    Ok(Observed { series: vec![series(times)], ..Observed::default() })
}

fn through_server<S: MessageServer>(work: CrossingWork, patience: Duration) -> Result<Observed> {
    let folder = Folder::new("hosts")?;
    measure_one(&ServerCrossing::<S>::new(folder.path()), work, patience)
}

/// Measures the path through gateways. Round trips are measured before that between the same two
/// programs on one host, each of which sends into the other's mailbox.
fn through_gateways(kind: GatewayKind, work: CrossingWork, patience: Duration) -> Result<Observed> {
    // A program that waits for an answer of another host, which is never there within
    // microseconds, sleeps at once. In a stream the default is used.
    let sleeps = matches!(work, CrossingWork::Rounds { .. });
    let mut local = None;
    if sleeps {
        let folder = Folder::new("hosts")?;
        let crossing = MailboxCrossing { folder: folder.path(), gateways: None, sleeps };
        local = Some(run(&crossing, HostSeparation::OneHost, work, patience)?.one_way);
    }
    // A new directory, because the mailboxes of killed programs are left in the first one.
    let folder = Folder::new("hosts")?;
    let crossing = MailboxCrossing { folder: folder.path(), gateways: Some(kind), sleeps };
    let remote = run(&crossing, HostSeparation::Namespaces, work, patience)?;

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
    patience: Duration,
) -> Result<CrossingTimes> {
    let (time, answer) = (|end: &mut _| timing::time(work, end), |end: &mut _| timing::answer(end));
    across(crossing, separation, patience, time, answer)
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

const VARIANTS: &[Variant] = &[
    Variant {
        name: "tontine",
        summary: "program, mailbox, gateway, TCP, gateway, mailbox, program; acknowledged",
    },
    Variant {
        name: OVER_ZENOH,
        summary: "the same with `tontine-bridge-zenoh`: Zenoh over TCP between the gateways",
    },
    Variant { name: "tcp", summary: "one TCP connection, one write per message, TCP_NODELAY" },
    Variant {
        name: BUFFERED,
        summary: "the same, but one write per 60 KiB of messages: a stream's ceiling",
    },
    #[cfg(feature = "peers")]
    Variant { name: "zeromq-tcp", summary: "ZeroMQ PAIR sockets over TCP" },
    Variant { name: "nats", summary: "a NATS server on host B; core NATS" },
    Variant { name: "redis-stream", summary: "a Redis server on host B; XADD and XREAD in memory" },
];

#[cfg(test)]
mod tests;

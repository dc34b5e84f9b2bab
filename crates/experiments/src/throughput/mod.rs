//! `throughput`: the messages per second that stream from senders to one receiver: [`Throughput`].
//!
//! Senders send as fast as the mechanism permits. The receiver takes every message, checks its
//! [`label`], and stamps batches. The protocol is in [`harness`]; the mechanisms are those of
//! `tontine_mechanisms`, and [`opened`] opens their ends. `memcpy`, a plain copy without a receiver
//! to notify, is the floor for large messages. Before it is sent, a message is in the sender's own
//! memory, and it stays there. Afterwards it is also in memory that the receiver can read; if the
//! mechanism permits reading in place, the receiver reads it there.
//!
//! If a message is lost, duplicated or torn, the row fails.
//!
//! `round-trip` times a single message; `survival` counts the messages that a death loses.

mod checked;
mod copy;
mod explained;
mod harness;
mod label;
mod opened;
mod threads;

use std::sync::LazyLock;
use std::time::Duration;

use harness::{Batches, StreamPlan};
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;
use tontine_mechanisms::about::Asked;
use tontine_mechanisms::driver::Driver;
use tontine_mechanisms::registry;

use crate::mechanisms::{self, spins};
use checked::CheckedFlow;
use opened::Flow;

/// Message sizes in bytes.
const SIZES: [usize; 5] = [8, 64, 1024, 65_536, 1_048_576];

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Throughput;

impl Experiment for Throughput {
    fn name(&self) -> &'static str {
        "throughput"
    }

    fn summary(&self) -> &'static str {
        "How many messages and bytes per second stream from senders to one receiver?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        static EXPLANATION: LazyLock<Explanation> =
            LazyLock::new(|| mechanisms::explained(explained::EXPLANATION, Asked::Throughput));
        &EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    /// Returns every message size, with every number of senders for which the mechanism keeps
    /// messages whole.
    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let sizes: &[usize] = match size {
            Size::Quick => &[SIZES[0], SIZES[SIZES.len() - 1]],
            Size::Default | Size::Full => &SIZES,
        };
        let senders: &[usize] = match size {
            Size::Quick | Size::Default => &[1, 2],
            Size::Full => &[1, 2, 4],
        };
        let cell = |bytes: usize, senders: usize| {
            Params::from([
                ("size".to_owned(), bytes.to_string()),
                ("senders".to_owned(), senders.to_string()),
            ])
        };
        let cells = sizes
            .iter()
            .flat_map(|&bytes| senders.iter().map(move |&senders| (bytes, senders)))
            .filter(|&(bytes, senders)| senders == 1 || takes_several(variant, bytes))
            .map(|(bytes, senders)| cell(bytes, senders))
            .collect();
        mechanisms::in_brief(cells, variant, Asked::Throughput, size)
    }

    /// The duration of an invocation in ms, which determines the number of messages.
    fn operations(&self, _: &str, size: Size) -> usize {
        size.streaming_ms()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let number = |name: &str| -> Result<usize> {
            let text = task.params.get(name).map_or("", String::as_str);
            text.parse().ok().filter(|&number| number > 0).ok_or_else(|| {
                MeasureError::fail(format!(
                    "expected {name} to be a positive number, found `{text}`"
                ))
            })
        };
        let budget = Duration::from_millis(self.operations(&task.variant, task.size) as u64);
        measure(&task.variant, number("size")?, number("senders")?, budget)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let streams = VARIANTS.iter().map(|variant| variant.name).filter(|name| *name != FLOOR);
        let rivals = [("rtrb", "mailbox"), ("crossbeam", "mailbox"), ("iceoryx2", "mailbox")];
        streams.map(|name| (name, FLOOR)).chain(rivals).collect()
    }
}

/// Returns `true` if the mechanism keeps messages of that size from several senders whole.
fn takes_several(variant: &str, bytes: usize) -> bool {
    registry::find(variant).is_some_and(|mechanism| bytes <= mechanism.shared_up_to)
}

/// Streams messages for `budget`.
fn measure(variant: &str, bytes: usize, senders: usize, budget: Duration) -> Result<Observed> {
    if !VARIANTS.iter().any(|known| known.name == variant) {
        return Err(MeasureError::fail(format!("throughput has no variant {variant}")));
    }
    let allowed = pin::allowed()?;
    if spins(variant) && allowed.len() < 2 {
        return Err(MeasureError::skip(
            "needs two processors: two spinning ends on one only wait for each other",
        ));
    }
    if bytes < label::BYTES || !bytes.is_multiple_of(label::BYTES) {
        return Err(MeasureError::fail(format!(
            "a message of {bytes} bytes has no space for its label"
        )));
    }
    let plan = StreamPlan::new(bytes, senders, budget, &allowed, Clock::calibrated());
    let (batches, note) = match variant {
        FLOOR => (copy::run(&plan)?, None),
        other => registry::streams(other, plan.traffic(), Flow(&plan))??,
    };
    let mut notes = Vec::new();
    if variant != FLOOR && senders >= allowed.len() {
        notes.push(format!(
            "{senders} senders and a receiver on {} processors: some share one",
            allowed.len()
        ));
    }
    notes.extend(note);
    Ok(Observed { series: series(batches, bytes), notes, ..Observed::default() })
}

/// Streams messages of `bytes` bytes from one process by the mechanism of `D`. Returns the
/// nanoseconds per message without a check and with `kill(pid, 0)` before each message, of `pairs`
/// streams each, in turn.
///
/// # Errors
/// Returns the errors of [`Experiment::run`].
pub(crate) fn beside_kill<D: Driver>(
    bytes: usize,
    budget: Duration,
    pairs: usize,
) -> Result<[Vec<f64>; 2]> {
    let plan = StreamPlan::new(bytes, 1, budget, &pin::allowed()?, Clock::calibrated());
    let lacks = || MeasureError::fail(format!("{} has no stream", D::MECHANISM.name));
    let each =
        |batches: Batches| batches.message_ns.iter().sum::<f64>() / batches.message_ns.len() as f64;
    let [mut bare, mut checked] = [Vec::new(), Vec::new()];
    for _ in 0..pairs {
        let (batches, _) = D::streams(plan.traffic(), Flow(&plan)).ok_or_else(lacks)??;
        bare.push(each(batches));
        let batches = D::streams(plan.traffic(), CheckedFlow(&plan)).ok_or_else(lacks)??;
        checked.push(each(batches));
    }
    Ok([bare, checked])
}

/// Returns the time per message, and the same figure as two rates. If a queue fills and drains in
/// bursts, no batch is typical: only all batches together yield the rate of the stream. The mean
/// therefore represents the invocation, and each rate is a single figure from all its messages.
fn series(batches: Batches, bytes: usize) -> Vec<Series> {
    let Batches { message_ns, batch } = batches;
    let messages = message_ns.len() * batch;
    let rate = 1e9 * message_ns.len() as f64 / message_ns.iter().sum::<f64>();
    let whole = |metric: &str, unit: &str, figure: f64| {
        Series::ns(metric, vec![figure]).in_unit(unit).batched(messages)
    };
    vec![
        Series::ns("message", message_ns).batched(batch).by_mean(),
        whole("rate", "messages/s", rate),
        whole("bandwidth", "bytes/s", rate * bytes as f64),
    ]
}

/// The baseline variant.
const FLOOR: &str = "memcpy";

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| {
    let summary =
        "a plain copy on one processor, without a notification: the floor of large messages";
    let floor = Variant { name: FLOOR, summary };
    [floor].into_iter().chain(mechanisms::variants(Asked::Throughput)).collect()
});

#[cfg(test)]
mod tests;

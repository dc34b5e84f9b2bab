//! `throughput`: the messages per second that stream from senders to one receiver: [`Throughput`].
//!
//! The receiver takes every message, checks its `label`, and stamps batches (`harness`). A message
//! is in the sender's own memory before it is sent; afterwards it is also in memory that the
//! receiver can read. Two groups of variants show what a property costs: `many_senders` the number
//! of a mailbox's senders, `checked_queue` a liveness check in every send.

pub(crate) mod checked_queue;
mod harness;
mod label;
mod many_senders;
mod ring;

use std::time::Duration;

use std::hint::black_box;

use harness::{Batches, CheckedFlow, Flow, StreamPlan, in_batches};
use tontine_mechanisms::about::RowKind;
use tontine_mechanisms::driver::Traffic;
use tontine_mechanisms::registry;

use crate::mechanisms::{self, spins};
use crate::prelude::*;

const SIZES: [usize; 5] = [8, 64, 1024, 65_536, 1_048_576];

/// Maximum size of a message, and number of senders, that a task may request.
const MOST: usize = 1 << 30;

pub(crate) struct Throughput;

impl Experiment for Throughput {
    fn facts(&self) -> Facts {
        card!("card.md", |card| {
            let streams = mechanisms::rows_of(card, RowKind::Throughput);
            let (floor, properties) = card.variants.split_at(1);
            let checked: Vec<Variant> = checked_queue::variants().collect();
            let variants = [floor, streams.variants, properties, &checked].concat();
            Facts { variants: variants.leak(), ..streams }
        })
    }

    /// Returns every message size, with every number of senders for which the mechanism keeps
    /// messages whole.
    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        if many_senders::has(variant) {
            return many_senders::params(variant, size);
        }
        if checked_queue::method(variant).is_some() {
            return checked_queue::params(topology);
        }
        let sizes: &[usize] = match size {
            Size::Quick => &[SIZES[0], SIZES[SIZES.len() - 1]],
            Size::Default | Size::Full => &SIZES,
        };
        let senders: &[usize] = match size {
            Size::Quick | Size::Default => &[1, 2],
            Size::Full => &[1, 2, 4],
        };
        let cell = |bytes: usize, senders: usize| {
            params([("size", &bytes.to_string()), ("senders", &senders.to_string())])
        };
        let cells = sizes
            .iter()
            .flat_map(|&bytes| senders.iter().map(move |&senders| (bytes, senders)))
            .filter(|&(bytes, senders)| senders == 1 || takes_several(variant, bytes))
            .map(|(bytes, senders)| cell(bytes, senders))
            .collect();
        mechanisms::in_brief(cells, variant, RowKind::Throughput, size)
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        match checked_queue::method(variant) {
            Some(method) => checked_queue::operations(method, size),
            None if many_senders::has(variant) => many_senders::operations(variant, size),
            None => size.streaming_ms(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        if many_senders::has(&task.variant) {
            return many_senders::run(task);
        }
        if let Some(method) = checked_queue::method(&task.variant) {
            return checked_queue::run(method, task);
        }
        let budget = Duration::from_millis(task.size.streaming_ms() as u64);
        let number = |name| number_in(&task.params, name, 1..=MOST);
        measure(&task.variant, number("size")?, number("senders")?, budget)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let streams = registry::rows(RowKind::Throughput).map(|(mechanism, _)| mechanism.name);
        let rivals =
            ["rtrb", "crossbeam", "iceoryx2", "cloudtoid-spin"].map(|name| (name, "mailbox"));
        let order = ("mailbox-causal", "mailbox");
        streams.map(|name| (name, FLOOR)).chain(rivals).chain([order]).collect()
    }
}

/// Returns a placement with two processors, one for each end, because the ends spin.
fn apart() -> Result<Placement> {
    let placement = Topology::of_this_machine().placement("cross-core");
    placement.filter(|place| place.here != place.there).ok_or_else(|| {
        MeasureError::skip(
            "needs two processors: two spinning ends on one only wait for each other",
        )
    })
}

/// Returns `true` if the mechanism keeps messages of that size from several senders whole.
fn takes_several(variant: &str, bytes: usize) -> bool {
    registry::find(variant).is_some_and(|mechanism| bytes <= mechanism.shared_up_to)
}

fn measure(variant: &str, bytes: usize, senders: usize, budget: Duration) -> Result<Observed> {
    ensure!(
        Throughput.variants().iter().any(|known| known.name == variant),
        "throughput has no variant {variant}"
    );
    let allowed = pin::allowed()?;
    if spins(variant) && allowed.len() < 2 {
        skip!("needs two processors: two spinning ends on one only wait for each other");
    }
    if bytes < label::BYTES || !bytes.is_multiple_of(label::BYTES) {
        bail!("a message of {bytes} bytes has no space for its label");
    }
    let plan = StreamPlan::new(Traffic { bytes, senders }, budget, &allowed);
    let (batches, note) = match variant {
        FLOOR => (copy(&plan)?, None),
        other => registry::streams(other, plan.traffic, Flow(&plan))??,
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

/// Times a plain copy of each message from one buffer into another, on one processor.
fn copy(plan: &StreamPlan) -> Result<Batches> {
    let source = vec![1_u8; plan.traffic.bytes];
    let mut target = vec![2_u8; plan.traffic.bytes];
    let _pinned = Pinned::to(plan.here)?;
    in_batches(plan, || {
        target.copy_from_slice(black_box(&source));
        black_box(&mut target);
        Ok(())
    })
}

/// Streams messages of `bytes` bytes from one process by a mechanism. Returns the nanoseconds per
/// message without a check and with `kill(pid, 0)` before each message, of `pairs` streams each, in
/// turn.
pub(crate) fn beside_kill(
    mechanism: &str,
    bytes: usize,
    budget: Duration,
    pairs: usize,
) -> Result<[Vec<f64>; 2]> {
    let plan = StreamPlan::new(Traffic { bytes, senders: 1 }, budget, &pin::allowed()?);
    let each =
        |batches: Batches| batches.message_ns.iter().sum::<f64>() / batches.message_ns.len() as f64;
    let [mut bare, mut checked] = [Vec::new(), Vec::new()];
    for _ in 0..pairs {
        let (batches, _) = registry::streams(mechanism, plan.traffic, Flow(&plan))??;
        bare.push(each(batches));
        let batches = registry::streams(mechanism, plan.traffic, CheckedFlow(&plan))??;
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

const FLOOR: &str = "memcpy";

#[cfg(test)]
mod tests;

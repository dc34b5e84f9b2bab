//! `throughput`: how many messages a second stream from senders to one receiver: [`Throughput`].
//!
//! Senders send as fast as the mechanism lets them; the receiver takes every message, looks at its
//! [`label`], and stamps batches. The protocol is in [`harness`]; the mechanisms are those of
//! `tontine_mechanisms`, whose ends [`opened`] opens. `memcpy` is the floor for large messages, a
//! plain copy without a receiver to notify. A message is in the sender's own memory before and
//! stays there, and in memory that the receiver can read after; where the mechanism lets it be read
//! in place, it is read in place.
//!
//! Nothing may be lost, come twice or come torn: that is a failure of the row, not a figure.
//!
//! It does not time a single message (`round-trip` does), nor what a death loses (`survival`).

mod copy;
mod explained;
mod harness;
mod label;
mod opened;
mod threads;

use std::sync::LazyLock;
use std::time::Duration;

use harness::{Batches, Plan};
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{Params, Task};
use tontine_host::clock::Clock;
use tontine_host::os::pin;
use tontine_host::trouble::{Result, Trouble};
use tontine_mechanisms::about::Asked;
use tontine_mechanisms::registry;

use crate::mechanisms::{self, spins};
use opened::Flow;

/// Bytes a message.
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

    /// Every size of a message with every number of senders that the mechanism keeps apart.
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

    /// Time, not messages, is what an invocation is given: milliseconds of it.
    fn operations(&self, _: &str, size: Size) -> usize {
        size.streaming_ms()
    }

    fn run(&self, task: &Task) -> Result<Observed> {
        let number = |name: &str| -> Result<usize> {
            let text = task.params.get(name).map_or("", String::as_str);
            text.parse().ok().filter(|&number| number > 0).ok_or_else(|| {
                Trouble::fail(format!("expected {name} to be a positive number, found `{text}`"))
            })
        };
        let budget = Duration::from_millis(self.operations(&task.variant, task.size) as u64);
        measure(&task.variant, number("size")?, number("senders")?, budget)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        let streams = VARIANTS.iter().map(|variant| variant.name).filter(|name| *name != FLOOR);
        let beside = [("rtrb", "mailbox"), ("crossbeam", "mailbox"), ("iceoryx2", "mailbox")];
        streams.map(|name| (name, FLOOR)).chain(beside).collect()
    }
}

/// Whether messages of that size from several senders stay whole.
fn takes_several(variant: &str, bytes: usize) -> bool {
    registry::find(variant).is_some_and(|mechanism| bytes <= mechanism.shared_up_to)
}

/// Streams messages for `budget`.
fn measure(variant: &str, bytes: usize, senders: usize, budget: Duration) -> Result<Observed> {
    if !VARIANTS.iter().any(|known| known.name == variant) {
        return Err(Trouble::fail(format!("throughput has no variant {variant}")));
    }
    let allowed = pin::allowed()?;
    if spins(variant) && allowed.len() < 2 {
        return Err(Trouble::skip("needs two processors; two ends that spin on one only wait"));
    }
    if bytes < label::BYTES || !bytes.is_multiple_of(label::BYTES) {
        return Err(Trouble::fail(format!(
            "a message of {bytes} bytes has no space for its label"
        )));
    }
    let plan = Plan::new(bytes, senders, budget, &allowed, Clock::calibrated());
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

/// The time of a message, and the same as two rates. Where a queue fills and drains in bursts, no
/// batch is typical: only all of them together say how fast the stream is, so the mean stands for
/// the invocation, and each rate is one figure of all its messages.
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

/// The variant that the others are compared with.
const FLOOR: &str = "memcpy";

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| {
    let summary =
        "a plain copy on one processor, without a notification: the floor of large messages";
    let floor = Variant { name: FLOOR, summary };
    [floor].into_iter().chain(mechanisms::variants(Asked::Throughput)).collect()
});

#[cfg(test)]
mod tests;

//! The effect of a liveness check inside every `send` on a queue's throughput: [`QueueWithCheck`].
//!
//! A plain ring ([`ring`]) connects two processes on two processors; the receiver drains it, and is
//! the monitored process. The sender checks before each message, by one of the checks of
//! [`super::liveness_check`], and does not send to a dead receiver. Batches with the check
//! alternate with batches without it, in one process; a batch ends when the receiver has taken the
//! batch's last message.
//!
//! Source: 002, whose queue lost about half its throughput to `kill(pid, 0)`.

mod explained;
pub mod ring;

use std::time::{Duration, Instant};

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, PairedRatio, Series};
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin::{self, Pinned};
use tontine_host::os::shared::SharedMapping;

use super::liveness_check::check::{Check, NoCheck, means_of};
use super::liveness_check::monitored::{Home, Monitored};
use super::liveness_check::ways;
use crate::with_check;
use ring::{SpscRing, SpscSender};

/// The checks that the sender makes before each message.
pub const VARIANTS: &[Variant] = &ways::IN_SEND;

/// Number of messages per batch if the check only accesses memory: several times the ring's
/// capacity.
const MESSAGES: u64 = 20_000;

/// Number of messages per batch if every check enters the kernel.
const SLOW_MESSAGES: u64 = 5_000;

/// Time after which the sender gives up if the receiver takes no message.
const PATIENCE: Duration = Duration::from_secs(5);

/// The experiment `queue-with-check`.
pub struct QueueWithCheck;

/// The number and size of an invocation's batches.
#[derive(Debug, Clone, Copy)]
struct BatchPlan {
    messages: u64,
    batches: usize,
    budget: Duration,
}

impl BatchPlan {
    fn of(size: Size, variant: &str) -> Self {
        let (batches, budget_ms) = match size {
            Size::Quick => (30, 200),
            Size::Default => (50, 400),
            Size::Full => (500, 10_000),
        };
        let slow = ways::find(variant).is_none_or(|way| way.enters_kernel);
        let messages = if slow { SLOW_MESSAGES } else { MESSAGES };
        Self { messages, batches, budget: Duration::from_millis(budget_ms) }
    }
}

impl Experiment for QueueWithCheck {
    fn name(&self) -> &'static str {
        "queue-with-check"
    }

    fn summary(&self) -> &'static str {
        "How much of a queue's throughput does a liveness check in every send cost?"
    }

    fn topic(&self) -> Topic {
        Topic::Death
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    /// Returns one placement on two processors, because both processes spin. On a single processor,
    /// the cell is skipped at run time.
    fn params(&self, _: &str, topology: &Topology, _: Size) -> Vec<Params> {
        let apart =
            topology.placements().iter().find(|placement| placement.here != placement.there);
        let name = apart.map_or("cross-core", |placement| placement.name);
        vec![Params::from([("placement".to_owned(), name.to_owned())])]
    }

    /// The duration of an invocation in ms, which determines the number of messages.
    fn operations(&self, variant: &str, size: Size) -> usize {
        BatchPlan::of(size, variant).budget.as_millis() as usize
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let topology = Topology::of_this_machine();
        let name = task.params.get("placement").map_or("cross-core", String::as_str);
        let placement = topology
            .placement(name)
            .filter(|placement| placement.here != placement.there)
            .ok_or_else(spins)?;
        let plan = BatchPlan::of(task.size, &task.variant);
        let (with, without) = measure(&task.variant, placement, plan)?;
        let mut seen = Observed::default();
        let ratio = order::median(&with).zip(order::median(&without));
        if let Some((with, without)) = ratio.filter(|_| task.variant != "dummy") {
            let name = format!("{} / dummy", task.variant);
            seen.ratios.push(PairedRatio { name, value: with / without });
        }
        // The samples are already rates; the batch is the number of messages behind each sample.
        let series = Series::ns("throughput", with).in_unit("messages/s");
        seen.series.push(series.batched(plan.messages as usize));
        Ok(seen)
    }
}

/// Returns the messages per second of the plain ring's fastest batch without a check and with
/// `kill(pid, 0)` before each message.
///
/// # Errors
/// Returns the errors of [`Experiment::run`].
pub(crate) fn beside_kill(size: Size) -> Result<[f64; 2]> {
    let topology = Topology::of_this_machine();
    let mut places = topology.placements().iter().filter(|place| place.here != place.there);
    let placement = *places.next().ok_or_else(spins)?;
    // Restores the affinity that `measure` changes, because this process measures more.
    let _pinned = Pinned::to(placement.here)?;
    let (with, without) = measure("kill-0", placement, BatchPlan::of(size, "kill-0"))?;
    Ok([without, with].map(|rates| rates.into_iter().fold(0.0, f64::max)))
}

fn spins() -> MeasureError {
    MeasureError::skip("needs two processors: sender and receiver both spin")
}

/// Returns the messages per second of each batch with the check, and of each batch without it.
fn measure(variant: &str, placement: Placement, plan: BatchPlan) -> Result<(Vec<f64>, Vec<f64>)> {
    let means = means_of(variant)
        .ok_or_else(|| MeasureError::fail(format!("no such variant: {variant}")))?;
    let ring = SharedMapping::<SpscRing>::anonymous()?;
    let receiver = Monitored::start_with(means, Home::Here, || {
        // If this fails, the sender's own pinning also fails and ends the run.
        let _ = pin::pin_to(placement.there);
        let mut sum = 0;
        loop {
            if ring.drain(&mut sum) == 0 {
                std::hint::spin_loop();
            }
        }
    })?;
    let clock = Clock::calibrated();
    let (mut with, mut without) = (Vec::new(), Vec::new());
    with_check!(variant, &receiver, |check| {
        check.probe()?;
        pin::pin_to(placement.here)?;
        let mut sender = ring.sender();
        batch(&mut sender, &NoCheck, plan.messages, &clock)?;
        batch(&mut sender, &check, plan.messages, &clock)?;
        let began = Instant::now();
        while with.len() < plan.batches && (with.len() < 5 || began.elapsed() < plan.budget) {
            without.push(batch(&mut sender, &NoCheck, plan.messages, &clock)?);
            with.push(batch(&mut sender, &check, plan.messages, &clock)?);
        }
        Ok(())
    })?;
    Ok((with, without))
}

/// Sends a batch and waits until the receiver has taken it. Returns the messages per second.
#[inline(never)]
fn batch<C: Check>(
    sender: &mut SpscSender<'_>,
    check: &C,
    messages: u64,
    clock: &Clock,
) -> Result<f64> {
    let from = clock.start();
    for message in 0..messages {
        send(sender, check, message)?;
    }
    wait_until(|| sender.is_drained())?;
    let ns = clock.ns_between(from, clock.stop());
    Ok(messages as f64 / ns * 1e9)
}

/// The `send` of a queue, which first checks that the receiver lives.
#[inline(always)]
fn send<C: Check>(sender: &mut SpscSender<'_>, check: &C, message: u64) -> Result<()> {
    match check.look() {
        Ok(true) => {}
        Ok(false) => {
            return Err(MeasureError::fail("the check reported the living receiver as dead"));
        }
        Err(error) => return Err(MeasureError::fail(format!("the check failed: {error}"))),
    }
    if sender.offer(message) { Ok(()) } else { wait_until(|| sender.offer(message)) }
}

/// Spins until `done` returns `true` or the timeout has passed.
#[cold]
fn wait_until(mut done: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > PATIENCE {
            return Err(MeasureError::fail("the receiver took nothing for five seconds"));
        }
        std::hint::spin_loop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_match_liveness_check_with_own_summaries() {
        let ways = crate::liveness_check::VARIANTS;
        assert!(VARIANTS.iter().map(|own| own.name).eq(ways.iter().map(|way| way.name)));
        assert!(VARIANTS.iter().zip(ways).all(|(own, way)| own.summary != way.summary));
    }

    #[test]
    fn every_checked_queue_variant_delivers_messages() {
        let topology = Topology::of_this_machine();
        let Some(placement) =
            topology.placements().iter().copied().find(|place| place.here != place.there)
        else {
            eprintln!("skipped: needs two processors");
            return;
        };
        let plan = BatchPlan { messages: 200, batches: 2, budget: Duration::ZERO };
        for variant in VARIANTS {
            match measure(variant.name, placement, plan) {
                Ok((with, without)) => {
                    assert_eq!((with.len(), without.len()), (2, 2), "{}", variant.name);
                    assert!(with.iter().chain(&without).all(|&rate| rate > 0.0));
                }
                Err(MeasureError::Skipped(why)) => eprintln!("{}: skipped: {why}", variant.name),
                Err(trouble) => panic!("{}: {trouble}", variant.name),
            }
        }
    }

    #[test]
    fn refused_call_skips_and_names_it() {
        use crate::liveness_check::check::refused;
        let topology = Topology::of_this_machine();
        let Some(placement) =
            topology.placements().iter().copied().find(|place| place.here != place.there)
        else {
            eprintln!("skipped: needs two processors");
            return;
        };
        let plan = BatchPlan { messages: 200, batches: 2, budget: Duration::ZERO };
        for (variant, calls, call) in refused::CASES {
            let seen = refused::inside(calls, || measure(variant, placement, plan).map(|_| ()));
            let Some(Err(MeasureError::Skipped(why))) = &seen else {
                assert_eq!(seen, None, "{variant}");
                return eprintln!("skipped: no seccomp filters here");
            };
            assert!(why.starts_with(&format!("{call}: ")), "{variant}: {why}");
        }
    }
}

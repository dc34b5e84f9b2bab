//! The effect of a liveness check inside every `send` on a queue's throughput: [`run`].
//!
//! A plain ring connects two processes on two processors; the receiver drains it, and is the
//! monitored process. Batches with the check alternate with batches without it; a batch ends when
//! the receiver has taken its last message. Source: 002.

use std::time::{Duration, Instant};

use super::apart;
use super::ring::{SpscRing, SpscSender};
use crate::liveness_check::LivenessCheck;
use crate::liveness_check::check::{Check, NoCheck};
use crate::liveness_check::methods::{self, CheckMethod};
use crate::liveness_check::monitored::{Home, Monitored};
use crate::prelude::*;
use crate::with_check;

const PREFIX: &str = "checked-";

/// Number of messages per batch if the check only accesses memory: several times the ring's
/// capacity.
const MESSAGES: u64 = 20_000;

/// Number of messages per batch if every check enters the kernel.
const SLOW_MESSAGES: u64 = 5_000;

/// Time after which the sender gives up if the receiver takes no message.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
struct BatchPlan {
    messages: u64,
    batches: usize,
    budget: Duration,
}

impl BatchPlan {
    fn of(size: Size, method: &CheckMethod) -> Self {
        let (batches, budget_ms) = match size {
            Size::Quick => (30, 200),
            Size::Default => (50, 400),
            Size::Full => (500, 10_000),
        };
        let messages = if method.enters_kernel { SLOW_MESSAGES } else { MESSAGES };
        Self { messages, batches, budget: Duration::from_millis(budget_ms) }
    }
}

pub(super) fn variants() -> impl Iterator<Item = Variant> {
    LivenessCheck.variants().iter().map(|method| Variant {
        name: format!("{PREFIX}{}", method.name).leak(),
        summary: match method.name {
            "dummy" => "a plain ring, without a check",
            _ => format!("a plain ring; before each message, {}", method.summary).leak(),
        },
    })
}

pub(super) fn method(variant: &str) -> Option<&'static CheckMethod> {
    methods::find(variant.strip_prefix(PREFIX)?)
}

/// Returns one placement on two processors, because both processes spin. On a single processor, the
/// cell is skipped at run time.
pub(super) fn params(topology: &Topology) -> Vec<Params> {
    let apart = topology.placements().iter().find(|placement| placement.here != placement.there);
    let name = apart.map_or("cross-core", |placement| placement.name);
    vec![crate::prelude::params([("placement", name)])]
}

pub(super) fn operations(method: &CheckMethod, size: Size) -> usize {
    BatchPlan::of(size, method).budget.as_millis() as usize
}

pub(super) fn run(method: &CheckMethod, task: &InvocationTask) -> Result<Observed> {
    let placement = placement_of(&task.params)?;
    let plan = BatchPlan::of(task.size, method);
    let (with, without) = measure(method, placement, plan)?;
    let mut seen = Observed::default();
    let ratio = order::median(&with).zip(order::median(&without));
    if let Some((with, without)) = ratio.filter(|_| method.name != "dummy") {
        let name = format!("{} / {PREFIX}dummy", task.variant);
        seen.ratios.push(PairedRatio { name, value: with / without });
    }
    // The samples are already rates; the batch is the number of messages behind each sample.
    let series = Series::ns("throughput", with).in_unit("messages/s");
    seen.series.push(series.batched(plan.messages as usize));
    Ok(seen)
}

/// Returns the messages per second of the plain ring's fastest batch without a check and with
/// `kill(pid, 0)` before each message.
pub(crate) fn beside_kill(size: Size) -> Result<[f64; 2]> {
    let placement = apart()?;
    let kill = methods::find("kill-0").expect("a method");
    // Restores the affinity that `measure` changes, because this process measures more.
    let _pinned = Pinned::to(placement.here)?;
    let (with, without) = measure(kill, placement, BatchPlan::of(size, kill))?;
    Ok([without, with].map(|rates| rates.into_iter().fold(0.0, f64::max)))
}

/// Returns the messages per second of each batch with the check, and of each batch without it.
fn measure(
    method: &CheckMethod,
    placement: Placement,
    plan: BatchPlan,
) -> Result<(Vec<f64>, Vec<f64>)> {
    if placement.here == placement.there {
        skip!("needs two processors: two spinning ends on one only wait for each other");
    }
    let ring = SharedMapping::<SpscRing>::anonymous()?;
    let receiver = Monitored::start_with(method.means, Home::Here, || {
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
    with_check!(method.name, &receiver, |check| {
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
            bail!("the check reported the living receiver as dead");
        }
        Err(error) => bail!("the check failed: {error}"),
    }
    if sender.offer(message) { Ok(()) } else { wait_until(|| sender.offer(message)) }
}

/// Spins until `done` returns `true` or the timeout has passed.
#[cold]
fn wait_until(mut done: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > TIMEOUT {
            bail!("the receiver took nothing for five seconds");
        }
        std::hint::spin_loop();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness_check::refused_tests;

    const PLAN: BatchPlan = BatchPlan { messages: 200, batches: 2, budget: Duration::ZERO };

    #[test]
    fn every_checked_queue_delivers_messages() {
        let Ok(placement) = apart() else { return eprintln!("skipped: needs two processors") };
        for method in &methods::ALL {
            let found = unless_skipped(measure(method, placement, PLAN), method.name);
            let Some((with, without)) = found else { continue };
            assert_eq!((with.len(), without.len()), (2, 2), "{}", method.name);
            assert!(with.iter().chain(&without).all(|&rate| rate > 0.0), "{}", method.name);
        }
    }

    #[test]
    fn refused_call_skips_and_names_it() {
        let Ok(placement) = apart() else { return eprintln!("skipped: needs two processors") };
        refused_tests::must_skip(|method| measure(method, placement, PLAN).map(drop));
    }
}

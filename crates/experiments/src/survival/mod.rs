//! `survival`: the effect of a SIGKILL of one end on the other end, for each mechanism:
//! [`Survival`].
//!
//! Two processes pass numbered messages back and forth. One of them, chosen at random, is killed at
//! a random moment. [`referee`] starts and kills them and judges the survivor; [`player`] is the
//! code of each process; [`message`] distinguishes a torn message from a whole one. The mechanisms
//! are those of `tontine_mechanisms` whose ends are processes.
//!
//! - *wedged*: the survivor has not noticed by the deadline and is still blocked or spinning;
//! - *torn*: the survivor received a message with contents that were never sent;
//! - *lost*: a `send` returned, but its message was not received and never will be: the mechanism
//!   accepted the message and did not deliver it. If the sender was killed, that is
//!   `lost_with_sender`; if the receiver was killed, its unread messages were lost with it, unless
//!   the mechanism returned them to the survivor;
//! - *notice*: the time until the survivor noticed, for survivors that did.
//!
//! Unread messages vanish with their receiver if the mechanism keeps them out of the sender's
//! reach, and a dying process still accepts messages for some ten microseconds. For all such
//! mechanisms, `lost` is therefore near 100 %. The library's mailbox keeps unread messages within
//! the sender's reach.
//!
//! The survivor has no help: no timer, and no check of the peer. It notices only what the mechanism
//! reports. A row whose name ends with `-monitored` shows the same mechanism with the check that
//! its documentation recommends for crashes: the mechanism itself makes the check and reports the
//! death. The experiment does not kill at every instruction, and repairs nothing.

mod explained;
mod message;
mod player;
mod referee;

use std::sync::LazyLock;
use std::time::Duration;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;
use tontine_mechanisms::about::{AfterKill, Asked, Death};
use tontine_mechanisms::driver::{PairDriver, PairUser};
use tontine_mechanisms::registry;

use crate::mechanisms::{self, spins};
use message::BYTES;
use referee::{KillOutcome, KillPlan, kills};

/// Time after the kill at which a survivor that has not noticed counts as wedged.
const DEADLINE: Duration = Duration::from_millis(200);

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct Survival;

impl Experiment for Survival {
    fn name(&self) -> &'static str {
        "survival"
    }

    fn summary(&self) -> &'static str {
        "After random kills of either end: what is wedged, torn or lost?"
    }

    fn topic(&self) -> Topic {
        Topic::Death
    }

    fn explanation(&self) -> &'static Explanation {
        static EXPLANATION: LazyLock<Explanation> =
            LazyLock::new(|| mechanisms::explained(explained::EXPLANATION, Asked::Survival));
        &EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    /// Returns one cell, in which one end, chosen at random, is killed.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        vec![Params::new()]
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.kills()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&task.variant, task.size.kills(), DEADLINE).map(|fates| observed(&fates))
    }
}

/// Kills `count` times and returns the fate of each survivor.
fn measure(variant: &str, count: usize, deadline: Duration) -> Result<Vec<KillOutcome>> {
    let mechanism = registry::find(variant)
        .filter(|mechanism| mechanism.row(Asked::Survival).is_some())
        .ok_or_else(|| MeasureError::fail(format!("survival has no variant {variant}")))?;
    let allowed = pin::allowed()?;
    let (Some(&first), Some(&second)) = (allowed.first(), allowed.last()) else {
        return Err(MeasureError::skip("sched_getaffinity: no processor"));
    };
    let spins = spins(variant);
    if spins && first == second {
        return Err(MeasureError::skip(
            "needs two processors: two spinning ends on one only wait for each other",
        ));
    }
    let plan = KillPlan {
        count,
        processors: [first, second],
        spins,
        promises_notice: matches!(
            mechanism.death,
            Death::LeavesOne { survivor: AfterKill::Told, .. }
        ),
        carries: mechanism.carries,
        deadline,
        clock: Clock::calibrated(),
    };
    registry::pairs(variant, Kills(&plan))?
}

/// Kills according to a plan.
struct Kills<'p>(&'p KillPlan);

impl PairUser for Kills<'_> {
    type Out = Result<Vec<KillOutcome>>;

    fn threads<P: PairDriver<Half: Send>, const ROUND_TRIP: usize>(self) -> Self::Out {
        Err(MeasureError::fail("a kill of one thread also ends the other"))
    }

    fn processes<P: PairDriver, const ROUND_TRIP: usize>(self) -> Self::Out {
        kills(self.0, || P::pair(BYTES), |half| P::open::<BYTES>(half, &[]))
    }
}

/// Returns the shares, the times of the survivors that noticed, and the notes.
fn observed(fates: &[KillOutcome]) -> Observed {
    let share = |metric: &str, of: fn(&KillOutcome) -> bool| {
        let samples = fates.iter().map(|fate| if of(fate) { 1.0 } else { 0.0 }).collect();
        Series::ns(metric, samples).in_unit("share").by_mean()
    };
    let mut series = vec![
        share("wedged", |fate| fate.notice_ns.is_none()),
        share("torn", |fate| fate.torn),
        share("lost", |fate| fate.lost_with_sender || fate.lost_with_receiver),
        share("lost_with_sender", |fate| fate.lost_with_sender),
    ];
    let mut notes = Vec::new();
    let noticed: Vec<f64> = fates.iter().filter_map(|fate| fate.notice_ns).collect();
    if noticed.is_empty() {
        notes.push("no survivor noticed: no figure for notice".to_owned());
    } else {
        series.push(Series::ns("notice", noticed));
    }
    Observed { series, notes, ..Observed::default() }
}

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| mechanisms::variants(Asked::Survival));

#[cfg(test)]
mod tests;

//! `survival`: the effect of a SIGKILL of one end on the other end, for each mechanism whose ends
//! are processes: [`Survival`].
//!
//! [`mod@kills`] kills one of two processes and judges the survivor; [`end`] is the code of each. A
//! message is *lost* if its `send` returned, but it was not received and the mechanism did not
//! return it to the survivor.

mod end;
mod kills;
mod message;

use std::time::Duration;

use tontine_mechanisms::about::{AfterKill, Death, RowKind};
use tontine_mechanisms::driver::{PairDriver, PairUser};
use tontine_mechanisms::registry;

use crate::mechanisms::{self, spins};
use crate::prelude::*;
use kills::{KillOutcome, KillPlan, kills};
use message::BYTES;

/// Time after the kill at which a survivor that has not noticed counts as wedged.
const DEADLINE: Duration = Duration::from_millis(200);

pub(crate) struct Survival;

impl Experiment for Survival {
    fn facts(&self) -> Facts {
        card!("card.md", |card| mechanisms::rows_of(card, RowKind::Survival))
    }

    /// Returns one cell, in which one end, chosen at random, is killed.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        vec![Params::new()]
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.kills()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&task.variant, task.size.kills(), DEADLINE).map(|outcomes| observed(&outcomes))
    }
}

fn measure(variant: &str, count: usize, deadline: Duration) -> Result<Vec<KillOutcome>> {
    let mechanism = registry::find(variant)
        .filter(|mechanism| mechanism.row(RowKind::Survival).is_some())
        .ok_or_else(|| unknown("survival", "variant", variant))?;
    let first = pin::first()?;
    let second = pin::allowed()?.pop().unwrap_or(first);
    let spins = spins(variant);
    if spins && first == second {
        skip!("needs two processors: two spinning ends on one only wait for each other");
    }
    let plan = KillPlan {
        count,
        processors: [first, second],
        spins,
        promises_notice: matches!(
            mechanism.death,
            Death::LeavesOne { survivor: AfterKill::Notified, .. }
        ),
        carries: mechanism.carries,
        deadline,
        clock: Clock::calibrated(),
    };
    registry::pairs(variant, Kills(&plan))?
}

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

fn observed(outcomes: &[KillOutcome]) -> Observed {
    let share =
        |metric: &str, of: fn(&KillOutcome) -> bool| Series::share(metric, outcomes.iter().map(of));
    let mut series = vec![
        share("wedged", |outcome| outcome.notice_ns.is_none()),
        share("torn", |outcome| outcome.torn),
        share("lost", |outcome| outcome.lost_with_sender || outcome.lost_with_receiver),
        share("lost_with_sender", |outcome| outcome.lost_with_sender),
    ];
    let mut notes = Vec::new();
    let noticed: Vec<f64> = outcomes.iter().filter_map(|outcome| outcome.notice_ns).collect();
    if noticed.is_empty() {
        notes.push("no survivor noticed: no figure for notice".to_owned());
    } else {
        series.push(Series::ns("notice", noticed));
    }
    Observed::of(series, notes)
}

#[cfg(test)]
mod tests;

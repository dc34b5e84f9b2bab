//! `round-trip`: the one-way latency of a message by every mechanism on this machine:
//! [`RoundTrip`].
//!
//! The protocol is in `harness`; the mechanisms are those of `tontine_mechanisms`. The other files
//! contain those that no other experiment uses: the floors and the sleeping mailbox that a `trial`
//! decides, a block that is handed over, and [`container`]. `paced` is the protocol of `wake-up`.

use tontine::mailbox::{Options, WaitStrategy};
use tontine_mechanisms::about::RowKind;
use tontine_mechanisms::driver::PairUser;
use tontine_mechanisms::end::Early;
use tontine_mechanisms::mailbox::{Post, posts};
use tontine_mechanisms::registry;
use tontine_mechanisms::spinlock::SpinlockEnd;

use crate::mechanisms::{self, spins, spins_then_sleeps};
use crate::prelude::*;
use container::ContainerLink;
pub(crate) use end::Timed;
pub(crate) use harness::StampMode;
use harness::{Adapted, RoundPlan, RoundRunner, Trip};
pub(crate) use paced::PauseRun;
use paced::{Paced, Receipts};

pub mod container;
mod end;
mod hand_over;
mod harness;
mod paced;
mod trial;

const FLOOR: &str = "flag-one-line";
/// The floor of mechanisms in which each end writes only its own memory.
const FLOOR_OF_TWO_WRITERS: &str = "flag-two-lines";

/// Fraction of a round above which a note states the cost of a stamp.
const STAMP_LIMIT: f64 = 0.02;

const WITH_ENGINE: [&str; 2] = ["container-tcp", "container-unix"];

pub(crate) struct RoundTrip;

impl Experiment for RoundTrip {
    fn facts(&self) -> Facts {
        card!("card.md", |card| mechanisms::rows_of(card, RowKind::RoundTrip))
    }

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let placements = topology.placements().iter();
        let mut names: Vec<&str> = if spins(variant) {
            placements.filter(|place| place.here != place.there).map(|place| place.name).collect()
        } else {
            let wanted = ["cross-core", "same-core"];
            placements.map(|place| place.name).filter(|name| wanted.contains(name)).collect()
        };
        if names.is_empty() {
            names.push("cross-core");
        }
        // An engine takes seconds to start two containers, which is too long for both placements in
        // a quick run.
        if WITH_ENGINE.contains(&variant) && size == Size::Quick {
            names.truncate(1);
        }
        let cells = names
            .into_iter()
            .map(|name| params([("placement", name), ("pacing", "hot")]))
            .collect();
        mechanisms::in_brief(cells, variant, RowKind::RoundTrip, size)
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        match variant {
            _ if WITH_ENGINE.contains(&variant) => size.container_rounds(),
            _ if spins(variant) => size.spinning_rounds(),
            _ => size.blocking_rounds(),
        }
    }

    fn invocations(&self, variant: &str, size: Size) -> usize {
        // With an engine, each invocation creates and removes two containers.
        if WITH_ENGINE.contains(&variant) { size.macro_invocations() } else { size.invocations() }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let placement = placement_of(&task.params)?;
        let rounds = if never_sleeps(&task.variant, placement) {
            task.size.spinning_rounds()
        } else {
            self.operations(&task.variant, task.size)
        };
        measure(&task.variant, rounds, task.size.warm_up(rounds), placement, StampMode::Batched)
    }
}

/// Returns `true` if neither end of a variant sleeps between two rounds. If each end has a
/// processor, the answer arrives while an end that polls before it sleeps still polls.
fn never_sleeps(variant: &str, placement: Placement) -> bool {
    spins(variant) || spins_then_sleeps(variant) && placement.here != placement.there
}

pub(crate) fn measure(
    variant: &str,
    rounds: usize,
    warm_up: usize,
    placement: Placement,
    stamps: StampMode,
) -> Result<Observed> {
    ensure!(
        RoundTrip.variants().iter().any(|known| known.name == variant),
        "round-trip has no variant {variant}"
    );
    if spins(variant) && placement.here == placement.there {
        skip!("needs two processors: two spinning ends on one only wait for each other");
    }
    let stamps = if never_sleeps(variant, placement) { stamps } else { StampMode::EveryRound };
    let plan = RoundPlan::new(rounds, warm_up, placement, stamps);
    let mut observed = Observed::default();
    let Timed { one_way, batch, single } = time(variant, &plan, &mut observed)?;
    if !single.is_empty() {
        observed.notes.extend(cost_of_stamps(&one_way, &single));
        observed.series.insert(0, Series::ns("one_way_single", single));
    }
    observed.series.insert(0, Series::ns("one_way", one_way).batched(batch));
    Ok(observed)
}

/// Times one-way messages of a mechanism between two processes, each after a pause. Returns a
/// series for each step, and the notes.
pub(crate) fn one_way_after(
    variant: &str,
    steps: &[PauseRun],
    warm_up: usize,
    placement: Placement,
) -> Result<(Vec<Vec<f64>>, Vec<String>)> {
    let receipts = SharedMapping::<Receipts>::anonymous()?;
    let plan = RoundPlan::new(0, warm_up, placement, StampMode::EveryRound);
    let clock = plan.clock;
    let mut observed = Observed::default();
    let mut offset = 0;
    if placement.here != placement.there {
        // Measured before the fork: the threads that this call starts have exited by then.
        let Band { low, high } = Band::between(clock, placement.here, placement.there)?;
        offset = low.midpoint(high);
        let within = clock.ns(high - low) / 2.0;
        observed.notes.push(format!(
            "offset band: the receiver's counter is {low} to {high} ticks ahead of the sender's; \
             the middle is subtracted, so each figure is accurate to ± {within:.0} ns"
        ));
    }
    let shared = placement.here == placement.there;
    let paced = Paced { warm_up, steps, receipts: &receipts, clock, offset, shared };
    let plan = RoundPlan { paced: Some(paced), ..plan };
    let mut one_way = time(variant, &plan, &mut observed)?.one_way.into_iter();
    let of_step = |step: &PauseRun| one_way.by_ref().take(step.messages).collect();
    Ok((steps.iter().map(of_step).collect(), observed.notes))
}

fn time(variant: &str, plan: &RoundPlan<'_>, observed: &mut Observed) -> Result<Timed> {
    let (timed, note) = match variant {
        FLOOR => trial::flag(plan, false)?,
        FLOOR_OF_TWO_WRITERS => trial::flag(plan, true)?,
        "mailbox-sleep" => trial::sleeping_mailbox(plan)?,
        "container-tcp" => container::engine(plan, ContainerLink::Network)?,
        "container-unix" => container::engine(plan, ContainerLink::Volume)?,
        "hand-over" => return hand_over::run(plan),
        _ => {
            let (timed, early) = registry::pairs(variant, Trip(plan))??;
            observed.series.extend(early.map(skipped));
            return Ok(timed);
        }
    };
    observed.notes.push(note);
    Ok(timed)
}

/// Returns the number of skipped rounds per completed round.
fn skipped(early: Early) -> Series {
    let share = early.skipped as f64 / early.rounds as f64;
    let series = Series::ns("skipped", vec![share]).in_unit("rounds/round").by_mean();
    series.batched(early.rounds as usize)
}

/// Measures the second spinlock of source 004 between two threads, as the source's program uses it:
/// a thread that does not get the lock enters nevertheless.
pub(crate) fn without_exclusion(
    rounds: usize,
    warm_up: usize,
    placement: Placement,
) -> Result<Observed> {
    let plan = RoundPlan::new(rounds, warm_up, placement, StampMode::EveryRound);
    let (timed, early) = Trip(&plan).threads::<SpinlockEnd<true, false>, 1>()?;
    let mut observed = Observed::default();
    observed.series.push(Series::ns("one_way", timed.one_way));
    observed.series.extend(early.map(skipped));
    Ok(observed)
}

/// Times a mailbox whose ends spin, then a mailbox with `idle` more, silent, senders at each end.
pub(crate) fn beside_idle(
    idle: usize,
    rounds: usize,
    warm_up: usize,
    placement: Placement,
) -> Result<[Timed; 2]> {
    let plan = RoundPlan::new(rounds, warm_up, placement, StampMode::Batched);
    let options = Options::new().wait_strategy(WaitStrategy::Spin);
    let open = |post: Post, peer| -> Result<_> {
        Ok(Adapted::<_, 8> { end: post.open(&options, &[peer])?, peers: [peer] })
    };
    let ((here_0, there_0), (here_1, there_1)) = (posts(1)?, posts(1 + idle)?);
    in_two_processes(
        plan.cpus(),
        ([here_0, here_1], [there_0, there_1]),
        |[alone, crowded], peer| {
            let (mut alone, mut crowded) = (open(alone, peer)?, open(crowded, peer)?);
            Ok([alone.time(&plan)?, crowded.time(&plan)?])
        },
        |[alone, crowded], peer| {
            let (mut alone, mut crowded) = (open(alone, peer)?, open(crowded, peer)?);
            alone.answer(&plan)?;
            crowded.answer(&plan)
        },
    )
}

/// Returns a note on the cost of a stamp in every round, if it is not negligible.
fn cost_of_stamps(batches: &[f64], singles: &[f64]) -> Option<String> {
    let (bare, stamped) = (order::median(batches)?, order::median(singles)?);
    let share = stamped / bare - 1.0;
    (share > STAMP_LIMIT).then(|| {
        let percent = share * 100.0;
        format!(
            "one_way_single has a stamp in every round, which here makes it {percent:.0} % longer"
        )
    })
}

#[cfg(test)]
mod tests;

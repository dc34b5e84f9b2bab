//! `round-trip`: the one-way latency of a message by every mechanism on this machine.
//!
//! [`RoundTrip`] is the experiment. The protocol is in `harness`; the mechanisms are those of
//! `tontine_mechanisms`, and `opened` opens their ends. The other files contain mechanisms that no
//! other experiment uses: the two flags, the mailbox that sleeps in two ways, a block that is
//! handed over (`hand_over`), and [`container`]. The ends of [`container`] are not children of the
//! measuring process: they run inside namespaces and send their samples out.
//!
//! The experiment times one message at a time, without a pause. It does not measure throughput or,
//! except for `wake-up` ([`paced`]), the wake-up after a pause.

use std::sync::LazyLock;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::clock::offset::Band;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::shared::SharedMapping;
use tontine_mechanisms::about::Asked;
use tontine_mechanisms::driver::PairUser;
use tontine_mechanisms::end::Early;
use tontine_mechanisms::registry;
use tontine_mechanisms::spinlock::SpinlockEnd;

use crate::mechanisms::{self, spins, spins_then_sleeps};
use crate::placement_of;
use container::ContainerLink;
use flag::Lines;
use harness::RoundPlan;
pub(crate) use harness::StampMode;
pub(crate) use harness::Timed;
use opened::Trip;
pub(crate) use paced::PauseRun;
use paced::{Paced, Receipts};

pub mod container;
mod end;
mod explained;
mod flag;
mod hand_over;
mod harness;
mod mailbox;
mod opened;
mod paced;

/// The floor of this hardware.
const FLOOR: &str = "flag-one-line";
/// The floor of mechanisms in which each end writes only its own memory.
const FLOOR_OF_TWO_WRITERS: &str = "flag-two-lines";

/// Fraction of a round above which a note states the cost of a stamp.
const STAMP_LIMIT: f64 = 0.02;

/// Additional ratios: of the library's mailbox to its rivals, of a handed-over block to a message,
/// and of containers to the mechanisms that they extend.
const BESIDES: [(&str, &str); 12] = [
    ("mailbox-spin", FLOOR_OF_TWO_WRITERS),
    ("iceoryx2", "mailbox-spin"),
    ("crossbeam", "mailbox-spin"),
    ("hand-over", "mailbox-spin"),
    ("mailbox-sleep", "eventfd"),
    ("mailbox-sleep", "futex"),
    ("mailbox-default", "mailbox-spin"),
    ("mailbox-default", "mailbox-sleep"),
    ("container-netns", "tcp-loopback"),
    ("container-tcp", "container-netns"),
    ("container-unix", "unix-stream"),
    ("container-unix", "container-tcp"),
];

/// The rows that need an engine.
const WITH_ENGINE: [&str; 2] = ["container-tcp", "container-unix"];

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip;

impl Experiment for RoundTrip {
    fn name(&self) -> &'static str {
        "round-trip"
    }

    fn summary(&self) -> &'static str {
        "What is the one-way latency of each mechanism between threads and processes?"
    }

    fn topic(&self) -> Topic {
        Topic::Messages
    }

    fn explanation(&self) -> &'static Explanation {
        static EXPLANATION: LazyLock<Explanation> =
            LazyLock::new(|| mechanisms::explained(explained::EXPLANATION, Asked::RoundTrip));
        &EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        &VARIANTS
    }

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let placements = topology.placements().iter();
        let mut names: Vec<&str> = if spins(variant) {
            placements.filter(|place| place.here != place.there).map(|place| place.name).collect()
        } else {
            let asked = ["cross-core", "same-core"];
            placements.map(|place| place.name).filter(|name| asked.contains(name)).collect()
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
            .map(|name| {
                Params::from([
                    ("placement".to_owned(), name.to_owned()),
                    ("pacing".to_owned(), "hot".to_owned()),
                ])
            })
            .collect();
        mechanisms::in_brief(cells, variant, Asked::RoundTrip, size)
    }

    fn operations(&self, variant: &str, size: Size) -> usize {
        match variant {
            "container-tcp" | "container-unix" | "container-netns" => size.container_rounds(),
            _ if spins(variant) => size.spinning_rounds(),
            _ => size.blocking_rounds(),
        }
    }

    fn invocations(&self, variant: &str, size: Size) -> usize {
        // With an engine, each invocation creates and removes two containers.
        match WITH_ENGINE.contains(&variant) {
            true => size.macro_invocations(),
            false => size.invocations(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let placement = placement_of(&task.params)?;
        let rounds = match never_sleeps(&task.variant, placement) {
            true => task.size.spinning_rounds(),
            false => self.operations(&task.variant, task.size),
        };
        measure(&task.variant, rounds, task.size.warm_up(rounds), placement, StampMode::Batched)
    }

    fn ratios(&self) -> Vec<(&'static str, &'static str)> {
        VARIANTS
            .iter()
            .map(|variant| (variant.name, FLOOR))
            .filter(|(name, _)| *name != FLOOR)
            .chain(BESIDES)
            .collect()
    }
}

/// Returns `true` if neither end of a variant sleeps between two rounds. If each end has a
/// processor, the answer arrives while an end that polls before it sleeps still polls.
fn never_sleeps(variant: &str, placement: Placement) -> bool {
    spins(variant) || spins_then_sleeps(variant) && placement.here != placement.there
}

/// Measures `rounds` rounds of a variant, with the given stamps, after `warm_up` untimed rounds.
///
/// # Errors
/// Returns the errors of [`Experiment::run`], and `Failed` if there is no such variant, and
/// `Skipped` if a spinning variant would share a processor.
pub(crate) fn measure(
    variant: &str,
    rounds: usize,
    warm_up: usize,
    placement: Placement,
    stamps: StampMode,
) -> Result<Observed> {
    if !VARIANTS.iter().any(|known| known.name == variant) {
        return Err(MeasureError::fail(format!("round-trip has no variant {variant}")));
    }
    if spins(variant) && placement.here == placement.there {
        return Err(MeasureError::skip(
            "needs two processors: two spinning ends on one only wait for each other",
        ));
    }
    let stamps = match never_sleeps(variant, placement) {
        true => stamps,
        false => StampMode::EveryRound,
    };
    let clock = Clock::calibrated();
    let plan = RoundPlan { rounds, warm_up, stamps, placement, clock, paced: None };
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
///
/// # Errors
/// Returns the errors of [`Experiment::run`].
pub(crate) fn one_way_after(
    variant: &str,
    steps: &[PauseRun],
    warm_up: usize,
    placement: Placement,
) -> Result<(Vec<Vec<f64>>, Vec<String>)> {
    let board = SharedMapping::<Receipts>::anonymous()?;
    let clock = Clock::calibrated();
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
    let paced = Some(Paced { warm_up, steps, board: &board, clock, offset, shared });
    let plan =
        RoundPlan { rounds: 0, warm_up, stamps: StampMode::EveryRound, placement, clock, paced };
    let mut one_way = time(variant, &plan, &mut observed)?.one_way.into_iter();
    let of_step = |step: &PauseRun| one_way.by_ref().take(step.messages).collect();
    Ok((steps.iter().map(of_step).collect(), observed.notes))
}

/// Times one mechanism and adds its notes and additional series to `observed`.
fn time(variant: &str, plan: &RoundPlan, observed: &mut Observed) -> Result<Timed> {
    let (timed, note) = match variant {
        FLOOR => flag::run(plan, Lines::One)?,
        FLOOR_OF_TWO_WRITERS => flag::run(plan, Lines::Two)?,
        "mailbox-sleep" => mailbox::sleeping(plan)?,
        "container-tcp" => container::engine(plan, ContainerLink::Network)?,
        "container-unix" => container::engine(plan, ContainerLink::Volume)?,
        "container-netns" => container::namespaces(plan)?,
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
///
/// # Errors
/// Returns the errors of [`measure`].
pub(crate) fn without_exclusion(
    rounds: usize,
    warm_up: usize,
    placement: Placement,
) -> Result<Observed> {
    let (stamps, clock) = (StampMode::EveryRound, Clock::calibrated());
    let plan = RoundPlan { rounds, warm_up, stamps, placement, clock, paced: None };
    let (timed, early) = Trip(&plan).threads::<SpinlockEnd<true, false>, 1>()?;
    let mut observed = Observed::default();
    observed.series.push(Series::ns("one_way", timed.one_way));
    observed.series.extend(early.map(skipped));
    Ok(observed)
}

/// Times a mailbox without idle senders, then one with `idle` idle senders at each end.
///
/// # Errors
/// Returns the errors of [`Experiment::run`].
pub(crate) fn beside_idle(
    idle: usize,
    rounds: usize,
    warm_up: usize,
    placement: Placement,
    stamps: StampMode,
) -> Result<(Timed, Timed)> {
    mailbox::beside_idle(
        &RoundPlan { rounds, warm_up, stamps, placement, clock: Clock::calibrated(), paced: None },
        idle,
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

static VARIANTS: LazyLock<Vec<Variant>> = LazyLock::new(|| mechanisms::variants(Asked::RoundTrip));

#[cfg(test)]
mod tests;

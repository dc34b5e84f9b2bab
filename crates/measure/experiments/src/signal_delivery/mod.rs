//! The order of a signal's arrival and the return of `kill`: [`SignalDelivery`].
//!
//! The receiver keeps its latest time stamp in shared memory. The sender compares the last one with
//! the stamp that it takes when its call returns: as source 000 does for a receiver that dies from
//! the signal ([`death`]), and for one that handles it or takes it as a value ([`receiver`]).

pub(crate) mod death;
mod receiver;
pub(crate) mod sender;
pub(crate) mod stamps;
pub(crate) mod tally;

use rustix::process::Signal;

use self::death::ReceiverSetup;
use self::receiver::{TakeMethod, in_turn};
use self::sender::SendCall;
use self::stamps::Stamps;
use self::tally::DeliveryStamps;
use crate::prelude::*;

const WARM_UP: usize = 10;

pub(crate) struct SignalDelivery;

impl Experiment for SignalDelivery {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, _: &Topology, size: Size) -> Vec<Params> {
        let (placements, signals): (&[&str], &[&str]) = match variant {
            "as-published" | "one-clock" => (&["cross-core"], &["SIGINT", "SIGKILL"]),
            "pidfd" | "tgkill" => (&["cross-core"], &["SIGINT"]),
            // No terminal sends SIGUSR1, so a Ctrl-C never counts as a delivery.
            "handler-spinning" => (&["cross-core"], &["SIGUSR1"]),
            "handler-sleeping" => (&["cross-core", "same-core"], &["SIGUSR1"]),
            _ if TakeMethod::of(variant).is_some() => match size {
                Size::Quick => (&["cross-core"], &["SIGUSR1"]),
                Size::Default | Size::Full => (&["cross-core", "same-core"], &["SIGUSR1"]),
            },
            _ => (&[], &[]),
        };
        let cell = |placement, signal| params([("placement", placement), ("signal", signal)]);
        let of = |&placement| signals.iter().map(move |&signal| cell(placement, signal));
        placements.iter().flat_map(of).collect()
    }

    fn operations(&self, _variant: &str, size: Size) -> usize {
        size.deliveries()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&task.variant, &task.params, task.size.deliveries())
    }
}

fn measure(variant: &str, params: &Params, deliveries: usize) -> Result<Observed> {
    let signal = match word(params, "signal") {
        "SIGINT" => Signal::INT,
        "SIGKILL" => Signal::KILL,
        "SIGUSR1" => Signal::USR1,
        other => return Err(unknown("signal-delivery", "signal", other)),
    };
    let placement = placement_of(params)?;
    let clock = Clock::calibrated();
    // Measured before pinning and before the first fork: the threads that this call starts have
    // exited by then.
    let band = match (variant, placement.here == placement.there) {
        ("one-clock", _) | (_, true) => None,
        (_, false) => Some(Band::between(clock, placement.here, placement.there)?),
    };
    pin::pin_to(placement.here)?;
    let stamps = Stamps::new(clock);
    let call = match (variant, TakeMethod::of(variant)) {
        (_, Some(way)) if way.is_value() => {
            return taken(way, signal, placement, clock, deliveries, band);
        }
        (_, Some(way)) => {
            let all = in_turn(&[way], signal, placement, clock, 0, deliveries)?;
            return Ok(tally::compared(&all[0], stamps, band));
        }
        ("as-published" | "one-clock", None) => SendCall::Kill,
        ("pidfd", None) => SendCall::Pidfd,
        ("tgkill", None) => SendCall::Tgkill,
        (other, None) => return Err(unknown("signal-delivery", "variant", other)),
    };
    call.probe()?;
    let receiver = ReceiverSetup::new(stamps, signal, Some(placement.there))?;
    if variant == "one-clock" {
        let watched = (0..deliveries).map(|_| receiver.watch()).collect::<Result<Vec<_>>>()?;
        return Ok(tally::watched(&watched, stamps));
    }
    let mut all = Vec::with_capacity(deliveries);
    for _ in 0..deliveries {
        all.push(receiver.deliver(call)?);
    }
    Ok(tally::compared(&all, stamps, band))
}

/// Times deliveries to a thread that takes them as values. The library's thread is compared with
/// the others, to which signals are sent in turn.
fn taken(
    way: TakeMethod,
    signal: Signal,
    placement: Placement,
    clock: Clock,
    deliveries: usize,
    band: Option<Band>,
) -> Result<Observed> {
    let ways = if way == TakeMethod::Library { &TakeMethod::VALUES[..] } else { &[way] };
    let all = in_turn(ways, signal, placement, clock, WARM_UP, deliveries)?;
    let ns = |stamps: &[DeliveryStamps], of: fn((i64, i64)) -> i64| -> Vec<f64> {
        stamps.iter().map(|one| clock.ns(of(one.send_and_receive()))).collect()
    };
    let receive: Vec<Vec<f64>> = all.iter().map(|stamps| ns(stamps, |(_, to)| to)).collect();
    let median = |receive: &[f64]| {
        order::median(receive).ok_or_else(|| MeasureError::fail("no delivery to take a ratio of"))
    };
    let mut seen = Observed::of(
        [Series::ns("receive", receive[0].clone()), Series::ns("send", ns(&all[0], |(to, _)| to))],
        Vec::new(),
    );
    for (other, theirs) in ways.iter().zip(&receive).skip(1) {
        let name = format!("{} / {}", way.name(), other.name());
        seen.ratios.push(PairedRatio { name, value: median(&receive[0])? / median(theirs)? });
    }
    seen.notes.extend(band.map(|Band { low, high }| {
        format!(
            "offset band: the receiver's counter is {low} to {high} ticks ahead of the sender's; \
             receive has that error, and both sides of the ratios have the same"
        )
    }));
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::observe::Statistic;

    /// Each cell is measured in a process of its own, because it pins the calling thread.
    #[test]
    fn every_delivery_cell_yields_shares_and_times_or_skips() {
        let topology = Topology::of_this_machine();
        for variant in SignalDelivery.variants() {
            let cells = SignalDelivery.params(variant.name, &topology, Size::Quick);
            assert!(!cells.is_empty(), "{} has no cell", variant.name);
            for params in cells {
                in_a_process_of_its_own(|| check_cell(variant.name, &params));
            }
        }
    }

    fn check_cell(variant: &str, params: &Params) {
        let found = measure(variant, params, 12);
        let Some(observed) = unless_skipped(found, (variant, params)) else { return };
        metrics(&observed);
        let noted = |what: &str| observed.notes.iter().any(|note| note.contains(what));
        if TakeMethod::of(variant).is_some_and(TakeMethod::is_value) {
            assert_eq!(series(&observed, "receive").samples.len(), 12, "{params:?}");
            let compared = observed.ratios.iter().map(|ratio| ratio.name.as_str());
            let others = ["value-tontine / value-sigwait", "value-tontine / value-signal-hook"];
            let expected = if variant == "value-tontine" { &others[..] } else { &[] };
            assert!(compared.eq(expected.iter().copied()), "{:?}", observed.ratios);
            return;
        }
        let share = series(&observed, "parent_after");
        assert_eq!((share.samples.len(), share.statistic), (12, Statistic::Mean));
        assert_eq!(series(&observed, "send").samples.len(), 12);
        let count = |metric: &str| {
            let found = observed.series.iter().find(|series| series.metric == metric);
            found.map_or(0, |series| series.samples.len())
        };
        let after = share.samples.iter().sum::<f64>() as usize;
        assert_eq!(count("child_after_by"), 12 - after);
        if variant != "one-clock" {
            assert_eq!(count("parent_after_by"), after);
            assert_eq!(count("receive") < 12, noted("precede the call"), "{observed:?}");
        }
        let banded = variant != "one-clock" && params["placement"] == "cross-core";
        assert_eq!(noted("offset band"), banded, "{:?}", observed.notes);
    }
}

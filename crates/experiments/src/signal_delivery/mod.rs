//! The order of a signal's arrival and the return of `kill`: [`SignalDelivery`].
//!
//! The receiver keeps its latest time stamp in shared memory. The sender compares the last one with
//! the stamp that it takes when its call returns. Source 000 does this for a receiver that dies
//! from the signal ([`death`]). The other half of the experiment does it for a receiver that
//! handles the signal ([`handler`]) or takes it as a value ([`value`]).
//!
//! [`sender`] contains the calls that send, [`stamps`] the clock. [`tally`] turns deliveries into
//! metrics, and [`patience`] bounds every wait. Because the counters of two processors are
//! compared, the experiment also measures the band of their offset
//! ([`tontine_host::clock::offset`]) and notes it; `one-clock` does not need it.
//!
//! `signal-throughput` measures signals per second, `lost-signals` counts lost signals.

pub(crate) mod death;
mod explained;
mod handler;
pub(crate) mod patience;
pub(crate) mod sender;
pub(crate) mod stamps;
pub(crate) mod tally;
mod value;

use rustix::process::Signal;
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::clock::offset::Band;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;

use self::death::ReceiverSetup;
use self::handler::ReceiverActivity;
use self::sender::SendCall;
use self::stamps::Stamps;
use self::tally::DeliveryTally;
use self::value::TakeMethod;

/// The experiment `signal-delivery`.
#[derive(Debug, Clone, Copy)]
pub struct SignalDelivery;

const VARIANTS: &[Variant] = &[
    Variant {
        name: "as-published",
        summary: "kill a child that stamps a bare counter in a loop; compare its last stamp",
    },
    Variant {
        name: "one-clock",
        summary: "as published, but the parent watches the stamp change and reads only its own \
                  counter",
    },
    Variant { name: "pidfd", summary: "as published, sent with pidfd_send_signal" },
    Variant {
        name: "tgkill",
        summary: "as published, sent with tgkill to the child's only thread",
    },
    Variant {
        name: "handler-spinning",
        summary: "from before kill to a handler's first instruction; the receiver was spinning",
    },
    Variant {
        name: "handler-sleeping",
        summary: "from before kill to a handler's first instruction; the receiver slept in \
                  sigsuspend",
    },
    Variant {
        name: "value-tontine",
        summary: "from before kill until tontine::signal's thread, which was asleep, has the value",
    },
    Variant {
        name: "value-sigwait",
        summary: "from before kill until a thread that only calls sigwait has the value",
    },
    Variant {
        name: "value-signal-hook",
        summary: "from before kill until a thread that iterates over signal-hook's signals has it",
    },
];

impl Experiment for SignalDelivery {
    fn name(&self) -> &'static str {
        "signal-delivery"
    }

    fn summary(&self) -> &'static str {
        "Has a signal arrived when kill returns, and how long does it take?"
    }

    fn topic(&self) -> Topic {
        Topic::Signals
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
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
        let cell = |placement: &str, signal: &str| {
            Params::from([
                ("placement".to_owned(), placement.to_owned()),
                ("signal".to_owned(), signal.to_owned()),
            ])
        };
        placements
            .iter()
            .flat_map(|placement| signals.iter().map(move |signal| cell(placement, signal)))
            .collect()
    }

    fn operations(&self, _variant: &str, size: Size) -> usize {
        size.deliveries()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        measure(&task.variant, &task.params, task.size.deliveries())
    }
}

fn measure(variant: &str, params: &Params, deliveries: usize) -> Result<Observed> {
    let signal = signal_of(params)?;
    let placement = placement_of(params)?;
    let clock = Clock::calibrated();
    // Measured before pinning and before the first fork: the threads that this call starts have
    // exited by then.
    let band = match (variant, placement.here == placement.there) {
        ("one-clock", _) | (_, true) => None,
        (_, false) => Some(Band::between(clock, placement.here, placement.there)?),
    };
    pin::pin_to(placement.here)?;
    if let Some(way) = TakeMethod::of(variant) {
        let mut observed = match way {
            TakeMethod::Library => value::compared(placement, clock, deliveries)?,
            alone => value::serve(alone, placement, clock, deliveries)?,
        };
        observed.notes.extend(band.map(|Band { low, high }| {
            format!(
                "offset band: the receiver's counter is {low} to {high} ticks ahead of the \
                 sender's; receive has that error, and both sides of the ratios have the same"
            )
        }));
        return Ok(observed);
    }

    let stamps = Stamps::new(clock);
    let mut tally = DeliveryTally::with_capacity(deliveries);
    let receiver = |signal| ReceiverSetup::new(stamps, signal, Some(placement.there));
    match variant {
        "as-published" => receiver(signal)?.compare(SendCall::Kill, deliveries, &mut tally)?,
        "pidfd" => receiver(signal)?.compare(SendCall::Pidfd, deliveries, &mut tally)?,
        "tgkill" => receiver(signal)?.compare(SendCall::Tgkill, deliveries, &mut tally)?,
        "one-clock" => receiver(signal)?.watch(deliveries, &mut tally)?,
        "handler-spinning" => {
            handler::serve(
                ReceiverActivity::Spinning,
                signal,
                placement,
                clock,
                deliveries,
                &mut tally,
            )?;
        }
        "handler-sleeping" => {
            handler::serve(
                ReceiverActivity::Sleeping,
                signal,
                placement,
                clock,
                deliveries,
                &mut tally,
            )?;
        }
        other => return Err(MeasureError::fail(unknown("variant", other))),
    }
    Ok(tally.into_observed(stamps, band))
}

fn signal_of(params: &Params) -> Result<Signal> {
    match params.get("signal").map_or("", String::as_str) {
        "SIGINT" => Ok(Signal::INT),
        "SIGKILL" => Ok(Signal::KILL),
        "SIGUSR1" => Ok(Signal::USR1),
        other => Err(MeasureError::fail(unknown("signal", other))),
    }
}

fn placement_of(params: &Params) -> Result<Placement> {
    let name = params.get("placement").map_or("", String::as_str);
    match Topology::of_this_machine().placement(name) {
        Some(placement) => Ok(placement),
        None if name == "cross-core" => Err(MeasureError::skip(
            "needs two processors: sender and receiver run at the same time, each on its own",
        )),
        None => Err(MeasureError::skip(format!("this machine has no placement `{name}`"))),
    }
}

fn unknown(what: &str, found: &str) -> String {
    format!("expected a {what} of signal-delivery, found `{found}`: see `tontine list`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::observe::{Series, Statistic};

    fn series<'a>(observed: &'a Observed, metric: &str) -> Option<&'a Series> {
        observed.series.iter().find(|series| series.metric == metric)
    }

    #[test]
    fn every_delivery_cell_yields_shares_and_times_or_skips() {
        let topology = Topology::of_this_machine();
        for variant in SignalDelivery.variants() {
            let cells = SignalDelivery.params(variant.name, &topology, Size::Quick);
            assert!(!cells.is_empty(), "{} has no cell", variant.name);
            for params in cells {
                let observed = match measure(variant.name, &params, 12) {
                    Err(MeasureError::Skipped(why)) => {
                        assert!(why.contains("processor"), "{why}");
                        continue;
                    }
                    other => other.unwrap_or_else(|trouble| panic!("{params:?}: {trouble}")),
                };
                if TakeMethod::of(variant.name).is_some() {
                    let receive = series(&observed, "receive").expect("receive");
                    assert_eq!(receive.samples.len(), 12, "{} {params:?}", variant.name);
                    continue;
                }
                let share = series(&observed, "parent_after").expect("parent_after");
                assert_eq!(share.samples.len(), 12, "{} {params:?}", variant.name);
                assert_eq!(share.statistic, Statistic::Mean);
                assert!(share.samples.iter().all(|&one| one == 0.0 || one == 1.0));
                let send = series(&observed, "send").expect("send");
                assert_eq!(send.samples.len(), 12);
                let [after, before] = [1.0, 0.0]
                    .map(|is| share.samples.iter().filter(|&&sample| sample == is).count());
                let child = series(&observed, "child_after_by").map_or(0, |s| s.samples.len());
                assert_eq!(child, before);
                if variant.name != "one-clock" {
                    let parent =
                        series(&observed, "parent_after_by").map_or(0, |s| s.samples.len());
                    assert_eq!(parent, after);
                    let received = series(&observed, "receive").map_or(0, |s| s.samples.len());
                    let early = observed.notes.iter().any(|note| note.contains("precede the call"));
                    assert_eq!(received < 12, early, "{received}: {:?}", observed.notes);
                }
                let banded = observed.notes.iter().any(|note| note.starts_with("offset band"));
                let needs = variant.name != "one-clock" && params["placement"] == "cross-core";
                assert_eq!(banded, needs, "{:?}", observed.notes);
            }
        }
    }

    #[test]
    fn unknown_signal_fails_and_is_named() {
        let task = InvocationTask {
            experiment: "signal-delivery".into(),
            variant: "as-published".into(),
            params: Params::from([("signal".into(), "SIGNONE".into())]),
            size: Size::Quick,
        };
        let trouble = SignalDelivery.run(&task).expect_err("no such signal");
        assert!(trouble.why().contains("SIGNONE"), "{trouble}");
    }
}

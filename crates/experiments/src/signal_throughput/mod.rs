//! `signal-throughput`: the signals per second that reach a handler, with increasing numbers of
//! pairs of processes that send and receive at the same time: [`SignalThroughput`].
//!
//! The protocol is that of source 001. [`pair`] contains both ends; [`round`] starts all pairs at
//! the same time and reaps each receiver as soon as it ends. [`seats`] assigns the processors.
//! [`virtually`] runs the protocol in each mode of the virtual Unix.
//!
//! Standard signals do not queue: a signal that arrives while another one is pending is merged with
//! it. The count is the handler's; the number of signals that were sent is a separate metric.
//!
//! `signal-delivery` times a single delivery; `lost-signals` counts the signals that a program
//! loses between two waits.

mod explained;
mod pair;
mod round;
mod seats;
mod virtually;

use std::time::Instant;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, Series};
use tontine_bench::size::Size;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::{pin, room};
use tontine_unix_sim::LockingMode;

use super::levels::{self, asked, crowd, levels};
use super::modes::{self, System};
use round::ReceiverResult;

/// The last level of the paper's curve.
const MOST_PAIRS: usize = 10;
/// Number of receivers to time in one invocation. With fewer pairs, more rounds are run.
const RECEIVERS: usize = 10;
/// Time in ms after which no further round begins, because a round of many processes is long.
const ROUNDS_MS: u128 = 200;
/// Like [`ROUNDS_MS`], but for a virtual Unix, which has many modes and placements.
const VIRTUAL_ROUNDS_MS: u128 = 50;
/// Factor for the number of signals in a virtual Unix, where a signal takes much less time, and the
/// factor if no pair spans two processors.
const VIRTUAL: usize = 5;
const VIRTUAL_ALONE: usize = 20;
/// Number of signals in a model, whose rates are stable from the start. A full run models the
/// source's number.
const MODELLED_SIGNALS: usize = 200;
/// Memory of a forked process that does little, in bytes.
const BYTES_EACH: u64 = 256 << 10;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct SignalThroughput;

impl Experiment for SignalThroughput {
    fn name(&self) -> &'static str {
        "signal-throughput"
    }

    fn summary(&self) -> &'static str {
        "How many signals per second does a process receive, next to other pairs?"
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

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |pairs: usize, placement: &str| {
            Params::from([
                ("pairs".to_owned(), pairs.to_string()),
                ("placement".to_owned(), placement.to_owned()),
            ])
        };
        let mode = modes::mode(variant);
        let of = |pairs: usize| -> Vec<Params> {
            let placements: &[&str] = match (mode, pairs) {
                (Some(LockingMode::Uniprocessor), 1) => &["same-core"],
                (Some(LockingMode::Uniprocessor), _) => &[],
                // Two pairs that share nothing, each on its own processor.
                (Some(_), 2) => &["apart", "spread"],
                (Some(_), 1) if modes::two_processors(topology) => {
                    &["cross-core", "off-master", "same-core"]
                }
                (_, 1) => &["cross-core", "same-core"],
                _ => &["spread"],
            };
            placements.iter().map(|placement| cell(pairs, placement)).collect()
        };
        let measured = levels(size, processors, MOST_PAIRS).into_iter().flat_map(of);
        let alone = mode == Some(LockingMode::Uniprocessor);
        let modelled_placement = if alone { "same-core" } else { "spread" };
        let modelled = modes::modelled_cells(
            mode,
            size,
            |processors| levels::modelled(size, processors, processors),
            |pairs| cell(pairs, modelled_placement),
        );
        measured.chain(modelled).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.signals()
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let model = modes::modelled_with(&task.params)?;
        let pairs = asked(task, "pairs", model.unwrap_or(MOST_PAIRS))?;
        let placement = task.params.get("placement").map_or("", String::as_str);
        match (task.variant.as_str(), modes::mode(&task.variant)) {
            (_, Some(mode)) => {
                let system = System::of_a_cell(mode, &task.params, MOST_PAIRS)?;
                measure_virtually(system, pairs, placement, task.size)
            }
            ("linux", None) => measure(pairs, placement, task.size.signals()),
            (other, None) => {
                Err(MeasureError::fail(format!("signal-throughput has no variant {other}")))
            }
        }
    }
}

/// Measures rounds of `pairs` pairs, in which each receiver takes `signals` signals.
fn measure(pairs: usize, placement: &str, signals: usize) -> Result<Observed> {
    let allowed = pin::allowed()?;
    let seats = seats::of(placement, pairs, &allowed, &Topology::of_this_machine())?;
    room::for_processes(2 * pairs as u64, BYTES_EACH)?;
    let clock = Clock::calibrated();
    // The first round is not counted, because the kernel's caches are cold.
    round::run(&seats, clock, signals.div_ceil(10))?;
    let receivers = rounds(pairs, ROUNDS_MS, || round::run(&seats, clock, signals))?;
    let notes = crowd(2 * pairs, allowed.len()).into_iter().collect();
    Ok(Observed { series: series(&receivers), notes, ..Observed::default() })
}

/// Like [`measure`], but in a virtual Unix.
fn measure_virtually(
    system: System,
    pairs: usize,
    placement: &str,
    size: Size,
) -> Result<Observed> {
    let (places, processors) = virtually::places(placement, pairs, system.processors)?;
    let system = System { processors, ..system };
    let signals = size.signals();
    let receivers = if system.is_modelled() {
        let modelled = if size == Size::Full { signals } else { MODELLED_SIGNALS };
        virtually::run(system, &places, modelled)?
    } else {
        let spans = matches!(placement, "cross-core" | "spread");
        let signals = signals * if spans { VIRTUAL } else { VIRTUAL_ALONE };
        // The first round is not counted, because the memory is cold.
        virtually::run(system, &places, signals.div_ceil(10))?;
        rounds(pairs, VIRTUAL_ROUNDS_MS, || virtually::run(system, &places, signals))?
    };
    let notes = vec![system.note()];
    Ok(Observed { series: series(&receivers), notes, ..Observed::default() })
}

/// Returns the receivers of the required number of rounds. No round begins later than `within_ms`.
fn rounds(
    pairs: usize,
    within_ms: u128,
    round: impl Fn() -> Result<Vec<ReceiverResult>>,
) -> Result<Vec<ReceiverResult>> {
    let mut receivers = Vec::new();
    let began = Instant::now();
    for number in 0..RECEIVERS.div_ceil(pairs) {
        if number > 0 && began.elapsed().as_millis() > within_ms {
            break;
        }
        receivers.extend(round()?);
    }
    Ok(receivers)
}

/// Converts the receivers' counts to rates.
fn series(receivers: &[ReceiverResult]) -> Vec<Series> {
    let rates = receivers.iter().map(|one| one.received as f64 / one.seconds).collect();
    let kills = receivers.iter().map(|one| one.sent as f64 / one.received as f64).collect();
    vec![
        Series::ns("received", rates).in_unit("signals/s").by_mean(),
        Series::ns("sent_per_signal", kills).in_unit("signals/signal").by_mean(),
    ]
}

const VARIANTS: &[Variant] = &modes::with_linux(Variant {
    name: "linux",
    summary: "SIGUSR1 by kill to a handler, in a loop over sigsuspend; by this kernel",
});

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::observe::Statistic;
    use tontine_host::peer::in_a_process_of_its_own;

    fn no_child_is_left() -> std::result::Result<(), String> {
        use rustix::process::{WaitOptions, wait};
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => Ok(()),
            other => Err(format!("expected no child to be left, found {other:?}")),
        }
    }

    #[test]
    fn every_placement_yields_rates_and_leaves_no_child() {
        in_a_process_of_its_own(|| {
            for (pairs, placement) in
                [(1, "same-core"), (1, "cross-core"), (3, "spread"), (10, "spread")]
            {
                let observed = match measure(pairs, placement, 50) {
                    Err(MeasureError::Skipped(why)) if why.contains("processor") => continue,
                    other => other.map_err(|trouble| format!("{pairs} {placement}: {trouble}"))?,
                };
                let [rates, kills] = &observed.series[..] else {
                    return Err(format!("expected two metrics: {observed:?}"));
                };
                let most = RECEIVERS.div_ceil(pairs) * pairs;
                let sane = (pairs..=most).contains(&rates.samples.len())
                    && rates.samples.len().is_multiple_of(pairs)
                    && rates.samples.iter().all(|&rate| rate > 0.0 && rate < 1e9)
                    // At least one signal is sent for each received signal.
                    && kills.samples.iter().all(|&kills| kills >= 1.0)
                    && rates.statistic == Statistic::Mean;
                if !sane {
                    return Err(format!("{pairs} {placement}: {observed:?}"));
                }
                no_child_is_left()?;
            }
            Ok(())
        });
    }

    #[test]
    fn one_pair_yields_two_placements_several_are_spread() {
        let cells = SignalThroughput.params("linux", &Topology::of_this_machine(), Size::Default);
        let shown: Vec<String> =
            cells.iter().map(|cell| format!("{} {}", cell["pairs"], cell["placement"])).collect();
        let (one, more) = shown.split_at(2);
        assert_eq!(one, ["1 cross-core", "1 same-core"]);
        assert_eq!(more, ["2 spread", "4 spread", "8 spread", "10 spread"]);
    }

    #[test]
    fn only_multiprocessor_modes_have_off_master_cells() {
        let topology = Topology::of_this_machine();
        let shown = |variant| -> Vec<String> {
            let cells = SignalThroughput.params(variant, &topology, Size::Default);
            let measured = cells.iter().filter(|cell| !cell.contains_key("modelled"));
            measured.map(|cell| format!("{} {}", cell["pairs"], cell["placement"])).collect()
        };
        assert_eq!(shown("uniprocessor"), ["1 same-core"]);
        if modes::two_processors(&topology) {
            assert!(shown("master").contains(&"1 off-master".to_owned()));
            assert!(shown("per-process").contains(&"2 apart".to_owned()));
        }
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        for (variant, pairs, names) in
            [("pigeon", "1", "pigeon"), ("linux", "11", "11"), ("linux", "few", "few")]
        {
            let task = InvocationTask {
                experiment: "signal-throughput".into(),
                variant: variant.into(),
                params: Params::from([("pairs".into(), pairs.into())]),
                size: Size::Quick,
            };
            let found = SignalThroughput.run(&task).expect_err("unknown");
            assert!(found.why().contains(names), "{found}");
        }
        let found = measure(1, "on-the-moon", 1).expect_err("no such placement");
        assert!(found.why().contains("on-the-moon"), "{found}");
    }
}

//! `signal-throughput`: the signals per second that reach a handler, with increasing numbers of
//! pairs of processes that send and receive at the same time: [`SignalThroughput`].
//!
//! [`pair`] contains both ends, [`round`] runs the protocol of source 001, and [`virtually`] runs
//! it in each mode of the virtual Unix.

mod pair;
mod placement;
mod round;
mod virtually;

use std::time::Instant;

use tontine_unix_sim::LockingMode;

use super::levels::{self, crowd, level_of, levels};
use super::modes::{self, System};
use crate::prelude::*;
use round::ReceiverResult;

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
const BYTES_EACH: u64 = 256 << 10;

pub(crate) struct SignalThroughput;

impl Experiment for SignalThroughput {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let processors = pin::allowed().map_or(1, |allowed| allowed.len());
        let cell = |pairs: usize, placement: &str| {
            params([("pairs", &pairs.to_string()), ("placement", placement)])
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
        let pairs = level_of(task, "pairs", model.unwrap_or(MOST_PAIRS))?;
        let placement = word(&task.params, "placement");
        match (task.variant.as_str(), modes::mode(&task.variant)) {
            (_, Some(mode)) => {
                let system = System::of_a_cell(mode, &task.params, MOST_PAIRS)?;
                measure_virtually(system, pairs, placement, task.size)
            }
            ("linux", None) => measure(pairs, placement, task.size.signals()),
            (other, None) => Err(unknown("signal-throughput", "variant", other)),
        }
    }
}

fn measure(pairs: usize, placement: &str, signals: usize) -> Result<Observed> {
    let allowed = pin::allowed()?;
    let on = placement::of_machine(placement, pairs, &allowed, &Topology::of_this_machine())?;
    capacity::for_processes(2 * pairs as u64, BYTES_EACH)?;
    let clock = Clock::calibrated();
    // The first round is not counted, because the kernel's caches are cold.
    round::run(&on, clock, signals.div_ceil(10))?;
    let receivers = rounds(pairs, ROUNDS_MS, || round::run(&on, clock, signals))?;
    let notes = crowd(2 * pairs, allowed.len()).into_iter().collect();
    Ok(Observed::of(series(&receivers), notes))
}

fn measure_virtually(
    system: System,
    pairs: usize,
    placement: &str,
    size: Size,
) -> Result<Observed> {
    let (places, processors) = placement::of_system(placement, pairs, system.processors)?;
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
    Ok(Observed::of(series(&receivers), vec![system.note()]))
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

fn series(receivers: &[ReceiverResult]) -> Vec<Series> {
    let rates = receivers.iter().map(|one| one.received as f64 / one.seconds).collect();
    let kills = receivers.iter().map(|one| one.sent as f64 / one.received as f64).collect();
    vec![
        Series::ns("received", rates).in_unit("signals/s").by_mean(),
        Series::ns("sent_per_signal", kills).in_unit("signals/signal").by_mean(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::observe::Statistic;

    #[test]
    fn every_placement_yields_rates_and_leaves_no_child() {
        in_a_process_of_its_own(|| {
            for (pairs, placement) in
                [(1, "same-core"), (1, "cross-core"), (3, "spread"), (10, "spread")]
            {
                let found = measure(pairs, placement, 50);
                let Some(observed) = unless_skipped(found, placement) else { continue };
                assert_eq!(metrics(&observed), ["received", "sent_per_signal"]);
                let [rates, kills] = [0, 1].map(|at| &observed.series[at].samples);
                let most = RECEIVERS.div_ceil(pairs) * pairs;
                assert!((pairs..=most).contains(&rates.len()) && rates.len().is_multiple_of(pairs));
                assert!(rates.iter().all(|&rate| rate > 0.0 && rate < 1e9), "{rates:?}");
                // At least one signal is sent for each received signal.
                assert!(kills.iter().all(|&kills| kills >= 1.0), "{kills:?}");
                assert_eq!(observed.series[0].statistic, Statistic::Mean);
                no_child_is_left();
            }
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
            assert!(shown("parallel").contains(&"2 apart".to_owned()));
        }
    }
}

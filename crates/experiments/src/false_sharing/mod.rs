//! `false-sharing`: the cost for two threads of counting in neighbouring words: [`FalseSharing`].
//!
//! Two counters, in blocks of the source's heap or at the distance of the variant, are incremented
//! a fixed number of times each. One thread increments first one counter and then the other
//! (`serial`), two threads increment them at the same time, or two processes do so in blocks of a
//! heap that they share ([`members`]). All variants use the same loop ([`counters`]). Each
//! invocation runs `serial` in addition to its own variant, so that their ratio compares two loops
//! of the same process.
//!
//! Source: 003, whose own allocator places the two counters.

mod counters;
mod explained;
mod members;

use tontine::heap::classic::Map;
use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::{Placement, Topology};
use tontine_bench::observe::{Observed, PairedRatio, Series};
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};

use counters::{CounterLayout, CounterPair, LINE};

/// The baseline variant.
const SERIAL: &str = "serial";
/// The variant that has a distance as its parameter.
const DISTANCE: &str = "distance";

/// The variant in which two processes count.
const MEMBERS: &str = "shared-heap";

/// Distances in bytes between the beginnings of the two counters.
const DISTANCES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Maximum number of increments that a task may request: ten times the source's number.
const MOST_INCREMENTS: usize = 100_000_000;

/// The experiment.
#[derive(Debug, Clone, Copy)]
pub struct FalseSharing;

impl Experiment for FalseSharing {
    fn name(&self) -> &'static str {
        "false-sharing"
    }

    fn summary(&self) -> &'static str {
        "What does it cost two threads to count in one cache line?"
    }

    fn topic(&self) -> Topic {
        Topic::Memory
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    /// Returns every placement of two processors for two threads, and one placement for one thread.
    /// The number of increments is a parameter, because figures at different numbers are not
    /// comparable.
    fn params(&self, variant: &str, topology: &Topology, size: Size) -> Vec<Params> {
        let apart = topology.placements().iter().filter(|place| place.here != place.there);
        let mut places: Vec<&str> = apart.map(|place| place.name).collect();
        if places.is_empty() {
            places.push("cross-core");
        }
        if variant == SERIAL {
            places = vec![topology.placements().first().map_or("cross-core", |place| place.name)];
        }
        let distances: &[usize] = match (variant, size) {
            (DISTANCE, Size::Quick) => &[8, 64, 128],
            (DISTANCE, _) => &DISTANCES,
            _ => &[0],
        };
        let cell = |place: &str, distance: usize| {
            let mut params = Params::from([
                ("increments".to_owned(), size.increments().to_string()),
                ("placement".to_owned(), place.to_owned()),
            ]);
            if distance > 0 {
                params.insert("distance".to_owned(), distance.to_string());
            }
            params
        };
        let of_place = |place| distances.iter().map(move |&distance| cell(place, distance));
        places.into_iter().flat_map(of_place).collect()
    }

    fn operations(&self, _: &str, size: Size) -> usize {
        size.increments() * passes(size)
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let places = places(task)?;
        let topology = Topology::of_this_machine();
        let name = task.params.get("placement").map_or("cross-core", String::as_str);
        let alone = task.variant == SERIAL;
        let placement = topology
            .placement(name)
            .filter(|placement| alone || placement.here != placement.there)
            .ok_or_else(|| {
                MeasureError::skip("needs two processors: two threads on one never write at once")
            })?;
        let increments = increments(task)?;
        // As many passes as the size requires, but at least one.
        let passes = (self.operations(&task.variant, task.size) / increments).max(1);
        measure(&task.variant, places, placement, increments, passes)
    }
}

/// Returns the map of the heap in which `one-line` or `no-unused` counts, and `true` if both
/// counters are in one cache line.
///
/// # Errors
/// Returns `Failed` if no memory is available for the heap.
pub(crate) fn map(with_unused: bool) -> Result<(Map, bool)> {
    let layout = if with_unused { CounterLayout::ONE_LINE } else { CounterLayout::NO_UNUSED };
    let counters = CounterPair::at(layout)?;
    let (_, one_line) = counters.lie(counters::line_of_this_machine().unwrap_or(LINE));
    Ok((counters.map()?, one_line))
}

/// Returns the number of passes of an invocation.
fn passes(size: Size) -> usize {
    match size {
        Size::Quick | Size::Full => 5,
        Size::Default => 1,
    }
}

/// Returns the number of increments in the task's parameters; by default, that of the task's size.
fn increments(task: &InvocationTask) -> Result<usize> {
    let Some(text) = task.params.get("increments") else { return Ok(task.size.increments()) };
    text.parse().ok().filter(|count| (1..=MOST_INCREMENTS).contains(count)).ok_or_else(|| {
        MeasureError::fail(format!(
            "expected increments to be a number up to {MOST_INCREMENTS}; found `{text}`"
        ))
    })
}

/// Returns the layout of a task's counters.
fn places(task: &InvocationTask) -> Result<CounterLayout> {
    match task.variant.as_str() {
        SERIAL | "one-line" | MEMBERS => Ok(CounterLayout::ONE_LINE),
        "two-lines" => Ok(CounterLayout::TWO_LINES),
        "no-unused" => Ok(CounterLayout::NO_UNUSED),
        DISTANCE => {
            let text = task.params.get("distance").map_or("", String::as_str);
            text.parse().ok().and_then(CounterLayout::apart).ok_or_else(|| {
                MeasureError::fail(format!(
                    "expected distance to be a multiple of 8, at most {}; found `{text}`",
                    counters::MAX_DISTANCE
                ))
            })
        }
        other => Err(MeasureError::fail(format!("false-sharing has no variant {other}"))),
    }
}

/// Counts to `increments`, `passes` times, after a warm-up.
fn measure(
    variant: &str,
    places: CounterLayout,
    placement: Placement,
    increments: usize,
    passes: usize,
) -> Result<Observed> {
    let counters = CounterPair::at(places)?;
    let clock = Clock::calibrated();
    // Warms up the pages, the processor's clock rate and the branch predictor.
    counters.serial(placement.here, increments / 10, clock)?;
    let (mut serial, mut both) = (Vec::new(), Vec::new());
    if variant == MEMBERS {
        both = members::at_once(placement, increments, passes, clock, || {
            serial.push(counters.serial(placement.here, increments, clock)?);
            Ok(())
        })?;
    }
    for _ in serial.len()..passes {
        serial.push(counters.serial(placement.here, increments, clock)?);
        if variant != SERIAL {
            both.push(counters.at_once(placement, increments, clock)?);
        }
    }
    let mut seen = Observed::default();
    if let Some((at_once, alone)) = order::median(&both).zip(order::median(&serial)) {
        let name = format!("{variant} / {SERIAL}");
        seen.ratios.push(PairedRatio { name, value: at_once / alone });
    }
    let samples = if variant == SERIAL { serial } else { both };
    seen.series.push(Series::ns("both", samples));
    if let Some(line) = counters::line_of_this_machine().filter(|&line| line != LINE) {
        seen.notes.push(format!(
            "this processor's cache lines have {line} bytes, not {LINE}: two counters share one \
             if they lie less than {line} bytes apart"
        ));
    }
    Ok(seen)
}

const fn variant(name: &'static str, summary: &'static str) -> Variant {
    Variant { name, summary }
}

const VARIANTS: &[Variant] = &[
    variant(SERIAL, "one thread increments one counter, then the other"),
    variant("one-line", "two threads, one counter each, both counters in one cache line"),
    variant("two-lines", "two threads, one counter each, in neighbouring cache lines"),
    variant("no-unused", "like one-line without the unused block: two cache lines by chance"),
    variant(DISTANCE, "two threads, one counter each, `distance` bytes apart"),
    variant(MEMBERS, "two processes, one counter each, in neighbouring blocks of a shared heap"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_host::peer::in_a_process_of_its_own;

    fn task(variant: &str, params: &[(&str, &str)]) -> InvocationTask {
        let pair = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        InvocationTask {
            experiment: "false-sharing".into(),
            variant: variant.into(),
            params: params.iter().map(pair).collect(),
            size: Size::Quick,
        }
    }

    #[test]
    fn every_cell_counts_and_compares_with_serial() {
        in_a_process_of_its_own(|| {
            let topology = Topology::of_this_machine();
            let placement = topology.placements()[0];
            for variant in VARIANTS {
                for params in FalseSharing.params(variant.name, &topology, Size::Default) {
                    let mut asked = task(variant.name, &[]);
                    asked.params = params;
                    let places = places(&asked).map_err(|trouble| trouble.to_string())?;
                    let seen = measure(variant.name, places, placement, 1_000, 2)
                        .map_err(|trouble| format!("{asked}: {trouble}"))?;
                    let samples = &seen.series[0].samples;
                    let compared = usize::from(variant.name != SERIAL);
                    let sane = samples.len() == 2
                        && samples.iter().all(|&ns| ns > 0.0)
                        && seen.ratios.len() == compared;
                    if !sane {
                        return Err(format!("{asked}: {seen:?}"));
                    }
                }
            }
            Ok(())
        });
    }

    #[test]
    fn counters_share_line_only_if_distance_is_below_line_size() {
        let lie = |task: &InvocationTask| {
            let counters = CounterPair::at(places(task).expect("places")).expect("there is memory");
            counters.lie(LINE)
        };
        assert_eq!(lie(&task("one-line", &[])), (0x20, true));
        assert_eq!(lie(&task("two-lines", &[])), (0x50, false));
        assert_eq!(lie(&task("no-unused", &[])), (0x20, false));
        for distance in DISTANCES {
            let text = distance.to_string();
            let found = lie(&task(DISTANCE, &[("distance", &text)]));
            assert_eq!(found, (distance, distance < LINE), "{distance}");
        }
    }

    /// At the quick size, a comparison may request the number of increments of a longer run.
    #[test]
    fn increments_follow_the_parameters() {
        let counted = |text: &str| increments(&task(SERIAL, &[("increments", text)]));
        assert_eq!(counted("10000000").expect("a number"), 10_000_000);
        assert_eq!(increments(&task(SERIAL, &[])).expect("the size's"), 1_000_000);
        for text in ["", "0", "-1", "many", "100000001"] {
            let found = counted(text).expect_err("refused");
            assert!(found.why().contains(&format!("`{text}`")), "{found}");
        }
        in_a_process_of_its_own(|| {
            let passes = |count: usize| -> std::result::Result<usize, String> {
                let mut asked = task(SERIAL, &[("increments", &count.to_string())]);
                let place = Topology::of_this_machine().placements()[0].name;
                asked.params.insert("placement".into(), place.into());
                let seen = FalseSharing.run(&asked).map_err(|trouble| trouble.to_string())?;
                Ok(seen.series[0].samples.len())
            };
            // The quick size makes five passes of a million increments, but only one of ten
            // million.
            match (passes(1_000_000)?, passes(10_000_000)?) {
                (5, 1) => Ok(()),
                found => Err(format!("{found:?}")),
            }
        });
    }

    #[test]
    fn unknown_variant_or_parameter_fails() {
        for distance in ["", "far", "7", "0", "512"] {
            let found = places(&task(DISTANCE, &[("distance", distance)])).expect_err("refused");
            assert!(found.why().contains(&format!("`{distance}`")), "{found}");
        }
        let found = places(&task("pigeon", &[])).expect_err("there are no pigeons");
        assert!(found.why().contains("pigeon"), "{found}");
    }
}

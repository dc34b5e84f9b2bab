//! `false-sharing`: the cost for two threads of counting in neighbouring words: [`FalseSharing`].
//!
//! All variants use the same loop ([`counters`]); `shared-heap` counts in two processes
//! ([`members`]). Each invocation runs `serial` too, so that the ratio compares two loops of one
//! process.

mod counters;
mod members;

use tontine_mechanisms::classic::Map;

use crate::prelude::*;
use counters::{CounterLayout, CounterPair, LINE};

const SERIAL: &str = "serial";
const DISTANCE: &str = "distance";

const MEMBERS: &str = "shared-heap";

const DISTANCES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// Maximum number of increments that a task may request: ten times the source's number.
const MOST_INCREMENTS: usize = 100_000_000;

pub(crate) struct FalseSharing;

impl Experiment for FalseSharing {
    fn facts(&self) -> Facts {
        card!("card.md")
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
            let increments = size.increments().to_string();
            let mut params = params([("increments", &increments), ("placement", place)]);
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
        let placement = placement_of(&task.params)?;
        if task.variant != SERIAL && placement.here == placement.there {
            skip!("needs two processors: two threads on one never write at once");
        }
        let increments = increments(task)?;
        // As many passes as the size requires, but at least one.
        let passes = (self.operations(&task.variant, task.size) / increments).max(1);
        measure(&task.variant, places, placement, increments, passes)
    }
}

/// Returns the map of the heap in which `one-line` or `no-unused` counts, and `true` if both
/// counters are in one cache line.
pub(crate) fn map(with_unused: bool) -> Result<(Map, bool)> {
    let layout = if with_unused { CounterLayout::ONE_LINE } else { CounterLayout::NO_UNUSED };
    let counters = CounterPair::at(layout)?;
    let (_, one_line) = counters.lie(counters::line_of_this_machine().unwrap_or(LINE));
    Ok((counters.map()?, one_line))
}

fn passes(size: Size) -> usize {
    match size {
        Size::Quick | Size::Full => 5,
        Size::Default => 1,
    }
}

/// Returns the number of increments in the task's parameters; by default, that of the task's size.
fn increments(task: &InvocationTask) -> Result<usize> {
    match task.params.contains_key("increments") {
        true => number_in(&task.params, "increments", 1..=MOST_INCREMENTS),
        false => Ok(task.size.increments()),
    }
}

fn places(task: &InvocationTask) -> Result<CounterLayout> {
    match task.variant.as_str() {
        SERIAL | "one-line" | MEMBERS => Ok(CounterLayout::ONE_LINE),
        "two-lines" => Ok(CounterLayout::TWO_LINES),
        "no-unused" => Ok(CounterLayout::NO_UNUSED),
        DISTANCE => {
            let text = word(&task.params, "distance");
            text.parse().ok().and_then(CounterLayout::apart).ok_or_else(|| {
                MeasureError::fail(format!(
                    "expected distance to be a multiple of 8, at most {}; found `{text}`",
                    counters::MAX_DISTANCE
                ))
            })
        }
        other => Err(unknown("false-sharing", "variant", other)),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn task(variant: &str, params: &[(&str, &str)]) -> InvocationTask {
        let pair = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let params = params.iter().map(pair).collect();
        InvocationTask::new("false-sharing", variant, params, Size::Quick)
    }

    #[test]
    fn every_cell_counts_and_compares_with_serial() {
        in_a_process_of_its_own(|| {
            let topology = Topology::of_this_machine();
            for variant in FalseSharing.variants() {
                for params in FalseSharing.params(variant.name, &topology, Size::Default) {
                    let task = InvocationTask { params, ..task(variant.name, &[]) };
                    let seen = places(&task)
                        .and_then(|places| measure(variant.name, places, usual(), 1_000, 2))
                        .expect("a figure");
                    let samples = &seen.series[0].samples;
                    assert!(samples.len() == 2 && samples.iter().all(|&ns| ns > 0.0), "{task}");
                    assert_eq!(seen.ratios.len(), usize::from(variant.name != SERIAL), "{task}");
                }
            }
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
            let passes = |count: usize| {
                let params = [("increments", &*count.to_string()), ("placement", usual().name)];
                FalseSharing.run(&task(SERIAL, &params)).expect("times").series[0].samples.len()
            };
            // The quick size makes five passes of a million increments, but only one of ten
            // million.
            assert_eq!((passes(1_000_000), passes(10_000_000)), (5, 1));
        });
    }

    #[test]
    fn distance_that_fits_no_layout_fails() {
        for distance in ["", "far", "7", "0", "512"] {
            let found = places(&task(DISTANCE, &[("distance", distance)])).expect_err("refused");
            assert!(found.why().contains(&format!("`{distance}`")), "{found}");
        }
    }
}

//! Facts about the clocks: their source, their resolution, and the offset between two processors'
//! counters.

use std::time::Instant;

use crate::clock::{Clock, ClockSource, counter_is_invariant, offset};
use crate::os::files::Files;
use serde::Serialize;

use super::topology::Topology;

/// Number of pairs of stamps in which the smallest step is searched.
const PAIRS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Timing {
    /// The source of the experiments' stamps, `counter` or `monotonic`.
    pub stamps: Option<String>,
    /// `true` if the processor reports that its counter ticks at the same rate in every state.
    pub invariant_counter: Option<bool>,
    /// The kernel's own clock source.
    pub system_source: Option<String>,
    /// Clock sources available to the kernel.
    pub system_sources: Option<Vec<String>>,
    /// Length of a tick of the stamps in ns.
    pub ns_per_tick: Option<f64>,
    /// Smallest step observed between two stamps, in ns.
    pub granularity_ns: Option<f64>,
    /// Difference of two stamps with nothing between them, in ns (median).
    pub empty_pair_ns: Option<f64>,
    /// Duration of one `clock_gettime(CLOCK_MONOTONIC)`, in ns (mean).
    pub clock_gettime_ns: Option<f64>,
    /// Offset between the counters of two processors.
    pub offset: Option<Offset>,
}

/// Bounds of the difference between two processors' counters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Offset {
    pub here: usize,
    pub there: usize,
    #[serde(flatten)]
    pub ticks: offset::Band,
    pub low_ns: f64,
    pub high_ns: f64,
}

impl Timing {
    /// Reads and measures the facts, which takes about 30 ms.
    pub fn look(files: &Files, topology: &Topology) -> Self {
        let clock = Clock::calibrated();
        let sources = "sys/devices/system/clocksource/clocksource0";
        Self {
            stamps: Some(
                match clock.source() {
                    ClockSource::Counter => "counter",
                    ClockSource::Monotonic => "monotonic",
                }
                .to_owned(),
            ),
            invariant_counter: Some(counter_is_invariant()),
            system_source: files.text(&format!("{sources}/current_clocksource")),
            system_sources: files
                .text(&format!("{sources}/available_clocksource"))
                .map(|text| text.split_whitespace().map(str::to_owned).collect()),
            ns_per_tick: Some(clock.ns_per_tick()),
            granularity_ns: granularity_ns(clock),
            empty_pair_ns: Some(clock.empty_pair_ns()),
            clock_gettime_ns: Some(clock_gettime_ns()),
            offset: offset(clock, topology),
        }
    }
}

fn granularity_ns(clock: Clock) -> Option<f64> {
    (0..PAIRS)
        .map(|_| {
            let from = clock.stop();
            clock.stop().wrapping_sub(from)
        })
        .filter(|&step| step > 0)
        .min()
        .map(|step| clock.ns(step.cast_signed()))
}

fn clock_gettime_ns() -> f64 {
    let began = Instant::now();
    for _ in 1..PAIRS {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_nanos() as f64 / PAIRS as f64
}

/// Measures the offset between two sockets, if there are two, because their counters are most
/// likely to disagree.
fn offset(clock: Clock, topology: &Topology) -> Option<Offset> {
    let pair = ["cross-socket", "cross-cache", "cross-core", "siblings"]
        .iter()
        .find_map(|name| topology.placement(name))?;
    let ticks = offset::Band::between(clock, pair.here, pair.there).ok()?;
    Some(Offset {
        here: pair.here,
        there: pair.there,
        ticks,
        low_ns: clock.ns(ticks.low),
        high_ns: clock.ns(ticks.high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::TempTree;

    #[test]
    fn clocks_are_measured_and_clock_sources_are_read() {
        let tree = TempTree::empty();
        let folder = "sys/devices/system/clocksource/clocksource0";
        tree.write(&format!("{folder}/current_clocksource"), "hpet");
        tree.write(&format!("{folder}/available_clocksource"), "tsc hpet acpi_pm");
        let timing = Timing::look(&tree.files(), &Topology::of(&[]));
        assert_eq!(timing.system_source.as_deref(), Some("hpet"));
        assert_eq!(timing.system_sources.map(|all| all.len()), Some(3));
        assert!(timing.granularity_ns.is_some_and(|ns| ns > 0.0));
        assert!(timing.ns_per_tick.is_some_and(|ns| ns > 0.0));
        assert!(timing.clock_gettime_ns.is_some_and(|ns| ns > 0.0));
        assert_eq!(timing.offset, None, "an offset requires two processors");
    }
}

//! The rows of source 004's table and the verdicts on them: [`ROWS`], [`NOTES`], [`verdicts`].

use serde::{Deserialize, Serialize};
use tontine_bench::machine::MachineFacts;
use tontine_bench::stats::interval::Interval;
use tontine_bench::task::Params;
use tontine_host::error::{MeasureError, Result};

use super::super::verdict::{Claim, Verdict};
use crate::published::published;

/// The second spinlock as the source's program uses it, which is not a variant of `round-trip`.
pub(super) const IGNORING: &str = "ignoring";

/// A row of the source's table.
pub(super) struct SourceRow {
    /// The source's name, and the letters of its notes.
    pub(super) name: &'static str,
    pub(super) notes: &'static str,
    /// Our variant, and the variant with which the figure is published.
    pub(super) variant: &'static str,
    figure: &'static str,
    claim: Claim,
    /// Factor from the published figure to a one-way latency.
    factor: f64,
}

const fn row(
    (name, notes): (&'static str, &'static str),
    [variant, figure]: [&'static str; 2],
    line: u32,
    text: &'static str,
    factor: f64,
) -> SourceRow {
    SourceRow { name, notes, variant, figure, claim: Claim { line, text }, factor }
}

/// All rows, in the source's order. The second spinlock has two.
pub(super) const ROWS: [SourceRow; 7] = [
    row(("Spinlock", ""), ["spinlock-tas"; 2], 91, "a spinlock takes 113.53 ns one way", 1.0),
    row(
        ("Better spinlock", "(a)"),
        ["spinlock-ttas"; 2],
        92,
        "the better spinlock takes 88.2 ns",
        1.0,
    ),
    row(
        ("as programmed", "(a)"),
        [IGNORING, "spinlock-ttas"],
        92,
        "the better spinlock, as the source's program uses it, takes 88.2 ns",
        1.0,
    ),
    row(("Semaphore", ""), ["semaphore"; 2], 93, "a semaphore takes 1261.98 ns", 1.0),
    row(
        ("ZMQ inproc", "(b, c)"),
        ["zmq-inproc"; 2],
        94,
        "ZeroMQ within a process takes 8868.49 ns",
        2.0,
    ),
    row(("ZMQ ipc", "(c)"), ["zmq-ipc"; 2], 95, "ZeroMQ between processes takes 28168.28 ns", 1.0),
    row(
        ("Docker containers", "(d)"),
        ["container-unix"; 2],
        96,
        "two Docker containers take 17781.39 ns",
        1.0,
    ),
];

/// Notes on the source's programs.
pub(super) const NOTES: &str = "\
(a) The program calls try_acquire and ignores its result: a thread that does not
    get the lock enters all the same, and releases the other's. It excludes no
    one. Our first row waits for the lock; the row \"as programmed\" does not.
(b) The program halves each round, and the script halves it again: the published
    figure is a quarter of a round. Double it to compare.
(c) The program prints a progress bar between two rounds and flushes it. No
    round contains that time, but each begins after a pause: the other end has
    gone to sleep. Ours begin at once.
(d) The containers exchange bytes over a Unix stream socket on a volume that
    both mount, so that is what is measured here; on macOS they run in a virtual
    machine with its own kernel, unlike the other rows. `container-tcp` is the
    engine's network.";

/// One mechanism's measurement.
#[derive(Serialize, Deserialize)]
pub(super) struct MeasuredRow {
    /// Number of samples of the one-way latency, one per round.
    pub(super) samples: usize,
    /// Number of samples beyond 1.5 interquartile ranges, which are left out of everything else.
    pub(super) left: usize,
    /// Quartiles in ns.
    pub(super) quartiles: [f64; 3],
    /// Lower ends in ns and counts of the rows of the histogram.
    pub(super) histogram: Vec<(f64, usize)>,
    /// The interval of the mean that the source computes.
    pub(super) interval: Interval,
    /// Number of skipped rounds per completed round, if the mechanism counts them.
    pub(super) skipped: Option<f64>,
}

impl MeasuredRow {
    /// Returns the interquartile range as a share of the median.
    fn spread(&self) -> f64 {
        let [low, median, high] = self.quartiles;
        (high - low) / median
    }
}

impl SourceRow {
    /// Returns the published lower bound, mean and upper bound in ns.
    pub(super) fn published(&self) -> [f64; 3] {
        let found = published("round-trip", self.figure, "one_way", &Params::new());
        let mean = found.first().map_or(f64::NAN, |row| row.value);
        let bound = |of: Option<f64>| of.unwrap_or(f64::NAN);
        found.first().map_or([mean; 3], |row| [bound(row.low), mean, bound(row.high)])
    }
}

/// The measurements, in the order of [`ROWS`].
struct MeasuredTable<'m>(&'m [Result<MeasuredRow>]);

impl MeasuredTable<'_> {
    fn find(&self, variant: &str) -> Option<&MeasuredRow> {
        let at = ROWS.iter().position(|row| row.variant == variant)?;
        self.0.get(at)?.as_ref().ok()
    }

    fn mean(&self, variant: &str) -> Option<f64> {
        Some(self.find(variant)?.interval.estimate)
    }

    /// Judges the ratio of the means of two variants.
    fn ratio(&self, one: &str, other: &str, holds: impl FnOnce(f64) -> bool) -> Verdict {
        let (Some(above), Some(below)) = (self.mean(one), self.mean(other)) else {
            return missing();
        };
        let ratio = above / below;
        decided(
            holds(ratio),
            format!("it takes {ratio:.2} times as long, {above:.1} and {below:.1} ns"),
        )
    }

    /// Judges the ratio of the ZeroMQ rows, which is 3.2 as printed, and 1.6 if both are halved
    /// once.
    fn zeromq(&self) -> Verdict {
        let (Some(ipc), Some(inproc)) = (self.mean("zmq-ipc"), self.mean("zmq-inproc")) else {
            return missing();
        };
        let published = |variant| {
            let row = ROWS.iter().find(|row| row.variant == variant);
            row.map_or(f64::NAN, |row| row.published()[1] * row.factor)
        };
        let (ratio, once) = (ipc / inproc, published("zmq-ipc") / published("zmq-inproc"));
        decided(
            (2.4..4.3).contains(&ratio),
            format!(
                "here {ratio:.1} times; halved once, the published figures are {once:.1} apart"
            ),
        )
    }

    /// Judges whether the interquartile ranges of the first three rows are the smallest.
    fn spreads(&self) -> Verdict {
        let of = |variants: [&'static str; 3]| -> Vec<(&'static str, f64)> {
            let spread = |variant| Some((variant, self.find(variant)?.spread()));
            variants.into_iter().filter_map(spread).collect()
        };
        let steady = of(["spinlock-tas", "spinlock-ttas", "semaphore"]);
        let others = of(["zmq-inproc", "zmq-ipc", "container-unix"]);
        if steady.is_empty() || others.is_empty() {
            return missing();
        }
        let worst = steady.iter().map(|(_, spread)| *spread).fold(0.0, f64::max);
        let best = others.iter().map(|(_, spread)| *spread).fold(f64::INFINITY, f64::min);
        let text = steady.iter().chain(&others);
        let text = text.map(|(name, spread)| format!("{name} {:.0} %", spread * 100.0));
        let text = text.collect::<Vec<_>>().join(", ");
        decided(worst < best, format!("the interquartile ranges, by the medians, are {text}"))
    }
}

/// Returns the verdicts. `measured` has the order of [`ROWS`]; `again` is a second measurement of
/// the first row.
pub(super) fn verdicts(
    measured: &[Result<MeasuredRow>],
    again: &Result<MeasuredRow>,
) -> Vec<(Claim, Verdict)> {
    let machine = MachineFacts::look();
    let table = MeasuredTable(measured);
    let claim = |line, text| Claim { line, text };
    let mut all = vec![(
        claim(87, "the 95 % interval of the mean contains the mean of another run"),
        repeated(measured.first(), again),
    )];
    let rows = ROWS.iter().zip(measured);
    all.extend(
        rows.map(|(row, found)| {
            (row.claim, of_row(row, found, machine.processor.model.as_deref()))
        }),
    );
    all.extend([
        (
            claim(95, "ZeroMQ between processes takes 3.2 times as long as within one"),
            table.zeromq(),
        ),
        (
            claim(96, "containers are faster than ZeroMQ between processes"),
            table.ratio("container-unix", "zmq-ipc", |ratio| ratio < 1.0),
        ),
        (claim(98, "spinlocks and semaphores vary much less than the others"), table.spreads()),
        (
            claim(98, "the better spinlock is faster: 0.78 times the other"),
            table.ratio("spinlock-ttas", "spinlock-tas", |ratio| ratio < 0.95),
        ),
        (
            claim(98, "the better spinlock, as programmed, is faster"),
            table.ratio(IGNORING, "spinlock-tas", |ratio| ratio < 0.95),
        ),
        (
            claim(98, "a semaphore takes far longer than a spinlock: 11 times"),
            table.ratio("semaphore", "spinlock-tas", |ratio| ratio > 3.0),
        ),
    ]);
    all.sort_by_key(|(claim, _)| claim.line);
    all
}

fn missing() -> Verdict {
    Verdict::NotComparable("a row could not be measured, see above".into())
}

fn decided(holds: bool, text: String) -> Verdict {
    if holds { Verdict::Reproduced(text) } else { Verdict::NotReproduced(text) }
}

/// Compares a row's mean with the published one, on the source's processor only.
fn of_row(row: &SourceRow, found: &Result<MeasuredRow>, model: Option<&str>) -> Verdict {
    let measured = match found {
        Ok(measured) => measured.interval.estimate,
        Err(MeasureError::Skipped(why) | MeasureError::Failed(why)) => {
            return Verdict::NotComparable(why.clone());
        }
    };
    let [_, mean, _] = row.published();
    let one_way = mean * row.factor;
    let mut text = format!("here it takes {measured:.1} ns");
    if row.factor != 1.0 {
        text += &format!("; halved once, the published figure is {one_way:.0} ns");
    }
    if model.is_some_and(|model| model.contains("M2")) {
        return decided((measured / one_way - 1.0).abs() < 0.25, text);
    }
    let model = model.unwrap_or("an unknown processor");
    Verdict::NotComparable(format!("the source's is an Apple M2, this one {model}; {text}"))
}

fn repeated(first: Option<&Result<MeasuredRow>>, again: &Result<MeasuredRow>) -> Verdict {
    let (Some(Ok(first)), Ok(again)) = (first, again) else { return missing() };
    let (Interval { low, high, .. }, next) = (first.interval, again.interval.estimate);
    decided(
        (low..=high).contains(&next),
        format!(
            "the first run of `Spinlock` has {low:.2} to {high:.2} ns, the next {next:.2} ns: \
             consecutive rounds are not independent"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(ns: f64) -> Result<MeasuredRow> {
        let interval = Interval { estimate: ns, low: ns - 0.1, high: ns + 0.1, achieved: 0.95 };
        let (quartiles, histogram) = ([ns; 3], vec![(ns, 4)]);
        Ok(MeasuredRow { samples: 4, left: 0, quartiles, histogram, interval, skipped: None })
    }

    #[test]
    fn every_row_prints_its_published_figures() {
        for row in &ROWS {
            let [low, mean, high] = row.published();
            assert!(low < mean && mean < high, "{}: {low} {mean} {high}", row.name);
        }
        assert_eq!(ROWS[1].published(), [88.16, 88.2, 88.24]);
        assert!(NOTES.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn row_is_compared_on_the_published_processor_only() {
        let inproc = ROWS.iter().find(|row| row.variant == "zmq-inproc").expect("a row");
        let on = |model, ns| of_row(inproc, &measured(ns), Some(model));
        assert!(matches!(on("AMD EPYC", 17_000.0), Verdict::NotComparable(_)));
        assert!(matches!(on("Apple M2", 17_000.0), Verdict::Reproduced(_)), "halved once");
        assert!(matches!(on("Apple M2", 8_868.0), Verdict::NotReproduced(_)));
        let skipped = of_row(inproc, &Err(MeasureError::skip("no engine")), Some("Apple M2"));
        assert_eq!(skipped, Verdict::NotComparable("no engine".into()));
    }

    #[test]
    fn next_mean_outside_the_interval_refutes_it() {
        let first = measured(100.0);
        let next = |ns| repeated(Some(&first), &measured(ns));
        assert!(matches!(next(100.05), Verdict::Reproduced(_)));
        assert!(matches!(next(101.0), Verdict::NotReproduced(_)));
    }
}

//! The figures of the sources, shown next to ours: [`published`].
//!
//! They never enter an estimate. Each names its source and the machine. A source that only draws a
//! curve has no entry here, because no points are guessed.

use tontine_bench::schema::PublishedFigure;
use tontine_bench::task::Params;

/// Machine of source 000, which names only the processor's family and the distribution.
const SKYLAKE: &str = "Skylake, Ubuntu";
const X220: &str = "ThinkPad X220, Intel i5-2520M, Linux 4.19.12";
const M2: &str = "MacBook Air, Apple M2";

const LOOPS_002: f64 = 10_000_000.0;

/// Source 002: variant and seconds for [`LOOPS_002`] loops.
const CHECKS: [(&str, f64); 6] = [
    ("dummy", 0.04),
    ("load", 0.04),
    ("mutex-trylock", 0.14),
    ("epoll-empty", 1.28),
    ("kill-0", 1.78),
    ("procfs-faccessat", 8.19),
];

const UNNAMED: &str = "not named";

/// Source 003: variant, and milliseconds for [`INCREMENTS_003`] increments of each counter.
const COUNTING: [(&str, f64); 3] = [("serial", 57.0), ("one-line", 63.0), ("two-lines", 33.0)];
const INCREMENTS_003: &str = "10000000";

/// Source 004: variant, then lower bound, mean and upper bound of the one-way latency in ns.
const ONE_WAY: [(&str, f64, f64, f64); 6] = [
    ("spinlock-tas", 113.45, 113.53, 113.61),
    ("spinlock-ttas", 88.16, 88.20, 88.24),
    ("semaphore", 1_261.93, 1_261.98, 1_262.03),
    ("zmq-inproc", 8_866.19, 8_868.49, 8_870.80),
    ("zmq-ipc", 28_163.27, 28_168.28, 28_173.29),
    ("container-unix", 17_779.21, 17_781.39, 17_783.56),
];

/// Returns the sources' figures for a cell, in the unit of its metric. Returns an empty list if
/// there are none.
///
/// `params` matter only if they differ from the source's conditions: no source runs both ends on
/// one core.
pub fn published(
    experiment: &str,
    variant: &str,
    metric: &str,
    params: &Params,
) -> Vec<PublishedFigure> {
    if params.get("placement").is_some_and(|p| p == "same-core") {
        return Vec::new();
    }
    match (experiment, metric) {
        ("signal-delivery", _) if variant == "as-published" => delivery(metric),
        ("liveness-check", "check") => CHECKS
            .iter()
            .filter(|(name, _)| *name == variant)
            .map(|&(_, seconds)| point("002", X220, seconds * 1e9 / LOOPS_002))
            .collect(),
        ("false-sharing", "both")
            if params.get("increments").is_some_and(|count| count == INCREMENTS_003) =>
        {
            COUNTING
                .iter()
                .filter(|(name, _)| *name == variant)
                .map(|&(_, ms)| point("003", UNNAMED, ms * 1e6))
                .collect()
        }
        ("round-trip", "one_way") => ONE_WAY
            .iter()
            .filter(|(name, ..)| *name == variant)
            .map(|&(_, low, mean, high)| PublishedFigure {
                low: Some(low),
                high: Some(high),
                ..point("004", M2, mean)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the figures of source 000: four in five children outlive the return of `kill`, for
/// SIGINT and SIGKILL alike.
fn delivery(metric: &str) -> Vec<PublishedFigure> {
    match metric {
        "parent_after" => vec![point("000", SKYLAKE, 0.20)],
        "child_after_by_cycles" => {
            vec![point("000 (mean; the maximum is near 1,200)", SKYLAKE, 40.0)]
        }
        _ => Vec::new(),
    }
}

fn point(source: &str, machine: &str, value: f64) -> PublishedFigure {
    PublishedFigure { source: source.into(), machine: machine.into(), low: None, value, high: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the figure of each source, and that it applies to the source's conditions only.
    #[test]
    fn figure_applies_only_to_conditions_of_its_source() {
        let figure = |experiment: &str, variant: &str, metric: &str, params: &[(&str, &str)]| {
            let params = params.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
            let found = published(experiment, variant, metric, &params.collect());
            found.first().map(|figure| figure.value)
        };
        for ((variant, _), ns) in CHECKS.iter().zip([4.0, 4.0, 14.0, 128.0, 178.0, 819.0]) {
            let found = figure("liveness-check", variant, "check", &[]).expect(variant);
            assert!((found - ns).abs() < 1e-9, "{variant}: {found}");
        }
        let share = |variant| figure("signal-delivery", variant, "parent_after", &[]);
        assert_eq!([share("as-published"), share("one-clock")], [Some(0.20), None]);
        let counted =
            |variant, count| figure("false-sharing", variant, "both", &[("increments", count)]);
        assert_eq!(counted("two-lines", "10000000"), Some(33_000_000.0));
        assert_eq!([counted("two-lines", "1000000"), counted("distance", "10000000")], [None; 2]);
        let on = |place| figure("round-trip", "spinlock-tas", "one_way", &[("placement", place)]);
        assert_eq!([on("cross-core"), on("same-core")], [Some(113.53), None]);
    }
}

//! The direction in which a figure gets worse: [`direction`].
//!
//! Only this module decides the direction. Longer times and smaller rates are worse. For a share,
//! the name decides, because lost messages are harmful and merged signals are not. An unknown
//! metric is neutral, and the comparison reports it.

use serde::{Deserialize, Serialize};

/// The direction in which a figure gets worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// More is worse: times, losses.
    More,
    /// Less is worse: rates.
    Less,
    /// Neither is worse: the figure is only descriptive.
    Neutral,
    /// The direction is unknown, and the figure is treated as neutral.
    Unknown,
}

/// Units of time, of any operation.
const TIMES: [&str; 5] = ["ns", "µs", "ms", "s", "cycles"];

/// Metrics that describe and do not judge, whatever their unit: which of two events came first and
/// by how much, how often a lock was taken too early, how many signals were merged, and which
/// thread received them.
const NEUTRAL: [&str; 11] = [
    "parent_after",
    "parent_after_by",
    "parent_after_by_cycles",
    "child_after_by",
    "child_after_by_cycles",
    "skipped",
    "sent_per_signal",
    "merged",
    "main_thread",
    "same_thread",
    "own_thread",
];

/// Shares of events that should be rare or never happen, and the share of a processor that is used.
const HARM: [&str; 10] = [
    "wedged",
    "torn",
    "lost",
    "lost_with_sender",
    "corrupted",
    "deadlocked",
    "missed",
    "waited",
    "blocked",
    "busy",
];

/// Returns the direction in which a figure of this metric and unit gets worse.
pub fn direction(metric: &str, unit: &str) -> Direction {
    if NEUTRAL.contains(&metric) {
        Direction::Neutral
    } else if TIMES.contains(&unit) {
        Direction::More
    } else if unit.ends_with("/s") {
        Direction::Less
    } else if HARM.contains(&metric) {
        Direction::More
    } else {
        Direction::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_units_determine_the_direction() {
        for (metric, unit, way) in [
            ("one_way", "ns", Direction::More),
            ("build", "s", Direction::More),
            ("send", "cycles", Direction::More),
            ("rate", "messages/s", Direction::Less),
            ("bandwidth", "bytes/s", Direction::Less),
            ("received", "signals/s", Direction::Less),
            ("forked", "forks/s", Direction::Less),
            ("wedged", "share", Direction::More),
            ("own_thread", "share", Direction::Neutral),
            ("parent_after", "share", Direction::Neutral),
            ("child_after_by", "ns", Direction::Neutral),
            ("skipped", "rounds/round", Direction::Neutral),
            ("colour", "share", Direction::Unknown),
            ("ratio", "", Direction::Unknown),
        ] {
            assert_eq!(direction(metric, unit), way, "{metric} in {unit}");
        }
    }

    /// Checks that each metric has a direction here. Every metric of an experiment is listed with
    /// its unit in a table of docs/reference/results.md.
    #[test]
    fn documented_metrics_have_a_direction() {
        let document = include_str!("../../../../../docs/reference/results.md");
        let table = document.split("**Metrics and units.**").nth(1).expect("the table");
        let rows = table.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
        let mut seen = 0;
        for row in rows.take_while(|line| line.starts_with('|')) {
            let fields: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            let [_, metrics, unit] = fields[..] else { panic!("three columns: {row}") };
            let names: Vec<&str> = metrics.split('`').skip(1).step_by(2).collect();
            let names = names.iter().filter(|name| !["kill", "_exit"].contains(name));
            let units: Vec<&str> = unit.trim().trim_end_matches(", 0 to 1").split(", ").collect();
            for name in names {
                // If a row lists several units, each unit applies to some of its metrics.
                let known = units.iter().any(|unit| direction(name, unit) != Direction::Unknown);
                let known = known || ["send", "one_way"].contains(name);
                assert!(known, "{name} ({unit}): give it a way in compare/direction.rs");
                seen += 1;
            }
        }
        assert!(seen > 15, "{seen} metrics");
    }
}

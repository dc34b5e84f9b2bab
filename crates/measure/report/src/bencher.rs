//! Figures in the Bencher Metric Format: [`bencher`].
//!
//! The format (bencher.dev/docs/reference/bencher-metric-format) maps a benchmark to its measures,
//! and a measure to `value`, `lower_value` and `upper_value`. A measure of Bencher has one unit, so
//! the unit determines the measure: `latency` (ns) and `throughput` (operations per second) are
//! built into Bencher; it creates the others with their first figure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ci_figure::CiFigure;

/// Maximum number of characters of a benchmark's name in Bencher.
const LONGEST_NAME: usize = 1_024;

pub fn bencher(figures: &[CiFigure]) -> String {
    let mut benchmarks: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
    for figure in figures.iter().filter(|figure| figure.value.is_finite()) {
        let mut metric = json!({ "value": figure.value });
        if let Some((low, high)) = figure.ends.filter(|(low, high)| (low + high).is_finite()) {
            metric["lower_value"] = low.into();
            metric["upper_value"] = high.into();
        }
        let name = figure.name.chars().take(LONGEST_NAME).collect();
        benchmarks.entry(name).or_default().insert(measure(&figure.unit), metric);
    }
    format!("{:#}\n", json!(benchmarks))
}

/// Returns the measure of a unit: lower-case letters and hyphens, as a slug of Bencher must have.
fn measure(unit: &str) -> String {
    match unit {
        "ns" => "latency".into(),
        "bytes/s" => "bandwidth".into(),
        _ if unit.ends_with("/s") => "throughput".into(),
        "" => "figure".into(),
        _ => unit.replace('/', "-per-").replace(' ', "-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci_figure::{self, invented};
    use crate::fixture;
    use tontine_bench::compare::direction::Direction;

    #[test]
    fn unit_determines_the_measure() {
        let text = bencher(&[
            invented("a/b one_way", "ns", 8.0, Direction::More),
            invented("a/b rate", "messages/s", 4.0, Direction::Less),
            invented("a/b rate", "bytes/s", 4.0, Direction::Less),
            invented("a/c sent", "signals/signal", 1.0, Direction::Neutral),
        ]);
        let value: Value = serde_json::from_str(&text).unwrap();
        let expected = json!({
            "a/b one_way": {"latency": {"value": 8.0, "lower_value": 4.0, "upper_value": 16.0}},
            "a/b rate": {
                "throughput": {"value": 4.0, "lower_value": 2.0, "upper_value": 8.0},
                "bandwidth": {"value": 4.0, "lower_value": 2.0, "upper_value": 8.0},
            },
            "a/c sent": {
                "signals-per-signal": {"value": 1.0, "lower_value": 0.5, "upper_value": 2.0},
            },
        });
        assert_eq!(value, expected);
    }

    /// Checks a whole run against the published schema: objects of objects with numbers, of which
    /// `value` is required.
    #[test]
    fn whole_run_conforms_to_the_schema() {
        let figures = ci_figure::figures(&fixture::run());
        let value: Value = serde_json::from_str(&bencher(&figures)).unwrap();
        let benchmarks = value.as_object().unwrap();
        assert_eq!(benchmarks.len(), figures.len());
        for (name, measures) in benchmarks {
            for (measure, metric) in measures.as_object().unwrap() {
                assert!(!name.is_empty() && measure.len() <= 64, "{name}: {measure}");
                let metric = metric.as_object().unwrap();
                assert!(metric["value"].is_number(), "{name}");
                for (key, number) in metric {
                    let known = ["value", "lower_value", "upper_value"].contains(&key.as_str());
                    assert!(known && number.is_number(), "{name}: {key}");
                }
            }
        }
    }

    #[test]
    fn figure_without_interval_has_only_a_value() {
        let figure = CiFigure { ends: None, ..invented("a", "cycles", 3.0, Direction::More) };
        let value: Value = serde_json::from_str(&bencher(&[figure])).unwrap();
        assert_eq!(value, json!({"a": {"cycles": {"value": 3.0}}}));
    }
}

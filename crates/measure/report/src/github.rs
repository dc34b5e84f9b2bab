//! Figures for `benchmark-action/github-action-benchmark`, tool `customSmallerIsBetter`:
//! [`github`].
//!
//! The format is a list of `name`, `unit`, `value` and `range`, in which a larger value is worse. A
//! rate therefore becomes the time per operation. Figures of which more is neither worse nor better
//! are left out.

use serde_json::json;
use tontine_bench::compare::direction::Direction;
use tontine_bench::format::FormattedFigure;

use super::ci_figure::CiFigure;

/// Returns the figures as one JSON list, with a final line feed.
pub fn github(figures: &[CiFigure]) -> String {
    let entries: Vec<_> = figures
        .iter()
        .filter_map(smaller_is_better)
        .map(|figure| {
            let shown = FormattedFigure::new(&figure.unit, figure.value, figure.ends);
            json!({
                "name": figure.name,
                "unit": figure.unit,
                "value": figure.value,
                "range": shown.interval,
            })
        })
        .collect();
    format!("{:#}\n", json!(entries))
}

/// Returns the figure, or the time per operation if it is a rate. Returns `None` if a larger figure
/// is not worse, or if a rate of zero has no such time.
fn smaller_is_better(figure: &CiFigure) -> Option<CiFigure> {
    let figure = match (figure.worse, figure.unit.strip_suffix("/s")) {
        (Direction::More, _) => figure.clone(),
        (Direction::Less, Some(operations)) => {
            let time = |rate: f64| 1e9 / rate;
            CiFigure {
                name: figure.name.clone(),
                unit: format!("ns/{}", operations.strip_suffix('s').unwrap_or(operations)),
                value: time(figure.value),
                ends: figure.ends.map(|(low, high)| (time(high), time(low))),
                worse: Direction::More,
            }
        }
        _ => return None,
    };
    figure.value.is_finite().then_some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ci_figure::{self, invented};
    use crate::fixture;
    use serde_json::Value;

    fn parsed(figures: &[CiFigure]) -> Value {
        serde_json::from_str(&github(figures)).unwrap()
    }

    #[test]
    fn rate_becomes_time_per_operation() {
        let rate = invented("queue/none throughput", "messages/s", 2e6, Direction::Less);
        let expected = json!([{
            "name": "queue/none throughput",
            "unit": "ns/message",
            "value": 500.0,
            "range": "250 – 1,000 ns/message",
        }]);
        assert_eq!(parsed(&[rate]), expected);
    }

    #[test]
    fn neutral_figures_and_rates_of_zero_are_left_out() {
        let neutral = invented("a", "share", 0.5, Direction::Neutral);
        let unknown = invented("a", "share", 0.5, Direction::Unknown);
        let zero = invented("a", "messages/s", 0.0, Direction::Less);
        let time = invented("a", "ns", 0.5, Direction::More);
        assert_eq!(parsed(&[neutral, unknown, zero, time]).as_array().unwrap().len(), 1);
    }

    #[test]
    fn whole_run_has_names_units_numbers_and_texts() {
        let list = parsed(&ci_figure::figures(&fixture::run()));
        let list = list.as_array().unwrap();
        assert!(list.len() > 10);
        for entry in list {
            assert!(entry["name"].is_string() && entry["unit"].is_string(), "{entry}");
            assert!(entry["value"].is_number() && entry["range"].is_string(), "{entry}");
            assert!(!entry["unit"].as_str().unwrap().ends_with("/s"), "{entry}");
        }
    }
}

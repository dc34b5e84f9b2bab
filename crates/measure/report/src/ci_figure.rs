//! The figures of a run for services that follow benchmarks over time: [`CiFigure`].
//!
//! [`super::bencher`] and [`super::github`] write them in the format of their service. A figure is
//! not rounded, a time is in nanoseconds, and a row without a figure has none.

use tontine_bench::compare::direction::{Direction, direction};
use tontine_bench::format;
use tontine_bench::schema::{Cell, Results, Status};
use tontine_bench::task;

#[derive(Debug, Clone, PartialEq)]
pub struct CiFigure {
    pub name: String,
    /// Unit: `ns` for all times, otherwise that of `results.json`.
    pub unit: String,
    pub value: f64,
    /// Both ends of its interval, if there is one.
    pub ends: Option<(f64, f64)>,
    pub worse: Direction,
}

/// Returns the figures of a run, in its order. Rows that were skipped or failed have none.
pub fn figures(results: &Results) -> Vec<CiFigure> {
    let measured = results.cells.iter().filter(|cell| cell.status == Status::Ok);
    measured.filter_map(figure).collect()
}

fn figure(cell: &Cell) -> Option<CiFigure> {
    let mut name = format!("{}/{}", cell.experiment, cell.variant);
    for word in task::short(&cell.params).chain([cell.metric.clone()]) {
        if !word.is_empty() {
            name = format!("{name} {word}");
        }
    }
    let (unit, factor) = match cell.unit.as_str() {
        "s" => ("ns", 1e9),
        other => (other, 1.0),
    };
    let scaled = |(low, high)| (low * factor, high * factor);
    Some(CiFigure {
        name,
        unit: unit.into(),
        value: cell.estimate? * factor,
        ends: format::ends(cell).map(scaled),
        worse: direction(&cell.metric, &cell.unit),
    })
}

/// An invented figure for the tests of the formats.
#[cfg(test)]
pub(crate) fn invented(name: &str, unit: &str, value: f64, worse: Direction) -> CiFigure {
    let ends = Some((value * 0.5, value * 2.0));
    CiFigure { name: name.into(), unit: unit.into(), value, ends, worse }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fixture;

    #[test]
    fn each_measured_row_has_one_figure_with_its_own_name() {
        let results = fixture::run();
        let figures = figures(&results);
        let measured = results.cells.iter().filter(|cell| cell.estimate.is_some()).count();
        let names: BTreeSet<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!((figures.len(), names.len()), (measured, measured));
        assert!(names.contains("round-trip/futex hot cross-core one_way"), "{names:?}");
    }

    #[test]
    fn seconds_become_nanoseconds() {
        let mut cell = fixture::small().cells.remove(0);
        cell.unit = "s".into();
        (cell.estimate, cell.low, cell.high) = (Some(2.0), Some(1.0), Some(3.0));
        let figure = figure(&cell).unwrap();
        assert_eq!(
            (figure.unit.as_str(), figure.value, figure.ends),
            ("ns", 2e9, Some((1e9, 3e9)))
        );
    }
}

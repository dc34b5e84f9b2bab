//! Selects the cells that form a curve: [`curves`], by their parameters alone.
//!
//! Any metric whose cells differ in a number (pairs, processes, bytes, a pause) forms a curve: that
//! parameter is the horizontal axis, each variant a line. Cells that differ in another parameter
//! are never mixed: each value has its own curve. Only the placement may change with the level,
//! because one pair runs cross-core and more pairs are spread; same-core is then a separate line.
//! Neighbour: [`super::plot`] draws the curves.

use std::collections::BTreeSet;

use tontine_bench::schema::Cell;
use tontine_bench::sequence::distinct;
use tontine_bench::task::Params;

use super::words;

/// Minimum number of levels for a second curve, over a parameter other than the parameter with the
/// most levels.
const WORTH_A_SECOND_CURVE: usize = 3;
/// The parameter for the placement of the ends.
const PLACEMENT: &str = "placement";
/// The placement of both ends on one processor, which is not a level of a curve whose other cells
/// keep their ends apart.
const ASIDE: &str = "same-core";
/// Placements that only serve to compare two cells; shown in the table, but on no curve.
const TABLE_ONLY: [&str; 2] = ["off-master", "apart"];

/// Cells over one parameter.
pub(super) struct Curve<'a> {
    /// The parameter on the horizontal axis.
    pub(super) param: String,
    /// Unit of the parameter; empty for plain numbers.
    pub(super) unit: String,
    /// The parameters that all cells share, in words; empty if the cells share none.
    pub(super) common: String,
    pub(super) lines: Vec<CurveLine<'a>>,
}

/// A variant at each level.
#[derive(Clone)]
pub(super) struct CurveLine<'a> {
    pub(super) name: &'a str,
    /// Role in the paper; empty if the variant has none.
    pub(super) role: &'static str,
    /// `true` if the ends share a processor, unlike the ends of the variant's other line.
    pub(super) aside: bool,
    /// Index among the metric's variants, so that a variant looks the same on all curves.
    pub(super) at: usize,
    /// Levels and cells, in the order of the levels.
    pub(super) points: Vec<(f64, &'a Cell)>,
}

impl CurveLine<'_> {
    /// Returns the line's label, which distinguishes it from the others.
    pub(super) fn label(&self) -> String {
        match self.role {
            "" if self.aside => format!("{}, on one core", self.name),
            "" => self.name.into(),
            role => format!("{role} ({})", self.name),
        }
    }
}

impl Curve<'_> {
    pub(super) fn levels(&self) -> Vec<f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let mut levels: Vec<f64> = points.map(|(level, _)| *level).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        levels
    }
}

/// Returns the curves formed by `cells`, all of one metric.
pub(super) fn curves<'a>(cells: &[&'a Cell]) -> Vec<Curve<'a>> {
    let mut found: Vec<(String, usize)> = Vec::new();
    let mut names: Vec<&String> = cells.iter().flat_map(|cell| cell.params.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        if let Some(levels) = levels(cells, name).filter(|levels| *levels > 1) {
            found.push((name.clone(), levels));
        }
    }
    let most = found.iter().map(|(_, levels)| *levels).max().unwrap_or(0);
    // If several parameters have equally many levels, the first one is the main parameter.
    let main = found.iter().position(|(_, levels)| *levels == most);
    let worth = |(at, (_, levels)): &(usize, (String, usize))| {
        Some(*at) == main || *levels >= WORTH_A_SECOND_CURVE
    };
    found
        .into_iter()
        .enumerate()
        .filter(worth)
        .flat_map(|(_, (name, _))| over(cells, &name))
        .collect()
}

/// Returns the number of distinct values of a parameter; `None` if its value is not a number in
/// every cell that has it.
fn levels(cells: &[&Cell], name: &str) -> Option<usize> {
    let values = cells.iter().filter_map(|cell| cell.params.get(name));
    let read: Option<Vec<f64>> = values.map(|value| number(name, value)).collect();
    let mut read = read?;
    read.sort_by(f64::total_cmp);
    read.dedup();
    Some(read.len())
}

/// Returns the curves over `name`, one per combination of the other parameters.
fn over<'a>(cells: &[&'a Cell], name: &str) -> Vec<Curve<'a>> {
    let points: Vec<(f64, &Cell)> = cells
        .iter()
        .filter(|cell| {
            !cell.params.get(PLACEMENT).is_some_and(|p| TABLE_ONLY.contains(&p.as_str()))
        })
        .filter_map(|cell| Some((number(name, cell.params.get(name)?)?, *cell)))
        .collect();
    let rest = |cell: &Cell, left_out: &str| {
        let mut rest: Params = cell.params.clone();
        rest.retain(|param, _| param != name && param != left_out);
        words::params(&rest)
    };
    let follows = placement_follows(&points, &rest);
    let parted = twice(points.iter().copied(), |_| String::new());
    let variants = distinct(cells.iter().map(|cell| cell.variant.as_str()));
    let mut curves: Vec<Curve<'a>> = Vec::new();
    for (level, cell) in points {
        // A parameter that changes with the level does not separate curves.
        let common = match (parted, follows) {
            (false, _) => String::new(),
            (true, true) => rest(cell, PLACEMENT),
            (true, false) => rest(cell, ""),
        };
        let aside = parted && follows && is_aside(cell);
        let at = curves.iter().position(|curve| curve.common == common).unwrap_or_else(|| {
            let (param, unit) = (name.to_owned(), unit(name).to_owned());
            curves.push(Curve { param, unit, common, lines: Vec::new() });
            curves.len() - 1
        });
        let lines = &mut curves[at].lines;
        match lines.iter_mut().find(|line| line.name == cell.variant && line.aside == aside) {
            Some(line) => line.points.push((level, cell)),
            None => {
                let number = variants.iter().position(|name| *name == cell.variant).unwrap_or(0);
                let at = number + if aside { variants.len() } else { 0 };
                let (name, points) = (cell.variant.as_str(), vec![(level, cell)]);
                lines.push(CurveLine { name, role: "", aside, at, points });
            }
        }
    }
    for line in curves.iter_mut().flat_map(|curve| &mut curve.lines) {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves.retain(|curve| curve.lines.iter().any(|line| line.points.len() > 1));
    curves
}

/// Returns `true` if each level has its own placement, not counting the cells placed aside.
fn placement_follows(points: &[(f64, &Cell)], rest: &impl Fn(&Cell, &str) -> String) -> bool {
    let usual = || points.iter().copied().filter(|(_, cell)| !is_aside(cell));
    let mut placements: Vec<&str> =
        usual().filter_map(|(_, cell)| cell.params.get(PLACEMENT).map(String::as_str)).collect();
    placements.sort_unstable();
    placements.dedup();
    placements.len() > 1 && !twice(usual(), |cell| rest(cell, PLACEMENT))
}

/// Returns `true` if a variant has two cells at one level with equal results of `apart`.
fn twice<'a>(
    points: impl Iterator<Item = (f64, &'a Cell)>,
    apart: impl Fn(&Cell) -> String,
) -> bool {
    let mut seen = BTreeSet::new();
    let mut points = points;
    points.any(|(level, cell)| !seen.insert((&cell.variant, level.to_bits(), apart(cell))))
}

fn is_aside(cell: &Cell) -> bool {
    cell.params.get(PLACEMENT).is_some_and(|placement| placement == ASIDE)
}

/// Returns a parameter's value as a number; times are converted to nanoseconds.
fn number(name: &str, value: &str) -> Option<f64> {
    let figure: f64 = value.parse().ok().filter(|figure: &f64| figure.is_finite())?;
    Some(if name.ends_with("_us") { figure * 1e3 } else { figure })
}

/// Returns the unit of the result of [`number`]; empty for plain numbers.
fn unit(name: &str) -> &'static str {
    if name.ends_with("_us") { "ns" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn with(variant: &str, params: &[(&str, &str)]) -> Cell {
        let mut cell = fixture::small().cells.remove(0);
        cell.variant = variant.into();
        cell.params = params.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        cell
    }

    #[test]
    fn numeric_parameter_is_axis_others_separate_curves() {
        let cells = [
            with("pipe", &[("size", "8"), ("senders", "1")]),
            with("pipe", &[("size", "1024"), ("senders", "1")]),
            with("pipe", &[("size", "1048576"), ("senders", "1")]),
            with("pipe", &[("size", "8"), ("senders", "2")]),
            with("pipe", &[("size", "1024"), ("senders", "2")]),
            with("rtrb", &[("size", "8"), ("senders", "1")]),
        ];
        let found = curves(&cells.iter().collect::<Vec<_>>());
        let words: Vec<(&str, &str, usize)> =
            found.iter().map(|c| (c.param.as_str(), c.common.as_str(), c.lines.len())).collect();
        assert_eq!(words, [("size", "1 sender", 2), ("size", "2 senders", 1)]);
        assert_eq!(found[0].levels(), [8.0, 1024.0, 1048576.0]);
    }

    #[test]
    fn placement_following_level_stays_on_one_curve() {
        let cells = [
            with("linux", &[("pairs", "10"), ("placement", "shared")]),
            with("linux", &[("pairs", "1"), ("placement", "own")]),
        ];
        let found = curves(&cells.iter().collect::<Vec<_>>());
        assert_eq!((found.len(), found[0].levels()), (1, vec![1.0, 10.0]));
    }

    /// Regression: one pair runs cross-core and same-core, more pairs are spread. The paper's
    /// figure was drawn without its first point.
    #[test]
    fn pairs_curve_starts_at_one_pair_and_separates_same_core() {
        let cells = [
            with("linux", &[("pairs", "1"), ("placement", "cross-core")]),
            with("linux", &[("pairs", "1"), ("placement", "same-core")]),
            with("linux", &[("pairs", "2"), ("placement", "spread")]),
            with("linux", &[("pairs", "4"), ("placement", "spread")]),
        ];
        let found = curves(&cells.iter().collect::<Vec<_>>());
        assert_eq!((found.len(), found[0].common.as_str()), (1, ""));
        let lines: Vec<(String, usize, Vec<f64>)> = found[0]
            .lines
            .iter()
            .map(|line| (line.label(), line.at, line.points.iter().map(|(x, _)| *x).collect()))
            .collect();
        let expected =
            [("linux".into(), 0, vec![1.0, 2.0, 4.0]), ("linux, on one core".into(), 1, vec![1.0])];
        assert_eq!(lines, expected);
        assert_eq!(found[0].lines[0].points[0].1.params["placement"], "cross-core");
    }

    #[test]
    fn off_master_and_apart_cells_are_on_no_curve() {
        let cells = [
            with("master", &[("pairs", "1"), ("placement", "cross-core")]),
            with("master", &[("pairs", "1"), ("placement", "off-master")]),
            with("master", &[("pairs", "1"), ("placement", "same-core")]),
            with("master", &[("pairs", "2"), ("placement", "apart")]),
            with("master", &[("pairs", "2"), ("placement", "spread")]),
        ];
        let found = curves(&cells.iter().collect::<Vec<_>>());
        assert_eq!((found.len(), found[0].common.as_str()), (1, ""));
        let labels: Vec<(String, usize)> =
            found[0].lines.iter().map(|line| (line.label(), line.points.len())).collect();
        assert_eq!(labels, [("master".into(), 2), ("master, on one core".into(), 1)]);
    }

    #[test]
    fn two_placements_at_every_level_make_two_curves() {
        let cells = [
            with("pipe", &[("size", "8"), ("placement", "cross-core")]),
            with("pipe", &[("size", "8"), ("placement", "same-core")]),
            with("pipe", &[("size", "64"), ("placement", "cross-core")]),
            with("pipe", &[("size", "64"), ("placement", "same-core")]),
        ];
        let found = curves(&cells.iter().collect::<Vec<_>>());
        let common: Vec<&str> = found.iter().map(|curve| curve.common.as_str()).collect();
        assert_eq!(common, ["between two cores", "on one core"]);
        assert!(found.iter().all(|curve| curve.lines.iter().all(|line| !line.aside)));
    }

    #[test]
    fn pause_parses_as_nanoseconds_words_do_not_parse() {
        assert_eq!((number("pause_us", "10000"), unit("pause_us")), (Some(1e7), "ns"));
        assert_eq!((number("pairs", "10"), unit("pairs")), (Some(10.0), ""));
        for (name, word) in [("placement", "2-core"), ("parent", "1 MiB"), ("window", "as it is")] {
            assert_eq!(number(name, word), None);
        }
        let lone = [with("pipe", &[("placement", "same-core")])];
        assert!(curves(&lone.iter().collect::<Vec<_>>()).is_empty());
    }
}

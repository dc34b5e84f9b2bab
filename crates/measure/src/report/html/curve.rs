//! Which cells make a curve: [`curves`], found by their parameters alone.
//!
//! Any metric whose cells differ by a number (pairs, processes, bytes, a pause) is one: that
//! parameter goes along, a variant is a line. What else the cells differ by is never mixed: it
//! makes a curve of its own. Neighbour: [`super::plot`] draws them.

use std::collections::BTreeMap;

use crate::experiment::Params;
use crate::report::format;
use crate::report::schema::Cell;

/// So many levels make a curve of a parameter that is not the one with most.
const WORTH_A_SECOND_CURVE: usize = 3;

/// Cells over one parameter.
pub(super) struct Curve<'a> {
    /// The parameter that goes along.
    pub(super) param: String,
    /// Its unit; empty for mere numbers.
    pub(super) unit: String,
    /// What all its cells have in common, in words; empty where there is nothing.
    pub(super) common: String,
    /// One a variant, in the run's order.
    pub(super) lines: Vec<Line<'a>>,
}

/// One variant at each level.
pub(super) struct Line<'a> {
    /// The variant.
    pub(super) name: &'a str,
    /// Its number among the metric's variants: it looks the same on all curves.
    pub(super) at: usize,
    /// Level and cell, in the order of the levels.
    pub(super) points: Vec<(f64, &'a Cell)>,
}

impl Curve<'_> {
    /// Every level of any line, in order.
    pub(super) fn levels(&self) -> Vec<f64> {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let mut levels: Vec<f64> = points.map(|(level, _)| *level).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        levels
    }
}

/// The curves that `cells`, all of one metric, make.
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
    // The first of equals is the main one.
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

/// How many different numbers a parameter takes; none where it is not a number in all cells that
/// have it, or counts in several units.
fn levels(cells: &[&Cell], name: &str) -> Option<usize> {
    let values = cells.iter().filter_map(|cell| cell.params.get(name));
    let read: Option<Vec<(f64, &str)>> = values.map(|value| number(name, value)).collect();
    let mut read = read?;
    read.sort_by(|a, b| a.0.total_cmp(&b.0));
    read.dedup_by(|a, b| a.0 == b.0);
    read.windows(2).all(|pair| pair[0].1 == pair[1].1).then_some(read.len())
}

/// The curves over `name`: one, or as many as the other parameters make.
fn over<'a>(cells: &[&'a Cell], name: &str) -> Vec<Curve<'a>> {
    let mut unit = "";
    let mut points: Vec<(f64, &Cell)> = Vec::new();
    for cell in cells {
        if let Some((level, of)) = cell.params.get(name).and_then(|value| number(name, value)) {
            unit = of;
            points.push((level, cell));
        }
    }
    // A parameter that follows the level, as a placement may, parts nothing.
    let mut seen: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    for (level, cell) in &points {
        *seen.entry((&cell.variant, level.to_bits())).or_default() += 1;
    }
    let parted = seen.values().any(|count| *count > 1);
    let rest = |cell: &Cell| {
        let mut rest: Params = cell.params.clone();
        rest.remove(name);
        format::params(&rest)
    };
    let mut variants: Vec<&str> = Vec::new();
    for cell in cells {
        if !variants.contains(&cell.variant.as_str()) {
            variants.push(&cell.variant);
        }
    }
    let mut curves: Vec<Curve<'a>> = Vec::new();
    for (level, cell) in points {
        let common = if parted { rest(cell) } else { String::new() };
        let at = curves.iter().position(|curve| curve.common == common).unwrap_or_else(|| {
            let (param, unit) = (name.to_owned(), unit.to_owned());
            curves.push(Curve { param, unit, common, lines: Vec::new() });
            curves.len() - 1
        });
        let lines = &mut curves[at].lines;
        match lines.iter_mut().find(|line| line.name == cell.variant) {
            Some(line) => line.points.push((level, cell)),
            None => {
                let number = variants.iter().position(|name| *name == cell.variant).unwrap_or(0);
                lines.push(Line { name: &cell.variant, at: number, points: vec![(level, cell)] });
            }
        }
    }
    for line in curves.iter_mut().flat_map(|curve| &mut curve.lines) {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    curves.retain(|curve| curve.lines.iter().any(|line| line.points.len() > 1));
    curves
}

/// A parameter's value as a number with its unit: `64`, `8 B`, `10 ms` (10,000,000 ns).
fn number(name: &str, value: &str) -> Option<(f64, &'static str)> {
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let figure: f64 = value[..end].parse().ok().filter(|figure: &f64| figure.is_finite())?;
    match value[end..].trim() {
        "" if name.ends_with("_ns") => Some((figure, "ns")),
        "" if name.ends_with("_us") => Some((figure * 1e3, "ns")),
        "" => Some((figure, "")),
        "ns" => Some((figure, "ns")),
        "us" | "µs" => Some((figure * 1e3, "ns")),
        "ms" => Some((figure * 1e6, "ns")),
        "s" => Some((figure * 1e9, "ns")),
        "B" | "bytes" => Some((figure, "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn with(variant: &str, params: &[(&str, &str)]) -> Cell {
        let mut cell = fixture::small().cells.remove(0);
        cell.variant = variant.into();
        cell.params = params.iter().map(|&(k, v)| (k.into(), v.into())).collect();
        cell
    }

    #[test]
    fn a_number_goes_along_and_words_part_the_curves() {
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
        assert_eq!(words, [("size", "senders 1", 2), ("size", "senders 2", 1)]);
        assert_eq!(found[0].levels(), [8.0, 1024.0, 1048576.0]);
    }

    #[test]
    fn a_placement_that_follows_the_level_parts_nothing() {
        let cells = [
            with("linux", &[("pairs", "10"), ("placement", "shared")]),
            with("linux", &[("pairs", "1"), ("placement", "own")]),
        ];
        let found = curves(&cells.iter().collect::<Vec<_>>());
        assert_eq!((found.len(), found[0].levels()), (1, vec![1.0, 10.0]));
    }

    #[test]
    fn pauses_are_read_with_their_units_and_words_are_no_numbers() {
        assert_eq!(number("pause", "10 ms"), Some((1e7, "ns")));
        assert_eq!(number("pause", "1µs"), Some((1e3, "ns")));
        assert_eq!(number("placement", "2-core"), None);
        let lone = [with("pipe", &[("placement", "same-core")])];
        assert!(curves(&lone.iter().collect::<Vec<_>>()).is_empty());
    }
}

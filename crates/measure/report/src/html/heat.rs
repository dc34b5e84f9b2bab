//! A metric as a coloured table: by mechanism and placement ([`HeatMap::of_placements`]), or by the
//! two processors of a pair ([`HeatMap::of_pairs`]).
//!
//! A machine with several kinds of core pairs (hardware threads of one core, cores with and without
//! a common cache, sockets) has a column for each. A machine with fewer than three placements has
//! no map, because two columns show nothing that the charts do not.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use tontine_bench::format::FormattedFigure;
use tontine_bench::schema::Cell;
use tontine_bench::sequence::distinct;
use tontine_bench::task::Params;

use super::words;

/// The parameter for the placement of the ends.
const PLACEMENT: &str = "placement";
/// Minimum number of placements.
const MIN_PLACEMENTS: usize = 3;
/// Number of shades in the style sheet.
const SHADES: f64 = 7.0;
/// Maximum number of processors of a map that shows intervals below its figures.
const MOST_WITH_INTERVALS: usize = 12;

/// A figure, as a number and formatted.
type Shaded = (f64, FormattedFigure);

/// A table whose figures are shaded on a logarithmic scale.
pub(super) struct HeatMap {
    title: String,
    /// Meaning of the columns, for the caption.
    by: &'static str,
    corner: &'static str,
    columns: Vec<String>,
    /// The rows, each with a figure or an empty field for each column.
    rows: Vec<(String, Vec<Option<Shaded>>)>,
}

impl HeatMap {
    /// Returns the map of a metric's cells; `None` if the run has too few placements, or if the
    /// cells differ in another parameter.
    pub(super) fn of_placements(title: &str, cells: &[&Cell]) -> Option<Self> {
        let placements: Option<Vec<&String>> =
            cells.iter().map(|cell| cell.params.get(PLACEMENT)).collect();
        let placements = placements.map(distinct)?;
        let rest = |cell: &Cell| -> Params {
            cell.params.clone().into_iter().filter(|(name, _)| name != PLACEMENT).collect()
        };
        let alike = cells.windows(2).all(|pair| rest(pair[0]) == rest(pair[1]));
        let of = |variant: &str, placement: &str| {
            let is_it =
                |cell: &&&Cell| cell.variant == variant && cell.params[PLACEMENT] == placement;
            let estimate = cells.iter().find(is_it)?.estimate?;
            Some((estimate, FormattedFigure::new(&cells[0].unit, estimate, None)))
        };
        let row = |variant: &str| {
            let figures = placements.iter().map(|placement| of(variant, placement)).collect();
            (variant.to_owned(), figures)
        };
        let variants = distinct(cells.iter().map(|cell| cell.variant.as_str()));
        let column = |name: &&String| words::params(&[(PLACEMENT.into(), (*name).clone())].into());
        (placements.len() >= MIN_PLACEMENTS && alike).then(|| Self {
            title: title.to_owned(),
            by: "placement",
            corner: "variant",
            columns: placements.iter().map(column).collect(),
            rows: variants.into_iter().map(row).collect(),
        })
    }

    /// Returns the map of pairs of processors, each once, the higher number in the row; `None` if
    /// there is no pair. `processors` are those of all pairs, so that the maps of one experiment
    /// have the same rows.
    pub(super) fn of_pairs(
        title: String,
        processors: &BTreeSet<usize>,
        figures: impl Iterator<Item = ((usize, usize), Shaded)>,
    ) -> Option<Self> {
        let figures: BTreeMap<(usize, usize), Shaded> = figures.collect();
        let without_last = || processors.iter().take(processors.len().saturating_sub(1));
        let row = |one: &usize| {
            let figures = without_last().map(|other| figures.get(&(*other, *one)).cloned());
            (one.to_string(), figures.collect())
        };
        (!figures.is_empty()).then(|| Self {
            title,
            by: "two processors",
            corner: "processor",
            columns: without_last().map(usize::to_string).collect(),
            rows: processors.iter().skip(1).map(row).collect(),
        })
    }

    /// Draws the table. A figure's interval is below it if there are few columns.
    pub(super) fn table(&self) -> Markup {
        let figures = || self.rows.iter().flat_map(|(_, row)| row).flatten();
        let shades = Shades::of(figures().map(|(figure, _)| *figure));
        let few = self.columns.len() < MOST_WITH_INTERVALS;
        html! {
            div.scroll role="region" tabindex="0" aria-label={ "Heat map: " (self.title) } {
                table.heat {
                    caption {
                        (self.title) " by " (self.by) "; darker is more, on a logarithmic scale"
                    }
                    thead { tr {
                        th scope="col" { (self.corner) }
                        @for column in &self.columns { th.figure scope="col" { (column) } }
                    } }
                    tbody {
                        @for (name, row) in &self.rows {
                            tr {
                                th scope="row" { (name) }
                                @for figure in row {
                                    @match figure {
                                        Some((figure, shown)) => {
                                            td.figure.{ "h" (shades.shade(*figure)) } {
                                                (shown.value)
                                                @if few && !shown.interval.is_empty() {
                                                    br; small { (shown.interval) }
                                                }
                                            }
                                        }
                                        None => td.figure {},
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The range of shades for a set of figures, on a logarithmic scale.
struct Shades {
    low: f64,
    high: f64,
}

impl Shades {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::MIN);
        for log in figures.filter(|figure| *figure > 0.0).map(f64::ln) {
            (low, high) = (low.min(log), high.max(log));
        }
        Self { low, high }
    }

    /// Returns the shade of a figure, from 0. A single figure has the lightest.
    fn shade(&self, figure: f64) -> usize {
        let share = (figure.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        (share.clamp(0.0, 1.0) * (SHADES - 1.0)).round() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn pair_map_has_each_pair_once_with_interval() {
        let model = fixture::small().cells.remove(0);
        let cell = |pair: &str, estimate: f64| {
            let mut cell = model.clone();
            cell.params = [("pair".to_owned(), pair.to_owned())].into();
            let ends = (estimate - 1.0, estimate + 1.0);
            (cell.estimate, cell.low, cell.high) = (Some(estimate), Some(ends.0), Some(ends.1));
            cell
        };
        let cells = [cell("0-1", 10.0), cell("0-2", 100.0), cell("1-2", 1e3)];
        let cells: Vec<&Cell> = cells.iter().collect();
        // The pairs of processor 3 have no figure.
        let map = |cells: &[&Cell]| {
            let pairs = cells.iter().filter_map(|cell| crate::core_pairs::of_cell(cell));
            HeatMap::of_pairs("Latency".into(), &(0..4).collect(), pairs)
        };
        let page = map(&cells).expect("pairs").table().into_string();
        assert!(page.contains("<th scope=\"row\">3</th>"), "{page}");
        for shown in ["h0\"", "h3\"", "h6\"", "10.0 ns<br>", "100.0 ns<br>", "1.000 µs<br>"] {
            assert_eq!(page.matches(shown).count(), 1, "{shown} in {page}");
        }
        assert!(map(&[&model]).is_none());
    }

    #[test]
    fn map_needs_three_placements_and_shades_by_magnitude() {
        let model = fixture::small().cells.remove(0);
        let cell = |placement: &str, estimate: f64| {
            let mut cell = model.clone();
            cell.params = [(PLACEMENT.to_owned(), placement.to_owned())].into();
            cell.estimate = Some(estimate);
            cell
        };
        let cells = [cell("siblings", 10.0), cell("cross-core", 100.0), cell("cross-socket", 1e3)];
        let page = HeatMap::of_placements("Latency", &cells.iter().collect::<Vec<_>>());
        let page = page.expect("three placements").table().into_string();
        for shown in ["h0\">10.0 ns", "h3\">100 ns", "h6\">1.00 µs", "between two sockets"] {
            assert!(page.contains(shown), "{shown} in {page}");
        }
        let two: Vec<&Cell> = cells[..2].iter().collect();
        assert!(HeatMap::of_placements("Latency", &two).is_none());
    }
}

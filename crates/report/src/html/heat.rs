//! A metric as a coloured table: by mechanism and placement ([`heat_map`]), or by the two
//! processors of a pair ([`PairMap`]).
//!
//! A machine with several kinds of core pairs (hardware threads of one core, cores with and without
//! a common cache, sockets) has a column for each. A machine with fewer than three placements has
//! no map, because two columns show nothing that the charts do not.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::{Cell, Ratio};
use tontine_bench::task::Params;

use super::words;
use crate::core_pairs;

/// The parameter for the placement of the ends.
const PLACEMENT: &str = "placement";
/// Minimum number of placements.
const MIN_PLACEMENTS: usize = 3;
/// Number of shades in the style sheet.
const SHADES: f64 = 7.0;
/// Maximum number of processors of a map that shows intervals below its figures.
const MOST_WITH_INTERVALS: usize = 12;

/// Returns the map of a metric's cells; nothing if the run has too few placements, or if the cells
/// differ in another parameter.
pub(super) fn heat_map(title: &str, cells: &[&Cell]) -> Markup {
    let mut placements: Vec<&str> = Vec::new();
    let mut variants: Vec<&str> = Vec::new();
    for cell in cells {
        let Some(placement) = cell.params.get(PLACEMENT) else { return html! {} };
        if !placements.contains(&placement.as_str()) {
            placements.push(placement);
        }
        if !variants.contains(&cell.variant.as_str()) {
            variants.push(&cell.variant);
        }
    }
    let rest = |cell: &Cell| -> Params {
        cell.params.clone().into_iter().filter(|(name, _)| name != PLACEMENT).collect()
    };
    let alike = cells.windows(2).all(|pair| rest(pair[0]) == rest(pair[1]));
    if placements.len() < MIN_PLACEMENTS || !alike {
        return html! {};
    }
    let of = |variant: &str, placement: &str| {
        cells.iter().find(|cell| cell.variant == variant && cell.params[PLACEMENT] == placement)
    };
    let shades = Shades::of(cells.iter().filter_map(|cell| cell.estimate));
    html! {
        div.scroll role="region" tabindex="0" aria-label={ "Heat map: " (title) } {
            table.heat {
                caption { (title) " by placement; darker is more, on a logarithmic scale" }
                thead { tr {
                    th scope="col" { "variant" }
                    @for placement in &placements {
                        th.figure scope="col" {
                            (words::params(&[(PLACEMENT.into(), (*placement).into())].into()))
                        }
                    }
                } }
                tbody {
                    @for variant in &variants {
                        tr {
                            th scope="row" { (variant) }
                            @for placement in &placements {
                                @match of(variant, placement).and_then(|cell| cell.estimate) {
                                    Some(estimate) => td.figure.{ "h" (shades.shade(estimate)) } {
                                        (format::single(&cells[0].unit, estimate))
                                    },
                                    None => td.figure { (format::NOTHING) },
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

/// A figure of each pair of processors, as a table of processors by processors.
pub(super) struct PairMap {
    title: String,
    /// The processors of all pairs, so that the maps of one experiment have the same rows.
    processors: BTreeSet<usize>,
    /// The figure of each pair, as a number and with its interval as text.
    figures: BTreeMap<(usize, usize), (f64, FormattedFigure)>,
}

impl PairMap {
    /// Returns the map of one metric of one variant; `None` if its cells are not pairs.
    pub(super) fn of_cells(
        title: String,
        processors: BTreeSet<usize>,
        cells: &[&Cell],
    ) -> Option<Self> {
        let figure = |cell: &&Cell| {
            let shown = FormattedFigure::of_cell(cell)?;
            Some((core_pairs::pair(&cell.params)?, (cell.estimate?, shown)))
        };
        Self { title, processors, figures: cells.iter().filter_map(figure).collect() }
            .unless_empty()
    }

    /// Returns the map of one ratio; `None` if its parameters are not pairs.
    pub(super) fn of_ratios(
        title: String,
        processors: BTreeSet<usize>,
        ratios: &[&Ratio],
    ) -> Option<Self> {
        let figure = |ratio: &&Ratio| {
            let shown = format::times(ratio.estimate, ratio.low, ratio.high);
            Some((core_pairs::pair(&ratio.params)?, (ratio.estimate, shown)))
        };
        Self { title, processors, figures: ratios.iter().filter_map(figure).collect() }
            .unless_empty()
    }

    fn unless_empty(self) -> Option<Self> {
        Some(self).filter(|map| !map.figures.is_empty())
    }

    /// Returns the table: each pair once, the higher number in the row. The interval is below the
    /// figure on a machine with few processors, otherwise in the title that a pointer shows.
    pub(super) fn table(&self) -> Markup {
        let processors: Vec<usize> = self.processors.iter().copied().collect();
        let columns = &processors[..processors.len().saturating_sub(1)];
        let shades = Shades::of(self.figures.values().map(|(figure, _)| *figure));
        let few = columns.len() < MOST_WITH_INTERVALS;
        html! {
            div.scroll role="region" tabindex="0" aria-label={ "Heat map: " (self.title) } {
                table.heat {
                    caption {
                        (self.title) " between two processors; "
                        "darker is more, on a logarithmic scale"
                    }
                    thead { tr {
                        th scope="col" { "processor" }
                        @for other in columns { th.figure scope="col" { (other) } }
                    } }
                    tbody {
                        @for one in processors.iter().skip(1) {
                            tr {
                                th scope="row" { (one) }
                                @for other in columns {
                                    @match self.figures.get(&(*other, *one)) {
                                        Some((figure, shown)) => td.figure
                                            .{ "h" (shades.shade(*figure)) }
                                            title=(shown.interval)
                                        {
                                            (shown.value)
                                            @if few { br; small { (shown.interval) } }
                                        },
                                        None => td {},
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

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

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
        let map = |cells| PairMap::of_cells("Latency".into(), (0..4).collect(), cells);
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
        let page = heat_map("Latency", &cells.iter().collect::<Vec<_>>()).into_string();
        for shown in ["h0\">10.0 ns", "h3\">100 ns", "h6\">1.00 µs", "between two sockets"] {
            assert!(page.contains(shown), "{shown} in {page}");
        }
        let two: Vec<&Cell> = cells[..2].iter().collect();
        assert!(heat_map("Latency", &two).into_string().is_empty());
    }
}

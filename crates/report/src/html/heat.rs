//! A metric by mechanism and placement as a coloured table: [`heat_map`].
//!
//! A machine with several kinds of core pairs (hardware threads of one core, cores with and without
//! a common cache, sockets) has a column for each. A machine with fewer than three placements has
//! no map, because two columns show nothing that the charts do not.

use maud::{Markup, html};
use tontine_bench::format;
use tontine_bench::schema::Cell;
use tontine_bench::task::Params;

use super::words;

/// The parameter for the placement of the ends.
const PLACEMENT: &str = "placement";
/// Minimum number of placements.
const MIN_PLACEMENTS: usize = 3;
/// Number of shades in the style sheet.
const SHADES: f64 = 7.0;

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
    let logs = || cells.iter().filter_map(|cell| cell.estimate.filter(|e| *e > 0.0)).map(f64::ln);
    let (low, high) = (logs().fold(f64::INFINITY, f64::min), logs().fold(f64::MIN, f64::max));
    let shade = |estimate: f64| {
        let share = (estimate.max(f64::MIN_POSITIVE).ln() - low) / (high - low);
        (share.clamp(0.0, 1.0) * (SHADES - 1.0)).round() as usize
    };
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
                                    Some(estimate) => td.figure.{ "h" (shade(estimate)) } {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

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

//! The distributions of the samples: [`distributions`], cumulative curves on a common axis.
//!
//! The histograms of a cell's invocations are merged. A figure shows up to eight cells with the
//! same parameters, from the 1st to the 99th percentile on one logarithmic axis, so that their
//! order, width and overlap are visible at once. Cells with more neighbours than that are split by
//! their medians. A histogram that cannot be decoded is omitted rather than guessed.

use hdrhistogram::Histogram;
use maud::{Markup, html};
use tontine_bench::format;
use tontine_bench::schema::Cell;

use super::axis::{self, Axis};
use crate::text;

/// Histograms record thousandths of the unit.
const THOUSANDTHS: f64 = 1_000.0;
/// Maximum number of curves in a figure: the number of colours.
const MAX_CURVES: usize = 8;
/// Maximum number of figures shown unfolded.
const UNFOLDED: usize = 2;
/// Minimum number of samples.
const MIN_SAMPLES: u64 = 100;
/// Shares at which a curve has a point, in thousandths.
const SHARES: [u32; 27] = [
    10, 20, 35, 50, 75, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800,
    850, 900, 925, 950, 965, 980, 990,
];

struct Distribution<'a> {
    cell: &'a Cell,
    samples: u64,
    values: Vec<f64>,
}

impl<'a> Distribution<'a> {
    /// Returns the distribution of a cell's samples; `None` for shares, rates, and cells with fewer
    /// than [`MIN_SAMPLES`] samples or no positive sample.
    fn of(cell: &'a Cell) -> Option<Self> {
        if cell.unit == "share" || cell.unit.ends_with("/s") {
            return None;
        }
        let mut merged = Histogram::<u64>::new(3).ok()?;
        for invocation in &cell.invocations {
            merged.add(invocation.summary.samples()?).ok()?;
        }
        if merged.len() < MIN_SAMPLES || merged.max() == 0 {
            return None;
        }
        let at = |share: u32| merged.value_at_quantile(f64::from(share) / 1e3).max(1) as f64;
        let values = SHARES.into_iter().map(|share| at(share) / THOUSANDTHS).collect();
        Some(Self { cell, samples: merged.len(), values })
    }

    fn median(&self) -> f64 {
        self.values[SHARES.len() / 2]
    }

    fn path(&self, axis: &Axis) -> String {
        let points = self.values.iter().zip(SHARES);
        axis::polyline(points.map(|(value, share)| (axis.place(*value), height(share))))
    }
}

/// Returns the position of a share in thousandths, in percent from the top.
fn height(share: u32) -> f64 {
    100.0 - f64::from(share) / 10.0
}

/// Returns the distributions of `groups`, each a set of cells with the same parameters; nothing if
/// no cell has a distribution.
pub(super) fn distributions(title: &str, groups: &[(String, Vec<&Cell>)]) -> Markup {
    let mut variants: Vec<&str> = Vec::new();
    let mut figures: Vec<(&str, Vec<Distribution<'_>>)> = Vec::new();
    for (params, cells) in groups {
        let mut all: Vec<Distribution<'_>> =
            cells.iter().filter_map(|cell| Distribution::of(cell)).collect();
        for one in &all {
            if !variants.contains(&one.cell.variant.as_str()) {
                variants.push(&one.cell.variant);
            }
        }
        all.sort_by(|a, b| a.median().total_cmp(&b.median()));
        let parts = all.len().div_ceil(MAX_CURVES).max(1);
        let each = all.len().div_ceil(parts).max(1);
        while !all.is_empty() {
            let rest = all.split_off(each.min(all.len()));
            figures.push((params, std::mem::replace(&mut all, rest)));
        }
    }
    // A variant has the same colour in all figures, if there are enough colours.
    let colour = |at: usize, one: &Distribution<'_>| {
        let number = variants.iter().position(|name| *name == one.cell.variant);
        number.filter(|_| variants.len() <= MAX_CURVES).unwrap_or(at)
    };
    html! {
        @if !figures.is_empty() {
            details.shapes open[figures.len() <= UNFOLDED] {
                summary { "Distributions: " (title) }
                p.hint {
                    "Share of the samples of all invocations at or below a value, from the 1st to "
                    "the 99th percentile. The axis is logarithmic. Steeper is steadier."
                }
                div.cdfs {
                    @for (params, curves) in &figures { (figure(title, params, curves, &colour)) }
                }
            }
        }
    }
}

fn figure(
    title: &str,
    params: &str,
    curves: &[Distribution<'_>],
    colour: &impl Fn(usize, &Distribution<'_>) -> usize,
) -> Markup {
    let unit = curves.first().map_or("", |one| one.cell.unit.as_str());
    let values = curves.iter().flat_map(|one| one.values.iter().copied());
    let Some(axis) = Axis::over(unit, values) else {
        return html! {};
    };
    html! {
        figure.cdf {
            @if !params.is_empty() { p.group { (params) } }
            (axis::frame(
                &description(title, params, curves),
                [1_000, 500, 0].into_iter().map(|share| {
                    (height(share), format!("{} %", share / 10))
                }),
                &picture(&axis, curves, colour),
                &axis.labels(&axis.ticks()),
            ))
            figcaption {
                @for (at, one) in curves.iter().enumerate() {
                    span.{ "c" (colour(at, one)) } {
                        svg.key aria-hidden="true" width="26" height="12" {
                            path.cumulative.{ "c" (colour(at, one)) } d="M0 6H26" {}
                        }
                        (one.cell.variant) " " b { (format::single(unit, one.median())) }
                    }
                }
                @if let Some(few) = text::few_for_shape(curves.iter().map(|one| one.cell)) {
                    span { (few) }
                }
            }
        }
    }
}

fn picture(
    axis: &Axis,
    curves: &[Distribution<'_>],
    colour: &impl Fn(usize, &Distribution<'_>) -> usize,
) -> Markup {
    let ticks: Vec<f64> = axis.ticks().into_iter().map(|tick| axis.place(tick)).collect();
    let paths = html! {
        path.tick d=(axis::grid(&ticks, &[25.0, 50.0, 75.0])) {}
        @for (at, one) in curves.iter().enumerate() {
            path.cumulative.{ "c" (colour(at, one)) } data-name=(one.cell.variant)
                d=(one.path(axis)) {}
        }
    };
    html! { svg.curves aria-hidden="true" { (axis::stretched(1_000.0, &paths)) } }
}

fn description(title: &str, params: &str, curves: &[Distribution<'_>]) -> String {
    let each: Vec<String> = curves
        .iter()
        .map(|one| {
            let at = |value: f64| format::single(&one.cell.unit, value);
            let [low, .., high] = &one.values[..] else { return String::new() };
            format!(
                "{}: median {}, 1st percentile {}, 99th percentile {}, {} samples",
                one.cell.variant,
                at(one.median()),
                at(*low),
                at(*high),
                format::tick("", one.samples as f64)
            )
        })
        .collect();
    let params = if params.is_empty() { String::new() } else { format!(", {params}") };
    format!("Cumulative distributions of {title}{params}. {}.", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn distribution_contains_all_samples_in_order() {
        let results = fixture::run();
        let cell = &results.cells[0];
        let one = Distribution::of(cell).unwrap();
        let samples: usize = cell.invocations.iter().map(|i| i.summary.count).sum();
        assert_eq!(one.samples as usize, samples);
        assert!(one.values.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", one.values);
        assert!((one.median() / cell.estimate.unwrap() - 1.0).abs() < 0.05);
    }

    #[test]
    fn figure_has_at_most_eight_curves_and_all_cells() {
        let results = fixture::run();
        let cells: Vec<&Cell> = results
            .cells
            .iter()
            .filter(|cell| cell.experiment == "round-trip" && Distribution::of(cell).is_some())
            .collect();
        let groups = [("here".to_owned(), cells.clone())];
        let page = distributions("x", &groups).into_string();
        let figures: Vec<&str> = page.split("<figure").skip(1).collect();
        assert_eq!(figures.len(), cells.len().div_ceil(MAX_CURVES));
        let curves = |figure: &str| figure.matches("data-name=").count();
        assert!(figures.iter().all(|figure| (1..=MAX_CURVES).contains(&curves(figure))));
        assert_eq!(curves(&page), cells.len());
        for cell in cells {
            assert!(page.contains(&format!("data-name=\"{}\"", cell.variant)), "{}", cell.variant);
        }
    }

    #[test]
    fn histogram_that_cannot_be_decoded_is_omitted() {
        let mut results = fixture::run();
        let cell = &mut results.cells[0];
        cell.invocations[0].summary.histogram = "bm90IGEgaGlzdG9ncmFt".into();
        assert!(Distribution::of(cell).is_none());
        let groups = [(String::new(), vec![&*cell])];
        assert!(distributions("x", &groups).into_string().is_empty());
    }
}

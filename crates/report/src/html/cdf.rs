//! The distributions of the samples: [`distributions`], cumulative curves on a common axis.
//!
//! The histograms of a cell's invocations are merged. A figure shows up to eight cells with the
//! same parameters, from the 1st to the 99th percentile on one logarithmic axis, so that their
//! order, width and overlap are visible at once. Cells with more neighbours than that are split by
//! their medians. A histogram that cannot be decoded is omitted rather than guessed.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use maud::{Markup, html};
use tontine_bench::format;
use tontine_bench::schema::Cell;

use super::axis::Axis;
use crate::text;

/// Histograms record thousandths of the unit.
const THOUSANDTHS: f64 = 1_000.0;
/// Maximum number of curves in a figure: the number of colours.
const MAX_CURVES: usize = 8;
/// Maximum number of figures shown unfolded.
const UNFOLDED: usize = 2;
/// Minimum number of samples.
const MIN_SAMPLES: u64 = 100;
/// Width and height of a figure, in the units of its paths.
const SIZE: (f64, f64) = (1_000.0, 200.0);
/// Shares at which a curve has a point, in thousandths.
const SHARES: [u32; 27] = [
    10, 20, 35, 50, 75, 100, 150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 650, 700, 750, 800,
    850, 900, 925, 950, 965, 980, 990,
];

/// A cell's samples.
struct Distribution<'a> {
    cell: &'a Cell,
    samples: u64,
    /// The values at [`SHARES`], in the cell's unit.
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
            merged.add(read(&invocation.summary.histogram)?).ok()?;
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

    /// Returns the curve, in whole units of [`SIZE`].
    fn path(&self, axis: &Axis) -> String {
        let mut path = String::new();
        let mut last = None;
        for (value, share) in self.values.iter().zip(SHARES) {
            let x = (axis.place(*value) / 100.0 * SIZE.0).round();
            let y = ((1.0 - f64::from(share) / 1e3) * SIZE.1).round();
            if last != Some((x, y)) {
                let _ = write!(path, "{}{x} {y}", if last.is_none() { 'M' } else { 'L' });
            }
            last = Some((x, y));
        }
        path
    }
}

fn read(base64: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(base64).ok()?;
    Deserializer::new().deserialize(&mut &bytes[..]).ok()
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
        figure.cdf data-cdf=(axis.described()) {
            @if !params.is_empty() { p.group { (params) } }
            div.frame role="img" aria-label=(description(title, params, curves)) {
                svg.scale aria-hidden="true" {
                    @for (share, label) in [(0.0, "100 %"), (50.0, "50 %"), (100.0, "0 %")] {
                        text x="100%" y=(format!("{share}%")) dy="0.32em" text-anchor="end" {
                            (label)
                        }
                    }
                }
                svg.curves viewBox=(format!("0 0 {} {}", SIZE.0, SIZE.1))
                    preserveAspectRatio="none" aria-hidden="true" {
                    path.tick d=(grid(&axis)) {}
                    @for (at, one) in curves.iter().enumerate() {
                        path.cumulative.{ "c" (colour(at, one)) } data-name=(one.cell.variant)
                            d=(one.path(&axis)) {}
                    }
                }
                span {}
                (axis.labels())
            }
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

/// Returns the lines at the quarters and at the ticks of the axis.
fn grid(axis: &Axis) -> String {
    let mut path = String::new();
    for quarter in [0.25, 0.5, 0.75] {
        let _ = write!(path, "M0 {}H{}", SIZE.1 * quarter, SIZE.0);
    }
    for tick in axis.ticks() {
        let _ = write!(path, "M{} 0V{}", (axis.place(tick) / 100.0 * SIZE.0).round(), SIZE.1);
    }
    path
}

/// Returns a text description of the figure, for screen readers.
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
    use tontine_bench::fixture;

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

//! The distribution of the samples: [`histograms`], a small one per cell.
//!
//! The histograms of a cell's invocations are merged and drawn between the 1st and the 99th
//! percentile, each on its own logarithmic axis, with the cumulative curve above; the caption names
//! the values outside that range. A histogram that cannot be decoded is omitted rather than
//! guessed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use maud::{Markup, html};
use tontine_bench::format;
use tontine_bench::schema::Cell;

/// Number of bars, about the maximum that fits on a phone with the labels below them.
const BARS: usize = 60;
/// Histograms record thousandths of the unit.
const THOUSANDTHS: f64 = 1_000.0;
/// Maximum number of histograms shown unfolded.
const UNFOLDED: usize = 12;

/// Returns small multiples of `cells`; nothing if no cell has a distribution worth drawing.
pub(super) fn histograms(title: &str, cells: &[&Cell]) -> Markup {
    let shapes: Vec<(&Cell, Shape)> =
        cells.iter().filter_map(|cell| Some((*cell, Shape::of(cell)?))).collect();
    html! {
        @if !shapes.is_empty() {
            details.shapes open[shapes.len() <= UNFOLDED] {
                summary { "Distributions: " (title) " (" (shapes.len()) ")" }
                p.hint {
                    "All samples of all invocations, from the 1st to the 99th percentile, each on "
                    "a "
                    "logarithmic axis of its own. Filled: frequency; line: share at or below."
                }
                div.grid { @for (cell, shape) in &shapes { (small(cell, shape)) } }
            }
        }
    }
}

fn small(cell: &Cell, shape: &Shape) -> Markup {
    let at = |quantile: f64| format::single(&cell.unit, shape.at(quantile));
    let label = format!(
        "Histogram of {} samples: median {}, 1st percentile {}, 99th percentile {}, maximum {}.",
        shape.merged.len(),
        at(0.5),
        at(0.01),
        at(0.99),
        at(1.0)
    );
    let name = format!("Histogram: {} {}", cell.variant, format::params(&cell.params));
    html! {
        figure aria-label=(name) {
            h5 {
                (cell.variant)
                @if !cell.params.is_empty() { small { (format::params(&cell.params)) } }
            }
            svg viewBox="0 0 100 40" preserveAspectRatio="none" role="img" aria-label=(label)
                data-low=(shape.low / THOUSANDTHS) data-high=(shape.high / THOUSANDTHS)
                data-unit=(cell.unit) {
                path.area d=(shape.area()) {}
                line.median x1=(shape.x(0.5)) x2=(shape.x(0.5)) y1="0" y2="40" {}
                path.cumulative d=(shape.cumulative()) {}
            }
            div.ends { span { (at(0.01)) } span { "median " (at(0.5)) } span { (at(0.99)) } }
            p.hint {
                "p99.9 " (at(0.999)) " · max " (at(1.0)) " · "
                (format::tick("", shape.merged.len() as f64)) " samples"
            }
        }
    }
}

/// A merged histogram and the logarithmic range that is drawn.
struct Shape {
    merged: Histogram<u64>,
    low: f64,
    high: f64,
    /// Samples in each bar, of equal width on the logarithmic axis.
    heights: Vec<f64>,
}

impl Shape {
    /// Returns the shape of a cell's samples; `None` for shares, rates, and cells with fewer than
    /// 100 samples or no positive sample.
    fn of(cell: &Cell) -> Option<Self> {
        if cell.unit == "share" || cell.unit.ends_with("/s") {
            return None;
        }
        let mut merged = Histogram::<u64>::new(3).ok()?;
        for invocation in &cell.invocations {
            merged.add(read(&invocation.summary.histogram)?).ok()?;
        }
        if merged.len() < 100 || merged.max() == 0 {
            return None;
        }
        let low = merged.value_at_quantile(0.01).max(1) as f64 * 0.995;
        let high = merged.value_at_quantile(0.99).max(1) as f64 * 1.005;
        let mut heights = vec![0.0; BARS];
        let bar = |value: f64| (value / low).ln() / (high / low).ln() * BARS as f64;
        for step in merged.iter_recorded() {
            // A recorded value represents a range of equivalent values. Spread the value over that
            // range, because otherwise the bars of a coarse clock would have gaps.
            let value = step.value_iterated_to();
            let from = bar(merged.lowest_equivalent(value).max(1) as f64);
            let to = bar(merged.next_non_equivalent(value) as f64);
            let density = step.count_at_value() as f64 / (to - from);
            for (at, height) in heights.iter_mut().enumerate() {
                let overlap = to.min((at + 1) as f64) - from.max(at as f64);
                *height += density * overlap.max(0.0);
            }
        }
        Some(Self { merged, low, high, heights })
    }

    /// Returns a quantile in the cell's unit.
    fn at(&self, quantile: f64) -> f64 {
        self.merged.value_at_quantile(quantile) as f64 / THOUSANDTHS
    }

    /// Returns the position of a quantile, 0 to 100.
    fn x(&self, quantile: f64) -> String {
        let value = self.merged.value_at_quantile(quantile).max(1) as f64;
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        format!("{:.2}", share.clamp(0.0, 1.0) * 100.0)
    }

    fn area(&self) -> String {
        let most = self.heights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let width = 100.0 / BARS as f64;
        let mut path = String::from("M0 40");
        for (at, height) in self.heights.iter().enumerate() {
            let y = 40.0 - 38.0 * height / most;
            path.push_str(&format!(
                "L{:.2} {y:.2}H{:.2}",
                width * at as f64,
                width * (at + 1) as f64
            ));
        }
        path.push_str("L100 40Z");
        path
    }

    fn cumulative(&self) -> String {
        let mut path = String::new();
        for at in 0..=BARS {
            let share = at as f64 / BARS as f64;
            let value = self.low * (self.high / self.low).powf(share);
            let below = self.merged.quantile_below(value as u64);
            let command = if at == 0 { 'M' } else { 'L' };
            path.push_str(&format!("{command}{:.2} {:.2}", share * 100.0, 39.0 - 38.0 * below));
        }
        path
    }
}

fn read(base64: &str) -> Option<Histogram<u64>> {
    let bytes = STANDARD.decode(base64).ok()?;
    Deserializer::new().deserialize(&mut &bytes[..]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tontine_bench::fixture;

    #[test]
    fn histogram_shape_contains_all_but_the_tails() {
        let results = fixture::run();
        let cell = &results.cells[0];
        let shape = Shape::of(cell).unwrap();
        let samples: usize = cell.invocations.iter().map(|i| i.summary.count).sum();
        assert_eq!(shape.merged.len() as usize, samples);
        let drawn: f64 = shape.heights.iter().sum();
        assert!(drawn > samples as f64 * 0.97, "{drawn} of {samples}");
        assert!((shape.at(0.5) / cell.estimate.unwrap() - 1.0).abs() < 0.05);
    }

    #[test]
    fn histogram_that_cannot_be_decoded_is_omitted() {
        let mut results = fixture::run();
        let cell = &mut results.cells[0];
        cell.invocations[0].summary.histogram = "bm90IGEgaGlzdG9ncmFt".into();
        assert!(Shape::of(cell).is_none());
        assert!(histograms("x", &[cell]).into_string().is_empty());
    }
}

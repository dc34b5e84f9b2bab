//! Maps a figure to a position on a chart: [`Axis`]; and the parts that all charts share:
//! [`frame`], [`grid`], [`polyline`], [`stretched`].
//!
//! The axis is logarithmic if all figures are positive; it is linear for shares, or if a figure is
//! negative, or zero and the others are close to it. Positions are percentages of the width, so
//! that a chart stretches with the page while its text keeps its size.

use std::fmt::Write;

use maud::{Markup, html};
use tontine_bench::format;

/// Margin at both ends, in percent of the width.
const MARGIN: f64 = 3.0;
/// Minimum ratio of the largest to the smallest positive figure for a logarithmic axis on a curve,
/// or on a chart with a zero.
const DECADES: f64 = 100.0;
/// Maximum number of labels; more would collide on a narrow screen.
const MAX_TICKS: usize = 6;

/// The horizontal axis of a chart.
#[derive(Debug)]
pub(super) struct Axis {
    unit: String,
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    /// Creates an axis that contains all of `figures`; `None` if no figure is finite.
    pub(super) fn over(unit: &str, figures: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut low, mut high, mut least) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for figure in figures.filter(|figure| figure.is_finite()) {
            low = low.min(figure);
            high = high.max(figure);
            least = if figure > 0.0 { least.min(figure) } else { least };
        }
        if low > high {
            return None;
        }
        // The end of a wide interval may be zero although all other figures are far from it.
        if low == 0.0 && high > DECADES * least {
            low = least;
        }
        let logarithmic = unit != "share" && low > 0.0;
        if logarithmic {
            // Leave about a sixth of an octave on each side, so that a single figure is not at the
            // edge.
            (low, high) = (low / 1.12, high * 1.12);
        } else if unit == "share" {
            (low, high) = (low.min(0.0), high.max(1.0));
        } else {
            let margin = ((high - low) * 0.05).max(high.abs() * 0.05).max(1e-9);
            (low, high) = (low - margin, high + margin);
        }
        Some(Self { unit: unit.into(), low, high, logarithmic })
    }

    /// Creates an axis for a curve: logarithmic if `figures` span more than two decades, otherwise
    /// linear, starting at zero if `from_zero` is set. On a logarithmic axis, zero is at the left
    /// edge.
    pub(super) fn along(
        unit: &str,
        figures: impl Iterator<Item = f64>,
        from_zero: bool,
    ) -> Option<Self> {
        let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        let high = figures.iter().copied().reduce(f64::max)?;
        let low = figures.iter().copied().reduce(f64::min)?;
        let least = figures.iter().copied().filter(|f| *f > 0.0).fold(high, f64::min);
        let logarithmic = low >= 0.0 && high > DECADES * least;
        let (low, high) = match (logarithmic, from_zero) {
            // Leave space for zero, well away from the first level.
            (true, _) if low == 0.0 => (least / 4.0, high),
            (true, true) => (low / 1.12, high * 1.12),
            (true, false) => (low, high),
            (false, true) => (low.min(0.0), if high > 0.0 { high * 1.04 } else { 1.0 }),
            (false, false) if low == high => (low - 0.5, high + 0.5),
            (false, false) => (low, high),
        };
        Some(Self { unit: unit.into(), low, high, logarithmic })
    }

    /// Returns `logarithmic` or `linear`, for a caption.
    pub(super) fn kind(&self) -> &'static str {
        if self.logarithmic { "logarithmic" } else { "linear" }
    }

    /// Returns the position in percent from the left; NaN maps to the left edge.
    pub(super) fn place(&self, figure: f64) -> f64 {
        let share = if self.logarithmic {
            (figure.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (figure - self.low) / (self.high - self.low)
        };
        if share.is_finite() {
            MARGIN + share.clamp(0.0, 1.0) * (100.0 - 2.0 * MARGIN)
        } else {
            0.0
        }
    }

    /// Returns round figures within the axis, in order.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let mut ticks = if self.logarithmic { self.decades(&[1.0]) } else { self.steps() };
        if self.logarithmic && ticks.len() < 3 {
            ticks = self.decades(&[1.0, 2.0, 5.0]);
        }
        if ticks.len() < 3 {
            ticks = self.steps();
        }
        if ticks.len() > MAX_TICKS {
            let stride = ticks.len().div_ceil(MAX_TICKS);
            ticks = ticks.into_iter().step_by(stride).collect();
        }
        ticks
    }

    fn decades(&self, within: &[f64]) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all =
            (first..=last).flat_map(|power| within.iter().map(move |m| m * 10f64.powi(power)));
        all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }

    fn steps(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..first + 12)
            .map(|n| n as f64 * step)
            .take_while(|tick| *tick <= self.high + step * 1e-9)
            .collect()
    }

    /// Returns at most ten of `levels`, chosen so that their labels fit side by side.
    pub(super) fn levels(&self, levels: &[f64]) -> Vec<f64> {
        let mut kept: Vec<f64> = Vec::new();
        for level in levels {
            let place = self.place(*level);
            if kept.last().is_none_or(|last| place - self.place(*last) > 9.0) {
                kept.push(*level);
            }
        }
        kept
    }

    pub(super) fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns the labels of some figures, as a separate strip.
    pub(super) fn labels(&self, at: &[f64]) -> Markup {
        html! {
            svg.axis aria-hidden="true" height="20" {
                @for figure in at {
                    @let place = self.place(*figure);
                    @let anchor =
                        if place < 8.0 { "start" } else if place > 92.0 { "end" } else { "middle" };
                    text x=(percent(place)) y="14" text-anchor=(anchor) {
                        (format::tick(&self.unit, *figure))
                    }
                }
            }
        }
    }

    /// Returns the position in whole thousandths of the width, for a path that is stretched.
    pub(super) fn thousandths(&self, figure: f64) -> f64 {
        (self.place(figure) * 10.0).round()
    }
}

/// Draws a picture with labels on its left, each at a position from the top, and a strip below.
pub(super) fn frame(
    description: &str,
    left: impl Iterator<Item = (f64, String)>,
    picture: &Markup,
    below: &Markup,
) -> Markup {
    html! {
        div.frame role="img" aria-label=(description) {
            svg.scale aria-hidden="true" {
                @for (place, label) in left {
                    text x="100%" y=(percent(place)) dy="0.32em" text-anchor="end" { (label) }
                }
            }
            (picture)
            span {}
            (below)
        }
    }
}

/// Draws paths whose width is 1000 over the whole area, however wide it is.
pub(super) fn stretched(height: f64, paths: &Markup) -> Markup {
    html! {
        svg.wide width="100%" height="100%" viewBox=(format!("0 0 1000 {height}"))
            preserveAspectRatio="none" { (paths) }
    }
}

/// Returns the lines at positions from the left and from the top, on an area of 1000 by 1000.
pub(super) fn grid(along: &[f64], down: &[f64]) -> String {
    let down = down.iter().map(|place| format!("M0 {:.0}H1000", place * 10.0));
    down.chain(along.iter().map(|place| format!("M{:.0} 0V1000", place * 10.0))).collect()
}

/// Returns the line through positions from the left and from the top, on an area of 1000 by 1000.
pub(super) fn polyline(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    let mut last = None;
    for (x, y) in points.map(|(x, y)| ((x * 10.0).round(), (y * 10.0).round())) {
        if last != Some((x, y)) {
            let _ = write!(path, "{}{x} {y}", if last.is_none() { 'M' } else { 'L' });
        }
        last = Some((x, y));
    }
    path
}

pub(super) fn percent(place: f64) -> String {
    let short = format!("{place:.2}");
    format!("{}%", short.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithmic_axis_has_decades_of_equal_width() {
        let axis = Axis::over("ns", [1.0, 1e5].into_iter()).unwrap();
        let near = axis.place(100.0) - axis.place(10.0);
        let far = axis.place(1e5) - axis.place(1e4);
        assert!((near - far).abs() < 1e-9);
        assert_eq!(axis.ticks(), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5]);
    }

    #[test]
    fn axis_is_linear_with_zero_and_absent_without_figures() {
        let axis = Axis::over("cycles", [0.0, 40.0].into_iter()).unwrap();
        assert_eq!(axis.kind(), "linear");
        assert!(axis.place(0.0) < axis.place(20.0) && axis.place(20.0) < axis.place(40.0));
        let far = Axis::over("ns", [0.0, 2e3, 2e6].into_iter()).unwrap();
        assert_eq!((far.kind(), far.place(0.0)), ("logarithmic", MARGIN));
        assert!(Axis::over("ns", [f64::NAN].into_iter()).is_none());
    }

    #[test]
    fn curve_axis_beyond_two_decades_is_logarithmic_with_zero() {
        let linear = Axis::along("s", [2.0, 90.0].into_iter(), true).unwrap();
        assert_eq!((linear.kind(), linear.place(0.0)), ("linear", MARGIN));
        let sizes = Axis::along("", [0.0, 7.0, 999.0].into_iter(), false).unwrap();
        assert_eq!(sizes.kind(), "logarithmic");
        assert_eq!(sizes.place(0.0), MARGIN);
        assert!(sizes.place(7.0) > 10.0 && sizes.place(999.0) > 96.0);
        assert_eq!(sizes.levels(&[0.0, 7.0, 8.0, 999.0]), [0.0, 7.0, 999.0]);
    }

    #[test]
    fn axis_has_two_to_six_ticks_within_range() {
        for (unit, low, high) in [
            ("ns", 61.0, 61.0),
            ("ns", 0.3, 900.0),
            ("ns", 1.0, 1e12),
            ("share", 0.2, 0.3),
            ("x", -5.0, 0.0),
        ] {
            let axis = Axis::over(unit, [low, high].into_iter()).unwrap();
            let ticks = axis.ticks();
            assert!((2..=MAX_TICKS).contains(&ticks.len()), "{unit} {low} {high}: {ticks:?}");
            assert!(ticks.iter().all(|t| (0.0..=100.0).contains(&axis.place(*t))));
            assert!(ticks.windows(2).all(|pair| axis.place(pair[0]) < axis.place(pair[1])));
        }
    }
}

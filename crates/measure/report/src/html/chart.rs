//! The cells of one metric on one axis: [`chart`].
//!
//! A row shows the estimate as a vertical stroke and its interval as a bar. Below them are a dot
//! for every invocation, in the order of the run from top to bottom, and a hollow diamond for a
//! published figure. The row is HTML and its track an SVG that stretches, so that the text keeps
//! its size on a narrow screen. All dots of a row are one path. Cells with the same parameters that
//! are all zero are a sentence instead of rows.

use maud::{Markup, html};
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::observe::Statistic;
use tontine_bench::schema::{Cell, Invocation, PublishedFigure};
use tontine_bench::sequence::distinct;

use super::axis::{self, Axis, percent};
use crate::text;

/// Height of a track, in px.
const HEIGHT: f64 = 36.0;
/// Position of interval and estimate, in px from the top.
const MIDDLE: f64 = 12.0;
/// Positions of the first and the last invocation, in px from the top.
const DOTS: (f64, f64) = (24.0, 33.0);

/// Maximum number of rows in a description; a longer chart states its ends only.
const MAX_DESCRIBED: usize = 24;

/// Returns a chart of `groups`, each a set of cells with the same parameters.
pub(super) fn chart(title: &str, unit: &str, groups: &[(String, Vec<&Cell>)]) -> Markup {
    let (zero, groups): (Vec<_>, Vec<_>) =
        groups.iter().cloned().partition(|(_, cells)| cells.iter().all(|cell| is_zero(cell)));
    html! {
        (bars(title, unit, &groups))
        (zeroes(title, &zero, groups.is_empty()))
    }
}

fn is_zero(cell: &Cell) -> bool {
    cell.estimate == Some(0.0) && cell.invocations.iter().all(|one| one.summary.max == 0.0)
}

/// Returns a sentence about the cells that are zero; `all` is true if there are no others.
fn zeroes(title: &str, groups: &[(String, Vec<&Cell>)], all: bool) -> Markup {
    let rows: usize = groups.iter().map(|(_, cells)| cells.len()).sum();
    let cells = groups.iter().flat_map(|(_, cells)| cells);
    let variants = distinct(cells.map(|cell| cell.variant.as_str()));
    let params: Vec<&str> =
        groups.iter().map(|(params, _)| params.as_str()).filter(|p| !p.is_empty()).collect();
    html! {
        @if rows > 0 {
            p.zero {
                b { @if all { "All zero: " } @else { "Zero: " } }
                (title)
                @if rows == 1 { ", in one row (" } @else { ", in each of " (rows) " rows (" }
                (variants.join(", "))
                @if (1..=3).contains(&params.len()) { "; " (params.join("; ")) }
                ")."
            }
        }
    }
}

fn bars(title: &str, unit: &str, groups: &[(String, Vec<&Cell>)]) -> Markup {
    let cells = || groups.iter().flat_map(|(_, cells)| cells.iter().copied());
    let Some(axis) = Axis::over(unit, cells().flat_map(figures)) else {
        return html! {};
    };
    let several = groups.len() > 1;
    html! {
        figure.chart {
            div role="img" aria-label=(description(title, groups)) {
                @for (params, cells) in groups {
                    @if several || !params.is_empty() { p.group { (params) } }
                    div.row.head { span {} (axis.labels(&axis.ticks())) span {} }
                    @for cell in cells { (row(cell, &axis)) }
                }
            }
            figcaption {
                (legend(cells().any(|cell| !cell.published.is_empty())))
                span { (unit_in_words(unit)) (axis.kind()) " axis" }
                @if let Some(few) = text::few_for_shape(cells()) { span { (few) } }
            }
        }
    }
}

/// Returns the unit, if the ticks omit it.
fn unit_in_words(unit: &str) -> String {
    if unit.contains('/') { format!("{unit}, ") } else { String::new() }
}

/// Returns all figures that the axis must contain.
pub(super) fn figures(cell: &Cell) -> impl Iterator<Item = f64> {
    let (low, high) = format::ends(cell).unzip();
    let own = [cell.estimate, low, high].into_iter().flatten();
    let ran = cell.invocations.iter().map(|invocation| figure_of(invocation, cell.statistic));
    let published = cell.published.iter().flat_map(|p| [Some(p.value), p.low, p.high]).flatten();
    own.chain(ran).chain(published)
}

pub(super) fn figure_of(invocation: &Invocation, statistic: Statistic) -> f64 {
    match statistic {
        Statistic::Median => invocation.summary.median,
        Statistic::Mean => invocation.summary.mean,
    }
}

fn row(cell: &Cell, axis: &Axis) -> Markup {
    let shown = FormattedFigure::of_cell(cell);
    html! {
        div.row {
            span.name {
                (cell.variant)
                @if cell.notes.iter().any(|note| note.starts_with("unstable")) {
                    small { "unstable" }
                }
            }
            svg.track aria-hidden="true" height=(HEIGHT) {
                (bar(cell, axis, MIDDLE))
                (dots(cell, axis))
                @if let Some(estimate) = cell.estimate {
                    @let x = percent(axis.place(estimate));
                    line.estimate x1=(x) x2=(x) y1=(MIDDLE - 9.0) y2=(MIDDLE + 9.0)
                        data-v=(estimate) {}
                }
                @for published in &cell.published { (diamond(published, cell, axis)) }
            }
            span.value {
                @if let Some(shown) = &shown {
                    b { (shown.value) }
                    small { (shown.interval) }
                }
            }
        }
    }
}

/// Returns a dot for each invocation, as lines of no length with round ends.
fn dots(cell: &Cell, axis: &Axis) -> Markup {
    let step = (DOTS.1 - DOTS.0) / cell.invocations.len().saturating_sub(1).max(1) as f64;
    let place = |(at, one): (usize, &Invocation)| {
        let x = axis.thousandths(figure_of(one, cell.statistic));
        format!("M{x} {:.0}h0", DOTS.0 + step * at as f64)
    };
    let path: String = cell.invocations.iter().enumerate().map(place).collect();
    axis::stretched(HEIGHT, &html! { path.ran d=(path) {} })
}

/// Draws the lines behind a row, and the interval of its cell.
pub(super) fn bar(cell: &Cell, axis: &Axis, middle: f64) -> Markup {
    let lines: String =
        axis.ticks().iter().map(|tick| format!("M{} 0v1", axis.thousandths(*tick))).collect();
    let ends = format::ends(cell);
    html! {
        (axis::stretched(1.0, &html! { path.tick d=(lines) {} }))
        @if let Some(start) = ends.map(|(low, _)| low).or(cell.estimate) {
            // A line that leads the eye from the name to the figure.
            line.leader x1="0" x2=(percent(axis.place(start))) y1=(middle) y2=(middle) {}
        }
        @if let Some((low, high)) = ends {
            // Without a minimum width, a narrow interval would be invisible.
            @let (left, right) = (axis.place(low), axis.place(high));
            rect.interval x=(percent(left)) width=(percent((right - left).max(0.15)))
                y=(middle - 5.0) height="10" rx="2" {}
        }
    }
}

/// Returns the mark of a published figure, whose title is the only place of the machine's name.
fn diamond(published: &PublishedFigure, cell: &Cell, axis: &Axis) -> Markup {
    html! {
        svg.published x=(percent(axis.place(published.value))) y=(MIDDLE) {
            path d="M0-6L6 0L0 6L-6 0Z" {
                title {
                    "published [" (published.source) ", " (published.machine) "]: "
                    (FormattedFigure::of_published(&cell.unit, published).in_line())
                }
            }
        }
    }
}

fn legend(published: bool) -> Markup {
    html! {
        span { svg.key aria-hidden="true" width="26" height="16" {
            rect.interval x="2" y="3" width="22" height="10" rx="2" {}
            line.estimate x1="12" x2="12" y1="0" y2="16" {}
        } "estimate, interval" }
        span { svg.key aria-hidden="true" width="26" height="16" {
            path.ran d="M5 5h0M13 8h0M20 11h0" {}
        } "one invocation, first at the top" }
        @if published {
            span { svg.key aria-hidden="true" width="18" height="16" {
                svg.published x="9" y="8" { path d="M0-6L6 0L0 6L-6 0Z" {} }
            } "published, on another machine" }
        }
    }
}

fn description(title: &str, groups: &[(String, Vec<&Cell>)]) -> String {
    let rows: Vec<String> = groups
        .iter()
        .flat_map(|(params, cells)| cells.iter().map(move |cell| (params, cell)))
        .filter_map(|(params, cell)| {
            let shown = FormattedFigure::of_cell(cell)?.in_line();
            let params = if params.is_empty() { String::new() } else { format!(", {params}") };
            Some(format!("{}{params}: {shown}", cell.variant))
        })
        .collect();
    let rows = match &rows[..] {
        [first, .., last] if rows.len() > MAX_DESCRIBED => {
            format!("{} rows, from {first} to {last}", rows.len())
        }
        _ => rows.join("; "),
    };
    format!("Chart of {title}. {rows}. The table below has the same figures.")
}

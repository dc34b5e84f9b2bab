//! The cells of one metric on one axis: [`chart`].
//!
//! A row shows the estimate as a vertical stroke and its interval as a bar. Below them are a dot
//! for every invocation, in the order of the run from top to bottom, and a hollow diamond for a
//! published figure. The row is HTML and its track an SVG that stretches, so that the text keeps
//! its size on a narrow screen.

use maud::{Markup, html};
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::observe::Statistic;
use tontine_bench::schema::{Cell, Invocation, PublishedFigure};

use super::axis::{Axis, percent};

/// Height of a track, in px.
const HEIGHT: f64 = 44.0;
/// Position of interval and estimate, in px from the top.
const MIDDLE: f64 = 14.0;
/// Positions of the first and the last invocation, in px from the top.
const DOTS: (f64, f64) = (28.0, 38.0);

/// Returns a chart of `groups`, each a set of cells with the same parameters.
pub(super) fn chart(title: &str, unit: &str, groups: &[(String, Vec<&Cell>)]) -> Markup {
    let cells = || groups.iter().flat_map(|(_, cells)| cells.iter().copied());
    let Some(axis) = Axis::over(unit, cells().flat_map(figures)) else {
        return html! {};
    };
    let several = groups.len() > 1;
    html! {
        figure.chart data-x=(axis.described()) {
            div role="img" aria-label=(description(title, groups)) {
                @for (params, cells) in groups {
                    @if several || !params.is_empty() { p.group { (params) } }
                    div.row.head { span {} (axis.labels()) span {} }
                    @for cell in cells { (row(cell, &axis)) }
                }
            }
            figcaption {
                (legend(cells().any(|cell| !cell.published.is_empty())))
                span { (unit_in_words(unit)) (axis.kind()) " axis" }
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
    let ends = format::ends(cell);
    html! {
        div.row {
            span.name {
                (cell.variant)
                @if cell.notes.iter().any(|note| note.starts_with("unstable")) {
                    small { "unstable" }
                }
            }
            svg.track aria-hidden="true" height=(HEIGHT) {
                (axis.grid())
                @if let Some(start) = ends.map(|(low, _)| low).or(cell.estimate) {
                    // A line that leads the eye from the name to the figure.
                    line.leader x1="0" x2=(percent(axis.place(start))) y1=(MIDDLE) y2=(MIDDLE) {}
                }
                @if let Some((low, high)) = ends {
                    // Without a minimum width, a narrow interval would be invisible.
                    @let (left, right) = (axis.place(low), axis.place(high));
                    rect.interval x=(percent(left)) width=(percent((right - left).max(0.15)))
                        y=(MIDDLE - 5.0) height="10" rx="2" {}
                }
                @for (at, invocation) in cell.invocations.iter().enumerate() {
                    (dot(at, invocation, cell, axis))
                }
                @if let Some(estimate) = cell.estimate {
                    @let x = percent(axis.place(estimate));
                    line.estimate x1=(x) x2=(x) y1=(MIDDLE - 9.0) y2=(MIDDLE + 9.0)
                        data-v=(estimate) {
                        title { (shown.as_ref().map(FormattedFigure::in_line).unwrap_or_default()) }
                    }
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

fn dot(at: usize, invocation: &Invocation, cell: &Cell, axis: &Axis) -> Markup {
    let figure = figure_of(invocation, cell.statistic);
    let step = (DOTS.1 - DOTS.0) / cell.invocations.len().saturating_sub(1).max(1) as f64;
    html! {
        circle.dot cx=(percent(axis.place(figure))) cy=(format!("{:.1}", DOTS.0 + step * at as f64))
            data-v=(figure) {}
    }
}

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
            circle.dot.sample cx="5" cy="5" {}
            circle.dot.sample cx="13" cy="8" {}
            circle.dot.sample cx="20" cy="11" {}
        } "one invocation, first at the top" }
        @if published {
            span { svg.key aria-hidden="true" width="18" height="16" {
                svg.published x="9" y="8" { path d="M0-6L6 0L0 6L-6 0Z" {} }
            } "published, on another machine" }
        }
    }
}

/// Returns a text description of the chart, for screen readers.
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
    format!("Chart of {title}. {}. The table below has the same figures.", rows.join("; "))
}

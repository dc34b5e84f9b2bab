//! Draws a curve: [`plot`].
//!
//! Each variant has one line. At each level the line has a mark at the estimate, a broad stroke for
//! the interval, and a dot for every invocation, in order from left to right. All positions are
//! percentages or stretched paths, so that the drawing stretches but its text does not. Lines
//! differ in colour and in the shape of their marks.

use std::fmt::Write;

use maud::{Markup, html};
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::Cell;

use super::axis::{self, Axis, percent};
use super::chart::{figure_of, figures};
use super::curve::{Curve, CurveLine};
use super::explained::set;
use super::paper::Paper;
use crate::text;

/// Marks, one per line, drawn around 0,0.
const SHAPES: [&str; 6] = [
    "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1-4 0Z",
    "M-4-4H4V4H-4Z",
    "M0-5.5L5.5 0L0 5.5L-5.5 0Z",
    "M0-5L5 4H-5Z",
    "M0 5L5-4H-5Z",
    "M-5-2H-2V-5H2V-2H5V2H2V5H-2V2H-5Z",
];

/// Number of colours in the style sheet.
const COLOURS: usize = 8;

/// Distance between the dots of two invocations, in percent of the width.
const APART: f64 = 0.22;

/// Maximum number of points in a description; a longer line states its ends only.
const MAX_DESCRIBED: usize = 40;

/// Draws `curve`, as a figure of the paper if it is one; returns nothing if no cell has a figure.
pub(super) fn plot(title: &str, curve: &Curve<'_>, paper: Option<&Paper>) -> Markup {
    let cells = || curve.lines.iter().flat_map(|line| line.points.iter().map(|(_, cell)| *cell));
    let first = cells().next();
    let unit = first.map_or("", |cell| cell.unit.as_str());
    let levels = curve.levels();
    let along = Axis::along(&curve.unit, levels.iter().copied(), false);
    let up = Axis::along(unit, cells().flat_map(figures), true);
    let Some((along, up)) = along.zip(up) else {
        return html! {};
    };
    let levels = along.levels(&levels);
    let name = name(title, curve);
    html! {
        figure.curve {
            @if let Some(paper) = paper { p.group { (paper.caption) } }
            @if !curve.common.is_empty() { p.group { (set(&curve.common)) } }
            p.axis-title {
                (paper.map_or_else(|| up_in_words(title, unit), |p| p.up.to_owned())) (kind(&up))
            }
            (axis::frame(
                &description(&name, curve),
                up.ticks().into_iter().map(|tick| {
                    (100.0 - up.place(tick), format::tick(up.unit(), tick))
                }),
                &picture(curve, &along, &levels, &up),
                &along.labels(&levels),
            ))
            p.axis-title.below {
                (paper.map_or_else(|| along_in_words(curve), |p| p.along.to_owned()))
                (kind(&along))
            }
            (caption(curve))
            @if let Some(paper) = paper { (shape(paper)) }
        }
    }
}

/// Returns the kind of an axis, if it is not the usual one.
fn kind(axis: &Axis) -> &'static str {
    if axis.kind() == "linear" { "" } else { ", logarithmic" }
}

fn shape(paper: &Paper) -> Markup {
    html! {
        p.shape {
            b { "In the paper [001], whose figure shows no numbers: " }
            (paper.shape)
        }
    }
}

fn name(title: &str, curve: &Curve<'_>) -> String {
    let common =
        if curve.common.is_empty() { String::new() } else { format!(" ({})", curve.common) };
    format!("{title} by {}{common}", along_in_words(curve))
}

fn along_in_words(curve: &Curve<'_>) -> String {
    match curve.param.as_str() {
        "size" => "bytes per message".into(),
        "idle" => "idle senders".into(),
        "distance" => "bytes between the two words".into(),
        other => other.replace(['_', '-'], " "),
    }
}

fn up_in_words(title: &str, unit: &str) -> String {
    if unit.ends_with("/s") { unit.replace("/s", " per second") } else { title.to_lowercase() }
}

fn picture(curve: &Curve<'_>, along: &Axis, levels: &[f64], up: &Axis) -> Markup {
    let columns: Vec<f64> = levels.iter().map(|level| along.place(*level)).collect();
    let rows: Vec<f64> = up.ticks().into_iter().map(|tick| 100.0 - up.place(tick)).collect();
    html! {
        svg.plot aria-hidden="true" {
            (axis::stretched(1_000.0, &html! { path.tick d=(axis::grid(&columns, &rows)) {} }))
            @for line in &curve.lines { (drawn(line, along, up)) }
        }
    }
}

fn drawn(line: &CurveLine<'_>, along: &Axis, up: &Axis) -> Markup {
    let place = |level: f64, figure: f64| (along.place(level), 100.0 - up.place(figure));
    let known: Vec<(f64, f64)> = line
        .points
        .iter()
        .filter_map(|(level, cell)| Some(place(*level, cell.estimate?)))
        .collect();
    html! {
        g class=(format!("line c{}", line.at % COLOURS)) data-name=(line.name) {
            (axis::stretched(1_000.0, &html! {
                path.ran d=(dots(line, along, up)) {}
                path.span d=(intervals(line, &place)) {}
                @if known.len() > 1 { path.path d=(axis::polyline(known.iter().copied())) {} }
            }))
            @for (level, cell) in &line.points { (point(line.at, *level, cell, &place)) }
        }
    }
}

/// Returns a dot for each invocation, as lines of no length with round ends.
fn dots(line: &CurveLine<'_>, along: &Axis, up: &Axis) -> String {
    let mut path = String::new();
    for (level, cell) in &line.points {
        let middle = cell.invocations.len().saturating_sub(1) as f64 / 2.0;
        for (nth, one) in cell.invocations.iter().enumerate() {
            let x = along.place(*level) + (nth as f64 - middle) * APART;
            let y = 100.0 - up.place(figure_of(one, cell.statistic));
            let _ = write!(path, "M{:.0} {:.0}h0", x * 10.0, y * 10.0);
        }
    }
    path
}

/// Returns a vertical line for each interval.
fn intervals(line: &CurveLine<'_>, place: &impl Fn(f64, f64) -> (f64, f64)) -> String {
    let mut path = String::new();
    for (level, cell) in &line.points {
        if let Some((low, high)) = format::ends(cell) {
            let ((x, below), (_, above)) = (place(*level, low), place(*level, high));
            let _ = write!(path, "M{:.0} {:.0}V{:.0}", x * 10.0, below * 10.0, above * 10.0);
        }
    }
    path
}

fn point(at: usize, level: f64, cell: &Cell, place: &impl Fn(f64, f64) -> (f64, f64)) -> Markup {
    html! {
        @if let Some(estimate) = cell.estimate {
            @let (x, y) = place(level, estimate);
            svg.mark x=(percent(x)) y=(percent(y)) data-v=(estimate) {
                path d=(SHAPES[at % SHAPES.len()]) {}
            }
        }
    }
}

/// Returns what all curves have in common.
pub(super) fn hint() -> Markup {
    html! {
        p.hint { "On the curves: mark: estimate; broad stroke: interval; dots: invocations." }
    }
}

fn caption(curve: &Curve<'_>) -> Markup {
    html! {
        figcaption {
            @for line in &curve.lines {
                span class=(format!("c{}", line.at % COLOURS)) {
                    svg.key aria-hidden="true" width="26" height="16" {
                        line.path x1="0" x2="26" y1="8" y2="8" {}
                        svg.mark x="13" y="8" { path d=(SHAPES[line.at % SHAPES.len()]) {} }
                    }
                    (line.label())
                }
            }
            @let points = curve.lines.iter().flat_map(|line| &line.points);
            @if let Some(few) = text::few_for_shape(points.map(|(_, cell)| *cell)) {
                span { (few) }
            }
        }
    }
}

fn description(name: &str, curve: &Curve<'_>) -> String {
    let all: usize = curve.lines.iter().map(|line| line.points.len()).sum();
    let lines: Vec<String> = curve
        .lines
        .iter()
        .map(|line| {
            let last = line.points.len().saturating_sub(1);
            let points = line.points.iter().enumerate();
            let points: Vec<String> = points
                .filter(|(at, _)| all <= MAX_DESCRIBED || *at == 0 || *at == last)
                .map(|(_, point)| point)
                .filter_map(|(level, cell)| {
                    let shown = FormattedFigure::of_cell(cell)?.in_line();
                    Some(format!("at {} {shown}", format::tick(&curve.unit, *level)))
                })
                .collect();
            format!("{}: {}", line.label(), points.join(", "))
        })
        .collect();
    format!("Curve of {name}. {}. The table below has the same figures.", lines.join("; "))
}

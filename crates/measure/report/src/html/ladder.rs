//! The latency ladder as a picture: [`ladder`].
//!
//! One row per mechanism on a common logarithmic axis: a symbol at the estimate, a bar for the
//! interval, the figure, and the effect of a kill as a symbol and a word. The symbols differ in
//! shape, so that no colour is needed to tell them apart.

use maud::{Markup, html};
use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::Results;

use super::axis::{Axis, percent};
use super::chart;
use super::words;
use crate::verdict::{KillEffect, Rung, missing_rungs, rungs};

/// Height of a track, in px.
const HEIGHT: f64 = 22.0;
/// Maximum length of a reason for a missing mechanism.
const MAX_REASON: usize = 60;

/// Returns the ladder; nothing if no mechanism was measured.
pub(super) fn ladder(results: &Results) -> Markup {
    let rungs = rungs(results);
    let figures = rungs.iter().flat_map(|rung| {
        let (low, high) = format::ends(rung.cell).unzip();
        [rung.cell.estimate, low, high].into_iter().flatten()
    });
    let Some(axis) = Axis::over("ns", figures) else {
        return html! {};
    };
    let params = rungs.last().map(|rung| words::params(&rung.cell.params)).unwrap_or_default();
    html! {
        section aria-labelledby="ladder" {
            h2 #ladder { "How long a short message takes, and what a kill does" }
            p.lead {
                "One way, " (params) ". Each line to the right is ten times as long. A mark is the "
                "median over fresh processes, and a bar its 95 % interval. The last column says "
                "what happens to the other end if one end is killed at a random moment. The "
                "mailbox is Tontine's own."
            }
            figure.ladder {
                div role="img" aria-label=(description(&rungs)) {
                    div.rung.head { span {} (axis.labels(&axis.ticks())) span {} span {} }
                    @for rung in &rungs { (row(rung, &axis)) }
                }
                (missing(results))
            }
        }
    }
}

fn row(rung: &Rung<'_>, axis: &Axis) -> Markup {
    let middle = HEIGHT / 2.0;
    let shown = FormattedFigure::of_cell(rung.cell);
    html! {
        div.rung.{ (class(rung.effect)) } {
            span.name {
                (rung.cell.variant)
                @if rung.effect == KillEffect::NoOtherEnd { " " small { "one memory access" } }
                @if !rung.waiting.is_empty() { " " small { (rung.waiting) } }
            }
            svg.track aria-hidden="true" height=(HEIGHT) {
                (chart::bar(rung.cell, axis, middle))
                @if let Some(estimate) = rung.cell.estimate {
                    svg.mark x=(percent(axis.place(estimate))) y=(middle) {
                        path d=(shape(rung.effect)) {}
                    }
                }
            }
            span.value title=[shown.as_ref().map(|shown| &shown.interval)] {
                @if let Some(shown) = &shown { (shown.value) }
            }
            span.effect title=(rung.because) {
                svg.key aria-hidden="true" width="16" height="14" {
                    svg.mark x="8" y="7" { path d=(shape(rung.effect)) {} }
                }
                (rung.effect.word())
            }
        }
    }
}

fn class(effect: KillEffect) -> &'static str {
    match effect {
        KillEffect::Survives => "survives",
        KillEffect::MessagesLost | KillEffect::MessagesTorn => "loses",
        KillEffect::Hangs => "hangs",
        KillEffect::NotKilled | KillEffect::NoOtherEnd => "unkilled",
    }
}

/// Returns the symbol of an effect, drawn around 0,0.
fn shape(effect: KillEffect) -> &'static str {
    match effect {
        KillEffect::Survives => "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0Z",
        KillEffect::MessagesLost => "M0-6L6 0L0 6L-6 0Z",
        KillEffect::MessagesTorn => "M-6 5H6L0-6Z",
        KillEffect::Hangs => "M-5-3L-3-5L0-2L3-5L5-3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z",
        KillEffect::NotKilled => "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1-4 0Z",
        KillEffect::NoOtherEnd => "M-1-6H1V6H-1Z",
    }
}

fn missing(results: &Results) -> Markup {
    let missing = missing_rungs(results);
    html! {
        @if !missing.is_empty() {
            figcaption {
                span {
                    "Not measured: "
                    @for (at, (name, why)) in missing.iter().enumerate() {
                        @if at > 0 { "; " }
                        (name)
                        @if !why.is_empty() { " (" (shortened(why)) ")" }
                    }
                }
            }
        }
    }
}

fn shortened(why: &str) -> String {
    let first = why.split(['\n', ';', ':']).next().unwrap_or_default();
    match first.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None => first.into(),
    }
}

fn description(rungs: &[Rung<'_>]) -> String {
    let each: Vec<String> = rungs
        .iter()
        .filter_map(|rung| {
            let shown = FormattedFigure::of_cell(rung.cell)?.in_line();
            Some(format!("{}: {shown}, {}", rung.cell.variant, rung.effect.word()))
        })
        .collect();
    format!("Ladder of latencies, with the effect of a kill. {}.", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn rung_shows_effect_as_symbol_and_word() {
        let page = ladder(&fixture::run()).into_string();
        let (_, pipe) = page.split_once("</svg>messages lost").unwrap();
        assert!(!pipe.is_empty());
        for (effect, word) in [
            (KillEffect::Survives, "survives"),
            (KillEffect::MessagesLost, "messages lost"),
            (KillEffect::Hangs, "hangs"),
            (KillEffect::NotKilled, "not tested"),
        ] {
            assert!(page.contains(&format!("</svg>{word}</span>")), "{word}");
            assert!(page.matches(shape(effect)).count() >= 2, "{word}");
        }
        let shapes = [KillEffect::Survives, KillEffect::Hangs, KillEffect::NotKilled].map(shape);
        assert!(shapes[0] != shapes[1] && shapes[1] != shapes[2]);
        assert!(page.contains("Not measured: container-tcp (no Docker engine answers)"), "{page}");
    }

    #[test]
    fn long_reason_is_shortened() {
        assert_eq!(shortened("none: other"), "none");
        assert_eq!(shortened(&"ä".repeat(70)).chars().count(), MAX_REASON + 1);
    }
}

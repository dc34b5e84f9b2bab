//! Recommendations: [`answers`] shows the decisions, with the figures behind them folded,
//! [`survivors`] the effect of a kill on each mechanism as a table.

use maud::{Markup, html};
use tontine_bench::format::FormattedFigure;
use tontine_bench::schema::Results;

use super::{explained, marked};
use crate::verdict::{Rated, VerdictAnswer, decisions, mechanisms};

/// Returns the decisions of a run: question, answer, and the folded figures.
pub(super) fn answers(results: &Results) -> Markup {
    html! {
        section aria-labelledby="decisions" {
            h2 #decisions { "What to choose here" }
            ul.answers { @for decision in decisions(results) { (answer(&decision)) } }
        }
    }
}

fn answer(decision: &VerdictAnswer) -> Markup {
    let figures = decision.figures.len();
    html! {
        li {
            h3 { (decision.question) }
            p { (marked(&decision.answer)) }
            @if figures > 0 {
                details.evidence {
                    summary {
                        "Evidence: " (figures)
                        @if figures == 1 { " figure" } @else { " figures" }
                    }
                    ul {
                        @for one in &decision.figures {
                            li { code { (one.name) } ": " b { (one.shown.in_line()) } }
                        }
                    }
                }
            }
            @if !decision.missing.is_empty() {
                details.evidence {
                    summary { "Not measured: " (decision.missing.len()) }
                    p { (decision.missing.join("; ")) }
                }
            }
        }
    }
}

/// Returns the table of mechanisms, prices and survival; nothing if no mechanism was timed or
/// killed.
pub(super) fn survivors(results: &Results) -> Markup {
    let rows = mechanisms(results);
    html! {
        @if !rows.is_empty() {
            section.experiment aria-labelledby="survives" {
                h2 #survives { "What a message costs, and what a kill does" }
                div.scroll role="region" tabindex="0" aria-label="Table: mechanisms and kills" {
                    (table(&rows))
                }
            }
        }
    }
}

fn table(rows: &[Rated<'_>]) -> Markup {
    html! {
        table.survivors {
            caption {
                "Cheapest first; kills at random moments, of either end"
                @if rows.iter().any(|row| row.name.starts_with("mailbox")) {
                    "; both ends of a mailbox sleep while they wait"
                }
            }
            thead { tr {
                th scope="col" { "mechanism" }
                th.figure scope="col" { "one way" }
                th scope="col" { "survives?" }
                th scope="col" { "kills" }
            } }
            tbody { @for row in rows { (mechanism(row)) } }
        }
    }
}

fn mechanism(row: &Rated<'_>) -> Markup {
    let (answer, because) = row.fate.words();
    html! {
        tr {
            th scope="row" { (row.name) }
            td.figure.main {
                @match row.one_way.and_then(FormattedFigure::of_cell) {
                    Some(shown) => { (shown.value) small { (shown.interval) } },
                    None => span.untried { "not measured" },
                }
            }
            td { b.survives[row.fate.keeps_all()] { (answer) } }
            td { (explained::set(&because)) }
        }
    }
}

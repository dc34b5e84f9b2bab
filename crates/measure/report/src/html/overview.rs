//! The first page, `report.html`: [`page`].
//!
//! The order is: the ladder, six figures, the answers with folded evidence, what disturbed the run,
//! and links to everything else.

use maud::{Markup, html};
use tontine_bench::schema::Results;

use super::{MACHINE, ReportPage, contents, decision, document, file, ladder, machine, marked};
use crate::verdict;

/// The files with the data, next to the page.
const DATA: [(&str, &str); 3] = [
    ("results.json", "every figure, unrounded, with a histogram of each invocation"),
    ("results.csv", "one line per row, for a spreadsheet"),
    ("results.md", "the tables, for a README or an issue"),
];

/// Returns the overview of a run whose other pages are `topics` and the machine's.
pub(super) fn page(results: &Results, topics: &[ReportPage<'_>]) -> String {
    let body = html! {
        header {
            p.brand { "Tontine · measure" }
            h1 #top { "What mechanisms cost on this machine" }
            @if let Some(line) = machine::one_line(&results.machine) { p.machine { (line) } }
            p.run { (verdict::run_line(results)) }
            @if !results.complete { (super::incomplete()) }
        }
        (contents(topics, ""))
        main.overview {
            (ladder::ladder(results))
            (headlines(results))
            (decision::answers(results))
            (sentences(results))
            (disturbed(results))
            (links(topics))
        }
    };
    document("What mechanisms cost on this machine", &body)
}

fn headlines(results: &Results) -> Markup {
    let all = verdict::headlines(results);
    html! {
        @if !all.is_empty() {
            section aria-labelledby="figures" {
                h2 #figures { @if all.len() == 6 { "Six figures" } @else { "In figures" } }
                ul.headlines {
                    @for one in &all {
                        li {
                            p.big { (one.figure.value) }
                            p.interval { (one.figure.interval) }
                            p.phrase { (marked(&one.phrase)) }
                        }
                    }
                }
            }
        }
    }
}

fn sentences(results: &Results) -> Markup {
    let sentences = verdict::verdict(results);
    html! {
        @if sentences.is_empty() {
            p { "No measured row supports a sentence; the tables say why." }
        } @else {
            details.verdict {
                summary #verdict { "More findings, in sentences" }
                ul { @for sentence in &sentences { li { (marked(sentence)) } } }
            }
        }
    }
}

fn disturbed(results: &Results) -> Markup {
    html! {
        section.disturbed aria-labelledby="disturbed" {
            h2 #disturbed { "What disturbed the run" }
            (machine::warning(&results.machine))
        }
    }
}

fn links(topics: &[ReportPage<'_>]) -> Markup {
    html! {
        section aria-labelledby="more" {
            h2 #more { "All figures" }
            ul.pages {
                @for topic in topics {
                    li {
                        a href=(file(topic.anchor)) { b { (topic.title) } }
                        p { (topic.question) }
                        p.hint { (topic.experiments.join(" · ")) }
                    }
                }
                li {
                    a href=(file(MACHINE)) { b { "Machine and method" } }
                    p { "Where the figures were measured, and how they are computed" }
                }
                li #data {
                    b { "Data" }
                    @for (name, words) in DATA { p { a href=(name) { (name) } ": " (words) } }
                }
            }
        }
    }
}

//! A run as one page: [`page`].
//!
//! One file that asks for nothing else: style inline, charts drawn here as SVG, the raw data in a
//! link of its own. It reads without scripts, on a narrow screen, dark or light, and on paper. The
//! parts: [`section`] an experiment with its tables, [`chart`] intervals and invocations on an axis
//! ([`axis`]), [`histogram`] the shape of the samples, [`machine`] the advice and the card,
//! [`method`] how a figure is made. What it says in words comes from [`super::verdict`], how
//! numbers look from [`super::format`].

mod axis;
mod chart;
mod histogram;
mod machine;
mod method;
mod section;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::schema::Results;
use super::verdict::{self, Part, Sentence};

const STYLE: &str = include_str!("style.css");

/// Forbids the page, whatever a hostile name might smuggle in, to fetch or run anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The whole document; `json` is the run as `results.json` holds it, offered for download.
pub fn page(results: &Results, json: &[u8]) -> String {
    let experiments = section::names(results);
    let sentences = verdict::verdict(results);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "What attention costs on this machine" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.brand { "Tontine · measure" }
                    h1 { "What attention costs on this machine" }
                    @if let Some(line) = machine::one_line(&results.machine) {
                        p.machine { (line) }
                    }
                    p.run { (verdict::run_line(results)) }
                    @if !results.complete { (incomplete()) }
                }
                main {
                    (the_verdict(&sentences))
                    (contents(&experiments))
                    (machine::advice(&results.machine))
                    @for name in &experiments { (section::section(results, name)) }
                    (section::ratios(results))
                    (machine::card(&results.machine))
                    (method::method())
                    (raw_data(json))
                }
            }
        }
    }
    .into_string()
}

fn incomplete() -> Markup {
    html! {
        p.incomplete role="status" {
            strong { "Incomplete. " }
            "The run was interrupted: what follows rests on the invocations that had ended by "
            "then, and "
            "cells that had too few have no interval."
        }
    }
}

fn the_verdict(sentences: &[Sentence]) -> Markup {
    html! {
        section.verdict aria-labelledby="verdict" {
            h2 #verdict { "The verdict" }
            @if sentences.is_empty() {
                p { "Nothing was measured that a sentence could rest on; the tables say why." }
            } @else {
                ul { @for sentence in sentences { li { (marked(sentence)) } } }
            }
        }
    }
}

fn marked(sentence: &Sentence) -> Markup {
    html! {
        @for part in &sentence.parts {
            @match part {
                Part::Words(text) => (text),
                Part::Name(text) => code { (text) },
                Part::Figure(text) => strong { (text) },
                Part::Interval(text) => span.whole { (text) },
            }
        }
    }
}

fn contents(experiments: &[&str]) -> Markup {
    html! {
        nav aria-label="Contents" {
            @for name in experiments { a href={ "#" (section::anchor(name)) } { (name) } " " }
            a href="#machine" { "the machine" } " "
            a href="#method" { "the method" } " "
            a href="#data" { "the data" }
        }
    }
}

fn raw_data(json: &[u8]) -> Markup {
    html! {
        section aria-labelledby="data" {
            h2 #data { "The data" }
            p {
                "Every figure of this page, unrounded, with a summary and a histogram of each "
                "invocation: "
                @let target = format!("data:application/json;base64,{}", STANDARD.encode(json));
                a download="results.json" href=(target) { "results.json" }
                " (" (json.len().div_ceil(1_024)) " KiB), inside this file. Its schema is "
                "described in "
                code { "docs/results.md" } "."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::format::Shown;
    use crate::report::schema::Status;
    use crate::report::{fixture, write};

    fn rendered(results: &Results) -> String {
        page(results, &write::json(results).unwrap())
    }

    /// The page without the link that carries the raw data.
    fn without_data(page: &str) -> String {
        let start = page.find("data:application/json;base64,").unwrap();
        let end = start + page[start..].find('"').unwrap();
        format!("{}{}", &page[..start], &page[end..])
    }

    #[test]
    fn one_document_that_asks_for_nothing() {
        let page = rendered(&fixture::run());
        let page = without_data(&page);
        for request in ["http://", "https://", "src=", "url(", "@import", "<link", "<script"] {
            assert!(!page.contains(request), "{request}");
        }
        let targets = page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut anchors = 0;
        for target in targets.filter(|target| !target.is_empty()) {
            assert!(page.contains(&format!("id=\"{}\"", &target[1..])), "{target}");
            anchors += 1;
        }
        assert!(anchors > 5);
        assert_eq!(page.matches("<html").count(), 1);
        assert_eq!(page.matches("<h1").count(), 1);
    }

    #[test]
    fn each_experiment_says_what_it_asks_and_no_column_stays_empty() {
        let mut results = fixture::run();
        let page = rendered(&results);
        for name in ["round-trip", "liveness-check"] {
            let summary = crate::experiment::find(name).expect("in the fixture").summary();
            assert!(page.contains(summary), "{name}");
        }
        assert!(page.contains(">p99</th>") && page.contains(">floor</th>"));
        for cell in &mut results.cells {
            (cell.floor, cell.p99) = (None, None);
        }
        let page = rendered(&results);
        assert!(!page.contains(">p99</th>") && !page.contains(">floor</th>"));
    }

    #[test]
    fn every_figure_and_every_reason_is_on_the_page() {
        let results = fixture::run();
        let page = rendered(&results);
        for cell in &results.cells {
            match cell.status {
                Status::Ok => {
                    let shown = Shown::of_cell(cell).unwrap();
                    assert!(page.contains(&shown.value), "{} {shown:?}", cell.variant);
                    assert!(page.contains(&shown.interval), "{} {shown:?}", cell.variant);
                }
                _ => assert!(page.contains(cell.why.as_deref().unwrap()), "{}", cell.variant),
            }
            for note in &cell.notes {
                assert!(page.contains(note), "{note}");
            }
        }
        for sentence in verdict::verdict(&results) {
            for part in sentence.parts {
                let (Part::Words(text)
                | Part::Name(text)
                | Part::Figure(text)
                | Part::Interval(text)) = part;
                assert!(page.contains(&text), "{text}");
            }
        }
    }

    #[test]
    fn there_is_a_dot_for_every_invocation() {
        let results = fixture::run();
        let invocations: usize = results.cells.iter().map(|cell| cell.invocations.len()).sum();
        assert_eq!(rendered(&results).matches("<circle class=\"dot\"").count(), invocations);
    }

    #[test]
    fn hostile_strings_stay_text() {
        let mut results = fixture::run();
        let hostile = "\"><script>alert(1)</script>";
        for cell in &mut results.cells {
            cell.variant = hostile.into();
            cell.notes = vec![hostile.into()];
            cell.params.insert(hostile.into(), hostile.into());
        }
        results.cells[0].experiment = hostile.into();
        results.cells[1].why = Some(hostile.into());
        results.tried[0].tried.says = hostile.into();
        results.machine = serde_json::json!({
            "advice": [{"topic": hostile, "finding": hostile}, 7],
            "card": [[hostile, [[hostile, hostile], 1]], {}],
        });
        let page = rendered(&results);
        assert!(!page.contains("<script"));
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn an_interrupted_run_says_so_before_the_verdict() {
        let mut results = fixture::run();
        assert!(!rendered(&results).contains("Incomplete"));
        results.complete = false;
        results.machine = serde_json::Value::Null;
        let page = rendered(&results);
        assert!(page.find("Incomplete").unwrap() < page.find("The verdict").unwrap());
    }

    #[test]
    fn a_run_of_nothing_is_still_a_page() {
        let mut results = fixture::run();
        results.cells.clear();
        results.ratios.clear();
        results.tried.clear();
        assert!(rendered(&results).contains("Nothing was measured"));
    }
}

//! A run as one HTML page: [`page`].
//!
//! The page is one self-contained file: the style is inline, the charts are drawn here as SVG, and
//! a link carries the raw data. It is readable without scripts, on a narrow screen, dark or light,
//! and on paper. It is one document, but the style sheet shows only the linked page after a link of
//! the contents is followed. The order is: the verdict with its [`decision`]s, a page per topic,
//! the machine, the method, the data.
//!
//! [`section`] renders one experiment with its tables, and [`explained`] its description. [`curve`]
//! selects the cells of a curve, [`plot`] draws it, [`paper`] describes the sources' figures, and
//! [`contention`] renders the table of locks. [`heap`] draws maps of a heap, [`chart`] intervals
//! and invocations on an [`axis`], [`histogram`] the distribution of the samples. [`machine`] shows
//! the advice and the facts, [`method`] the derivation of a figure, [`script`] adds zoom and hover.
//! The sentences come from [`super::verdict`], the format of numbers from
//! [`tontine_bench::format`].

mod axis;
#[cfg(test)]
mod browser;
mod chart;
mod contention;
mod curve;
mod decision;
mod explained;
mod heap;
mod histogram;
mod machine;
mod method;
mod paper;
mod plot;
mod script;
mod section;

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::verdict::{self, Sentence, SentencePart};
use tontine_bench::about::Topic;
use tontine_bench::schema::Results;

const STYLE: &str = include_str!("style.css");

/// Pages other than the topics: anchor and title.
const OTHER_PAGES: [(&str, &str); 3] =
    [("machine", "the machine"), ("method", "the method"), ("data", "the data")];

/// Returns the whole document; `json` is the content of `results.json`, offered for download.
pub fn page(results: &Results, json: &[u8]) -> String {
    let topics = topics(results);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(script::policy());
                title { "What mechanisms cost on this machine" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.brand { "Tontine · measure" }
                    h1 #all { "What mechanisms cost on this machine" }
                    @if let Some(line) = machine::one_line(&results.machine) {
                        p.machine { (line) }
                    }
                    p.run { (verdict::run_line(results)) }
                    @if !results.complete { (incomplete()) }
                }
                (contents(&topics))
                main {
                    (the_verdict(results))
                    @for topic in &topics { (of_topic(results, topic)) }
                    section.page aria-labelledby="machine" {
                        h2 #machine { "The machine" }
                        (machine::advice(&results.machine))
                        (machine::card(&results.machine))
                    }
                    (method::method())
                    (raw_data(json))
                }
                (script::script())
            }
        }
    }
    .into_string()
}

/// A page of the report: experiments on the same topic.
struct ReportPage<'a> {
    anchor: &'static str,
    title: &'static str,
    question: &'static str,
    experiments: Vec<&'a str>,
}

/// Returns the pages for which the run has experiments, in the order of the topics; experiments
/// that the run does not describe come last.
fn topics(results: &Results) -> Vec<ReportPage<'_>> {
    let names = section::names(results);
    let of = |topic: Option<Topic>| -> Vec<&str> {
        let topic_of = |name: &str| results.about(name).map(|about| about.topic);
        names.iter().copied().filter(|name| topic_of(name) == topic).collect()
    };
    let known = Topic::ALL.map(|topic| ReportPage {
        anchor: topic.name(),
        title: title(topic),
        question: topic.question(),
        experiments: of(Some(topic)),
    });
    let others = ReportPage {
        anchor: "others",
        title: "Others",
        question: "Experiments that the run does not describe",
        experiments: of(None),
    };
    known.into_iter().chain([others]).filter(|page| !page.experiments.is_empty()).collect()
}

fn title(topic: Topic) -> &'static str {
    match topic {
        Topic::Messages => "Messages",
        Topic::Death => "Death",
        Topic::Signals => "Signals",
        Topic::Processes => "Processes",
        Topic::Memory => "Memory",
    }
}

fn of_topic(results: &Results, page: &ReportPage<'_>) -> Markup {
    html! {
        section.page aria-labelledby=(page.anchor) {
            h2 id=(page.anchor) { (page.title) }
            p.question { (page.question) }
            ul.experiments {
                @for name in &page.experiments {
                    li { a href={ "#" (section::anchor(name)) } { (name) } }
                }
            }
            @for name in &page.experiments { (section::section(results, name)) }
        }
    }
}

fn incomplete() -> Markup {
    html! {
        p.incomplete role="status" {
            strong { "Incomplete. " }
            "The run was interrupted: all figures are from the invocations that had ended by "
            "then, and "
            "cells with too few have no interval."
        }
    }
}

fn the_verdict(results: &Results) -> Markup {
    let sentences = verdict::verdict(results);
    html! {
        section.page.verdict aria-labelledby="verdict" {
            h2 #verdict { "The verdict" }
            @if sentences.is_empty() {
                p { "No measured row supports a sentence; the tables say why." }
            } @else {
                ul { @for sentence in &sentences { li { (marked(sentence)) } } }
            }
            (machine::warning(&results.machine))
            (decision::table(results))
            (decision::survivors(results))
        }
    }
}

fn marked(sentence: &Sentence) -> Markup {
    html! {
        @for part in &sentence.parts {
            @match part {
                SentencePart::Words(text) => (text),
                SentencePart::Name(text) => code { (text) },
                SentencePart::Figure(text) => strong { (text) },
                SentencePart::Interval(text) => span.whole { (text) },
            }
        }
    }
}

fn contents(topics: &[ReportPage<'_>]) -> Markup {
    html! {
        nav aria-label="Contents" {
            a href="#all" { "everything" } " "
            a href="#verdict" { "the verdict" } " "
            @for page in topics { a href={ "#" (page.anchor) } { (page.title.to_lowercase()) } " " }
            @for (anchor, title) in OTHER_PAGES { a href={ "#" (anchor) } { (title) } " " }
        }
    }
}

fn raw_data(json: &[u8]) -> Markup {
    let packed = packed(json);
    html! {
        section.page aria-labelledby="data" {
            h2 #data { "The data" }
            p {
                "Every figure of this page, unrounded, with a summary and a histogram of each "
                "invocation: "
                @let target = format!("data:application/gzip;base64,{}", STANDARD.encode(&packed));
                a download="results.json.gz" href=(target) { "results.json.gz" }
                " (" (packed.len().div_ceil(1_024)) " KiB, unpacked "
                (json.len().div_ceil(1_024)) " KiB), inside this file. Its schema is described in "
                code { "docs/reference/results.md" } "."
            }
        }
    }
}

/// Compresses `json` with gzip; uncompressed data would double the size of the page.
fn packed(json: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(json).and_then(|()| encoder.finish()).expect("writing to a Vec cannot fail")
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use tontine_bench::fixture;
    use tontine_bench::format::FormattedFigure;
    use tontine_bench::schema::Status;

    fn rendered(results: &Results) -> String {
        page(results, &results.to_json().unwrap())
    }

    /// Returns the page without the link that carries the raw data.
    fn without_data(page: &str) -> String {
        let start = page.find("data:application/gzip;base64,").unwrap();
        let end = start + page[start..].find('"').unwrap();
        format!("{}{}", &page[..start], &page[end..])
    }

    #[test]
    fn page_makes_no_request_and_links_resolve() {
        let page = rendered(&fixture::run());
        let page = without_data(&page);
        for request in ["http://", "https://", " src=", "url(", "@import", "<link", "fetch("] {
            assert!(!page.contains(request), "{request}");
        }
        assert_eq!(page.matches("<script").count(), 1);
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
    fn page_shows_questions_and_omits_empty_columns() {
        let mut results = fixture::run();
        let page = rendered(&results);
        for name in ["round-trip", "liveness-check"] {
            let about = results.about(name).expect("in the fixture");
            assert!(page.contains(&about.question), "{name}");
        }
        assert!(page.contains(">p99</th>") && page.contains(">floor</th>"));
        for cell in &mut results.cells {
            (cell.floor, cell.p99) = (None, None);
        }
        let page = rendered(&results);
        assert!(!page.contains(">p99</th>") && !page.contains(">floor</th>"));
    }

    #[test]
    fn unknown_experiment_is_listed_under_described_topic() {
        let mut results = fixture::small();
        let mut about = results.about("round-trip").expect("in the fixture").clone();
        about.name = "pigeon-post".into();
        about.question = "How long does a pigeon take?".into();
        about.topic = Topic::Signals;
        results.experiments = vec![about];
        for cell in &mut results.cells {
            cell.experiment = "pigeon-post".into();
        }
        let page = rendered(&results);
        assert!(page.contains("How long does a pigeon take?"));
        assert!(page.contains(">Signals</h2>") && !page.contains(">Others</h2>"));
        results.experiments.clear();
        let page = rendered(&results);
        assert!(page.contains("experiment-pigeon-post") && page.contains(">Others</h2>"));
    }

    #[test]
    fn page_contains_every_figure_and_reason() {
        let results = fixture::run();
        let page = rendered(&results);
        for cell in &results.cells {
            match cell.status {
                Status::Ok => {
                    let shown = FormattedFigure::of_cell(cell).unwrap();
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
                let (SentencePart::Words(text)
                | SentencePart::Name(text)
                | SentencePart::Figure(text)
                | SentencePart::Interval(text)) = part;
                assert!(page.contains(&text), "{text}");
            }
        }
    }

    #[test]
    fn every_invocation_has_a_dot_in_chart_and_curve() {
        let mut results = fixture::run();
        results.cells.retain(|cell| cell.experiment == "round-trip");
        let dots = |results: &Results| {
            let invocations: usize = results.cells.iter().map(|cell| cell.invocations.len()).sum();
            (rendered(results).matches("<circle class=\"dot\"").count(), invocations)
        };
        let (drawn, invocations) = dots(&results);
        assert_eq!(drawn, invocations);
        results.cells = fixture::run().cells;
        results.cells.retain(|cell| cell.experiment == "signal-throughput");
        let (drawn, invocations) = dots(&results);
        assert_eq!(drawn, 2 * invocations);
    }

    #[test]
    fn paper_figure_appears_only_for_described_metric() {
        let page = rendered(&fixture::run());
        for figure in 1..=4 {
            assert_eq!(page.matches(&format!("Figure {figure}: ")).count(), 1, "{figure}");
        }
        let (_, after) = page.split_once("Figure 1: ").unwrap();
        let (curve, _) = after.split_once("</figure>").unwrap();
        assert!(curve.contains("linux: at 1 ") && curve.contains("linux, same-core: at 1 "));
        let (_, sent) = page.split_once("received <code>sent_per_signal</code></h4>").unwrap();
        let (curve, _) = sent.split_once("</figure>").unwrap();
        assert!(!curve.contains("In the paper") && !curve.contains("per second"), "{curve}");
    }

    #[test]
    fn hostile_strings_are_escaped() {
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
        assert_eq!(page.matches("<script").count(), 1, "only our own");
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn embedded_data_unpacks_to_results_json() {
        let results = fixture::run();
        let json = results.to_json().unwrap();
        let page = page(&results, &json);
        let start = page.find("data:application/gzip;base64,").unwrap() + 29;
        let end = start + page[start..].find('"').unwrap();
        let packed = STANDARD.decode(&page[start..end]).unwrap();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == json);
        assert!(page.len() < 5_000_000, "{} bytes", page.len());
    }

    #[test]
    fn interrupted_run_is_marked_before_verdict() {
        let mut results = fixture::run();
        assert!(!rendered(&results).contains("Incomplete"));
        results.complete = false;
        results.machine = serde_json::Value::Null;
        let page = rendered(&results);
        assert!(page.find("Incomplete").unwrap() < page.find("The verdict").unwrap());
    }

    #[test]
    fn empty_run_renders_page() {
        let mut results = fixture::run();
        results.cells.clear();
        results.ratios.clear();
        results.tried.clear();
        assert!(rendered(&results).contains("No measured row"));
    }
}
